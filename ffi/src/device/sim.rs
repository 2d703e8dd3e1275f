//! A device made of host memory, for machines without one and for tests.
//!
//! It keeps the one property of a device that code gets wrong: its memory lies in an address space of its
//! own. The addresses that it reports are not canonical on any CPU that we run on, so that code which
//! dereferences one faults at once instead of working by accident; only the port moves bytes.
//!
//! ```text
//!   reported:  0x0Doo_oo00_0000_0000 + block × block_bytes      (oooo: ordinal; 1 TiB a device)
//!   held:      an arena, private to this file
//! ```
//!
//! Invariants
//! - I1: no address of the arena leaves this file.
//! - I2: a copy takes the block's borrow word first: two copies that conflict give [`DeviceError::Busy`].

use crate::arena::{ArenaError, BorrowError, HostArena};
use kvstrata_core::storage::{DeviceError, DevicePort, Storage, StorageKind};
use std::sync::Arc;

/// Address of byte 0 of device 0: bits 47 to 63 differ, so no x86-64 or AArch64 user address has this form.
pub const SIM_ADDRESS_BASE: u64 = 0x0D00_0000_0000_0000;

/// Simulated device memory: `blocks` blocks of `block_bytes` bytes, zeroed at first.
#[derive(Debug)]
pub struct SimDevice {
    memory: Arc<HostArena>,
    ordinal: u16,
}

impl SimDevice {
    /// Device 0 with `blocks` blocks of `block_bytes` bytes.
    ///
    /// # Errors
    /// [`ArenaError`]: a zero or impossible size, or no memory.
    pub fn new(blocks: usize, block_bytes: usize) -> Result<SimDevice, ArenaError> {
        SimDevice::with_ordinal(0, blocks, block_bytes)
    }

    /// The same with a given ordinal; devices of different ordinals have disjoint addresses.
    ///
    /// # Errors
    /// [`ArenaError`]: a zero or impossible size, or no memory.
    pub fn with_ordinal(ordinal: u16, blocks: usize, block_bytes: usize) -> Result<SimDevice, ArenaError> {
        Ok(SimDevice { memory: HostArena::new(blocks, block_bytes)?, ordinal })
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.memory.blocks()
    }

    fn checked(
        &self,
        block: u32,
        offset: usize,
        bytes: usize,
    ) -> Result<core::ops::Range<usize>, DeviceError> {
        let blocks = u32::try_from(self.memory.blocks()).unwrap_or(u32::MAX);
        DeviceError::check_range(block, offset, bytes, blocks, self.memory.block_bytes())?;
        Ok(offset..offset + bytes)
    }
}

fn busy(block: u32) -> impl Fn(BorrowError) -> DeviceError {
    move |_| DeviceError::Busy { block }
}

impl Storage for SimDevice {
    fn kind(&self) -> StorageKind {
        StorageKind::Device { ordinal: u32::from(self.ordinal) }
    }

    fn base_address(&self) -> u64 {
        SIM_ADDRESS_BASE + (u64::from(self.ordinal) << 40)
    }

    fn size_bytes(&self) -> u64 {
        self.memory.blocks() as u64 * self.memory.block_bytes() as u64
    }
}

impl DevicePort for SimDevice {
    fn block_bytes(&self) -> usize {
        self.memory.block_bytes()
    }

    fn copy_in(&self, block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError> {
        let range = self.checked(block, offset, src.len())?;
        self.memory.write(block as usize).map_err(busy(block))?[range].copy_from_slice(src);
        Ok(())
    }

    fn copy_out(&self, block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.checked(block, offset, dst.len())?;
        dst.copy_from_slice(&self.memory.read(block as usize).map_err(busy(block))?[range]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_come_out_by_the_port_alone() {
        let device = SimDevice::new(4, 1000).expect("device");
        device.copy_in(3, 10, &[1, 2, 3]).expect("in range");
        let mut back = [9; 5];
        device.copy_out(3, 9, &mut back).expect("in range");
        assert_eq!(back, [0, 1, 2, 3, 0]);
        device.copy_in(0, 1000, &[]).expect("nothing, at the end");
        assert_eq!(device.block_bytes(), 1000);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_leaves_the_bytes() {
        let device = SimDevice::new(2, 100).expect("device");
        for (block, offset, len) in
            [(2, 0, 1), (0, 100, 1), (0, 0, 101), (1, usize::MAX, 2), (u32::MAX, 0, 1)]
        {
            let source = vec![7; len];
            let refused = device.copy_in(block, offset, &source);
            assert!(matches!(refused, Err(DeviceError::OutOfRange { .. })), "{block} {offset} {len}");
            let mut target = vec![7; len];
            assert!(device.copy_out(block, offset, &mut target).is_err());
            assert!(target.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_conflict_is_busy() {
        let device = SimDevice::new(1, 8).expect("device");
        let reader = device.memory.read(0).expect("free");
        assert!(matches!(device.copy_in(0, 0, &[1]), Err(DeviceError::Busy { block: 0 })));
        device.copy_out(0, 0, &mut [0; 8]).expect("readers share");
        drop(reader);
        device.copy_in(0, 0, &[1]).expect("free again");
    }

    #[test]
    fn addresses_are_the_devices_own() {
        let first = SimDevice::new(2, 8).expect("device");
        let second = SimDevice::with_ordinal(1, 2, 8).expect("device");
        assert_eq!(first.kind(), StorageKind::Device { ordinal: 0 });
        assert!(first.base_address() + first.size_bytes() <= second.base_address());
        // Not canonical: bits 47 to 63 are neither all zero nor all one.
        for device in [&first, &second] {
            let high = device.base_address() >> 47;
            assert!(high != 0 && high != u64::MAX >> 47);
        }
    }
}

//! A device that damages bytes, to show that a replay notices a wrong byte.

use kvstrata_core::storage::{DeviceError, DevicePort, Storage, StorageKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Passes all calls on, and flips one bit in every `every`th copy to the device.
#[derive(Debug)]
pub struct FlippingPort<D> {
    device: D,
    every: u64,
    copies: AtomicU64,
}

impl<D: DevicePort> FlippingPort<D> {
    /// Wraps a device. With `every` 0, no byte is damaged.
    pub fn new(device: D, every: u64) -> FlippingPort<D> {
        FlippingPort { device, every, copies: AtomicU64::new(0) }
    }
}

impl<D: DevicePort> Storage for FlippingPort<D> {
    fn kind(&self) -> StorageKind {
        self.device.kind()
    }

    fn base_address(&self) -> u64 {
        self.device.base_address()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }
}

impl<D: DevicePort> DevicePort for FlippingPort<D> {
    fn block_bytes(&self) -> usize {
        self.device.block_bytes()
    }

    fn copy_in(&self, block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError> {
        if self.every == 0 {
            return self.device.copy_in(block, offset, src);
        }
        // Relaxed: only the count matters.
        let copy = self.copies.fetch_add(1, Ordering::Relaxed) + 1;
        if !copy.is_multiple_of(self.every) || src.is_empty() {
            return self.device.copy_in(block, offset, src);
        }
        let mut damaged = src.to_vec();
        let victim = (copy.wrapping_mul(7919) % damaged.len() as u64) as usize;
        damaged[victim] ^= 1 << (copy % 8);
        self.device.copy_in(block, offset, &damaged)
    }

    fn copy_out(&self, block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.device.copy_out(block, offset, dst)
    }
}

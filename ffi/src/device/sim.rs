//! A device made of host memory, for tests and for machines without a device.
//!
//! It keeps the one property of a device that code gets wrong: its memory lies in an address space of its
//! own. The addresses that it reports are not canonical on any CPU that we run on. So code that
//! dereferences one faults at once instead of working by accident; only the port moves bytes.
//!
//! ```text
//!   reported:  0x0Doo_oo00_0000_0000 + block × block_bytes      (oooo: ordinal; 1 TiB per device)
//!   held:      one arena per layer, private to this file, as an engine has one tensor per layer
//!
//!   block 2 by the port   │ layer 0 │ layer 1 │ … │         offsets run over the layers, one after the other
//!                              │         └────────────────┐
//!   arena of layer 0      b0 b1 b2 b3 …      of layer 1   b0 b1 b2 b3 …      each with its own borrow words
//! ```
//!
//! Invariants
//! - I1: no address of an arena leaves this file.
//! - I2: before a copy moves a byte, it takes the borrow words of all the block's layers that it touches.
//!   Of two conflicting copies, one gets [`DeviceError::Busy`] and leaves all bytes alone. Copies of
//!   different layers of one block do not conflict.

use crate::arena::{ArenaError, BlockWrite, BorrowError, HostArena};
use crate::copy::HostCopy;
use kvstrata_core::storage::{DeviceError, DevicePort, Storage, StorageKind};
use std::sync::Arc;

/// Address of byte 0 of device 0: bits 47 to 63 differ, so no x86-64 or AArch64 user address has this form.
pub const SIM_ADDRESS_BASE: u64 = 0x0D00_0000_0000_0000;

/// Simulated device memory: `blocks` blocks of one or more layers, initially zeroed.
#[derive(Debug)]
pub struct SimDevice {
    layers: Box<[Arc<HostArena>]>,
    block_bytes: usize,
    ordinal: u16,
}

/// A block that the device itself uses ([`SimDevice::hold`]).
#[derive(Debug)]
#[must_use = "dropping it frees the block"]
pub struct SimHold {
    _layers: Vec<BlockWrite>,
}

impl SimDevice {
    /// Device 0 with `blocks` blocks of `block_bytes` bytes, of one layer.
    ///
    /// # Errors
    /// [`ArenaError`]: a zero or impossible size, or no memory.
    pub fn new(blocks: usize, block_bytes: usize) -> Result<SimDevice, ArenaError> {
        SimDevice::with_ordinal(0, blocks, block_bytes)
    }

    /// As [`new`](SimDevice::new), with a given ordinal; devices of different ordinals have
    /// disjoint addresses.
    ///
    /// # Errors
    /// [`ArenaError`]: a zero or impossible size, or no memory.
    pub fn with_ordinal(ordinal: u16, blocks: usize, block_bytes: usize) -> Result<SimDevice, ArenaError> {
        SimDevice::with_layers(ordinal, blocks, &[block_bytes])
    }

    /// As [`with_ordinal`](SimDevice::with_ordinal), with one tensor per layer: `layer_bytes[l]` bytes
    /// per block.
    ///
    /// # Errors
    /// [`ArenaError`]: no layer, a zero or impossible size, or no memory.
    pub fn with_layers(ordinal: u16, blocks: usize, layer_bytes: &[usize]) -> Result<SimDevice, ArenaError> {
        let block_bytes = layer_bytes.iter().try_fold(0_usize, |sum, bytes| sum.checked_add(*bytes));
        let impossible = |block_bytes, why| ArenaError::Size { blocks, block_bytes, why };
        let block_bytes = match block_bytes {
            Some(0) => return Err(impossible(0, "a device needs at least one layer of at least one byte")),
            Some(bytes) => bytes,
            None => {
                return Err(impossible(
                    usize::MAX,
                    "the layers exceed the address space; use fewer or smaller layers",
                ));
            }
        };
        let layers: Result<_, _> = layer_bytes.iter().map(|bytes| HostArena::new(blocks, *bytes)).collect();
        Ok(SimDevice { layers: layers?, block_bytes, ordinal })
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.layers[0].blocks()
    }

    /// Bytes per block of each layer.
    #[must_use]
    pub fn layer_bytes(&self) -> impl ExactSizeIterator<Item = usize> {
        self.layers.iter().map(|layer| layer.block_bytes())
    }

    /// Copies a layer of a block from host memory and returns the XXH3-64 of the bytes. The copy bypasses
    /// the caches if `copy` says so for this many bytes.
    ///
    /// # Errors
    /// [`DeviceError`]: there is no such block or layer, `src` has another length, or another copy uses
    /// the layer. The layer is untouched.
    pub fn copy_layer_in(
        &self,
        block: u32,
        layer: u32,
        src: &[u8],
        copy: &HostCopy,
    ) -> Result<u64, DeviceError> {
        let mut to = self.layer(block, layer, src.len())?.write(block as usize).map_err(busy(block))?;
        copy.copy_bytes_with_checksum(src, &mut to, copy.goes_past_caches(src.len() as u64))
            .map_err(|_| self.no_layer(layer, src.len()))
    }

    /// As [`copy_layer_in`](SimDevice::copy_layer_in), without the sum.
    ///
    /// # Errors
    /// As [`copy_layer_in`](SimDevice::copy_layer_in).
    pub fn copy_layer_in_unsummed(
        &self,
        block: u32,
        layer: u32,
        src: &[u8],
        copy: &HostCopy,
    ) -> Result<(), DeviceError> {
        let mut to = self.layer(block, layer, src.len())?.write(block as usize).map_err(busy(block))?;
        copy.copy_bytes(src, &mut to, copy.goes_past_caches(src.len() as u64))
            .map_err(|_| self.no_layer(layer, src.len()))
    }

    /// Copies a layer of a block to host memory, otherwise as [`copy_layer_in`](SimDevice::copy_layer_in).
    ///
    /// # Errors
    /// As [`copy_layer_in`](SimDevice::copy_layer_in); `dst` is untouched.
    pub fn copy_layer_out(
        &self,
        block: u32,
        layer: u32,
        dst: &mut [u8],
        copy: &HostCopy,
    ) -> Result<u64, DeviceError> {
        let from = self.layer(block, layer, dst.len())?.read(block as usize).map_err(busy(block))?;
        copy.copy_bytes_with_checksum(&from, dst, copy.goes_past_caches(dst.len() as u64))
            .map_err(|_| self.no_layer(layer, dst.len()))
    }

    /// Keeps a block from all copies, as a kernel at work on it should: they get [`DeviceError::Busy`]
    /// until the hold is dropped.
    ///
    /// # Errors
    /// [`DeviceError`]: there is no such block, or a copy uses it.
    pub fn hold(&self, block: u32) -> Result<SimHold, DeviceError> {
        self.check(block, 0, 0)?;
        // Collected one by one: a refusal releases the words taken before it.
        let layers: Result<_, _> = self.layers.iter().map(|layer| layer.write(block as usize)).collect();
        Ok(SimHold { _layers: layers.map_err(busy(block))? })
    }

    fn check(&self, block: u32, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
        DeviceError::check_range(block, offset, bytes, blocks, self.block_bytes)
    }

    /// Returns the memory of a layer, if it has that block.
    fn layer(&self, block: u32, layer: u32, bytes: usize) -> Result<&Arc<HostArena>, DeviceError> {
        self.check(block, 0, 0)?;
        self.layers.get(layer as usize).ok_or_else(|| self.no_layer(layer, bytes))
    }

    fn no_layer(&self, layer: u32, len: usize) -> DeviceError {
        let layer_bytes = self.layers.get(layer as usize).map_or(0, |arena| arena.block_bytes());
        DeviceError::Layer { layer, len, layers: self.layers.len() as u32, layer_bytes }
    }
}

/// Copies `src` to `offset` from the start of the first of these layers; bytes move once the words of all
/// layers are taken (I2).
fn put(layers: &[Arc<HostArena>], block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError> {
    let (false, Some((layer, rest))) = (src.is_empty(), layers.split_first()) else { return Ok(()) };
    if offset >= layer.block_bytes() {
        return put(rest, block, offset - layer.block_bytes(), src);
    }
    let mut to = layer.write(block as usize).map_err(busy(block))?;
    let (here, behind) = src.split_at(src.len().min(layer.block_bytes() - offset));
    put(rest, block, 0, behind)?;
    to[offset..][..here.len()].copy_from_slice(here);
    Ok(())
}

/// As [`put`], in the other direction.
fn get(layers: &[Arc<HostArena>], block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError> {
    let (false, Some((layer, rest))) = (dst.is_empty(), layers.split_first()) else { return Ok(()) };
    if offset >= layer.block_bytes() {
        return get(rest, block, offset - layer.block_bytes(), dst);
    }
    let from = layer.read(block as usize).map_err(busy(block))?;
    let (here, behind) = dst.split_at_mut(dst.len().min(layer.block_bytes() - offset));
    get(rest, block, 0, behind)?;
    here.copy_from_slice(&from[offset..][..here.len()]);
    Ok(())
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
        self.blocks() as u64 * self.block_bytes as u64
    }
}

impl DevicePort for SimDevice {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn copy_in(&self, block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError> {
        self.check(block, offset, src.len())?;
        put(&self.layers, block, offset, src)
    }

    fn copy_out(&self, block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.check(block, offset, dst.len())?;
        get(&self.layers, block, offset, dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_bytes_move_by_the_port_alone() {
        let device = SimDevice::new(4, 1000).expect("device");
        device.copy_in(3, 10, &[1, 2, 3]).expect("in range");
        let mut back = [9; 5];
        device.copy_out(3, 9, &mut back).expect("in range");
        assert_eq!(back, [0, 1, 2, 3, 0]);
        device.copy_in(0, 1000, &[]).expect("nothing, at the end");
        assert_eq!(device.block_bytes(), 1000);
    }

    #[test]
    fn copy_out_of_range_is_refused_and_changes_no_byte() {
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
    fn conflicting_copy_is_busy() {
        let device = SimDevice::new(1, 8).expect("device");
        let reader = device.layers[0].read(0).expect("free");
        assert!(matches!(device.copy_in(0, 0, &[1]), Err(DeviceError::Busy { block: 0 })));
        device.copy_out(0, 0, &mut [0; 8]).expect("readers share");
        drop(reader);
        device.copy_in(0, 0, &[1]).expect("free again");
    }

    #[test]
    fn addresses_of_devices_are_disjoint_and_not_canonical() {
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

    /// A device of 3 blocks; the value of each byte tells its place.
    fn layered() -> SimDevice {
        let device = SimDevice::with_layers(0, 3, &[5, 100, 1, 70]).expect("device");
        for block in 0..3 {
            let bytes: Vec<u8> = (0..176).map(|at| at + block as u8).collect();
            device.copy_in(block, 0, &bytes).expect("in range");
        }
        device
    }

    fn bytes_of(device: &SimDevice, block: u32) -> Vec<u8> {
        let mut bytes = vec![0; device.block_bytes()];
        device.copy_out(block, 0, &mut bytes).expect("in range");
        bytes
    }

    #[test]
    fn layers_are_consecutive_and_copied_alone() {
        let (device, copy) = (layered(), HostCopy::new());
        for copy in [copy, copy.stream_from_bytes(0)] {
            for (layer, start) in [(0, 0), (1, 5), (2, 105), (3, 106)] {
                let mut bytes = vec![0; device.layer_bytes().nth(layer as usize).expect("a layer")];
                let sum = device.copy_layer_out(1, layer, &mut bytes, &copy).expect("in range");
                assert_eq!(bytes, bytes_of(&device, 1)[start..][..bytes.len()], "layer {layer}");
                assert_eq!(sum, twox_hash::XxHash3_64::oneshot(&bytes));
                bytes.fill(7);
                let sum = device.copy_layer_in(2, layer, &bytes, &copy).expect("in range");
                assert_eq!(sum, twox_hash::XxHash3_64::oneshot(&bytes));
                assert_eq!(bytes_of(&device, 2)[..start + bytes.len()], vec![7; start + bytes.len()]);
            }
            assert_eq!(bytes_of(&device, 1), (1..177).collect::<Vec<u8>>(), "its neighbour is as it was");
            device.copy_in(2, 0, &(2..178).collect::<Vec<u8>>()).expect("in range");
        }
    }

    #[test]
    fn parts_of_a_block_cross_layers() {
        let (device, mut expected) = (layered(), (0..176).collect::<Vec<u8>>());
        for (offset, bytes) in
            (0..176).step_by(5).flat_map(|at| [(at, 1), (at, (176 - at) / 2), (at, 176 - at)])
        {
            let mut part = vec![0; bytes];
            device.copy_out(0, offset, &mut part).expect("in range");
            assert_eq!(part, expected[offset..][..bytes], "{bytes} from {offset}");
            part.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7).wrapping_add(3));
            expected[offset..][..bytes].copy_from_slice(&part);
            device.copy_in(0, offset, &part).expect("in range");
            assert_eq!(bytes_of(&device, 0), expected, "{bytes} to {offset}");
        }
    }

    #[test]
    fn partial_copy_of_a_layer_is_refused() {
        let (device, copy) = (layered(), HostCopy::new());
        for (block, layer, bytes) in [(0, 4, 1), (0, u32::MAX, 1), (0, 0, 4), (0, 0, 6), (0, 2, 0), (3, 0, 5)]
        {
            let mut target = vec![9; bytes];
            let refused = device.copy_layer_out(block, layer, &mut target, &copy);
            assert_eq!(refused, device.copy_layer_in(block, layer, &target, &copy));
            match refused {
                Err(DeviceError::OutOfRange { block: 3, .. }) => assert_eq!(block, 3),
                Err(DeviceError::Layer { layer: of, len, layers: 4, .. }) => {
                    assert_eq!((of, len), (layer, bytes))
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(target, vec![9; bytes]);
        }
        assert_eq!(bytes_of(&device, 0), (0..176).collect::<Vec<u8>>());
        let error = device.copy_layer_in(0, 1, &[0; 7], &copy).expect_err("too short").to_string();
        assert_eq!(error, "7 bytes for layer 1: it has 100, and the device 4 layers; copy whole layers");
        assert!(SimDevice::with_layers(0, 3, &[]).is_err() && SimDevice::with_layers(0, 3, &[1, 0]).is_err());
    }

    #[test]
    fn layers_of_a_block_conflict_separately() {
        let (device, copy) = (layered(), HostCopy::new());
        let writer = device.layers[2].write(0).expect("free");
        let busy = Err(DeviceError::Busy { block: 0 });
        assert_eq!(device.copy_layer_out(0, 2, &mut [0], &copy), busy);
        device.copy_layer_in(0, 1, &[1; 100], &copy).expect("another layer");
        device.copy_layer_in(1, 2, &[1], &copy).expect("another block");
        // Over several layers, one of them in use: no layer changes.
        assert_eq!(device.copy_in(0, 0, &[2; 176]).err(), busy.err());
        assert_eq!(device.copy_out(0, 0, &mut [2; 176]).err(), busy.err());
        device.copy_in(0, 5, &[3; 100]).expect("up to the layer in use");
        drop(writer);
        assert_eq!(bytes_of(&device, 0)[..7], [0, 1, 2, 3, 4, 3, 3]);
        let hold = device.hold(0).expect("free");
        assert!((0..4).all(|layer| device.layers[layer].read(0).is_err()));
        assert!(device.hold(0).is_err() && device.hold(3).is_err());
        drop(hold);
        let reader = device.layers[3].read(0).expect("free");
        assert!(device.hold(0).is_err());
        drop(reader);
        device.copy_in(0, 0, &[2; 176]).expect("a hold that was refused holds nothing");
    }
}

//! The check that a route moves the right bytes and no others, made before its speed counts.

use super::super::super::copy::Direction;
use super::super::super::error::CudaError;
use super::super::super::memory::DeviceStorage;
use super::super::route::Route;
use super::machine::{Machine, Shape};
use kvstrata_core::BlockId;
use kvstrata_core::layout::Layout;
use kvstrata_core::plan::naive;
use kvstrata_core::storage::Storage;
use std::sync::Arc;

/// Returns bytes that differ from place to place, and between the two sides.
fn pattern(side: u32, at: u64) -> u8 {
    ((at as u32).wrapping_mul(2_654_435_761).wrapping_add(side * 977) >> 13) as u8
}

impl Machine {
    /// Copies a shape by each available route, and compares the destination's memory with the oracle's.
    pub(super) fn check(&mut self, direction: Direction, shape: Shape) -> Result<(), CudaError> {
        let prepared = self.prepare(direction, shape)?;
        let [(source, _), (destination, _)] = self.sides(direction, shape)?;
        let to_strewn = direction == Direction::HostToDevice;
        let within = direction == Direction::DeviceToDevice;
        let bytes = if to_strewn { shape.strewn_bytes() } else { shape.bytes() };
        let expected = self.expected(&source, &destination, to_strewn, within, bytes);
        let (strewn, dense) = (Arc::clone(&self.strewn), Arc::clone(&self.dense));
        for route in Route::ALL.into_iter().filter(|route| prepared.has(*route).is_ok()) {
            self.put(&strewn, u32::from(to_strewn), shape.strewn_bytes())?;
            if within {
                self.put(&dense, 1, shape.bytes())?;
            } else {
                self.fill(u32::from(!to_strewn), shape.bytes())?;
            }
            self.time(&prepared, route)?;
            if direction != Direction::DeviceToHost {
                self.carry(if to_strewn { &strewn } else { &dense }, true, bytes)?;
            }
            let found = self.to_read()?;
            if let Some(at) = found.iter().zip(&expected).position(|(found, expected)| found != expected) {
                let (route, direction) = (route.name(), direction.name());
                return Err(CudaError::WrongBytes { route, direction, at: at as u64, bytes });
            }
        }
        Ok(())
    }

    /// Returns the destination's expected bytes after the copy.
    fn expected(&self, from: &Layout, to: &Layout, to_strewn: bool, within: bool, bytes: u64) -> Vec<u8> {
        let base = |strewn: bool| match (strewn, within) {
            (true, _) => self.strewn.base_address(),
            (false, true) => self.dense.base_address(),
            (false, false) => self.host.base_address(),
        };
        let (source, destination) = (base(!to_strewn), base(to_strewn));
        let mut expected: Vec<u8> = (0..bytes).map(|at| pattern(1, at)).collect();
        let block = [BlockId(0)];
        naive::copy(
            (from, &block),
            (to, &block),
            ..,
            0..1,
            |address| pattern(0, address - source),
            |address, byte| expected[(address - destination) as usize] = byte,
        );
        expected
    }

    /// Fills the arena's block.
    fn fill(&self, side: u32, bytes: u64) -> Result<(), CudaError> {
        let mut block = self.to_write()?;
        (0..bytes).zip(&mut *block).for_each(|(at, byte)| *byte = pattern(side, at));
        Ok(())
    }

    /// Fills device memory, through the arena's block.
    fn put(&self, device: &Arc<DeviceStorage>, side: u32, bytes: u64) -> Result<(), CudaError> {
        self.fill(side, bytes)?;
        self.carry(device, false, bytes)
    }
}

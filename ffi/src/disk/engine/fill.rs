//! Writing a new file through in the background: extents that were never written are slower to write.
//!
//! ```text
//!   slots   0   1   2   3   4   5   6 …
//!           W   z   z   W  ├─z──z──┤            W: written by a caller, z: zeros written here
//!                           at                  one stretch at a time, when nobody asks for anything
//! ```
//!
//! Invariants
//! - I1: zeros are written only to slots that no caller has written, and that none is writing: who comes to write a
//!   slot of the stretch in flight waits for it.

use super::super::format::Shape;
use super::super::request::{Request, Task};
use crate::arena::{ArenaError, HostArena};
use std::ops::Range;
use std::sync::Arc;

/// Written at a time, in bytes: what a request that comes then has to wait for.
const STRETCH_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(in crate::disk) struct Fill {
    shape: Shape,
    zeros: Arc<HostArena>,
    /// Slots that callers have written, a bit each.
    written: Vec<u64>,
    /// Where the next stretch starts, counted from slot 0, in bytes.
    at: u64,
    in_flight: Range<u64>,
}

impl Fill {
    pub(in crate::disk) fn new(shape: Shape) -> Result<Fill, ArenaError> {
        let zeros = HostArena::new(1, STRETCH_BYTES)?;
        Ok(Fill {
            shape,
            zeros,
            written: vec![0; (shape.slots as usize).div_ceil(64)],
            at: 0,
            in_flight: 0..0,
        })
    }

    /// A caller writes this slot.
    pub(super) fn writes(&mut self, slot: u32) {
        if let Some(word) = self.written.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    fn is_written(&self, slot: u64) -> bool {
        self.written.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Whether zeros are on their way to this slot.
    pub(super) fn covers(&self, slot: u32) -> bool {
        let start = u64::from(slot) * self.shape.stride;
        start < self.in_flight.end && self.in_flight.start < start + self.shape.stride
    }

    /// Bytes from here to the last slot's end, what callers have written included.
    pub(in crate::disk) fn left_bytes(&self) -> u64 {
        self.end() - self.at
    }

    fn end(&self) -> u64 {
        u64::from(self.shape.slots) * self.shape.stride
    }

    /// The next stretch, if there is one and none is in flight (I1).
    pub(super) fn next(&mut self) -> Option<Request> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let stride = self.shape.stride;
        while self.at < self.end() && self.is_written(self.at / stride) {
            self.at = (self.at / stride + 1) * stride;
        }
        let mut end = (self.at + STRETCH_BYTES as u64).min(self.end());
        if let Some(written) = (self.at / stride..end.div_ceil(stride)).find(|slot| self.is_written(*slot)) {
            end = end.min(written * stride);
        }
        if self.at >= end {
            return None;
        }
        let zeros = self.zeros.read(0).ok()?;
        let offset = self.shape.origin + self.at;
        self.in_flight = self.at..end;
        self.at = end;
        Some(Request::own(zeros, Task::Fill, offset, (self.in_flight.end - self.in_flight.start) as usize))
    }

    /// The stretch in flight has ended, well or not: it is not tried again, since it only makes later writes faster.
    pub(super) fn ended(&mut self) {
        self.in_flight = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_written_is_filled_once() {
        for (slots, slot_bytes) in [(1000, 64 << 10), (7, 5 << 20), (300, 4096), (1, 1)] {
            let shape = Shape::new(slots, slot_bytes, 4096).expect("a shape");
            let mut fill = Fill::new(shape).expect("memory");
            let mut filled = vec![0u32; slots as usize];
            let mut written = Vec::new();
            for number in 0.. {
                if number % 3 == 1 {
                    // A caller comes, ahead of the fill or behind it.
                    let slot = (number * 37) % slots;
                    if !fill.covers(slot) {
                        fill.writes(slot);
                        written.push(slot);
                    }
                }
                let Some(request) = fill.next() else { break };
                assert!(fill.next().is_none(), "one at a time");
                let start = request.file_offset - shape.origin;
                let end = start + request.transfer_bytes as u64;
                assert!(request.transfer_bytes <= STRETCH_BYTES && end <= u64::from(slots) * shape.stride);
                for slot in start / shape.stride..end.div_ceil(shape.stride) {
                    assert!(fill.covers(slot as u32) && !written.contains(&(slot as u32)), "slot {slot}");
                    filled[slot as usize] += 1;
                }
                fill.ended();
                assert!(!fill.covers((start / shape.stride) as u32));
            }
            assert_eq!(fill.left_bytes(), 0);
            let at_most = u64::from(slot_bytes).div_ceil(STRETCH_BYTES as u64) as u32;
            for (slot, times) in (0..slots).zip(filled) {
                assert!(
                    times <= at_most && (times > 0 || written.contains(&slot)),
                    "slot {slot}: {times} times"
                );
            }
        }
    }
}

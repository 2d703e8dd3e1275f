//! Writing a file through in the background: extents that were never written are slower to write.
//!
//! ```text
//!   slots   0   1   2   3   4   5   6 …          W: holds a block, or written by a caller
//!           W   z   z   W  ├─z──z──┤            z: zeros written here, one stretch at a time,
//!                           at                     while the volume has nothing else to do
//! ```
//!
//! Invariants
//! - I1: zeros are written only to slots that hold no block, that no caller has written, and that no
//!   caller is writing. A write to a slot of the stretch in flight waits for the stretch.
//! - I2: a slot counts as written with its first payload, also if that is shorter than the slot. Its end
//!   then stays unwritten, which makes the first longer write slower, no more.

use super::super::format::Shape;
use super::super::request::{Request, Task};
use super::super::table::Table;
use crate::arena::{ArenaError, HostArena};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes written at a time: a request that arrives meanwhile has to wait for them.
const STRETCH_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(in crate::disk) struct Fill {
    shape: Shape,
    zeros: Arc<HostArena>,
    /// Slots that hold a block, or that callers have written since, a bit each.
    written: Vec<u64>,
    /// Ranges still to be written, in order, in bytes from slot 0 on.
    todo: VecDeque<Range<u64>>,
    left_bytes: u64,
    in_flight: Range<u64>,
}

impl Fill {
    /// `unwritten`: parts of the slots, in order, as offsets in the file.
    pub(in crate::disk) fn new(
        shape: Shape,
        unwritten: Vec<Range<u64>>,
        table: &Table,
    ) -> Result<Fill, ArenaError> {
        let zeros = HostArena::new(1, STRETCH_BYTES)?;
        let todo: VecDeque<_> =
            unwritten.into_iter().map(|part| part.start - shape.origin..part.end - shape.origin).collect();
        let mut fill = Fill {
            shape,
            zeros,
            written: vec![0; (shape.slots as usize).div_ceil(64)],
            left_bytes: todo.iter().map(length).sum(),
            todo,
            in_flight: 0..0,
        };
        (0..shape.slots).filter(|slot| table.holds(*slot)).for_each(|slot| fill.writes(slot));
        Ok(fill)
    }

    /// Notes that a caller writes this slot.
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

    /// Bytes that have yet to be written, including the stretch in flight, and slots that callers have
    /// written meanwhile.
    pub(in crate::disk) fn left_bytes(&self) -> u64 {
        self.left_bytes + length(&self.in_flight)
    }

    /// The next stretch, if there is one and none is in flight (I1).
    pub(super) fn next(&mut self) -> Option<Request> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let zeros = self.zeros.read(0).ok()?;
        let stride = self.shape.stride;
        while let Some(mut part) = self.todo.pop_front() {
            self.left_bytes -= length(&part);
            while part.start < part.end && self.is_written(part.start / stride) {
                part.start = (part.start / stride + 1) * stride;
            }
            if part.start >= part.end {
                continue;
            }
            let mut end = (part.start + STRETCH_BYTES as u64).min(part.end);
            let mut slots = part.start / stride..end.div_ceil(stride);
            if let Some(written) = slots.find(|slot| self.is_written(*slot)) {
                end = end.min(written * stride);
            }
            if end < part.end {
                self.left_bytes += part.end - end;
                self.todo.push_front(end..part.end);
            }
            self.in_flight = part.start..end;
            let offset = self.shape.origin + part.start;
            return Some(Request::own(zeros, Task::Fill, offset, (end - part.start) as usize));
        }
        None
    }

    /// Ends the stretch in flight, successful or not. It is not tried again, since it only makes later
    /// writes faster.
    pub(super) fn ended(&mut self) {
        self.in_flight = 0..0;
    }
}

fn length(part: &Range<u64>) -> u64 {
    part.end - part.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Label;
    use crate::disk::format::Record;
    use kvstrata_core::SequenceHash;

    fn held_by(slots: u32, held: impl Iterator<Item = u32>) -> Table {
        let mut table = Table::new(1, slots, None).expect("memory");
        let label = Label { hash: SequenceHash::from_u128(1), ..Label::default() };
        let record = Record { label, sequence: 1, seal: [0; 16], payload_bytes: 1 };
        held.for_each(|slot| table.set(slot, &record));
        table
    }

    #[test]
    fn unwritten_ranges_are_filled_once() {
        for (slots, slot_bytes) in [(1000, 64 << 10), (7, 5 << 20), (300, 4096), (1, 1)] {
            let shape = Shape::new(slots, slot_bytes, 4096).expect("a shape");
            let all = shape.origin..shape.origin + u64::from(slots) * shape.stride;
            let mut fill = Fill::new(shape, vec![all], &held_by(slots, 0..0)).expect("memory");
            assert_eq!(fill.left_bytes(), u64::from(slots) * shape.stride);
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

    #[test]
    fn fill_of_a_found_file_spares_its_blocks() {
        let shape = Shape::new(64, 64 << 10, 4096).expect("a shape");
        let page = |number: u64| shape.origin + number * 4096;
        // Sixteen pages a slot. Slots 1, 2 and 40 hold blocks.
        let unwritten = vec![page(3)..page(60), page(100)..page(101), page(600)..page(1024)];
        let table = held_by(64, [1, 2, 40].into_iter());
        let mut fill = Fill::new(shape, unwritten, &table).expect("memory");
        assert_eq!(fill.left_bytes(), (57 + 1 + 424) * 4096);
        let mut filled = Vec::new();
        while let Some(request) = fill.next() {
            let first = (request.file_offset - shape.origin) / 4096;
            filled.push(first..first + request.transfer_bytes as u64 / 4096);
            let after = filled.last().map(|last| last.end);
            assert!(fill.left_bytes() >= request.transfer_bytes as u64, "what is in flight is left");
            fill.ended();
            assert!(fill.left_bytes() <= (1024 - after.unwrap_or(0)) * 4096, "it counts what is left");
        }
        assert_eq!(filled, [3..16, 48..60, 100..101, 600..640, 656..912, 912..1024]);
        assert_eq!(fill.left_bytes(), 0);
    }
}

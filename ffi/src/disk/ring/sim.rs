//! A ring over a simulated device: time and faults come from a seed, nothing waits, no thread runs.
//!
//! ```text
//!   push ─► flying: piece, fate, due ─► turn: time goes on, due pieces end, in any order
//!              │ arrives now, or when it ends
//!              ▼
//!            disk (`sim/disk.rs`)              log of incidents and their ranges, for the oracle
//! ```
//!
//! The ring checks the engine's obligations: at most `depth` pieces, no token twice, lists that fit,
//! bytes of writes that do not change, few writes beside reads. A broken promise is a panic.
//!
//! Past 500 lines because a fate, its effects, and the checks of the engine belong together.
//!
//! Invariants
//! - I1: a piece's memory is touched only from its push to its completion.

use super::super::sim::disk::{Disk, SECTOR_BYTES};
use super::super::sim::faults::Faults;
use super::super::sim::random::Random;
use super::{Action, Bell, Buffer, Completion, Op, Ring, Wait};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The device, its time, and what is in flight.
pub(in crate::disk) struct World {
    pub(in crate::disk) disk: Disk,
    pub(in crate::disk) faults: Faults,
    pub(in crate::disk) random: Random,
    now: Duration,
    place: Place,
    flying: Vec<Flying>,
    /// Pieces that came back unfinished, and will come again.
    again: BTreeMap<u32, Vec<Buffer>>,
    /// Everything that went wrong so far.
    pub(in crate::disk) log: Vec<Incident>,
    /// Loud failures so far.
    pub(in crate::disk) failures: u64,
    /// Syncs that did nothing and reported success.
    pub(in crate::disk) lies: u64,
    /// The device answers nothing; and until when, if it comes back by itself.
    gone: bool,
    gone_until: Option<Duration>,
    /// The device has no room until then.
    full_until: Option<Duration>,
    /// In this life the device was gone; a write found no room.
    pub(in crate::disk) was_gone: bool,
    pub(in crate::disk) was_full: bool,
    pub(in crate::disk) broken: bool,
    /// The engine waits for the bell, with nothing in flight and no time limit.
    pub(in crate::disk) asleep: bool,
}

/// The facts about the volume that the ring serves.
#[derive(Debug, Clone)]
pub(in crate::disk) struct Place {
    pub(in crate::disk) depth: usize,
    /// The range of payloads in the file.
    pub(in crate::disk) slots: Range<u64>,
    pub(in crate::disk) stride: u64,
    /// Transfers are resumed at multiples of this.
    pub(in crate::disk) alignment: usize,
    /// Maximum bytes of reads in flight when one more goes out, unless it is alone.
    pub(in crate::disk) read_cap_bytes: usize,
    /// Maximum bytes of writes in flight when one more goes out beside a read, unless it is alone.
    pub(in crate::disk) write_cap_bytes: usize,
}

/// A fault in a stretch of the file.
#[derive(Debug, Clone)]
pub(in crate::disk) struct Incident {
    pub(in crate::disk) range: Range<u64>,
    /// The engine was told.
    pub(in crate::disk) loud: bool,
}

struct Flying {
    token: u32,
    action: Action,
    range: Range<u64>,
    buffers: Vec<Buffer>,
    /// A write's bytes when it was pushed.
    bytes: Vec<u8>,
    fate: Fate,
    due: Duration,
    /// The answer of a piece whose effect has already happened.
    result: Option<i32>,
    /// For a sync: the last write that it is sure to cover.
    upto: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    Errno(i32),
    /// Only this many bytes.
    Short(usize),
    Torn,
    /// To or from this offset.
    Elsewhere(u64),
    Lost,
    Stale,
    /// This bit.
    Flip(usize),
    Lie,
}

impl World {
    pub(in crate::disk) fn new(disk: Disk, random: Random) -> World {
        World {
            disk,
            faults: Faults::default(),
            random,
            now: Duration::ZERO,
            place: Place {
                depth: 0,
                slots: 0..0,
                stride: SECTOR_BYTES,
                alignment: 1,
                read_cap_bytes: 0,
                write_cap_bytes: 0,
            },
            flying: Vec::new(),
            again: BTreeMap::new(),
            log: Vec::new(),
            failures: 0,
            lies: 0,
            gone: false,
            gone_until: None,
            full_until: None,
            was_gone: false,
            was_full: false,
            broken: false,
            asleep: false,
        }
    }

    /// Prepares for a volume: the device is there, with nothing in flight.
    pub(in crate::disk) fn start(&mut self, place: Place) {
        assert!(self.flying.is_empty() && self.again.is_empty(), "something of another life is in flight");
        self.place = place;
        (self.broken, self.asleep) = (false, false);
        self.well();
        (self.was_gone, self.was_full) = (false, false);
        (self.failures, self.lies) = (0, 0);
        self.log.clear();
    }

    /// Ends the process. Each piece in flight arrives, or part of it, or nothing. Returns the addresses
    /// of all memory in flight, and of the pieces that came back unfinished and were to come again.
    pub(in crate::disk) fn crash(&mut self) -> (Vec<usize>, Vec<usize>) {
        let mut memory: Vec<usize> = Vec::new();
        while !self.flying.is_empty() {
            let n = self.random.below(self.flying.len() as u64) as usize;
            let flying = self.flying.swap_remove(n);
            memory.extend(flying.buffers.iter().map(|buffer| buffer.iov_base.addr()));
            if flying.action == Action::Write && flying.result.is_none() {
                match self.random.below(3) {
                    0 => {}
                    1 => self.disk.write(flying.range.start, &flying.bytes),
                    _ => self.disk.write_torn(flying.range.start, &flying.bytes, &mut self.random),
                }
            }
        }
        let again = core::mem::take(&mut self.again).into_values().flatten();
        (memory, again.map(|buffer| buffer.iov_base.addr()).collect())
    }

    /// Makes the device present, with room.
    pub(in crate::disk) fn well(&mut self) {
        (self.gone, self.gone_until, self.full_until) = (false, None, None);
    }

    /// Makes the device gone until it is [well](World::well).
    #[cfg(test)]
    pub(in crate::disk) fn leaves(&mut self) {
        (self.gone, self.was_gone) = (true, true);
    }

    /// Leaves the device without room until it is [well](World::well).
    #[cfg(test)]
    pub(in crate::disk) fn fills_up(&mut self) {
        self.full_until = Some(Duration::MAX);
    }

    /// Notes that the file was changed beside the engine.
    pub(in crate::disk) fn damaged(&mut self, range: Range<u64>) {
        self.log(range, false);
    }

    /// Pieces with the ring.
    pub(in crate::disk) fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn log(&mut self, range: Range<u64>, loud: bool) {
        self.failures += u64::from(loud);
        self.log.push(Incident { range, loud });
    }

    fn fate(&mut self, action: Action, range: &Range<u64>) -> Fate {
        let faults = self.faults;
        let bytes = (range.end - range.start) as usize;
        let chance = &mut self.random;
        if self.gone_until.is_some_and(|until| until <= self.now) {
            (self.gone, self.gone_until) = (false, None);
        }
        if !self.gone && chance.chance(faults.gone) {
            (self.gone, self.was_gone) = (true, true);
            let micros = chance.pick(&[1_000, 100_000, 2_000_000, 100_000_000]);
            let until = self.now + Duration::from_micros(chance.within(1, micros));
            self.gone_until = (!chance.once_in(4)).then_some(until);
        }
        if self.gone {
            return Fate::Errno(chance.pick(&[libc::ENODEV, libc::ENXIO, libc::EIO]));
        }
        if action == Action::Write && self.full_until.is_none() && chance.chance(faults.full) {
            let micros = chance.pick(&[1_000, 100_000, 3_000_000, 60_000_000]);
            self.full_until = Some(self.now + Duration::from_micros(chance.within(1, micros)));
        }
        if self.full_until.is_some_and(|until| until <= self.now) {
            self.full_until = None;
        }
        if self.full_until.is_some() && action == Action::Write {
            return Fate::Errno(chance.pick(&[libc::ENOSPC, libc::EDQUOT, libc::EFBIG]));
        }
        if chance.chance(faults.interrupted) {
            return Fate::Errno(chance.pick(&[libc::EINTR, libc::EAGAIN]));
        }
        if chance.chance(faults.error) {
            let errno = if action == Action::Write {
                chance.pick(&[libc::EIO, libc::ENOSPC])
            } else {
                chance.pick(&[libc::EIO, libc::ENOMEM])
            };
            return Fate::Errno(errno);
        }
        if !matches!(action, Action::Read | Action::Write) {
            return match action {
                _ if chance.chance(faults.lie) => Fate::Lie,
                Action::Punch if chance.once_in(8) => Fate::Errno(libc::EOPNOTSUPP),
                _ => Fate::Well,
            };
        }
        if chance.chance(faults.nothing) {
            return Fate::Short(0);
        }
        if chance.chance(faults.short) && bytes > 1 {
            let moved = chance.within(1, bytes as u64 - 1);
            let whole = (moved / SECTOR_BYTES * SECTOR_BYTES).max(1);
            return Fate::Short(chance.pick(&[moved, whole, whole]) as usize);
        }
        if chance.chance(faults.misdirected) {
            return Fate::Elsewhere(self.elsewhere(range));
        }
        if chance.chance(faults.flip) {
            return Fate::Flip(chance.below(bytes as u64 * 8) as usize);
        }
        match action {
            Action::Write if chance.chance(faults.torn) => Fate::Torn,
            Action::Write if chance.chance(faults.lost) => Fate::Lost,
            Action::Read if chance.chance(faults.stale) => Fate::Stale,
            _ => Fate::Well,
        }
    }

    /// Another slot, or anywhere in the file.
    fn elsewhere(&mut self, range: &Range<u64>) -> u64 {
        let bytes = range.end - range.start;
        let slots = self.place.slots.clone();
        let n = self.random.below((slots.end - slots.start) / self.place.stride) * self.place.stride;
        let near = slots.start + n + range.start.saturating_sub(slots.start) % self.place.stride;
        if near + bytes <= slots.end && self.random.below(4) > 0 {
            return near;
        }
        let last = self.disk.bytes().saturating_sub(bytes);
        self.random.below(last / SECTOR_BYTES + 1) * SECTOR_BYTES
    }

    /// Does the piece's work on the file. Returns its answer.
    fn carry_out(&mut self, flying: &Flying) -> i32 {
        let (range, fate) = (flying.range.clone(), flying.fate);
        let bytes = (range.end - range.start) as i32;
        let ended = match fate {
            Fate::Errno(errno) => {
                // Part of a failed write may have arrived all the same.
                if flying.action == Action::Write && self.random.once_in(2) {
                    self.disk.write_torn(range.start, &flying.bytes, &mut self.random);
                }
                self.was_full |= matches!(errno, libc::ENOSPC | libc::EDQUOT | libc::EFBIG);
                if !matches!(errno, libc::EINTR | libc::EAGAIN | libc::EOPNOTSUPP) {
                    self.log(range, true);
                }
                return -errno;
            }
            Fate::Short(moved) => {
                if moved == 0 {
                    self.log(range.clone(), true);
                }
                range.start..range.start + moved as u64
            }
            _ => range,
        };
        if !matches!(fate, Fate::Well | Fate::Short(_) | Fate::Lie) {
            self.log(ended.clone(), false);
        }
        match flying.action {
            Action::Read => self.carry_out_read(flying, &ended),
            Action::Write => self.carry_out_write(flying, &ended),
            Action::Sync if fate == Fate::Lie => self.lies += 1,
            Action::Sync => self.disk.sync(flying.upto),
            Action::Punch if fate == Fate::Lie => {}
            Action::Punch => self.disk.write(ended.start, &vec![0; bytes as usize]),
            // There is no device memory here.
            Action::Sum => {}
        }
        match (fate, flying.action) {
            (Fate::Short(moved), _) => moved as i32,
            (_, Action::Read | Action::Write) => bytes,
            _ => 0,
        }
    }

    fn carry_out_read(&mut self, flying: &Flying, ended: &Range<u64>) {
        let mut bytes = match flying.fate {
            Fate::Stale => self.disk.read_stale(ended),
            Fate::Elsewhere(from) => self.disk.read_vec(&(from..from + ended.end - ended.start)),
            _ => self.disk.read_vec(ended),
        };
        if let Fate::Flip(bit) = flying.fate {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // SAFETY: between push and completion (I1).
        unsafe { scatter(&flying.buffers, &bytes) };
    }

    fn carry_out_write(&mut self, flying: &Flying, ended: &Range<u64>) {
        let bytes = &flying.bytes[..(ended.end - ended.start) as usize];
        match flying.fate {
            Fate::Torn => self.disk.write_torn(ended.start, bytes, &mut self.random),
            Fate::Lost => {}
            Fate::Elsewhere(to) => {
                self.disk.write(to, bytes);
                let there = to..to + bytes.len() as u64;
                self.disk.taint(there.clone());
                self.log(there, false);
            }
            Fate::Flip(bit) => {
                let mut flipped = bytes.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                self.disk.write(ended.start, &flipped);
            }
            _ => {
                self.disk.write(ended.start, bytes);
                return self.disk.heal(ended.clone());
            }
        }
        self.disk.taint(ended.clone());
    }

    fn push(&mut self, token: u32, op: &Op<'_>) {
        let range = op.file_offset..op.file_offset + op.bytes as u64;
        let again = self.again.remove(&token).is_some();
        assert!(self.flying.len() < self.place.depth, "more than {} pieces", self.place.depth);
        assert!(self.flying.iter().all(|flying| flying.token != token), "token {token} is in flight already");
        let listed: usize = op.buffers.iter().map(|buffer| buffer.iov_len).sum();
        if matches!(op.action, Action::Read | Action::Write) {
            assert!(op.bytes > 0 && listed == op.bytes, "{} bytes, and buffers of {listed}", op.bytes);
            assert!(range.end <= self.disk.bytes(), "past the file's end: {range:?}");
        }
        if self.place.slots.contains(&range.start) && !again {
            self.check_caps(op.action, op.bytes);
        }
        let bytes = match op.action {
            // SAFETY: between push and completion (I1); no one writes the bytes of a write.
            Action::Write => unsafe { gather(op.buffers, op.bytes) },
            _ => Vec::new(),
        };
        if op.action == Action::Read && self.random.once_in(4) {
            // A device may fill a read's memory with anything, in any order, until it reports completion.
            // SAFETY: between push and completion (I1).
            unsafe { scatter(op.buffers, &vec![0xDB; op.bytes]) };
        }
        let stalls = self.random.chance(self.faults.stall);
        let micros =
            if stalls { self.random.within(1_000_000, 20_000_000) } else { self.random.within(5, 800) };
        let fate = self.fate(op.action, &range);
        let mut flying = Flying {
            token,
            action: op.action,
            range,
            buffers: op.buffers.to_vec(),
            bytes,
            fate,
            due: self.now + Duration::from_micros(micros),
            result: None,
            upto: self.disk.writes(),
        };
        if op.action == Action::Write && self.random.once_in(2) {
            flying.result = Some(self.carry_out(&flying));
        }
        self.flying.push(flying);
    }

    /// Checks that few bytes are in flight when one more piece goes out.
    fn check_caps(&self, action: Action, bytes: usize) {
        let moving = |action| {
            let of = self.flying.iter().filter(move |flying| flying.action == action);
            of.map(|flying| (flying.range.end - flying.range.start) as usize).sum::<usize>()
        };
        let (reads, writes) = (moving(Action::Read), moving(Action::Write));
        let Place { read_cap_bytes, write_cap_bytes, .. } = self.place;
        match action {
            Action::Read => assert!(
                reads == 0 || reads + bytes <= read_cap_bytes,
                "{reads} bytes of reads in flight and {bytes} more"
            ),
            Action::Write => assert!(
                reads == 0 || writes == 0 || writes + bytes <= write_cap_bytes,
                "{writes} bytes of writes in flight and {bytes} more beside a read"
            ),
            Action::Sync | Action::Punch | Action::Sum => {}
        }
    }

    fn end(&mut self, n: usize) -> Completion {
        let flying = self.flying.swap_remove(n);
        if flying.action == Action::Write {
            // SAFETY: between push and completion (I1); no one writes the bytes of a write.
            let now = unsafe { gather(&flying.buffers, flying.bytes.len()) };
            assert!(now == flying.bytes, "bytes of a write in flight have changed: {:?}", flying.range);
        }
        let result = flying.result.unwrap_or_else(|| self.carry_out(&flying));
        let unfinished = match result {
            0 => false,
            1.. => (result as u64) < flying.range.end - flying.range.start,
            _ => matches!(-result, libc::EINTR | libc::EAGAIN),
        };
        if unfinished {
            let alignment = self.place.alignment;
            let moved = usize::try_from(result).unwrap_or(0) / alignment * alignment;
            self.again.insert(flying.token, unmoved(flying.buffers, moved));
        }
        Completion { token: flying.token, result }
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        self.asleep = false;
        self.broken |= self.random.chance(self.faults.broken);
        if self.broken {
            return Err(libc::EBADF);
        }
        self.now += Duration::from_micros(self.random.below(20));
        if !matches!(wait, Wait::No | Wait::Look) && self.random.once_in(16) {
            return Ok(1);
        }
        let first = self.flying.iter().map(|flying| flying.due).min();
        match (wait, first) {
            (Wait::No | Wait::Look, _) => {}
            (Wait::For(time), None) => self.now += time,
            (Wait::For(time), Some(first)) => self.now = self.now.max(first.min(self.now + time)),
            (Wait::Batch { .. } | Wait::Forever, Some(first)) => self.now = self.now.max(first),
            (Wait::Batch { .. } | Wait::Forever, None) => self.asleep = true,
        }
        let mut n = 0;
        while n < self.flying.len() {
            if self.flying[n].due <= self.now && self.random.below(8) > 0 {
                // The last piece takes its place.
                let completion = self.end(n);
                let at = self.random.below(done.len() as u64 + 1) as usize;
                done.insert(at, completion);
            } else {
                n += 1;
            }
        }
        Ok(1)
    }
}

/// The ring of a [`World`].
pub(in crate::disk) struct SimRing(pub(in crate::disk) Rc<RefCell<World>>);

impl Ring for SimRing {
    fn depth(&self) -> usize {
        self.0.borrow().place.depth
    }

    fn bell(&self) -> Bell {
        // Nothing sleeps here.
        Box::new(|| {})
    }

    fn now(&self) -> Duration {
        self.0.borrow().now
    }

    unsafe fn push(&mut self, token: u32, op: &Op<'_>) {
        self.0.borrow_mut().push(token, op);
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        self.0.borrow_mut().turn(done, wait)
    }
}

/// The stretches that are not wholly among the first `moved` bytes.
fn unmoved(mut buffers: Vec<Buffer>, mut moved: usize) -> Vec<Buffer> {
    buffers.retain(|buffer| {
        let whole = moved >= buffer.iov_len;
        moved -= buffer.iov_len.min(moved);
        !whole
    });
    buffers
}

/// Collects the bytes of a list of stretches.
///
/// # Safety
/// They are readable and no one writes them.
unsafe fn gather(buffers: &[Buffer], bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    for buffer in buffers {
        // SAFETY: readable, initialised memory that no one writes (the caller's promise).
        all.extend_from_slice(unsafe { core::slice::from_raw_parts(buffer.iov_base.cast(), buffer.iov_len) });
    }
    all
}

/// Fills stretches, one after the other, with the given bytes.
///
/// # Safety
/// They are writable and no one else uses them.
unsafe fn scatter(buffers: &[Buffer], mut bytes: &[u8]) {
    for buffer in buffers {
        let (now, later) = bytes.split_at(buffer.iov_len.min(bytes.len()));
        // SAFETY: writable memory of at least so many bytes, ours alone (the caller's promise).
        unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), buffer.iov_base.cast(), now.len()) };
        bytes = later;
    }
}

//! The order in which the engine gives pieces to the ring.

use super::gate::{Opener, behind_gate, gated};
use super::*;
use crate::disk::ring::Action::{self, Read, Write};
use crate::disk::ring::{Bell, Completion, Op, Ring, Wait};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Where slot 0 starts: behind a superblock and one page of the table.
const ORIGIN: u64 = 8192;

fn volume(options: VolumeOptions) -> (Volume, Opener) {
    let (volume, gate) = gated(options.backend(Backend::Blocking)).expect("volume");
    (volume, Opener(gate))
}

#[test]
fn reads_precede_writes_and_writes_keep_their_share() {
    let dir = dir();
    let arena = HostArena::new(64, 4096).expect("arena");
    let (volume, gate) = volume(options(&dir, 64, 4096).depth(1).queue(64));
    // Slots in descending order, so that none is merged with the one before it.
    let write = |n: u32| volume.write(63 - n, name(63 - n, 1), arena.read(n as usize).expect("free"));
    let read = |n: u32| {
        volume.read(63 - n, name(63 - n, 0).hash, Urgency::Ordinary, arena.write(n as usize).expect("free"))
    };
    // One write fills the ring; two more queue behind it, and then forty reads.
    let writes: Vec<_> = (0..3).map(write).collect();
    gate.wait_for(1);
    let reads: Vec<_> = (10..50).map(read).collect();
    gate.open();
    reads.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    writes.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    let order: Vec<Action> = gate.pushed().into_iter().map(|(action, _)| action).collect();
    let mut expected = vec![Write];
    for (reads, writes) in [(16, 1), (16, 1), (8, 0)] {
        expected.extend(std::iter::repeat_n(Read, reads));
        expected.extend(std::iter::repeat_n(Write, writes));
    }
    assert_eq!(order, expected);
}

#[test]
fn writes_beside_reads_are_capped_in_bytes() {
    let dir = dir();
    let arena = HostArena::new(21, 1 << 20).expect("arena");
    let (volume, gate) = volume(options(&dir, 21, 1 << 20).piece_bytes(1 << 19));
    for (urgency, cap) in [(Urgency::Ordinary, 4 << 20), (Urgency::Urgent, 1 << 20)] {
        gate.shut();
        let read = volume.read(0, name(0, 0).hash, urgency, arena.write(0).expect("free"));
        gate.wait_for(1);
        let writes: Vec<_> = (1..16)
            .map(|slot| volume.write(slot, name(slot, 1), arena.read(slot as usize).expect("free")))
            .collect();
        while volume.queued() > 0 || gate.bytes(Write) <= cap - (1 << 19) {
            std::thread::yield_now();
        }
        // A read behind them: when it has arrived, the engine has tried to issue more.
        let marker = volume.read(20, name(20, 0).hash, urgency, arena.write(20).expect("free"));
        while !gate.pushed().contains(&(Read, ORIGIN + (20 << 20))) {
            std::thread::yield_now();
        }
        assert!(gate.bytes(Write) <= cap, "{} bytes of writes beside a read: {urgency:?}", gate.bytes(Write));
        gate.open();
        drop(read.wait().expect("read"));
        drop(marker.wait().expect("read"));
        writes.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    }
}

#[test]
fn requests_are_cut_into_pieces_that_cover_them_once() {
    let dir = dir();
    let arena = HostArena::new(1, 150_000).expect("arena");
    let (volume, gate) = volume(options(&dir, 3, 150_000).piece_bytes(64 << 10));
    gate.open();
    let before = volume.stats().written_bytes;
    drop(volume.write(1, name(1, 1), arena.read(0).expect("free")).wait().expect("written"));
    let start = ORIGIN + volume.describe().stride as u64;
    let offsets: Vec<u64> = gate.pushed().into_iter().map(|(_, offset)| offset).collect();
    assert_eq!(offsets, [start, start + (64 << 10), start + (128 << 10)]);
    assert_eq!(volume.stats().written_bytes - before, volume.describe().stride as u64);
}

#[test]
fn only_small_neighbours_are_merged() {
    let dir = dir();
    let arena = HostArena::new(32, 64 << 10).expect("arena");
    let (volume, gate) = volume(options(&dir, 32, 64 << 10).depth(4));
    let write = |slot: u32| volume.write(slot, name(slot, 1), arena.read(slot as usize).expect("free"));
    // Reads fill the ring; behind them, in this order: a run of ten, a gap, one backwards.
    let read = |slot: u32| {
        volume.read(slot, name(slot, 0).hash, Urgency::Ordinary, arena.write(slot as usize).expect("free"))
    };
    let reads = [31, 29, 27, 25].map(read);
    gate.wait_for(4);
    let writes: Vec<_> = [0, 1, 2, 3].into_iter().map(write).collect();
    while volume.queued() > 0 {
        std::thread::yield_now();
    }
    let writes: Vec<_> = writes.into_iter().chain([5, 4].map(write)).collect();
    gate.open();
    reads.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    writes.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    let at = |slot: u64| ORIGIN + (slot << 16);
    let offsets: Vec<u64> = gate.pushed().into_iter().map(|(_, offset)| offset).collect();
    assert_eq!(offsets, [at(31), at(29), at(27), at(25), at(0), at(5), at(4)]);
    assert_eq!(volume.stats().merged, 3);
    for slot in 0..6 {
        let read = volume.read(slot, name(slot, 1).hash, Urgency::Ordinary, arena.write(0).expect("free"));
        drop(read.wait().expect("each has a record of its own"));
    }
}

#[test]
fn urgent_reads_go_before_other_reads() {
    let dir = dir();
    let arena = HostArena::new(64, 4096).expect("arena");
    let (volume, gate) = volume(options(&dir, 64, 4096).depth(1).queue(64));
    let read = |slot: u32, urgency| {
        volume.read(slot, name(slot, 0).hash, urgency, arena.write(slot as usize).expect("free"))
    };
    let mut reads = vec![read(0, Urgency::Ordinary)];
    gate.wait_for(1);
    reads.extend([10, 12, 14].map(|slot| read(slot, Urgency::Ordinary)));
    reads.extend([30, 32].map(|slot| read(slot, Urgency::Urgent)));
    gate.open();
    reads.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    let offsets: Vec<u64> = gate.pushed().into_iter().map(|(_, offset)| (offset - ORIGIN) >> 12).collect();
    assert_eq!(offsets, [0, 30, 32, 10, 12, 14]);
}

#[test]
fn write_over_zeros_in_flight_waits_for_them() {
    let dir = dir();
    let arena = HostArena::new(2, 64 << 10).expect("arena");
    let options = options(&dir, 32, 64 << 10).backend(Backend::Blocking).write_through_in_background(true);
    let (volume, gate) = behind_gate(options, false).expect("volume");
    let gate = Opener(gate);
    gate.wait_for(1);
    assert_eq!((gate.pushed(), gate.bytes(Write)), (vec![(Write, ORIGIN)], 1 << 20), "sixteen slots");
    let mut buffers = [0, 1].map(|block| arena.write(block).expect("free"));
    pattern(3, 1, &mut buffers[0]);
    pattern(20, 1, &mut buffers[1]);
    let [inside, outside] = buffers;
    let inside = volume.write(3, name(3, 1), inside.into_read());
    let outside = volume.write(20, name(20, 1), outside.into_read());
    gate.wait_for(2);
    assert_eq!(gate.pushed()[1], (Write, ORIGIN + (20 << 16)), "only the slot without zeros");
    gate.open();
    drop((inside.wait().expect("written"), outside.wait().expect("written")));
    check_pattern(&volume, &arena, 0, 3, 1);
    check_pattern(&volume, &arena, 0, 20, 1);
}

/// Answers the first of two punches when both have arrived, and the second when told.
struct Punches {
    inner: Box<dyn Ring>,
    tokens: Vec<u32>,
    first: Option<u32>,
    let_go: Arc<AtomicBool>,
    raced: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
}

impl Ring for Punches {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    unsafe fn push(&mut self, token: u32, op: &Op<'_>) {
        if op.action == Action::Punch {
            self.tokens.push(token);
            if self.tokens.len() == 2 {
                self.first = Some(self.tokens.remove(0));
            }
            return;
        }
        self.raced.fetch_or(!self.tokens.is_empty(), Ordering::Relaxed);
        // SAFETY: the same promise.
        unsafe { self.inner.push(token, op) };
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let last = self.let_go.load(Ordering::Relaxed).then(|| self.tokens.pop()).flatten();
        done.extend(self.first.take().into_iter().chain(last).map(|token| Completion { token, result: 0 }));
        let wait = if self.tokens.is_empty() && done.is_empty() { wait } else { Wait::No };
        std::thread::yield_now();
        self.inner.turn(done, wait)
    }
}

#[test]
fn slot_forgotten_twice_is_written_after_both_holes() {
    let dir = dir();
    let arena = HostArena::new(1, 4096).expect("arena");
    let (let_go, raced) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let turns = Arc::new(AtomicUsize::new(0));
    let (told, seen, counted) = (Arc::clone(&let_go), Arc::clone(&raced), Arc::clone(&turns));
    let options = options(&dir, 8, 4096).backend(Backend::Blocking).trim(true);
    let (volume, _) = Volume::open_with(options, move |parts| {
        let built = build(parts)?;
        let (tokens, first) = (Vec::new(), None);
        let ring = Punches { inner: built.ring, tokens, first, let_go: told, raced: seen, turns: counted };
        Ok(Built { ring: Box::new(ring), ..built })
    })
    .expect("volume");
    volume.forget(3);
    volume.forget(3);
    let written = volume.write(3, name(3, 1), arena.read(0).expect("free"));
    while volume.queued() > 0 {
        std::thread::yield_now();
    }
    // A few turns more, in which the engine could issue the write.
    let before = turns.load(Ordering::Relaxed);
    while turns.load(Ordering::Relaxed) < before + 10 {
        std::thread::yield_now();
    }
    let_go.store(true, Ordering::Relaxed);
    drop(written.wait().expect("written"));
    assert!(!raced.load(Ordering::Relaxed), "the write went out beside the second punch");
}

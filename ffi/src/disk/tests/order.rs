//! In which order the engine gives pieces to the ring.

use super::gate::{Opener, gated};
use super::*;
use crate::disk::error::Direction::{self, Read, Write};

fn volume(options: VolumeOptions) -> (Volume, Opener) {
    let (volume, gate) = gated(options.backend(Backend::Blocking)).expect("volume");
    (volume, Opener(gate))
}

#[test]
fn reads_go_first_and_writes_keep_their_share() {
    let dir = dir();
    let arena = HostArena::new(64, 4096).expect("arena");
    let (volume, gate) = volume(options(&dir, 64, 4096).depth(1).queue(64));
    let write = |slot: u32| volume.write(slot, arena.read(slot as usize).expect("free"));
    let read = |slot: u32| volume.read(slot, arena.write(slot as usize).expect("free"));
    // One write fills the ring; behind it queue two more, and then forty reads.
    let writes: Vec<_> = (0..3).map(write).collect();
    gate.wait_for(1);
    let reads: Vec<_> = (10..50).map(read).collect();
    gate.open();
    reads.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
    writes.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    let order: Vec<Direction> = gate.pushed().into_iter().map(|(direction, _)| direction).collect();
    let mut expected = vec![Write];
    for (reads, writes) in [(16, 1), (16, 1), (8, 0)] {
        expected.extend(std::iter::repeat_n(Read, reads));
        expected.extend(std::iter::repeat_n(Write, writes));
    }
    assert_eq!(order, expected);
}

#[test]
fn beside_reads_writes_in_flight_are_capped_in_bytes() {
    let dir = dir();
    let arena = HostArena::new(16, 1 << 20).expect("arena");
    let (volume, gate) = volume(options(&dir, 16, 1 << 20).piece_bytes(1 << 19));
    let read = volume.read(0, arena.write(0).expect("free"));
    gate.wait_for(2);
    let writes: Vec<_> =
        (1..16).map(|slot| volume.write(slot, arena.read(slot as usize).expect("free"))).collect();
    // Two pieces of the read, and 4 MiB of writes in pieces of half a MiB.
    gate.wait_for(2 + 8);
    while volume.queued() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(gate.pushed().len(), 2 + 8, "15 MiB of writes wait");
    gate.open();
    drop(read.wait().expect("read"));
    writes.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
}

#[test]
fn requests_are_cut_into_pieces_that_cover_them_once() {
    let dir = dir();
    let arena = HostArena::new(1, 10_000).expect("arena");
    let (volume, gate) = volume(options(&dir, 3, 10_000).piece_bytes(4096));
    gate.open();
    drop(volume.write(1, arena.read(0).expect("free")).wait().expect("written"));
    let start = volume.describe().stride as u64;
    let offsets: Vec<u64> = gate.pushed().into_iter().map(|(_, offset)| offset).collect();
    assert_eq!(offsets, [start, start + 4096, start + 8192]);
    assert_eq!(volume.stats().written_bytes, volume.describe().stride as u64);
}

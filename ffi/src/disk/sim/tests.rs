//! Thousands of seeds, or those that the environment names (`testing/src/seeds.rs`). `KVSTRATA_SEED=17
//! cargo test -p kvstrata-ffi disk::sim -- --nocapture` replays one, and prints its operations.

use super::super::file::steps::{Step, told};
use super::super::stats::ServiceState;
use super::plan::Operation;
use super::*;
use kvstrata_testing::seeds::Seeds;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The seeds in CI.
const SEEDS: Range<u64> = 0..2000;

/// The failure of a seed, if there is one.
fn outcome(seed: u64, tell: bool) -> Result<(), String> {
    let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, folder.path(), tell)));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned())
    })
}

/// Both superblocks are bad, so that the volume starts over. Then a loss of power tears the write of one
/// copy, and the old volume's remains make that copy intact again.
#[test]
fn volume_that_started_over_survives_a_torn_superblock() {
    assert_eq!(outcome(207_830_000_373, false), Ok(()));
}

#[test]
fn seeds_serve_no_wrong_byte_lose_no_block_and_never_hang() {
    Seeds::asked(SEEDS).run("cargo test -p kvstrata-ffi disk::sim -- --nocapture", outcome);
}

/// A plan without chance.
fn calm() -> Plan {
    Plan {
        slots: 8,
        slot_bytes: 4096,
        depth: 4,
        queue: 8,
        piece_bytes: 64 << 10,
        alignment: 512,
        table_delay: std::time::Duration::from_micros(300),
        trim: false,
        fill: false,
        encrypted: false,
        buffers: 8,
        rounds: 1,
        urgent: 0,
        hot: 0,
        blocks: 8,
        faults: faults::Faults::default(),
        operations: 0,
    }
}

#[test]
fn volume_out_of_service_sleeps_until_its_last_piece_ends() {
    let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
    let mut harness = Harness::new(calm(), folder.path(), Random::new(1)).expect("a volume");
    harness.operate(Operation::Write { slot: 0, block: 0 }).expect("as it must be");
    harness.operate(Operation::Settle).expect("as it must be");
    let mut operate = |operation, stall, gone| {
        harness.world.borrow_mut().faults = faults::Faults { stall, gone, ..faults::Faults::default() };
        harness.operate(operation).expect("as it must be");
    };
    // A piece takes seconds; a record is cleared, so that the table has to be written; and the
    // device is gone.
    operate(Operation::Write { slot: 1, block: 1 }, 0xFFFF, 0);
    operate(Operation::Rounds(1), 0xFFFF, 0);
    operate(Operation::Write { slot: 0, block: 2 }, 0, 0xFFFF);
    // Rounds end with the volume, and another life begins.
    let mut rounds = 0;
    while harness.world.borrow().failures == 0 || harness.world.borrow().in_flight() > 0 {
        harness.operate(Operation::Rounds(1)).expect("as it must be");
        rounds += 1;
        assert!(rounds < 1000, "the ring thread does not sleep");
    }
}

/// Runs rounds, in which time passes, until the volume is in a state.
fn until(harness: &mut Harness, state: ServiceState) {
    for _ in 0..10_000 {
        if harness.life.state() == state {
            return;
        }
        harness.operate(Operation::Rounds(1)).expect("as it must be");
    }
    panic!("{:?}, and not {state:?}", harness.life.state());
}

fn read_all(harness: &mut Harness, slots: u32) {
    for slot in 0..slots {
        harness.operate(Operation::Read { slot, other: None, urgent: false }).expect("as it must be");
    }
    harness.operate(Operation::Settle).expect("as it must be");
}

#[test]
fn returned_device_serves_its_former_blocks() {
    let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
    let mut harness = Harness::new(calm(), folder.path(), Random::new(1)).expect("a volume");
    for slot in 0..4 {
        harness.operate(Operation::Write { slot, block: slot.into() }).expect("as it must be");
    }
    harness.operate(Operation::Settle).expect("as it must be");
    harness.world.borrow_mut().leaves();
    read_all(&mut harness, 4);
    assert_eq!((harness.counts.read, harness.life.state()), (0, ServiceState::Away));
    // Refused without asking the device.
    let failures = harness.world.borrow().failures;
    read_all(&mut harness, 4);
    let more = harness.world.borrow().failures - failures;
    assert!(harness.counts.read == 0 && more <= 1, "{more} of the device, probes");
    harness.world.borrow_mut().well();
    until(&mut harness, ServiceState::Serving);
    read_all(&mut harness, 4);
    assert_eq!(harness.counts.read, 4);
    harness.operate(Operation::Write { slot: 5, block: 5 }).expect("as it must be");
    harness.operate(Operation::CleanShutdown { cut_power: true }).expect("as it must be");
    read_all(&mut harness, 6);
    assert_eq!(harness.counts.read, 5, "also what was written since");
}

#[test]
fn full_device_takes_no_writes_and_serves_reads() {
    let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
    let plan = Plan { depth: 64, queue: 64, slots: 80, buffers: 80, blocks: 80, ..calm() };
    let mut harness = Harness::new(plan, folder.path(), Random::new(1)).expect("a volume");
    for slot in 0..4 {
        harness.operate(Operation::Write { slot, block: slot.into() }).expect("as it must be");
    }
    harness.operate(Operation::Settle).expect("as it must be");
    harness.world.borrow_mut().fills_up();
    // All writes of a batch fail in a moment.
    for slot in 10..74 {
        harness.operate(Operation::Write { slot, block: slot.into() }).expect("as it must be");
    }
    harness.operate(Operation::Settle).expect("as it must be");
    assert_eq!(harness.life.state(), ServiceState::WritesPaused);
    let stats = harness.life.inbox.counters.snapshot(0);
    assert!(stats.failed.no_room > 32 && stats.failed.away == 0 && stats.pauses == 1, "{stats:?}");
    read_all(&mut harness, 4);
    assert_eq!((harness.counts.read, harness.counts.written), (4, 4));
    harness.operate(Operation::Write { slot: 10, block: 10 }).expect("as it must be");
    harness.operate(Operation::Settle).expect("as it must be");
    assert_eq!(harness.life.inbox.counters.snapshot(0).failed.paused, 1, "refused unasked");
    // Probes find it still full, at growing intervals.
    for _ in 0..400 {
        harness.operate(Operation::Rounds(1)).expect("as it must be");
    }
    assert_eq!(harness.life.state(), ServiceState::WritesPaused);
    assert!(harness.life.inbox.counters.snapshot(0).probes > 2);
    harness.world.borrow_mut().well();
    until(&mut harness, ServiceState::Serving);
    // One write goes out alone, and the others after it.
    for slot in 10..30 {
        harness.operate(Operation::Write { slot, block: slot.into() }).expect("as it must be");
    }
    harness.operate(Operation::Settle).expect("as it must be");
    assert_eq!(harness.counts.written, 24);
    read_all(&mut harness, 30);
    assert_eq!(harness.counts.read, 28);
}

#[test]
fn seeds_hold_over_full_and_absent_devices() {
    let (mut outages, mut pauses) = (0, 0);
    for seed in 0..150 {
        let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
        let mut random = Random::new(seed);
        let plan = Plan { buffers: 24, ..Plan::of(&mut random) };
        let faults = faults::Faults { gone: 0x400, full: 0x400, interrupted: 0x800, ..plan.faults };
        let plan = Plan { faults: faults::Faults { broken: 0, ..faults }, ..plan };
        let mut harness =
            Harness::new(plan.clone(), folder.path(), Random::new(random.next())).expect("a volume");
        for n in 0..plan.operations {
            let operation = plan.operation(&mut random);
            let done = harness.operate(operation);
            done.unwrap_or_else(|what| panic!("seed {seed}, operation {n}, {operation:?}: {what}"));
            if matches!(operation, Operation::Settle) {
                let stats = harness.life.inbox.counters.snapshot(0);
                (outages, pauses) = (outages + stats.outages, pauses + stats.pauses);
            }
        }
        harness.finish().unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}"));
    }
    assert!(outages > 100 && pauses > 100, "{outages} outages and {pauses} pauses");
}

#[test]
fn read_overtaken_by_a_write_spares_the_new_block() {
    for seed in 0..64 {
        let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
        let mut harness = Harness::new(calm(), folder.path(), Random::new(seed)).expect("a volume");
        let mut operate = |operation, flip| {
            harness.world.borrow_mut().faults = faults::Faults { flip, ..faults::Faults::default() };
            harness.operate(operation).expect("as it must be");
        };
        let write = Operation::Write { slot: 0, block: 0 };
        let read = Operation::Read { slot: 0, other: None, urgent: false };
        operate(write, 0);
        operate(Operation::Settle, 0);
        // Damaged on its way, and in flight while the slot is written again.
        operate(read, 0xFFFF);
        operate(Operation::Rounds(1), 0xFFFF);
        operate(write, 0);
        operate(Operation::Settle, 0);
        operate(read, 0);
        operate(Operation::Settle, 0);
        assert_eq!((harness.counts.rejected, harness.counts.read), (1, 1), "seed {seed}");
    }
}

#[test]
fn retired_volume_begins_no_request_just_taken() {
    let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
    let plan = Plan { table_delay: std::time::Duration::ZERO, ..calm() };
    let mut harness = Harness::new(plan, folder.path(), Random::new(1)).expect("a volume");
    harness.operate(Operation::Write { slot: 0, block: 0 }).expect("as it must be");
    harness.operate(Operation::Settle).expect("as it must be");
    // All are taken in one round, and the table is due: its write must not take the place of a request
    // that is failed.
    harness.operate(Operation::Forget { slot: 0 }).expect("as it must be");
    harness.operate(Operation::Write { slot: 1, block: 1 }).expect("as it must be");
    harness.operate(Operation::Retire { cut_power: false }).expect("as it must be");
}

#[test]
fn opening_writes_the_counting_superblock_last() {
    let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
    let path = folder.path().join("volume");
    let opened = || {
        let (opened, steps) = told(|| life::open(&path, &calm(), None));
        let last = opened.expect("a volume").0.file.superblock.shape.superblock_b();
        let place = |step: &Step| match step {
            Step::Write { offset, .. } => Some(if *offset == last { 'B' } else { 'A' }),
            Step::Sync => None,
        };
        (steps.iter().map(place).collect::<Vec<_>>(), last)
    };
    let (steps, last) = opened();
    assert_eq!(steps, [None, Some('A'), None, Some('B')]);
    assert_eq!(opened().0, [None, Some('B'), None, Some('A')]);
    for (harmed, first, second) in [(0, 'A', 'B'), (last, 'B', 'A')] {
        let file = std::fs::File::options().write(true).open(&path).expect("it is there");
        file.write_all_at(&[7; 100], harmed).expect("a file in memory");
        assert_eq!(opened().0, [None, Some(first), None, Some(second)]);
    }
}

/// A file of eight slots, edited; and an encrypted one. Returns how many blocks are served of each.
fn damaged(edits: Vec<Edit>) -> [usize; 2] {
    [false, true].map(|encrypted| {
        let folder = tempfile::tempdir_in(folder()).expect("a temporary directory");
        let (blocks, edits) = (vec![1, 2, 0, 3, 4, 2, 5, 0], edits.clone());
        Case { slots: 7, slot_bytes: 1999, blocks, edits, encrypted, ..Case::default() }.check(folder.path())
    })
}

#[test]
fn damaged_file_serves_no_wrong_byte() {
    assert_eq!(damaged(Vec::new()), [5, 5]);
    // Records that change places, changed bytes of a payload, half a file.
    damaged(vec![
        Edit::Copy { from: 4096, to: 4096 + 64, bytes: 128 },
        Edit::Bytes { at: 8192 + 3 * 2048 + 17, bytes: vec![9; 40] },
        Edit::Length { bytes: 8192 + 5 * 2048 },
    ]);
    // Valid checksums. The last block has no parent, like the one whose record it takes.
    let record = |slot, block, payload_bytes, sealed| Edit::Record {
        slot,
        block,
        sequence: 40,
        payload_bytes,
        sealed,
    };
    let forged = vec![
        record(0, 7, 2000, true),
        record(1, 7, 2000, false),
        record(2, 7, 700, true),
        record(7, 7, 9999, false),
        record(3, 6, 2000, true),
    ];
    // Two of them are as valid as any other block; in an encrypted volume the forger lacks the key.
    assert_eq!(damaged(forged), [5, if cfg!(feature = "encryption") { 3 } else { 5 }]);
}

#[test]
fn forged_superblock_takes_no_unrequested_room() {
    // Behind 12 numbers of 8 bytes: stride, table offset, origin, file length.
    for at in [96, 104, 112, 120, 121, 122, 123] {
        for byte in [1, 16, 32, 255] {
            let edit = |last| Edit::Superblock { last, at, bytes: vec![byte] };
            damaged(vec![edit(false), edit(true)]);
        }
    }
}

#[test]
fn forged_superblock_write_count_does_not_overflow() {
    for lowest in [0xFE, 0xFF] {
        let mut bytes = vec![0xFF; 8];
        bytes[0] = lowest;
        let edit = |last| Edit::Superblock { last, at: 136, bytes: bytes.clone() };
        damaged(vec![edit(false), edit(true)]);
    }
}

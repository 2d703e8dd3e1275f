//! Copies of every kind arrive, by one call or by many; copies out of range are refused before anything
//! is queued.

use crate::{machine, memory, open, pattern, pinned, queue, read_back};
use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{Batch, CudaError, Held, Purpose};

/// A generator good enough to choose pieces.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

const BYTES: usize = 40_000;

/// Scatters pieces of two blocks over device memory, in both ways at once, and returns the bytes afterwards.
fn scattered(double: &Double, seed: u64) -> (Vec<u8>, u64, u64) {
    let device = open(0);
    double.seed(seed);
    let (host, target) = (pinned(&device, 3, BYTES), memory(&device, BYTES as u64));
    let queue = queue(&device, Purpose::Staging);
    let mut zero = Batch::new();
    let all = zero.device(target.range(0, BYTES as u64).expect("in range"));
    let mut work = queue.begin(zero).expect("begun");
    work.fill((all, 0), BYTES as u64, 0x11);
    drop(work.finish().expect("queued"));
    let mut expected = vec![0x11; BYTES];
    let mut state = seed + 1;
    let mut batch = Batch::new();
    let mut sources = Vec::new();
    for block in 0..2 {
        let mut bytes = host.arena().write(block).expect("free");
        bytes.copy_from_slice(&pattern(block as u32, BYTES));
        sources.push(batch.read(bytes.into_read(), &host).expect("registered"));
    }
    let to = batch.device(target.range(0, BYTES as u64).expect("in range"));
    let mut at = 0;
    while at < BYTES {
        let bytes = ((random(&mut state) % 700 + 1) as usize).min(BYTES - at);
        let from = (random(&mut state) % (BYTES - bytes + 1) as u64) as usize;
        let block = (random(&mut state) % 3) as usize;
        if let Some(source) = sources.get(block) {
            batch.copy((*source, from as u64), (to, at as u64), bytes as u64).expect("in range");
            expected[at..at + bytes].copy_from_slice(&pattern(block as u32, BYTES)[from..from + bytes]);
        }
        at += bytes;
    }
    assert!(batch.pieces() > 50);
    let counted = || {
        let batches = double.calls("cuMemcpyBatchAsync_v2") + double.calls("cuMemcpyBatchAsync");
        (batches, double.calls("cuMemcpyHtoDAsync_v2"))
    };
    let before = counted();
    queue.submit(batch).expect("queued").wait().expect("copied");
    let calls = counted();
    let found = read_back(&host, 2, &target);
    assert!(found == expected, "other bytes than the plan's");
    (found, calls.0 - before.0, calls.1 - before.1)
}

#[test]
fn one_call_and_many_give_the_same_bytes() {
    let double = Double::new();
    let (by_one, batches, singles) = scattered(&double, 5);
    assert_eq!((batches, singles), (1, 0));
    // 12.8 and 12.9 have their own declaration; the double refuses one version's call to another.
    for version in [12080, 12090] {
        double.reset();
        double.version(version);
        let (by_one_too, batches, singles) = scattered(&double, 5);
        assert_eq!((batches, singles), (1, 0), "{version}");
        assert!(by_one == by_one_too);
    }
    double.reset();
    double.version(12060);
    let (by_many, batches, singles) = scattered(&double, 5);
    assert_eq!(batches, 0);
    assert!(singles > 30);
    assert!(by_one == by_many);
    double.finish();
}

#[test]
fn copy_engine_is_preferred_unless_a_piece_stays_on_device() {
    const OVERLAP: u32 = 1;
    let (double, device) = machine();
    let (host, memory) = (pinned(&device, 2, 64), memory(&device, 64));
    let queue = queue(&device, Purpose::Staging);
    let flags = |kinds: [u8; 2]| {
        let mut batch = Batch::new();
        let read = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
        let write = batch.write(host.arena().write(1).expect("free"), &host).expect("registered");
        let there = batch.device(memory.range(0, 64).expect("in range"));
        for (at, kind) in [0, 32].into_iter().zip(kinds) {
            let (from, to) = match kind {
                b'u' => ((read, at), (there, at)),
                b'd' => ((there, at), (write, at)),
                _ => ((there, at), (there, at + 16)),
            };
            batch.copy(from, to, 16).expect("in range");
        }
        drop(queue.submit(batch).expect("queued").wait().expect("copied"));
        double.batch_flags()
    };
    for (kinds, expected) in
        [(b"uu", OVERLAP), (b"oo", 0), (b"dd", OVERLAP), (b"uo", 0), (b"ud", OVERLAP), (b"od", 0)]
    {
        assert_eq!(flags(*kinds), expected, "{}", String::from_utf8_lossy(kinds));
    }
    drop((queue, host, memory, device));
    double.finish();
}

#[test]
fn device_without_batches_is_tried_once() {
    let double = Double::new();
    double.fail("cuMemcpyBatchAsync_v2", 1, 801);
    let (_, batches, singles) = scattered(&double, 9);
    assert_eq!(batches, 1);
    assert!(singles > 30);
    // Another device has the call, and would take it if asked again.
    let device = open(1);
    let (host, target) = (pinned(&device, 2, 64), memory(&device, 64));
    let queue = queue(&device, Purpose::Staging);
    let copy_two = || {
        let mut batch = Batch::new();
        let from = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
        let to = batch.device(target.range(0, 64).expect("in range"));
        batch.copy((from, 0), (to, 0), 32).expect("in range");
        batch.copy((from, 32), (to, 32), 32).expect("in range");
        drop(queue.submit(batch).expect("queued").wait().expect("copied"));
        double.calls("cuMemcpyBatchAsync_v2")
    };
    assert_eq!(copy_two(), 2);
    double.fail("cuMemcpyBatchAsync_v2", 1, 801);
    assert_eq!([copy_two(), copy_two(), copy_two()], [3; 3]);
    drop((queue, host, target, device));
    double.finish();
}

#[test]
fn rows_are_copied_at_their_pitch_all_three_ways() {
    let (double, device) = machine();
    let host = pinned(&device, 2, 4096);
    let (first, second) = (memory(&device, 4096), memory(&device, 4096));
    let queue = queue(&device, Purpose::Staging);
    let mut source = host.arena().write(0).expect("free");
    source.copy_from_slice(&pattern(3, 4096));
    let mut batch = Batch::new();
    let from = batch.read(source.into_read(), &host).expect("registered");
    let a = batch.device(first.range(0, 4096).expect("in range"));
    let b = batch.device(second.range(0, 4096).expect("in range"));
    let to = batch.write(host.arena().write(1).expect("free"), &host).expect("registered");
    // 10 rows of 33 bytes: 100 apart, then 40, then 64, then 33.
    batch.copy_rows((from, 7), (a, 0), (33, 10), (100, 40)).expect("in range");
    batch.copy_rows((a, 0), (b, 5), (33, 10), (40, 64)).expect("in range");
    batch.copy_rows((b, 5), (to, 1), (33, 10), (64, 33)).expect("in range");
    assert_eq!((batch.pieces(), batch.bytes()), (3, 990));
    let mut done = queue.submit(batch).expect("queued").wait().expect("copied");
    let Some(Held::Write(target, _)) = done.release().nth(3) else { panic!("the fourth") };
    let expected: Vec<u8> =
        (0..10).flat_map(|row| pattern(3, 4096)[7 + row * 100..][..33].to_vec()).collect();
    assert!(target[1..331] == expected);
    assert_eq!((target[0], target[331]), (0, 0), "and nothing around");
    drop((target, done, queue, host, first, second, device));
    double.finish();
}

#[test]
fn piece_out_of_range_is_refused_before_queuing() {
    let (double, device) = machine();
    let (host, other) = (pinned(&device, 3, 100), pinned(&device, 1, 100));
    let target = memory(&device, 100);
    let queue = queue(&device, Purpose::Staging);
    let mut batch = Batch::new();
    let read = batch.read(host.arena().read(0).expect("free"), &host).expect("registered");
    let write = batch.write(host.arena().write(1).expect("free"), &host).expect("registered");
    let range = batch.device(target.range(10, 50).expect("in range"));
    let outside = |what, offset, bytes, limit| Err(CudaError::OutOfRange { what, offset, bytes, limit });
    assert_eq!(batch.copy((read, 0), (range, 0), 51), outside("device memory", 0, 51, 50));
    assert_eq!(batch.copy((read, 60), (range, 0), 41), outside("block", 60, 41, 100));
    assert_eq!(batch.copy((read, u64::MAX), (range, 0), 2), outside("block", u64::MAX, 2, 100));
    assert_eq!(
        batch.copy((range, 0), (read, 0), 1),
        outside("block, which is borrowed for reading", 0, 1, 0)
    );
    assert_eq!(batch.copy((read, 0), (write, 0), 1), outside("device regions", 0, 1, 0));
    assert_eq!(batch.copy((read, 0), (range, 0), 0), Err(CudaError::ZeroBytes { what: "piece" }));
    let rows = |batch: &mut Batch, shape, pitch| batch.copy_rows((read, 0), (range, 0), shape, pitch);
    assert_eq!(rows(&mut batch, (10, 0), (10, 10)), Err(CudaError::ZeroBytes { what: "rows" }));
    assert_eq!(rows(&mut batch, (10, 2), (10, 9)), Err(CudaError::Pitch { width: 10, pitch: 9 }));
    assert_eq!(rows(&mut batch, (10, 5), (10, 11)), outside("device memory", 0, 54, 50));
    assert_eq!(rows(&mut batch, (10, u64::MAX), (u64::MAX, 11)), outside("block", 0, u64::MAX, 100));
    let refused = batch.read(other.arena().read(0).expect("free"), &host).expect_err("another arena");
    assert_eq!(refused, CudaError::NotRegistered { what: "block to be read" });
    let refused = batch.write(other.arena().write(0).expect("free"), &host).expect_err("another arena");
    assert_eq!(refused, CudaError::NotRegistered { what: "block to be written" });
    assert!(other.arena().write(0).is_ok(), "given back");
    assert_eq!((batch.pieces(), batch.bytes()), (0, 0));
    // Another device's memory is found at submission, and the batch comes back.
    let elsewhere = open(1);
    let foreign = memory(&elsewhere, 8);
    batch.device(foreign.range(0, 8).expect("in range"));
    let calls = double.all_calls();
    let rejected = queue.submit(batch).expect_err("another device");
    assert_eq!(rejected.error, CudaError::WrongDevice { what: "the memory", found: 1, wanted: 0 });
    assert_eq!(double.all_calls(), calls, "the driver was not asked");
    assert_eq!(rejected.batch.held().len(), 4);
    assert_eq!(foreign.size_bytes(), 8);
    drop((rejected, foreign, elsewhere, queue, host, other, target, device));
    double.finish();
}

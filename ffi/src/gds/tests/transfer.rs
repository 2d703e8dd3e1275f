//! The bytes that move, and the answers that cuFile gives instead.

use super::super::driver::GdsOptions;
use super::super::error::TransferError;
use super::super::file::GdsFile;
use super::super::memory::GdsBuffer;
use super::fake::{Allocation, Answer, Event, Fake};
use crate::disk::Pending;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const BYTES: usize = 64 << 10;

/// In the order of their drop: the stand-in goes last.
struct Bench {
    gds: GdsFile,
    buffer: Arc<GdsBuffer>,
    memory: Arc<Allocation>,
    file: Arc<File>,
    fake: Fake,
}

fn bench() -> Bench {
    let fake = Fake::new();
    let driver = fake.driver();
    let file = Arc::new(tempfile::tempfile().expect("a temporary file"));
    file.set_len(8 * BYTES as u64).expect("room");
    let gds = GdsFile::register(&driver, Arc::clone(&file), GdsOptions::new(0)).expect("registered");
    let memory = Allocation::new(4 * BYTES);
    let buffer = GdsBuffer::register(&driver, memory.memory()).expect("registered");
    fake.log();
    Bench { gds, buffer, memory, file, fake }
}

impl Bench {
    fn read(&self, plan: impl FnMut(usize) -> Answer + Send + 'static) -> Result<(), TransferError> {
        self.fake.plan(plan);
        let range = self.buffer.range(BYTES, BYTES).expect("in range");
        self.gds.read(range, 2 * BYTES as u64).wait().map(drop)
    }
}

fn pattern(at: usize) -> u8 {
    (at as u32).wrapping_mul(2_654_435_761).rotate_left(9) as u8
}

#[test]
fn bytes_go_to_their_place_and_come_back() {
    let Bench { gds, buffer, memory, file, fake } = &bench();
    memory.fill(pattern);
    let written = gds.write(buffer.range(BYTES, BYTES).expect("in range"), 4096).wait().expect("written");
    assert_eq!((written.offset(), written.size_bytes()), (BYTES, BYTES));
    let mut on_disk = vec![0; 8 * BYTES];
    file.read_exact_at(&mut on_disk, 0).expect("read");
    let original = memory.bytes();
    assert!(on_disk[4096..][..BYTES] == original[BYTES..][..BYTES]);
    assert!(on_disk[..4096].iter().chain(&on_disk[4096 + BYTES..]).all(|byte| *byte == 0));
    memory.fill(|_| 0);
    gds.read(buffer.range(3 * BYTES, BYTES).expect("in range"), 4096).wait().expect("read");
    let back = memory.bytes();
    assert!(back[3 * BYTES..] == original[BYTES..][..BYTES]);
    assert!(back[..3 * BYTES].iter().all(|byte| *byte == 0));
    let calls = [Event::Write(BYTES, 4096, BYTES as i64), Event::Read(BYTES, 4096, 3 * BYTES as i64)];
    assert_eq!(fake.transfers(), calls, "each with the device's context");
}

#[test]
fn short_transfers_go_on_where_they_stopped() {
    let bench = bench();
    let content: Vec<u8> = (0..BYTES).map(pattern).collect();
    bench.file.write_all_at(&content, 2 * BYTES as u64).expect("written");
    // Stops off the alignment: what lies past it is moved again. Then less than that: all of it is.
    bench.read(|number| Answer::Part([20_000, 100, BYTES][number])).expect("all of it in the end");
    assert!(bench.memory.bytes()[BYTES..2 * BYTES] == content);
    let call = |done: usize| Event::Read(BYTES - done, (2 * BYTES + done) as i64, (BYTES + done) as i64);
    assert_eq!(bench.fake.transfers(), [call(0), call(16_384), call(16_384)]);
}

#[test]
fn what_never_ends_is_given_up() {
    let bench = bench();
    let outcome = bench.read(|number| if number == 0 { Answer::Part(8192) } else { Answer::Part(0) });
    assert_eq!(outcome, Err(TransferError::Short { done: 8192, asked: BYTES }));
    assert_eq!(bench.fake.transfers().len(), 2, "a file that has ended is not asked again");
    assert_eq!(bench.read(|_| Answer::Part(1)), Err(TransferError::Short { done: 0, asked: BYTES }));
    assert_eq!(bench.read(|_| Answer::Errno(libc::EAGAIN)), Err(TransferError::Os { errno: libc::EAGAIN }));
    assert!(bench.fake.transfers().len() < 5000);
}

#[test]
fn negative_answers_are_errors_and_interruptions_are_not() {
    let bench = bench();
    assert_eq!(bench.read(|_| Answer::Errno(libc::EIO)), Err(TransferError::Os { errno: libc::EIO }));
    assert_eq!(bench.read(|_| Answer::Number(-28)), Err(TransferError::Os { errno: libc::ENOSPC }));
    let outcome = bench.read(|_| Answer::Number(-5014)).expect_err("refused").to_string();
    assert_eq!(outcome, "cuFile answers 5014 CU_FILE_CUDA_POINTER_RANGE_ERROR");
    let more = BYTES as isize + 1;
    let outcome = bench.read(move |_| Answer::Number(more));
    assert_eq!(outcome, Err(TransferError::Nonsense { answer: more as i64, asked: BYTES }));
    let mut interruptions = 3;
    let outcome = bench.read(move |_| match interruptions {
        0 => Answer::All,
        _ => {
            interruptions -= 1;
            Answer::Errno(libc::EINTR)
        }
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn what_is_out_of_range_is_refused_at_once() {
    let Bench { gds, buffer, fake, .. } = &bench();
    for (offset, bytes) in [(4 * BYTES, 1), (0, 4 * BYTES + 1), (usize::MAX, 2)] {
        let refused = buffer.range(offset, bytes).expect_err("outside");
        assert!(matches!(refused, TransferError::OutOfRange { limit, .. } if limit == 4 * BYTES as u64));
    }
    for file_offset in [i64::MAX as u64, u64::MAX] {
        let refused = gds.read(buffer.range(0, 1).expect("in range"), file_offset);
        assert!(matches!(refused.wait(), Err(TransferError::OutOfRange { .. })), "{file_offset}");
    }
    assert_eq!(fake.transfers(), []);
}

#[test]
fn many_at_a_time_each_get_their_own() {
    let Bench { gds, buffer, memory, file, .. } = &bench();
    let content: Vec<u8> = (0..4 * BYTES).map(pattern).collect();
    file.write_all_at(&content, 0).expect("written");
    const PIECE: usize = 4096;
    let pieces = 4 * BYTES / PIECE;
    // The pieces go to their places in the opposite order.
    let place = |piece: usize| (pieces - 1 - piece) * PIECE;
    let pending: Vec<_> = (0..pieces)
        .map(|piece| gds.read(buffer.range(place(piece), PIECE).expect("in range"), (piece * PIECE) as u64))
        .collect();
    pending.into_iter().map(Pending::wait).for_each(|outcome| drop(outcome.expect("read")));
    let back = memory.bytes();
    for piece in 0..pieces {
        assert!(back[place(piece)..][..PIECE] == content[piece * PIECE..][..PIECE], "piece {piece}");
    }
}

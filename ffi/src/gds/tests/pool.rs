//! The calls that the threads make, the answers that they leave, and the memory that they hold meanwhile.

use super::super::driver::GdsOptions;
use super::super::file::GdsFile;
use super::super::memory::{DeviceRange, GdsBuffer};
use super::super::pool::{Answer, Job, PANICKED, Pool, Task};
use super::super::sums::DeviceSums;
use super::fake::{self, Allocation, Event, Fake, context_is_current};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, mpsc};
use std::thread;

const BYTES: usize = 64 << 10;

/// Returns the offset as the sum, except for a few odd offsets.
struct Odd;

impl DeviceSums for Odd {
    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32> {
        assert!(context_is_current());
        match payload.offset() {
            0 => Err(700),
            1 => std::panic::resume_unwind(Box::new("odd sums")),
            offset => Ok(offset as u64),
        }
    }
}

/// In the order of their drop: the stand-in goes last.
struct Bench {
    pool: Pool,
    rung: mpsc::Receiver<()>,
    buffer: Arc<GdsBuffer>,
    memory: Arc<Allocation>,
    file: Arc<File>,
    fake: Fake,
}

fn bench(threads: usize) -> Bench {
    let fake = Fake::new();
    let driver = fake.driver();
    let file = Arc::new(tempfile::tempfile().expect("a temporary file"));
    file.set_len(8 * BYTES as u64).expect("room");
    let gds = GdsFile::register(&driver, Arc::clone(&file)).expect("registered");
    let (ring, rung) = mpsc::channel();
    let bell = Box::new(move || {
        let _ = ring.send(());
    });
    let options = GdsOptions::new(0).threads(threads);
    let pool = Pool::start(gds, options, Some(Arc::new(Odd)), bell).expect("threads");
    let memory = Allocation::new(4 * BYTES);
    let buffer = GdsBuffer::register(&driver, memory.memory()).expect("registered");
    fake.log();
    Bench { pool, rung, buffer, memory, file, fake }
}

impl Bench {
    fn begin(&self, token: u32, task: Task, offset: usize, bytes: usize, file_offset: u64) {
        let range = self.buffer.range(offset, bytes).expect("in range");
        self.pool.begin(Job { token, task, range, file_offset });
    }

    /// The next answer, after its bell.
    fn answer(&self) -> (u32, Answer) {
        self.rung.recv().expect("the bell rings");
        let mut answers = Vec::new();
        self.pool.ended(&mut answers);
        answers.pop().expect("left before the bell rang")
    }

    fn call(&self, task: Task, offset: usize, bytes: usize, file_offset: u64) -> Answer {
        self.begin(7, task, offset, bytes, file_offset);
        let (token, answer) = self.answer();
        assert_eq!(token, 7);
        answer
    }
}

fn pattern(at: usize) -> u8 {
    (at as u32).wrapping_mul(2_654_435_761).rotate_left(9) as u8
}

#[test]
fn pool_moves_bytes_both_ways() {
    let bench = bench(1);
    bench.memory.fill(pattern);
    assert_eq!(bench.call(Task::Write, BYTES, BYTES, 4096), Answer::Moved(BYTES as i32));
    let mut on_disk = vec![0; 8 * BYTES];
    bench.file.read_exact_at(&mut on_disk, 0).expect("read");
    let original = bench.memory.bytes();
    assert!(on_disk[4096..][..BYTES] == original[BYTES..][..BYTES]);
    assert!(on_disk[..4096].iter().chain(&on_disk[4096 + BYTES..]).all(|byte| *byte == 0));
    bench.memory.fill(|_| 0);
    assert_eq!(bench.call(Task::Read, 3 * BYTES, BYTES, 4096), Answer::Moved(BYTES as i32));
    let back = bench.memory.bytes();
    assert!(back[3 * BYTES..] == original[BYTES..][..BYTES]);
    assert!(back[..3 * BYTES].iter().all(|byte| *byte == 0));
    let calls = [Event::Write(BYTES, 4096, BYTES as i64), Event::Read(BYTES, 4096, 3 * BYTES as i64)];
    assert_eq!(bench.fake.transfers(), calls, "each with the device's context");
}

#[test]
fn pool_reports_each_answer_as_one_number() {
    let bench = bench(1);
    let read = |answer: fn() -> fake::Answer| {
        bench.fake.plan(move |_| answer());
        bench.call(Task::Read, 0, BYTES, 0)
    };
    assert_eq!(read(|| fake::Answer::Part(8192)), Answer::Moved(8192));
    assert_eq!(read(|| fake::Answer::Part(0)), Answer::Moved(0));
    assert_eq!(read(|| fake::Answer::Errno(libc::EINTR)), Answer::Moved(-libc::EINTR));
    assert_eq!(read(|| fake::Answer::Number(-28)), Answer::Moved(-libc::ENOSPC));
    assert_eq!(read(|| fake::Answer::Number(-5014)), Answer::Moved(-5014));
    assert_eq!(read(|| fake::Answer::Number(BYTES as isize + 1)), Answer::Moved(-libc::EPROTO));
    bench.fake.log();
    assert_eq!(bench.call(Task::Read, 0, BYTES, u64::MAX), Answer::Moved(-libc::EOVERFLOW));
    assert_eq!(bench.fake.transfers(), [], "no such place in a file");
}

#[test]
fn failed_or_panicking_sum_is_an_answer() {
    let bench = bench(1);
    let sums = [512, 0, 1, 1024].map(|offset| bench.call(Task::Sum, offset, 1, 0));
    let expected = [Ok(512), Err(700), Err(PANICKED), Ok(1024)];
    assert_eq!(sums, expected.map(Answer::Summed), "by the one thread that there is");
}

#[test]
fn dropped_pool_waits_for_running_transfers_only() {
    let Bench { pool, rung, buffer, memory, file, fake } = bench(1);
    let (is_there, go) = fake.hold(0);
    for token in 0..3 {
        let range = buffer.range(token as usize * 4096, 4096).expect("in range");
        pool.begin(Job { token, task: Task::Read, range, file_offset: 0 });
    }
    is_there.recv().expect("under way");
    let held = Arc::downgrade(&buffer);
    drop((buffer, memory));
    assert_eq!((fake.log(), held.strong_count()), (vec![Event::Read(4096, 0, 0)], 3));
    let dropper = thread::spawn(move || drop(pool));
    while held.strong_count() > 1 {
        thread::yield_now();
    }
    assert!(!fake.log().contains(&Event::Deregister));
    go.send(()).expect("waits");
    dropper.join().expect("ends");
    let left = [Event::BufferDeregister, Event::Freed, Event::Deregister, Event::Close, Event::Release(0)];
    assert_eq!(fake.log(), left, "the memory goes with the last job, the file after the last thread");
    assert_eq!(rung.try_iter().count(), 1);
    drop(file);
}

#[test]
fn memory_is_released_before_its_answer() {
    let bench = bench(4);
    for token in 0..200 {
        bench.begin(token, Task::Read, 0, 4096, 0);
        bench.answer();
        assert_eq!(Arc::strong_count(&bench.buffer), 1);
    }
}

#[test]
fn concurrent_transfers_get_their_own_answers() {
    let bench = bench(4);
    let content: Vec<u8> = (0..4 * BYTES).map(pattern).collect();
    bench.file.write_all_at(&content, 0).expect("written");
    const PIECE: usize = 4096;
    let pieces = 4 * BYTES / PIECE;
    // The pieces go to their places in reverse order.
    let place = |piece: usize| (pieces - 1 - piece) * PIECE;
    for piece in 0..pieces {
        bench.begin(piece as u32, Task::Read, place(piece), PIECE, (piece * PIECE) as u64);
    }
    let mut answers = Vec::new();
    while answers.len() < pieces {
        bench.rung.recv().expect("the bell rings");
        bench.pool.ended(&mut answers);
    }
    answers.sort_unstable_by_key(|(token, _)| *token);
    assert!((0..).zip(&answers).all(|(piece, answer)| *answer == (piece, Answer::Moved(PIECE as i32))));
    let back = bench.memory.bytes();
    for piece in 0..pieces {
        assert!(back[place(piece)..][..PIECE] == content[piece * PIECE..][..PIECE], "piece {piece}");
    }
}

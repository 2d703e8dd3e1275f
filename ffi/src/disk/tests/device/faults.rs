//! Failures of cuFile or of sums that callers see, and failures that they never see.

use super::*;
use crate::gds::tests::fake::Answer;
use crate::gds::{CuFileCode, PANICKED};
use std::sync::atomic::{AtomicI32, Ordering};

const BYTES: usize = 256 << 10;

fn one(configure: impl FnOnce(VolumeOptions) -> VolumeOptions) -> Option<Bench> {
    bench(4, BYTES, |options| configure(options.piece_bytes(64 << 10)))
}

#[test]
fn short_transfers_go_on_where_they_stopped() {
    let Some(bench) = bench(2, BYTES, |options| options.depth(1)) else { return };
    bench.write(0, 1, 3).wait().expect("written");
    bench.fake.log();
    // First it stops off the alignment: bytes past the last aligned place are moved again. Then it stops
    // before the first aligned place: all bytes are.
    bench.fake.plan(move |number| match number {
        1 => Answer::Part(20_000),
        2 => Answer::Part(100),
        _ => Answer::All,
    });
    bench.memory.fill(|_| 0xEE);
    bench.read(1, 1, 3).wait().expect("all of it in the end");
    bench.assert_block(1, 1, 3);
    let at = bench.offset(1) as i64;
    let call = |done: usize| Event::Read(BYTES - done, at + done as i64, (BYTES + done) as i64);
    assert_eq!(bench.fake.transfers(), [call(0), call(16_384), call(16_384)]);
    assert_eq!((bench.volume.stats().resumed, bench.volume.stats().failures), (2, 0));
}

#[test]
fn interruptions_are_hidden_unless_they_never_end() {
    let Some(bench) = one(|options| options) else { return };
    bench.fake.plan(|number| match number % 3 {
        0 => Answer::Errno(libc::EINTR),
        1 => Answer::Number(-libc::EAGAIN as isize),
        _ => Answer::All,
    });
    bench.write(0, 1, 3).wait().expect("written");
    bench.memory.fill(|_| 0xEE);
    bench.read(1, 1, 3).wait().expect("read");
    bench.assert_block(1, 1, 3);
    assert!(bench.volume.stats().retried >= 8);
    bench.fake.plan(|_| Answer::Errno(libc::EAGAIN));
    let failure = bench.read(1, 1, 3).wait().expect_err("reported at last");
    assert_eq!((failure.cause, failure.is_retryable()), (FailureCause::Os { errno: libc::EAGAIN }, true));
    bench.fake.plan(|_| Answer::Part(0));
    assert!(matches!(bench.refused(1, 3), FailureCause::NoProgress { .. }));
}

#[test]
fn error_is_named_counted_and_gives_the_memory_back_first() {
    let Some(bench) = one(|options| options) else { return };
    bench.write(0, 1, 3).wait().expect("written");
    for (number, cause, words) in [
        (
            -5014,
            FailureCause::CuFile(CuFileCode { code: 5014, cuda: 0 }),
            "5014 CU_FILE_CUDA_POINTER_RANGE_ERROR",
        ),
        (-5, FailureCause::Os { errno: libc::EIO }, "os error 5"),
        (1 << 20, FailureCause::Os { errno: libc::EPROTO }, "os error 71"),
    ] {
        let before = bench.volume.stats().failures;
        bench.fake.plan(move |call| if call % 4 == 2 { Answer::Number(number) } else { Answer::All });
        let failure = bench.read(0, 1, 3).wait().expect_err("the third piece");
        assert_eq!((failure.cause, failure.is_retryable()), (cause, false));
        assert!(failure.to_string().contains(words) && failure.to_string().contains("slot 1"), "{failure}");
        assert_eq!(bench.volume.stats().failures, before + 1);
        assert_eq!(Arc::strong_count(&bench.buffer), 1, "nobody has a share in the memory");
        bench.fake.plan(|_| Answer::All);
        bench.read(0, 1, 3).wait().expect("the block is still there");
        // A failed write leaves no record.
        bench.write(2, 2, 1).wait().expect("written");
        bench.fake.plan(move |_| Answer::Number(number));
        assert_eq!(bench.write(2, 2, 2).wait().expect_err("refused").cause, cause);
        bench.fake.plan(|_| Answer::All);
        assert_eq!(bench.refused(2, 1), FailureCause::Rejected(Rejection::Empty));
        assert_eq!(bench.refused(2, 2), FailureCause::Rejected(Rejection::Empty));
    }
}

#[test]
fn cufile_errors_alone_leave_the_volume_in_service() {
    let Some(bench) = bench(4, 4096, |options| options) else { return };
    bench.fake.plan(|_| Answer::Number(-5013));
    for _ in 0..100 {
        let cause = bench.write(0, 0, 1).wait().expect_err("refused").cause;
        assert_eq!(cause, FailureCause::CuFile(CuFileCode { code: 5013, cuda: 0 }));
    }
    let arena = HostArena::new(1, 4096).expect("arena");
    write_pattern(&bench.volume, &arena, 0, 1, 1);
    bench.fake.plan(|_| Answer::Errno(libc::EIO));
    let causes: Vec<_> = (0..100).map(|_| bench.write(0, 0, 1).wait().expect_err("refused").cause).collect();
    // The file's superblock can still be read: the drive is there.
    assert!(causes.iter().all(|cause| *cause == FailureCause::Os { errno: libc::EIO }), "{causes:?}");
    bench.fake.plan(|_| Answer::All);
    check_pattern(&bench.volume, &arena, 0, 1, 1);
    // A device that is gone is gone for both kinds of memory.
    bench.fake.plan(|_| Answer::Errno(libc::ENODEV));
    let cause = bench.write(0, 0, 1).wait().expect_err("gone").cause;
    assert_eq!(cause, FailureCause::Os { errno: libc::ENODEV });
    assert_eq!(bench.volume.stats().outages, 1);
    assert_eq!(Arc::strong_count(&bench.buffer), 1, "nothing was in flight: nothing is kept");
}

/// Sums correctly, unless told otherwise.
struct Moody {
    /// 0: correct. 1: panics. Else the code to return.
    mood: AtomicI32,
}

impl DeviceSums for Moody {
    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32> {
        match self.mood.load(Ordering::Relaxed) {
            0 => HostSums.sum(payload),
            1 => std::panic::resume_unwind(Box::new("moody sums")),
            code => Err(code),
        }
    }
}

#[test]
fn unsummable_payload_is_neither_written_nor_read() {
    let sums = Arc::new(Moody { mood: AtomicI32::new(0) });
    let Some(bench) = one(|options| options.device_sums(Arc::<Moody>::clone(&sums))) else { return };
    bench.write(0, 1, 1).wait().expect("written");
    for (mood, code, words) in [(700, 700, "DeviceSums returned 700"), (1, PANICKED, "DeviceSums panicked")] {
        sums.mood.store(mood, Ordering::Relaxed);
        let failure = bench.read(0, 1, 1).wait().expect_err("not verified");
        assert_eq!(failure.cause, FailureCause::DeviceSum { code });
        assert!(failure.to_string().contains(words), "{failure}");
        assert_eq!(
            bench.write(2, 2, 1).wait().expect_err("not sealed").cause,
            FailureCause::DeviceSum { code }
        );
        sums.mood.store(0, Ordering::Relaxed);
        bench.read(0, 1, 1).wait().expect("the block is still there");
        assert_eq!(bench.refused(2, 1), FailureCause::Rejected(Rejection::Empty));
    }
    assert_eq!(bench.volume.stats().failures, 4);
}

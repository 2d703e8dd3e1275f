//! Copies without a plan: the bytes that arrive, no other change, the sum on the way, and the refusals.

use kvstrata_ffi::copy::{CopyError, HostCopy, Path};
use twox_hash::XxHash3_64;

const PAD: u8 = 0xa5;

fn copies() -> impl Iterator<Item = (HostCopy, bool)> {
    let paths = Path::ALL.into_iter().filter_map(|path| HostCopy::with_path(path).ok());
    paths.flat_map(|copy| [(copy, false), (copy, true)])
}

/// Lengths around the sizes at which the code changes: ends, lines, groups of lines, chunks.
fn lengths() -> impl Iterator<Item = usize> {
    let around = [0, 64, 128, 240, 256, 1024, 2048, 4096, 3 * 2048, 40_000];
    around.into_iter().flat_map(|at: usize| at.saturating_sub(2)..at + 3)
}

#[test]
fn copied_bytes_match_their_sum_and_no_others_change() {
    let source: Vec<u8> = (0..50_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let mut target = vec![PAD; 50_000];
    let shifts = if cfg!(miri) { vec![(0, 1)] } else { vec![(0, 0), (0, 1), (1, 0), (63, 32), (8, 63)] };
    for (copy, past_caches) in copies() {
        for bytes in lengths().filter(|bytes| !cfg!(miri) || *bytes < 300) {
            for (from, to) in &shifts {
                let src = &source[*from..][..bytes];
                // Lines of the target start on multiples of a line, not at the start of its vector.
                let at = target.as_ptr().align_offset(64) + to;
                for sum in [false, true] {
                    target[..at + bytes + 128].fill(PAD);
                    let dst = &mut target[at..][..bytes];
                    let what = format!("{copy:?} {past_caches} {bytes} {from} {to}");
                    if sum {
                        let sum = copy.copy_bytes_with_checksum(src, dst, past_caches);
                        assert_eq!(sum, Ok(XxHash3_64::oneshot(src)), "{what}");
                    } else {
                        assert_eq!(copy.copy_bytes(src, dst, past_caches), Ok(()), "{what}");
                    }
                    assert!(target[at..][..bytes] == *src, "{what}");
                    let around = target[..at].iter().chain(&target[at + bytes..][..128]);
                    assert!(around.into_iter().all(|byte| *byte == PAD), "{what}");
                }
            }
        }
    }
}

#[test]
fn unequal_lengths_are_refused() {
    for (copy, past_caches) in copies() {
        let mut target = [PAD; 65];
        let refused = copy.copy_bytes(&[1; 64], &mut target, past_caches).expect_err("65 are not 64");
        assert_eq!(copy.copy_bytes_with_checksum(&[1; 64], &mut target, past_caches), Err(refused));
        assert_eq!(refused, CopyError::Lengths { src: 64, dst: 65 });
        assert_eq!(target, [PAD; 65]);
        assert_eq!(
            refused.to_string(),
            "the source has 64 bytes and the destination 65; give slices of equal length"
        );
    }
}

#[test]
fn store_kind_follows_the_setting() {
    let copy = HostCopy::new().stream_from_bytes(100);
    assert_eq!([99, 100, 101].map(|bytes| copy.goes_past_caches(bytes)), [false, true, true]);
}

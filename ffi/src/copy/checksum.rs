//! Copy and hash in one pass: a chunk is hashed, which brings it into the first-level cache, and stored from there.
//!
//! The order of the bytes is the hash's, so there is one piece under way, not four.

use super::lanes::ends;
use super::store::{LINE, Lines, ask_for, small};
use core::hash::Hasher;
use kvstrata_core::plan::CopyPlan;
use twox_hash::XxHash3_64;

/// Bytes that are hashed and then stored; a fraction of the first-level cache.
const CHUNK: usize = 4096;

/// Copies all pieces, and hashes them in their order.
///
/// # Safety
/// As [`super::lanes::copy`].
#[inline(always)]
pub(super) unsafe fn copy<L: Lines>(plan: &CopyPlan, streams: bool) -> u64 {
    let mut hash = XxHash3_64::new();
    let mut pieces = plan.pieces().peekable();
    while let Some(piece) = pieces.next() {
        let (src, dst, bytes) = ends(piece);
        let after = pieces.peek().map_or(src, |next| ends(*next).0);
        let mut at = 0;
        while at < bytes {
            let chunk = CHUNK.min(bytes - at);
            let (from, to) = (src.wrapping_add(at), dst.wrapping_add(at));
            // The chunk after this one, or the next piece's first: on its way while this one is hashed.
            let next = if at + chunk < bytes { from.wrapping_add(chunk) } else { after };
            for line in (0..chunk).step_by(LINE) {
                ask_for(next.wrapping_add(line));
            }
            // SAFETY: within the piece, whose source is initialised and not written meanwhile.
            hash.write(unsafe { core::slice::from_raw_parts(from, chunk) });
            // SAFETY: within the piece.
            unsafe { store::<L>(to, from, chunk, streams) };
            at += chunk;
        }
    }
    hash.finish()
}

/// Stores a chunk.
///
/// # Safety
/// As [`Lines::lines`], for so many bytes.
#[inline(always)]
unsafe fn store<L: Lines>(mut dst: *mut u8, mut src: *const u8, mut bytes: usize, streams: bool) {
    if streams && bytes >= 4 * LINE {
        let head = dst.align_offset(LINE);
        // SAFETY: a head is less than a line.
        unsafe { small::<L>(dst, src, head) };
        (dst, src, bytes) = (dst.wrapping_add(head), src.wrapping_add(head), bytes - head);
        while bytes >= 2 * LINE {
            // SAFETY: two lines are left, and dst starts one.
            unsafe { L::lines::<2, true>(dst, src) };
            (dst, src, bytes) = (dst.wrapping_add(2 * LINE), src.wrapping_add(2 * LINE), bytes - 2 * LINE);
        }
    }
    // SAFETY: so much is left.
    unsafe { small::<L>(dst, src, bytes) };
}

//! Large pieces: several under way at once, past the caches.
//!
//! A core alone has few misses in flight. The hardware's prefetcher makes reads faster, but needs some
//! pages of a piece to get going. With lanes, one piece starts while others run.

use super::store::{LINE, Lines, ask_for, small};
use core::ptr;
use kvstrata_core::plan::{Piece, Pieces};

/// Pieces under way. At 32 KiB each, 2 reach 16.5 GB/s, 4 reach 18.6, 8 reach 17.4 (Zen 4).
const LANES: usize = 4;
/// Lines in a lane's turn; 8 are 5 % slower.
const TURN_LINES: usize = 4;
const TURN: usize = TURN_LINES * LINE;
/// The distance of a lane's prefetches ahead of its loads, in bytes; twice as far is no better, four
/// times is worse.
const AHEAD: usize = 1024;

/// A piece, from the first whole line of its destination on, and this lane's next piece.
#[derive(Clone, Copy)]
struct Lane {
    src: *const u8,
    dst: *mut u8,
    left: usize,
    next: Option<Piece>,
}

impl Lane {
    const IDLE: Lane = Lane { src: ptr::null(), dst: ptr::null_mut(), left: 0, next: None };

    /// Copies the bytes before the first whole line.
    ///
    /// # Safety
    /// As [`copy`], for the piece.
    #[inline(always)]
    unsafe fn begin<L: Lines>(piece: Piece, next: Option<Piece>) -> Lane {
        let (src, dst, bytes) = ends(piece);
        // SAFETY: the caller's contract.
        unsafe { Lane::over::<L>(src, dst, bytes, next) }
    }

    /// As [`begin`](Lane::begin), for a piece given by its pointers.
    ///
    /// # Safety
    /// As [`copy`], for the piece.
    #[inline(always)]
    unsafe fn over<L: Lines>(src: *const u8, dst: *mut u8, bytes: usize, next: Option<Piece>) -> Lane {
        let head = dst.align_offset(LINE).min(bytes);
        // SAFETY: head ≤ bytes.
        unsafe { small::<L>(dst, src, head) };
        Lane { src: src.wrapping_add(head), dst: dst.wrapping_add(head), left: bytes - head, next }
    }

    /// Copies a turn's lines.
    ///
    /// # Safety
    /// As [`copy`], for the lane's piece; at least a turn's bytes are left.
    #[inline(always)]
    unsafe fn turn<L: Lines>(&mut self) {
        let ahead = match self.next {
            Some(next) if self.left <= AHEAD => {
                ptr::without_provenance(next.src as usize + (AHEAD - self.left))
            }
            _ => self.src.wrapping_add(AHEAD),
        };
        for line in 0..TURN_LINES {
            ask_for(ahead.wrapping_add(line * LINE));
        }
        // SAFETY: TURN ≤ left, and dst starts a line: `over` advanced it to one, and a turn is whole lines.
        unsafe { L::lines::<TURN_LINES, true>(self.dst, self.src) };
        self.advance(TURN);
    }

    /// Copies the rest, which is less than a turn.
    ///
    /// # Safety
    /// As [`copy`], for the lane's piece.
    #[inline(always)]
    unsafe fn finish<L: Lines>(&mut self) {
        while self.left >= LINE {
            // SAFETY: a line is left, and dst starts one.
            unsafe { L::lines::<1, true>(self.dst, self.src) };
            self.advance(LINE);
        }
        // SAFETY: `left` bytes are left.
        unsafe { small::<L>(self.dst, self.src, self.left) };
    }

    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        self.src = self.src.wrapping_add(bytes);
        self.dst = self.dst.wrapping_add(bytes);
        self.left -= bytes;
    }
}

/// Returns the addresses of a piece in host memory, as pointers, and its length.
#[inline(always)]
pub(super) fn ends(piece: Piece) -> (*const u8, *mut u8, usize) {
    // Addresses of host regions are `usize`s to begin with.
    let src = ptr::with_exposed_provenance(piece.src as usize);
    (src, ptr::with_exposed_provenance_mut(piece.dst as usize), piece.bytes as usize)
}

/// Copies all pieces.
///
/// # Safety
/// The CPU has the instructions of `L`; the pieces are those of a plan that may be executed
/// ([`HostCopy::execute`](super::HostCopy::execute)).
#[inline(always)]
pub(super) unsafe fn copy<L: Lines>(mut pieces: Pieces<'_>) {
    let mut lanes = [Lane::IDLE; LANES];
    let mut live = 0;
    // Lanes open one after the other. Otherwise they would all start new pieces at the same time from
    // then on.
    let mut wait = 0;
    loop {
        if live < LANES && wait == 0 {
            let Some(piece) = pieces.next() else { break };
            wait = piece.bytes as usize / TURN / LANES;
            // SAFETY: a piece of the plan.
            lanes[live] = unsafe { Lane::begin::<L>(piece, pieces.next()) };
            live += 1;
            continue;
        }
        wait = wait.saturating_sub(1);
        if live == LANES {
            break;
        }
        for lane in &mut lanes[..live] {
            // SAFETY: pieces of the plan.
            unsafe { step::<L>(lane, &mut pieces) };
        }
    }
    while live > 0 {
        let mut at = 0;
        while at < live {
            // SAFETY: pieces of the plan.
            if unsafe { step::<L>(&mut lanes[at], &mut pieces) } {
                at += 1;
            } else {
                live -= 1;
                lanes.swap(at, live);
            }
        }
    }
}

/// Copies one stretch of bytes in one lane: the hardware's prefetcher follows a single stretch by itself.
///
/// # Safety
/// The CPU has the instructions of `L`; the lengths are equal.
#[inline(always)]
pub(super) unsafe fn copy_bytes<L: Lines>(src: &[u8], dst: &mut [u8]) {
    // SAFETY: both slices are borrowed for their whole length, `dst` exclusively.
    let mut lane = unsafe { Lane::over::<L>(src.as_ptr(), dst.as_mut_ptr(), src.len(), None) };
    while lane.left >= TURN {
        // SAFETY: a turn's bytes are left.
        unsafe { lane.turn::<L>() };
    }
    // SAFETY: the lane's bytes are those borrowed.
    unsafe { lane.finish::<L>() };
}

/// Runs a lane's turn, or ends its piece and begins the next. Returns whether the lane has work left.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn step<L: Lines>(lane: &mut Lane, pieces: &mut Pieces<'_>) -> bool {
    if lane.left >= TURN {
        // SAFETY: TURN ≤ left.
        unsafe { lane.turn::<L>() };
        return true;
    }
    // SAFETY: the lane's piece is the plan's.
    unsafe { lane.finish::<L>() };
    match lane.next {
        Some(piece) => {
            // SAFETY: a piece of the plan.
            *lane = unsafe { Lane::begin::<L>(piece, pieces.next()) };
            true
        }
        None => {
            lane.left = 0;
            false
        }
    }
}

//! Memory that a caller lends: each block is a span of bytes with an address and a length of its own.
//!
//! ```text
//!   the lender's memory   ··├── span 0 ──┤····├─ span 1 ─┤··├────── span 2 ──────┤··
//!   the arena               block 0           block 1        block 2
//! ```
//!
//! A transfer into or out of such a block touches the span and no byte beside it. So the span's own length
//! is the block's room, and a span has no padding.
//!
//! Invariants
//! - I1: from construction to drop, each span is mapped and initialised: the lender has promised it for as
//!   long as the owner lives, and the owner is a field of the memory.
//! - I2: at least one span, none of them empty, none past the address space or longer than `isize::MAX`.

use super::ArenaError;
use core::any::Any;
use core::ptr::NonNull;

/// A stretch of memory to be lent: a block of [`HostArena::lent`](super::HostArena::lent).
///
/// A span is an address and a length. It gives no access to the memory and promises nothing about it.
///
/// ```
/// use kvstrata_ffi::arena::Span;
///
/// let mut bytes = vec![0_u8; 5000];
/// let span = Span::new(bytes.as_mut_ptr(), bytes.len()).expect("memory");
/// assert_eq!(span.bytes, 5000);
/// assert!(Span::new(core::ptr::null_mut(), 5000).is_none() && Span::new(bytes.as_mut_ptr(), 0).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte's address.
    pub address: NonNull<u8>,
    /// The length in bytes.
    pub bytes: usize,
}

// SAFETY: a span is a number and an address that it never follows. The maker of an arena promises that any
// thread may reach the memory (`HostArena::lent`).
unsafe impl Send for Span {}
// SAFETY: as for `Send`; no method of `&Span` touches the memory.
unsafe impl Sync for Span {}

impl Span {
    /// Names `bytes` bytes from `address` on. None for a null address or a length of 0.
    #[must_use]
    pub fn new(address: *mut u8, bytes: usize) -> Option<Span> {
        NonNull::new(address).filter(|_| bytes > 0).map(|address| Span { address, bytes })
    }
}

/// Lent spans, and the value that keeps them valid (I1).
#[derive(Debug)]
pub(super) struct Lent {
    spans: Vec<Span>,
    longest: usize,
    /// Never read: its drop tells the lender that nothing touches the spans any more.
    _owner: Box<dyn Any + Send + Sync>,
}

impl Lent {
    /// Checks I2. The caller has promised I1.
    pub(super) fn new(spans: Vec<Span>, owner: Box<dyn Any + Send + Sync>) -> Result<Lent, ArenaError> {
        if spans.is_empty() {
            return Err(ArenaError::NoSpans);
        }
        for (block, span) in spans.iter().enumerate() {
            let refused = |why| Err(ArenaError::Span { block, bytes: span.bytes, why });
            if span.bytes == 0 {
                return refused("a block has at least 1 byte; leave the span out");
            }
            let end = span.address.as_ptr().addr().checked_add(span.bytes);
            if span.bytes > isize::MAX as usize || end.is_none() {
                return refused("it exceeds the address space; check the unit of the length");
            }
        }
        let longest = spans.iter().map(|span| span.bytes).max().unwrap_or(0);
        Ok(Lent { spans, longest, _owner: owner })
    }

    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }
}

//! `TokenBlockSequence` allocates nothing a block: within its capacity not once, beyond it only to double.

use kvstrata_core::hash::{BlockHasher, Salt, SequenceHash, Xxh3};
use kvstrata_core::tokens::TokenBlockSequence;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Of this thread, so that the test harness's own threads do not count.
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes on to `System` with the caller's own arguments; counting neither allocates (a const
// thread-local without a destructor) nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller upholds `GlobalAlloc::alloc`'s contract, which is `System`'s too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` and `realloc` get it there.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: `ptr` came from `System` with this layout; the caller upholds the rest.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls(work: impl FnOnce()) -> usize {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

const TOKENS: usize = if cfg!(miri) { 1 << 9 } else { 1 << 17 };

#[test]
fn nothing_within_capacity() {
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let mut sequence = TokenBlockSequence::with_capacity(16, Salt::default(), TOKENS).unwrap();
    let work = || {
        sequence.extend(&tokens);
        sequence.truncate(TOKENS / 2 + 5);
        sequence.extend(&tokens[..TOKENS / 2 - 5]);
        sequence.clear();
        for &token in &tokens {
            sequence.push(token);
        }
        assert_eq!(sequence.blocks().len(), TOKENS / 16);
    };
    assert_eq!(calls(work), 0);
}

#[test]
fn two_for_one_extend_from_nothing() {
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let mut sequence = TokenBlockSequence::new(16, Salt::default()).unwrap();
    assert_eq!(calls(|| assert_eq!(sequence.extend(&tokens).len(), TOKENS / 16)), 2, "one a growing array");
}

#[test]
fn growth_doubles() {
    let mut sequence = TokenBlockSequence::new(1, Salt::default()).unwrap();
    let pushes = || {
        (0..TOKENS as u32).for_each(|token| {
            sequence.push(token);
        })
    };
    assert!(calls(pushes) <= 2 * (TOKENS.ilog2() as usize + 1));
}

#[test]
fn hashes_alone_need_no_memory_of_their_own() {
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let mut hashes = Vec::with_capacity(TOKENS / 16);
    assert_eq!(calls(|| Xxh3.extend_chain(SequenceHash::default(), &tokens, 16, &mut hashes)), 0);
    assert_eq!(hashes.len(), TOKENS / 16);
}

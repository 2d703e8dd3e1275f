use super::*;
use core::any::Any;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Memory of a lender, and a flag that says when the loan has ended.
struct Loan {
    bytes: *mut u8,
    size_bytes: usize,
    ended: Arc<AtomicBool>,
}

/// Frees the memory, so that a sanitizer sees each touch after the end.
struct Owner(Vec<u8>, Arc<AtomicBool>);

impl Drop for Owner {
    fn drop(&mut self) {
        assert!(!self.0.is_empty() && !self.1.swap(true, SeqCst));
    }
}

impl Loan {
    /// Memory from `skew` bytes behind a multiple of 4096 on, with its owner.
    fn new(size_bytes: usize, skew: usize) -> (Loan, Box<dyn Any + Send + Sync>) {
        let ended = Arc::new(AtomicBool::new(false));
        let mut owner = Owner(vec![0; size_bytes + 2 * BLOCK_ALIGN_BYTES], Arc::clone(&ended));
        let base = owner.0.as_mut_ptr();
        let bytes = base.wrapping_add(base.align_offset(BLOCK_ALIGN_BYTES) + skew);
        (Loan { bytes, size_bytes, ended }, Box::new(owner))
    }

    fn span(&self, offset: usize, bytes: usize) -> Span {
        assert!(offset + bytes <= self.size_bytes);
        Span::new(self.bytes.wrapping_add(offset), bytes).expect("memory")
    }

    fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }
}

/// Makes an arena over spans of a loan that do not overlap.
fn lent(spans: Vec<Span>, owner: Box<dyn Any + Send + Sync>) -> Arc<HostArena> {
    // SAFETY: the owner has the memory, initialised, and the tests touch it through guards alone.
    unsafe { HostArena::lent(spans, owner) }.expect("an arena")
}

#[test]
fn lent_blocks_have_the_lengths_of_their_spans() {
    let (loan, owner) = Loan::new(20_000, 0);
    let arena = lent(vec![loan.span(0, 100), loan.span(4096, 9000), loan.span(200, 1)], owner);
    assert_eq!((arena.blocks(), arena.block_bytes(), arena.stride()), (3, 9000, 0));
    assert!(arena.is_lent() && arena.mapped().is_none() && arena.backing() == Backing::Lent);
    assert_eq!((arena.base_address(), arena.size_bytes()), (loan.bytes.addr() as u64, 0));
    for (block, bytes) in [(0, 100), (1, 9000), (2, 1), (3, 0)] {
        assert_eq!((arena.bytes_of(block), arena.room_of(block)), (bytes, bytes));
    }
    for block in 0..3 {
        let mut guard = arena.write(block).expect("free");
        assert_eq!((guard.len(), guard.room_bytes()), (arena.bytes_of(block), arena.room_of(block)));
        guard.fill(block as u8 + 1);
    }
    let read = |block| arena.read(block).expect("free").to_vec();
    assert_eq!((read(0), read(1), read(2)), (vec![1; 100], vec![2; 9000], vec![3]));
    assert_eq!(arena.read(3).unwrap_err(), BorrowError::OutOfRange { block: 3, blocks: 3 });
}

#[test]
fn loan_ends_with_the_last_guard_or_handle() {
    for guard_last in [true, false] {
        let (loan, owner) = Loan::new(64, 0);
        let arena = lent(vec![loan.span(0, 64)], owner);
        let guard = arena.write(0).expect("free").first(10).into_read();
        if guard_last {
            drop(arena);
            assert!(!loan.has_ended() && guard.iter().all(|byte| *byte == 0));
            drop(std::thread::spawn(move || drop(guard)).join());
        } else {
            drop(guard);
            assert!(!loan.has_ended());
            drop(arena);
        }
        assert!(loan.has_ended());
    }
}

#[test]
fn lent_memory_without_a_span_is_refused() {
    let (loan, owner) = Loan::new(64, 0);
    // SAFETY: no span, so nothing is promised.
    let error = unsafe { HostArena::lent(Vec::new(), owner) }.unwrap_err();
    assert!(matches!(error, ArenaError::NoSpans) && loan.has_ended());
    assert_eq!(
        error.to_string(),
        "spans = 0: an arena of lent memory needs at least one span; lend one for each block"
    );
}

#[test]
fn impossible_lent_spans_are_refused_by_number() {
    for bytes in [0, usize::MAX, isize::MAX as usize + 1] {
        let (loan, owner) = Loan::new(64, 0);
        let spans = vec![loan.span(0, 64), Span { bytes, ..loan.span(0, 1) }];
        // SAFETY: the arena is refused, so nothing is touched.
        let error = unsafe { HostArena::lent(spans, owner) }.unwrap_err();
        assert!(matches!(error, ArenaError::Span { block: 1, bytes: of, .. } if of == bytes), "{error}");
        assert!(error.to_string().starts_with(&format!("span 1 of lent memory has {bytes} bytes: ")));
        assert!(loan.has_ended(), "the owner is dropped");
    }
}

#[test]
fn lent_memory_is_aligned_by_address_and_room() {
    for (skew, bytes, aligned) in [
        (0, 8192, true),
        (0, 4096, true),
        (0, 4095, false),
        (0, 5000, false),
        (512, 8192, false),
        (1, 4096, false),
    ] {
        let (loan, owner) = Loan::new(bytes, skew);
        let arena = lent(vec![loan.span(0, bytes)], owner);
        assert_eq!(arena.read(0).expect("free").is_aligned(), aligned, "{skew}, {bytes}");
        assert_eq!(arena.write(0).expect("free").is_aligned(), aligned, "{skew}, {bytes}");
        let narrowed = arena.write(0).expect("free").first(3000);
        assert_eq!(narrowed.is_aligned(), skew == 0 && bytes >= 4096, "the span has room for the padding");
    }
}

#[test]
fn parts_of_a_block_are_lent_until_the_last_guard() {
    let arena = HostArena::new(2, 5000).expect("arena");
    let parts = arena.write(1).expect("free").lend(&[1..2, 2..3000, 4096..5000]).expect("parts");
    assert_eq!((parts.blocks(), parts.block_bytes()), (3, 2998));
    parts.write(1).expect("free").fill(1);
    let last = parts.write(2).expect("free").into_read();
    assert!(last.as_ptr().addr().is_multiple_of(BLOCK_ALIGN_BYTES) && !last.is_aligned());
    drop(parts);
    assert_eq!(arena.read(1).unwrap_err(), BorrowError::Writing { block: 1 });
    drop(last);
    let back = arena.read(1).expect("back");
    assert_eq!((back[1], &back[2..3000], back[3000]), (0, &[1; 2998][..], 0));
}

#[test]
fn parts_that_overlap_or_leave_the_block_are_refused() {
    let arena = HostArena::new(1, 5000).expect("arena");
    let refused = |bytes: usize, parts: &[core::ops::Range<usize>]| {
        let error = arena.write(0).expect("free").first(bytes).lend(parts).unwrap_err();
        assert!(arena.write(0).is_ok(), "the guard is dropped");
        error
    };
    for parts in [[0..10, 9..20], [0..10, 10..10], [0..10, 4999..5001], [20..30, 0..10]] {
        let error = refused(5000, &parts);
        assert!(matches!(error, ArenaError::Span { block: 1, .. }), "{error}");
    }
    assert!(
        matches!(refused(100, &[0..50, 50..101]), ArenaError::Span { block: 1, bytes: 51, .. }),
        "narrowed"
    );
    assert!(matches!(refused(100, &[]), ArenaError::NoSpans));
}

#[test]
fn lent_arena_is_not_kept_from_children() {
    let (loan, owner) = Loan::new(64, 0);
    let arena = lent(vec![loan.span(0, 64)], owner);
    assert_eq!(arena.do_not_fork().unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}

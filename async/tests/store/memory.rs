//! Lent memory.

use crate::ground::{BYTES, aligned, check, close, config, keys, load, open, store, unaligned};
use kvstrata::backend::{HostArena, Span};
use kvstrata::store::BatchOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[test]
fn aligned_memory_goes_straight_and_other_memory_by_staging() {
    let of = open(&config("sizes = [\"16K\"]\n[disk]\nbytes = \"1M\""));
    store(&of, &[1, 2, 3], aligned(&[1, 2, 3], BYTES));
    assert_eq!((of.stats().straight, of.stats().staged), (3, 0));
    store(&of, &[4, 5], unaligned(&[4, 5], BYTES));
    assert_eq!((of.stats().straight, of.stats().staged), (3, 2));
    load(&of, &[1, 4], &aligned(&[9, 9], BYTES));
    assert_eq!((of.stats().straight, of.stats().staged), (5, 2));
    load(&of, &[2, 5], &unaligned(&[9, 9], BYTES));
    assert_eq!((of.stats().straight, of.stats().staged), (5, 4));
    close(&of);
}

#[test]
fn host_tier_serves_what_was_loaded_once() {
    let of = open(&config("sizes = [\"16K\"]\n[host]\nbytes = \"32K\"\n[disk]\nbytes = \"1M\""));
    for number in 0..8 {
        store(&of, &[number], aligned(&[number], BYTES));
    }
    let memory = aligned(&[9], BYTES);
    load(&of, &[1], &memory);
    let stats = of.stats();
    assert_eq!((stats.loaded_from_below, stats.loaded_from_host), (1, 0));
    load(&of, &[1], &memory);
    check(&memory, &[1]);
    assert_eq!(of.stats().loaded_from_host, 1);
    close(&of);
}

/// Says when the owner of lent memory is dropped.
struct Owner(Arc<AtomicBool>, #[expect(dead_code, reason = "keeps the memory")] Vec<u8>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn owner_of_lent_memory_is_dropped_after_the_completion() {
    let of = open(&config("sizes = [\"16K\"]\n[disk]\nbytes = \"1M\""));
    let client = of.client().expect("a client");
    let gone = Arc::new(AtomicBool::new(false));
    let mut bytes = vec![3; BYTES];
    let span = Span::new(bytes.as_mut_ptr(), bytes.len()).expect("a span");
    let owner = Owner(Arc::clone(&gone), bytes);
    // SAFETY: the owner keeps the buffer, which nothing else touches.
    let memory = unsafe { HostArena::lent(vec![span], Box::new(owner)) }.expect("lent");
    let job = client.submit_store(&keys(&of, [1]), memory, BatchOptions::default()).expect("begun");
    let mut ended = Vec::new();
    while ended.is_empty() {
        assert!(!gone.load(SeqCst), "the store owns the memory");
        client.drain(&mut ended);
        std::thread::yield_now();
    }
    assert_eq!(ended[0].job, job);
    assert!(!gone.load(SeqCst), "the completion owns the memory");
    drop(ended);
    assert!(gone.load(SeqCst));
    close(&of);
}

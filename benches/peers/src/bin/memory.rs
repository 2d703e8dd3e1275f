//! Bytes a block, all structures together: the live bytes after a pool was built and filled with
//! registered blocks, divided by its capacity.
//!
//! A program of its own, because its counting allocator would slow down the operations that others time.
//! Prints JSON.

use kvstrata_bench_peers::kvbm::{self, Setup};
use kvstrata_benches::{CAPACITY, PREFIX, ours};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that were allocated and not freed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: System's own promises; the counter does not affect them.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: read at rest, by the only thread.
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes a block that `build` leaves alive: with all blocks inactive, and again with all of them held.
fn a_block<T, H>(build: impl FnOnce() -> T, hold: impl FnOnce(&T) -> H) -> [f64; 2] {
    let before = LIVE.load(Relaxed);
    let built = build();
    let inactive = LIVE.load(Relaxed) - before;
    let held = hold(&built);
    let active = LIVE.load(Relaxed) - before;
    drop(held);
    [inactive, active].map(|bytes| bytes as f64 / f64::from(CAPACITY))
}

fn peer(setup: Setup) -> [f64; 2] {
    let build = || {
        let manager = kvbm::manager(setup, CAPACITY);
        let filled = kvbm::fill(&manager);
        (manager, filled)
    };
    let [inactive, active] = a_block(build, |(manager, filled)| -> Vec<_> {
        filled.iter().map(|prefix| manager.match_blocks(prefix)).collect()
    });
    [inactive - input_bytes(), active - input_bytes()]
}

fn ours() -> [f64; 2] {
    let build = || {
        let pool = Box::leak(Box::new(ours::pool(CAPACITY)));
        let filled = ours::fill(pool);
        (&*pool, filled)
    };
    let [inactive, active] = a_block(build, |(pool, filled)| {
        let mut held = Vec::with_capacity(CAPACITY as usize);
        for prefix in filled {
            pool.match_prefix(prefix, &mut held);
        }
        held
    });
    [inactive - input_bytes(), active - input_bytes()]
}

/// The hashes that `fill` returns are the benchmark's own, 16 bytes a block and a `Vec` a prefix.
fn input_bytes() -> f64 {
    16.0 + size_of::<Vec<u128>>() as f64 / PREFIX as f64
}

fn main() {
    let (documented, leanest, ours) = (peer(Setup::Documented), peer(Setup::Leanest), ours());
    let json = |[inactive, active]: [f64; 2]| serde_json::json!({ "inactive": inactive, "active": active });
    let (peer, peer_leanest, ours) = (json(documented), json(leanest), json(ours));
    println!("{}", serde_json::json!({ "peer": peer, "peer_leanest": peer_leanest, "ours": ours }));
}

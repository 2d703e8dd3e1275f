//! The core at work where there is no standard library, no libc and no allocator but a counting arena.
//!
//! Two claims are shown by running this:
//!
//! - **no_std**: were `std` anywhere below us, its panic handler would meet ours and the build would fail;
//!   were libc, the link would (`build.rs` links nothing).
//! - **no allocation after construction**: [`arena`] counts, and [`frugal`] compares before and after.
//!
//! Exit code 0: both hold. 101: a panic, its place and message on stderr. `ci/steps/no_std` builds and runs
//! it, and shows that it fails when `std` or an allocation sneaks in (features of those names).
#![no_std]
#![no_main]

extern crate alloc;
#[cfg(feature = "std-sneaks-in")]
extern crate std;

mod arena;
mod memory;
mod pool;
mod system;
mod tokens;

/// Called by `_start` on a fresh, aligned stack; never returns to it.
#[unsafe(no_mangle)]
extern "C" fn program() -> ! {
    pool::life_cycle();
    pool::all_policies();
    tokens::same_hashes_either_way();
    tokens::plans_are_made_in_place();
    system::print(format_args!("no_std: {} allocations, none by an operation\n", arena::allocations()));
    system::exit(0)
}

/// Runs `work`, which must not allocate.
fn frugal<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let before = arena::allocations();
    let value = work();
    #[cfg(feature = "allocation-sneaks-in")]
    drop(core::hint::black_box(alloc::boxed::Box::new(before)));
    let after = arena::allocations();
    assert!(before == after, "{what}: {} allocations", after - before);
    value
}

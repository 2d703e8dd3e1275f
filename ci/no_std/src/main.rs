//! The core at work without a standard library, libc or allocator, except a counting arena.
//!
//! Running this program shows two claims:
//!
//! - **no_std**: if `std` were anywhere below us, its panic handler would conflict with ours and the build
//!   would fail; if libc were, the link would fail (`build.rs` links nothing).
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

/// Runs `work`, and panics if it allocates.
fn frugal<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let before = arena::allocations();
    let value = work();
    #[cfg(feature = "allocation-sneaks-in")]
    drop(core::hint::black_box(alloc::boxed::Box::new(before)));
    let after = arena::allocations();
    assert!(before == after, "{what}: {} allocations", after - before);
    value
}

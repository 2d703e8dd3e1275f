//! The contract of device movers, on each of them.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/faulty_mover.rs"]
mod faulty_mover;

/// The contract's tests, for a ground.
macro_rules! contract {
    ($ground:expr; $($name:ident)*) => { $(
        #[test]
        fn $name() {
            crate::contract::$name(&$ground);
        }
    )* };
    ($ground:expr) => {
        contract!($ground; layers_both_ways layers_in_any_order random_lists a_long_list an_empty_list a_flipped_bit a_conflict what_there_is_not
            dropped_at_work a_landing_that_starts blocks_are_overwritten zeros_that_cannot_be zeros_of_a_mover_that_is_dropped);
    };
}

mod contract;
mod cuda;
mod faulty;
mod ground;
mod oracle;
mod threads;

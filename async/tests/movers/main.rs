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
        contract!($ground;
            layers_copied_down_and_up_are_exact
            layers_copied_in_any_order_are_exact
            random_lists_are_exact
            long_list_is_exact
            empty_list_is_answered
            flipped_bit_is_noticed_under_verify
            copy_of_a_used_block_is_busy
            copy_of_a_missing_block_fails_alone
            dropped_mover_answers_each_list_once
            landing_may_start_the_next_list
            zeros_overwrite_exactly_their_blocks
            zeros_of_a_missing_block_fail_alone
            dropped_mover_answers_zeros_once
        );
    };
}

mod contract;
mod cuda;
mod faulty;
mod ground;
mod oracle;
mod threads;

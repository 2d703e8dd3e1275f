//! The contract of `TierPort`, over a real volume, the simulated disk, pageable memory and a remote
//! store; and tests of each one alone.
//!
//!   KVSTRATA_DISK_DIR=/mnt/nvme cargo test -p kvstrata --test disk_port      the volumes are made there

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/sim/mod.rs"]
mod sim;
#[path = "../common/tokio_time.rs"]
mod time;

mod contract;
mod failures;
mod full;
mod ground;
mod lengths;
mod memory;
mod remote;
mod simulated;
mod volume;

use ground::Ground;
use std::future::Future;

/// On a volume, in real time.
fn on_a_volume<F: Future<Output = ()>>(body: impl FnOnce(Ground) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime").block_on(async { body(volume::ground(ground::SLOTS)).await });
}

/// On the simulated disk, in virtual time.
fn simulated<F: Future<Output = ()>>(body: impl FnOnce(Ground) -> F) {
    simulated::run(async { body(simulated::ground(sim::Plan::calm(1))).await });
}

/// In pageable memory, in real time.
fn in_memory<F: Future<Output = ()>>(body: impl FnOnce(Ground) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async { body(memory::ground()).await });
}

/// On the remote store that only tests have, in virtual time.
fn remote<F: Future<Output = ()>>(body: impl FnOnce(Ground) -> F) {
    simulated::run(async { body(remote::ground()).await });
}

/// Runs each test on every tier.
macro_rules! on_all {
    ($($file:ident::$name:ident,)*) => {
        mod on_a_volume {
            $(#[test] fn $name() { super::on_a_volume(super::$file::$name); })*
        }
        mod on_the_simulated_disk {
            $(#[test] fn $name() { super::simulated(super::$file::$name); })*
        }
        mod in_memory {
            $(#[test] fn $name() { super::in_memory(super::$file::$name); })*
        }
        mod on_a_remote_store {
            $(#[test] fn $name() { super::remote(super::$file::$name); })*
        }
    };
}

on_all! {
    contract::reads_bring_exact_bytes_into_their_own_buffers,
    contract::block_is_found_from_its_answer_on,
    contract::second_copy_is_answered_as_stored_and_not_kept,
    contract::slots_are_reserved_once_and_given_back,
    contract::read_beside_an_eviction_brings_its_own_block,
    contract::many_requests_at_once_are_answered_exactly,
    contract::landing_may_start_another_read,
    contract::erased_slots_are_not_found_and_used_again,
    contract::requests_in_flight_at_the_port_drop_are_answered,
    lengths::short_block_comes_back_as_long_as_it_was,
    lengths::read_of_another_length_fails_and_the_block_stays,
    lengths::block_longer_than_a_slot_is_refused,
    lengths::lent_memory_is_moved_or_refused,
    lengths::short_requests_at_the_port_drop_are_answered,
    failures::failed_write_is_not_found_and_its_slot_comes_back,
    failures::rotten_block_is_rejected_and_gone,
}

/// Runs each test on tiers with hardware that fails, or is lost.
macro_rules! on_hardware {
    ($($file:ident::$name:ident,)*) => {
        mod on_a_volume_that_fails {
            $(#[test] fn $name() { super::on_a_volume(super::$file::$name); })*
        }
        mod on_the_simulated_disk_that_fails {
            $(#[test] fn $name() { super::simulated(super::$file::$name); })*
        }
    };
}

on_hardware! {
    failures::failed_read_is_a_miss_and_other_blocks_stay,
    failures::write_to_a_lost_disk_parks_its_slot,
    failures::erase_on_a_lost_disk_reports_the_failed_slots,
    failures::lost_disk_answers_all_finds_nothing_and_gives_no_slots,
}

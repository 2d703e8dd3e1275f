//! What tests of several crates share. No crate depends on it but for its tests and measurements; it knows none of them.
//!
//! | file | what |
//! |---|---|
//! | `counting.rs` | an allocator that counts, for tests that nothing is allocated |
//! | `forked.rs` | a forked child |
//! | `seeds.rs` | which seeds a simulation runs, on all cores, and what it says of those that fail |

pub mod counting;
pub mod forge;
pub mod forked;
pub mod seeds;

//! Shared parts of the benchmarks: the operations on our pool, the clock, the statistics and the limits
//! of the machine.
//!
//! | module | concept |
//! |---|---|
//! | [`work`] | an operation that can be timed, alone or on two threads at once |
//! | [`ours`] | the operations on [`kvstrata_core::BlockPool`] |
//! | [`rounds`] | contenders measured in turns, medians and quartiles, ratios by pairs |
//! | [`clock`] | a thread's own time |
//! | [`disk`] | the disk tier, fio and peers |
//! | [`facade`] | the manager over all tiers, beside the core, memcpy and the disk tier alone |
//! | [`gpu`] | copies on a GPU, beside limits and peers |
//! | [`copies`] | copy plans, by us, by memcpy, and by a plain non-temporal loop |
//! | [`plans`] | the costs of making a plan and of walking it |
//! | [`pages`] | memory on huge pages |
//! | [`floor`] | the machine's limit: the same memory touched by minimal code |
//! | [`policies`] | eviction policies over a trace, without the pool |
//! | [`inputs`] | hashes and tokens |
//! | [`machine`] | the machine of a measurement |

pub mod clock;
pub mod copies;
pub mod disk;
#[cfg(target_os = "linux")]
pub mod facade;
pub mod floor;
#[cfg(target_os = "linux")]
pub mod gpu;
pub mod inputs;
pub mod machine;
pub mod ours;
pub mod pages;
pub mod plans;
pub mod policies;
pub mod rounds;
pub mod work;

/// Blocks of the pools in the table.
pub const CAPACITY: u32 = 65_536;
/// Blocks of a prefix that is matched.
pub const PREFIX: usize = 128;
/// Blocks of a life cycle.
pub const CYCLE: usize = 16;
/// Tokens a block.
pub const PAGE: u32 = 16;
/// Tokens of the sequence that is hashed.
pub const TOKENS: usize = 131_072;

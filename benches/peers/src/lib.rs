//! The peers: `kvbm-logical` and `dynamo-tokens` 1.6.1, used as their own documentation and benchmarks
//! use them.

pub mod kvbm;
pub mod malloc;
pub mod report;
pub mod table;
pub mod tokens;

//! The clock of tests that run on tokio.

pub use tokio::runtime::Handle;
pub use tokio::time::{Instant, sleep_until};

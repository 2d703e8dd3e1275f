//! The promises of cuFile's users, tested over a stand-in (`fake.rs`). Volumes over it:
//! `disk/tests/device.rs`.

mod driver;
pub(crate) mod fake;
mod memory;
mod pool;

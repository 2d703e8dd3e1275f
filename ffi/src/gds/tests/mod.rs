//! What the users of cuFile promise, on a stand-in for it (`fake.rs`). What a volume makes of it: `disk/tests/device.rs`.

mod driver;
pub(crate) mod fake;
mod memory;
mod pool;

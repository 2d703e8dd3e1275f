//! What the users of cuFile promise, on a stand-in for it (`fake.rs`).

mod driver;
mod fake;
mod life;
mod transfer;

//! Helpers of several tests.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

mod random;
pub mod volume;

pub use random::Random;

//! The parts that calls and operations share: constant ones, and the lock.

pub(crate) mod fixed;
pub(crate) mod inner;

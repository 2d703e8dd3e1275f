//! The port of a device. Its contract is the test suite `async/tests/movers/`, which every backend passes.

use super::copies::Copies;
use std::fmt::Debug;

/// Copies between a device's blocks and host memory.
///
/// - [`start`](DeviceMover::start) returns at once: it neither copies nor waits. Copies of one list, and
///   of several, may be carried out in any order and at the same time.
/// - An offload keeps the sum of each layer in host memory. An onboard compares the sums if asked to,
///   and fails with [`Cause::Mismatch`](super::Cause::Mismatch) if one differs.
/// - Zeros ([`HostSide::Zeros`](super::HostSide::Zeros)) come after the work that the engine has queued
///   in the device, as offloads do.
/// - Each list is answered (I1 of the list), also when the device fails, is gone, or the mover is dropped.
pub trait DeviceMover: Send + Sync + Debug {
    /// Starts copies, all of one direction.
    fn start(&self, copies: Copies);

    /// Returns how many blocks a list should have. [`start`](DeviceMover::start) gets more only where it
    /// pays to start them together.
    fn blocks_at_once(&self) -> usize;

    /// Describes the mover, for people.
    fn describe(&self) -> String;
}

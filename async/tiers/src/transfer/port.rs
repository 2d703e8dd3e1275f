//! The port of a device. Its contract is the tests' (`async/tests/movers/`), which every backend passes.

use super::copies::Copies;
use std::fmt::Debug;

/// Copies between a device's blocks and host memory.
///
/// - [`start`](DeviceMover::start) returns at once: it neither copies nor waits. Copies of one list, and of several, may be carried out
///   in any order and at the same time.
/// - Offload keeps the sum of each layer in the host memory; onboard compares them where it is asked to, and fails with
///   [`Cause::Mismatch`](super::Cause::Mismatch) where one differs.
/// - Zeros ([`HostSide::Zeros`](super::HostSide::Zeros)) come after what the engine has queued in the device, as offloads do.
/// - Each list is answered (the list's I1), also when the device fails, is gone, or the mover is dropped.
pub trait DeviceMover: Send + Sync + Debug {
    /// Starts copies, all of one direction.
    fn start(&self, copies: Copies);

    /// How many blocks a list should have: more are given to [`start`](DeviceMover::start) only where it pays to start them together.
    fn blocks_at_once(&self) -> usize;

    /// For people.
    fn describe(&self) -> String;
}

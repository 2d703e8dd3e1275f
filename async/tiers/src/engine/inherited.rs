//! The answer of every call in a forked process.

/// The error of each call in a process that was forked from the manager's.
pub(crate) const INHERITED: &str =
    "this process was forked from the manager's; build a manager in this process, after the fork";

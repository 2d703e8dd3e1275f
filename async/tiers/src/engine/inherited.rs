//! The answer of every call in a forked process.

/// The error of each call in a process that was forked from the manager's.
pub(crate) const INHERITED: &str = "the manager was made by the process from which this one was forked; make one in this process, after the fork";

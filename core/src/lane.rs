//! Lanes: shared state is split into parts, and each thread has a number.

/// A lane's number as an index. Numbers are nearly always small enough already, and a division costs as
/// much as an atomic.
#[inline]
pub(crate) fn wrap(number: usize, len: usize) -> usize {
    if number < len { number } else { number % len }
}

//! Changes of the whole state. Each leaves effects to carry out once the lock is released.
//!
//! Invariants, of all operations together
//! - I1: each key of each batch gets one answer, in every case: `state/jobs.rs`.
//! - I2: bytes are answered as loaded only after their sum was compared: by the tier below, or by the copy
//!   from host memory.
//! - I3: a transfer owns the blocks that it touches, on both sides, until it has landed.
//! - I4: a key that is forgotten is not found after the answer, until it is stored again. A transfer of the
//!   key that is under way ends first.

mod answers;
mod deadlines;
mod forget;
mod landing;
mod load;
mod pace;
mod store;

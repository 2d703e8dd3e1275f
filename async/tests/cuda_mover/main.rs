//! Copies between an engine's tensors and pinned host memory, over the test double of libcuda.

#![cfg(target_os = "linux")]

mod bytes;
mod endings;
mod failures;
mod ground;
mod managed;
mod order;

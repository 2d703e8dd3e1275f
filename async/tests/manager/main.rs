//! The manager from outside, over a simulated device: the life of blocks, and the bytes that come back.

mod flying;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../tenants/gated.rs"]
mod gated;
mod ground;
mod groups;
mod life;
mod prefetch;
mod schedule;

//! Where every byte of a block lies.
//!
//! [`LayoutConfig`] is the geometry, checked as a whole; [`FullyContiguous`] arranges it in one region:
//!
//! ```text
//!   base                                                          block_stride, a multiple of alignment
//!   ▼◀────────────────────────── block 0 ──────────────────────────▶▼◀─────────── block 1 …
//!   │ layer 0                   │ layer 1                   │ … │pad│ layer 0
//!   │ outer 0 (K) │ outer 1 (V) │ outer 0 (K) │ outer 1 (V) │   │   │
//!   ◀─────────────▶ page_size × inner_dim × dtype_width_bytes
//!   ◀───────────────────────────▶ layer_stride
//! ```
//!
//! Sizes and offsets are bytes in `u64`, whatever the host's pointers: a region may be a file or another machine's.
//!
//! Invariants:
//!
//! - **I1** `num_blocks × block_stride` fits into 64 bits, checked when the layout is made; so does every offset and
//!   every size below it, and plain arithmetic on indices in bounds cannot overflow.
//! - **I2** Pieces of different (block, layer, outer) are disjoint; those of one block are adjacent, in this order.
//! - **I3** Every block starts at a multiple of `alignment`, if the region does.

mod config;
mod contiguous;
mod error;
#[cfg(test)]
mod tests;

pub use config::LayoutConfig;
pub use contiguous::FullyContiguous;
pub use error::{BoundsError, Field, LayoutError};

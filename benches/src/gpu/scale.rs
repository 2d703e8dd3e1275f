//! The sizes of the measurements, and their durations.

use crate::rounds::Effort;
use kvstrata_core::layout::{DType, LayoutConfig};
use kvstrata_ffi::cuda::TuneOptions;
use std::time::{Duration, Instant};

/// A model's blocks.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name in the report.
    pub name: &'static str,
    /// Layers of the model.
    pub layers: u32,
    /// 2 for keys and values, 1 for MLA.
    pub outer_dim: u32,
    /// KV heads.
    pub heads: u32,
    /// Elements a head.
    pub head_size: u32,
    /// Tokens a block.
    pub page_size: u32,
}

impl Shape {
    /// The shape with targets.
    pub const LLAMA: Shape =
        Shape { name: "Llama 70B", layers: 80, outer_dim: 2, heads: 8, head_size: 128, page_size: 16 };
    /// DeepSeek V3: one latent of 512 elements and 64 of position a token.
    pub const MLA: Shape =
        Shape { name: "MLA", layers: 61, outer_dim: 1, heads: 1, head_size: 576, page_size: 64 };

    /// Returns its geometry in bfloat16, of one block.
    #[must_use]
    pub fn config(&self) -> LayoutConfig {
        LayoutConfig::new()
            .num_layers(self.layers)
            .outer_dim(self.outer_dim)
            .page_size(self.page_size)
            .heads(self.heads, self.head_size)
            .dtype(DType::BF16)
            .alignment(256)
    }
}

/// Sizes, counts and time limits.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Rounds, and the length of a turn.
    pub effort: Effort,
    /// The effort for the many points of the link.
    pub link_effort: Effort,
    /// Blocks of a copy within a device.
    pub blocks: u32,
    /// Shapes within a device: the one with targets, and the one for information.
    pub shapes: [Shape; 2],
    /// Sizes of pieces over PCIe in bytes, ascending.
    pub sizes: Vec<u64>,
    /// Numbers of pieces, ascending; multiples of [`PIECES_A_BLOCK`].
    pub counts: Vec<u32>,
    /// The maximum memory of one side for one size of pieces.
    pub cap_bytes: u64,
    /// The size of a single large copy, which gives PCIe's peak.
    pub peak_bytes: u64,
    /// Pieces of a submission with a measured cost, and the number of submissions.
    pub launch: (u32, usize),
    /// Rows of the matrices; matmuls a turn, rounds.
    pub matmul: (u32, u32, usize),
    /// Options for tuning the routes at the start.
    pub tune: TuneOptions,
    /// The time to stop.
    pub ends: Instant,
}

/// Pieces of a block over PCIe: 8 layers, keys and values.
pub const PIECES_A_BLOCK: u32 = 16;

impl Scale {
    /// The scale of a report that is kept, in so many minutes.
    #[must_use]
    pub fn full(minutes: f64) -> Scale {
        Scale {
            effort: Effort { rounds: 21, turn: Duration::from_millis(25) },
            link_effort: Effort { rounds: 9, turn: Duration::from_millis(4) },
            blocks: 256,
            shapes: [Shape::LLAMA, Shape::MLA],
            sizes: vec![4 << 10, 8 << 10, 32 << 10, 128 << 10, 2 << 20],
            counts: vec![16, 64, 256, 1024, 4096],
            // 4,096 pieces of 2 MiB, both ways at once.
            cap_bytes: 16 << 30,
            peak_bytes: 256 << 20,
            launch: (4096, 200),
            matmul: (4096, 100, 9),
            tune: TuneOptions::new(),
            ends: Instant::now() + Duration::from_secs_f64(minutes.clamp(0.01, 600.0) * 60.0),
        }
    }

    /// The scale of a quick run.
    #[must_use]
    pub fn quick(minutes: f64) -> Scale {
        Scale {
            effort: Effort { rounds: 7, turn: Duration::from_millis(8) },
            link_effort: Effort { rounds: 3, turn: Duration::from_millis(2) },
            counts: vec![16, 256, 4096],
            cap_bytes: 1 << 30,
            launch: (4096, 50),
            matmul: (4096, 30, 3),
            tune: TuneOptions::new().time_limit(Duration::from_secs(4)),
            ..Scale::full(minutes)
        }
    }

    /// The scale for the test double: every path once, at a size that the CPU
    /// copies at once. Measures nothing.
    #[must_use]
    pub fn tiny(minutes: f64) -> Scale {
        let once = Effort { rounds: 2, turn: Duration::from_micros(10) };
        let llama = Shape { layers: 3, heads: 2, head_size: 16, page_size: 4, ..Shape::LLAMA };
        let mla = Shape { layers: 2, head_size: 24, page_size: 3, ..Shape::MLA };
        Scale {
            effort: once,
            link_effort: once,
            blocks: 6,
            shapes: [llama, mla],
            sizes: vec![4 << 10, 32 << 10],
            counts: vec![16, 64],
            cap_bytes: 8 << 20,
            peak_bytes: 1 << 20,
            launch: (64, 3),
            matmul: (16, 2, 2),
            tune: TuneOptions::new().time_limit(Duration::ZERO).most_bytes(64 << 10),
            ..Scale::full(minutes)
        }
    }

    /// Returns whether the time is up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }
}

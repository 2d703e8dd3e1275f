//! The layout of a group's blocks in a tier, and the numbers of blocks and bytes of a tier. Only this file
//! computes them.
//!
//! ```text
//!   ├─ layer 0 ─┬─ layer 1 ─┬ … ┬pad┬─ next block          bytes  = layers × bytes per layer
//!   │◄────────── bytes ────────►│   │                      stride = bytes, rounded up to a multiple of:
//!   │◄──────────── stride ─────────►│
//!
//!   host, disk, simulated device   4,096 bytes, as O_DIRECT requires
//!   GPU                            geometry.alignment, or the alignment of an element
//! ```
//!
//! The checks of settings, the manager and the fingerprint of a volume all use it: a block that fits one of
//! them fits the others.
//!
//! I1. A tier of `n` blocks has `⌈n × share⌉` blocks of each group. The group that needs the most blocks has
//! share 1. The others have as many blocks as cover the same tokens, unless the settings give a share.

use super::geometry::Group;
use super::table::Settings;
use super::words::{DeviceKind, GroupKind};
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, LayoutError, Region};
use kvstrata_core::pool::MAX_CAPACITY;
use kvstrata_ffi::arena::BLOCK_ALIGN_BYTES;
use kvstrata_tiers::Tier;

/// Alignment in bytes of blocks in host memory, on volumes and in the simulated device.
const STORAGE_ALIGN_BYTES: u64 = BLOCK_ALIGN_BYTES as u64;

/// By default one window is kept per this number of tokens of the layers with full attention: a
/// conversation of some turns.
const TOKENS_A_WINDOW: f64 = 4096.0;

/// By default groups of windows have at least this share. A pass over a prompt writes all of its tokens in
/// every layer, also the tokens that the windows leave behind.
const LEAST_WINDOW: f64 = 0.125;

impl Group {
    /// Returns the bytes of one block, without padding.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.layer_bytes() * self.num_layers()
    }

    /// Returns the bytes of one layer of a block. All layers of a group have the same size.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        // Checked at construction of the group: the bytes of a block fit 64 bits.
        self.layout.layer_bytes().unwrap_or(u64::MAX)
    }

    fn num_layers(&self) -> u64 {
        u64::from(self.layout.num_layers)
    }

    /// Returns the bytes from one block to the next in a tier.
    #[must_use]
    pub fn stride_bytes(&self, tier: Tier, device: DeviceKind) -> u64 {
        self.block_bytes().next_multiple_of(match (tier, device) {
            (Tier::Device, DeviceKind::Cuda | DeviceKind::Auto) => self.layout.alignment,
            _ => STORAGE_ALIGN_BYTES,
        })
    }

    /// Returns the blocks of this group in a tier of `of_tier` blocks: at least one, unless the tier has
    /// none.
    #[must_use]
    pub fn blocks(&self, of_tier: u32) -> u32 {
        if of_tier == 0 { 0 } else { ((f64::from(of_tier) * self.share).ceil() as u32).clamp(1, of_tier) }
    }

    /// Returns the layout of consecutive blocks, each aligned as the layout says.
    ///
    /// # Errors
    /// Their bytes exceed 64 bits.
    pub fn placed(&self, blocks: u32) -> Result<Layout, LayoutError> {
        in_one_piece(self.layout.num_blocks(blocks))
    }

    /// Returns a fingerprint of the meaning of a block's bytes, independent of its place.
    ///
    /// # Errors
    /// As [`placed`](Group::placed).
    pub fn fingerprint(&self) -> Result<u128, LayoutError> {
        Ok(self.placed(1)?.block_fingerprint().to_u128())
    }
}

/// A layout over one region of exactly the needed length, padding included. The address of the region has no
/// meaning.
fn in_one_piece(config: LayoutConfig) -> Result<Layout, LayoutError> {
    let need = Arrangement::FullyContiguous.needs(&config)?;
    Layout::fully_contiguous(config, Region::system(0, need.bytes))
}

/// How a tier rounds its blocks and bytes.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) tier: Tier,
    pub(super) device: DeviceKind,
    /// The number of volumes. The number of each group's blocks is a multiple of it.
    pub(super) volumes: u32,
}

impl Shape {
    pub(super) fn of(tier: Tier, settings: &Settings) -> Shape {
        let volumes = match tier {
            Tier::DISK => u32::try_from(settings.disk.paths.len()).unwrap_or(u32::MAX).max(1),
            _ => 1,
        };
        Shape { tier, device: settings.device.kind, volumes }
    }

    /// Blocks of a group in a tier of `of_tier` blocks. All volumes have the same number, at least one.
    pub(super) fn blocks(self, group: &Group, of_tier: u32) -> u32 {
        match group.blocks(of_tier) {
            0 => 0,
            blocks => (blocks / self.volumes).max(1) * self.volumes,
        }
    }

    fn bytes_of(self, group: &Group, of_tier: u32) -> u128 {
        u128::from(self.blocks(group, of_tier)) * u128::from(group.stride_bytes(self.tier, self.device))
    }

    /// Bytes of a tier of `blocks` blocks, all groups together.
    pub(super) fn bytes(self, groups: &[Group], blocks: u32) -> u128 {
        groups.iter().map(|group| self.bytes_of(group, blocks)).sum()
    }

    /// The most blocks that fit a tier of `bytes` bytes, as a multiple of the number of volumes.
    pub(super) fn fitting(self, groups: &[Group], bytes: u64) -> u32 {
        // `low` fits; `high` does not fit, or exceeds the capacity of a pool.
        let (mut low, mut high) = (0, MAX_CAPACITY / self.volumes + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.bytes(groups, middle * self.volumes) <= u128::from(bytes) {
                true => low = middle,
                false => high = middle,
            }
        }
        low * self.volumes
    }
}

/// Sets the shares of groups: the given one, or where that is `None` the share by I1.
pub(super) fn share_out(groups: &mut [Group], given: &[Option<f64>]) {
    let need = |group: &Group| {
        let part = match (group.kind, group.window) {
            (GroupKind::Window, Some(window)) => {
                // A window need not begin at the start of a block.
                let kept = f64::from(window) + f64::from(group.page_size);
                (kept / TOKENS_A_WINDOW).clamp(LEAST_WINDOW, 1.0)
            }
            _ => 1.0,
        };
        part / f64::from(group.page_size.max(1))
    };
    let most = groups.iter().map(need).fold(f64::MIN_POSITIVE, f64::max);
    for (group, given) in groups.iter_mut().zip(given) {
        group.share = given.unwrap_or_else(|| need(group) / most);
    }
}

//! How a block of a group lies in a tier, and how many blocks and bytes a tier has: the one place that says
//! so.
//!
//! ```text
//!   ├─ layer 0 ─┬─ layer 1 ─┬ … ┬pad┬─ the next block      bytes  = layers × bytes of a layer
//!   │◄────────── bytes ────────►│   │                      stride = bytes, rounded up as below
//!   │◄──────────── stride ─────────►│
//!
//!   host, disk, simulated device   4,096 bytes: what O_DIRECT asks for
//!   GPU                            geometry.alignment, else that of an element
//! ```
//!
//! The settings' checks, the manager and a volume's fingerprint all ask here: a block that one of them
//! accepts fits the others.
//!
//! I1. A tier of `n` blocks has `⌈n × share⌉` blocks of each group. The group that needs the most blocks has
//! share 1. The others have as many as cover the same tokens, unless the settings say otherwise.

use super::geometry::Group;
use super::table::Settings;
use super::words::{DeviceKind, GroupKind};
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, LayoutError, Region};
use kvstrata_core::pool::MAX_CAPACITY;
use kvstrata_ffi::arena::BLOCK_ALIGN_BYTES;
use kvstrata_tiers::Tier;

/// Bytes that blocks of host memory, of volumes and of the simulated device start at multiples of.
const STORAGE_ALIGN_BYTES: u64 = BLOCK_ALIGN_BYTES as u64;

/// By default a window is kept once for so many tokens of the layers that keep all of them: a conversation of
/// some turns.
const TOKENS_A_WINDOW: f64 = 4096.0;

/// By default windows have at least this part. A pass over a prompt writes all of its tokens in every layer,
/// also those that its windows leave behind.
const LEAST_WINDOW: f64 = 0.125;

impl Group {
    /// Bytes of one block, without padding.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.layer_bytes() * self.num_layers()
    }

    /// Bytes of each layer of a block: layers of a group are alike.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        // Checked when the group was made: 64 bits hold a whole block.
        self.layout.layer_bytes().unwrap_or(u64::MAX)
    }

    fn num_layers(&self) -> u64 {
        u64::from(self.layout.num_layers)
    }

    /// Bytes from one block to the next in a tier.
    #[must_use]
    pub fn stride_bytes(&self, tier: Tier, device: DeviceKind) -> u64 {
        self.block_bytes().next_multiple_of(match (tier, device) {
            (Tier::Device, DeviceKind::Cuda | DeviceKind::Auto) => self.layout.alignment,
            _ => STORAGE_ALIGN_BYTES,
        })
    }

    /// Blocks of this group in a tier of so many: at least one, unless the tier has none.
    #[must_use]
    pub fn blocks(&self, of_tier: u32) -> u32 {
        if of_tier == 0 { 0 } else { ((f64::from(of_tier) * self.share).ceil() as u32).clamp(1, of_tier) }
    }

    /// So many blocks one behind the other, each at a multiple of the layout's alignment.
    ///
    /// # Errors
    /// They leave 64 bits.
    pub fn placed(&self, blocks: u32) -> Result<Layout, LayoutError> {
        in_one_piece(self.layout.num_blocks(blocks))
    }

    /// What the bytes of a block mean, wherever the block lies.
    ///
    /// # Errors
    /// As [`placed`](Group::placed).
    pub fn fingerprint(&self) -> Result<u128, LayoutError> {
        Ok(self.placed(1)?.block_fingerprint().to_u128())
    }
}

/// A layout of one region that is as long as it must be, padding included. The region's address has no
/// meaning.
fn in_one_piece(config: LayoutConfig) -> Result<Layout, LayoutError> {
    let need = Arrangement::FullyContiguous.needs(&config)?;
    Layout::fully_contiguous(config, Region::system(0, need.bytes))
}

/// Blocks that one tier has, and what it rounds up to.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) tier: Tier,
    pub(super) device: DeviceKind,
    /// Each group's blocks are a multiple of it.
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

    /// Blocks of a group in a tier of so many: volumes are alike, and each has at least one.
    pub(super) fn blocks(self, group: &Group, of_tier: u32) -> u32 {
        match group.blocks(of_tier) {
            0 => 0,
            blocks => (blocks / self.volumes).max(1) * self.volumes,
        }
    }

    fn bytes_of(self, group: &Group, of_tier: u32) -> u128 {
        u128::from(self.blocks(group, of_tier)) * u128::from(group.stride_bytes(self.tier, self.device))
    }

    /// Bytes of a tier of so many blocks, all groups together.
    pub(super) fn bytes(self, groups: &[Group], blocks: u32) -> u128 {
        groups.iter().map(|group| self.bytes_of(group, blocks)).sum()
    }

    /// The most blocks that a tier of so many bytes has, a multiple of the number of volumes.
    pub(super) fn fitting(self, groups: &[Group], bytes: u64) -> u32 {
        // `low` fits, `high` does not or is not allowed.
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

/// The shares of groups that are given none (I1). `None` in, a share out.
pub(super) fn share_out(groups: &mut [Group], given: &[Option<f64>]) {
    let need = |group: &Group| {
        let part = match (group.kind, group.window) {
            (GroupKind::Window, Some(window)) => {
                // The window does not begin where a block does.
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

//! The memory that a manager needs, compared with the available memory before any of it is mapped.
//!
//! The kernel maps more memory than it has, and kills the process that touches it. Blocks of host memory
//! are touched one by one, perhaps hours later, or all at once if a volume registers them. So all of the
//! memory must be available at the start.

use super::error::{BuildError, given};
use crate::config::{Group, ManagerConfig, bytes_text};
use crate::tier::Tier;
use kvstrata_ffi::arena::MAPPING_ALIGN_BYTES;
use kvstrata_ffi::probe::{MemoryRoom, memory_room};
use kvstrata_tiers::figures::binary;

/// Metadata of a pool for each block, and a little more.
const POOL_BYTES: u128 = 160;
/// Metadata of the disk tier for each block: its record, and memory for recovery and admission.
const DISK_BOOKS_BYTES: u128 = 320;
/// The sum of a layer in host memory.
const SUM_BYTES: u128 = 8;

/// Returns the blocks of host memory for a group's transfers between device and disk; 0 without a disk.
///
/// The default is more than 32: the drive gets reads of neighbouring blocks as one, up to half a MiB and
/// more. So 32 small blocks are only a few reads, and the drive would often be idle.
pub fn staging(config: &ManagerConfig, group: &Group) -> u32 {
    let usual = || ((16 << 20) / group.block_bytes().max(1)).clamp(40, 256) as u32;
    if config.disk.blocks > 0 { config.disk.staging.unwrap_or_else(usual) } else { 0 }
}

/// Bytes of memory, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// The device tier, if it is host memory.
    device: u128,
    host: u128,
    staging: u128,
    /// Metadata of the disk tier.
    disk: u128,
    /// The part of all this that reserved huge pages provide.
    huge: u128,
}

impl Need {
    /// Returns the settings' need. `simulated`: the device is host memory. `huge_bytes`: free huge
    /// pages, which mappings take first.
    pub fn of(config: &ManagerConfig, simulated: bool, huge_bytes: u64) -> Need {
        let mut need = Need::default();
        let mut free = u128::from(huge_bytes);
        for group in config.groups() {
            let stride = u128::from(group.stride_bytes(Tier::Host, config.device.kind));
            let blocks = |tier| u128::from(config.blocks_of(group, tier));
            let (device, host, staging) =
                (blocks(Tier::Device), blocks(Tier::Host), u128::from(staging(config, group)));
            let mut mapped = |bytes: u128| {
                let whole = bytes.next_multiple_of(MAPPING_ALIGN_BYTES as u128);
                if bytes > 0 && whole <= free {
                    free -= whole;
                    need.huge += bytes;
                }
            };
            mapped((host + staging) * stride);
            if simulated {
                mapped(device * stride);
                need.device += device * stride;
            }
            let books = POOL_BYTES + SUM_BYTES * group.layers.len() as u128;
            need.device += device * POOL_BYTES;
            need.host += host * (stride + books);
            need.staging += staging * (stride + books);
            need.disk += blocks(Tier::DISK) * DISK_BOOKS_BYTES;
        }
        need
    }

    fn all(&self) -> u128 {
        self.device + self.host + self.staging + self.disk
    }

    /// Whether the memory is available.
    pub fn fits(&self, room: &MemoryRoom) -> bool {
        self.all() - self.huge <= u128::from(room.available_bytes)
    }

    /// Formats the bytes by purpose, for people.
    pub fn in_words(&self) -> String {
        let [all, device, host, staging, disk] =
            [self.all(), self.device, self.host, self.staging, self.disk].map(|bytes| binary(bytes as f64));
        format!("{all} of memory (device {device}, host {host}, staging {staging}, disk metadata {disk})")
    }

    /// Returns the error for missing memory: the setting that needs most of it, and the remedy.
    pub fn refusal(&self, config: &ManagerConfig, room: &MemoryRoom) -> BuildError {
        let most = self.device.max(self.host).max(self.staging).max(self.disk);
        let tier = |tier: Tier, blocks: u32, bytes: Option<u64>| match bytes {
            Some(bytes) => given(config, &[(&format!("{tier}.bytes"), &bytes_text(bytes))]),
            None => given(config, &[(&format!("{tier}.blocks"), &blocks)]),
        };
        let given = match most {
            _ if most == self.host => tier(Tier::Host, config.host.blocks, config.host.bytes),
            _ if most == self.device => tier(Tier::Device, config.device.blocks, config.device.bytes),
            _ if most == self.staging => {
                let blocks = config.groups().iter().map(|group| staging(config, group)).max().unwrap_or(0);
                given(config, &[("disk.staging", &blocks)])
            }
            _ => tier(Tier::DISK, config.disk.blocks, config.disk.bytes),
        };
        let needed = self.in_words();
        BuildError::Room {
            given,
            needed,
            available: binary(room.available_bytes as f64),
            bound: room.bound.clone(),
        }
    }
}

/// Refuses settings for which the kernel would kill this process. If the kernel does not report its
/// memory, refuses nothing.
pub(super) fn check(config: &ManagerConfig, simulated: bool) -> Result<(), BuildError> {
    let Some(room) = memory_room() else { return Ok(()) };
    let need = Need::of(config, simulated, room.huge_bytes);
    if need.fits(&room) { Ok(()) } else { Err(need.refusal(config, &room)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvstrata_ffi::probe::Bound;
    use std::path::PathBuf;

    fn config(text: &str) -> ManagerConfig {
        ManagerConfig::builder().toml("k.toml", text).build().expect("possible")
    }

    #[test]
    fn memory_need_counts_all_mappings() {
        let one =
            config("geometry.block_bytes = 1000\ndevice.blocks = 10\nhost.blocks = 20\ndisk.blocks = 7");
        let need = Need::of(&one, true, 0);
        let (stride, books) = (4096, POOL_BYTES + SUM_BYTES);
        let expected = Need {
            device: 10 * (stride + POOL_BYTES),
            host: 20 * (stride + books),
            staging: 256 * (stride + books),
            disk: 7 * DISK_BOOKS_BYTES,
            huge: 0,
        };
        assert_eq!(need, expected);
        assert_eq!(Need::of(&one, false, 0).device, 10 * POOL_BYTES, "of a GPU there are only books");
        // A mapping has either all of its bytes from huge pages, or none.
        assert_eq!(Need::of(&one, true, 2 << 20).huge, 276 * stride);
        assert_eq!(Need::of(&one, true, 4 << 20).huge, 286 * stride);
        assert_eq!(Need::of(&one, true, (2 << 20) - 1).huge, 0);
    }

    #[test]
    fn largest_memory_need_is_named_with_its_remedy() {
        let path = PathBuf::from("/sys/fs/cgroup/pods");
        let bound = Bound::Group { path, file: "memory.max", limit_bytes: 64 << 20 };
        let room = MemoryRoom { available_bytes: 50 << 20, bound, huge_bytes: 0 };
        let refusal = |text: &str| {
            let config = config(text);
            let need = Need::of(&config, true, 0);
            assert!(!need.fits(&room));
            need.refusal(&config, &room).to_string()
        };
        assert_eq!(
            refusal("host.bytes = \"2T\"\ndevice.blocks = 16"),
            "host.bytes = 2T (k.toml:1): needs 2.01 TiB of memory (device 1.00 MiB, host 2.01 TiB, staging 0 B, \
             disk metadata 0 B), but the control group's memory.max = 67108864 in /sys/fs/cgroup/pods leaves 50.0 MiB; use \
             fewer or smaller blocks, or raise that limit"
        );
        assert!(
            refusal("device.blocks = 4K\nhost.blocks = 9".replace("4K", "4096").as_str())
                .starts_with("device.blocks = 4096 (k.toml:1): ")
        );
        let staging = "device.blocks = 1\nhost.blocks = 0\ndisk.blocks = 1\ndisk.staging = 1000\n";
        assert!(refusal(staging).starts_with("disk.staging = 1000 (k.toml:4): "));
        // The memory is enough to the last byte.
        let small = config("device.blocks = 1\nhost.blocks = 0");
        let need = Need::of(&small, true, 0);
        let exactly = MemoryRoom { available_bytes: need.all() as u64, ..room.clone() };
        assert!(need.fits(&exactly));
        assert!(!need.fits(&MemoryRoom { available_bytes: exactly.available_bytes - 1, ..room }));
    }
}

//! The disk tier of a group, from the settings.
//!
//! With `disk.paths` its volumes are files that stay. The next manager with the same model, weights and
//! geometry finds their blocks again; other managers are refused. Without `disk.paths` there is one file
//! without a name, which goes with the process.

use super::volume_files;
use crate::config::{DiskFill, Group, ManagerConfig};
use crate::disk::{DiskTier, TierError, TierOptions};
use crate::tier::Tier;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::layout::LayoutError;
use kvstrata_core::{Policy, PoolConfig, Xxh3};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Key, KeyError, VolumeError, VolumeOptions};
use kvstrata_ffi::shown::{shown, shown_path};
use kvstrata_tiers::Hashing;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why the disk tier cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A volume cannot be opened, or the pool cannot be made.
    #[error(transparent)]
    Tier(TierError),
    /// A file has blocks of another model, geometry or secret.
    #[error(
        "volume {}: its {field} is {}, the settings need {}; {remedy}, or choose other disk.paths, or empty it with \
         disk.reinitialize",
        shown_path(path),
        shown(found),
        shown(wanted)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The field that differs, as in `docs/disk-format.md`.
        field: &'static str,
        /// Its value in the file.
        found: String,
        /// Its value by the settings.
        wanted: String,
        /// The settings that determine it.
        remedy: &'static str,
    },
    /// The key cannot be used.
    #[error("{setting}: {source}")]
    Key {
        /// The setting that names the key.
        setting: &'static str,
        /// The error.
        source: KeyError,
    },
    /// The block's layout has no fingerprint.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// No directory takes a file without a name.
    #[error("cannot make a file for the disk tier in any of {places:?}; set disk.paths (last error: {last})")]
    NoPlace {
        /// The directories that were tried.
        places: Vec<PathBuf>,
        /// The last one's error.
        last: Box<TierError>,
    },
}

impl From<TierError> for DiskError {
    fn from(error: TierError) -> DiskError {
        let TierError::Volume(VolumeError::Foreign { path, field, found, wanted }) = error else {
            return DiskError::Tier(error);
        };
        let (field, remedy) = match field {
            "model_fingerprint" if is_of_other_hashes(&found, &wanted) => {
                ("hash secret", "give its secret (hash.key_file, hash.key_env) or its hash.function")
            }
            _ => (field, remedy_for(field)),
        };
        DiskError::Foreign { path, field, found, wanted, remedy }
    }
}

/// Returns the settings to change so that a volume with another value of this field fits.
fn remedy_for(field: &str) -> &'static str {
    match field {
        "model_fingerprint" => "give its model, geometry.tp, geometry.rank, groups and disk.weights",
        "slot_bytes" | "layout_fingerprint" => "give its geometry",
        "slots" => "give its disk.blocks and number of disk.paths",
        "stripe_index" | "stripe_count" | "set_id" => "give its disk.paths, in the original order",
        "version" => "open it with the version of kvstrata that made it",
        "key" => "give its key (disk.key_file, disk.key_env)",
        _ => "give the settings that made it",
    }
}

/// Opens or creates the volumes.
pub(super) fn open(
    config: &ManagerConfig,
    group: &Group,
    arena: &Arc<HostArena>,
    hashing: &Hashing,
) -> Result<DiskTier, DiskError> {
    let disk = &config.disk;
    let made = Made { config, group, arena, hashing, key: key(config)?, layout: group.fingerprint()? };
    if !disk.paths.is_empty() {
        return Ok(made.open(&volume_files::files(config, group), true)?);
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let places = temporary_places();
    let mut last = None;
    for place in &places {
        // Relaxed: the numbers only have to differ.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = place.join(format!("kvstrata-{}-{number}.kvs", std::process::id()));
        match made.open(&[file], false) {
            Ok(tier) => return Ok(tier),
            Err(error) => last = Some(Box::new(error)),
        }
    }
    last.map_or_else(
        || made.open(&[], false).map_err(DiskError::from),
        |last| Err(DiskError::NoPlace { places: places.clone(), last }),
    )
}

/// Returns the directories for a file without a name, in the order in which they are tried.
pub fn temporary_places() -> Vec<PathBuf> {
    vec![PathBuf::from("/var/tmp"), std::env::temp_dir(), PathBuf::from(".")]
}

/// The parameters of volumes.
struct Made<'m> {
    config: &'m ManagerConfig,
    group: &'m Group,
    arena: &'m Arc<HostArena>,
    hashing: &'m Hashing,
    key: Option<Key>,
    layout: u128,
}

impl Made<'_> {
    fn open(&self, files: &[PathBuf], keep: bool) -> Result<DiskTier, TierError> {
        let disk = &self.config.disk;
        // A multiple of the number of files, which is that of the paths, or one.
        let slots = self.config.blocks_of(self.group, Tier::DISK) / files.len().max(1) as u32;
        let volumes = files.iter().map(|file| {
            let options = VolumeOptions::new(file, slots, self.arena.block_bytes())
                .keep(keep)
                .write_through(keep && disk.fill == DiskFill::First)
                .write_through_in_background(keep && disk.fill == DiskFill::Background)
                .layout_fingerprint(self.layout)
                .model_fingerprint(model_fingerprint(self.config, self.group, self.hashing))
                .reinitialize(disk.reinitialize)
                .trim(disk.trim)
                .backend(disk.backend)
                .register(self.arena);
            match &self.key {
                Some(key) => options.key(key.clone()),
                None => options,
            }
        });
        let options = TierOptions::default()
            .admission(disk.admission)
            .write_budget(disk.write_budget)
            .linked(disk.policy != Policy::Lru);
        let pool = PoolConfig::new(slots * files.len() as u32).policy(disk.policy);
        let pool = pool.page_size(self.group.page_size).seed(self.hashing.seed);
        DiskTier::open(volumes.collect(), pool, options).map(|(tier, _)| tier)
    }
}

pub fn key(config: &ManagerConfig) -> Result<Option<Key>, DiskError> {
    let of = |setting| move |source| DiskError::Key { setting, source };
    match (&config.disk.key_file, &config.disk.key_env) {
        (Some(file), _) => Key::from_file(file).map(Some).map_err(of("disk.key_file")),
        (None, Some(name)) => Key::from_variable(name).map(Some).map_err(of("disk.key_env")),
        (None, None) => Ok(None),
    }
}

/// Identifies the contents of the blocks, in the upper half (as much of the model as the settings know),
/// and the hashes that name them, in the lower half (hash function and secret; [`is_of_other_hashes`]).
fn model_fingerprint(config: &ManagerConfig, group: &Group, hashing: &Hashing) -> u128 {
    let model = config.model_name().unwrap_or_default();
    let geometry = &config.geometry;
    let mut of = format!("{model} {} {} {} {:?}", geometry.tp, geometry.rank, group.name, group.layers);
    if let Some(weights) = &config.disk.weights {
        // After a byte that no text has.
        of.push('\0');
        of.push_str(weights);
    }
    Xxh3.bytes(of.as_bytes()) << 64 | hashing.hasher.fingerprint() & u128::from(u64::MAX)
}

/// Whether two fingerprints, in hexadecimal digits, differ only in their lower half.
fn is_of_other_hashes(found: &str, wanted: &str) -> bool {
    found.get(..16).is_some_and(|upper| wanted.get(..16) == Some(upper))
}

//! A store from settings.

use super::copier::HostCopier;
use super::error::StoreError;
use super::runtime::StoreRuntime;
use super::{KvStore, Namespace, figures, files};
use crate::config::{DiskFill, ManagerConfig, bytes_text};
use crate::manager::{DiskError, given, hash_key, volumes};
use crate::metrics::{Bound, Endpoint};
use kvstrata_backends::disk::{DiskMover, DiskTier, TierError, TierOptions};
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{Hasher, PoolConfig, Xxh3};
use kvstrata_ffi::arena::{BLOCK_ALIGN_BYTES, HostArena};
use kvstrata_ffi::disk::{Key, VolumeOptions};
use kvstrata_ffi::probe::memory_room;
use kvstrata_store::{Rules, SizeClassParts, Store, StoreParts};
use kvstrata_tiers::Hashing;
use kvstrata_tiers::transfer::TierPort;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The contents of a store's volumes, for all models: keys tell models apart.
const CONTENTS: &[u8] = b"kvstrata store 1";
/// Metadata of a block of the host or the disk, at most.
const BOOKS_BYTES: u64 = 512;

pub(super) fn open(config: &ManagerConfig) -> Result<KvStore, StoreError> {
    let fingerprint = |missing| StoreError::Fingerprint { missing };
    Namespace::of(&config.store, Hasher::Xxh3).map_err(fingerprint)?;
    let sizes = Sizes::of(config)?;
    sizes.check_room(config)?;
    // This may make the file of the secret: after all that can be refused without it.
    let hashing = hash_key::choose(config)?;
    let namespace = Namespace::of(&config.store, hashing.hasher.clone()).map_err(fingerprint)?;
    // Before the volumes are opened, which may take long.
    let bound = bound(config)?;
    let threads = |key: &'static str, value: u32| {
        move |source| StoreError::Threads { given: given(config, &[(key, &value)]), source }
    };
    let runtime = StoreRuntime::start(config.runtime.threads)
        .map_err(threads("runtime.threads", config.runtime.threads))?;
    let copy_threads = config.host.copy_threads.unwrap_or_else(usual_threads);
    let copier =
        HostCopier::new(copy_threads as usize).map_err(threads("host.copy_threads", copy_threads))?;
    let opening = Opening { config, hashing: &hashing, key: disk_key(config)?, sizes: &sizes };
    let classes = sizes.bytes.iter().enumerate();
    let classes = classes.map(|(number, bytes)| opening.class(*bytes, &runtime, number));
    let parts = StoreParts {
        classes: classes.collect::<Result<_, _>>()?,
        copier: Arc::new(copier),
        runtime: Arc::<StoreRuntime>::clone(&runtime),
        rules: rules(config),
    };
    let store = Store::of_parts(parts)?;
    runtime.attend(store.attendant());
    let endpoint = serve(config, bound, &store)?;
    let within = config.deadline.shutdown;
    Ok(KvStore { store, namespace, endpoint: Arc::new(Mutex::new(endpoint)), within })
}

/// The sizes of blocks, and the number of blocks of each size.
struct Sizes {
    bytes: Vec<u64>,
    host: u32,
    disk: u32,
}

impl Sizes {
    fn of(config: &ManagerConfig) -> Result<Sizes, StoreError> {
        let mut bytes = config.store.sizes.clone();
        if bytes.is_empty() {
            bytes = config.groups().iter().map(crate::config::Group::block_bytes).collect();
            bytes.dedup();
        }
        bytes.sort_unstable();
        bytes.dedup();
        let least: u64 = bytes.iter().map(|size| padded(*size)).sum();
        let is_given = |key: &str| config.origin(key).is_given();
        let blocks = |tier: &str, blocks: u32, of: Option<u64>| match of {
            Some(of) if of > 0 && of < least => {
                let given = given(config, &[(&format!("{tier}.bytes"), &bytes_text(of))]);
                Err(StoreError::Small { given, least })
            }
            Some(of) => Ok(u32::try_from(of / least).unwrap_or(u32::MAX)),
            None if is_given(&format!("{tier}.blocks")) => Ok(blocks),
            None => Ok(0),
        };
        let host = blocks("host", config.host.blocks, config.host.bytes)?;
        let volumes = config.disk.paths.len().max(1) as u32;
        let disk = blocks("disk", config.disk.blocks, config.disk.bytes)? / volumes * volumes;
        if host == 0 && disk == 0 {
            return Err(StoreError::NoTier);
        }
        Ok(Sizes { bytes, host, disk })
    }

    /// Staging blocks, for lent memory that is not page-aligned.
    fn staging(&self, config: &ManagerConfig, bytes: u64) -> u32 {
        let usual = || ((16 << 20) / bytes.max(1)).clamp(8, 256) as u32;
        if self.disk > 0 { config.disk.staging.unwrap_or_else(usual).max(2) } else { 0 }
    }

    /// Refuses settings for which the kernel would kill this process.
    fn check_room(&self, config: &ManagerConfig) -> Result<(), StoreError> {
        let Some(room) = memory_room() else { return Ok(()) };
        let of = |bytes: &u64| {
            let memory = u64::from(self.host + self.staging(config, *bytes)) * padded(*bytes);
            memory + u64::from(self.host) * BOOKS_BYTES + u64::from(self.disk) * BOOKS_BYTES
        };
        let needed: u64 = self.bytes.iter().map(of).sum();
        if needed <= room.available_bytes {
            return Ok(());
        }
        let most = if self.host > 0 { "host" } else { "disk" };
        let value = if self.host > 0 { config.host.bytes } else { config.disk.bytes };
        let given = match value {
            Some(bytes) => given(config, &[(&format!("{most}.bytes"), &bytes_text(bytes))]),
            None => given(config, &[(&format!("{most}.blocks"), &self.host.max(self.disk))]),
        };
        Err(StoreError::Room { given, needed, available: room.available_bytes })
    }
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_ALIGN_BYTES as u64)
}

fn usual_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4) as u32)
}

fn rules(config: &ManagerConfig) -> Rules {
    let mut rules = Rules::default();
    rules.queue = config.transfer.queue as usize;
    rules.straight = config.store.straight;
    rules.load_deadline = config.deadline.onboard;
    rules.store_deadline = config.deadline.offload;
    rules.slow_above = config.transfer.slow_above;
    rules.slow_below = config.transfer.slow_below;
    rules
}

fn disk_key(config: &ManagerConfig) -> Result<Option<Key>, StoreError> {
    volumes::key(config).map_err(|error| disk_error(config, error))
}

fn disk_error(config: &ManagerConfig, error: DiskError) -> StoreError {
    let paths: Vec<String> = config.disk.paths.iter().map(|path| path.display().to_string()).collect();
    let given = match (config.disk.bytes, paths.is_empty()) {
        (_, false) => given(config, &[("disk.paths", &paths.join(","))]),
        (Some(bytes), true) => given(config, &[("disk.bytes", &bytes_text(bytes))]),
        (None, true) => given(config, &[("disk.blocks", &config.disk.blocks)]),
    };
    StoreError::Disk { given, source: Box::new(error) }
}

/// The parts of the opening of all size classes.
struct Opening<'o> {
    config: &'o ManagerConfig,
    hashing: &'o Hashing,
    key: Option<Key>,
    sizes: &'o Sizes,
}

impl Opening<'_> {
    fn class(&self, bytes: u64, runtime: &StoreRuntime, number: usize) -> Result<SizeClassParts, StoreError> {
        let (config, sizes) = (self.config, self.sizes);
        let block_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let blocks = sizes.host + sizes.staging(config, bytes);
        let memory = HostArena::new(blocks as usize, block_bytes).map_err(|source| StoreError::Memory {
            given: given(config, &[("store.sizes", &bytes_text(bytes))]),
            source,
        })?;
        let pool = PoolConfig::new(sizes.host).policy(config.host.policy).seed(self.hashing.seed);
        let below = match sizes.disk {
            0 => None,
            _ => {
                let tier = self.disk(&memory, bytes).map_err(|error| disk_error(config, error))?;
                let port: Arc<dyn TierPort> =
                    Arc::new(DiskMover::new(Arc::new(tier), runtime.of_disks(number)));
                Some(port)
            }
        };
        let host = (sizes.host > 0).then_some(pool);
        Ok(SizeClassParts { block_bytes, host, memory: Some(memory), below })
    }

    fn disk(&self, arena: &Arc<HostArena>, bytes: u64) -> Result<DiskTier, DiskError> {
        let files = files::files(self.config, bytes, self.sizes.bytes.len());
        if !files.is_empty() {
            return Ok(self.volumes(arena, &files, true)?);
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let places = volumes::temporary_places();
        let mut last = None;
        for place in &places {
            // Relaxed: the numbers only have to differ.
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let file = place.join(format!("kvstrata-store-{}-{number}.kvs", process::id()));
            match self.volumes(arena, &[file], false) {
                Ok(tier) => return Ok(tier),
                Err(error) => last = Some(Box::new(error)),
            }
        }
        match last {
            Some(last) => Err(DiskError::NoPlace { places, last }),
            None => Ok(self.volumes(arena, &[], false)?),
        }
    }

    fn volumes(&self, arena: &Arc<HostArena>, files: &[PathBuf], keep: bool) -> Result<DiskTier, TierError> {
        let disk = &self.config.disk;
        let slots = self.sizes.disk / files.len().max(1) as u32;
        let hashes = self.hashing.hasher.fingerprint() & u128::from(u64::MAX);
        let volumes = files.iter().map(|file| {
            let options = VolumeOptions::new(file, slots, arena.block_bytes())
                .keep(keep)
                .write_through(keep && disk.fill == DiskFill::First)
                .write_through_in_background(keep && disk.fill == DiskFill::Background)
                .layout_fingerprint(Xxh3.bytes(CONTENTS))
                .model_fingerprint(Xxh3.bytes(CONTENTS) << 64 | hashes)
                .reinitialize(disk.reinitialize)
                .trim(disk.trim)
                .backend(disk.backend)
                .register(arena);
            match &self.key {
                Some(key) => options.key(key.clone()),
                None => options,
            }
        });
        let options = TierOptions::default().admission(disk.admission).write_budget(disk.write_budget);
        let pool = PoolConfig::new(self.sizes.disk).policy(disk.policy).seed(self.hashing.seed);
        DiskTier::open(volumes.collect(), pool, options).map(|(tier, _)| tier)
    }
}

fn bound(config: &ManagerConfig) -> Result<Option<Bound>, StoreError> {
    let Some(listen) = config.metrics.listen else { return Ok(None) };
    Bound::at(listen).map(Some).map_err(|source| metrics_error(config, source))
}

fn metrics_error(config: &ManagerConfig, source: std::io::Error) -> StoreError {
    let listen = config.metrics.listen.map_or_else(String::new, |listen| listen.to_string());
    StoreError::Metrics { given: given(config, &[("metrics.listen", &listen)]), source }
}

/// Serves the figures. The endpoint does not keep the store alive.
fn serve(
    config: &ManagerConfig,
    bound: Option<Bound>,
    store: &Store,
) -> Result<Option<Endpoint>, StoreError> {
    let Some(bound) = bound else { return Ok(None) };
    let (watched, alive) = (store.watch(), store.watch());
    let served = bound.serve(move || Some(figures::text(&watched.stats()?)), move || alive.is_open());
    served.map(Some).map_err(|source| metrics_error(config, source))
}

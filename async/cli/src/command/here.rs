//! `kvstrata config --check FILE --here`: whether this machine has the resources that the settings need.
//!
//! Each check gives a fact, like those of `doctor`. A check that a manager would fail at its start also
//! gives a refusal, which names the setting, its value and the remedy.

use kvstrata::config::{DeviceKind, HashFunction, ManagerConfig};
use kvstrata::metrics::Bound;
use kvstrata::shared::Need;
use kvstrata::shared::figures::binary;
use kvstrata::shared::{hash_key, volume_files, volumes};
use kvstrata::tier::Tier;
use kvstrata_ffi::cuda::CudaDriver;
use kvstrata_ffi::disk::{Volume, VolumeOptions};
use kvstrata_ffi::probe::{self, Fact, Status};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The facts found, and the reasons for which a manager would fail to start.
#[derive(Default)]
pub(super) struct Here {
    pub(super) facts: Vec<Fact>,
    pub(super) refusals: Vec<String>,
}

/// Checks this machine.
pub(super) fn look(config: &ManagerConfig) -> Here {
    let mut here = Here::default();
    let simulated = here.device(config);
    here.memory(config, simulated);
    here.memory_lock(config);
    here.disk(config);
    here.key(config);
    here.hash(config);
    here.port(config);
    here
}

impl Here {
    fn found(&mut self, name: &'static str, detail: String) {
        self.facts.push(Fact { name, status: Status::Found, detail, why: "", remedy: None });
    }

    fn limited(&mut self, name: &'static str, detail: String, why: &'static str, remedy: String) {
        self.facts.push(Fact { name, status: Status::Limited, detail, why, remedy: Some(remedy) });
    }

    /// Adds a fact that keeps a manager from starting here, and its refusal.
    fn refuse(&mut self, name: &'static str, detail: String, remedy: &str, refusal: String) {
        let why = "a manager with these settings cannot start on this machine";
        self.facts.push(Fact {
            name,
            status: Status::NotFound,
            detail,
            why,
            remedy: Some(remedy.to_owned()),
        });
        self.refusals.push(refusal);
    }

    /// Checks the secret of the block hashes: its file, or the file that will be written.
    fn hash(&mut self, config: &ManagerConfig) {
        const NAME: &str = "block hashes";
        match hash_key::look(config) {
            Ok(detail) if config.hash.function == HashFunction::Xxh3 => {
                let remedy = "set hash.function = \"keyed\", unless all callers may see each other's prompts";
                let why = "a tenant can choose tokens whose hash is that of another tenant's block";
                self.limited(NAME, detail, why, remedy.to_owned());
            }
            Ok(detail) => self.found(NAME, detail),
            Err(error) => {
                let remedy = "name a key file of mode 0600 (hash.key_file), made for example by `openssl rand -hex 32`";
                self.refuse(NAME, error.to_string(), remedy, error.to_string());
            }
        }
    }

    /// Checks the device. Returns whether it is simulated in host memory.
    fn device(&mut self, config: &ManagerConfig) -> bool {
        let (kind, ordinal) = (config.device.kind, config.device.ordinal);
        if kind == DeviceKind::Sim {
            self.found("device", "simulated, in host memory".to_owned());
            return true;
        }
        let gpu = CudaDriver::load().and_then(|driver| driver.describe_device(ordinal));
        let needed = config.tier_bytes(Tier::Device);
        let why = match gpu {
            Ok(gpu) if gpu.memory_bytes >= needed => {
                self.found("device", gpu.to_string());
                return false;
            }
            Ok(gpu) => {
                let [needed, there] = [needed, gpu.memory_bytes].map(|bytes| binary(bytes as f64));
                format!("its blocks need {needed}, and {gpu} has {there}")
            }
            Err(error) => error.to_string(),
        };
        if kind == DeviceKind::Auto {
            let remedy = "see `kvstrata doctor`, or set device.kind = \"sim\"".to_owned();
            self.limited("device", format!("simulated: {why}"), "no GPU is used", remedy);
            return true;
        }
        let origin = |key: &str| config.origin(key);
        let refusal = format!(
            "device.kind = {kind} ({}) and device.ordinal = {ordinal} ({}): {why}; see `kvstrata doctor`, or set device.kind to \
             auto or sim",
            origin("device.kind"),
            origin("device.ordinal")
        );
        self.refuse("device", why, "see `kvstrata doctor`, or set device.kind to auto or sim", refusal);
        false
    }

    fn memory(&mut self, config: &ManagerConfig, simulated: bool) {
        let Some(room) = probe::memory_room() else {
            let remedy = "compare the sizes of the tiers with the machine's memory".to_owned();
            return self.limited(
                "memory",
                "the kernel does not report how much is available".to_owned(),
                "the kernel kills a process that uses too much",
                remedy,
            );
        };
        let need = Need::of(config, simulated, room.huge_bytes);
        let there = binary(room.available_bytes as f64);
        let detail = format!("needs {}; {there} available, by {}", need.in_words(), room.bound);
        match need.fits(&room) {
            true => self.found("memory", detail),
            false => {
                let refusal = need.refusal(config, &room).to_string();
                self.refuse("memory", detail, "use fewer or smaller blocks", refusal);
            }
        }
    }

    /// Checks the memory-lock limit. Within it, rings register host memory; beyond it,
    /// each transfer pins its pages.
    fn memory_lock(&mut self, config: &ManagerConfig) {
        if config.disk.blocks > 0 {
            self.facts.push(probe::memory_lock());
        }
    }

    fn disk(&mut self, config: &ManagerConfig) {
        if config.disk.blocks == 0 {
            return;
        }
        let temporary = config.disk.paths.is_empty();
        // An unnamed file goes to the first usable one of several folders.
        let most =
            || volumes::temporary_places().into_iter().max_by_key(|place| probe::disk_room(place).ok());
        let places = if temporary { most().into_iter().collect() } else { config.disk.paths.clone() };
        let mut needs: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
        for group in config.groups() {
            let mut files = volume_files::files(config, group);
            if temporary {
                files.extend(places.iter().map(|place| place.join("kvstrata")));
            }
            let slots = config.blocks_of(group, Tier::DISK) / u32::try_from(files.len()).unwrap_or(1).max(1);
            for file in files {
                let bytes = usize::try_from(group.block_bytes()).unwrap_or(usize::MAX);
                let whole = VolumeOptions::new(&file, slots, bytes).file_bytes().unwrap_or(u64::MAX);
                // An existing file needs only the rest.
                let there = std::fs::metadata(&file).map_or(0, |facts| facts.blocks() * 512);
                let drive = folder_of(&file).metadata().map_or(0, |facts| facts.dev());
                let need = needs.entry(drive).or_insert((file, 0));
                need.1 = need.1.saturating_add(whole.saturating_sub(there));
            }
        }
        let drives = needs.len();
        let bad: Vec<Bad> =
            needs.into_values().filter_map(|(file, needed)| self.room(config, &file, needed)).collect();
        self.refuse_all_or_warn(bad, drives);
        let bad: Vec<Bad> = places.iter().filter_map(|place| self.direct(config, place)).collect();
        self.refuse_all_or_warn(bad, places.len());
    }

    /// Refuses if all `of` places are bad. Otherwise the tier works with the others, and
    /// each bad place is a limit.
    fn refuse_all_or_warn(&mut self, bad: Vec<Bad>, of: usize) {
        let all = bad.len() == of;
        for Bad { name, detail, remedy, refusal } in bad {
            match all {
                true => self.refuse(name, detail, remedy, refusal),
                false => {
                    self.limited(name, detail, "the tier lacks the blocks of this place", remedy.to_owned())
                }
            }
        }
    }

    /// Checks the space on one file system; `file` is its first file.
    fn room(&mut self, config: &ManagerConfig, file: &Path, needed: u64) -> Option<Bad> {
        let folder = folder_of(file);
        let there = match probe::disk_room(file) {
            Ok(there) => there,
            Err(error) => {
                let refusal =
                    format!("{}: {}: {error}; name an existing folder", self.paths(config), folder.display());
                let detail = format!("{}: {error}", folder.display());
                return Some(Bad { name: "disk room", detail, remedy: "name an existing folder", refusal });
            }
        };
        let of_files = binary(needed as f64);
        let of_drive = match there {
            u64::MAX => "the file system does not report its free space".to_owned(),
            there => format!("{} are free", binary(there as f64)),
        };
        let detail = format!("{}: needs {of_files} more, and {of_drive}", folder.display());
        if needed <= there {
            self.found("disk room", detail);
            return None;
        }
        let (blocks, origin) = (config.disk.blocks, config.origin("disk.blocks"));
        let refusal =
            format!("disk.blocks = {blocks} ({origin}): {detail}; use fewer blocks, or other disk.paths");
        Some(Bad { name: "disk room", detail, remedy: "use fewer blocks, or other disk.paths", refusal })
    }

    /// Checks the disk backend: opens a volume of one slot, whose file has a name only for an instant.
    fn direct(&mut self, config: &ManagerConfig, place: &Path) -> Option<Bad> {
        let folder = if place.is_dir() { place.to_owned() } else { folder_of(place) };
        if !folder.is_dir() {
            // `room` has reported the missing folder.
            return None;
        }
        let file = folder.join(format!(".kvstrata-here-{}", std::process::id()));
        let backend = config.disk.backend;
        match Volume::open(VolumeOptions::new(file, 1, 4096).backend(backend)) {
            Err(error) => {
                let origin = config.origin("disk.backend");
                let refusal = format!(
                    "{} and disk.backend = {backend} ({origin}): {error}; choose another path or backend",
                    self.paths(config)
                );
                let remedy = "choose another path or backend";
                return Some(Bad { name: "volumes", detail: error.to_string(), remedy, refusal });
            }
            Ok((volume, _)) => {
                let found = volume.describe();
                let detail = format!("{}: {}", folder.display(), found.backend);
                match found.direct {
                    true => self.found("O_DIRECT", detail),
                    false => self.limited(
                        "O_DIRECT",
                        format!("{detail}: {}", found.notes.join("; ")),
                        "the page cache holds a second copy of each block",
                        "put the volume on ext4 or xfs".to_owned(),
                    ),
                }
            }
        }
        None
    }

    fn key(&mut self, config: &ManagerConfig) {
        match volumes::key(config) {
            Ok(None) => {}
            Ok(Some(_)) => self.found("key", "can be read".to_owned()),
            Err(error) => {
                let error = error.to_string();
                self.refuse("key", error.clone(), "correct disk.key_file or disk.key_env", error);
            }
        }
    }

    fn port(&mut self, config: &ManagerConfig) {
        let Some(address) = config.metrics.listen else { return };
        match Bound::at(address) {
            Ok(_) => self.found("port", format!("{address} is free")),
            Err(error) => {
                let origin = config.origin("metrics.listen");
                let refusal = format!(
                    "metrics.listen = {address} ({origin}): cannot listen there ({error}); choose another address or port"
                );
                self.refuse("port", format!("{address}: {error}"), "choose another address or port", refusal);
            }
        }
    }

    fn paths(&self, config: &ManagerConfig) -> String {
        if config.disk.paths.is_empty() {
            return format!("disk.blocks = {} ({})", config.disk.blocks, config.origin("disk.blocks"));
        }
        let paths: Vec<_> = config.disk.paths.iter().map(|path| path.display().to_string()).collect();
        format!("disk.paths = {} ({})", paths.join(","), config.origin("disk.paths"))
    }
}

/// A problem of one of several places.
struct Bad {
    name: &'static str,
    detail: String,
    remedy: &'static str,
    refusal: String,
}

/// The folder of a file, whether it exists or not.
fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

//! The secret of the block hashes: its source, and its file, in which a restart finds it.
//!
//! ```text
//!   hash.key_file, hash.key_env       the deployment's: all its processes and nodes get the same secret
//!   kvstrata.hash-key (mode 0600)     else, beside each of disk.paths: each restart and each rank finds it
//!   memory                            else: each process draws a new one; no block outlives it
//! ```
//!
//! Invariants
//! - I1: an existing file is never overwritten. If several processes make one at the same time, one
//!   wins, and all read its file.
//! - I2: no message contains the secret. [`Hasher::fingerprint`] identifies it.

use crate::config::{HashFunction, ManagerConfig};
use kvstrata_core::hash::{Hasher, Keyed};
use kvstrata_ffi::disk::{Key, KeyError};
use kvstrata_ffi::shown::{shown, shown_path};
use kvstrata_tiers::Hashing;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the file beside the volumes.
pub const FILE: &str = "kvstrata.hash-key";
const OF_THIS_PROCESS: &str = "a secret of this process only";

/// Why the secret cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HashKeyError {
    /// A key cannot be used.
    #[error("{setting}: {source}")]
    Key {
        /// The setting that names the key, or would name another one.
        setting: &'static str,
        /// The error.
        source: KeyError,
    },
    /// The file beside a volume cannot be written.
    #[error(
        "hash.key_file: cannot write a new key to {}: {source}; set hash.key_file to a file, or hash.key_env to a \
         variable",
        shown_path(path)
    )]
    Make {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A secret beside the volumes may be another user's.
    #[error("hash.key_file: the key {} beside the volumes is not used: {source}", shown_path(path))]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The system provides no random numbers.
    #[error("hash.key_file: the system provides no random numbers for a key; set hash.key_file to a file")]
    Random,
}

/// Returns the hasher of the settings. Makes the key file beside the volumes, if the settings need one.
pub(crate) fn choose(config: &ManagerConfig) -> Result<Hashing, HashKeyError> {
    chosen(config, true)
}

fn chosen(config: &ManagerConfig, writes: bool) -> Result<Hashing, HashKeyError> {
    let drawn = Key::random().map_err(|_| HashKeyError::Random)?;
    let seed = drawn.expose().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    if config.hash.function == HashFunction::Xxh3 {
        let origin = "no secret: choosing tokens is choosing hashes".to_owned();
        return Ok(Hashing { hasher: Hasher::Xxh3, origin, lasts: true, seed });
    }
    let failed = |setting| move |source| HashKeyError::Key { setting, source };
    let (key, origin) = match (&config.hash.key_file, &config.hash.key_env) {
        (Some(file), _) => {
            let key = Key::from_file(file).map_err(failed("hash.key_file"))?;
            (key, format!("secret of {}", shown_path(file)))
        }
        (None, Some(name)) => {
            let key = Key::from_variable(name).map_err(failed("hash.key_env"))?;
            (key, format!("secret of the variable {}", shown(name)))
        }
        (None, None) => match beside(config, writes)? {
            Some((file, key)) => (key, format!("secret of {}", shown_path(&file))),
            None => {
                let key = Key::random().map_err(|_| HashKeyError::Random)?;
                (key, OF_THIS_PROCESS.to_owned())
            }
        },
    };
    let lasts = origin != OF_THIS_PROCESS;
    Ok(Hashing { hasher: Keyed::new(key.expose()).into(), origin, lasts, seed })
}

/// Describes the secret of a manager with these settings, without making a file.
pub fn look(config: &ManagerConfig) -> Result<String, HashKeyError> {
    let is_given = config.hash.key_file.is_some() || config.hash.key_env.is_some();
    let is_beside = config.hash.function == HashFunction::Keyed && !is_given;
    let files = if is_beside { files(config) } else { Vec::new() };
    match files.first() {
        Some(file) if !files.iter().any(|file| file.exists()) => {
            Ok(format!("keyed, the first start writes a secret to {}", shown_path(file)))
        }
        _ => chosen(config, false).map(|chosen| format!("{}, {}", chosen.hasher.name(), chosen.origin)),
    }
}

/// Returns the secret beside the volumes, if volumes are kept: that of the first existing file, or a new
/// one. Each folder gets a copy, so that a volume that cannot be opened does not hide the secret.
/// Without `writes`, makes no file.
fn beside(config: &ManagerConfig, writes: bool) -> Result<Option<(PathBuf, Key)>, HashKeyError> {
    let files = files(config);
    let mut refused = None;
    let is_there = |file: &&PathBuf| file.symlink_metadata().is_ok();
    let mut there = files.iter().filter(is_there).filter_map(|file| {
        let read = read(file).map_err(|error| refused.get_or_insert(error));
        Some((file, read.ok()?))
    });
    let (found, key) = match there.next() {
        Some(found) => found,
        None => match refused {
            // An unreadable secret is not replaced: the volumes beside it may be filled under it.
            Some(error) => return Err(error),
            None if !writes || files.is_empty() => return Ok(None),
            None => first(&files)?,
        },
    };
    for file in files.iter().filter(|file| writes && !file.exists()) {
        // A missing copy matters only if the folder of `found` is lost.
        let _ = make(file, &key);
    }
    Ok(Some((found.clone(), key)))
}

/// Makes a new secret in the first folder that takes it: a full or read-only folder affects only its own
/// volume.
fn first(files: &[PathBuf]) -> Result<(&PathBuf, Key), HashKeyError> {
    let key = Key::random().map_err(|_| HashKeyError::Random)?;
    let mut refused = None;
    for file in files {
        match make(file, &key) {
            // Read back, since another process may have been first (I1).
            Ok(()) => return Ok((file, read(file)?)),
            Err(source) => _ = refused.get_or_insert((file.clone(), source)),
        }
    }
    Err(refused.map_or(HashKeyError::Random, |(path, source)| HashKeyError::Make { path, source }))
}

fn read(file: &Path) -> Result<Key, HashKeyError> {
    is_ours(file).map_err(|source| HashKeyError::NotOurs { path: file.to_owned(), source })?;
    Key::from_file(file).map_err(|source| HashKeyError::Key { setting: "hash.key_file", source })
}

/// Refuses a file that another user may have put there: a user who knows the secret can make any hash.
fn is_ours(file: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(file)?;
    let (owner, own) = (facts.uid(), fs::metadata("/proc/self").map_or(facts.uid(), |process| process.uid()));
    if !facts.is_file() {
        return Err(io::Error::other("it is not a regular file; set hash.key_file to the secret's file"));
    }
    if owner != own && owner != 0 {
        let why = format!(
            "its owner is user {owner}, this process runs as user {own}; set hash.key_file to the secret's file"
        );
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// Returns the paths of the secret, in the folder of each of `disk.paths`. A folder that does not exist
/// is left out: opening its volume reports it.
fn files(config: &ManagerConfig) -> Vec<PathBuf> {
    let paths = if config.disk.blocks > 0 { &config.disk.paths[..] } else { &[] };
    let folder = |path: &PathBuf| match path.is_dir() {
        true => Some(path.clone()),
        false => path
            .parent()
            .map(|parent| if parent.as_os_str().is_empty() { ".".into() } else { parent.to_owned() }),
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in paths.iter().filter_map(folder).filter(|folder| folder.is_dir()) {
        let file = folder.join(FILE);
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Writes a secret to a new file: a draft first, which is then linked to its name (I1).
fn make(path: &Path, key: &Key) -> io::Result<()> {
    let mut digits = String::with_capacity(65);
    for byte in key.expose() {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push('\n');
    // Each call has its own draft, within this process too.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the numbers only have to differ.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("draft-{}-{number}", std::process::id()));
    // Perhaps left over from a killed process with the same id.
    let _ = fs::remove_file(&draft);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let written = written.and_then(|mut file| {
        file.write_all(digits.as_bytes())?;
        file.sync_all()
    });
    let linked = written.and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let _ = fs::remove_file(&draft);
    linked
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn config(folder: &Path) -> ManagerConfig {
        let file = folder.join("a.kvs");
        let builder = ManagerConfig::builder().disk_blocks(16).disk_paths(vec![file]);
        builder.build().expect("valid settings")
    }

    fn id(config: &ManagerConfig) -> u128 {
        choose(config).expect("a secret").hasher.fingerprint()
    }

    #[test]
    fn key_file_is_made_once_with_mode_0600() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path());
        let first = id(&config);
        let file = folder.path().join(FILE);
        assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(id(&config), first, "a restart finds it");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no draft is left");
        fs::remove_file(file).expect("removed");
        assert_ne!(id(&config), first, "another secret");
    }

    #[test]
    fn key_is_found_beside_any_volume() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = ["a", "b"].map(|name| folder.path().join(name));
        places.iter().for_each(|place| fs::create_dir(place).expect("made"));
        let builder = ManagerConfig::builder().disk_blocks(16).disk_paths(places.to_vec());
        let config = builder.build().expect("valid settings");
        let first = id(&config);
        fs::remove_dir_all(&places[0]).expect("gone");
        assert_eq!(id(&config), first);
        fs::create_dir(&places[0]).expect("made");
        assert_eq!(id(&config), first);
        assert!(places[0].join(FILE).exists(), "it has the secret again");
    }

    #[test]
    fn key_is_made_where_the_first_folder_takes_none() {
        let folder = tempfile::tempdir().expect("a folder");
        // No user can make a file in the first folder.
        let places = [PathBuf::from("/proc/self/volume"), folder.path().join("volume")];
        let builder = ManagerConfig::builder().disk_blocks(16).disk_paths(places.to_vec());
        let config = builder.build().expect("valid settings");
        let first = id(&config);
        assert!(folder.path().join(FILE).exists());
        assert_eq!(id(&config), first);
    }

    #[test]
    fn key_behind_a_link_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = ["a", "b"].map(|name| folder.path().join(name));
        places.iter().for_each(|place| fs::create_dir(place).expect("made"));
        let builder = ManagerConfig::builder().disk_blocks(16).disk_paths(places.to_vec());
        let config = builder.build().expect("valid settings");
        let first = id(&config);
        fs::rename(places[0].join(FILE), folder.path().join("planted")).expect("there");
        std::os::unix::fs::symlink(folder.path().join("planted"), places[0].join(FILE)).expect("made");
        assert_eq!(id(&config), first, "of the other folder");
        fs::remove_file(places[1].join(FILE)).expect("there");
        let error = choose(&config).map(|_| ()).expect_err("a link").to_string();
        assert!(error.contains("is not used: it is not a regular file"), "{error}");
    }

    #[test]
    fn makers_at_the_same_time_read_one_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = &config(folder.path());
        let ids = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| id(config))).collect();
            all.into_iter().map(|one| one.join().expect("an id")).collect::<Vec<_>>()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:x?}");
    }

    #[test]
    fn key_in_memory_differs_between_managers() {
        let config = ManagerConfig::builder().build().expect("valid settings");
        assert_ne!(id(&config), id(&config));
    }

    #[test]
    fn xxh3_has_no_key_and_makes_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.kvs");
        let builder = ManagerConfig::builder().disk_blocks(16).disk_paths(vec![file]);
        let config = builder.hash_function(HashFunction::Xxh3).build().expect("valid settings");
        assert_eq!(choose(&config).expect("a hasher").hasher, Hasher::Xxh3);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn open_key_file_is_refused_by_setting() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("open");
        fs::write(&file, "00".repeat(32)).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode");
        let config = ManagerConfig::builder().hash_key_file(Some(file)).build().expect("valid settings");
        let refused = choose(&config).err().expect("refused").to_string();
        assert!(refused.starts_with("hash.key_file: ") && refused.contains("0644"), "{refused}");
    }
}

//! Paths of the volumes of a store.
//!
//! ```text
//!   disk.paths       the file of blocks of 65536 bytes, ranks "tp0of2"
//!   a directory      <directory>/kvstrata-store-tp0of2-65536.kvs
//!   another path     <path>.65536      the size only if there are several
//! ```

use crate::config::ManagerConfig;
use crate::manager::volume_files::written;
use std::path::{Path, PathBuf};

/// Returns one path for each of `disk.paths`.
pub(super) fn files(config: &ManagerConfig, block_bytes: u64, sizes: usize) -> Vec<PathBuf> {
    let ranks = config.store.ranks.as_deref().map_or_else(String::new, written);
    let file = |place: &PathBuf| file(place, &ranks, block_bytes, sizes);
    config.disk.paths.iter().map(file).collect()
}

fn file(place: &Path, ranks: &str, block_bytes: u64, sizes: usize) -> PathBuf {
    if place.is_dir() {
        return place.join(format!("kvstrata-store-{ranks}-{block_bytes}.kvs"));
    }
    let mut file = place.as_os_str().to_owned();
    if sizes > 1 {
        file.push(format!(".{block_bytes}"));
    }
    PathBuf::from(file)
}

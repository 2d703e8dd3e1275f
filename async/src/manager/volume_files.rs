//! Paths of the volumes of a group.
//!
//! ```text
//!   disk.paths          the file of group "full", rank 1 of 4
//!   a directory         <directory>/kvstrata-<model>-full-rank1of4.kvs    <model>: "custom" without one
//!   another path        <path>.full.rank1of4      group and rank only if there are several
//! ```
//!
//! So all ranks of a model, and several models, can share the same settings. Characters that do not
//! belong in a file name are escaped.

use crate::config::{Group, ManagerConfig};
use kvstrata_core::Xxh3;
use kvstrata_core::hash::BlockHasher;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The longest name of a model or a group in a file name; a file system takes 255 bytes in all.
const MOST: usize = 80;

/// Returns one path for each of `disk.paths`.
pub fn files(config: &ManagerConfig, group: &Group) -> Vec<PathBuf> {
    config.disk.paths.iter().map(|place| file(place, config, group)).collect()
}

fn file(place: &Path, config: &ManagerConfig, group: &Group) -> PathBuf {
    let (rank, tp) = (config.geometry.rank, config.geometry.tp);
    let name = written(&group.name);
    if place.is_dir() {
        let model = config.model_name().map_or_else(|| "custom".to_owned(), written);
        return place.join(format!("kvstrata-{model}-{name}-rank{rank}of{tp}.kvs"));
    }
    let mut file = place.as_os_str().to_owned();
    if config.groups().len() > 1 {
        file.push(format!(".{name}"));
    }
    if tp > 1 {
        file.push(format!(".rank{rank}of{tp}"));
    }
    PathBuf::from(file)
}

/// Escapes a name for a file name. Different names stay different.
pub fn written(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        // Writing to a string does not fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => text.write_char(char::from(byte)),
            _ => write!(text, "%{byte:02x}"),
        };
    }
    if text.len() > MOST {
        // All of it is ASCII.
        text.truncate(MOST - 33);
        let _ = write!(text, "~{:032x}", Xxh3.bytes(name.as_bytes()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "[[group]]\nname = \"a/../b\"\nlayers = [0]\n[[group]]\nlayers = [1]\n[geometry]\nkv_heads = 2\nhead_size = 8\n";

    fn names(place: &Path, text: &str) -> Vec<String> {
        let text = format!("disk.blocks = 2\ndisk.paths = [{:?}]\n{text}", place.display().to_string());
        let config = ManagerConfig::builder().toml("k.toml", text).build().expect("possible");
        let paths = config.groups().iter().map(|group| files(&config, group));
        let begins = format!("{}/", place.parent().expect("a folder").display());
        paths.map(|paths| paths[0].display().to_string().replace(&begins, "")).collect()
    }

    #[test]
    fn file_name_says_model_group_rank_and_degree() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("d");
        assert_eq!(names(&place, "model = \"llama-3-8b\""), ["d"]);
        assert_eq!(
            names(&place, "model = \"llama-3-8b\"\ngeometry.tp = 4\ngeometry.rank = 3"),
            ["d.rank3of4"]
        );
        assert_eq!(names(&place, HYBRID), ["d.a%2f..%2fb", "d.full-1"]);
        std::fs::create_dir(&place).expect("made");
        assert_eq!(names(&place, "model = \"llama-3-8b\""), ["d/kvstrata-llama-3-8b-all-rank0of1.kvs"]);
        assert_eq!(
            names(&place, &format!("{HYBRID}tp = 2\nrank = 1")),
            ["d/kvstrata-custom-a%2f..%2fb-rank1of2.kvs", "d/kvstrata-custom-full-1-rank1of2.kvs"]
        );
        let long =
            format!("[[group]]\nname = \"{}\"\nlayers = [0]\nkv_heads = 2\nhead_size = 8", "é".repeat(300));
        let name = &names(&place, &long)[0];
        assert!(name.len() < 130 && name.contains('~'), "{name}");
    }
}

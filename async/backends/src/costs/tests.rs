//! The folder of the cost files. Their contents are tested with devices to store: `tests/tune.rs`.

use super::*;

fn folder(set: &[(&str, &str)]) -> Option<PathBuf> {
    let variable = |name: &str| {
        let value = set.iter().find(|(known, _)| *known == name);
        value.map(|(_, value)| OsString::from(value))
    };
    CostStore::said_by(variable).ok().map(|store| store.folder)
}

#[test]
fn cost_folder_follows_the_environment() {
    let home = ("HOME", "/home/a");
    let all = [("KVSTRATA_CONFIG_DIR", "here"), ("XDG_CACHE_HOME", "/cache"), home];
    assert_eq!(folder(&all), Some("here".into()));
    assert_eq!(folder(&all[1..]), Some("/cache/kvstrata".into()));
    assert_eq!(folder(&all[2..]), Some("/home/a/.cache/kvstrata".into()));
    assert_eq!(folder(&[("KVSTRATA_CONFIG_DIR", ""), ("XDG_CACHE_HOME", "relative"), home]), folder(&[home]));
    assert_eq!(folder(&[]), None);
}

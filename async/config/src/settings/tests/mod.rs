//! Tests of settings: origins of values, errors, and that written configurations read back as the same.

mod errors;
mod geometry;
mod random;

use super::kind::Kind;
use super::reference::{EXAMPLE, all, keys, markdown};
use super::table::{SETTERS, rows};
use super::variables::{CONFIG_VARIABLE, OTHERS, TESTS, variable};
use super::{ConfigError, ManagerConfig, Origin};
use kvstrata_tiers::Tier;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

fn from_toml(text: &str) -> Result<ManagerConfig, ConfigError> {
    ManagerConfig::builder().toml("k.toml", text).build()
}

fn good(text: &str) -> ManagerConfig {
    from_toml(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn refusal(text: &str) -> String {
    from_toml(text).expect_err("must be refused").to_string()
}

/// Valid files that use many settings.
const HYBRIDS: [&str; 2] = [EXAMPLE, geometry::HYBRID];

/// The root of the repository that has this crate.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn defaults_are_valid_without_a_gpu_and_a_disk() {
    let config = ManagerConfig::builder().build().expect("the defaults are possible");
    assert_eq!((config.device.kind, config.disk.blocks), (super::DeviceKind::Sim, 0));
    assert_eq!((config.tier_bytes(Tier::Device), config.tier_bytes(Tier::Host)), (128 << 20, 512 << 20));
    let config = (config.watermark.device, config.watermark.device_low, config.watermark.host);
    assert_eq!(config, (0.90, 0.85, 0.90));
}

/// There is one table: each setting is in the builder, variables, reference, file and output.
#[test]
fn each_setting_is_in_all_sources() {
    let (rows, reference, keys, markdown) = (rows(), all(), keys(), markdown());
    let toml = ManagerConfig::builder().build().expect("possible").to_toml();
    let shown = ManagerConfig::builder().build().expect("possible").to_string();
    assert_eq!(rows.len(), SETTERS.len());
    let mut variables = BTreeSet::new();
    for (row, setter) in rows.iter().zip(SETTERS) {
        let key = row.key;
        // The builder and the variables.
        assert_eq!(*setter, key.replace('.', "_"), "the builder's call for {key}");
        assert!(variables.insert(variable(key)), "two settings have {}", variable(key));
        let entry = reference
            .iter()
            .find(|entry| entry.key == key)
            .unwrap_or_else(|| panic!("{key} is in no reference"));
        assert_eq!(entry.variable.as_ref(), Some(&variable(key)));
        assert!(!entry.words.is_empty() && entry.words.ends_with(['.', ')']), "{key}: {}", entry.words);
        assert!(keys.contains(&key), "{key} is not completed");
        assert!(
            markdown.contains(&format!("| `{key}`<br>`{}` |", variable(key))),
            "{key} is not in the Markdown"
        );
        // In files: the default, read from the line in the generated file.
        let line = format!("{} = {}\n", row.field(), entry.default);
        assert!(toml.contains(&line), "{key} is not in the file");
        assert!(shown.lines().any(|line| line.split_whitespace().next() == Some(key)), "{key} is not shown");
        let given = good(&format!("{key} = {}", entry.default));
        assert_eq!(given.origin(key), Origin::File { name: "k.toml".into(), line: 1 }, "{key}");
        // A variable takes the same value without the quotes and brackets of a file.
        let text = entry.default.trim_matches(['"', '[', ']']);
        let by_variable = ManagerConfig::builder().variables([(variable(key), text)]).build().expect(key);
        let expected = if text.is_empty() { Origin::Default } else { Origin::Variable(variable(key)) };
        assert_eq!(by_variable.origin(key), expected, "{key}");
    }
    for entry in reference.iter().filter(|entry| entry.variable.is_none()) {
        assert!(
            keys.contains(&entry.key) && markdown.contains(&format!("| `{}` |", entry.key)),
            "{}",
            entry.key
        );
    }
    let taken: Vec<_> = variables.iter().filter(|name| OTHERS.contains(&name.as_str())).collect();
    assert!(taken.is_empty() && !variables.contains(CONFIG_VARIABLE), "not settings: {taken:?}");
}

#[test]
fn stronger_origin_wins_in_any_order() {
    let file = "[device]\nblocks = 10\n[idle]\nhost_after = 10\ndisk_after = 50\n";
    let variables = [("KVSTRATA_DEVICE_BLOCKS", "20"), ("KVSTRATA_IDLE_HOST_AFTER", "20"), ("PATH", "/bin")];
    let first = ManagerConfig::builder().toml("k.toml", file).variables(variables).device_blocks(30).build();
    let last = ManagerConfig::builder().device_blocks(30).variables(variables).toml("k.toml", file).build();
    for config in [first, last].map(|config| config.expect("possible")) {
        assert_eq!(
            (config.device.blocks, config.idle.host_after, config.idle.disk_after),
            (30, Some(20), Some(50))
        );
        assert_eq!(config.origin("device.blocks"), Origin::Builder);
        assert_eq!(config.origin("idle.host_after"), Origin::Variable("KVSTRATA_IDLE_HOST_AFTER".to_owned()));
        assert_eq!(config.origin("idle.disk_after").to_string(), "k.toml:5");
        assert_eq!(config.origin("host.blocks"), Origin::Default);
    }
    // A later file overrides an earlier one; an empty variable counts as unset; `none` removes a value.
    let config = ManagerConfig::builder()
        .toml("a", "disk.write_budget = \"1G\"\ndevice.blocks = 1")
        .toml("b", "device.blocks = 2");
    let config = config.variables([("KVSTRATA_DEVICE_BLOCKS", ""), ("KVSTRATA_DISK_WRITE_BUDGET", "none")]);
    let config = config.build().expect("possible");
    assert_eq!((config.device.blocks, config.disk.write_budget), (2, None));
    // Lists are replaced as a whole.
    let tenant = |name: &str| super::TenantSettings { name: name.to_owned(), ..Default::default() };
    let file = "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"b\"";
    let names =
        |config: ManagerConfig| config.tenants().iter().map(|tenant| tenant.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(good(file)), ["a", "b"]);
    let config = ManagerConfig::builder().tenants([tenant("c")]).toml("k.toml", file).build();
    assert_eq!(names(config.expect("possible")), ["c"]);
}

#[test]
fn environment_names_the_settings_file() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("k.toml");
    std::fs::write(&path, "device.blocks = 7\nhost.blocks = 7").expect("written");
    let builder = ManagerConfig::builder()
        .variables([("KVSTRATA_CONFIG", path.as_os_str()), ("KVSTRATA_HOST_BLOCKS", "8".as_ref())]);
    let config = builder.build().expect("possible");
    assert_eq!((config.device.blocks, config.host.blocks), (7, 8));
    let missing = folder.path().join("no.toml");
    let error = ManagerConfig::builder().file(&missing).build().expect_err("not there").to_string();
    assert!(error.contains("no.toml: cannot be read: ") && error.contains("give another file"), "{error}");
}

#[test]
fn values_are_written_in_units_of_people() {
    let config = good(
        "device.bytes = \"16MiB\"\nwatermark.device = \"95%\"\nwatermark.host = 1\ntransfer.queue = \"1K\"\ndeadline.allocate = \"250ms\"\n\
         deadline.onboard = \"2m\"\ntransfer.retry_after = \"0s\"\ndisk.paths = [\"/a,b\", \"c\"]\ndisk.blocks = \"1_000\"\ndisk.trim = true",
    );
    assert_eq!((config.device.bytes, config.device.blocks), (Some(16 << 20), 256));
    assert_eq!((config.watermark.device, config.watermark.host, config.transfer.queue), (0.95, 1.0, 1024));
    assert_eq!(
        (config.deadline.allocate, config.deadline.onboard),
        (Duration::from_millis(250), Duration::from_secs(120))
    );
    assert_eq!(
        (config.transfer.retry_after, config.disk.paths.len(), config.disk.trim),
        (Duration::ZERO, 2, true)
    );
    let variables =
        [("KVSTRATA_DISK_PATHS", "a, b"), ("KVSTRATA_DISK_BLOCKS", "2K"), ("KVSTRATA_DISK_TRIM", "yes")];
    let config = ManagerConfig::builder().variables(variables).build().expect("possible");
    assert_eq!((config.disk.paths.len(), config.disk.blocks, config.disk.trim), (2, 2048, true));
    // Durations are written exactly, in the largest unit that divides them.
    let time = super::kind::Time { least: Duration::ZERO, most: Duration::MAX };
    for (nanoseconds, text) in [
        (0, "0s"),
        (1, "1ns"),
        (1500, "1500ns"),
        (2000, "2us"),
        (90_000_000_000, "90s"),
        (3_600_000_000_000, "1h"),
    ] {
        assert_eq!(time.toml(&Duration::from_nanos(nanoseconds)), format!("\"{text}\""));
    }
}

#[test]
fn changed_settings_are_marked_with_their_origin() {
    let text = good("[device]\nblocks = 64\npolicy = \"reuse\"").to_string();
    let line = |key: &str| {
        text.lines().find(|line| line[2..].starts_with(key)).unwrap_or_else(|| panic!("{key} in {text}"))
    };
    assert!(line("device.blocks").starts_with("* device.blocks "), "{text}");
    assert!(line("device.blocks").ends_with("  k.toml:2; default 2048"), "{text}");
    assert_eq!(line("device.policy").split_whitespace().collect::<Vec<_>>(), ["device.policy", "\"reuse\""]);
    assert_eq!(text.matches('*').count(), 1, "{text}");
}

#[test]
fn documented_settings_are_those_of_the_table() {
    let path = root().join("docs/settings.md");
    let there = std::fs::read_to_string(&path).expect("docs/settings.md");
    assert!(
        there == markdown(),
        "docs/settings.md is out of date: kvstrata config --markdown > docs/settings.md"
    );
    let example = good(EXAMPLE);
    assert_eq!(
        example.groups().iter().map(|group| group.block_bytes()).collect::<Vec<_>>(),
        [393_216, 393_216]
    );
}

/// A variable that the project uses and that is not in this list would be refused.
#[test]
fn other_variables_of_the_project_are_known() {
    let mut found = BTreeSet::new();
    for folder in ["core", "ffi", "kernels", "async", "benches", "fuzz", "ci", "docs"] {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 10, "the repository is not there: {found:?}");
    let settings: BTreeSet<String> = rows().iter().map(|row| variable(row.key)).collect();
    let known = |name: &String| {
        // Made up by a test: a key in a variable that is not set. And the include guard of the C header.
        let made_up = ["KVSTRATA_NO_SUCH", "KVSTRATA_H"].contains(&name.as_str()) || name.starts_with(TESTS);
        made_up || OTHERS.contains(&name.as_str()) || settings.contains(name) || name == CONFIG_VARIABLE
    };
    let unknown: Vec<_> = found.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "neither settings nor in variables.rs: {unknown:?}");
    for name in OTHERS {
        assert!(found.contains(*name), "{name} is used nowhere");
    }
}

fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            // Build outputs, and the folder of these tests, which make names up.
            if entry.file_name() != "target" && !path.ends_with("config/src") {
                collect(&path, found);
            }
            continue;
        }
        let text = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        for (at, _) in text.match_indices(super::variables::PREFIX) {
            let end = text[at..].find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            let name = text[at..end.map_or(text.len(), |end| at + end)].trim_end_matches('_');
            if name.len() >= super::variables::PREFIX.len() {
                found.insert(name.to_owned());
            }
        }
    }
}

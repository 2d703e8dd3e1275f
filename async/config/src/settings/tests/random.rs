//! Random configurations read back as the same configuration. Random files are read or refused, without
//! a panic.
//!
//! A number determines each of them, and a failure prints it.

use super::{HYBRIDS, from_toml};
use crate::settings::lists::{group_rows, tenant_rows};
use crate::settings::table::rows;
use crate::settings::{GroupSettings, ManagerConfig, ManagerConfigBuilder, TenantSettings};
use std::collections::BTreeSet;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }
}

/// A few random settings on a random base, with the keys of the settings.
fn random_builder(seed: u64) -> (ManagerConfigBuilder, Vec<&'static str>) {
    let mut random = Random(seed);
    let mut builder = ManagerConfig::builder();
    let rows = rows();
    let mut changed = Vec::new();
    if random.below(3) == 0 {
        // Some settings need a model, others conflict with one.
        builder = builder.model(kvstrata_core::layout::Model::find("llama-3-8b").ok());
    }
    for _ in 0..random.below(6) {
        let row = &rows[random.below(rows.len())];
        (row.sample)(&mut builder.draft.settings, random.next());
        if let Some(path) = &mut builder.draft.settings.geometry.config {
            // An existing file.
            *path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/qwen3-next-80b.json").into();
        }
        builder.draft.origins.set(row.key, crate::settings::Origin::Builder);
        changed.push(row.key);
    }
    if random.below(4) == 0 {
        let mut tenant = TenantSettings::default();
        tenant_rows().iter().for_each(|row| (row.sample)(&mut tenant, random.next()));
        changed.extend(tenant_rows().iter().map(|row| row.key));
        builder = builder.tenants([tenant]);
    }
    if random.below(4) == 0 {
        let mut group = GroupSettings { kv_heads: Some(2), head_size: Some(64), ..GroupSettings::default() };
        for row in group_rows() {
            if random.below(2) == 0 || row.key == "group.layers" {
                (row.sample)(&mut group, random.next());
                changed.push(row.key);
            }
        }
        // All layers of a model, since other lists are never valid.
        group.layers = (0..group.layers.len() as u32).collect();
        builder = builder.groups([group]);
    }
    (builder, changed)
}

#[test]
fn written_settings_read_back_as_the_same() {
    let mut met = BTreeSet::new();
    for seed in 0..4_000 {
        let (builder, changed) = random_builder(seed);
        let Ok(config) = builder.build() else { continue };
        met.extend(changed);
        let text = config.to_toml();
        let again = from_toml(&text).unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
        assert_eq!(config, again, "{seed}: {text}");
        assert_eq!(config.groups(), again.groups(), "{seed}");
        assert_eq!(text, again.to_toml(), "{seed}");
    }
    let all = rows().iter().map(|row| row.key).collect::<Vec<_>>();
    let all = all
        .into_iter()
        .chain(group_rows().into_iter().map(|row| row.key))
        .chain(tenant_rows().into_iter().map(|row| row.key));
    let never: Vec<_> = all.filter(|key| !met.contains(key)).collect();
    assert!(never.is_empty(), "no possible configuration had {never:?}");
}

/// Each allowed value of each setting reads as it was written.
#[test]
fn each_value_is_read_as_it_is_written() {
    let mut random = Random(1);
    for row in rows() {
        for _ in 0..200 {
            let mut settings = crate::settings::Settings::default();
            (row.sample)(&mut settings, random.next());
            let text = (row.toml)(&settings);
            let value = toml::de::DeValue::parse(&text)
                .unwrap_or_else(|error| panic!("{}: {text}: {error}", row.key));
            let read = row
                .with(&crate::settings::Settings::default(), &crate::settings::raw::Raw::of(value.get_ref()));
            assert_eq!(read.as_ref(), Some(&settings), "{} = {text}", row.key);
        }
    }
}

/// Input that nests deeper than any setting is refused, without a stack overflow.
#[test]
fn nesting_depth_is_bounded() {
    for count in [10, 100, 1_000, 100_000] {
        let deep = [
            format!("x = {}", "[".repeat(count)),
            format!("x = {}{}", "[".repeat(count), "]".repeat(count)),
            format!("x = {}", "{ x = ".repeat(count)),
            format!("{}x = 1", "x.".repeat(count)),
            format!("[{}x]\ny = 1", "x.".repeat(count)),
            format!("[[{}x]]\ny = 1", "x.".repeat(count)),
        ];
        for text in deep {
            assert!(from_toml(&text).is_err(), "{count}: {}", &text[..20]);
        }
    }
}

#[test]
fn random_files_do_not_panic() {
    let parts = [
        "[",
        "]",
        "[[",
        "]]",
        "=",
        ".",
        "\"",
        "'",
        "\n",
        "#",
        ",",
        "{",
        "}",
        "-",
        "1",
        "0.5",
        "1e9",
        "nan",
        "inf",
        "true",
        "none",
        "\"none\"",
        "group",
        "device",
        "blocks",
        "layers",
        "\"0-65535\"",
        "\"64K\"",
        "\"85%\"",
        "\"250ms\"",
        "2024-01-01",
        "0xffffffffffffffff",
        "é",
        "\u{0}",
        "99999999999999999999",
        "kind",
        "\"state\"",
        "state_bytes",
        "share",
        "\"1-5/0\"",
        "\"4294967295-4294967295\"",
    ];
    let valid = ManagerConfig::builder().build().expect("possible").to_toml();
    let keys = crate::settings::keys();
    let mut read = 0;
    for seed in 0..6_000 {
        let mut random = Random(seed);
        let mut bytes: Vec<u8> = match seed % 4 {
            3 => {
                // A setting, or a setting of a group, with an arbitrary value.
                let key = keys[random.below(keys.len())];
                let (list, key) =
                    key.split_once("group.").map_or(("", key), |(_, field)| ("[[group]]\n", field));
                format!("{list}{key} = {}", parts[random.below(parts.len())]).into_bytes()
            }
            0 => (0..random.below(40))
                .map(|_| parts[random.below(parts.len())])
                .collect::<String>()
                .into_bytes(),
            1 => (0..random.below(200)).map(|_| random.next() as u8).collect(),
            _ => HYBRIDS[random.below(HYBRIDS.len())].as_bytes().to_vec(),
        };
        if seed % 100 == 2 {
            bytes = valid.clone().into_bytes();
        }
        for _ in 0..random.below(4) * usize::from(seed % 4 != 3) {
            let at = random.below(bytes.len().max(1));
            let part = parts[random.below(parts.len())].bytes();
            let end = (at + random.below(8)).min(bytes.len());
            bytes.splice(at.min(end)..end, part);
        }
        let result = std::panic::catch_unwind(|| from_bytes(&bytes));
        let result = result.unwrap_or_else(|_| panic!("{seed}: {}", String::from_utf8_lossy(&bytes)));
        match result {
            Ok(_) => read += 1,
            Err(error) => assert!(!error.to_string().is_empty(), "{seed}"),
        }
    }
    assert!((100..5_000).contains(&read), "{read} of 6,000 were possible: both must happen");
}

fn from_bytes(bytes: &[u8]) -> Result<ManagerConfig, crate::settings::ConfigError> {
    ManagerConfig::builder().toml("k.toml", bytes).build()
}

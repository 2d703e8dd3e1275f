//! Settings in environment variables: `KVSTRATA_`, then the key in capitals with `_` for its dot.

use super::draft::Draft;
use super::error::{Fault, Origin};
use super::nearest::{model_meant, nearest};
use super::raw::Raw;
use super::table::rows;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const PREFIX: &str = "KVSTRATA_";

/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "KVSTRATA_CONFIG";

/// Variables of the project that are no settings: for the build, tests and measurements, for the log of the
/// command, and for the folder of `kvstrata tune`.
pub(super) const OTHERS: &[&str] = &[
    "KVSTRATA_COMMIT",
    "KVSTRATA_CONFIG_DIR",
    "KVSTRATA_CPU_KERNELS_ASAN",
    "KVSTRATA_CRASHES",
    "KVSTRATA_CRASH_SEED",
    "KVSTRATA_CUDA_ARCHS",
    "KVSTRATA_CUOBJDUMP",
    "KVSTRATA_DISK_DIR",
    "KVSTRATA_ENGINES_CACHE",
    "KVSTRATA_ENGINES_PARTS",
    "KVSTRATA_FUZZ_SECONDS",
    "KVSTRATA_LOG",
    "KVSTRATA_MUTATION",
    "KVSTRATA_MUTATION_SECONDS",
    "KVSTRATA_NIGHTLY",
    "KVSTRATA_NIGHTLY_MINUTES",
    "KVSTRATA_NIGHTLY_SEED",
    "KVSTRATA_NVCC",
    "KVSTRATA_PYTHON",
    "KVSTRATA_PYTHON_BATCHES",
    "KVSTRATA_PYTHON_RELEASE",
    "KVSTRATA_REQUIRE",
    "KVSTRATA_SEED",
    "KVSTRATA_SEEDS",
    "KVSTRATA_STEP_SECONDS",
    "KVSTRATA_STRESS_ROUNDS",
    "KVSTRATA_WORLD_MS",
];

/// The prefix of variables that tests pass to processes that they start.
pub(super) const TESTS: &str = "KVSTRATA_TEST_";

/// The variable for a setting.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

/// Reads variables. Returns the file that [`CONFIG_VARIABLE`] names, if it names one.
pub(super) fn read(
    builder: &mut Draft,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Option<PathBuf> {
    let rows = rows();
    let named = variables.map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let mut ours: Vec<_> = named.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    ours.sort();
    let mut file = None;
    for (name, value) in ours {
        if name.starts_with(TESTS) || OTHERS.contains(&name.as_str()) {
            continue;
        }
        if name == CONFIG_VARIABLE {
            file = Some(PathBuf::from(value)).filter(|path| !path.as_os_str().is_empty());
            continue;
        }
        let Some(row) = rows.iter().find(|row| variable(row.key) == name) else {
            builder.unknown.push(name);
            continue;
        };
        if value.is_empty() {
            continue;
        }
        let (origin, key) = (Origin::Variable(name), row.key);
        let raw = value.to_str().map(Raw::text);
        match raw.as_ref().and_then(|raw| row.with(&builder.settings, raw)) {
            Some(changed) => {
                if origin.strength() >= builder.origins.of(key).strength() {
                    builder.settings = changed;
                    builder.origins.set(key, origin);
                }
            }
            None => {
                let value = raw.map_or_else(|| format!("{value:?}"), |raw| raw.to_string());
                let allowed = (row.allowed)() + &model_meant(key, &value);
                builder.faults.push(Fault::Value { key: key.to_owned(), value, origin, allowed });
            }
        }
    }
    file
}

/// The error for a variable that no setting has.
pub(super) fn unknown(name: String) -> Fault {
    // The common prefix would make all names look similar.
    let all =
        rows().into_iter().map(|row| variable(row.key)).chain(OTHERS.iter().map(|name| (*name).to_owned()));
    let known = all.chain([CONFIG_VARIABLE.to_owned()]).map(|name| name.replacen(PREFIX, "", 1));
    let nearest = nearest(&name.replacen(PREFIX, "", 1), known).map(|name| format!("{PREFIX}{name}"));
    Fault::UnknownVariable { name, nearest }
}

//! `kvstrata doctor`: the features of this machine that kvstrata can use, and remedies for missing ones.

use super::EXIT_OK;
use crate::fold;
use clap::Args;
use kvstrata::backend::costs::{self, Note};
use kvstrata::shared::hash_key;
use kvstrata_ffi::cuda::CudaDriver;
use kvstrata_ffi::disk::Key;
use kvstrata_ffi::probe::{self, Fact, Status};
use kvstrata_ffi::shown::shown_path;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  kvstrata doctor
      Checks this machine, for a disk tier in the current directory.
  kvstrata doctor --path /mnt/nvme
      The same, for a disk tier on another drive.
  kvstrata doctor --json | jq '.[] | select(.status != \"found\")'
      Prints limited and missing features, for a program.

Exit codes:
  0  the features were checked, whether they were found or not
  2  the path does not exist";

/// Check this machine: kernel, io_uring, O_DIRECT, memory, NUMA, CUDA, NIXL, cuFile
///
/// Each feature is found, limited or not found; a limited or missing one comes with a reason and a
/// remedy. Checked are kernel and io_uring features, O_DIRECT in the directory of --path, memory
/// and its control groups, the memory-lock limit, huge pages, NUMA nodes, CUDA driver and devices,
/// nvcc, NIXL, cuFile, the secret of block hashes in that directory, and whether `kvstrata tune`
/// has measured each device.
///
/// kvstrata builds and runs without any of these features. The check creates a small file in the
/// directory and removes it.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// Directory of a disk tier: its file system, free space and O_DIRECT are checked
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
    /// Print JSON: a list of {name, status, detail, why, remedy}
    #[arg(long)]
    json: bool,
}

/// Where the second column begins.
const INDENT: usize = 11;

/// A fact in JSON.
#[derive(Serialize)]
struct Line<'f> {
    name: &'f str,
    status: &'static str,
    detail: &'f str,
    why: &'f str,
    remedy: Option<&'f str>,
}

pub(super) fn run(arguments: &DoctorArgs) -> Result<u8, String> {
    let path = &arguments.path;
    if !path.exists() {
        return Err(format!(
            "--path {}: does not exist; name a directory for the files of a disk tier",
            shown_path(path)
        ));
    }
    let mut facts = probe::probe(path);
    facts.push(block_hashes(path));
    facts.extend(copy_costs(&facts));
    if arguments.json {
        let lines: Vec<_> = facts.iter().map(line).collect();
        let text = serde_json::to_string_pretty(&lines)
            .map_err(|error| format!("--json: the result cannot be encoded: {error}; please report this"))?;
        super::print(format!("{text}\n").as_bytes())?;
    } else {
        super::print_shown(&table(&facts))?;
    }
    Ok(EXIT_OK)
}

/// The secret of block hashes, which managers with volumes in `folder` share.
fn block_hashes(folder: &Path) -> Fact {
    let file = folder.join(hash_key::FILE);
    let (status, detail, remedy) = match file.exists().then(|| Key::from_file(&file)) {
        None => (
            Status::Found,
            format!(
                "no secret yet; the first manager with disk.paths in this directory writes {}",
                shown_path(&file)
            ),
            None,
        ),
        Some(Ok(_)) => (Status::Found, format!("secret of {}", shown_path(&file)), None),
        Some(Err(error)) => (
            Status::Limited,
            error.to_string(),
            Some("restore the file, or name another file with hash.key_file; under another secret, stored blocks are not found"
                .to_owned()),
        ),
    };
    let why = "without the secret, no tenant can compute another's hashes; a restart needs the same secret to find its blocks";
    Fact { name: "block hashes", status, detail, why, remedy }
}

/// The source of each device's copy costs; `None` without a device.
fn copy_costs(facts: &[Fact]) -> Option<Fact> {
    let devices = facts.iter().any(|fact| fact.name == "CUDA devices" && fact.status == Status::Found);
    let driver = devices.then(CudaDriver::load)?.ok()?;
    let found = driver.describe();
    let (mut details, mut remedies) = (Vec::new(), Vec::new());
    for device in (0..found.devices).filter_map(|ordinal| driver.describe_device(ordinal).ok()) {
        let (costs, note) = costs::costs_for(&device, found.version);
        let ordinal = device.ordinal;
        details.push(match &note {
            Some(Note::Unusable(error)) => format!("device {ordinal}: {}: {error}", costs.source()),
            _ => format!("device {ordinal}: {}", costs.source()),
        });
        remedies.extend(note.map(|_| format!("`kvstrata tune --device {ordinal}`")));
    }
    Some(Fact {
        name: "copy costs",
        status: if remedies.is_empty() { Status::Found } else { Status::Limited },
        detail: details.join("; "),
        why: "copies take the cheapest route by these costs",
        remedy: (!remedies.is_empty())
            .then(|| format!("while the device is idle, run {}", remedies.join(", "))),
    })
}

fn line(fact: &Fact) -> Line<'_> {
    let Fact { name, status, detail, why, remedy } = fact;
    let status = match status {
        Status::Found => "found",
        Status::Limited => "limited",
        Status::NotFound => "not_found",
    };
    Line { name, status, detail, why, remedy: remedy.as_deref() }
}

/// One paragraph for each fact; reason and remedy follow where a feature is limited or missing.
pub(super) fn table(facts: &[Fact]) -> String {
    let mut text = String::new();
    for fact in facts {
        let status = fact.status.to_string();
        let mut paragraph = |head: &str, words: &str| fold::paragraph(&mut text, head, words, fold::COLUMNS);
        paragraph(&format!("{status:<INDENT$}"), &format!("{}: {}", fact.name, fact.detail));
        if fact.status != Status::Found {
            let blank = " ".repeat(INDENT);
            paragraph(&format!("{blank}why  "), fact.why);
            if let Some(remedy) = &fact.remedy {
                paragraph(&format!("{blank}do   "), remedy);
            }
        }
    }
    let count = |status| facts.iter().filter(|fact| fact.status == status).count();
    let (found, limited, missing) = (count(Status::Found), count(Status::Limited), count(Status::NotFound));
    let _ = writeln!(text, "\n{found} found, {limited} limited, {missing} not found");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(status: Status, remedy: Option<&str>) -> Fact {
        let detail =
            "a detail of so many words that they do not fit into one line of eighty columns".to_owned();
        Fact { name: "thing", status, detail, why: "it is fast", remedy: remedy.map(str::to_owned) }
    }

    #[test]
    fn missing_feature_comes_with_reason_and_remedy() {
        let text = table(&[fact(Status::Found, None), fact(Status::NotFound, Some("buy one"))]);
        let expected = "\
found      thing: a detail of so many words that they do not fit into one line
           of eighty columns
not found  thing: a detail of so many words that they do not fit into one line
           of eighty columns
           why  it is fast
           do   buy one

1 found, 0 limited, 1 not found
";
        assert_eq!(text, expected);
    }
}

//! `kvstrata doctor`: what this machine offers, and what to do about what it does not.

use super::EXIT_OK;
use clap::Args;
use kvstrata::costs::{self, Note};
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
      Of this machine, with a disk tier in the current directory.
  kvstrata doctor --path /mnt/nvme
      The same with one on another drive.
  kvstrata doctor --json | jq '.[] | select(.status != \"found\")'
      What is limited or missing, for a program.

Exit codes: 0 whatever was found; 2 the path does not exist.";

/// Print what this machine offers: kernel, io_uring, O_DIRECT, memory, NUMA, CUDA, NIXL, cuFile
#[derive(Debug, Args)]
#[command(
    long_about = "Print what this machine offers to kvstrata, each as found, limited or not found, and what to do about it: \
                  kernel and io_uring features, O_DIRECT on a path, memory and its control groups, memory-lock limit, huge pages, NUMA nodes, CUDA driver \
                  and devices, nvcc, NIXL, cuFile, the secret of block hashes beside volumes in the path, and whether copies were measured on each device (`kvstrata tune`).\n\n\
                  Nothing of this is needed to build or to try kvstrata. A small file is made in the path for a moment.",
    after_long_help = EXAMPLES
)]
pub(super) struct DoctorArgs {
    /// Where a disk tier would lie: its file system, free space and O_DIRECT are looked at
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
    /// Print JSON: a list of {name, status, detail, why, remedy}
    #[arg(long)]
    json: bool,
}

const WIDTH: usize = 80;
/// Where the second column begins.
const INDENT: usize = 11;

/// A fact as JSON has it.
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
            "--path {}: does not exist; name a directory where a disk tier would lie",
            shown_path(path)
        ));
    }
    let mut facts = probe::probe(path);
    facts.push(block_hashes(path));
    facts.extend(copy_costs(&facts));
    if arguments.json {
        let lines: Vec<_> = facts.iter().map(line).collect();
        let text = serde_json::to_string_pretty(&lines)
            .map_err(|error| format!("--json: cannot be encoded: {error}"))?;
        super::print(format!("{text}\n").as_bytes())?;
    } else {
        super::print_shown(&table(&facts))?;
    }
    Ok(EXIT_OK)
}

/// The secret of block hashes that managers with volumes in a folder share.
fn block_hashes(folder: &Path) -> Fact {
    let file = folder.join(hash_key::FILE);
    let (status, detail, remedy) = match file.exists().then(|| Key::from_file(&file)) {
        None => (
            Status::Found,
            format!("no secret here yet; the first start with disk.paths here writes {}", shown_path(&file)),
            None,
        ),
        Some(Ok(_)) => (Status::Found, format!("secret of {}", shown_path(&file)), None),
        Some(Err(error)) => (
            Status::Limited,
            error.to_string(),
            Some("put the file's own content back, or name another with hash.key_file: blocks are not found under another secret"
                .to_owned()),
        ),
    };
    let why = "tenants are kept apart by hashes that others cannot make, and a restart finds its blocks by the same secret";
    Fact { name: "block hashes", status, detail, why, remedy }
}

/// Which costs the devices have; nothing where there are none.
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
        why: "which of the ways to copy is the cheapest",
        remedy: (!remedies.is_empty()).then(|| format!("while it is idle, {}", remedies.join(", "))),
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

/// One paragraph a fact; reasons and remedies only where something is to be done.
pub(super) fn table(facts: &[Fact]) -> String {
    let mut text = String::new();
    for fact in facts {
        let status = fact.status.to_string();
        paragraph(&mut text, &format!("{status:<INDENT$}"), &format!("{}: {}", fact.name, fact.detail));
        if fact.status != Status::Found {
            let blank = " ".repeat(INDENT);
            paragraph(&mut text, &format!("{blank}why  "), fact.why);
            if let Some(remedy) = &fact.remedy {
                paragraph(&mut text, &format!("{blank}do   "), remedy);
            }
        }
    }
    let count = |status| facts.iter().filter(|fact| fact.status == status).count();
    let (found, limited, missing) = (count(Status::Found), count(Status::Limited), count(Status::NotFound));
    let _ = writeln!(text, "\n{found} found, {limited} limited, {missing} not found");
    text
}

/// Appends `words` behind `head`, broken at spaces so that no line is longer than [`WIDTH`] if that can be avoided.
fn paragraph(text: &mut String, head: &str, words: &str) {
    let indent = head.chars().count();
    text.push_str(head);
    let mut column = indent;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
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
    fn what_is_missing_comes_with_reason_and_remedy() {
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

    #[test]
    fn a_long_word_is_not_broken() {
        let mut text = String::new();
        paragraph(&mut text, "x  ", &format!("a {} b", "y".repeat(90)));
        assert_eq!(text, format!("x  a\n   {}\n   b\n", "y".repeat(90)));
    }
}

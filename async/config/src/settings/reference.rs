//! The reference: every setting with its key, variable, type, default, allowed values and words; as text,
//! Markdown, or data.

use super::file::LISTS;
use super::lists::{GroupSettings, TenantSettings, group_rows, tenant_rows};
use super::table::{Row, SECTIONS, Settings, rows};
use super::variables::{CONFIG_VARIABLE, variable};
use serde::Serialize;
use std::fmt::Write;

/// A setting, as the reference has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// `device.blocks`; of lists, `group.layers`.
    pub key: &'static str,
    /// Its environment variable; none for what comes in lists.
    pub variable: Option<String>,
    /// Of its value.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is counted; empty where nothing is.
    pub unit: &'static str,
    /// As TOML has it.
    pub default: String,
    /// What it may be.
    pub allowed: String,
    /// What it is.
    pub words: &'static str,
}

fn entry<S>(row: &Row<S>, default: &S, variable: Option<String>) -> Entry {
    let Row { key, kind, unit, words, .. } = *row;
    Entry {
        key,
        variable,
        kind,
        unit,
        default: (row.toml)(default),
        allowed: (row.allowed)(),
        words: words.trim(),
    }
}

/// The settings of these keys and sections, or all; those of lists last.
#[must_use]
pub fn reference(wanted: &[String]) -> Vec<Entry> {
    let is_wanted = |entry: &Entry| {
        wanted.is_empty() || wanted.iter().any(|wanted| wanted == entry.key || wanted == section(entry.key))
    };
    all().into_iter().filter(is_wanted).collect()
}

/// A key's section; empty for none.
fn section(key: &str) -> &str {
    key.split_once('.').map_or("", |(section, _)| section)
}

pub(super) fn all() -> Vec<Entry> {
    let (settings, group, tenant) =
        (Settings::default(), GroupSettings::default(), TenantSettings::default());
    let rows = rows();
    let settings = rows.iter().map(|row| entry(row, &settings, Some(variable(row.key))));
    let (groups, tenants) = (group_rows(), tenant_rows());
    let groups = groups.iter().map(|row| entry(row, &group, None));
    settings.chain(groups).chain(tenants.iter().map(|row| entry(row, &tenant, None))).collect()
}

/// Every section and every key, for completion.
#[must_use]
pub fn keys() -> Vec<&'static str> {
    let sections = SECTIONS.iter().map(|(section, _)| *section).chain(LISTS);
    sections.chain(all().into_iter().map(|entry| entry.key)).collect()
}

/// Groups of a model with windows, as gpt-oss-20b has them: every other layer attends to the last 128 tokens.
pub(super) const EXAMPLE: &str = "\
model = \"gpt-oss-20b\"

[device]
bytes = \"1G\"

[[group]]
name = \"sliding\"
kind = \"window\"
window = 128
layers = \"0-22/2\"
share = 0.1

[[group]]
name = \"full\"
layers = \"1-23/2\"
";

/// A comment of a file, its lines at most 100 characters long.
pub(super) fn comment(words: &str, allowed: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("#");
    for word in words.split_whitespace().chain(std::iter::once("—")).chain(allowed.split_whitespace()) {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            text += &line;
            text += "\n";
            line = String::from("#");
        }
        line += " ";
        line += word;
    }
    text + &line + "\n"
}

/// The reference for a terminal: the settings of these keys and sections, or all.
#[must_use]
pub fn text(wanted: &[String]) -> String {
    let mut text = String::new();
    for entry in reference(wanted) {
        let Entry { key, variable, default, allowed, words, .. } = entry;
        let variable = variable.map_or(String::new(), |variable| format!("  {variable}"));
        let _ = writeln!(text, "{key} = {default}{variable}\n    {words}\n    {allowed}");
    }
    text
}

/// The reference as `docs/settings.md` has it.
#[must_use]
pub fn markdown() -> String {
    let mut text = format!(
        "# Settings\n\nMade by `kvstrata config --markdown` from the table in `async/config/src/settings/table.rs`; a test compares them.\n\n\
         A setting comes from a TOML file, from the environment, or from a call of `ManagerConfig::builder()`: each is stronger than the one \
         before it. `{CONFIG_VARIABLE}` names the file. `kvstrata config --toml` prints one with all defaults, `kvstrata config --check FILE` \
         says what a file and the environment come to, in settings and in bytes and tokens of each tier; `--here` also says whether \
         this machine has that. Bytes and numbers take K, M, G and T, powers of 1024; `\"none\"` is no value, and an \
         empty variable as well as none.\n\nOf `blocks` and `bytes` of a tier one is enough; where both come from one place they \
         must agree, else the stronger holds.\n"
    );
    let entries = all();
    let of = |wanted: &str| -> Vec<&Entry> {
        entries.iter().filter(|entry| section(entry.key) == wanted).collect()
    };
    let _ = write!(
        text,
        "\nA file for a model with sliding windows, whose windows need a tenth of the blocks:\n\n```toml\n{EXAMPLE}```\n"
    );
    table(&mut text, "the model", "", &of(""));
    for (section, words) in SECTIONS {
        table(&mut text, section, words.trim(), &of(section));
    }
    let lists = [
        (
            "group",
            "`[[group]]`, once for each group of layers with one geometry, in files only: see `GroupSettings`.",
        ),
        (
            "tenant",
            "`[[tenant]]`, once for each tenant with a quota of its own, in files only: see `TenantSettings`.",
        ),
    ];
    for (list, words) in lists {
        table(&mut text, list, words, &of(list));
    }
    text
}

fn table(text: &mut String, title: &str, words: &str, entries: &[&Entry]) {
    let _ = write!(text, "\n## {title}\n\n");
    if !words.is_empty() {
        let _ = write!(text, "{words}\n\n");
    }
    *text += "| key, variable | default | allowed | what |\n|---|---|---|---|\n";
    for entry in entries {
        let variable = entry.variable.as_ref().map_or(String::new(), |variable| format!("<br>`{variable}`"));
        let Entry { key, default, allowed, words, .. } = entry;
        let _ = writeln!(text, "| `{key}`{variable} | `{default}` | {allowed} | {words} |");
    }
}

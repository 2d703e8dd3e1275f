//! The reference: every setting with its key, variable, type, default, allowed values and description; as
//! text, Markdown, or data.

use super::file::LISTS;
use super::lists::{GroupSettings, TenantSettings, group_rows, tenant_rows};
use super::table::{Row, SECTIONS, Settings, rows};
use super::variables::{CONFIG_VARIABLE, variable};
use serde::Serialize;
use std::fmt::Write;

/// A setting in the reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The key, such as `device.blocks`; in lists, `group.layers`.
    pub key: &'static str,
    /// The environment variable; none for settings in lists.
    pub variable: Option<String>,
    /// The type of the value.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The unit of the value; empty if it has none.
    pub unit: &'static str,
    /// The default, as TOML.
    pub default: String,
    /// The allowed values.
    pub allowed: String,
    /// The description.
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

/// Returns the settings with these keys and in these sections, or all. Settings of lists come last.
#[must_use]
pub fn reference(wanted: &[String]) -> Vec<Entry> {
    let is_wanted = |entry: &Entry| {
        wanted.is_empty() || wanted.iter().any(|wanted| wanted == entry.key || wanted == section(entry.key))
    };
    all().into_iter().filter(is_wanted).collect()
}

/// The section of a key; empty for none.
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

/// Returns every section and every key, for completion.
#[must_use]
pub fn keys() -> Vec<&'static str> {
    let sections = SECTIONS.iter().map(|(section, _)| *section).chain(LISTS);
    sections.chain(all().into_iter().map(|entry| entry.key)).collect()
}

/// Groups of a model with windows, such as gpt-oss-20b: every other layer attends to the last 128 tokens.
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

/// Words in lines of at most 100 characters. Each line begins with `start`.
pub(super) fn wrapped(start: &str, words: &str) -> String {
    let mut text = String::new();
    let mut line = String::from(start);
    for word in words.split_whitespace() {
        if line.len() > start.len() && line.chars().count() + 1 + word.chars().count() > 100 {
            text += &line;
            text += "\n";
            line = String::from(start);
        }
        line += " ";
        line += word;
    }
    text + &line + "\n"
}

/// Returns the reference for a terminal: the settings with these keys and in these sections, or all.
#[must_use]
pub fn text(wanted: &[String]) -> String {
    let mut text = String::new();
    for entry in reference(wanted) {
        let Entry { key, variable, default, allowed, words, .. } = entry;
        let variable = variable.map_or(String::new(), |variable| format!("  {variable}"));
        let _ = write!(
            text,
            "{key} = {default}{variable}\n{}{}",
            wrapped("   ", words),
            wrapped("   ", &allowed)
        );
    }
    text
}

/// Returns the reference as Markdown, for `docs/settings.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = format!(
        "# Settings\n\nMade by `kvstrata config --markdown` from the table in \
         `async/config/src/settings/table.rs`; a test compares them.\n\n\
         A setting comes from a TOML file, from the environment, or from a call of \
         `ManagerConfig::builder()`. Each of these overrides the ones before it. `{CONFIG_VARIABLE}` names the \
         file. `kvstrata config --toml` prints a file with all defaults. `kvstrata config --check FILE` prints the \
         settings that a file and the environment give, with bytes and tokens of each tier; `--here` also checks \
         that this machine can provide them. Bytes and numbers take K, M, G and T, powers of 1024. \
         `\"none\"` is no value; an empty variable counts as unset.\n\n\
         For each tier, give either `blocks` or `bytes`. If both \
         come from the same origin, they must agree; otherwise the stronger origin wins.\n"
    );
    let entries = all();
    let of = |wanted: &str| -> Vec<&Entry> {
        entries.iter().filter(|entry| section(entry.key) == wanted).collect()
    };
    let _ = write!(
        text,
        "\nA file for a model with sliding windows, which need a tenth of the blocks:\n\n```toml\n{EXAMPLE}```\n"
    );
    table(&mut text, "the model", "", &of(""));
    for (section, words) in SECTIONS {
        table(&mut text, section, words.trim(), &of(section));
    }
    let lists = [
        (
            "group",
            "`[[group]]`, one entry per group of layers with one geometry; in files only (`GroupSettings`).",
        ),
        (
            "tenant",
            "`[[tenant]]`, one entry per tenant with its own quotas; in files only (`TenantSettings`).",
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
    *text += "| key, variable | default | allowed | description |\n|---|---|---|---|\n";
    for entry in entries {
        let variable = entry.variable.as_ref().map_or(String::new(), |variable| format!("<br>`{variable}`"));
        let Entry { key, default, allowed, words, .. } = entry;
        let _ = writeln!(text, "| `{key}`{variable} | `{default}` | {allowed} | {words} |");
    }
}

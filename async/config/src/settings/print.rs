//! A configuration as a table for terminals, and as a TOML file.

use super::ManagerConfig;
use super::error::Origin;
use super::lists::{GroupSettings, TenantSettings, group_rows, tenant_rows};
use super::reference::wrapped;
use super::table::{Row, SECTIONS, Settings, rows};
use kvstrata_tiers::Tier;
use kvstrata_tiers::figures::{binary, count};
use std::fmt::{self, Write};

/// Prints one row per setting. A value that is not the default has the mark `*`, its origin and the default.
impl fmt::Display for ManagerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, default) = (rows(), Settings::default());
        let lines: Vec<_> = rows.iter().map(|row| line(row, "", &self.settings, &default, self)).collect();
        let group_rows = group_rows();
        let of_group = |(i, group): (usize, &GroupSettings)| {
            let entry = format!("group[{i}]");
            let default = GroupSettings::default();
            group_rows.iter().map(|row| line(row, &entry, group, &default, self)).collect::<Vec<_>>()
        };
        let tenant_rows = tenant_rows();
        let of_tenant = |(i, tenant): (usize, &TenantSettings)| {
            let entry = format!("tenant[{i}]");
            let default = TenantSettings::default();
            tenant_rows.iter().map(|row| line(row, &entry, tenant, &default, self)).collect::<Vec<_>>()
        };
        let groups = self.group_settings.iter().enumerate().flat_map(of_group);
        let tenants = self.tenants.iter().enumerate().flat_map(of_tenant);
        let lines: Vec<Line> = lines.into_iter().chain(groups).chain(tenants).collect();
        let width = |of: fn(&Line) -> &str| lines.iter().map(|line| of(line).chars().count()).max();
        let key = width(|line| &line.key).unwrap_or(0);
        let value = width(|line| &line.value).unwrap_or(0).min(24);
        for line in &lines {
            let mark = if line.note.is_empty() { ' ' } else { '*' };
            let text = format!("{mark} {:key$}  {:value$}  {}", line.key, line.value, line.note);
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

struct Line {
    key: String,
    value: String,
    /// Empty for a default value.
    note: String,
}

fn line<S>(row: &Row<S>, entry: &str, owner: &S, default: &S, config: &ManagerConfig) -> Line {
    let key = row.key_in(entry);
    let (value, default) = ((row.toml)(owner), (row.toml)(default));
    let origin = config.origins.of(&key);
    let note = match (value == default, origin) {
        (true, _) => String::new(),
        (false, Origin::Default) => format!("default {default}"),
        (false, origin) => format!("{origin}; default {default}"),
    };
    Line { key, value, note }
}

impl ManagerConfig {
    /// Returns a table of blocks, bytes and tokens, one row per tier and group. Bytes include the padding of
    /// blocks.
    #[must_use]
    pub fn tiers(&self) -> String {
        let heads = ["tier", "group", "blocks", "bytes", "tokens"].map(str::to_owned);
        let mut rows = vec![(heads, String::new())];
        for tier in Tier::OF_SETTINGS.into_iter().filter(|tier| self.blocks(*tier) > 0) {
            for group in self.groups() {
                let (blocks, tokens) = (self.blocks_of(group, tier), self.tokens_of(group, tier));
                let bytes = binary(self.bytes_of(group, tier) as f64);
                let note = match group.window {
                    // A window need not begin at the start of a block.
                    Some(window) => {
                        let one = u64::from(window) + u64::from(group.page_size);
                        let plural = if tokens / one == 1 { "" } else { "s" };
                        format!("  {} window{plural} of {}", count(tokens / one), count(window.into()))
                    }
                    None => String::new(),
                };
                let [blocks, tokens] = [u64::from(blocks), tokens].map(count);
                rows.push(([tier.to_string(), group.name.clone(), blocks, bytes, tokens], note));
            }
            if self.groups().len() > 1 {
                let bytes = binary(self.tier_bytes(tier) as f64);
                rows.push((
                    [tier.to_string(), "total".to_owned(), String::new(), bytes, String::new()],
                    String::new(),
                ));
            }
        }
        let width =
            |column: usize| rows.iter().map(|(row, _)| row[column].chars().count()).max().unwrap_or(0);
        let [tiers, groups, blocks, bytes, tokens] = [0, 1, 2, 3, 4].map(width);
        let mut text = String::new();
        for ([tier, group, of_blocks, of_bytes, of_tokens], note) in &rows {
            let line = format!(
                "{tier:tiers$}  {group:groups$}  {of_blocks:>blocks$}  {of_bytes:>bytes$}  {of_tokens:>tokens$}{note}"
            );
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// Returns all settings as a TOML file, with a comment for each. Reading it gives the same configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let rows = rows();
        for row in rows.iter().filter(|row| !row.key.contains('.')) {
            setting(&mut text, row, row.key, &self.settings);
        }
        for (section, of) in SECTIONS {
            let _ = write!(text, "\n{}[{section}]\n", wrapped("#", of));
            for row in &rows {
                if row.key.split_once('.').is_some_and(|(of, _)| of == *section) {
                    setting(&mut text, row, row.field(), &self.settings);
                }
            }
        }
        for group in &self.group_settings {
            text += "\n[[group]]\n";
            group_rows().iter().for_each(|row| setting(&mut text, row, row.field(), group));
        }
        for tenant in &self.tenants {
            text += "\n[[tenant]]\n";
            tenant_rows().iter().for_each(|row| setting(&mut text, row, row.field(), tenant));
        }
        text
    }
}

fn setting<S>(text: &mut String, row: &Row<S>, name: &str, owner: &S) {
    text.push_str(&wrapped("#", &format!("{} — {}", row.words, (row.allowed)())));
    let _ = writeln!(text, "{name} = {}", (row.toml)(owner));
}

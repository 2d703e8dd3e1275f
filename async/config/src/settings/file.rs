//! Reads TOML into a draft, key by key, so that each error names its line.

use super::draft::Draft;
use super::error::{Fault, Origin};
use super::lists::{GroupSettings, TenantSettings, group_rows, tenant_rows};
use super::nearest::{model_meant, nearest};
use super::raw::Raw;
use super::table::{Row, SECTIONS, Settings, rows};
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// The lists of tables.
pub(super) const LISTS: [&str; 2] = ["group", "tenant"];

struct Reader<'b> {
    builder: &'b mut Draft,
    name: Arc<str>,
    /// The offset at which each line begins.
    lines: Vec<usize>,
    rows: Vec<Row<Settings>>,
    /// Errors with their offsets.
    faults: Vec<(usize, Fault)>,
}

/// Reads a file's bytes.
pub(super) fn read(builder: &mut Draft, name: &str, bytes: &[u8]) {
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let lines = std::iter::once(0).chain(starts).collect();
    let mut reader = Reader { builder, name: name.into(), lines, rows: rows(), faults: Vec::new() };
    match std::str::from_utf8(bytes) {
        Err(error) => reader.syntax(error.valid_up_to(), "not UTF-8".to_owned()),
        Ok(text) => {
            let (table, errors) = DeTable::parse_recoverable(text);
            let at = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
            // Later errors may be consequences of the first.
            match errors.iter().min_by_key(|error| at(error)) {
                Some(error) => reader.syntax(at(error), error.message().replace('\n', ", ")),
                None => reader.table("", table.get_ref()),
            }
        }
    }
    reader.faults.sort_by_key(|(at, _)| *at);
    let Reader { builder, faults, .. } = reader;
    builder.faults.extend(faults.into_iter().map(|(_, fault)| fault));
}

impl Reader<'_> {
    fn origin(&self, at: usize) -> Origin {
        let line = self.lines.partition_point(|start| *start <= at);
        Origin::File { name: Arc::clone(&self.name), line: u32::try_from(line).unwrap_or(u32::MAX) }
    }

    fn syntax(&mut self, at: usize, why: String) {
        let origin = self.origin(at);
        self.faults.push((at, Fault::Syntax { origin, why }));
    }

    fn value(&mut self, at: usize, key: String, raw: &Raw<'_>, allowed: String) {
        let origin = self.origin(at);
        self.faults.push((at, Fault::Value { key, value: raw.to_string(), origin, allowed }));
    }

    fn unknown(&mut self, at: usize, key: String, known: Vec<String>) {
        let (origin, nearest) = (self.origin(at), nearest(&key, known));
        self.faults.push((at, Fault::UnknownKey { key, origin, nearest }));
    }

    /// The settings below `prefix`, which is empty or ends with a dot.
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let (at, value) = (name.span().start, value.get_ref());
            let key = format!("{prefix}{}", name.get_ref());
            let row = self.rows.iter().position(|row| row.key == key);
            let is_section = SECTIONS.iter().any(|(section, _)| *section == key);
            match (row, value) {
                (Some(row), value) => self.setting(at, row, value),
                (None, DeValue::Array(entries)) if LISTS.contains(&key.as_str()) => {
                    self.list(at, &key, entries)
                }
                (None, value) if LISTS.contains(&key.as_str()) => {
                    let allowed = format!("a list of tables, [[{key}]]");
                    self.value(at, key, &Raw::of(value), allowed);
                }
                (None, DeValue::Table(inner)) if is_section || !inner.is_empty() => {
                    self.table(&format!("{key}."), inner);
                }
                (None, value) if is_section => {
                    let allowed = format!("a table of settings, [{key}]");
                    self.value(at, key, &Raw::of(value), allowed);
                }
                _ => {
                    let known = self.rows.iter().map(|row| row.key);
                    let known = known.chain(LISTS).map(str::to_owned).collect();
                    self.unknown(at, key, known);
                }
            }
        }
    }

    fn setting(&mut self, at: usize, row: usize, value: &DeValue<'_>) {
        let (origin, raw, row) = (self.origin(at), Raw::of(value), &self.rows[row]);
        // Read even if a stronger value exists: a wrong value is an error in any case.
        let Some(changed) = row.with(&self.builder.settings, &raw) else {
            let (key, allowed) =
                (row.key.to_owned(), (row.allowed)() + &model_meant(row.key, &raw.to_string()));
            return self.value(at, key, &raw, allowed);
        };
        if origin.strength() >= self.builder.origins.of(row.key).strength() {
            self.builder.settings = changed;
            self.builder.origins.set(row.key, origin);
        }
    }

    fn list(&mut self, at: usize, list: &str, entries: &[toml::Spanned<DeValue<'_>>]) {
        let mut groups = Vec::new();
        let mut tenants = Vec::new();
        let mut origins = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let (at, entry_key) = (entry.span().start, format!("{list}[{i}]"));
            let DeValue::Table(table) = entry.get_ref() else {
                self.value(at, entry_key, &Raw::of(entry.get_ref()), format!("a table, [[{list}]]"));
                continue;
            };
            origins.push((entry_key.clone(), self.origin(at)));
            if list == "group" {
                let mut group = GroupSettings::default();
                self.entry(&entry_key, &group_rows(), &mut group, table, &mut origins);
                groups.push(group);
            } else {
                let mut tenant = TenantSettings::default();
                self.entry(&entry_key, &tenant_rows(), &mut tenant, table, &mut origins);
                tenants.push(tenant);
            }
        }
        let origin = self.origin(at);
        if self.builder.begin_list(list, &origin) {
            self.builder.groups.append(&mut groups);
            self.builder.tenants.append(&mut tenants);
            origins.into_iter().for_each(|(key, origin)| self.builder.origins.set(key, origin));
        }
    }

    fn entry<S: Clone>(
        &mut self,
        entry: &str,
        rows: &[Row<S>],
        owner: &mut S,
        table: &DeTable<'_>,
        origins: &mut Vec<(String, Origin)>,
    ) {
        for (name, value) in table.iter() {
            let (at, key) = (name.span().start, format!("{entry}.{}", name.get_ref()));
            let Some(row) = rows.iter().find(|row| row.field() == name.get_ref().as_ref()) else {
                self.unknown(at, key, rows.iter().map(|row| row.key_in(entry)).collect());
                continue;
            };
            let raw = Raw::of(value.get_ref());
            match row.with(owner, &raw) {
                Some(changed) => {
                    *owner = changed;
                    origins.push((key, self.origin(at)));
                }
                None => self.value(at, key, &raw, (row.allowed)()),
            }
        }
    }
}

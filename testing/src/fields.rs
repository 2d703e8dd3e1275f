//! Fields that files other than their struct's touch: a struct with many users of
//! its fields keeps no invariant.
//!
//! ```text
//!   pub(crate) struct Staging { pub(crate) free: Vec<u32> }     in staging.rs
//!   group.staging.free                                          in room.rs: a user of the field
//! ```
//!
//! A private field has no users; the compiler ensures that. A field that holds an owner (a type with private
//! fields, or with owners in its fields) is the way to that owner, and is not counted. Neither is a `pub`
//! field: it is the crate's interface. This reads text: a file touches a field if it has `.name` without a
//! call. If several structs have a field of that name, only a file that names the struct touches its field.

use crate::arrows::{code, collect};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A field that is visible outside of its file.
#[derive(Debug)]
pub struct Field {
    /// The file of its struct.
    pub file: PathBuf,
    /// Its struct.
    pub owner: String,
    /// Its name.
    pub name: String,
    /// Other files that touch it.
    pub users: Vec<PathBuf>,
}

/// A struct's field, as declared in its file.
struct Declared {
    name: String,
    kind: String,
    /// `pub(crate)` and similar.
    is_shared: bool,
    is_public: bool,
}

struct Struct {
    file: PathBuf,
    name: String,
    fields: Vec<Declared>,
}

/// Returns the shared fields of structs in some folders of a crate's sources,
/// those with the most users first.
///
/// # Panics
/// If the sources cannot be read.
#[must_use]
pub fn shared_fields(src: &Path, folders: &[&str]) -> Vec<Field> {
    let mut files = BTreeMap::new();
    collect(src, src, &mut files);
    let texts: BTreeMap<PathBuf, String> = files
        .into_values()
        .map(|path| (path.clone(), code(&fs::read_to_string(path).expect("a source"))))
        .collect();
    let structs: Vec<Struct> = texts.iter().flat_map(|(path, text)| structs(path, text)).collect();
    let owners = owners(&structs);
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for field in structs.iter().flat_map(|of| &of.fields) {
        *named.entry(&field.name).or_default() += 1;
    }
    let mut all = Vec::new();
    for of in structs.iter().filter(|of| folders.iter().any(|folder| of.file.starts_with(src.join(folder)))) {
        let counted = |field: &&Declared| field.is_shared && !names_any(&field.kind, &owners);
        for field in of.fields.iter().filter(counted) {
            let is_user = |(path, text): &(&PathBuf, &String)| {
                **path != of.file
                    && (named[&*field.name] == 1 || has_word(text, &of.name))
                    && touches(text, &field.name)
            };
            let users = texts.iter().filter(is_user).map(|(path, _)| path.clone()).collect();
            all.push(Field {
                file: of.file.clone(),
                owner: of.name.clone(),
                name: field.name.clone(),
                users,
            });
        }
    }
    all.sort_by_key(|field| std::cmp::Reverse(field.users.len()));
    all
}

/// Returns the structs that have private fields only, or fields of such structs.
fn owners(structs: &[Struct]) -> BTreeSet<String> {
    let mut owners = BTreeSet::new();
    loop {
        let keeps = |of: &&Struct| {
            !of.fields.is_empty()
                && of
                    .fields
                    .iter()
                    .all(|field| !field.is_public && (!field.is_shared || names_any(&field.kind, &owners)))
        };
        let all: BTreeSet<String> = structs.iter().filter(keeps).map(|of| of.name.clone()).collect();
        if all == owners {
            return owners;
        }
        owners = all;
    }
}

/// Returns the structs of a text.
fn structs(path: &Path, text: &str) -> Vec<Struct> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices("struct ") {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        if !before.is_empty() && !before.starts_with("pub") {
            continue;
        }
        let rest = &text[at + "struct ".len()..];
        let name: String = rest.chars().take_while(|of| of.is_alphanumeric() || *of == '_').collect();
        let open = rest.find(['{', '(', ';']).filter(|_| !name.is_empty());
        let Some(open) = open else { continue };
        let body = match &rest[open..=open] {
            "{" => rest[open + 1..].split("\n}").next(),
            "(" => rest[open + 1..].split(");").next(),
            _ => None,
        };
        let is_tuple = &rest[open..=open] == "(";
        let parts = split(body.unwrap_or_default());
        let fields = parts.iter().enumerate().filter_map(|(at, part)| declared(part, is_tuple.then_some(at)));
        all.push(Struct { file: path.to_owned(), name, fields: fields.collect() });
    }
    all
}

/// Parses a field from its text; a field of a tuple is named by its place.
fn declared(part: &str, place: Option<usize>) -> Option<Declared> {
    let mut rest = part.trim();
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute.split_once(']')?.1.trim();
    }
    let is_public = rest.starts_with("pub ");
    let is_shared = rest.starts_with("pub(");
    if is_shared {
        rest = rest.split_once(')')?.1.trim();
    } else if is_public {
        rest = rest["pub ".len()..].trim();
    }
    let (name, kind) = match place {
        Some(place) => (place.to_string(), rest.to_owned()),
        None => rest.split_once(':').map(|(name, kind)| (name.trim().to_owned(), kind.to_owned()))?,
    };
    (!rest.is_empty()).then_some(Declared { name, kind, is_shared, is_public })
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut all, mut from, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, of) in text.char_indices() {
        match of {
            '(' | '[' | '<' | '{' => depth += 1,
            ')' | ']' | '>' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[from..]);
    all
}

/// Returns whether a text has `.name` without a call.
fn touches(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let after = &text[at + name.len()..];
        let ends = !after.starts_with(|of: char| of.is_alphanumeric() || of == '_' || of == '(');
        text[..at].trim_end().ends_with('.') && !text[..at].trim_end().ends_with("..") && ends
    })
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |of: char| of.is_alphanumeric() || of == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

fn names_any(text: &str, words: &BTreeSet<String>) -> bool {
    text.split(|of: char| !of.is_alphanumeric() && of != '_').any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_fields_make_an_owner() {
        let text = "pub(crate) struct A {\n    one: Vec<u8>,\n}\nstruct B(pub(crate) A, u8);\nstruct C {\n    \
                    pub(crate) of: u8,\n}\n";
        let all = structs(Path::new("a.rs"), text);
        assert_eq!(all.iter().map(|of| of.fields.len()).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(owners(&all).into_iter().collect::<Vec<_>>(), ["A", "B"]);
    }

    #[test]
    fn call_is_no_use_of_a_field() {
        assert!(touches("let a = b\n    .len;", "len"));
        assert!(!touches("b.len(); length; b.len_of; 0..len", "len"));
    }
}

//! The paths that documents and comments name, and whether they exist.
//!
//! ```text
//!   `core/src/slot/`, `state.rs`     a path from the root; one beside it, named in the same paragraph or row
//!   [core](core/README.md#memory)    a link, from the document's folder; its heading, too
//!   `ffi/src/{arena,copy}/*.rs`      each name of the braces, and at least one file for a star
//! ```
//!
//! Between backticks a word is a path from the root if it begins with one of the root's folders. Any
//! other word that ends like a source's name is a file of the root, or beside the document, or beside or
//! below another path of its paragraph. `foo` and `<name>` stand for any name. In comments, paths from
//! the root count, and in a header's table of files the names of its first column: these are beside the
//! source, below it, or below its crate's root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The endings of sources' names.
const ENDINGS: [&str; 6] = [".rs", ".sh", ".cu", ".cuh", ".toml", ".txt"];

/// Returns whether a word between backticks is the name of a source, or of several. Settings have no `/`
/// and no `_.` before their ending.
fn is_source(word: &str) -> bool {
    let named = |of: char| of.is_ascii_alphanumeric() || "_-./*{},".contains(of);
    word.chars().all(named)
        && ENDINGS.iter().any(|ending| word.ends_with(ending))
        && !word.starts_with(['.', '/'])
}

/// The files and folders of a repository, by their paths from its root.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    paths: BTreeSet<String>,
    /// The root's folders, each with a slash at its end.
    tops: BTreeSet<String>,
}

impl Tree {
    /// Lists the files and folders under a root, except build outputs.
    ///
    /// # Panics
    /// If a folder cannot be read.
    #[must_use]
    pub fn of(root: &Path) -> Tree {
        let (mut paths, mut folders) = (BTreeSet::new(), vec![PathBuf::new()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder)).expect("a folder") {
                let entry = entry.expect("an entry");
                let path = folder.join(entry.file_name());
                if entry.file_type().expect("a type").is_dir() {
                    if [".git", "target", "corpus", "artifacts", "bundle"].iter().any(|of| path.ends_with(of))
                    {
                        continue;
                    }
                    folders.push(path.clone());
                }
                paths.insert(path.to_str().expect("a name").to_owned());
            }
        }
        let tops = paths.iter().filter(|path| !path.contains('/') && root.join(path).is_dir());
        let tops = tops.map(|path| format!("{path}/")).collect();
        Tree { root: root.to_owned(), paths, tops }
    }

    /// Returns the documents: Markdown files of the root and under some of its folders, by their paths.
    pub fn documents<'t>(&'t self, of: &'t [&str]) -> impl Iterator<Item = &'t str> {
        let paths = self.paths.iter().map(String::as_str).filter(|path| path.ends_with(".md"));
        paths.filter(|path| path.split_once('/').is_none_or(|(top, _)| of.contains(&top)))
    }

    /// Returns the paths and links of a document that do not exist, each with its line.
    ///
    /// # Panics
    /// If the document cannot be read.
    #[must_use]
    pub fn missing(&self, document: &str) -> Vec<String> {
        let text = self.read(document);
        let folder = Path::new(document).parent().expect("a folder").to_str().expect("a name");
        let mut missing = BTreeMap::new();
        for paragraph in paragraphs(&text) {
            // Folders in which a name of this paragraph may be.
            let mut beside = BTreeSet::from([folder.to_owned(), String::new()]);
            let mut names = Vec::new();
            let mut is_code = false;
            for (line, text) in &paragraph {
                names.extend(words(text, &mut is_code).map(|word| (*line, word)));
                for link in links(text).filter(|link| !self.has_link(document, link)) {
                    missing.insert((*line, link.to_owned()), ());
                }
            }
            names.retain(|(_, name)| !name.contains('<') && !name.starts_with("foo"));
            let is_full = |name: &str| self.tops.iter().any(|top| name.starts_with(top));
            let (full, bare): (Vec<_>, Vec<_>) = names.into_iter().partition(|(_, name)| is_full(name));
            for (line, name) in full {
                for one in braces(name) {
                    let found = self.find(&one);
                    if found.is_empty() {
                        missing.insert((line, one), ());
                    }
                    found.iter().for_each(|path| note_folders(path, &mut beside));
                }
            }
            for (line, name) in bare.into_iter().filter(|(_, name)| is_source(name)) {
                for one in braces(name) {
                    let found: Vec<_> = beside.iter().flat_map(|of| self.find(&join(of, &one))).collect();
                    if found.is_empty() {
                        missing.insert((line, one), ());
                    }
                    found.iter().for_each(|path| note_folders(path, &mut beside));
                }
            }
        }
        missing.into_keys().map(|(line, name)| format!("{document}:{line}: {name}")).collect()
    }

    /// Documents, sources and manifests, by their paths.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let is_text = |path: &&str| [".md", ".rs", "/Cargo.toml"].iter().any(|ending| path.ends_with(ending));
        self.paths.iter().map(String::as_str).filter(is_text)
    }

    /// Returns the sources under some of the root's folders, by their paths.
    pub fn sources<'t>(&'t self, of: &'t [&str]) -> impl Iterator<Item = &'t str> {
        let paths = self.paths.iter().map(String::as_str).filter(|path| path.ends_with(".rs"));
        paths.filter(|path| of.iter().any(|top| path.starts_with(&format!("{top}/"))))
    }

    /// Returns the paths in a source's comments that do not exist, each with its line.
    ///
    /// # Panics
    /// If the source cannot be read.
    #[must_use]
    pub fn missing_in_comments(&self, source: &str) -> Vec<String> {
        let module = source.trim_end_matches(".rs");
        let folder = module.rsplit_once('/').map_or("", |(folder, _)| folder);
        let root = source.split_once("/src/").map_or_else(String::new, |(root, _)| format!("{root}/src"));
        let mut missing = Vec::new();
        for (line, text) in self.read(source).lines().enumerate() {
            let Some((_, comment)) = text.split_once("//") else { continue };
            let words = comment.split(|of: char| of.is_whitespace() || "`()[]|:;\"'".contains(of));
            let words = words.map(|word| word.trim_end_matches(['.', ',']));
            let names = words.filter(|word| self.tops.iter().any(|top| word.starts_with(top)));
            let names = names.filter(|name| is_source(name) || name.ends_with('/'));
            let gone = names.flat_map(braces).filter(|name| self.find(name).is_empty());
            missing.extend(gone.map(|name| format!("{source}:{}: {name}", line + 1)));
            let row = comment.strip_prefix("! | ").or_else(|| comment.strip_prefix(" | "));
            let Some(row) = row else { continue };
            let cell = row.split(" | ").next().unwrap_or_default();
            for name in cell.split('`').skip(1).step_by(2).filter(|name| is_source(name)) {
                let places = [join(folder, name), join(module, name), join(&root, name)];
                if places.iter().all(|place| self.find(place).is_empty()) {
                    missing.push(format!("{source}:{}: {name}", line + 1));
                }
            }
        }
        missing
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).expect("a document")
    }

    /// Returns the paths that match a name with stars.
    fn find(&self, name: &str) -> Vec<String> {
        let name = name.trim_end_matches('/');
        if !name.contains('*') {
            return self.paths.get(name).into_iter().cloned().collect();
        }
        let parts: Vec<&str> = name.split('/').collect();
        let fits = |path: &&String| matches_parts(&parts, &path.split('/').collect::<Vec<_>>());
        self.paths.iter().filter(fits).cloned().collect()
    }

    fn has_link(&self, document: &str, link: &str) -> bool {
        let (target, heading) = link.split_once('#').unwrap_or((link, ""));
        let folder = Path::new(document).parent().expect("a folder");
        let target = if target.is_empty() { document.to_owned() } else { plain(&folder.join(target)) };
        let exists = target.is_empty() || self.paths.contains(target.trim_end_matches('/'));
        exists && (heading.is_empty() || headings(&self.read(&target)).contains(heading))
    }
}

/// Returns paragraphs, and rows of tables, each with the numbers of its lines. Text between fences is
/// left out.
fn paragraphs(text: &str) -> Vec<Vec<(usize, &str)>> {
    let (mut all, mut paragraph, mut is_fenced) = (Vec::new(), Vec::new(), false);
    for (line, text) in text.lines().enumerate() {
        let fence = text.trim_start().starts_with("```");
        let row = text.starts_with('|');
        if fence || text.trim().is_empty() || row {
            all.push(std::mem::take(&mut paragraph));
        }
        is_fenced ^= fence;
        if !fence && !is_fenced && !text.trim().is_empty() {
            paragraph.push((line + 1, text));
        }
        if row {
            all.push(std::mem::take(&mut paragraph));
        }
    }
    all.push(paragraph);
    all
}

/// Returns the words between backticks, without the punctuation around them. Backticks may close in a
/// later line.
fn words<'t>(line: &'t str, is_code: &mut bool) -> impl Iterator<Item = &'t str> {
    let begins = usize::from(!*is_code);
    *is_code ^= line.matches('`').count() % 2 == 1;
    let spans = line.split('`').skip(begins).step_by(2);
    spans.flat_map(str::split_whitespace).map(|word| word.trim_matches(|of| "()[],;:\"'".contains(of)))
}

/// Returns the targets of links to files.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' '))
}

/// Expands `a{b,c}` to `ab` and `ac`.
fn braces(name: &str) -> Vec<String> {
    let Some((head, (inner, tail))) =
        name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)))
    else {
        return vec![name.to_owned()];
    };
    let tails = braces(tail);
    let all = inner.split(',').flat_map(|one| tails.iter().map(move |tail| format!("{head}{one}{tail}")));
    all.collect()
}

/// Matches a path with a pattern: `**` is any number of folders, `*` any part of a name.
fn matches_parts(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skipped| matches_parts(rest, &path[skipped..])),
        ([one, rest @ ..], [name, names @ ..]) => matches_name(one, name) && matches_parts(rest, names),
        _ => false,
    }
}

fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|of| matches_name(tail, of)))
        }),
    }
}

/// Adds the folders that a path offers for other names: its own folder, and the folder that it is or
/// that holds its modules.
fn note_folders(path: &str, beside: &mut BTreeSet<String>) {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    beside.insert(parent.to_owned());
    beside.insert(path.trim_end_matches(".rs").to_owned());
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Removes `.` and `..` from a path.
fn plain(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = parts.pop(),
            Component::Normal(name) => parts.push(name.to_str().expect("a name")),
            _ => {}
        }
    }
    parts.join("/")
}

/// Returns headings in the form that links use.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    let kept = |of: &char| of.is_alphanumeric() || "-_ ".contains(*of);
    titles
        .map(|title| title.trim_start_matches('#').trim().to_lowercase())
        .map(|title| title.chars().filter(kept).map(|of| if of == ' ' { '-' } else { of }).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> Tree {
        let mut all = BTreeSet::new();
        for path in paths {
            all.extend(Path::new(path).ancestors().map(plain).filter(|of| !of.is_empty()));
        }
        let tops = BTreeSet::from(["core/".to_owned()]);
        Tree { root: PathBuf::new(), paths: all, tops }
    }

    #[test]
    fn stars_and_braces_stand_for_paths() {
        let tree = tree(&["core/src/a.rs", "core/src/b/c.rs", "core/src/b/d/c.rs"]);
        assert_eq!(tree.find("core/src/*.rs"), ["core/src/a.rs"]);
        assert_eq!(tree.find("core/**/c.rs"), ["core/src/b/c.rs", "core/src/b/d/c.rs"]);
        assert_eq!(tree.find("core/src/b/"), ["core/src/b"]);
        assert!(tree.find("core/src/b/*/e.rs").is_empty());
        assert_eq!(braces("x/{a,b}.{c,d}"), ["x/a.c", "x/a.d", "x/b.c", "x/b.d"]);
    }

    #[test]
    fn words_between_backticks_are_names() {
        let line = "see `core/a.rs`, `cargo run -- core/b` and core/c; [x](core/d.md#e), [y](https://z)";
        let mut is_code = false;
        let all: Vec<_> = words(line, &mut is_code).collect();
        assert_eq!(all, ["core/a.rs", "cargo", "run", "--", "core/b"]);
        assert_eq!(
            words("a `b", &mut is_code).chain(words("c` d", &mut true)).collect::<Vec<_>>(),
            ["b", "c"]
        );
        assert!(is_code);
        assert_eq!(links(line).collect::<Vec<_>>(), ["core/d.md#e"]);
        assert!(is_source("queue/tests.rs") && !is_source("disk.rs = 1") && !is_source("metrics.listen"));
    }

    #[test]
    fn rows_and_fences_end_a_paragraph() {
        let text = "a\nb\n\n| c |\n| d |\n```text\ne\n```\nf\n";
        let all: Vec<Vec<usize>> =
            paragraphs(text).iter().map(|of| of.iter().map(|(line, _)| *line).collect()).collect();
        let all: Vec<_> = all.into_iter().filter(|of: &Vec<usize>| !of.is_empty()).collect();
        assert_eq!(all, [vec![1, 2], vec![4], vec![5], vec![9]]);
    }

    #[test]
    fn heading_is_linked_by_its_words() {
        assert!(headings("# The `façade`, once\n").contains("the-façade-once"));
    }
}

//! Imports between the files of a crate (the arrows), and the circles that they form.
//!
//! ```text
//!   use crate::transfer::{Cause, Queue} transfer/mod.rs has `pub use failure::Cause`: an arrow to failure.rs
//!   super::inner::Inner                 an arrow to inner.rs, wherever it is in the text
//! ```
//!
//! An import of a re-exported name is an arrow to the file that declares it, so re-exports themselves
//! are no arrows. Comments and test code are left out. This reads text and knows no macro: a path that
//! it cannot resolve is no arrow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path in its crate: none is the root.
type Module = Vec<String>;

/// The files of a crate, and the arrows between them.
#[derive(Debug)]
pub struct Arrows {
    files: BTreeMap<Module, PathBuf>,
    arrows: BTreeMap<Module, BTreeSet<Module>>,
}

impl Arrows {
    /// Reads the arrows of the sources under a folder with `lib.rs` as its root.
    ///
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn of(src: &Path) -> Arrows {
        let mut files = BTreeMap::new();
        collect(src, src, &mut files);
        let texts: BTreeMap<&Module, String> = files
            .iter()
            .map(|(module, path)| (module, code(&fs::read_to_string(path).expect("a source"))))
            .collect();
        let exports: BTreeMap<&Module, BTreeMap<String, Module>> =
            texts.iter().map(|(module, text)| (*module, exports(module, text, &files))).collect();
        let mut arrows = BTreeMap::new();
        for (module, text) in &texts {
            let to = paths(text).into_iter().filter_map(|path| resolve(module, &path, &files, &exports));
            let to: BTreeSet<Module> = to.filter(|to| to != *module && !to.is_empty()).collect();
            arrows.insert((*module).clone(), to);
        }
        Arrows { files, arrows }
    }

    /// Returns the number of arrows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.arrows.values().map(BTreeSet::len).sum()
    }

    /// The arrows from one module to another, each including the modules below: `["policy", "reuse"]`.
    #[must_use]
    pub fn between(&self, from: &[&str], to: &[&str]) -> Vec<(PathBuf, PathBuf)> {
        let below = |module: &Module, of: &[&str]| {
            module.len() >= of.len() && module.iter().zip(of).all(|(a, b)| a == b)
        };
        let of = self.arrows.iter().filter(|(module, _)| below(module, from));
        let arrows = of.flat_map(|(module, all)| all.iter().map(move |end| (module, end)));
        let arrows = arrows.filter(|(_, end)| below(end, to));
        arrows.map(|(module, end)| (self.files[module].clone(), self.files[end].clone())).collect()
    }

    /// Returns the circles of files, the largest first: sets of files that all reach each other.
    #[must_use]
    pub fn file_circles(&self) -> Vec<Vec<PathBuf>> {
        let circles = circles(&self.arrows);
        circles.into_iter().map(|of| of.iter().map(|module| self.files[module].clone()).collect()).collect()
    }

    /// Returns the circles of the modules at the crate's root.
    #[must_use]
    pub fn module_circles(&self) -> Vec<Vec<String>> {
        let mut modules: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, to) in self.arrows.iter().filter(|(from, _)| !from.is_empty()) {
            let top = |module: &Module| vec![module[0].clone()];
            let arrows = modules.entry(top(from)).or_default();
            arrows.extend(to.iter().map(top).filter(|to| *to != top(from)));
        }
        circles(&modules).into_iter().map(|of| of.into_iter().flatten().collect()).collect()
    }
}

/// Collects the module files below a folder, without tests.
pub(crate) fn collect(src: &Path, folder: &Path, files: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if stem != "tests" && stem != "bin" {
                collect(src, &path, files);
            }
        } else if path.extension().is_some_and(|of| of == "rs")
            && !["tests", "main", "models"].contains(&&*stem)
        {
            let parts = path.strip_prefix(src).expect("below").with_extension("");
            let mut module: Module =
                parts.iter().filter_map(|part| part.to_str()).map(str::to_owned).collect();
            if ["mod", "lib"].contains(&&*stem) {
                module.pop();
            }
            files.insert(module, path);
        }
    }
}

/// Returns the text without comments, and without each item behind a `#[cfg(…test…)]`.
pub(crate) fn code(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let bare = line.split("//").next().unwrap_or_default();
        if bare.trim_start().starts_with("#[cfg(") && bare.contains("test") && !bare.contains("not(test)") {
            let mut depth = 0_i32;
            for line in lines.by_ref() {
                depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
                let ends = line.trim_end().ends_with([';', '}', ',']);
                if depth <= 0 && ends {
                    break;
                }
            }
            continue;
        }
        out.push_str(bare);
        out.push('\n');
    }
    out
}

/// Returns each path from `crate`, `super` or `self` in a text; a path with braces counts as several.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (at, _) in text.char_indices() {
        let begins = ["crate::", "super::", "self::"].iter().any(|head| text[at..].starts_with(head));
        let before = text[..at].chars().next_back();
        if !begins || before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':')
        {
            continue;
        }
        // The names of a re-export are found where they are used.
        let line = text[..at].rfind(['\n', ';', '}']).map_or(0, |end| end + 1);
        if text[line..at].trim_start().starts_with("pub") && text[line..at].trim_end().ends_with("use") {
            continue;
        }
        tree(&mut text[at..].chars().peekable(), Vec::new(), &mut all);
    }
    all
}

/// Reads `a::b::{c, d::{e}}`.
fn tree(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    mut path: Vec<String>,
    all: &mut Vec<Vec<String>>,
) {
    loop {
        while chars.next_if(|of| of.is_whitespace()).is_some() {}
        let mut name = String::new();
        while let Some(of) = chars.next_if(|of| of.is_alphanumeric() || *of == '_') {
            name.push(of);
        }
        if !name.is_empty() {
            path.push(name);
        }
        let goes_on = chars.next_if_eq(&':').is_some() && chars.next_if_eq(&':').is_some();
        if !goes_on {
            break all.push(path);
        }
        if chars.next_if_eq(&'{').is_some() {
            loop {
                tree(chars, path.clone(), all);
                // Skips `as` and its name, and the like.
                while chars.next_if(|of| !matches!(of, ',' | '}')).is_some() {}
                if chars.next() != Some(',') {
                    return;
                }
            }
        }
    }
}

/// Returns the names that a module re-exports, from the modules below it or from elsewhere.
fn exports(module: &Module, text: &str, files: &BTreeMap<Module, PathBuf>) -> BTreeMap<String, Module> {
    let mut all = BTreeMap::new();
    let mut rest = text;
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rfind(['\n', ';', '}']).map_or(0, |end| end + 1);
        let is_public = rest[line..at].trim_start().starts_with("pub");
        rest = &rest[at + 4..];
        let mut found = Vec::new();
        tree(&mut rest.chars().peekable(), Vec::new(), &mut found);
        for path in found.into_iter().filter(|_| is_public) {
            let Some(name) = path.last().cloned() else { continue };
            let none = BTreeMap::new();
            // A path relative to this module, or a full one.
            let local: Vec<String> = std::iter::once("self".to_owned()).chain(path.iter().cloned()).collect();
            let of = resolve(module, &path, files, &none).or_else(|| resolve(module, &local, files, &none));
            if let Some(of) = of.filter(|of| of != module) {
                all.insert(name, of);
            }
        }
    }
    all
}

/// Returns the module of the file that a path names.
fn resolve(
    from: &Module,
    path: &[String],
    files: &BTreeMap<Module, PathBuf>,
    exports: &BTreeMap<&Module, BTreeMap<String, Module>>,
) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        "self" => from.clone(),
        _ => return None,
    };
    for name in &path[1..] {
        if name == "super" {
            at.pop()?;
            continue;
        }
        let mut below = at.clone();
        below.push(name.clone());
        if files.contains_key(&below) {
            at = below;
        } else if let Some(of) = exports.get(&at).and_then(|names| names.get(name)) {
            return Some(of.clone());
        } else {
            break;
        }
    }
    files.contains_key(&at).then_some(at)
}

/// Returns the sets of more than one module that all reach each other, the largest first.
fn circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|from| (from, reached(arrows, from))).collect();
    let mut circles: Vec<Vec<Module>> = Vec::new();
    for from in arrows.keys() {
        let circle: Vec<Module> = reach[from]
            .iter()
            .filter(|to| reach.get(**to).is_some_and(|back| back.contains(from)))
            .map(|to| (*to).clone())
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reached<'a>(arrows: &'a BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(at) = todo.pop() {
        for to in arrows.get(at).into_iter().flatten() {
            if seen.insert(to) {
                todo.push(to);
            }
        }
    }
    seen
}

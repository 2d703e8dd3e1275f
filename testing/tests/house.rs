//! The house rules: modules of a crate import each other one way, few files are in a circle, the interface of
//! policies stays closed, fields of state have few users, and paths in documents and comments exist.

use kvstrata_testing::arrows::Arrows;
use kvstrata_testing::fields::shared_fields;
use kvstrata_testing::named_paths::Tree;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates, and the maximum size of a circle of their files. The figures only go down; a crate should
/// have at most four.
const CRATES: [(&str, usize); 11] = [
    ("core", 4),
    ("kernels", 4),
    ("ffi", 4),
    ("async/tiers", 4),
    ("async/store", 4),
    ("async/backends", 4),
    ("async/config", 4),
    ("async", 4),
    ("async/cli", 4),
    ("ffi/c", 4),
    ("ffi/python", 4),
];

fn src(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

#[test]
fn modules_of_a_crate_make_no_circle() {
    for (name, _) in CRATES {
        let circles = Arrows::of(&src(name)).module_circles();
        assert!(circles.is_empty(), "{name}: {circles:?}");
    }
}

#[test]
fn file_circles_do_not_grow() {
    for (name, most) in CRATES {
        let arrows = Arrows::of(&src(name));
        let circles = arrows.file_circles();
        let largest = circles.first().map_or(0, Vec::len);
        println!(
            "{name}: {} arrows, circles of {:?}",
            arrows.count(),
            circles.iter().map(Vec::len).collect::<Vec<_>>()
        );
        assert!(largest <= most, "{name}: {largest} files import each other: {:#?}", circles.first());
    }
}

/// The files of `core/src/policy/` that a pool file may import, besides `mod.rs`. None of them is a policy.
const SEAM: [&str; 5] = ["carried.rs", "eviction.rs", "order.rs", "scan.rs", "stats.rs"];

/// The maximum number of methods of the two traits through which a pool calls a policy, together.
const MOST_METHODS: usize = 12;

#[test]
fn pool_files_import_no_policy() {
    let arrows = Arrows::of(&src("core")).between(&["pool"], &["policy"]);
    let is_seam = |to: &Path| {
        to.parent() == Some(&src("core").join("policy")) && SEAM.iter().any(|file| to.ends_with(file))
    };
    assert!(arrows.iter().any(|(_, to)| is_seam(to)), "imports are seen");
    // A pool is built over a policy of any kind.
    let may = |from: &Path, to: &Path| {
        is_seam(to)
            || to.ends_with("policy/mod.rs")
            || (from.ends_with("pool/mod.rs") && to.ends_with("policy/any.rs"))
    };
    let wrong: Vec<_> = arrows.iter().filter(|(from, to)| !may(from, to)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Tests of the pool, too.
    for file in fs::read_dir(src("core").join("pool")).expect("the pool's files") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a source");
        assert!(!text.contains("reuse::") && !text.contains("AnyPolicy::Reuse"), "{}", path.display());
    }
}

/// The methods of a trait.
fn methods(file: &str, name: &str) -> usize {
    let text = fs::read_to_string(src("core").join(file)).expect("a source");
    let head = format!("trait {name} {{\n");
    let (_, rest) = text.split_once(&head).unwrap_or_else(|| panic!("{file} has no trait {name}"));
    let (body, _) = rest.split_once("\n}").expect("the end of the trait");
    assert!(!body.contains("reuse::"), "{file}: {name} names a policy");
    body.lines().filter(|line| line.starts_with("    fn ")).count()
}

#[test]
fn policy_traits_keep_few_methods() {
    let eviction = methods("policy/eviction.rs", "Eviction");
    let ordered = methods("policy/order.rs", "Ordered");
    println!("{eviction} methods of Eviction, {ordered} of Ordered");
    assert!(eviction > 0 && ordered > 0, "they are counted");
    assert!(eviction + ordered <= MOST_METHODS, "{eviction} methods of Eviction, {ordered} of Ordered");
}

/// Crates, their folders of state that changes, and the maximum number of users of a field outside of
/// its struct's file.
const STATES: [(&str, &[&str], usize); 1] = [("async/tiers", &["state"], 5)];

#[test]
fn fields_of_state_have_few_users() {
    for (name, folders, most) in STATES {
        let fields = shared_fields(&src(name), folders);
        assert!(!fields.is_empty(), "{name}: no field is found");
        let many: Vec<_> = fields.iter().filter(|field| field.users.len() > most).collect();
        println!("{name}: {} shared fields; users of the first: {}", fields.len(), fields[0].users.len());
        assert!(many.is_empty(), "{name}: fields with more than {most} users: {many:#?}");
    }
}

#[test]
fn paths_that_documents_name_exist() {
    let tree = Tree::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let folders = ["docs", "core", "kernels", "ffi", "async", "testing", "benches", "fuzz", "ci"];
    let documents: Vec<_> = tree.documents(&folders).collect();
    assert!(
        ["ARCHITECTURE.md", "core/README.md"].iter().all(|of| documents.contains(of)),
        "documents are found"
    );
    let missing: Vec<_> = documents.into_iter().flat_map(|document| tree.missing(document)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn paths_that_comments_name_exist() {
    let tree = Tree::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let sources: Vec<_> = tree.sources(&["core", "kernels", "ffi", "async", "testing"]).collect();
    assert!(sources.contains(&"core/src/lib.rs"), "sources are found");
    let missing: Vec<_> = sources.into_iter().flat_map(|source| tree.missing_in_comments(source)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Types with methods that an engine does not call.
const PLUMBING: [&str; 5] = ["Need", "StackParts", "Made", "DiskError", ""];

/// The files of this repository, as documentation links to them.
const LINK: &str = "[Example](https://github.com/kvstrata/kvstrata/blob/main/";

#[test]
fn public_methods_of_the_facade_have_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Tree::of(&root);
    let mut wrong = Vec::new();
    for path in tree.sources(&["async"]) {
        if !path.starts_with("async/tiers/src/calls/") && !path.starts_with("async/src/manager/") {
            continue;
        }
        let text = fs::read_to_string(root.join(path)).expect("a source");
        let (mut owner, mut doc) = (String::new(), String::new());
        for line in text.split("#[cfg(test)]").next().unwrap_or_default().lines() {
            if let Some(of) = line.strip_prefix("impl") {
                let name = of.rsplit(" for ").next().unwrap_or_default().trim_start();
                let name =
                    if name.starts_with('<') { name.split("> ").nth(1).unwrap_or_default() } else { name };
                owner = name.chars().take_while(|of| of.is_alphanumeric()).collect();
            }
            let line = line.trim_start();
            if line.starts_with("///") || line.starts_with("#[") {
                doc += line;
                continue;
            }
            let name = line.strip_prefix("pub ").and_then(|rest| rest.split_once("fn "));
            if let Some((_, rest)) = name.filter(|(before, _)| matches!(*before, "" | "const " | "async "))
                && !PLUMBING.contains(&owner.as_str())
                && !doc.contains("doc(hidden)")
                && !["```", "has an example"].iter().any(|own| doc.contains(own))
            {
                let name: String = rest.chars().take_while(|of| of.is_alphanumeric() || *of == '_').collect();
                let linked = doc.split(LINK).nth(1).and_then(|rest| rest.split(')').next());
                let text =
                    linked.and_then(|file| fs::read_to_string(root.join(file)).ok()).unwrap_or_default();
                if ![".", ":"].iter().any(|before| text.contains(&format!("{before}{name}("))) {
                    wrong.push(format!("{path}: {owner}::{name}"));
                }
            }
            doc.clear();
        }
    }
    assert!(wrong.is_empty(), "neither an example nor a link to one that calls it: {wrong:#?}");
}

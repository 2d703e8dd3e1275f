//! The house: modules of a crate import each other one way, few files stand in a circle, and fields have few users.

use kvstrata_testing::arrows::Arrows;
use kvstrata_testing::fields::shared_fields;
use std::path::{Path, PathBuf};

/// Crates, and the files of their largest circle. These only become fewer; four is what a crate should have at most.
const CRATES: [(&str, usize); 5] =
    [("core", 4), ("kernels", 4), ("ffi", 15), ("async/tiers", 4), ("async", 37)];

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

/// Crates, their folders of state that changes, and the users that a field has at most outside of its struct's file.
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

//! The examples do what they say: they check their own bytes, and end with an error if one is wrong.

use std::process::Command;

fn run(example: &str) {
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_kvstrata")).with_file_name("examples").join(example);
    if !path.exists() {
        return println!("SKIP {example}: `cargo test` builds it, unless told --test");
    }
    let output = Command::new(path).output().expect("it can be run");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{example}: {}\n{out}\n{err}", output.status);
    println!("{out}");
}

#[test]
fn engine() {
    run("engine");
}

#[test]
fn layerwise() {
    run("layerwise");
}

#[test]
fn warm_restart() {
    run("warm_restart");
}

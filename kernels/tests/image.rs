//! nvcc's output for the kernels, by architecture: nothing spilled, few registers, vector loads and stores.
//!
//! The images are read by `cuobjdump`: that of `KVSTRATA_CUOBJDUMP`, or beside the nvcc that
//! `KVSTRATA_NVCC` names, or in `PATH`.

use kvstrata_kernels::{Image, images, toolkit};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reports a skipped test; fails if the test is required.
fn skip(what: &str, why: &str) {
    let required = env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|one| one == what || one == "all"), "{what} is required, but {why}");
    println!("SKIP {what}: {why}");
}

fn cuobjdump() -> Option<PathBuf> {
    let beside = env::var_os("KVSTRATA_NVCC").map(|nvcc| Path::new(&nvcc).with_file_name("cuobjdump"));
    let asked = env::var_os("KVSTRATA_CUOBJDUMP").map(PathBuf::from);
    let in_path =
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("cuobjdump")).collect::<Vec<_>>();
    asked.into_iter().chain(beside).chain(in_path).find(|path| path.is_file())
}

/// Returns the output of `cuobjdump` for an image. It needs nvdisasm in `PATH`, which is in the same folder.
fn dump(cuobjdump: &Path, option: &str, image: &Image) -> String {
    let file =
        env::temp_dir().join(format!("kvstrata-{}-{}-{option}.fatbin", std::process::id(), image.name));
    std::fs::write(&file, image.bytes).expect("a temporary file");
    let paths = env::var_os("PATH").unwrap_or_default();
    let folder = cuobjdump.parent().expect("a file's folder").to_owned();
    let paths = env::join_paths([folder].into_iter().chain(env::split_paths(&paths))).expect("as they were");
    let output = Command::new(cuobjdump).arg(option).arg(&file).env("PATH", paths).output().expect("it runs");
    std::fs::remove_file(&file).expect("ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("ASCII")
}

/// A kernel of one architecture.
type Of = (String, String);

/// Returns the lines of each function's part of a dump, by the architecture and the function named
/// before them.
fn by_function(dump: &str) -> BTreeMap<Of, Vec<&str>> {
    let mut found: BTreeMap<Of, Vec<&str>> = BTreeMap::new();
    let (mut architecture, mut function) = ("", "");
    for line in dump.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("arch = ") {
            (architecture, function) = (name, "");
        } else if let Some(name) = line.strip_prefix("Function ").or(line.strip_prefix("Function : ")) {
            function = name.trim_start_matches(": ").trim_end_matches(':');
        } else if !function.is_empty() {
            found.entry((architecture.into(), function.into())).or_default().push(line);
        }
    }
    found
}

/// Returns the number after a word of a line such as `REG:31 STACK:0 SHARED:0 LOCAL:0`.
fn number(line: &str, word: &str) -> Option<u32> {
    line.split_whitespace().find_map(|part| part.strip_prefix(word)?.strip_prefix(':')?.parse().ok())
}

const ARCHITECTURES: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Maximum registers of a kernel: with 40, a multiprocessor of 65,536 registers has room for 1,536
/// threads; with 64, for 1,024.
fn most_registers(kernel: &str) -> u32 {
    match kernel.split('_').collect::<Vec<_>>()[..] {
        [_, "tiled", _] => 40,
        [_, "strewn", _] => 64,
        ["summed", _] | ["convert", ..] => 64,
        _ => 48,
    }
}

#[test]
fn kernels_keep_to_registers_and_move_vectors() {
    let images = match images() {
        Ok(images) => images,
        Err(why) => return skip("cuda-image", why),
    };
    println!("{}", toolkit());
    let Some(cuobjdump) = cuobjdump() else { return skip("cuobjdump", "it is not beside nvcc, nor in PATH") };
    for image in images {
        let usage = dump(&cuobjdump, "-res-usage", image);
        let usage = by_function(&usage);
        let code = dump(&cuobjdump, "-sass", image);
        let code = by_function(&code);
        for architecture in ARCHITECTURES {
            assert!(
                code.keys().any(|(of, _)| of == architecture),
                "{} has no code for {architecture}",
                image.name
            );
        }
        let ptx = dump(&cuobjdump, "-ptx", image);
        for target in [".target sm_80", ".target sm_120"] {
            assert!(ptx.contains(target), "{} has no PTX of {target}", image.name);
        }
        let names: BTreeSet<_> = image.kernels().map(|name| name.to_str().expect("ASCII")).collect();
        for architecture in ARCHITECTURES {
            let found = code.keys().filter(|of| of.0 == architecture).map(|of| of.1.as_str()).collect();
            assert_eq!(names, found, "{} for {architecture}", image.name);
        }
        assert_eq!(usage.keys().collect::<Vec<_>>(), code.keys().collect::<Vec<_>>());
        for (of, lines) in &usage {
            let line = lines.iter().find(|line| line.contains("REG:")).expect("its registers");
            for spilled in ["STACK", "LOCAL"] {
                assert_eq!(number(line, spilled), Some(0), "{of:?}: {line}");
            }
            let registers = number(line, "REG").expect("a number");
            assert!(registers <= most_registers(&of.1), "{of:?}: {line}");
        }
        for (of, lines) in &code {
            let count = |words: [&str; 2]| {
                lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
            };
            let wanted = match &of.1 {
                // A tile is four loads and four stores, for a whole tile and for one at the end of a piece.
                name if name.starts_with("copy16_tiled") => 8,
                name if name.starts_with("copy16") => 4,
                name if name.starts_with("permute16") => 1,
                name if name.starts_with("summed") => 2,
                _ => 0,
            };
            let found = [count(["LDG.E.EF", ".128"]), count(["STG.E.EF", ".128"])];
            assert!(
                found.iter().all(|found| *found >= wanted),
                "{of:?}: {found:?} of {wanted} vector loads and stores"
            );
            assert_eq!(count(["LDL", ""]) + count(["STL", ""]), 0, "{of:?} uses local memory");
        }
    }
}

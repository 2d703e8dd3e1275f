//! Compiles `cuda/*.cu`: by nvcc, if there is one, to fat binaries that the crate embeds; with the
//! feature `cpu`, by the host's compiler for the CPU.
//!
//! nvcc is `KVSTRATA_NVCC` (an absolute path), or that of `CUDA_HOME` or `CUDA_PATH`, or the one in
//! `PATH`, or that of `/usr/local/cuda`. An empty `KVSTRATA_NVCC=` builds without kernels.
//! `KVSTRATA_CUDA_ARCHS` sets the architectures, for example `90` or `80 90` if all of them take too
//! long; the default is all that this nvcc knows. If nvcc was only found and does not compile the
//! kernels, that is a warning, and the build continues without; if it was named, that is an error.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 4] = ["convert", "copy", "permute", "sum"];
/// A100, A10 and RTX 30, L4 and RTX 40, H100 and H200, B200, RTX 50; and PTX.
const ARCHITECTURES: &str = "80 86 89 90 100 120";

fn main() {
    println!("cargo:rerun-if-changed=cuda");
    // PATH is not watched, since it changes from shell to shell. After installing an nvcc there, name it
    // in KVSTRATA_NVCC, or clean this crate.
    for variable in ["KVSTRATA_NVCC", "KVSTRATA_CUDA_ARCHS", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let named = env::var_os("KVSTRATA_NVCC").is_some_and(|asked| !asked.is_empty());
    let compiled = nvcc().and_then(|nvcc| {
        println!("cargo:rerun-if-changed={}", nvcc.display());
        compile(&nvcc, &out).map_err(|why| {
            let why = format!("{}: {why}", nvcc.display());
            assert!(
                !named,
                "{why}\nname another nvcc in KVSTRATA_NVCC, or set it to nothing to build without kernels"
            );
            println!("cargo:warning=no kernels: {}; KVSTRATA_NVCC names another nvcc", first_line(&why));
            first_line(&why).to_owned()
        })
    });
    let (images, toolkit) = compiled.unwrap_or_else(|why| (String::new(), why));
    let code = format!("const IMAGES: &[Image] = &[{images}];\nconst TOOLKIT: &str = {toolkit:?};\n");
    fs::write(out.join("images.rs"), code).expect("OUT_DIR is there to be written");
    #[cfg(feature = "cpu")]
    cpu();
}

/// Returns the compiler, or the reason why there is none.
fn nvcc() -> Result<PathBuf, String> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(asked) = env::var_os("KVSTRATA_NVCC") {
        return match PathBuf::from(&asked) {
            _ if asked.is_empty() => Err("KVSTRATA_NVCC was empty when this was built".into()),
            path if path.is_file() => Ok(path),
            // Named explicitly, so a mistake must not be ignored.
            path => panic!("KVSTRATA_NVCC is {}, which is no file; give its absolute path", path.display()),
        };
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set).map(|home| home.join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = PathBuf::from("/usr/local/cuda/bin");
    let folders = homes.chain(env::split_paths(&path)).chain([usual]);
    let found = folders.map(|folder| folder.join("nvcc")).find(|nvcc| nvcc.is_file());
    found.ok_or_else(|| {
        "no nvcc in KVSTRATA_NVCC, CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda when this was built".into()
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the architectures to compile for.
fn architectures(nvcc: &Path) -> Result<Vec<String>, String> {
    let asked = env::var("KVSTRATA_CUDA_ARCHS").unwrap_or_default();
    if !asked.trim().is_empty() {
        return Ok(asked.split_whitespace().map(str::to_owned).collect());
    }
    let listed = run(Command::new(nvcc).arg("--list-gpu-arch"))?;
    let known =
        |architecture: &&str| listed.lines().any(|line| line.trim() == format!("compute_{architecture}"));
    let list: Vec<_> = ARCHITECTURES.split_whitespace().filter(known).map(str::to_owned).collect();
    if list.is_empty() {
        return Err(format!("it knows none of sm_{}", ARCHITECTURES.replace(' ', ", sm_")));
    }
    Ok(list)
}

/// Returns the output of a command, or the reason of its failure.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}\n{command:?}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns the images as Rust code, and their toolkit. All sources or none: half of the kernels are worse
/// than none.
fn compile(nvcc: &Path, out: &Path) -> Result<(String, String), String> {
    let list = architectures(nvcc)?;
    let mut images = String::new();
    for source in SOURCES {
        let image = out.join(source).with_extension("fatbin");
        let mut command = Command::new(nvcc);
        command
            .args(["-std=c++17", "-O3", "--threads", "2", "-Werror", "all-warnings", "-fatbin", "-o"])
            .arg(&image);
        for architecture in &list {
            command.arg(format!("-gencode=arch=compute_{architecture},code=sm_{architecture}"));
        }
        // PTX of the last for later architectures, of the first for those between.
        let ends: BTreeSet<_> = list.first().into_iter().chain(list.last()).collect();
        for end in ends {
            command.arg(format!("-gencode=arch=compute_{end},code=compute_{end}"));
        }
        run(command.arg(Path::new("cuda").join(source).with_extension("cu")))?;
        write!(images, "Image {{ name: {source:?}, bytes: include_bytes!({image:?}) }}, ")
            .expect("to a string");
    }
    let version = run(Command::new(nvcc).arg("--version")).unwrap_or_default();
    let version = version.lines().find(|line| line.contains("release")).unwrap_or("nvcc").trim();
    Ok((images, format!("{version}; sm_{} and PTX", list.join(", sm_"))))
}

#[cfg(feature = "cpu")]
fn cpu() {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").file("cuda/cpu/kernels.cpp");
    // Kernels unroll by a pragma unknown to host compilers.
    build.flag_if_supported("-Wno-unknown-pragmas").opt_level(2);
    if env::var_os("KVSTRATA_CPU_KERNELS_ASAN").is_some() {
        build.flag("-fsanitize=address").flag("-fno-omit-frame-pointer").debug(true);
    }
    println!("cargo:rerun-if-env-changed=KVSTRATA_CPU_KERNELS_ASAN");
    build.compile("kvstrata_cpu_kernels");
}

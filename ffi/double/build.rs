//! Gives the shared library the name by which CUDA's driver is looked for: once a test has loaded it by its path, the dynamic
//! linker answers a later search for `libcuda.so` with it, whatever is installed.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    }
}

//! Gives the shared library the name under which CUDA's driver is looked for. Once a test has loaded it
//! by its path, the dynamic linker answers a later search for `libcuda.so` with it, regardless of the
//! installed driver.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    }
}

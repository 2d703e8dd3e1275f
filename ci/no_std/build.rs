//! Links without start files, libc or libgcc: a symbol that neither this program nor the core has is missing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // No loader runs before `_start`, so relocations are not possible: static, at fixed addresses.
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}

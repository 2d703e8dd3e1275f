//! Links without start files, libc or libgcc: what is not in this program or in the core is missing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // No loader runs before `_start`, so nothing may need relocating: static, at fixed addresses.
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}

//! Arguments of the linker for libkvstrata.so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux") {
        // A program finds the library by this name, however it was named to the linker.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libkvstrata.so");
        // Threads and fork handlers of the library may outlive a dlclose, so the code stays mapped.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}

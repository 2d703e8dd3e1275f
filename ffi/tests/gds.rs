//! cuFile as it is installed here, or its absence: by the public API alone.

#[path = "../examples/gds_rate/device.rs"]
mod device;

use device::Cuda;
use kvstrata_ffi::gds::{GdsBuffer, GdsDriver, GdsError, GdsFile, GdsOptions, Route, Verification};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

const BYTES: usize = 1 << 20;

/// Prints why a test is left out, or fails where `KVSTRATA_REQUIRE` names what is missing.
fn skip(why: &dyn core::fmt::Display) {
    let required = std::env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == "gds"), "gds is required: {why}");
    println!("SKIP gds: {why}");
}

/// A file, and the folder that keeps its name: cuFile opens a file again by name. With O_DIRECT, where its file system has that.
fn file() -> (tempfile::TempDir, Arc<File>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("volume");
    File::create_new(&path).and_then(|file| file.set_len(BYTES as u64)).expect("room");
    let open = |flags| File::options().read(true).write(true).custom_flags(flags).open(&path);
    #[cfg(target_os = "linux")]
    let file = open(libc::O_DIRECT).or_else(|_| open(0));
    #[cfg(not(target_os = "linux"))]
    let file = open(0);
    (folder, Arc::new(file.expect("just created")))
}

#[test]
fn whatever_is_missing_the_answer_is_a_route() {
    let options = GdsOptions::new(0);
    let (_folder, file) = file();
    let route = Route::choose(&file, options, Verification::Required);
    assert!(matches!(route, Route::Bounce { .. }), "{route}");
    let route = Route::choose(&file, options, Verification::Skipped);
    println!("{route}");
    if let Route::Bounce { reason } = &route {
        assert!(reason.contains("; "), "says what to do: {reason}");
    }
    // A device that no machine has, or what is missing before it is asked for: an answer, and at once.
    match GdsDriver::open(GdsOptions::new(u32::MAX)) {
        Err(GdsError::LibraryMissing { library, .. }) => assert!(library.starts_with("libcu"), "{library}"),
        Err(
            GdsError::Cuda { device: u32::MAX, .. }
            | GdsError::SymbolMissing { .. }
            | GdsError::Unreadable { .. },
        ) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_survive_the_way_to_a_device_and_back() {
    let options = GdsOptions::new(0).allow_compat(true);
    let (driver, cuda) = match GdsDriver::open(options) {
        Ok(driver) => (driver, Cuda::open(0).expect("the driver needed it too")),
        Err(error) => return skip(&error),
    };
    let (_folder, file) = file();
    let file = match GdsFile::register(&driver, file, options) {
        Ok(file) => file,
        Err(error) => return skip(&error),
    };
    println!("{}", driver.describe());
    let memory = cuda.allocate(2 * BYTES).expect("2 MiB");
    let content: Vec<u8> = (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let mut back = vec![0; BYTES];
    for buffer in
        [GdsBuffer::register(&driver, memory.memory()), Ok(GdsBuffer::unregistered(&driver, memory.memory()))]
    {
        let Ok(buffer) = buffer.inspect_err(|error| println!("{error}")) else { continue };
        memory.copy_in(0, &content).expect("in range");
        memory.copy_in(BYTES, &vec![0xEE; BYTES]).expect("in range");
        file.write(buffer.range(0, BYTES).expect("in range"), 0).wait().expect("written");
        file.read(buffer.range(BYTES, BYTES).expect("in range"), 0).wait().expect("read");
        memory.copy_out(BYTES, &mut back).expect("in range");
        assert!(back == content, "other bytes came back: {buffer:?}");
    }
}

//! Opening and closing, and machines that lack something.

use super::super::driver::{GdsOptions, Mode, readable};
use super::super::error::GdsError;
use super::super::file::GdsFile;
use super::super::sys::{FEATURE_P2P, STATUS_NVME_P2P};
use super::fake::{Event, Fake};
use std::fs::File;
use std::sync::Arc;

fn file() -> Arc<File> {
    Arc::new(tempfile::tempfile().expect("a temporary file"))
}

#[test]
fn cufile_resources_are_released_in_reverse_order() {
    let fake = Fake::new();
    let driver = fake.driver();
    assert_eq!(driver.describe().to_string(), "cuFile 1.19, nvidia-fs 2.25, device 0, direct");
    assert_eq!(driver.describe().max_direct_bytes, 16 << 20);
    assert_eq!(fake.log(), [Event::Init, Event::Retain(0), Event::Compat(false), Event::Open]);
    let file = GdsFile::register(&driver, file()).expect("registered");
    drop(driver);
    assert_eq!(fake.log(), [Event::Register], "a file holds the driver");
    drop(file);
    assert_eq!(fake.log(), [Event::Deregister, Event::Close, Event::Release(0)]);
}

#[test]
fn drivers_of_one_process_share_the_first_ones_setting() {
    let fake = Fake::new();
    let first = fake.open(GdsOptions::new(0).allow_compat(true)).expect("opens");
    let second = fake.open(GdsOptions::new(1)).expect("the other device");
    assert_eq!((first.describe().mode, second.describe().mode), (Mode::Possible, Mode::Possible));
    drop(first);
    fake.log();
    drop(second);
    assert_eq!(fake.log(), [Event::Close, Event::Release(1)]);
    assert_eq!(fake.driver().describe().mode, Mode::Direct, "and a new one sets its own");
}

#[test]
fn driver_opened_by_others_stays_open() {
    let fake = Fake::new();
    fake.set(|world| world.open = 5026);
    drop(fake.driver());
    assert!(!fake.log().contains(&Event::Close));
}

#[test]
fn refusing_driver_is_named_and_leaves_nothing_open() {
    let fake = Fake::new();
    fake.set(|world| world.open = 5001);
    let refused = fake.open(GdsOptions::new(0)).expect_err("refused");
    assert!(
        refused
            .to_string()
            .starts_with("cuFileDriverOpen failed with 5001 CU_FILE_DRIVER_NOT_INITIALIZED; load")
    );
    let expected = [Event::Init, Event::Retain(0), Event::Compat(false), Event::Open, Event::Release(0)];
    assert_eq!(fake.log(), expected);
    // The failed open counts for nothing: the next one opens again.
    fake.set(|world| world.open = 0);
    drop(fake.driver());
    assert!(fake.log().contains(&Event::Close));
}

#[test]
fn cufile_is_never_opened_without_a_device() {
    let fake = Fake::new();
    fake.set(|world| world.init = 100);
    let refused = fake.open(GdsOptions::new(0)).expect_err("no device");
    assert!(matches!(refused, GdsError::Cuda { operation: "cuInit", device: 0, code: 100 }), "{refused}");
    assert_eq!(fake.log(), [Event::Init]);
    fake.set(|world| world.init = 0);
    for ordinal in [2, u32::MAX] {
        let refused = fake.open(GdsOptions::new(ordinal)).expect_err("two devices");
        assert!(matches!(refused, GdsError::Cuda { operation: "cuDeviceGet", code: 101, .. }), "{refused}");
    }
    assert_eq!(fake.log(), [Event::Init, Event::Init]);
}

#[test]
fn unreadable_file_of_modules_is_an_error_before_cufile_opens() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let modules = folder.path().join("modules");
    let refused = readable(&modules).expect_err("not there").to_string();
    assert!(refused.contains(&format!("{} cannot be read (No such file", modules.display())), "{refused}");
    std::fs::write(&modules, "").expect("written");
    readable(&modules).expect("a kernel may have loaded none");
}

#[test]
fn options_of_zero_are_refused() {
    let fake = Fake::new();
    let refused = fake.open(GdsOptions::new(0).threads(0)).expect_err("no threads").to_string();
    assert_eq!(refused, "threads is 0; it must be at least 1");
}

/// An older cuFile cannot be told the setting; it only reports its own.
#[test]
fn compatibility_mode_needs_permission() {
    let mut fake = Fake::new();
    (fake.api.set_bool, fake.api.get_bool) = (None, None);
    fake.set(|world| (world.properties.nvfs_major, world.properties.nvfs_minor) = (0, 0));
    let refused = fake.open(GdsOptions::new(0)).expect_err("would bounce");
    assert!(matches!(refused, GdsError::Compat { .. }));
    assert!(
        refused.to_string().contains("cuFile 1.19, no nvidia-fs, device 0, compatibility mode"),
        "{refused}"
    );
    assert_eq!(fake.log()[2..], [Event::Open, Event::Close, Event::Release(0)]);
    let driver = fake.open(GdsOptions::new(0).allow_compat(true)).expect("allowed");
    assert_eq!(driver.describe().mode, Mode::Compat);
}

#[test]
fn mode_follows_from_cufiles_properties() {
    let mut fake = Fake::new();
    let mode = |fake: &Fake, allow| {
        fake.open(GdsOptions::new(0).allow_compat(allow)).expect("opens").describe().mode
    };
    assert_eq!((mode(&fake, false), mode(&fake, true)), (Mode::Direct, Mode::Possible));
    // Without the module, peers on the bus reach each other.
    for (features, status) in [(FEATURE_P2P, 0), (0, STATUS_NVME_P2P)] {
        fake.set(|world| {
            world.properties.nvfs_major = 0;
            (world.properties.feature_flags, world.properties.status_flags) = (features, status);
        });
        assert_eq!((mode(&fake, false), mode(&fake, true)), (Mode::Direct, Mode::Possible));
    }
    // Too old to be told; its configuration file says no.
    (fake.api.set_bool, fake.api.get_bool) = (None, None);
    assert_eq!(mode(&fake, false), Mode::Possible);
    fake.set(|world| world.properties.control_flags = 0);
    assert_eq!(mode(&fake, false), Mode::Direct);
}

#[test]
fn file_that_cufile_cannot_serve_is_refused() {
    let fake = Fake::new();
    let driver = fake.driver();
    fake.set(|world| world.register = 5008);
    let refused = GdsFile::register(&driver, file()).err().expect("refused");
    assert!(
        refused
            .to_string()
            .starts_with("cuFile refuses the file with 5008 CU_FILE_IO_NOT_SUPPORTED; it needs")
    );
    assert!(!fake.log().contains(&Event::Deregister), "what was not registered is not deregistered");
}

//! The file: its creation, its refusals, and that no file stays behind.

use super::*;
use crate::disk::choice::choose;
use crate::disk::description::Concern;
use crate::disk::file::System;
use crate::process::Holder;
use kvstrata_core::storage::Storage;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::sync::Mutex;

fn entries(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path()).expect("readable").count()
}

#[test]
fn unkept_file_has_no_name_and_kept_file_mode_0600() {
    let dir = dir();
    let volume = open(options(&dir, 4, 4096)).expect("volume");
    assert_eq!(entries(&dir), 0, "killed now, it leaves nothing");
    drop(volume);
    let volume = open(options(&dir, 4, 4096).keep(true)).expect("volume");
    let metadata = std::fs::metadata(dir.path().join("volume")).expect("it has a name");
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, (1 + 1 + 4 + 1) * 4096));
    drop(volume);
    assert_eq!(entries(&dir), 1);
}

#[test]
fn slots_lie_behind_the_table_at_their_stride() {
    let dir = dir();
    let arena = HostArena::new(1, 5000).expect("arena");
    let volume = open(options(&dir, 100, 5000).keep(true)).expect("volume");
    let description = volume.describe().clone();
    assert!(description.stride >= 5000 && description.stride.is_multiple_of(description.alignment));
    write_pattern(&volume, &arena, 0, 2, 1);
    drop(volume);
    let file = std::fs::File::open(dir.path().join("volume")).expect("kept");
    let origin = 4096 + 2 * 4096;
    let mut bytes = vec![0; 5000];
    file.read_exact_at(&mut bytes, origin + 2 * description.stride as u64).expect("there");
    assert_pattern(2, 1, &bytes);
    file.read_exact_at(&mut bytes, origin).expect("there");
    assert!(bytes.iter().all(|byte| *byte == 0), "slot 0 was not written");
}

#[test]
fn existing_file_stays_untouched() {
    let dir = dir();
    let path = dir.path().join("volume");
    std::fs::write(&path, b"precious").expect("writable");
    let error = open(options(&dir, 4, 4096)).unwrap_err();
    assert!(matches!(error, VolumeError::Exists { .. }) && error.to_string().contains("volume"), "{error}");
    for reinitialize in [false, true] {
        let error = open(options(&dir, 4, 4096).keep(true).reinitialize(reinitialize)).unwrap_err();
        assert!(matches!(error, VolumeError::NotAVolume { .. }), "{error}");
        assert!(error.to_string().contains("remove"), "it says what to do: {error}");
    }
    assert_eq!(std::fs::read(&path).expect("there"), b"precious");
}

#[test]
fn volume_in_use_is_refused() {
    let dir = dir();
    let volume = open(options(&dir, 4, 4096).keep(true)).expect("volume");
    let before = std::fs::metadata(dir.path().join("volume")).expect("there").len();
    for reinitialize in [false, true] {
        let error = open(options(&dir, 9, 4096).keep(true).reinitialize(reinitialize)).unwrap_err();
        assert!(matches!(error, VolumeError::InUse { holder: Holder::This, .. }), "{error}");
        assert!(error.to_string().contains("another volume of this process has the file open"), "{error}");
    }
    assert_eq!(std::fs::metadata(dir.path().join("volume")).expect("still there").len(), before);
    drop(volume);
    drop(open(options(&dir, 4, 4096).keep(true)).expect("free again"));
}

#[test]
fn path_of_no_volume_is_refused_and_untouched() {
    let dir = dir();
    let at = |name: &str| VolumeOptions::new(dir.path().join(name), 4, 4096);
    std::fs::create_dir(dir.path().join("folder")).expect("made");
    std::fs::write(dir.path().join("target"), b"precious").expect("made");
    std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("link")).expect("made");
    for keep in [false, true] {
        for name in ["folder", "no/such/folder/volume", "link"] {
            let error = open(at(name).keep(keep)).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    assert!(open(VolumeOptions::new("/dev/null", 4, 4096).keep(true)).is_err());
    assert_eq!(std::fs::read(dir.path().join("target")).expect("there"), b"precious");
    assert_eq!(entries(&dir), 3);
}

/// A foreign file cannot be told from a former volume of another length with both ends lost. Any other is
/// started over if the options ask for it.
#[test]
fn recognizable_volume_can_be_started_over() {
    let bytes = (1 + 1 + 4 + 1) * 4096_u64;
    let zeros = |file: &std::fs::File, at| file.write_all_at(&[0; 4096], at).expect("written");
    type Damage<'d> = &'d dyn Fn(&std::fs::File);
    let cases: [(&str, Damage<'_>, bool); 8] = [
        ("cut within its first superblock", &|file| file.set_len(100).expect("cut"), true),
        ("cut within the magic", &|file| file.set_len(7).expect("cut"), false),
        (
            "made longer, the first superblock gone",
            &|file| {
                zeros(file, 0);
                file.set_len(bytes + 4096).expect("longer");
            },
            true,
        ),
        (
            "the same by no whole page",
            &|file| {
                zeros(file, 0);
                file.set_len(bytes + 1).expect("longer");
            },
            true,
        ),
        (
            "cut, the first superblock gone",
            &|file| {
                zeros(file, 0);
                file.set_len(bytes - 4096).expect("cut");
            },
            false,
        ),
        (
            "cut, the first superblock flipped",
            &|file| {
                file.write_all_at(&[0xAA], 100).expect("written");
                file.set_len(bytes - 4096).expect("cut");
            },
            true,
        ),
        (
            "longer, both gone",
            &|file| {
                zeros(file, 0);
                zeros(file, bytes - 4096);
                file.set_len(bytes + 1).expect("longer");
            },
            false,
        ),
        (
            "longer, both flipped",
            &|file| {
                [0, bytes - 4096].iter().for_each(|at| {
                    file.write_all_at(&[0xAA], at + 100).expect("written");
                });
                file.set_len(bytes + 1).expect("longer");
            },
            true,
        ),
    ];
    for (what, damage, ours) in cases {
        let dir = dir();
        let path = dir.path().join("volume");
        let kept = || options(&dir, 4, 4096).keep(true);
        drop(open(kept()).expect("volume"));
        damage(&std::fs::File::options().write(true).open(&path).expect("there"));
        let before = std::fs::read(&path).expect("there");
        let text = open(kept()).expect_err(what).to_string();
        assert_eq!(text.contains("reinitialize it"), ours, "{what}: {text}");
        assert_eq!(text.contains("remove it"), !ours, "{what}: {text}");
        assert!(std::fs::read(&path).expect("there") == before, "{what}");
        match Volume::open(kept().reinitialize(true)) {
            Ok((volume, recovery)) => {
                assert!(ours && recovery.created && recovery.rejected.superblock == 2, "{what}");
                drop(volume);
                let (_, recovery) = Volume::open(kept()).expect(what);
                assert!(recovery.clean && !recovery.created, "{what}");
                assert_eq!(std::fs::metadata(&path).expect("there").len(), bytes, "{what}");
            }
            Err(error) => {
                assert!(!ours && matches!(error, VolumeError::NotAVolume { .. }), "{what}: {error}");
                assert!(std::fs::read(&path).expect("there") == before, "{what}");
            }
        }
    }
}

/// The second superblock is at the end of the former volume, whatever size is wanted now.
#[test]
fn second_superblock_identifies_a_volume_of_another_size() {
    let dir = dir();
    let wanted = |slots| options(&dir, slots, 4096).keep(true);
    drop(open(wanted(4)).expect("volume"));
    let file = std::fs::File::options().write(true).open(dir.path().join("volume")).expect("there");
    let end = file.metadata().expect("there").len() - 4096;
    file.write_all_at(&[0; 4096], 0).expect("written");
    file.write_all_at(&[0xAA], end + 100).expect("written");
    assert!(matches!(open(wanted(9)), Err(VolumeError::Damaged { .. })));
    let (_, recovery) = Volume::open(wanted(9).reinitialize(true)).expect("started over");
    assert!(recovery.created && recovery.rejected.superblock == 2);
}

/// A device node of our own if we may make one, else one of the machine's; it is not opened.
#[cfg(target_os = "linux")]
#[test]
fn block_device_is_refused_with_the_remedy() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileTypeExt;
    let dir = dir();
    let node = dir.path().join("device");
    let name = std::ffi::CString::new(node.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: `name` is a string with its end.
    let made = unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(7, 0)) } == 0;
    let is_device = |path: &std::path::Path| {
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    };
    let machine = std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let found = if made { Some(node) } else { machine.into_iter().find(|path| is_device(path)) };
    let Some(path) = found else {
        return skip("block_device", &"none here, and none can be made");
    };
    for keep in [false, true] {
        let error = open(VolumeOptions::new(&path, 4, 4096).keep(keep)).expect_err("a device");
        let text = error.to_string();
        assert!(text.contains("block device") && text.contains("file system"), "{text}");
        assert!(text.contains(&*path.to_string_lossy()) && !text.contains("remove"), "{text}");
    }
    assert!(is_device(&path));
}

#[test]
fn link_and_unopenable_file_are_named_in_the_error() {
    let dir = dir();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("target", &link).expect("made");
    for keep in [false, true] {
        let text = open(VolumeOptions::new(&link, 4, 4096).keep(keep)).unwrap_err().to_string();
        assert!(text.contains("is a symbolic link") && text.contains("not followed"), "{text}");
    }
    // A running program cannot be written to, not even by root.
    let this = std::env::current_exe().expect("known");
    let text = open(VolumeOptions::new(this, 4, 4096).keep(true)).unwrap_err().to_string();
    assert!(text.contains("cannot open the file"), "{text}");
    let text = open(VolumeOptions::new("/proc/volume", 4, 4096).keep(true)).unwrap_err().to_string();
    assert!(text.contains("cannot create the file"), "{text}");
}

#[test]
fn impossible_sizes_are_refused_and_leave_no_file() {
    let dir = dir();
    for keep in [false, true] {
        let error = open(options(&dir, u32::MAX, 1 << 30).keep(keep)).unwrap_err();
        assert!(matches!(error, VolumeError::NoSpace { .. }), "{error}");
        assert!(error.to_string().contains("fewer"), "it says what to do: {error}");
        let error = open(options(&dir, u32::MAX, usize::MAX / 2).keep(keep)).unwrap_err();
        assert!(matches!(error, VolumeError::Option { .. }), "{error}");
        for (slots, slot_bytes) in [(0, 4096), (4, 0)] {
            assert!(open(options(&dir, slots, slot_bytes).keep(keep)).is_err());
        }
        assert!(open(options(&dir, 4, 4096).depth(0).keep(keep)).is_err());
        assert!(open(options(&dir, 4, 4096).queue(0).keep(keep)).is_err());
        assert!(open(options(&dir, 4, 4096).queue(usize::MAX).keep(keep)).is_err());
        assert!(open(options(&dir, 4, 4096).threads(usize::MAX).keep(keep)).is_err());
        assert!(open(options(&dir, 4, 4096).piece_bytes(1000).keep(keep)).is_err());
        assert_eq!(entries(&dir), 0);
    }
}

/// The limit holds for a whole process, and exceeding it kills: so this runs in a process of its own.
#[test]
fn file_size_limit_is_an_error_and_no_signal() {
    const CHILD: &str = "KVSTRATA_TEST_FILE_SIZE_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let dir = dir();
        let error = open(options(&dir, 1024, 4096).keep(true)).unwrap_err();
        assert!(matches!(error, VolumeError::FileSizeLimit { .. }), "{error}");
        assert!(error.to_string().contains("ulimit -f"), "{error}");
        assert_eq!(entries(&dir), 0);
        return;
    }
    let this = std::env::current_exe().expect("known");
    let name = "disk::tests::files::file_size_limit_is_an_error_and_no_signal";
    let child = Command::new("sh")
        .args(["-c", "ulimit -f 64 && exec \"$0\" --exact \"$1\""])
        .arg(this)
        .arg(name)
        .env(CHILD, "1")
        .output()
        .expect("a shell");
    let output = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn write_through_reports_progress_to_the_end() {
    let dir = dir();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let options = options(&dir, 9, 1 << 20)
        .write_through(true)
        .progress(move |done, total| sink.lock().expect("no panic").push((done, total)));
    let volume = open(options).expect("volume");
    let total = volume.describe().file_bytes - 2 * 4096;
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() >= 2 && seen.is_sorted());
    assert_eq!(seen.last(), Some(&(total, total)));
}

#[test]
fn background_write_through_spares_callers_writes() {
    let dir = dir();
    let slots = 64;
    let made = open(options(&dir, slots, 256 << 10).write_through_in_background(true).depth(4));
    let volume = made.expect("volume");
    let arena = HostArena::new(4, 256 << 10).expect("arena");
    let mut slot = 7;
    let mut written = Vec::new();
    while volume.stats().unfilled_bytes > 0 || written.len() < 5 {
        slot = (slot * 5 + 3) % slots;
        write_pattern(&volume, &arena, 0, slot, 1);
        written.push(slot);
        std::thread::yield_now();
    }
    // Slots and zeros add up to the file, and no zeros were written over a block.
    written.iter().for_each(|slot| check_pattern(&volume, &arena, 1, *slot, 1));
    assert!(volume.stats().written_bytes >= u64::from(slots) * (256 << 10));
}

#[test]
fn description_names_slots_backend_and_registration() {
    let dir = dir();
    let arena = HostArena::new(4, 4096).expect("arena");
    let volume = open(options(&dir, 4, 4096).register(&arena)).expect("volume");
    let description = volume.describe();
    let text = description.to_string();
    println!("{text}");
    assert!(text.contains("4 slots") && text.contains("volume"), "{text}");
    match description.backend {
        Backend::UringDirect | Backend::UringBuffered => {
            // Registered, or a note says why not and which limit to raise.
            let noted = description.notes.iter().any(|note| note.contains("ulimit -l"));
            assert!(description.fixed_bytes == arena.size_bytes() || noted, "{description:?}");
        }
        _ => skip("io_uring", &text),
    }
}

/// A file system with this magic number, with O_DIRECT or without.
struct Over {
    magic: u32,
    direct: bool,
}

impl System for Over {
    fn file_system(&self, _file: &std::fs::File) -> Option<u32> {
        Some(self.magic)
    }

    fn direct_alignment(&self, _file: &std::fs::File) -> Result<usize, String> {
        if self.direct { Ok(512) } else { Err("of a test".to_owned()) }
    }
}

/// Each has one remedy: a file system in memory has nothing but the page cache.
#[test]
fn file_system_in_memory_or_without_o_direct_is_a_concern() {
    let (ext4, tmpfs) = (0xEF53, 0x0102_1994);
    for (magic, direct, concerns) in [
        (ext4, false, vec![Concern::Buffered]),
        (tmpfs, true, vec![Concern::InMemory]),
        (tmpfs, false, vec![Concern::InMemory]),
    ] {
        let dir = dir();
        let mut options = options(&dir, 4, 4096).backend(Backend::Blocking);
        options.system = Box::new(Over { magic, direct });
        let volume = match open(options) {
            Ok(volume) if volume.describe().direct == direct => volume,
            other => return skip("o_direct", &format!("{other:?}")),
        };
        assert_eq!(volume.describe().concerns, concerns, "{magic:x} {direct}");
    }
    // If the page cache is requested, nothing is refused.
    let dir = dir();
    let mut options = options(&dir, 4, 4096).backend(Backend::UringBuffered);
    options.system = Box::new(Over { magic: ext4, direct: false });
    match open(options) {
        Ok(volume) => assert!(volume.describe().concerns.is_empty(), "{}", volume.describe()),
        Err(error) => skip("io_uring", &error),
    }
}

/// A kernel or a container that forbids io_uring.
struct Forbids {
    errno: i32,
    /// False: a ring can be set up, but is refused when it is made for the volume.
    at_once: bool,
}

impl System for Forbids {
    fn try_uring(&self, _depth: u32) -> std::io::Result<()> {
        if self.at_once { Err(std::io::Error::from_raw_os_error(self.errno)) } else { Ok(()) }
    }
}

fn without_uring(options: VolumeOptions, at_once: bool) -> Result<Volume, VolumeError> {
    refused_uring(options, at_once, libc::EPERM)
}

fn refused_uring(mut options: VolumeOptions, at_once: bool, errno: i32) -> Result<Volume, VolumeError> {
    options.system = Box::new(Forbids { errno, at_once });
    let opened = Volume::open_with(options, move |parts| {
        choose(parts, |_| Err(std::io::Error::from_raw_os_error(errno)))
    });
    opened.map(|(volume, _)| volume)
}

#[test]
fn automatic_backend_without_io_uring_uses_threads() {
    let dir = dir();
    let arena = HostArena::new(1, 4096).expect("arena");
    let volume = without_uring(options(&dir, 4, 4096), true).expect("volume");
    let description = volume.describe();
    assert_eq!(description.backend, Backend::Blocking);
    assert!(description.to_string().contains("refuses io_uring"), "{description}");
    write_pattern(&volume, &arena, 0, 3, 1);
    check_pattern(&volume, &arena, 0, 3, 1);
}

#[test]
fn absent_required_io_uring_leaves_no_file() {
    let dir = dir();
    for backend in [Backend::UringDirect, Backend::UringBuffered] {
        let options = options(&dir, 4, 4096).backend(backend).keep(true);
        let error = match without_uring(options, false) {
            Err(error @ VolumeError::NoDirect { .. }) => return skip("o_direct", &error),
            made => made.unwrap_err(),
        };
        assert!(matches!(error, VolumeError::NoUring { .. }), "{error}");
        assert!(error.to_string().contains("seccomp"), "it says what to do: {error}");
        assert_eq!(entries(&dir), 0);
    }
}

/// Each refusal has its remedy: no seccomp profile lifts the memory-lock limit.
#[test]
fn refused_ring_names_its_own_remedy() {
    for (errno, remedy, other) in
        [(libc::ENOMEM, "`ulimit -l`", "seccomp"), (libc::EPERM, "seccomp", "`ulimit -l`")]
    {
        let dir = dir();
        let volume = refused_uring(options(&dir, 4, 4096), false, errno).expect("volume");
        let mut texts = vec![volume.describe().notes.join("; ")];
        for at_once in [false, true] {
            match refused_uring(options(&dir, 4, 4096).backend(Backend::UringBuffered), at_once, errno) {
                Err(error @ VolumeError::NoUring { .. }) => texts.push(error.to_string()),
                other => panic!("{other:?}"),
            }
        }
        for text in texts {
            assert!(text.contains(remedy) && !text.contains(other), "{text}");
        }
    }
}

/// Writing a file through takes minutes, and the blocks of a volume that is started over are lost.
#[test]
fn required_io_uring_is_tried_before_any_write() {
    let dir = dir();
    let path = dir.path().join("volume");
    drop(open(options(&dir, 4, 4096).keep(true)).expect("volume"));
    let before = std::fs::read(&path).expect("there");
    for backend in [Backend::UringDirect, Backend::UringBuffered] {
        let again = options(&dir, 4, 4096).backend(backend).keep(true);
        for options in [again, options(&dir, 9, 4096).backend(backend).keep(true).reinitialize(true)] {
            let error = without_uring(options, true).unwrap_err();
            assert!(matches!(error, VolumeError::NoUring { .. }), "{error}");
            assert!(std::fs::read(&path).expect("there") == before);
        }
        let made = VolumeOptions::new(dir.path().join("made"), 4, 4096).backend(backend).write_through(true);
        let error = without_uring(made.progress(|_, _| panic!("written through")), true).unwrap_err();
        assert!(matches!(error, VolumeError::NoUring { .. }), "{error}");
    }
}

#[test]
fn set_with_an_unservable_volume_leaves_no_file() {
    let dir = dir();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    let options = paths.clone().map(|path| VolumeOptions::new(path, 8, 4096).keep(true));
    let refused =
        crate::disk::VolumeSet::open_with(Vec::from(options), |parts| match parts.path.ends_with("b") {
            true => Err(VolumeError::InUse { path: parts.path, holder: Holder::Unknown }),
            false => build(parts),
        });
    assert!(matches!(refused, Err(VolumeError::InUse { .. })));
    assert!(paths.iter().all(|path| !path.exists()), "a file was left behind");
}

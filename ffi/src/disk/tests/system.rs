//! Rare behaviour of file systems, and of other users of them.

use super::*;
use crate::disk::description::Concern;
use crate::disk::file::System;
use crate::disk::stats::ServiceState;
use crate::process::Holder;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("volume")
}

fn kept(dir: &TempDir) -> VolumeOptions {
    options(dir, 8, 4096).keep(true)
}

fn mode(dir: &TempDir) -> u32 {
    std::fs::metadata(path(dir)).expect("there").permissions().mode() & 0o777
}

fn set_mode(dir: &TempDir, mode: u32) {
    std::fs::set_permissions(path(dir), std::fs::Permissions::from_mode(mode)).expect("ours");
}

fn with(system: impl System + 'static, mut options: VolumeOptions) -> VolumeOptions {
    options.system = Box::new(system);
    options
}

/// Makes a volume that holds a block in this slot.
fn holding(dir: &TempDir, slot: u32) {
    let volume = open(kept(dir)).expect("volume");
    write_pattern(&volume, &HostArena::new(1, 4096).expect("arena"), 0, slot, 1);
}

fn slots_of(options: VolumeOptions) -> Result<Vec<u32>, VolumeError> {
    Volume::open(options).map(|(_, recovery)| recovery.blocks.iter().map(|block| block.slot).collect())
}

/// Before each lock, another process acts.
struct Meanwhile<F>(Mutex<F>);

impl<F: FnMut() + Send> System for Meanwhile<F> {
    fn try_lock(&self, file: &File) -> Result<(), TryLockError> {
        (self.0.lock().expect("no panic"))();
        file.try_lock()
    }
}

fn meanwhile(dir: &TempDir, act: impl FnMut() + Send + 'static) -> VolumeOptions {
    with(Meanwhile(Mutex::new(act)), kept(dir))
}

#[test]
fn file_unlinked_before_its_lock_is_not_the_volume() {
    for found in [false, true] {
        let dir = dir();
        if found {
            holding(&dir, 3);
        }
        let (gone, mut times) = (path(&dir), 0);
        let options = meanwhile(&dir, move || {
            times += 1;
            if times <= 2 {
                std::fs::remove_file(&gone).expect("it has a name");
            }
        });
        let (volume, recovery) = Volume::open(options).expect("volume");
        assert!(recovery.created);
        write_pattern(&volume, &HostArena::new(1, 4096).expect("arena"), 0, 5, 1);
        drop(volume);
        assert_eq!(slots_of(kept(&dir)).expect("what was served is what has the name"), [5]);
    }
}

#[test]
fn file_replaced_before_its_lock_is_not_the_volume() {
    for (found, keep) in [(false, true), (true, true), (false, false)] {
        let (dir, other) = (dir(), super::dir());
        if found {
            holding(&dir, 3);
        }
        holding(&other, 4);
        let (from, to) = (path(&other), path(&dir));
        let options = meanwhile(&dir, move || {
            // Only once.
            let _ = std::fs::rename(&from, &to);
        });
        match slots_of(options.keep(keep)) {
            Ok(slots) => assert!(keep && slots == [4]),
            Err(error) => assert!(!keep && matches!(error, VolumeError::Exists { .. }), "{error}"),
        }
        assert_eq!(slots_of(kept(&dir)).expect("it has its name still"), [4]);
    }
}

#[test]
fn name_that_vanishes_each_time_is_given_up() {
    let dir = dir();
    let (gone, times) = (path(&dir), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&times);
    let error = open(meanwhile(&dir, move || {
        *counted.lock().expect("no panic") += 1;
        std::fs::remove_file(&gone).expect("it has a name");
    }));
    assert!(matches!(error, Err(VolumeError::InUse { .. })), "{error:?}");
    assert!((2..100).contains(&*times.lock().expect("no panic")));
}

/// An opening that fails removes its own file, and none that has come in its place.
#[test]
fn failed_opening_leaves_a_replaced_file() {
    let (dir, other) = (dir(), dir());
    holding(&other, 4);
    let (from, to) = (path(&other), path(&dir));
    let failed = Volume::open_with(kept(&dir), move |parts| {
        std::fs::rename(&from, &to).expect("moved");
        Err(VolumeError::InUse { path: parts.path, holder: Holder::Unknown })
    });
    assert!(failed.is_err());
    assert_eq!(slots_of(kept(&dir)).expect("there"), [4]);
}

/// A file system without locks, or with a broken one.
struct Unlocked(i32);

impl System for Unlocked {
    fn try_lock(&self, _file: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(io::Error::from_raw_os_error(self.0)))
    }
}

#[test]
fn unlockable_volume_has_a_note() {
    let dir = dir();
    let volume = open(with(Unlocked(libc::ENOLCK), kept(&dir))).expect("volume");
    let text = volume.describe().to_string();
    assert!(text.contains("two processes on this volume would destroy each other's blocks"), "{text}");
    drop(volume);
    let refused = open(with(Unlocked(libc::EIO), kept(&dir))).unwrap_err();
    assert!(refused.to_string().contains("lock the file"), "{refused}");
    assert!(!open(kept(&dir)).expect("volume").describe().to_string().contains("cannot be locked"));
}

/// A file of another owner.
struct NotOurs;

impl System for NotOurs {
    fn set_mode(&self, _file: &File, _mode: u32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

#[test]
fn found_volume_is_closed_to_others() {
    let dir = dir();
    holding(&dir, 3);
    set_mode(&dir, 0o664);
    let volume = open(with(NotOurs, kept(&dir))).expect("volume");
    let text = volume.describe().to_string();
    assert!(text.contains("0664") && text.contains("other users"), "{text}");
    drop(volume);
    assert_eq!(mode(&dir), 0o664);
    let volume = open(kept(&dir)).expect("volume");
    assert!(!volume.describe().to_string().contains("mode"));
    assert_eq!(mode(&dir), 0o600);
    drop(volume);
    // A file that is refused stays as it is.
    set_mode(&dir, 0o644);
    assert!(open(kept(&dir).model_fingerprint(1)).is_err());
    assert_eq!(mode(&dir), 0o644);
    std::fs::write(path(&dir), b"precious").expect("written");
    assert!(open(kept(&dir)).is_err());
    assert_eq!(mode(&dir), 0o644);
}

/// Another file system's magic number.
struct On(u32);

impl System for On {
    fn file_system(&self, _file: &File) -> Option<u32> {
        Some(self.0)
    }
}

#[test]
fn remote_file_system_uses_threads_unless_io_uring_is_set() {
    let dir = dir();
    let volume = open(with(On(0x0BD0_0BD0), kept(&dir))).expect("volume");
    let description = volume.describe().clone();
    assert_eq!(description.backend, Backend::Blocking);
    assert!(description.to_string().contains("on Lustre"), "{description}");
    drop(volume);
    for (magic, backend) in [(0xEF53, Backend::Auto), (0x6969, Backend::UringBuffered)] {
        let volume = volume_or_skip(open(with(On(magic), kept(&dir)).backend(backend)));
        let Some(volume) = volume else { continue };
        let description = volume.describe();
        assert!(!description.to_string().contains("serves"), "{description}");
        // If io_uring is refused, threads are chosen for another reason.
        let refused = description.to_string().contains("refuses io_uring");
        assert_eq!(description.backend == Backend::Blocking, refused, "{description}");
    }
}

#[test]
fn volume_in_memory_has_a_note_about_restarts() {
    for (magic, name) in [(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")] {
        let dir = dir();
        let text = open(with(On(magic), kept(&dir))).expect("volume").describe().to_string();
        assert!(text.contains(&format!("on {name}, which is memory")) && text.contains("restart"), "{text}");
    }
    let dir = dir();
    let text = open(with(On(0xEF53), kept(&dir))).expect("volume").describe().to_string();
    assert!(!text.contains("memory:"), "{text}");
}

/// A file system without O_DIRECT.
struct Cached;

impl System for Cached {
    fn direct_alignment(&self, _file: &File) -> Result<usize, String> {
        Err("it caches everything".to_owned())
    }
}

#[test]
fn refused_o_direct_is_noted_or_an_error_if_required() {
    for backend in [Backend::Auto, Backend::Blocking] {
        let dir = dir();
        let options = || with(Cached, kept(&dir)).backend(backend);
        let error = open(options().require_direct(true)).expect_err("it is required");
        assert!(matches!(error, VolumeError::NoDirect { .. }), "{error}");
        assert!(error.to_string().contains("it caches everything"), "{error}");
        assert!(!path(&dir).exists(), "it leaves no file behind");
        let volume = open(options()).expect("volume");
        let text = volume.describe().to_string();
        assert!(!volume.describe().direct && text.contains("it caches everything"), "{text}");
    }
    let dir = dir();
    let direct = open(with(Cached, kept(&dir)).backend(Backend::UringDirect));
    assert!(matches!(direct, Err(VolumeError::NoDirect { .. } | VolumeError::NoUring { .. })), "{direct:?}");
}

/// Runs `act` in a thread of its own, with system calls of one number refused from then on, also
/// for its children.
#[cfg(target_os = "linux")]
fn without_system_call<T: Send>(number: libc::c_long, act: impl FnOnce() -> T + Send) -> Option<T> {
    let statement =
        |code: u32, jump: u8, value: u32| libc::sock_filter { code: code as u16, jt: 0, jf: jump, k: value };
    let mut filter = [
        // The number is the first word of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = &mut filter;
    std::thread::scope(|scope| {
        let run = move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: a flag of this thread; no pointers.
            let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            // SAFETY: the program and its statements live until the call returns, which copies them.
            let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
            (promised == 0 && filtered == 0).then(act)
        };
        scope.spawn(run).join().expect("no panic")
    })
}

/// As containers' filters do: io_uring_setup is allowed, io_uring_enter is refused.
#[cfg(target_os = "linux")]
#[test]
fn ring_that_cannot_be_entered_is_not_chosen() {
    let dir = dir();
    let by = |backend| options(&dir, 8, 4096).backend(backend);
    let done = without_system_call(libc::SYS_io_uring_enter, || {
        let asked = open(by(Backend::UringBuffered)).map(drop);
        let (volume, _) = Volume::open(by(Backend::Auto)).expect("threads serve it");
        let arena = HostArena::new(1, 4096).expect("arena");
        write_pattern(&volume, &arena, 0, 3, 1);
        check_pattern(&volume, &arena, 0, 3, 1);
        (asked, volume.describe().clone())
    });
    let Some((asked, description)) = done else { return skip("seccomp", &"the kernel refuses the filter") };
    let error = asked.expect_err("it cannot be used");
    assert!(matches!(&error, VolumeError::NoUring { .. }), "{error}");
    assert_eq!(description.backend, Backend::Blocking);
    assert!(description.concerns.contains(&Concern::NoUring), "{description:?}");
    assert!(description.notes.iter().any(|note| note.contains("seccomp")), "{description}");
}

#[test]
fn file_removed_or_replaced_in_use_is_noticed() {
    for replaced in [false, true] {
        let dir = dir();
        let volume = open(kept(&dir).watch_every(std::time::Duration::ZERO)).expect("volume");
        let arena = HostArena::new(1, 4096).expect("arena");
        write_pattern(&volume, &arena, 0, 3, 1);
        assert!(!volume.is_removed());
        std::fs::remove_file(path(&dir)).expect("it has a name");
        if replaced {
            std::fs::write(path(&dir), b"another").expect("written");
        }
        // It is still served. A round that begins after the removal detects it.
        check_pattern(&volume, &arena, 0, 3, 1);
        check_pattern(&volume, &arena, 0, 3, 1);
        assert!(volume.is_removed(), "replaced: {replaced}");
    }
    // A file without a name from the start counts as in order.
    let dir = dir();
    let volume = open(options(&dir, 8, 4096).watch_every(std::time::Duration::ZERO)).expect("volume");
    write_pattern(&volume, &HostArena::new(1, 4096).expect("arena"), 0, 3, 1);
    assert!(!volume.is_removed());
}

/// A small file system in memory, if this process may mount one.
#[cfg(target_os = "linux")]
struct Mounted(TempDir);

#[cfg(target_os = "linux")]
impl Mounted {
    fn new(bytes: usize) -> io::Result<Mounted> {
        let dir = dir();
        let c = |text: &str| std::ffi::CString::new(text).expect("no zero");
        let place = c(dir.path().to_str().expect("utf-8"));
        let (kind, options) = (c("tmpfs"), c(&format!("size={bytes}")));
        // SAFETY: strings that end with a zero and outlive the call.
        let mounted =
            unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) };
        if mounted == 0 { Ok(Mounted(dir)) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mounted {
    fn drop(&mut self) {
        let place = std::ffi::CString::new(self.0.path().to_str().expect("utf-8")).expect("no zero");
        // SAFETY: a string that ends with a zero and outlives the call.
        let _ = unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Forgotten slots become holes, so that another file can take their room.
#[cfg(target_os = "linux")]
#[test]
fn full_file_system_pauses_writes_and_takes_them_again() {
    const BYTES: usize = 256 << 10;
    let mounted = match Mounted::new(16 << 20) {
        Ok(mounted) => mounted,
        Err(error) => return skip("mount", &error),
    };
    let volume =
        open(options(&mounted.0, 32, BYTES).trim(true).depth(64).queue(64)).expect("a volume of 8 MiB");
    let arena = HostArena::new(32, BYTES).expect("arena");
    for slot in 0..32 {
        write_pattern(&volume, &arena, slot as usize, slot, 1);
    }
    (8..32).for_each(|slot| volume.forget(slot));
    // A write behind them in their queue: afterwards the holes are there.
    write_pattern(&volume, &arena, 0, 7, 2);
    let filler = mounted.0.path().join("filler");
    let mut full = File::create(&filler).expect("made");
    while io::Write::write_all(&mut full, &[1; 4096]).is_ok() {}
    let writes: Vec<_> = (8..32)
        .map(|slot| volume.write(slot, name(slot, 3), arena.read(slot as usize).expect("free")))
        .collect();
    let failed = writes.into_iter().filter_map(|pending| pending.wait().err()).count();
    assert!(failed > 0 && volume.state() == ServiceState::WritesPaused, "{failed} failed");
    // Reads go on.
    (0..7).for_each(|slot| check_pattern(&volume, &arena, 0, slot, 1));
    std::fs::remove_file(&filler).expect("removed");
    drop(full);
    while volume.state() != ServiceState::Serving {
        std::thread::yield_now();
    }
    for slot in 8..32 {
        write_pattern(&volume, &arena, slot as usize, slot, 4);
        check_pattern(&volume, &arena, slot as usize, slot, 4);
    }
    let stats = volume.stats();
    assert!(stats.failed.no_room > 0 && stats.outages == 0 && stats.pauses >= 1, "{stats:?}");
}

/// A volume of a set on a full file system costs its own blocks only.
#[cfg(target_os = "linux")]
#[test]
fn volume_of_a_set_on_a_full_file_system_is_left_out() {
    let mounted = match Mounted::new(1 << 20) {
        Ok(mounted) => mounted,
        Err(error) => return skip("mount", &error),
    };
    let other = dir();
    for order in [[0, 1], [1, 0]] {
        let places = [other.path().join("volume"), mounted.0.path().join("volume")];
        let options = order.map(|at: usize| VolumeOptions::new(&places[at], 32, 256 << 10).keep(true));
        let (set, _) = crate::disk::VolumeSet::open(options.into()).expect("the other one");
        let states = set.volumes().iter().map(|volume| (volume.state(), volume.describe().notes.join("")));
        for (at, (state, notes)) in order.into_iter().zip(states) {
            assert_eq!(state == ServiceState::Retired, at == 1, "{notes}");
            assert!(at == 0 || notes.contains("needs") && notes.contains("free space"), "{notes}");
        }
        assert!(!places[1].exists(), "nothing is left where there is no room");
        drop(set);
        std::fs::remove_file(&places[0]).expect("made");
    }
}

use super::*;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

#[test]
fn system_lock_list_names_the_holder_of_a_file() {
    let locks = "1: POSIX  ADVISORY  WRITE 41 08:01:131 0 EOF\n\
                 2: FLOCK  ADVISORY  WRITE 42 08:02:131 0 EOF\n\
                 2: -> FLOCK  ADVISORY  WRITE 43 08:02:131 0 EOF\n\
                 3: FLOCK  ADVISORY  WRITE 44 08:01:132 0 EOF\n\
                 4: FLOCK  ADVISORY  WRITE 0 08:01:133 0 EOF\n\
                 5: OFDLCK ADVISORY  READ  -1 08:01:134 0 EOF\n\
                 6: FLOCK nonsense";
    let of = |minor, inode| holders(locks, libc::makedev(8, minor), inode).collect::<Vec<_>>();
    assert_eq!(of(2, 131), [42, 43]);
    assert_eq!(of(7, 132), [44], "by the inode alone");
    assert_eq!((of(1, 133), of(1, 134), of(1, 135)), (vec![], vec![], vec![]));
}

fn open_null() -> Uninherited<File> {
    Uninherited::open(|| File::open("/dev/null")).expect("there")
}

#[test]
fn entry_is_reused_after_its_descriptor_closes() {
    let (first, second) = (open_null(), open_null());
    assert!(!ptr::eq(first.entry, second.entry));
    assert_eq!(first.entry.file.load(Relaxed), first.as_raw_fd());
    let entry: *const Entry = first.entry;
    drop(first);
    assert!(entries().any(|other| ptr::eq(other, entry)), "it is never freed");
    assert!(Uninherited::<File>::open(|| Err(io::ErrorKind::NotFound.into())).is_err());
    // The gate is open again.
    drop(open_null());
}

/// Runs `body` in a forked child and returns its result; `body` must not panic.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` only, which needs no other thread, and ends without running
    // anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process to be had");
    if child == 0 {
        let code = body();
        // SAFETY: ends this process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `child` is ours, and `status` too.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(ended == child && libc::WIFEXITED(status), "{status}");
    libc::WEXITSTATUS(status)
}

fn is_open(file: RawFd) -> bool {
    // SAFETY: asks for the flags of a descriptor.
    unsafe { libc::fcntl(file, libc::F_GETFD) >= 0 }
}

#[test]
fn forked_child_knows_itself_and_keeps_no_descriptor() {
    let here = Origin::here();
    let file = open_null();
    let number = file.as_raw_fd();
    assert_eq!(in_child(|| i32::from(here.is_here()) + 2 * i32::from(is_open(number))), 0);
    assert_eq!(in_child(|| i32::from(Origin::here().is_here())), 1, "what is made there is there");
    assert!(here.is_here() && is_open(number));
}

/// No child has a descriptor that another thread opens and closes all the time, whenever the fork happens.
#[test]
fn fork_beside_openings_and_closings_keeps_no_descriptor() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("file");
    File::create(&path).expect("made");
    let inode = std::fs::metadata(&path).expect("there").ino();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                drop(Uninherited::open(|| File::open(&path)).expect("there"));
            }
        });
        for _ in 0..300 {
            let kept = in_child(|| (0..1024).filter(|file| inode_of(*file) == Some(inode)).count() as i32);
            if kept > 0 {
                ends.store(true, Relaxed);
            }
            assert_eq!(kept, 0);
        }
        ends.store(true, Relaxed);
    });
}

fn inode_of(file: RawFd) -> Option<u64> {
    std::fs::metadata(format!("/proc/self/fd/{file}")).ok().map(|facts| facts.ino())
}

#[test]
fn inherited_descriptor_closes_nothing_in_a_child() {
    let file = open_null();
    let number = file.as_raw_fd();
    let closes_another = || {
        // SAFETY: takes the lowest free number, which is that of the closed file or one below.
        let others: Vec<_> = (0..=number).map(|_| unsafe { libc::dup(2) }).collect();
        let taken = others.contains(&number);
        // SAFETY: the parent has another copy; this one is dropped once, since the child ends right after.
        drop(unsafe { ptr::read(&raw const file) });
        i32::from(taken && is_open(number))
    };
    assert_eq!(in_child(closes_another), 1);
}

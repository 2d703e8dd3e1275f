use super::*;
use std::fs::File;

#[test]
fn the_system_s_list_of_locks_names_who_has_a_file() {
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

#[test]
fn an_entry_is_used_again_once_its_descriptor_is_closed() {
    let open = || Listed::open(|| File::open("/dev/null")).expect("there");
    let ((first, of_first), (_second, of_second)) = (open(), open());
    assert!(!ptr::eq(of_first.entry, of_second.entry));
    assert_eq!(of_first.entry.file.load(Relaxed), first.as_raw_fd());
    let entry: *const Entry = of_first.entry;
    drop(of_first);
    assert!(entries().any(|other| ptr::eq(other, entry)), "it is never freed");
    assert!(Listed::open(|| Err::<File, _>(io::ErrorKind::NotFound.into())).is_err());
    // The gate is open again.
    drop(open());
}

/// What a forked child does and gives; it must not panic.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` only, which needs no other thread, and ends without running anything else.
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

#[test]
fn a_child_knows_that_it_is_one_and_keeps_no_listed_descriptor() {
    let here = Origin::here();
    let (file, listed) = Listed::open(|| File::open("/dev/null")).expect("there");
    let is_open = |file: &File| {
        // SAFETY: asks for the flags of a descriptor.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
        flags >= 0
    };
    assert_eq!(in_child(|| i32::from(here.is_here()) + 2 * i32::from(is_open(&file))), 0);
    assert_eq!(in_child(|| i32::from(Origin::here().is_here())), 1, "what is made there is there");
    assert!(here.is_here() && is_open(&file));
    drop(listed);
    assert_eq!(in_child(|| i32::from(is_open(&file))), 1, "it is listed no more");
}

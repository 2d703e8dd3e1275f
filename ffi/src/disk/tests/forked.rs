//! A volume and forked processes, which have its file open without having opened it.

use super::*;
use crate::process::{Holder, Origin};
use std::io::{Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Forks a process that runs `body` and ends. Returns its number, for its parent to wait for.
fn fork(body: impl FnOnce()) -> libc::pid_t {
    // Registers the fork handler before there is a fork.
    let _ = Origin::here();
    // SAFETY: the child runs `body` only, whose volumes have threads of their own, and ends without
    // running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process to be had");
    if child == 0 {
        let code = i32::from(catch_unwind(AssertUnwindSafe(body)).is_err());
        // SAFETY: ends this process, and leaves what it has open to the system.
        unsafe { libc::_exit(code) };
    }
    child
}

fn wait_for(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `child` is ours, and `status` too.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(ended == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
}

fn kept(dir: &TempDir, backend: Backend) -> VolumeOptions {
    options(dir, 4, 4096).keep(true).backend(backend)
}

/// Both ways to serve a volume, if the machine has both.
fn backends() -> [Backend; 2] {
    [Backend::Auto, Backend::Blocking]
}

#[test]
fn surviving_child_does_not_keep_the_volume() {
    for backend in backends() {
        let dir = dir();
        let ((mut waits, go_on), (mut ended, lives)) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
        let opener = fork(|| {
            let volume = open(kept(&dir, backend)).expect("a volume");
            fork(|| {
                // It keeps `lives` open as long as it lives.
                let _ = waits.read(&mut [0]);
            });
            // It ends as if killed: nothing is closed.
            std::mem::forget(volume);
        });
        wait_for(opener);
        drop(lives);
        drop(open(kept(&dir, backend)).expect("nobody has it"));
        // Only now may it end.
        (&go_on).write_all(&[0]).expect("it listens still");
        drop(go_on);
        assert_eq!(ended.read(&mut [0]).expect("its end"), 0);
    }
}

#[test]
fn volume_in_use_error_names_the_process() {
    let dir = dir();
    let ((mut waits, go_on), (mut opened, mut tells)) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
    let holder = fork(|| {
        let volume = open(kept(&dir, Backend::Auto)).expect("a volume");
        tells.write_all(&[1]).expect("somebody listens");
        let _ = waits.read(&mut [0]);
        std::mem::forget(volume);
    });
    opened.read_exact(&mut [0]).expect("it is open");
    let error = open(kept(&dir, Backend::Auto)).expect_err("it is in use");
    (&go_on).write_all(&[0]).expect("it listens");
    wait_for(holder);
    let number = u32::try_from(holder).expect("a number");
    let VolumeError::InUse { holder: Holder::Process { number: named, name }, .. } = &error else {
        return skip("locks", &format!("/proc/locks does not tell whose they are ({error})"));
    };
    assert_eq!((*named, name.is_empty()), (number, false));
    let said = format!("process {number} ({name}) has the file open; end it, or choose another path");
    assert!(error.to_string().ends_with(&said), "{error}");
}

#[test]
fn inherited_volume_is_inert_in_a_child() {
    for backend in backends() {
        let dir = dir();
        let volume = open(kept(&dir, backend)).expect("a volume");
        let arena = HostArena::new(2, 4096).expect("arena");
        write_pattern(&volume, &arena, 0, 2, 1);
        let child = fork(|| {
            let buffer = arena.write(1).expect("free");
            let read = volume.read(2, name(2, 1).hash, Urgency::Ordinary, buffer).wait();
            assert!(read.is_err(), "nobody serves it");
            assert!(volume.flush().wait().is_err(), "nor writes what is left");
            volume.retire();
            volume.close();
            // SAFETY: the parent's volume is another copy, in the parent's memory; this one is dropped
            // once, since the child ends after it.
            drop(unsafe { std::ptr::read(&volume) });
        });
        wait_for(child);
        check_pattern(&volume, &arena, 0, 2, 1);
        drop(volume);
        let (_, recovery) = Volume::open(kept(&dir, backend)).expect("free again");
        assert!(recovery.clean && recovery.blocks.len() == 1);
    }
}

//! State that a forked child inherits but must not use: memory that the parent's threads change, and
//! file locks.
//!
//! ```text
//!   parent:  open a file ─ enter it in the list ─ lock it (flock); a ring that has the file is entered, too
//!   fork ──► child: count one more fork ─ close every file of the list
//!                   (the lock belongs to the open file, so the child would hold it, too)
//! ```
//!
//! A child that continues without `exec` has a single thread. A wait for another thread never ends there,
//! and a mutex that another thread held stays locked. Therefore an object that has threads remembers its
//! [`Origin`] and does nothing in another process.
//!
//! Invariants
//! - I1: each descriptor in the list is open: its entry is emptied before the descriptor is closed. In a
//!   child, only the handler closes the copies; an [`Uninherited`] does nothing there, not even in its drop.
//! - I2: no fork happens between opening such a descriptor and entering it, nor between emptying its
//!   entry and closing it. The fork handlers hold the gate, and so does a thread that opens or closes.
//! - I3: entries are never freed, so the handler may walk the list whatever the parent's threads were
//!   doing. Empty entries are used again.
//!
//! # Orderings
//! The gate is a lock: taking it is Acquire, opening it is Release. Putting an entry before the list's head
//! is a Release store of the head, and reading the head is an Acquire load, so a reader sees whole entries.
//! Everything else is Relaxed: the handler runs in a child's only thread, after the parent's fork.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64};

/// The number of forks between the first process that counted and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);
static GATE: AtomicBool = AtomicBool::new(false);
static LIST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// No descriptor.
const NONE: RawFd = -1;
/// A reserved entry: its descriptor is not open yet.
const TAKEN: RawFd = -2;

#[derive(Debug)]
struct Entry {
    file: AtomicI32,
    next: Option<&'static Entry>,
}

/// The process in which something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    forks: u64,
    process: u32,
}

impl Origin {
    /// This process.
    #[must_use]
    pub fn here() -> Origin {
        listen();
        Origin { forks: FORKS.load(Relaxed), process: std::process::id() }
    }

    /// Returns whether the current process is this one, rather than a process forked from it.
    #[must_use]
    pub fn is_here(self) -> bool {
        self.forks == FORKS.load(Relaxed)
    }

    /// Returns the process number.
    #[must_use]
    pub fn process(self) -> u32 {
        self.process
    }
}

/// Registers the fork handlers, once.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are functions without arguments that live for ever, and do only what a
        // handler may do: they touch atomics and close files. If there is no memory for the handlers,
        // forks stay uncounted, as before.
        let _ = unsafe { libc::pthread_atfork(Some(before_fork), Some(open_gate), Some(in_child)) };
    });
}

/// While it lives, no fork begins and no other thread opens or closes a descriptor of the list.
struct Gate;

impl Gate {
    fn shut() -> Gate {
        while GATE.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            std::thread::yield_now();
        }
        Gate
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        open_gate();
    }
}

extern "C" fn before_fork() {
    std::mem::forget(Gate::shut());
}

extern "C" fn open_gate() {
    GATE.store(false, Release);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    entries().for_each(|entry| {
        let file = entry.file.swap(NONE, Relaxed);
        if file >= 0 {
            // SAFETY: I1: the entry's descriptor is open in the parent, hence here, and only this handler
            // closes it here.
            let _ = unsafe { libc::close(file) };
        }
    });
    open_gate();
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: I3: each entry of the list was leaked, and was whole before it was put there.
    let first: Option<&'static Entry> = unsafe { LIST.load(Acquire).as_ref() };
    std::iter::successors(first, |before| before.next)
}

/// Takes a free entry of the list, or adds one. The caller holds the gate.
fn entry() -> &'static Entry {
    let free = |entry: &&Entry| entry.file.compare_exchange(NONE, TAKEN, Relaxed, Relaxed).is_ok();
    if let Some(entry) = entries().find(free) {
        return entry;
    }
    let made: &'static mut Entry =
        Box::leak(Box::new(Entry { file: AtomicI32::new(TAKEN), next: entries().next() }));
    let made = ptr::from_mut(made);
    LIST.store(made, Release);
    // SAFETY: it was just made, is never freed (I3), and is written only through its atomic.
    unsafe { &*made }
}

/// An open descriptor that a forked child does not keep. Owners share it by `Arc`, so that entry and
/// descriptor end together.
#[derive(Debug)]
pub struct Uninherited<T: AsRawFd> {
    opened: ManuallyDrop<T>,
    entry: &'static Entry,
    origin: Origin,
}

impl<T: AsRawFd> Uninherited<T> {
    /// Calls `open` under the gate and enters the opened descriptor in the list.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open(open: impl FnOnce() -> io::Result<T>) -> io::Result<Uninherited<T>> {
        let origin = Origin::here();
        let gate = Gate::shut();
        let opened = open()?;
        let entry = entry();
        entry.file.store(opened.as_raw_fd(), Relaxed);
        drop(gate);
        Ok(Uninherited { opened: ManuallyDrop::new(opened), entry, origin })
    }
}

impl<T: AsRawFd> AsRawFd for Uninherited<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.opened.as_raw_fd()
    }
}

impl<T: AsRawFd> Deref for Uninherited<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.opened
    }
}

impl<T: AsRawFd> DerefMut for Uninherited<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.opened
    }
}

impl<T: AsRawFd> Drop for Uninherited<T> {
    fn drop(&mut self) {
        // In a child the handler has closed the descriptor (I1), and its number may belong to another
        // file by now.
        if !self.origin.is_here() {
            return;
        }
        // Both steps happen under the gate (I2): a child forked between them would keep the descriptor,
        // and with it the file's lock.
        let _gate = Gate::shut();
        self.entry.file.store(NONE, Relaxed);
        // SAFETY: this is the only place that drops it, and nothing uses `self` afterwards.
        unsafe { ManuallyDrop::drop(&mut self.opened) };
    }
}

/// The holder of a file's lock, as far as the system tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// This process.
    This,
    /// Another process: its number, and the name of its program if that is known.
    Process {
        /// Its number.
        number: u32,
        /// Its program's name.
        name: String,
    },
    /// The system does not say: it may be a process of another container or machine.
    Unknown,
}

impl Holder {
    /// Returns the holder of an exclusive lock on this file.
    pub(crate) fn of(device: u64, inode: u64) -> Holder {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let numbers: Vec<u32> = holders(&locks, device, inode).collect();
        match numbers.first() {
            _ if numbers.contains(&std::process::id()) => Holder::This,
            Some(&number) => {
                let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
                Holder::Process { number, name: name.trim().to_owned() }
            }
            None => Holder::Unknown,
        }
    }
}

/// Returns the process numbers of the holders. Lines look like `1: FLOCK  ADVISORY  WRITE 708 00:2a:131 0
/// EOF`. Some file systems show another device there than the file's own; then the inode alone decides.
fn holders(locks: &str, device: u64, inode: u64) -> impl Iterator<Item = u32> {
    let device = format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let number: i64 = words.next()?.parse().ok()?;
        let (of_device, of_inode) = words.next()?.rsplit_once(':')?;
        let number = u32::try_from(number).ok().filter(|number| *number > 0)?;
        Some((number, of_device.to_owned(), of_inode.parse::<u64>().ok()?))
    };
    let of_inode: Vec<_> = locks.lines().filter_map(of_line).filter(|(.., of)| *of == inode).collect();
    let exact = of_inode.iter().any(|(_, of, _)| *of == device);
    of_inode.into_iter().filter(move |(_, of, _)| !exact || *of == device).map(|(number, ..)| number)
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::This => f.write_str(
                "another volume of this process has the file open; close it first, or choose another path",
            ),
            Holder::Process { number, name } if name.is_empty() => {
                write!(f, "process {number} has the file open; end it, or choose another path")
            }
            Holder::Process { number, name } => {
                write!(f, "process {number} ({name}) has the file open; end it, or choose another path")
            }
            Holder::Unknown => f.write_str(
                "an unknown process has the file open (another container \
                 or machine?); end it, or choose another path",
            ),
        }
    }
}

#[cfg(test)]
mod tests;

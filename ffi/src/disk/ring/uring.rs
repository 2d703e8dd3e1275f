//! The `io_uring` ring: registered file, fixed buffers over the host arenas, one `enter` a turn.
//!
//! | aspect | best | else |
//! |---|---|---|
//! | set-up flags | `SINGLE_ISSUER`, `DEFER_TASKRUN` (6.1), `TASKRUN_FLAG` | none |
//! | file | registered | – (registering one is always allowed) |
//! | buffers | registered in chunks of at most 1 GiB, so that no request pins pages | plain addresses |
//! | several buffers in one chunk | one fixed vectored request (6.15) | a plain vectored request |
//! | waiting for several | at least so many, or one after so long (`min_wait`, 6.12) | one |
//!
//! The bell is an eventfd that the ring polls, so that a thread asleep in `enter` wakes for new requests.
//!
//! Invariants
//! - I1: the ring's file and the registered arenas outlive the ring: they are fields of it.
//! - I2: at most `depth` pieces and one poll are in flight, and the queues have room for `depth` + 1.
//! - I3: this thread, which made the ring, is the only one that submits.

use super::{Action, Bell, Buffer, Completion, Op, Ring, Wait};
use crate::arena::HostArena;
use crate::process::Uninherited;
use crate::sys::eventfd::EventFd;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use kvstrata_core::storage::Storage;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum length of one registered buffer in the kernel.
const CHUNK_BYTES: usize = 1 << 30;
/// Maximum number of registered buffers in the kernel.
const CHUNKS: usize = 1 << 14;
const BELL_TOKEN: u64 = u64::MAX;

/// One registered buffer.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    start: usize,
    end: usize,
}

pub(in crate::disk) struct UringRing {
    /// The ring holds the volume's file, and would keep it locked in a forked child.
    ring: Uninherited<IoUring>,
    depth: usize,
    bell: Arc<EventFd>,
    /// Whether a poll of the bell is in flight.
    armed: bool,
    fixed: Vec<Chunk>,
    /// Whether the kernel takes several buffers of one chunk as one fixed request.
    fixed_vectors: bool,
    /// Whether the kernel can wait for several completions with a time limit.
    min_wait: bool,
    /// Whether pieces were pushed since the last system call.
    unsubmitted: bool,
    since: Instant,
    // Held for I1.
    _file: Arc<Uninherited<File>>,
    _arenas: Vec<Arc<HostArena>>,
}

/// The features that the kernel granted.
#[derive(Debug)]
pub(in crate::disk) struct Granted {
    pub(in crate::disk) flags: &'static str,
    /// Bytes registered as fixed buffers.
    pub(in crate::disk) fixed_bytes: u64,
    /// Why an arena could not be registered, if one could not.
    pub(in crate::disk) refused_buffers: Option<io::Error>,
}

impl UringRing {
    pub(in crate::disk) fn new(
        depth: u32,
        file: Arc<Uninherited<File>>,
        arenas: Vec<Arc<HostArena>>,
    ) -> io::Result<(UringRing, Granted)> {
        let mut flags = "";
        let ring = Uninherited::open(|| {
            let (ring, granted) = set_up(entries(depth))?;
            flags = granted;
            Ok(ring)
        })?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let bell = Arc::new(EventFd::new()?);
        let chunks = chunks_of(&arenas);
        let (fixed, refused_buffers) = match register(&ring, &chunks) {
            Ok(()) => (chunks, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let fixed_bytes = fixed.iter().map(|chunk| (chunk.end - chunk.start) as u64).sum();
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe).is_ok();
        let knows = |code| probed && probe.is_supported(code);
        let fixed_vectors = knows(opcode::ReadvFixed::CODE) && knows(opcode::WritevFixed::CODE);
        let min_wait = ring.params().is_feature_min_timeout();
        let granted = Granted { flags, fixed_bytes, refused_buffers };
        let ring = UringRing {
            ring,
            depth: depth as usize,
            bell,
            armed: false,
            fixed,
            fixed_vectors,
            min_wait,
            unsubmitted: false,
            since: Instant::now(),
            _file: file,
            _arenas: arenas,
        };
        Ok((ring, granted))
    }

    /// The registered chunk in which all buffers lie.
    fn chunk_of(&self, buffers: &[Buffer]) -> Option<u16> {
        let within = |chunk: &Chunk, buffer: &Buffer| {
            let start = buffer.iov_base.addr();
            chunk.start <= start && start + buffer.iov_len <= chunk.end
        };
        let first = buffers.first()?;
        let index = self.fixed.iter().position(|chunk| within(chunk, first))?;
        buffers[1..]
            .iter()
            .all(|buffer| within(&self.fixed[index], buffer))
            .then(|| u16::try_from(index).ok())?
    }

    fn entry(&self, op: &Op<'_>) -> squeue::Entry {
        let file = types::Fixed(0);
        let Op { action, file_offset, bytes, buffers, .. } = *op;
        match action {
            Action::Sync => return opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Action::Punch => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                return opcode::Fallocate::new(file, bytes as u64).offset(file_offset).mode(mode).build();
            }
            // Device memory belongs to another ring.
            Action::Sum => return opcode::Nop::new().build(),
            Action::Read | Action::Write => {}
        }
        let reads = action == Action::Read;
        let chunk = self.chunk_of(buffers);
        let adjacent = buffers
            .windows(2)
            .all(|pair| pair[0].iov_base.addr() + pair[0].iov_len == pair[1].iov_base.addr());
        let (address, list) = (buffers[0].iov_base.cast::<u8>(), buffers.as_ptr());
        // Pieces are at most 1 GiB, and lists short.
        let (length, count) = (bytes as u32, buffers.len() as u32);
        match chunk {
            Some(chunk) if adjacent && reads => {
                opcode::ReadFixed::new(file, address, length, chunk).offset(file_offset).build()
            }
            Some(chunk) if adjacent => {
                opcode::WriteFixed::new(file, address, length, chunk).offset(file_offset).build()
            }
            Some(chunk) if self.fixed_vectors && reads => {
                opcode::ReadvFixed::new(file, list, count, chunk).offset(file_offset).build()
            }
            Some(chunk) if self.fixed_vectors => {
                opcode::WritevFixed::new(file, list, count, chunk).offset(file_offset).build()
            }
            _ if adjacent && reads => opcode::Read::new(file, address, length).offset(file_offset).build(),
            _ if adjacent => opcode::Write::new(file, address, length).offset(file_offset).build(),
            _ if reads => opcode::Readv::new(file, list, count).offset(file_offset).build(),
            _ => opcode::Writev::new(file, list, count).offset(file_offset).build(),
        }
    }

    /// Puts an entry into the submission queue, which has room (I2).
    ///
    /// # Safety
    /// All memory that the entry points to stays valid until its completion: `Ring::push`'s contract.
    unsafe fn enqueue(&mut self, entry: &squeue::Entry) {
        let mut queue = self.ring.submission();
        // SAFETY: validity is the caller's promise.
        let pushed = unsafe { queue.push(entry) };
        debug_assert!(pushed.is_ok(), "I2: the queue has room for depth + 1");
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            match u32::try_from(entry.user_data()) {
                Ok(token) => done.push(Completion { token, result: entry.result() }),
                Err(_) => {
                    self.armed = false;
                    self.bell.silence();
                }
            }
        }
    }

    fn arm_bell(&mut self) {
        if !self.armed {
            let poll = opcode::PollAdd::new(types::Fd(self.bell.raw()), libc::POLLIN as u32);
            // SAFETY: a poll points to no memory.
            unsafe { self.enqueue(&poll.build().user_data(BELL_TOKEN)) };
            self.armed = true;
        }
    }
}

impl Ring for UringRing {
    fn depth(&self) -> usize {
        self.depth
    }

    fn bell(&self) -> Bell {
        let bell = Arc::clone(&self.bell);
        Box::new(move || bell.ring())
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    unsafe fn push(&mut self, token: u32, op: &Op<'_>) {
        let entry = self.entry(op).user_data(u64::from(token));
        // SAFETY: the caller keeps the buffers as `push` demands, and the registered file lives (I1).
        unsafe { self.enqueue(&entry) };
        self.unsubmitted = true;
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        match wait {
            Wait::Batch { .. } | Wait::For(_) | Wait::Forever => self.arm_bell(),
            Wait::No | Wait::Look => {
                // Nothing to submit, and no completion wanted that only a system call would bring: skip
                // the system call.
                let call = self.unsubmitted || (wait == Wait::Look && self.ring.submission().taskrun());
                if !call {
                    self.reap(done);
                    return Ok(0);
                }
            }
        }
        self.unsubmitted = false;
        let entered = match wait {
            Wait::No | Wait::Look => self.ring.submit(),
            Wait::Batch { pieces, patience } if self.min_wait => {
                let patience = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX);
                let arguments = types::SubmitArgs::new().min_wait_usec(patience);
                self.ring.submitter().submit_with_args(pieces, &arguments)
            }
            Wait::For(time) => {
                let time = types::Timespec::from(time);
                let arguments = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
            Wait::Batch { .. } | Wait::Forever => self.ring.submit_and_wait(1),
        };
        if let Err(error) = entered {
            match error.raw_os_error() {
                Some(libc::ETIME) => {}
                // Interrupted, or short of a resource that completions give back: reap and try again.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    self.unsubmitted = true;
                    std::thread::yield_now();
                }
                Some(errno) => return Err(errno),
                None => return Err(libc::EIO),
            }
        }
        self.reap(done);
        Ok(1)
    }
}

/// I2: one more entry for the poll; the completion queue is twice as long by default.
pub(in crate::disk) fn entries(depth: u32) -> u32 {
    (depth + 1).next_power_of_two()
}

/// Makes the best ring that this kernel supports, and tests that it can be used: a container's filter may
/// allow making a ring, but refuse entering it.
pub(crate) fn set_up(entries: u32) -> io::Result<(IoUring, &'static str)> {
    let (mut ring, flags) = make(entries)?;
    enter(&mut ring)?;
    Ok((ring, flags))
}

/// Sends one operation that does nothing through the ring.
fn enter(ring: &mut IoUring) -> io::Result<()> {
    let nop = opcode::Nop::new().build();
    // SAFETY: a nop points to no memory.
    let pushed = unsafe { ring.submission().push(&nop) };
    pushed.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match ring.completion().next() {
        Some(ended) if ended.result() >= 0 => Ok(()),
        Some(ended) => Err(io::Error::from_raw_os_error(-ended.result())),
        None => Err(io::Error::other("an operation that does nothing does not end")),
    }
}

fn make(entries: u32) -> io::Result<(IoUring, &'static str)> {
    // A child's mapping of a ring would keep the ring, and with it the volume's file.
    let best = IoUring::builder()
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match best {
        Ok(ring) => Ok((ring, "SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG")),
        // EINVAL means that the kernel does not know a flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((IoUring::builder().dontfork().build(entries)?, "no set-up flags"))
        }
        Err(error) => Err(error),
    }
}

/// The arenas in chunks of whole blocks, so that no piece of a block straddles two chunks. A lent arena has
/// none: its blocks have no stride, and its memory is not the ring's to pin.
fn chunks_of(arenas: &[Arc<HostArena>]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for arena in arenas.iter().filter(|arena| !arena.is_lent()) {
        let start = arena.base_address() as usize;
        let end = start + arena.size_bytes() as usize;
        let step = CHUNK_BYTES / arena.stride() * arena.stride();
        if step > 0 {
            chunks.extend((start..end).step_by(step).map(|at| Chunk { start: at, end: end.min(at + step) }));
        }
    }
    chunks.truncate(CHUNKS);
    chunks
}

fn register(ring: &IoUring, chunks: &[Chunk]) -> io::Result<()> {
    if chunks.is_empty() {
        return Ok(());
    }
    let vectors: Vec<libc::iovec> = chunks
        .iter()
        .map(|chunk| libc::iovec {
            iov_base: core::ptr::with_exposed_provenance_mut(chunk.start),
            iov_len: chunk.end - chunk.start,
        })
        .collect();
    // SAFETY: the chunks lie in arenas that the ring holds (I1), so the memory stays mapped as long as it
    // is registered; the kernel touches it only through pieces, under `Ring::push`'s contract.
    unsafe { ring.submitter().register_buffers(&vectors) }
}

//! The `io_uring` ring: registered file, fixed buffers over the host arenas, one `enter` a turn.
//!
//! | what | best | else |
//! |---|---|---|
//! | set-up flags | `SINGLE_ISSUER`, `DEFER_TASKRUN` (6.1) | none |
//! | file | registered | – (registering one is always allowed) |
//! | buffers | registered in chunks of at most 1 GiB, so that no request pins pages | plain addresses |
//!
//! The bell is an eventfd that the ring polls, so that a thread asleep in `enter` wakes for new requests.
//!
//! Invariants
//! - I1: the ring's file and the registered arenas outlive the ring: they are fields of it.
//! - I2: at most `depth` pieces and one poll are in flight, and the queues have room for `depth` + 1.
//! - I3: this thread, which made the ring, is the only one that submits.

use super::super::error::Direction;
use super::super::inbox::Bell;
use super::{Completion, Op, Ring};
use crate::arena::HostArena;
use crate::sys::eventfd::EventFd;
use io_uring::{IoUring, opcode, squeue, types};
use kvstrata_core::storage::Storage;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The kernel takes at most this much in one registered buffer.
const CHUNK_BYTES: usize = 1 << 30;
/// The kernel takes at most this many registered buffers.
const CHUNKS: usize = 1 << 14;
const BELL_TOKEN: u64 = u64::MAX;

/// One registered buffer.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    start: usize,
    end: usize,
}

pub(in crate::disk) struct UringRing {
    ring: IoUring,
    depth: usize,
    bell: Arc<EventFd>,
    /// Whether a poll of the bell is in flight.
    armed: bool,
    fixed: Vec<Chunk>,
    // Held for I1.
    _file: Arc<File>,
    _arenas: Vec<Arc<HostArena>>,
}

/// What the kernel granted.
#[derive(Debug)]
pub(in crate::disk) struct Granted {
    pub(in crate::disk) flags: &'static str,
    /// Bytes registered as fixed buffers.
    pub(in crate::disk) fixed_bytes: u64,
    /// Why some arena is not, if one is not.
    pub(in crate::disk) refused_buffers: Option<io::Error>,
}

impl UringRing {
    pub(in crate::disk) fn new(
        depth: u32,
        file: Arc<File>,
        arenas: Vec<Arc<HostArena>>,
    ) -> io::Result<(UringRing, Granted)> {
        // I2: one entry more for the poll; the completion queue is twice as long by default.
        let entries = (depth + 1).next_power_of_two();
        let (ring, flags) = set_up(entries)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let bell = Arc::new(EventFd::new()?);
        let chunks = chunks_of(&arenas);
        let (fixed, refused_buffers) = match register(&ring, &chunks) {
            Ok(()) => (chunks, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let fixed_bytes = fixed.iter().map(|chunk| (chunk.end - chunk.start) as u64).sum();
        let granted = Granted { flags, fixed_bytes, refused_buffers };
        let ring = UringRing {
            ring,
            depth: depth as usize,
            bell,
            armed: false,
            fixed,
            _file: file,
            _arenas: arenas,
        };
        Ok((ring, granted))
    }

    fn fixed_index(&self, op: &Op) -> Option<u16> {
        let start = op.address.addr();
        let end = start + op.bytes as usize;
        let index = self.fixed.iter().position(|chunk| chunk.start <= start && end <= chunk.end)?;
        u16::try_from(index).ok()
    }

    fn entry(&self, op: &Op) -> squeue::Entry {
        let file = types::Fixed(0);
        let Op { direction, address, bytes, file_offset } = *op;
        match (direction, self.fixed_index(op)) {
            (Direction::Read, Some(index)) => {
                opcode::ReadFixed::new(file, address, bytes, index).offset(file_offset).build()
            }
            (Direction::Read, None) => opcode::Read::new(file, address, bytes).offset(file_offset).build(),
            (Direction::Write, Some(index)) => {
                opcode::WriteFixed::new(file, address, bytes, index).offset(file_offset).build()
            }
            (Direction::Write, None) => opcode::Write::new(file, address, bytes).offset(file_offset).build(),
        }
    }

    /// Puts an entry into the submission queue, which has room (I2).
    ///
    /// # Safety
    /// What the entry points to stays valid until its completion: `Ring::push`'s contract.
    unsafe fn enqueue(&mut self, entry: &squeue::Entry) {
        let mut queue = self.ring.submission();
        // SAFETY: validity is the caller's promise.
        let pushed = unsafe { queue.push(entry) };
        debug_assert!(pushed.is_ok(), "I2: the queue has room for depth + 1");
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

    unsafe fn push(&mut self, token: u32, op: &Op) {
        let entry = self.entry(op).user_data(u64::from(token));
        // SAFETY: the caller keeps the memory as `push` demands, and the registered file lives (I1).
        unsafe { self.enqueue(&entry) };
    }

    fn turn(&mut self, done: &mut Vec<Completion>) -> Result<(), i32> {
        self.arm_bell();
        if let Err(error) = self.ring.submit_and_wait(1) {
            match error.raw_os_error() {
                // Interrupted, or short of something that completions give back: reap and come again.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::yield_now(),
                Some(errno) => return Err(errno),
                None => return Err(libc::EIO),
            }
        }
        for entry in self.ring.completion() {
            match u32::try_from(entry.user_data()) {
                Ok(token) => done.push(Completion { token, result: entry.result() }),
                Err(_) => {
                    self.armed = false;
                    self.bell.silence();
                }
            }
        }
        Ok(())
    }
}

/// The best set-up that this kernel takes.
pub(crate) fn set_up(entries: u32) -> io::Result<(IoUring, &'static str)> {
    let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    match best {
        Ok(ring) => Ok((ring, "SINGLE_ISSUER|DEFER_TASKRUN")),
        // EINVAL is how a kernel says that it does not know a flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((IoUring::builder().build(entries)?, "no set-up flags"))
        }
        Err(error) => Err(error),
    }
}

/// The arenas in chunks that hold whole blocks, so that no piece of a block straddles two.
fn chunks_of(arenas: &[Arc<HostArena>]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for arena in arenas {
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

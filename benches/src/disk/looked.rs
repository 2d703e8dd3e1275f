//! The limit of a verifying reader: one `io_uring` without a tier that loads each byte once.
//!
//! fio moves bytes that no core reads. A tier with checksums has to read them, and pays twice: for the
//! load, and because the next transfer into a buffer that lies in a core's cache is slower, most of
//! all if the device is another core (a virtual machine's). The remaining share of fio is the most
//! that any checksum could reach.

use super::files::cpu_seconds;
use super::{Cell, Contender, Failure, READS_OF_100, Turn, Way};
use crate::inputs::mix;
use io_uring::{IoUring, opcode, squeue, types};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::arena::{BlockWrite, HostArena};
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A file that was written before, and the ring over it.
#[derive(Debug)]
pub struct Looked {
    file: File,
    bytes: u64,
    drawn: u64,
}

impl Looked {
    /// Works on the first `bytes` of a file.
    ///
    /// # Errors
    /// An error of the file.
    pub fn new(file: &Path, bytes: u64) -> Result<Looked, Failure> {
        let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(file)?;
        Ok(Looked { file, bytes, drawn: 0 })
    }
}

/// Buffers in flight, registered, and the ring that holds them.
struct Loop {
    ring: IoUring,
    buffers: Vec<BlockWrite>,
    slots: u64,
    seed: u64,
    way: Way,
}

impl Loop {
    /// Begins a transfer with this buffer at a random slot.
    fn begin(&mut self, which: usize) -> Result<(), Failure> {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let draw = mix(self.seed);
        let reads = match self.way {
            Way::Read => true,
            Way::Write => false,
            Way::Mix => draw % 100 < READS_OF_100,
        };
        let buffer = &mut self.buffers[which];
        let (bytes, offset) = (buffer.len(), (draw >> 32) % self.slots * buffer.len() as u64);
        let (file, length) = (types::Fixed(0), u32::try_from(bytes)?);
        let entry: squeue::Entry = match reads {
            true => opcode::ReadFixed::new(file, buffer.as_mut_ptr(), length, 0).offset(offset).build(),
            false => opcode::WriteFixed::new(file, buffer.as_ptr(), length, 0).offset(offset).build(),
        };
        let data = (which as u64) << 1 | u64::from(reads);
        // SAFETY: the buffer is registered, so the kernel may write its pages until the piece has ended,
        // even if an error ends the turn before; and no code reads it until then.
        unsafe { self.ring.submission().push(&entry.user_data(data))? };
        if !reads {
            // During the transfer, as a tier that seals its writes does.
            self.ring.submit()?;
            look(&self.buffers[which]);
        }
        Ok(())
    }

    /// Waits for at least one transfer; returns the buffers of those that ended.
    fn ended(&mut self) -> Result<Vec<usize>, Failure> {
        self.ring.submit_and_wait(1)?;
        let mut ended = Vec::new();
        for entry in self.ring.completion() {
            let (which, reads) = ((entry.user_data() >> 1) as usize, entry.user_data() & 1 == 1);
            if usize::try_from(entry.result()) != Ok(self.buffers[which].len()) {
                return Err(format!("a bare ring: {} for a block", entry.result()).into());
            }
            if reads {
                look(&self.buffers[which]);
            }
            ended.push(which);
        }
        Ok(ended)
    }
}

/// Loads each byte once, as fast as memory gives them.
fn look(bytes: &[u8]) {
    let mut sums = [0_u64; 32];
    for words in bytes.as_chunks::<256>().0 {
        for (sum, word) in sums.iter_mut().zip(words.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    black_box(sums);
}

impl Contender for Looked {
    fn name(&self) -> &str {
        super::report::LOOKED
    }

    fn turn(&mut self, cell: Cell, length: Duration) -> Result<Turn, Failure> {
        let Cell { block_bytes, depth, way } = cell;
        self.drawn += 1;
        let arena = HostArena::new(depth, block_bytes)?;
        let buffers = (0..depth).map(|block| arena.write(block)).collect::<Result<Vec<_>, _>>()?;
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(u32::try_from(depth.next_power_of_two())?)?;
        ring.submitter().register_files(&[self.file.as_raw_fd()])?;
        let base = std::ptr::with_exposed_provenance_mut(arena.base_address() as usize);
        let whole = libc::iovec { iov_base: base, iov_len: arena.size_bytes() as usize };
        // SAFETY: the arena's mapping, which the guards in `buffers` keep.
        unsafe { ring.submitter().register_buffers(&[whole])? };
        let slots = self.bytes / block_bytes as u64;
        let seed = mix(self.drawn);
        let mut all = Loop { ring, buffers, slots, seed, way };
        let (cpu, start) = (cpu_seconds(), Instant::now());
        let (mut blocks, mut in_flight) = (0, depth);
        for which in 0..depth {
            all.begin(which)?;
        }
        while in_flight > 0 {
            for which in all.ended()? {
                blocks += 1;
                if start.elapsed() < length {
                    all.begin(which)?;
                } else {
                    in_flight -= 1;
                }
            }
        }
        Ok(Turn {
            bytes: blocks * block_bytes as u64,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu,
            calls: None,
        })
    }
}

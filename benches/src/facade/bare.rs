//! The same bytes copied without a manager: the baseline of an onboarding.
//!
//! Block by block from one stretch of memory to another, as cold as the manager's: all contenders in it
//! take turns with one position, so that none finds memory that another has just touched. A second
//! thread waits for work on a channel, as a mover's does.

use super::ground::Shape;
use crate::pages::Pages;
use crate::work::Timed;
use kvstrata_ffi::copy::HostCopy;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Memory to copy in.
pub struct Memory {
    from: Pages,
    to: Pages,
    shape: Shape,
    next: Cell<usize>,
}

impl Memory {
    /// Makes memory of so many bytes to read, and half as many to write.
    #[must_use]
    pub fn new(shape: Shape, bytes: usize) -> Memory {
        let runs = (bytes / shape.bytes()).max(4);
        let (from, to) = (Pages::new(runs * shape.bytes()), Pages::new(runs / 2 * shape.bytes()));
        Memory { from, to, shape, next: Cell::new(0) }
    }

    /// Returns the next run; each thread copies every `step`th block of it.
    fn next(&self, how: How, step: usize) -> Job {
        let next = self.next.get();
        self.next.set(next + 1);
        let bytes = self.shape.bytes();
        let at = |pages: &Pages| pages.address() as usize + next % (pages.bytes() / bytes) * bytes;
        let (from, to) = (at(&self.from), at(&self.to));
        Job { from, to, block_bytes: self.shape.block_bytes, blocks: self.shape.blocks, first: 0, step, how }
    }
}

/// The way of copying.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// libc's memcpy, a block a call.
    Memcpy,
    /// [`HostCopy`] past the caches, without a checksum.
    Past(HostCopy),
}

/// Blocks of a run.
#[derive(Clone, Copy)]
struct Job {
    from: usize,
    to: usize,
    block_bytes: usize,
    blocks: usize,
    first: usize,
    step: usize,
    how: How,
}

impl Job {
    /// # Safety
    /// Both stretches are mapped and do not overlap, and no other code uses these
    /// blocks of the second meanwhile.
    unsafe fn run(self) {
        for block in (self.first..self.blocks).step_by(self.step) {
            let at = block * self.block_bytes;
            let from = std::ptr::with_exposed_provenance::<u8>(self.from + at);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(self.to + at);
            match self.how {
                How::Memcpy => {
                    // SAFETY: the caller's contract.
                    unsafe { libc::memcpy(to.cast(), from.cast(), self.block_bytes) };
                }
                How::Past(copy) => {
                    // SAFETY: the caller's contract; the memory was filled when it was mapped.
                    let from = unsafe { std::slice::from_raw_parts(from, self.block_bytes) };
                    // SAFETY: as above, and no other code has it.
                    let to = unsafe { std::slice::from_raw_parts_mut(to, self.block_bytes) };
                    // Both have the same length.
                    let _ = copy.copy_bytes(from, to, true);
                }
            }
        }
    }
}

/// A thread that copies the jobs that it gets.
struct Helper {
    jobs: SyncSender<Job>,
    done: Receiver<()>,
}

impl Helper {
    /// Starts the thread. It ends when the helper is dropped; all jobs have been waited for by then.
    fn new() -> Helper {
        let (jobs, taken) = sync_channel::<Job>(1);
        let (tell, done) = sync_channel(1);
        std::thread::spawn(move || {
            for job in taken {
                // SAFETY: the sender of a job keeps its memory until the answer, and gives no other code
                // these blocks.
                unsafe { job.run() };
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
        Helper { jobs, done }
    }
}

/// Copies one run after the other.
pub struct Bare<'m> {
    memory: &'m Memory,
    how: How,
    helper: Option<Helper>,
}

impl<'m> Bare<'m> {
    /// Copies on one thread, or on two.
    #[must_use]
    pub fn new(memory: &'m Memory, how: How, two: bool) -> Bare<'m> {
        Bare { memory, how, helper: two.then(Helper::new) }
    }

    /// Copies the next run.
    pub fn once(&self) {
        let Some(helper) = &self.helper else {
            // SAFETY: a run of the memory, which is mapped and written by one contender at a time.
            return unsafe { self.memory.next(self.how, 1).run() };
        };
        let job = self.memory.next(self.how, 2);
        helper.jobs.send(Job { first: 1, ..job }).expect("the helper lives");
        // SAFETY: as above, every other block.
        unsafe { job.run() };
        helper.done.recv().expect("the helper lives");
    }
}

impl Timed for Bare<'_> {
    fn items(&self) -> u64 {
        self.memory.shape.bytes() as u64
    }

    fn time(&mut self, runs: u64) -> Duration {
        let start = Instant::now();
        for _ in 0..runs {
            self.once();
        }
        start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::target::{fill, holds};

    fn bytes(pages: &Pages) -> &[u8] {
        let start = std::ptr::with_exposed_provenance(pages.address() as usize);
        // SAFETY: the mapping lives, and is filled; no code writes it while the test reads it.
        unsafe { std::slice::from_raw_parts(start, pages.bytes()) }
    }

    #[test]
    fn run_is_copied_whole_by_one_thread_and_by_two() {
        for (how, two) in [(How::Memcpy, false), (How::Memcpy, true), (How::Past(HostCopy::new()), true)] {
            let memory = Memory::new(Shape { block_bytes: 4096, blocks: 5, layers: 1 }, 0);
            let mut noise = vec![0; memory.from.bytes()];
            fill(&mut noise, 3);
            let start = std::ptr::with_exposed_provenance_mut::<u8>(memory.from.address() as usize);
            // SAFETY: all of the mapping, which no other code has yet.
            unsafe { start.copy_from_nonoverlapping(noise.as_ptr(), noise.len()) };
            let run = memory.shape.bytes();
            let bare = Bare::new(&memory, how, two);
            bare.once();
            bare.once();
            assert!(bytes(&memory.to)[..2 * run] == bytes(&memory.from)[..2 * run], "{how:?}, two: {two}");
            assert!(holds(&bytes(&memory.to)[..run], 3));
        }
    }
}

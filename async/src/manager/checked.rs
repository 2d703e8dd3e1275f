//! A write to the disk whose bytes are compared with their sums first.
//!
//! The disk seals what it is given: bytes that have rotted in host memory would come back as good ones. So they are looked at on their way
//! down, too; by a task, since neither an engine's thread nor a mover's has the time.
//!
//! Writes keep their order, by which blocks are old or new below.
//!
//! I1. The write is answered, also if the task never runs, or the port panics: then it goes on with the next.

use crate::contained::contained;
use crate::transfer::{Cause, DiskPort, DiskWrite, Failure, HostMemory, Landed};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The task that checks; it ends when the sender is gone. What waits is bounded by the bytes in flight of the path.
pub(super) fn task(runtime: &Handle) -> UnboundedSender<Checked> {
    let (to, mut writes) = unbounded_channel::<Checked>();
    runtime.spawn(async move {
        while let Some(checked) = writes.recv().await {
            contained(|| checked.go());
            // A block takes a while: others of the runtime's tasks have their turn after each.
            tokio::task::yield_now().await;
        }
    });
    to
}

/// A write that is to be checked. Dropped, it is answered.
pub(super) struct Checked {
    disk: Arc<dyn DiskPort>,
    memory: Arc<HostMemory>,
    write: Option<DiskWrite>,
}

impl Checked {
    pub(super) fn new(disk: Arc<dyn DiskPort>, memory: Arc<HostMemory>, write: DiskWrite) -> Checked {
        Checked { disk, memory, write: Some(write) }
    }

    /// Compares, and writes or answers.
    pub(super) fn go(mut self) {
        let Some(write) = self.write.take() else { return };
        match self.memory.is_sealed(&write.bytes) {
            true => self.disk.write(write),
            false => refuse(&*self.disk, write, Cause::Mismatch),
        }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            refuse(&*self.disk, write, Cause::Abandoned);
        }
    }
}

fn refuse(disk: &dyn DiskPort, write: DiskWrite, cause: Cause) {
    let DiskWrite { token, slot, bytes, landing, .. } = write;
    disk.give_back(slot);
    disk.forget_given_back();
    drop(bytes);
    landing.land(Landed::Write(token, Err(Failure::of(cause))));
}

//! The measured volume, and the buffers that it moves. The only file here that names the volume's interface.

use super::Failure;
use crate::inputs::mix;
use kvstrata_core::SequenceHash;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::arena::{BlockRead, BlockWrite, HostArena};
use kvstrata_ffi::disk::{
    Description, FailureCause, IoFailure, Name, OwnerId, Recovery, Urgency, Volume, VolumeOptions,
};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The configuration of a target.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The volume's file.
    pub path: PathBuf,
    /// Its slots.
    pub slots: u32,
    /// Bytes a slot.
    pub slot_bytes: usize,
    /// Buffers, all registered.
    pub buffers: usize,
    /// Whether an existing path is opened, and stays; otherwise the file has no name.
    pub keep: bool,
    /// Whether all of it is written at creation.
    pub write_through: bool,
}

impl Plan {
    /// Plans a volume of so many bytes, or as near as its slots come. It is written through, and kept,
    /// so that its table is written as well.
    #[must_use]
    pub fn bench(folder: &Path, slot_bytes: usize, bytes: u64, buffers: usize) -> Plan {
        let slots = u32::try_from(bytes / slot_bytes as u64).unwrap_or(u32::MAX).max(1);
        let path = folder.join(format!("volume-{slot_bytes}"));
        Plan { path, slots, slot_bytes, buffers, keep: true, write_through: true }
    }
}

/// A volume and its buffers.
#[derive(Debug)]
pub struct Target {
    volume: Volume,
    arena: Arc<HostArena>,
    plan: Plan,
}

impl Target {
    /// Opens the volume; its buffers hold noise.
    ///
    /// # Errors
    /// An error of the volume or the arena, with the remedy.
    pub fn open(plan: &Plan) -> Result<(Target, Recovery), Failure> {
        let arena = HostArena::new(plan.buffers, plan.slot_bytes)?;
        for block in 0..plan.buffers {
            let mut buffer = arena.write(block)?;
            fill(&mut buffer, mix(block as u64));
        }
        Target::over(plan, arena)
    }

    /// Closes the volume and opens it again, with the same buffers.
    ///
    /// # Errors
    /// As [`open`](Target::open).
    pub fn reopen(self) -> Result<(Target, Recovery), Failure> {
        let Target { volume, arena, plan } = self;
        drop(volume);
        Target::over(&plan, arena)
    }

    fn over(plan: &Plan, arena: Arc<HostArena>) -> Result<(Target, Recovery), Failure> {
        let options = VolumeOptions::new(&plan.path, plan.slots, plan.slot_bytes)
            .keep(plan.keep)
            .write_through(plan.write_through)
            .register(&arena);
        let (volume, recovery) = Volume::open(options)?;
        Ok((Target { volume, arena, plan: plan.clone() }, recovery))
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.volume.slots()
    }

    /// Returns the bytes a slot.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.volume.slot_bytes()
    }

    /// Returns the buffers.
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// Describes the opened volume, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let Description { backend, direct, ring, fixed_bytes, notes, .. } = self.volume.describe();
        let mut words = format!(
            "{backend} ({}; {ring}), {} MiB of buffers on {}, {} MiB of them registered",
            if *direct { "O_DIRECT" } else { "buffered" },
            self.arena.size_bytes() >> 20,
            self.arena.backing(),
            fixed_bytes >> 20
        );
        notes.iter().for_each(|note| words.extend(["; ", note]));
        words
    }

    /// Returns the system calls so far by which the volume was driven: turns of its ring, and callers
    /// that woke it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let stats = self.volume.stats();
        stats.turns + stats.wakes
    }

    /// Writes a slot under a name.
    pub fn write(
        &self,
        slot: u32,
        hash: u128,
        buffer: BlockRead,
    ) -> impl Future<Output = Result<BlockRead, IoFailure>> + use<> {
        let hash = SequenceHash::from_u128(hash);
        self.volume.write(slot, Name { hash, parent: None, owner: OwnerId::NONE }, buffer)
    }

    /// Reads a slot of that name; none if the volume refuses the slot's contents, which is a miss.
    pub fn read(
        &self,
        slot: u32,
        hash: u128,
        urgent: bool,
        buffer: BlockWrite,
    ) -> impl Future<Output = Result<Option<BlockWrite>, IoFailure>> + use<> {
        let urgency = if urgent { Urgency::Urgent } else { Urgency::Ordinary };
        let pending = self.volume.read(slot, SequenceHash::from_u128(hash), urgency, buffer);
        async move {
            match pending.await {
                Ok(buffer) => Ok(Some(buffer)),
                Err(IoFailure { cause: FailureCause::Rejected(_), .. }) => Ok(None),
                Err(failure) => Err(failure),
            }
        }
    }

    /// Makes a slot nameless, before any later write of it.
    pub fn forget(&self, slot: u32) {
        self.volume.forget(slot);
    }
}

/// Fills a buffer with words that a seed determines, no two of them equal.
pub fn fill(buffer: &mut [u8], seed: u64) {
    for (word, value) in buffer.chunks_exact_mut(8).zip(words(seed)) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Returns whether a buffer holds the bytes that [`fill`] wrote.
#[must_use]
pub fn holds(buffer: &[u8], seed: u64) -> bool {
    // No early end: without one the loop is as fast as memory.
    let differs = |sum, (word, value): (&[u8], u64)| sum | (u64::from_le_bytes(array(word)) ^ value);
    buffer.chunks_exact(8).zip(words(seed)).fold(0, differs) == 0
}

fn array(word: &[u8]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(word);
    bytes
}

fn words(seed: u64) -> impl Iterator<Item = u64> {
    (0_u64..).map(move |i| seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[cfg(test)]
mod tests {
    use super::{fill, holds};

    #[test]
    fn one_wrong_bit_is_reported() {
        let mut buffer = vec![0; 4096];
        fill(&mut buffer, 7);
        assert!(holds(&buffer, 7));
        assert!(!holds(&buffer, 8));
        for at in [0, 2049, 4095] {
            buffer[at] ^= 0x10;
            assert!(!holds(&buffer, 7), "byte {at}");
            buffer[at] ^= 0x10;
        }
    }
}

//! The meaning of a seed: a volume, a device, and the operations on them.

use super::super::cipher::Key;
use super::faults::Faults;
use super::oracle::{BlockNumber, is_block};
use super::random::{Random, mix};
use std::time::Duration;

/// The volume and its callers.
#[derive(Debug, Clone)]
pub(in crate::disk) struct Plan {
    pub(in crate::disk) slots: u32,
    pub(in crate::disk) slot_bytes: usize,
    pub(in crate::disk) depth: usize,
    pub(in crate::disk) queue: usize,
    pub(in crate::disk) piece_bytes: usize,
    /// Short transfers may be resumed at multiples of this.
    pub(in crate::disk) alignment: usize,
    pub(in crate::disk) table_delay: Duration,
    pub(in crate::disk) trim: bool,
    /// Whether the new file is written through in the background.
    pub(in crate::disk) fill: bool,
    /// Whether the volume has a key.
    pub(in crate::disk) encrypted: bool,
    /// Number of buffers, and so the maximum of requests under way.
    pub(in crate::disk) buffers: usize,
    /// Maximum rounds at a time.
    pub(in crate::disk) rounds: u32,
    /// Of ten reads, this many are urgent.
    pub(in crate::disk) urgent: u64,
    /// Of ten requests, this many go to a few slots, the others anywhere.
    pub(in crate::disk) hot: u64,
    /// Number of different blocks that are written.
    pub(in crate::disk) blocks: BlockNumber,
    pub(in crate::disk) faults: Faults,
    pub(in crate::disk) operations: usize,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::disk) enum Operation {
    Write {
        slot: u32,
        block: BlockNumber,
    },
    /// A read of the block that the slot is known to hold, or of another block.
    Read {
        slot: u32,
        other: Option<BlockNumber>,
        urgent: bool,
    },
    Forget {
        slot: u32,
    },
    Flush,
    /// The caller of a request under way drops its [`Pending`](super::super::pending::Pending).
    DropPending,
    Poll,
    Rounds(u32),
    /// Runs until every request is answered and the table written.
    Settle,
    /// The process dies; or the machine too.
    Crash {
        cut_power: bool,
    },
    CleanShutdown {
        cut_power: bool,
    },
    /// The volume is taken out of service, and opened again.
    Retire {
        cut_power: bool,
    },
    /// Bytes of the file change in place.
    Damage,
}

impl Plan {
    pub(in crate::disk) fn of(random: &mut Random) -> Plan {
        let kind = random.below(16);
        let (slots, slot_bytes) = match kind {
            // Several pieces a slot.
            0..2 => (random.within(2, 12), random.within(65_000, 200_000)),
            // So many bytes in flight that the caps on writes are reached.
            2 => (random.within(16, 40), random.within(100_000, 160_000)),
            // Many pages of the table.
            3 => (random.within(200, 1200), random.within(1, 1024)),
            // Merged, sometimes longer than a merged piece may be.
            4..6 => (random.within(8, 64), random.within(8_000, 40_000)),
            _ => (random.within(1, 80), random.within(1, 6_000)),
        };
        let slots = slots as u32;
        let much = kind == 2;
        let depth = if much { 128 } else { random.pick(&[1, 2, 3, 4, 8, 16, 64]) };
        Plan {
            slots,
            slot_bytes: slot_bytes as usize,
            depth,
            queue: if much { 64 } else { random.pick(&[1, 4, 64]) },
            piece_bytes: if much { 64 << 10 } else { random.pick(&[64 << 10, 128 << 10, 1 << 20]) },
            alignment: random.pick(&[1, 512]),
            table_delay: Duration::from_micros(random.pick(&[0, 300, 5_000, 250_000, 60_000_000])),
            trim: random.once_in(3),
            fill: random.once_in(3),
            // Drawn whatever the features, so that a seed otherwise means the same plan.
            encrypted: random.once_in(3) && cfg!(feature = "encryption"),
            buffers: if much { 64 } else { random.pick(&[2, 6, 24]) },
            rounds: if much { 2 } else { 40 },
            urgent: random.pick(&[0, 3, 10]),
            hot: random.pick(&[0, 5, 9]),
            blocks: u64::from(slots) * random.pick(&[1, 2, 8]) + 1,
            faults: Faults::of(random),
            operations: 200 + random.below(60) as usize,
        }
    }

    /// The length of a block: in every second plan, by its slots' length, every third block is shorter than a
    /// slot. Not drawn, so that a seed otherwise means the same plan.
    pub(in crate::disk) fn bytes_of(&self, block: BlockNumber) -> usize {
        let number = mix(block ^ 0x1E57);
        match self.slot_bytes / 2 % 2 == 1 && number.is_multiple_of(3) {
            true => 1 + (number / 3) as usize % self.slot_bytes,
            false => self.slot_bytes,
        }
    }

    /// Whether these are the bytes of a block, all of them.
    pub(in crate::disk) fn is_whole(&self, block: BlockNumber, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes_of(block) && is_block(block, bytes)
    }

    /// The key to open the volume with.
    pub(in crate::disk) fn key(&self) -> Option<Key> {
        if self.encrypted { key_of(0x5A) } else { None }
    }

    fn slot(&self, random: &mut Random) -> u32 {
        let few = if random.below(10) < self.hot { 4 } else { u32::MAX };
        random.below(u64::from(self.slots.min(few))) as u32
    }

    pub(in crate::disk) fn operation(&self, random: &mut Random) -> Operation {
        let slot = self.slot(random);
        if random.chance(self.faults.rot) {
            return Operation::Damage;
        }
        match random.below(100) {
            0..32 => Operation::Write { slot, block: random.below(self.blocks) },
            32..62 => Operation::Read {
                slot,
                other: random.once_in(10).then(|| random.below(self.blocks)),
                urgent: random.below(10) < self.urgent,
            },
            62..67 => Operation::Forget { slot },
            67..69 => Operation::Flush,
            69..72 => Operation::DropPending,
            72..82 => Operation::Poll,
            82..94 => Operation::Rounds(random.within(1, u64::from(self.rounds)) as u32),
            94..98 => Operation::Settle,
            98 => Operation::Crash { cut_power: random.once_in(2) },
            _ if random.once_in(3) => Operation::Retire { cut_power: random.once_in(2) },
            _ => Operation::CleanShutdown { cut_power: random.once_in(2) },
        }
    }
}

/// A key, in builds in which volumes can have one.
#[cfg(feature = "encryption")]
pub(in crate::disk) fn key_of(byte: u8) -> Option<Key> {
    Some(Key::new(|key| key.fill(byte)))
}

/// No key: this build has no encryption.
#[cfg(not(feature = "encryption"))]
pub(in crate::disk) fn key_of(_byte: u8) -> Option<Key> {
    None
}

//! The counts of a disk tier, by cause, as its port reports them.

use kvstrata_ffi::disk::{FailedRequests, RejectedRecords, ServiceState};
use serde::Serialize;

/// Counts by cause: a field for each cause, named by `causes`.
macro_rules! causes {
    ($(#[$of:meta])* $name:ident { $($(#[$is:meta])* $cause:ident),+ $(,)? }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct $name {
            $($(#[$is])* pub $cause: u64),+
        }

        impl $name {
            /// Each cause by its name, with its count.
            #[must_use]
            pub fn causes(&self) -> [(&'static str, u64); [$(stringify!($cause)),+].len()] {
                [$((stringify!($cause), self.$cause)),+]
            }
        }
    };
}

causes! {
    /// Blocks and records that were there and were not taken, by cause. Each is a miss.
    Rejected {
        /// At opening: records with a wrong checksum of their own.
        record,
        /// Records, at opening or when read, of a payload of another length than a slot's.
        length,
        /// At opening: records of an encrypted volume that can no longer be opened, since the salt of
        /// their epoch is gone.
        salt,
        /// At opening: records of a hash that a newer record has.
        duplicate,
        /// At opening: records of slots behind the file's end.
        truncated,
        /// At opening: superblocks, of the two that each volume has.
        superblock,
        /// At opening: records that could not be read.
        table,
        /// When read: slots without a record.
        empty,
        /// When read: slots with a record of another hash.
        other_hash,
        /// When read: payloads that contradict their record.
        payload,
        /// When read: such payloads with records of a process that ended without a shutdown. A crash
        /// between a payload and its record leaves some.
        after_crash,
    }
}

causes! {
    /// The part of [`Rejected`] found by reads.
    RejectedReads {
        /// Slots without a record.
        empty,
        /// Slots with a record of another hash.
        other_hash,
        /// Payloads that contradict their record.
        payload,
        /// Such payloads with records of a process that ended without a shutdown. A crash between a
        /// payload and its record leaves some.
        after_crash,
    }
}

causes! {
    /// The part of [`Rejected`] found at the opening.
    RejectedAtOpening {
        /// Records with a wrong checksum of their own.
        record,
        /// Records of a payload of another length than a slot's.
        length,
        /// Records of an encrypted volume that can no longer be opened, since the salt of their
        /// epoch is gone.
        salt,
        /// Records of a hash that a newer record has.
        duplicate,
        /// Records of slots behind the file's end.
        truncated,
        /// Superblocks, of the two that each volume has.
        superblock,
        /// Records that could not be read.
        table,
    }
}

causes! {
    /// Requests to volumes that failed, by cause.
    FailedTransfers {
        /// The file system, a quota, or a limit had no room for a write.
        no_room,
        /// Writes refused without a try, since there was no room for earlier ones.
        paused,
        /// The drive failed.
        drive,
        /// Requests refused without a try, since the drive does not answer.
        away,
        /// The machine was short of something for a moment, most often memory.
        passing,
        /// The volume is out of service.
        retired,
    }
}

causes! {
    /// Volumes by their state.
    VolumeStates {
        /// Volumes that serve all requests.
        serving,
        /// Volumes that serve only reads: they have no room, and take no writes until they have.
        writes_paused,
        /// Volumes that serve nothing: their device does not answer, and is asked again at growing intervals.
        away,
        /// Volumes that serve nothing: they were retired, could not be opened, or are lost with their ring.
        retired,
    }
}

impl From<FailedRequests> for FailedTransfers {
    fn from(failed: FailedRequests) -> FailedTransfers {
        let FailedRequests { no_room, paused, drive, away, passing, retired, .. } = failed;
        FailedTransfers { no_room, paused, drive, away, passing, retired }
    }
}

impl VolumeStates {
    /// Counts a volume.
    pub fn add(&mut self, state: ServiceState) {
        *match state {
            ServiceState::Serving => &mut self.serving,
            ServiceState::WritesPaused => &mut self.writes_paused,
            ServiceState::Away => &mut self.away,
            _ => &mut self.retired,
        } += 1;
    }
}

impl RejectedAtOpening {
    /// Returns the counts of an opening.
    #[must_use]
    pub fn of(records: &RejectedRecords) -> RejectedAtOpening {
        let RejectedRecords { record, length, salt, duplicate, truncated, superblock, table } = *records;
        RejectedAtOpening { record, length, salt, duplicate, truncated, superblock, table }
    }
}

impl Rejected {
    /// Adds the counts of opening and reads.
    #[must_use]
    pub fn of(opening: &RejectedAtOpening, reads: &RejectedReads) -> Rejected {
        let RejectedAtOpening { record, length, salt, duplicate, truncated, superblock, table } = *opening;
        let RejectedReads { empty, other_hash, payload, after_crash } = *reads;
        Rejected {
            record,
            length,
            salt,
            duplicate,
            truncated,
            superblock,
            table,
            empty,
            other_hash,
            payload,
            after_crash,
        }
    }

    /// Returns the sum over all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.causes().iter().map(|(_, count)| count).sum()
    }
}

/// The counts of a tier so far; exact at rest, a moment old otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TierStats {
    /// Blocks that came down and were not there.
    pub offered: u64,
    /// Of these, not worth a write.
    pub refused_by_admission: u64,
    /// Of these, over the write budget.
    pub refused_by_budget: u64,
    /// Of these, refused since no volume takes writes just now.
    pub refused_by_volume: u64,
    /// Of these, written.
    pub written: u64,
    /// Blocks and records rejected, at opening and since.
    pub rejected: Rejected,
    /// The part of `rejected` found at the opening.
    pub rejected_at_opening: RejectedAtOpening,
    /// The part of `rejected` found by reads.
    pub rejected_reads: RejectedReads,
    /// Slots of lost volumes, never used again.
    pub quarantined: u64,
    /// Slots with writes that were given up before the device had answered: not used again either.
    pub abandoned: u64,
    /// Volumes out of service for good.
    pub lost_volumes: u64,
    /// Volumes by their state.
    pub volumes: VolumeStates,
    /// Requests to volumes that failed, by cause.
    pub failed: FailedTransfers,
    /// Volumes with a file that was removed, or replaced, while they are used.
    pub removed_files: u64,
}

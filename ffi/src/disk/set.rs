//! Several volumes as one: slots are dealt out in turns.
//!
//! ```text
//!   slot of the set     0   1   2   3   4   5 …       n volumes: slot s is slot s / n of volume s mod n
//!   volume              0   1   2   0   1   2
//! ```
//!
//! Each volume has a file, a ring thread and queues of its own, so that neighbours in a run of slots move
//! at the same time. If one fails, its blocks are misses, and the others go on. The same holds for one
//! that cannot be opened: it keeps its place in the set, so that slots stay where they are until it can
//! be opened again.

use super::choice::{Built, Parts, build};
use super::description::Description;
use super::error::VolumeError;
use super::file;
use super::options::{Stripe, VolumeOptions};
use super::payload::Payload;
use super::pending::Pending;
use super::recovery::{Name, Recovery};
use super::request::Urgency;
use super::stats::VolumeStats;
use super::volume::{Unopened, Volume};
use crate::arena::{BlockRead, BlockWrite};
use crate::gds::DeviceRange;
use kvstrata_core::SequenceHash;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Volumes of equal shape, striped slot by slot.
#[derive(Debug)]
pub struct VolumeSet {
    /// At least one volume.
    volumes: Vec<Volume>,
}

impl VolumeSet {
    /// Opens volumes with equal options except for the paths, in the order in which they were created,
    /// and reports all their blocks. A file that is missing or damaged is created anew, and only its own
    /// blocks are lost; if all are missing, a new set is created. A volume that cannot be opened for a
    /// reason of its own (no room, no permission, another file of that name) is out of service, as its
    /// description says ([`Concern::NotOpened`](super::Concern::NotOpened)), and the others serve.
    ///
    /// # Errors
    /// [`VolumeError`]: there is no volume; none can be opened (the first volume's error); or one has
    /// wrong options, is in use, or belongs elsewhere: to another set than the first whole volume, or to
    /// another place in it. So too if io_uring is required and refused, or the process is short of
    /// threads, descriptors or memory. Files that this call created are removed again. If a file is
    /// refused, no file that existed has been changed.
    pub fn open(options: Vec<VolumeOptions>) -> Result<(VolumeSet, Recovery), VolumeError> {
        VolumeSet::open_with(options, build)
    }

    /// [`open`](VolumeSet::open) with other rings.
    pub(super) fn open_with(
        options: Vec<VolumeOptions>,
        build: impl FnOnce(Parts) -> Result<Built, VolumeError> + Clone + Send + 'static,
    ) -> Result<(VolumeSet, Recovery), VolumeError> {
        let none = || VolumeError::Option {
            path: std::path::PathBuf::new(),
            option: "paths",
            why: "must name at least one volume".to_owned(),
        };
        let first = options.first().ok_or_else(none)?;
        let shape = (first.slots, first.slot_bytes);
        let too_many = |options: &VolumeOptions| VolumeError::Option {
            path: options.path.clone(),
            option: "slots",
            why: "of all volumes together exceed 4294967295; use fewer slots or volumes".to_owned(),
        };
        let count = u32::try_from(options.len()).map_err(|_| too_many(first))?;
        first.slots.checked_mul(count).ok_or_else(|| too_many(first))?;
        let sequence = Arc::new(AtomicU64::new(1));
        // First look at all files: nothing is written to any file before all are known to be ours.
        let mut seen = Vec::with_capacity(options.len());
        for (index, mut options) in (0..count).zip(options) {
            if (options.slots, options.slot_bytes) != shape {
                return Err(VolumeError::Option {
                    path: options.path,
                    option: "slots and slot_bytes",
                    why: "must be the same for all volumes of a set".to_owned(),
                });
            }
            options.stripe = Stripe { index, count, sequence: Arc::clone(&sequence) };
            let file = of_its_own(file::look(&mut options), count)?;
            seen.push((options, file));
        }
        let looked = seen.iter().filter_map(|(options, file)| Some((options, file.as_ref().ok()?)));
        let set = match seen.iter().any(|(_, file)| file.is_ok()) {
            true => file::set_of(looked)?,
            false => return Err(first_of(seen)),
        };
        // Then prepare all of them: the next sequence number follows from the records of all.
        let mut files = Vec::with_capacity(seen.len());
        for (mut options, file) in seen {
            let file = match file {
                Ok(file) => of_its_own(file.prepare(&mut options, set), count)?,
                Err(error) => Err(error),
            };
            files.push((options, file));
        }
        let (mut begun, mut named) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        let mut all = Recovery { clean: true, created: true, ..Recovery::default() };
        for (index, (options, file)) in (0..count).zip(files) {
            let facts = Unopened::of(&options);
            let volume = match file {
                Ok(file) => of_its_own(Volume::begin(options, file, build.clone()), count)?,
                Err(error) => Err(error),
            };
            let (volume, recovery, name) = match volume {
                Ok(volume) => volume,
                Err(error) => {
                    begun.push((facts, Err(error)));
                    continue;
                }
            };
            begun.push((facts, Ok(volume)));
            named.push(name);
            let Recovery { blocks, rejected, clean, created } = recovery;
            all.blocks.extend(blocks.into_iter().map(|mut block| {
                block.slot = block.slot * count + index;
                block
            }));
            all.rejected += rejected;
            all.clean &= clean;
            all.created &= created;
        }
        let Some(shape) = begun.iter().find_map(|(_, volume)| Some(*volume.as_ref().ok()?.shape())) else {
            return Err(first_of(begun));
        };
        named.iter_mut().for_each(file::Named::stays);
        let volumes = begun.into_iter().map(|(facts, volume)| match volume {
            Ok(volume) => volume,
            Err(error) => Volume::unopened(facts, shape, &error),
        });
        let mut set = VolumeSet { volumes: volumes.collect() };
        if count > 1 {
            all.blocks.sort_unstable_by_key(|block| (block.sequence, block.slot));
            // Each volume has removed duplicates of its own.
            let newest: HashMap<_, _> =
                all.blocks.iter().map(|block| (block.label.hash, block.slot)).collect();
            for older in all.blocks.extract_if(.., |block| newest.get(&block.label.hash) != Some(&block.slot))
            {
                all.rejected.duplicate += 1;
                set.volumes[(older.slot % count) as usize].note_duplicate();
                set.forget(older.slot);
            }
        }
        Ok((set, all))
    }

    /// Its volumes.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        // Does not overflow: `open` has checked the product.
        self.volumes.iter().map(Volume::slots).sum()
    }

    /// Payload bytes a slot: the length that no buffer may exceed.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.volumes.first().map_or(0, Volume::slot_bytes)
    }

    /// The volumes as they were opened.
    pub fn descriptions(&self) -> impl Iterator<Item = &Description> {
        self.volumes.iter().map(Volume::describe)
    }

    /// The counters of all volumes together.
    #[must_use]
    pub fn stats(&self) -> VolumeStats {
        let mut all = VolumeStats::default();
        self.volumes.iter().for_each(|volume| all += volume.stats());
        all
    }

    /// [`Volume::read`].
    pub fn read(
        &self,
        slot: u32,
        hash: SequenceHash,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Pending<BlockWrite> {
        let (volume, local) = self.at(slot);
        volume.read(local, hash, urgency, buffer)
    }

    /// [`Volume::write`].
    pub fn write(&self, slot: u32, name: Name, payload: impl Into<Payload>) -> Pending<BlockRead> {
        let (volume, local) = self.at(slot);
        volume.write(local, name, payload)
    }

    /// [`Volume::read_device`].
    pub fn read_device(
        &self,
        slot: u32,
        hash: SequenceHash,
        urgency: Urgency,
        range: DeviceRange,
    ) -> Pending<DeviceRange> {
        let (volume, local) = self.at(slot);
        volume.read_device(local, hash, urgency, range)
    }

    /// [`Volume::write_device`].
    pub fn write_device(&self, slot: u32, name: Name, range: DeviceRange) -> Pending<DeviceRange> {
        let (volume, local) = self.at(slot);
        volume.write_device(local, name, range)
    }

    /// [`Volume::forget`].
    pub fn forget(&self, slot: u32) {
        let (volume, local) = self.at(slot);
        volume.forget(local);
    }

    /// [`Volume::try_forget`].
    #[must_use]
    pub fn try_forget(&self, slot: u32) -> bool {
        let (volume, local) = self.at(slot);
        volume.try_forget(local)
    }

    /// [`Volume::try_read`].
    ///
    /// # Errors
    /// The buffer, if the queue of such reads is full.
    pub fn try_read(
        &self,
        slot: u32,
        hash: SequenceHash,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Result<Pending<BlockWrite>, BlockWrite> {
        let (volume, local) = self.at(slot);
        volume.try_read(local, hash, urgency, buffer)
    }

    /// [`Volume::try_write`].
    ///
    /// # Errors
    /// The buffer, if the queue of writes is full, or if all copies of an encrypted volume are in use.
    pub fn try_write(
        &self,
        slot: u32,
        name: Name,
        payload: impl Into<Payload>,
    ) -> Result<Pending<BlockRead>, BlockRead> {
        let (volume, local) = self.at(slot);
        volume.try_write(local, name, payload)
    }

    /// [`Volume::reads_at_once`] of the volume with the fewest, since slots determine the volume.
    #[must_use]
    pub fn reads_at_once(&self) -> usize {
        self.volumes.iter().map(Volume::reads_at_once).min().unwrap_or(0)
    }

    /// [`Volume::writes_at_once`] of the volume with the fewest.
    #[must_use]
    pub fn writes_at_once(&self) -> usize {
        self.volumes.iter().map(Volume::writes_at_once).min().unwrap_or(0)
    }

    /// [`Volume::flush`], one for each volume.
    pub fn flush(&self) -> Vec<Pending<()>> {
        self.volumes.iter().map(Volume::flush).collect()
    }

    /// [`Volume::close`] of each.
    pub fn close(&self) {
        self.volumes.iter().for_each(Volume::close);
    }

    fn at(&self, slot: u32) -> (&Volume, u32) {
        let count = self.volumes.len() as u32;
        (&self.volumes[(slot % count) as usize], slot / count)
    }
}

/// Whether a set can do without a volume that has this error: it concerns neither the other volumes nor
/// the options.
fn is_of_its_own(error: &VolumeError) -> bool {
    match error {
        VolumeError::Exists { .. }
        | VolumeError::Damaged { .. }
        | VolumeError::NotAVolume { .. }
        | VolumeError::BlockDevice { .. }
        | VolumeError::NoSpace { .. }
        | VolumeError::Quota { .. }
        | VolumeError::FileSizeLimit { .. }
        | VolumeError::NoDirect { .. } => true,
        // The process is short of threads, descriptors or memory for the other volumes too.
        VolumeError::Os { source, .. } => {
            let short = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
            !source.raw_os_error().is_some_and(|errno| short.contains(&errno))
        }
        VolumeError::Option { option, .. } => *option == "path",
        // A file in use, or of another volume, was named by mistake.
        VolumeError::InUse { .. } | VolumeError::Foreign { .. } | VolumeError::NoUring { .. } => false,
    }
}

/// The outer error refuses the set, the inner one leaves the volume out.
fn of_its_own<T>(opened: Result<T, VolumeError>, count: u32) -> Result<Result<T, VolumeError>, VolumeError> {
    match opened {
        Err(error) if count == 1 || !is_of_its_own(&error) => Err(error),
        opened => Ok(opened),
    }
}

/// The error of a set if none of its volumes could be opened.
fn first_of<F, T>(volumes: Vec<(F, Result<T, VolumeError>)>) -> VolumeError {
    let none = VolumeError::Option {
        path: std::path::PathBuf::new(),
        option: "paths",
        why: "must name at least one volume".to_owned(),
    };
    volumes.into_iter().find_map(|(_, volume)| volume.err()).unwrap_or(none)
}

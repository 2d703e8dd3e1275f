//! Requests with a buffer in device memory: the conditions for them, and their way in.
//!
//! They share table, order, caps and retries with requests of host memory. Two things differ. cuFile
//! moves the bytes, and it must accept the file. And payloads are summed on the device, by the
//! implementation that the options name.
//!
//! Invariants
//! - I1: a request of device memory reaches the engine only if its ring is a [`GdsRing`], no part of the
//!   request is padding, and there is an implementation for every sum that the engine will ask for.

use super::super::error::{DeviceRefusal, Direction, FailureCause, IoFailure};
use super::super::format::Shape;
use super::super::options::Gds;
use super::super::pending::{Cell, Pending};
use super::super::recovery::{Name, OwnerId};
use super::super::request::{Request, Task, Urgency};
use super::super::ring::Ring;
use super::super::ring::gds::GdsRing;
use super::Volume;
use crate::gds::{DeviceRange, DeviceSums, GdsDriver, GdsError, GdsFile, Pool};
use crate::process::Uninherited;
use kvstrata_core::SequenceHash;
use std::fs::File;
use std::sync::Arc;

/// Transfers of device memory are multiples of this: cuFile moves these directly, and O_DIRECT accepts
/// them everywhere.
pub(in crate::disk) const DEVICE_ALIGN_BYTES: usize = 4096;

/// Support for device memory.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) driver: Arc<GdsDriver>,
    sums: bool,
    verify: bool,
}

/// The facts that decide whether a volume serves device memory.
pub(super) struct Terms {
    pub(super) gds: Option<Gds>,
    pub(super) sums: Option<Arc<dyn DeviceSums>>,
    pub(super) file: Arc<Uninherited<File>>,
    pub(super) shape: Shape,
    pub(super) verify: bool,
    pub(super) encrypted: bool,
    pub(super) keep: bool,
    pub(super) direct: bool,
}

/// A volume's ring, and its support for device memory.
pub(super) struct Joined {
    pub(super) ring: Box<dyn Ring>,
    pub(super) device: Result<Device, DeviceRefusal>,
    /// Why device memory was asked for and is not supported.
    pub(super) note: Option<String>,
}

impl Terms {
    /// Puts cuFile beside the ring, if the options ask for it and it serves the file.
    pub(super) fn join(mut self, ring: Box<dyn Ring>) -> Joined {
        let gds = self.gds.take();
        match self.refuses(gds).and_then(|gds| self.start(gds, &*ring)) {
            Ok((pool, device)) => {
                Joined { ring: Box::new(GdsRing::new(ring, pool)), device: Ok(device), note: None }
            }
            Err((refusal, why)) => {
                let note = why.map(|why| format!("the volume refuses device memory: {why}"));
                Joined { ring, device: Err(refusal), note }
            }
        }
    }

    /// The checks that need no call of cuFile.
    fn refuses(&self, gds: Option<Gds>) -> Result<Gds, (DeviceRefusal, Option<String>)> {
        let slot_bytes = self.shape.slot_bytes as usize;
        let refuse = |refusal: DeviceRefusal| Err((refusal, Some(refusal.to_string())));
        let unavailable = |why: &str| Err((DeviceRefusal::Unavailable, Some(why.to_owned())));
        match gds {
            None => Err((DeviceRefusal::NotAsked, None)),
            Some(_) if self.encrypted => refuse(DeviceRefusal::Encrypted),
            Some(_) if !slot_bytes.is_multiple_of(DEVICE_ALIGN_BYTES) => {
                refuse(DeviceRefusal::SlotBytes { slot_bytes })
            }
            // cuFile opens the file a second time, by name.
            Some(_) if !self.keep => {
                unavailable("cuFile needs the file to have a name; open the volume with `keep`")
            }
            Some(_) if !self.direct => unavailable(
                "cuFile needs O_DIRECT, which is off; put the file on \
                 ext4 or xfs, and do not choose buffered I/O",
            ),
            Some(gds) => Ok(gds),
        }
    }

    fn start(self, gds: Gds, ring: &dyn Ring) -> Result<(Pool, Device), (DeviceRefusal, Option<String>)> {
        let Terms { sums, file, verify, .. } = self;
        let Gds { options, open } = gds;
        let device = |driver| Device { driver, sums: sums.is_some(), verify };
        let started = || -> Result<_, GdsError> {
            let driver = open(options)?;
            let file = GdsFile::register(&driver, file)?;
            let device = device(driver);
            Ok((Pool::start(file, options, sums.clone(), ring.bell())?, device))
        };
        started().map_err(|error| (DeviceRefusal::Unavailable, Some(error.to_string())))
    }
}

impl Device {
    /// Checks that sums can be made where they are needed (I1): for each write, and for each read
    /// that is verified.
    fn sums(&self, direction: Direction) -> Result<(), DeviceRefusal> {
        let must = direction == Direction::Write || self.verify;
        if must && !self.sums { Err(DeviceRefusal::NoSums) } else { Ok(()) }
    }
}

impl Volume {
    /// cuFile's driver, if the volume serves device memory, to make [buffers](crate::gds::GdsBuffer).
    /// Buffers of other drivers of the process work as well.
    #[must_use]
    pub fn gds(&self) -> Option<&Arc<GdsDriver>> {
        self.device.as_ref().ok().map(|device| &device.driver)
    }

    /// [`read`](Volume::read) into device memory, past host memory. If the volume was opened without
    /// [`VolumeOptions::gds`](super::super::VolumeOptions::gds), or cuFile does not serve it, the request
    /// has failed already, with [`FailureCause::Device`]. The payload is verified on the device, by
    /// [`VolumeOptions::device_sums`](super::super::VolumeOptions::device_sums).
    ///
    /// The range has as many bytes as a slot, all of them payload: a shorter block is read into host memory.
    /// A range that starts at a multiple of 4096 of its allocation is filled directly; cuFile copies others
    /// on the device.
    pub fn read_device(
        &self,
        slot: u32,
        hash: SequenceHash,
        urgency: Urgency,
        range: DeviceRange,
    ) -> Pending<DeviceRange> {
        let name = Name { hash, parent: None, owner: OwnerId::NONE };
        self.on_device(Direction::Read, Task::Read, slot, name, urgency, range)
    }

    /// [`write`](Volume::write) from device memory; see [`read_device`](Volume::read_device). Always
    /// needs [`VolumeOptions::device_sums`](super::super::VolumeOptions::device_sums), since each record
    /// needs a seal.
    ///
    /// The device's own work on these bytes must have ended: cuFile waits for no kernel and no stream.
    pub fn write_device(&self, slot: u32, name: Name, range: DeviceRange) -> Pending<DeviceRange> {
        self.on_device(Direction::Write, Task::Write, slot, name, Urgency::Ordinary, range)
    }

    fn on_device(
        &self,
        direction: Direction,
        task: Task,
        slot: u32,
        name: Name,
        urgency: Urgency,
        range: DeviceRange,
    ) -> Pending<DeviceRange> {
        let failed =
            |cause| Pending::failed(IoFailure { path: Arc::clone(&self.inbox.path), slot, direction, cause });
        let served = self.device.as_ref().map_err(|refusal| *refusal);
        if let Err(refusal) = served.and_then(|device| device.sums(direction)) {
            return failed(FailureCause::Device(refusal));
        }
        let (buffer_bytes, slot_bytes) = (range.size_bytes(), self.slot_bytes());
        match self.place(slot, buffer_bytes, direction) {
            Err(failure) => Pending::failed(failure),
            // I1: a shorter payload would need padding.
            Ok(_) if buffer_bytes != slot_bytes => {
                failed(FailureCause::BufferLength { buffer_bytes, slot_bytes })
            }
            Ok(place) => {
                let cell = Cell::new();
                self.inbox.push(Request::on_device(range, task, name, urgency, Arc::clone(&cell), place));
                Pending::new(cell)
            }
        }
    }
}

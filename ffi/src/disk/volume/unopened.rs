//! A volume of a set that could not be opened: its place is kept, and every request to it fails.

use super::super::backend::Backend;
use super::super::cells::Cells;
use super::super::description::{Concern, Description};
use super::super::error::{DeviceRefusal, VolumeError};
use super::super::format::Shape;
use super::super::inbox::Inbox;
use super::super::options::VolumeOptions;
use super::super::recovery::RejectedRecords;
use super::super::stats::ServiceState;
use super::Volume;
use crate::process::Origin;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The facts about a volume that are known before it is opened.
pub(in crate::disk) struct Unopened {
    path: PathBuf,
    queue: usize,
    index: u32,
}

impl Unopened {
    pub(in crate::disk) fn of(options: &VolumeOptions) -> Unopened {
        Unopened { path: options.path.clone(), queue: options.queue, index: options.stripe.index }
    }
}

impl Volume {
    /// A volume of a set that could not be opened, out of service from the start.
    pub(in crate::disk) fn unopened(facts: Unopened, shape: Shape, error: &VolumeError) -> Volume {
        let Unopened { path, queue, index } = facts;
        let inbox = Arc::new(Inbox::new(queue, Arc::from(Path::new(&path))));
        inbox.counters.service.set(ServiceState::Retired as u64);
        inbox.leave();
        let description = Description {
            path,
            slots: shape.slots,
            slot_bytes: shape.slot_bytes as usize,
            stride: shape.stride as usize,
            file_bytes: 0,
            backend: Backend::Blocking,
            direct: false,
            alignment: shape.alignment as usize,
            ring: "not opened".to_owned(),
            fixed_bytes: 0,
            gds: None,
            notes: vec![error.to_string()],
            concerns: vec![Concern::NotOpened],
            rejected: RejectedRecords::default(),
        };
        Volume {
            inbox,
            shape,
            index,
            queue,
            bounce: None,
            device: Err(DeviceRefusal::Unavailable),
            description,
            reads: Cells::new(),
            writes: Cells::new(),
            origin: Origin::here(),
            file: None,
            thread: Mutex::new(None),
        }
    }
}

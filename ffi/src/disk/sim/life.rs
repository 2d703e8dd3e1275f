//! One life of a volume: from its opening to its end, in order or not. The thread is the test's own.

use super::super::backend::Backend;
use super::super::bounce::{self, Bounce, NoCopy, SealedCopy};
use super::super::cipher::Key;
use super::super::engine::{Engine, Fill, Probes, Round, Setup, WriteBack};
use super::super::error::VolumeError;
use super::super::file;
use super::super::format::Superblock;
use super::super::inbox::Inbox;
use super::super::options::VolumeOptions;
use super::super::recovery::{Name, Recovery};
use super::super::request::{Place, transfer_bytes};
use super::super::ring::sim::{self, SimRing, World};
use super::super::stats::ServiceState;
use super::plan::Plan;
use crate::arena::HostArena;
use crate::process::Uninherited;
use kvstrata_core::storage::Storage;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open volume, without a thread.
pub(in crate::disk) struct Life {
    /// Some until the process ends.
    engine: Option<Engine>,
    pub(in crate::disk) inbox: Arc<Inbox>,
    pub(in crate::disk) arena: Arc<HostArena>,
    pub(in crate::disk) superblock: Superblock,
    /// Set in an encrypted volume.
    bounce: Option<Bounce>,
    /// Locked while it is Some.
    file: Option<Uninherited<File>>,
}

/// The result of opening: everything that an engine needs except the ring.
pub(in crate::disk) struct Opened {
    pub(in crate::disk) file: file::VolumeFile,
    pub(in crate::disk) sequence: Arc<AtomicU64>,
}

/// A system with simulated rings: the machine's io_uring is not tested.
pub(in crate::disk) struct Simulated;

impl file::System for Simulated {
    fn try_uring(&self, _depth: u32) -> io::Result<()> {
        Ok(())
    }

    /// All of the file, including blocks: that must be safe, whatever a file system reports.
    fn unwritten(&self, file: &File) -> io::Result<Vec<Range<u64>>> {
        let all = 0..file.metadata()?.len();
        Ok(vec![all])
    }
}

/// Opens the volume as [`Volume::open`](super::super::Volume::open) does.
pub(in crate::disk) fn open(
    path: &Path,
    plan: &Plan,
    key: Option<Key>,
) -> Result<(Opened, Recovery), VolumeError> {
    // Buffered: the alignment is the same everywhere, and the machine's page size does not matter.
    let mut options = VolumeOptions::new(path, plan.slots, plan.slot_bytes)
        .keep(true)
        .write_through_in_background(plan.fill)
        .backend(Backend::UringBuffered)
        .piece_bytes(plan.piece_bytes);
    options.system = Box::new(Simulated);
    options.key = key;
    let mut file = file::prepare(&mut options).and_then(|file| file.begin(&mut options))?;
    file.named.stays();
    let recovery = core::mem::take(&mut file.recovery);
    let sequence = options.stripe.sequence;
    // Relaxed: one thread.
    sequence.fetch_max(file.table.next_sequence(), Ordering::Relaxed);
    Ok((Opened { file, sequence }, recovery))
}

impl Life {
    /// Serves the opened volume over a simulated ring.
    pub(in crate::disk) fn start(
        opened: Opened,
        plan: &Plan,
        path: Arc<Path>,
        world: &Rc<RefCell<World>>,
    ) -> Result<Life, String> {
        let Opened { file, sequence } = opened;
        let file::VolumeFile { file, superblock, table, cipher, unwritten, .. } = file;
        let shape = superblock.shape;
        // The caps of `engine/order.rs` on urgent reads, and on others.
        let (read_cap_bytes, write_cap_bytes) =
            if plan.urgent == 10 { (2 << 20, 1 << 20) } else { (34 << 20, 4 << 20) };
        world.borrow_mut().start(sim::Place {
            depth: plan.depth,
            slots: shape.origin..shape.origin + u64::from(shape.slots) * shape.stride,
            stride: shape.stride,
            alignment: plan.alignment,
            read_cap_bytes,
            write_cap_bytes,
        });
        let inbox = Arc::new(Inbox::new(plan.queue, path));
        let write_back = WriteBack::new(superblock, plan.table_delay).map_err(|error| error.to_string())?;
        let fill = match unwritten.is_empty() {
            true => None,
            false => Some(Fill::new(shape, unwritten, &table).map_err(|error| error.to_string())?),
        };
        let arena = HostArena::new(plan.buffers, plan.slot_bytes).map_err(|error| error.to_string())?;
        let bounce = match &cipher {
            None => None,
            Some(cipher) => {
                let blocks = bounce::blocks(plan.slot_bytes, plan.queue + plan.depth);
                let bounce = Bounce::new(Arc::clone(cipher), blocks, plan.slot_bytes);
                Some(bounce.map_err(|error| error.to_string())?)
            }
        };
        let engine = Engine::new(Setup {
            ring: Box::new(SimRing(Rc::clone(world))),
            inbox: Arc::clone(&inbox),
            table,
            write_back: Some(write_back),
            fill,
            watch: None,
            probes: Probes::new(&superblock).map_err(|error| error.to_string())?,
            sequence,
            cipher,
            piece_bytes: plan.piece_bytes,
            alignment: plan.alignment,
            verify: true,
            trim: plan.trim,
        });
        Ok(Life { engine: Some(engine), inbox, arena, superblock, bounce, file: Some(file) })
    }

    pub(in crate::disk) fn state(&self) -> ServiceState {
        self.inbox.counters.state()
    }

    pub(in crate::disk) fn round(&mut self) -> Round {
        self.engine.as_mut().map_or(Round::Over, Engine::round)
    }

    /// The place of a transfer of so many bytes.
    pub(in crate::disk) fn place(&self, slot: u32, payload_bytes: usize) -> Place {
        let shape = &self.superblock.shape;
        let transfer_bytes = transfer_bytes(payload_bytes, shape.alignment as usize);
        let transfer_bytes = transfer_bytes.expect("at most a slot, and its stride fits");
        Place { slot, file_offset: shape.offset(slot), transfer_bytes }
    }

    /// A sealed copy of a payload, in an encrypted volume.
    pub(in crate::disk) fn seal(
        &self,
        slot: u32,
        name: Name,
        payload: &[u8],
    ) -> Result<Option<SealedCopy>, NoCopy> {
        self.bounce.as_ref().map(|bounce| bounce.seal(slot, name, (payload, None), None)).transpose()
    }

    /// The buffer that an address lies in.
    pub(in crate::disk) fn buffer_at(&self, address: usize) -> Option<usize> {
        block_at(&self.arena, address)
    }

    /// The block for sealed copies that an address lies in.
    pub(in crate::disk) fn copy_at(&self, address: usize) -> Option<usize> {
        block_at(self.bounce.as_ref()?.arena(), address)
    }

    /// The blocks for sealed copies that are in use.
    pub(in crate::disk) fn copies(&self) -> BTreeSet<usize> {
        let arena = self.bounce.iter().map(Bounce::arena);
        arena.flat_map(|arena| (0..arena.blocks()).filter(|block| arena.write(*block).is_err())).collect()
    }

    /// Ends the engine, whatever is in flight.
    pub(in crate::disk) fn stop(&mut self) {
        self.engine = None;
    }

    /// Releases the file.
    pub(in crate::disk) fn close(&mut self) {
        self.file = None;
    }
}

/// The block of an arena that an address lies in.
fn block_at(arena: &HostArena, address: usize) -> Option<usize> {
    let offset = address.checked_sub(arena.base_address() as usize)?;
    Some(offset / arena.stride()).filter(|block| *block < arena.blocks())
}

//! Calls to the ports and pools, passed on as they are, and noted. A forbidden call is a violation.

use crate::content::{bytes_of, read};
use kvstrata_core::events::EventSink;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, Priority, SequenceHash};
use kvstrata_ffi::device::SimDevice;
use kvstrata_ffi::disk::OwnerId;
use kvstrata_tiers::transfer::{
    Closing, Copies, DeviceMover, Extras, Forgetting, HostSide, Landed, Landing, Lands, Lasts, Path, Reserve,
    TierFacts, TierPort, TierRead, TierWrite,
};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notes of calls.
#[derive(Debug, Default)]
pub struct Notes {
    /// By path: transfers that have landed.
    pub landed: [u64; 4],
    pub under_way: u64,
    /// By path and hash (or tag): transfers in flight.
    moving: BTreeMap<(Path, u128), u32>,
    /// By the first word of their bytes: copies in flight to the host that a list has given up. A
    /// copy by the layers of such a pass is unowned, and may be in flight still when the pass of
    /// another list brings the next one.
    given_up: BTreeMap<u128, u32>,
    /// By their first words: partial blocks, with names that no caller knows.
    pub partial: BTreeMap<u64, SequenceHash>,
    /// By device block: the hash that is registered there, and its class for eviction, where an engine
    /// has given it one.
    pub classes: BTreeMap<u32, (SequenceHash, Priority)>,
    /// The signal that a closing disk waits for, and its report that it is closed.
    pub closing: Option<(Receiver<()>, Sender<()>)>,
    /// By tier and block: a block that another one of the same hash has replaced, and the hash.
    pub twins: BTreeMap<(&'static str, u32), (BlockRef, u128)>,
    pub violations: Vec<String>,
}

pub type Shared = Arc<Mutex<Notes>>;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

impl Notes {
    fn begins(&mut self, path: Path, whose: u128) {
        self.under_way += 1;
        let moving = self.moving.entry((path, whose)).or_default();
        *moving += 1;
        if *moving > 1 + self.given_up.get(&whose).copied().unwrap_or(0) {
            self.violations.push(format!("{whose:x} is moved twice at once: {path}"));
        }
    }

    pub fn gives_up(&mut self, hashes: &[SequenceHash]) {
        for hash in hashes {
            let whose = u128::from(word(&bytes_of(*hash, 8)));
            let moving = self.moving.get(&(Path::DeviceToHost, whose)).copied().unwrap_or(0);
            self.given_up.insert(whose, moving);
        }
    }

    /// A device block is no longer registered, or is registered anew.
    pub fn declassify(&mut self, BlockId(block): BlockId, what: &str) {
        if let Some((hash, Priority::Pinned)) = self.classes.remove(&block) {
            self.violations.push(format!("block {block} is pinned, with {hash:?}, and is {what}"));
        }
    }

    fn ends(&mut self, path: Path, whose: u128) {
        self.landed[path.index()] += 1;
        self.under_way -= 1;
        if let Some(moving) = self.moving.get_mut(&(path, whose)) {
            *moving -= 1;
            // Which of them has ended is unknown: with the last, all have.
            if *moving == 0 {
                self.given_up.remove(&whose);
            }
        }
    }
}

/// A pool's hashes: each is stored once before it is removed.
pub struct Hashes {
    pub tier: &'static str,
    pub notes: Shared,
    pub stored: Arc<Mutex<BTreeMap<u128, BlockRef>>>,
    /// Whether a hash may be there twice: in the device, where a block announced layer by layer was
    /// computed meanwhile; where a withdrawn block is kept for long, by a failed device that reads it or
    /// by a holder that has found it rotten.
    pub twice: bool,
}

impl Hashes {
    fn declassify(&self, block: BlockRef, what: &str) {
        if self.tier == "device" {
            lock(&self.notes).declassify(block.id, what);
        }
    }
}

impl EventSink for Hashes {
    fn stored(&self, block: BlockRef, hash: SequenceHash, _parent: Option<BlockRef>) {
        self.declassify(block, "registered");
        let (mut stored, mut notes) = (lock(&self.stored), lock(&self.notes));
        let Some(old) = stored.insert(hash.to_u128(), block) else { return };
        notes.twins.insert((self.tier, old.id.0), (old, hash.to_u128()));
        let twins =
            notes.twins.iter().filter(|((tier, _), (_, of))| *tier == self.tier && *of == hash.to_u128());
        if !self.twice || twins.count() > 1 && self.tier == "device" {
            let what = format!("{}: {hash:?} is stored in {block:?}, and is in {old:?}", self.tier);
            notes.violations.push(what);
        }
    }

    fn removed(&self, block: BlockRef, hash: SequenceHash) {
        self.declassify(block, "evicted");
        let (mut stored, mut notes) = (lock(&self.stored), lock(&self.notes));
        let place = (self.tier, block.id.0);
        if notes.twins.get(&place).is_some_and(|(twin, _)| *twin == block) {
            notes.twins.remove(&place);
            return;
        }
        let old = stored.remove(&hash.to_u128());
        if old != Some(block) {
            let what = format!("{}: {hash:?} is removed from {block:?}, and was in {old:?}", self.tier);
            notes.violations.push(what);
        }
        let of_hash = |((tier, _), (_, of)): &(&(&str, u32), &(BlockRef, u128))| {
            *tier == self.tier && *of == hash.to_u128()
        };
        let twin = notes.twins.iter().find(of_hash).map(|(place, twin)| (*place, *twin));
        if let Some((place, (twin, hash))) = twin {
            notes.twins.remove(&place);
            stored.insert(hash, twin);
        }
    }
}

/// A mover that notes its calls.
#[derive(Debug)]
pub struct Watched<M> {
    pub mover: Arc<M>,
    pub device: Arc<SimDevice>,
    pub notes: Shared,
}

/// Passes an answer on, and notes the transfers that it is about: a path and a hash each.
struct Ear {
    notes: Shared,
    about: Vec<(Path, u128)>,
    pass: Mutex<Option<Pass>>,
}

enum Pass {
    /// The given list, with its copies lent. Dropped with them in it, it is answered.
    Copies(Copies),
    To(Landing),
}

impl Lands for Ear {
    fn landed(&self, landed: Landed) {
        let mut notes = lock(&self.notes);
        self.about.iter().for_each(|(path, whose)| notes.ends(*path, *whose));
        drop(notes);
        let pass = lock(&self.pass).take();
        match (pass, landed) {
            (Some(Pass::Copies(mut copies)), Landed::Copies(list)) => {
                copies.list_mut().iter_mut().zip(list).for_each(|(place, copy)| *place = copy);
            }
            (Some(Pass::To(landing)), landed) => landing.land(landed),
            _ => lock(&self.notes).violations.push("answered twice".to_owned()),
        }
    }
}

impl<M: DeviceMover> DeviceMover for Watched<M> {
    fn start(&self, mut copies: Copies) {
        let list: Vec<_> = (0..copies.list().len()).map(|at| copies.lend(at)).collect();
        // Overwriting is no transfer of a path.
        let moved = list.iter().filter(|copy| !matches!(copy.host, HostSide::Zeros));
        let about = moved.map(|copy| {
            if copy.host.is_up() {
                // A block on its way up is not there yet: its device block identifies it.
                return (Path::HostToDevice, u128::from(copy.device.0));
            }
            (Path::DeviceToHost, u128::from(word(&read(&self.device, copy.device.0, 0..8))))
        });
        let about: Vec<_> = about.collect();
        let mut notes = lock(&self.notes);
        about.iter().for_each(|(path, whose)| notes.begins(*path, *whose));
        drop(notes);
        let ear = Ear { notes: Arc::clone(&self.notes), about, pass: Mutex::new(Some(Pass::Copies(copies))) };
        self.mover.start(Copies::new(list, Landing::new(Arc::new(ear))));
    }

    fn blocks_at_once(&self) -> usize {
        self.mover.blocks_at_once()
    }

    fn describe(&self) -> String {
        self.mover.describe()
    }
}

/// A disk that notes its calls.
#[derive(Debug)]
pub struct WatchedDisk<D> {
    pub disk: Arc<D>,
    pub notes: Shared,
    /// Whether host memory rots, so that wrong bytes are no violation.
    pub rots: bool,
}

impl<D: TierPort> WatchedDisk<D> {
    fn ear(&self, path: Path, hash: SequenceHash, landing: Landing) -> Landing {
        let about = vec![(path, hash.to_u128())];
        lock(&self.notes).begins(path, hash.to_u128());
        let pass = Mutex::new(Some(Pass::To(landing)));
        Landing::new(Arc::new(Ear { notes: Arc::clone(&self.notes), about, pass }))
    }
}

impl<D: TierPort> WatchedDisk<D> {
    fn port(&self) -> &dyn TierPort {
        &*self.disk
    }
}

impl<D: TierPort> TierPort for WatchedDisk<D> {
    fn pool(&self) -> &BlockPool {
        self.disk.pool()
    }

    fn facts(&self) -> TierFacts {
        self.disk.facts()
    }

    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>> {
        self.disk.find(hash, uses)
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        self.disk.reserve(which, slots);
    }

    fn read(&self, read: TierRead) {
        let landing = self.ear(Path::DISK_TO_DEVICE, read.hash, read.landing);
        self.disk.read(TierRead { landing, ..read });
    }

    fn write(&self, write: TierWrite) {
        let first = u64::from_le_bytes(write.bytes[..8].try_into().expect("8 bytes"));
        let partial = lock(&self.notes).partial.get(&first).copied();
        let of = partial.unwrap_or(write.name.hash);
        if !self.rots && write.bytes[..] != bytes_of(of, write.bytes.len()) {
            lock(&self.notes)
                .violations
                .push(format!("{:?} is written, and these are other bytes", write.name.hash));
        }
        let landing = self.ear(Path::HOST_TO_DISK, write.name.hash, write.landing);
        self.disk.write(TierWrite { landing, ..write });
    }

    fn release(&self, slot: BlockId) {
        self.disk.release(slot);
    }

    fn forget(&self, block: BlockRef) {
        self.disk.forget(block);
    }

    fn extras(&self) -> Extras<'_> {
        Extras { lasts: Some(self), ..self.disk.extras() }
    }
}

impl<D: TierPort> Lasts for WatchedDisk<D> {
    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.port().recovered()
    }

    fn forget_released(&self) {
        self.port().forget_released();
    }

    fn forget_for_good(&self) -> Forgetting {
        self.port().forget_for_good()
    }

    fn close(&self) -> Option<Closing> {
        let (go_on, closed) = lock(&self.notes).closing.take()?;
        Some(Box::new(move || {
            let _ = go_on.recv();
            let _ = closed.send(());
        }))
    }
}

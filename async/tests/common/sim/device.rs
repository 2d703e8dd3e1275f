//! Copies between a simulated device and host memory, in virtual time.

use super::{Fate, Fault, Plan, RUBBISH, Stage, UnderWay, flip, lock};
use kvstrata_core::storage::{DeviceError, DevicePort};
use kvstrata_ffi::device::SimDevice;
use kvstrata_tiers::transfer::{Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use twox_hash::XxHash3_64;

/// A device with the faults of its plan. `violations` lists calls that break the port's contract.
#[derive(Debug)]
pub struct SimMover(Arc<Mover>);

#[derive(Debug)]
struct Mover {
    device: Arc<SimDevice>,
    memory: Arc<HostMemory>,
    stage: Stage,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    under_way: Vec<Part>,
    dead: bool,
    /// Memory that a dead device may still reach.
    kept: Vec<(Kept, HostSide)>,
    violations: Vec<String>,
}

/// Blocks that a failed device keeps: one of its own, and one of host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub up: bool,
    pub device: u32,
    /// `None`: the device block was to be overwritten.
    pub host: Option<usize>,
}

/// Layers of a device block that a copy uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    block: u32,
    layers: Range<u32>,
    written: bool,
}

impl Part {
    fn of(copy: &Copy) -> Part {
        let written = copy.host.is_up();
        Part { block: copy.device.0, layers: copy.layers.clone(), written }
    }

    fn conflicts(&self, other: &Part) -> bool {
        let overlap = self.layers.start < other.layers.end && other.layers.start < self.layers.end;
        self.block == other.block && overlap && (self.written || other.written)
    }
}

impl SimMover {
    /// Runs on the current runtime. The device's blocks are as long as the memory's.
    pub fn new(device: Arc<SimDevice>, memory: Arc<HostMemory>, plan: Plan) -> SimMover {
        assert_eq!(device.block_bytes(), memory.arena().block_bytes(), "bytes a block");
        let books = Mutex::default();
        SimMover(Arc::new(Mover { device, memory, stage: Stage::new(plan), books }))
    }

    /// Requests from now on follow another plan.
    pub fn change(&self, change: impl FnOnce(&mut Plan)) {
        self.0.stage.change(change);
    }

    /// Flips a bit of a block of host memory. Returns false if the block is in use.
    pub fn rot(&self, block: u32, number: u64) -> bool {
        let guard = self.0.memory.write(block);
        guard.is_ok_and(|mut bytes| {
            flip(&mut bytes, number);
            true
        })
    }

    /// Copies that have been started and not answered.
    pub fn under_way(&self) -> usize {
        lock(&self.0.books).under_way.len()
    }

    pub fn kept(&self) -> Vec<Kept> {
        lock(&self.0.books).kept.iter().map(|(kept, _)| *kept).collect()
    }

    pub fn shutdown(&self) {
        self.0.stage.shutdown();
    }

    pub fn violations(&self) -> Vec<String> {
        lock(&self.0.books).violations.clone()
    }
}

impl Drop for SimMover {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl DeviceMover for SimMover {
    fn start(&self, mut copies: Copies) {
        let mover = &self.0;
        let bytes = copies.list().iter().map(|copy| mover.memory.bytes_of(&copy.layers)).sum();
        let mut whole = mover.stage.draw(bytes);
        let (mut parts, alive) = (Vec::new(), !lock(&mover.books).dead);
        for copy in copies.list_mut() {
            let fate = mover.stage.draw(0);
            // A copy that hangs, or kills the device, takes its list with it.
            if matches!(fate.fault, Some(Fault::Hangs | Fault::Lost)) {
                whole.fault = fate.fault;
            }
            let part = Part::of(copy);
            let mut books = lock(&mover.books);
            if books.under_way.iter().any(|other| other.conflicts(&part)) {
                books.violations.push(format!("layers {:?} of {} are in use", part.layers, copy.device));
                copy.outcome = Err(Failure::of(Cause::Busy));
                parts.push((None, fate, None));
                continue;
            }
            books.under_way.push(part.clone());
            drop(books);
            let early = mover.begin(copy, fate);
            parts.push((Some(part), fate, early));
        }
        mover.stage.perform(whole, Moving { mover: Arc::clone(mover), copies: Some(copies), parts, alive });
    }

    fn blocks_at_once(&self) -> usize {
        4
    }

    fn describe(&self) -> String {
        "a simulated device in virtual time".to_owned()
    }
}

impl Mover {
    /// Keeps the guard of the copy's memory, which the device may still reach: a later use of it fails.
    fn keep(&self, copy: &mut Copy) {
        copy.outcome = Err(Failure::of(Cause::Device));
        let up = copy.host.is_up();
        let host = match &copy.host {
            HostSide::Read(bytes) => Some(bytes.block()),
            HostSide::Write(bytes) => Some(bytes.block()),
            HostSide::Zeros => None,
            HostSide::Kept { .. } => return,
        };
        let kept = Kept { up, device: copy.device.0, host };
        lock(&self.books).kept.push((kept, copy.host.take()));
    }

    fn ranges(&self, layers: &Range<u32>) -> Vec<(u32, Range<usize>)> {
        layers.clone().map(|layer| (layer, self.memory.layer(layer).expect("a layer"))).collect()
    }

    /// Spoils the target. Returns the source's bytes if they are read at the start.
    fn begin(&self, copy: &mut Copy, fate: Fate) -> Option<Vec<u8>> {
        let ranges = self.ranges(&copy.layers);
        let early = fate.early.then(|| self.source(copy)).and_then(Result::ok);
        for (_, range) in ranges {
            match &mut copy.host {
                HostSide::Read(_) | HostSide::Zeros => {
                    let rubbish = vec![RUBBISH; range.len()];
                    // A block that does not exist is found out at the end.
                    let _ = self.device.copy_in(copy.device.0, range.start, &rubbish);
                }
                HostSide::Write(bytes) => bytes[range].fill(RUBBISH),
                HostSide::Kept { .. } => {}
            }
        }
        early
    }

    /// The bytes of all layers of a copy, at their source.
    fn source(&self, copy: &Copy) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::new();
        for (_, range) in self.ranges(&copy.layers) {
            match &copy.host {
                HostSide::Read(host) => bytes.extend_from_slice(&host[range]),
                HostSide::Zeros => bytes.extend(vec![0; range.len()]),
                HostSide::Write(_) => {
                    let mut layer = vec![0; range.len()];
                    self.device.copy_out(copy.device.0, range.start, &mut layer)?;
                    bytes.extend(layer);
                }
                HostSide::Kept { .. } => {}
            }
        }
        Ok(bytes)
    }

    fn carry_out(&self, copy: &mut Copy, fate: Fate, early: Option<Vec<u8>>) -> Result<(), Failure> {
        if fate.fault == Some(Fault::Fails) {
            return Err(Failure::passing(Cause::Device));
        }
        let mut bytes = early.map_or_else(|| self.source(copy), Ok)?;
        let up = matches!(copy.host, HostSide::Read(_));
        if fate.fault == Some(Fault::Damaged) && up && copy.verify {
            flip(&mut bytes, fate.number);
        }
        let mut rest = &bytes[..];
        for (layer, range) in self.ranges(&copy.layers) {
            let (bytes, behind) = rest.split_at(range.len());
            rest = behind;
            let sum = XxHash3_64::oneshot(bytes);
            match &mut copy.host {
                HostSide::Read(host) => {
                    self.device.copy_in(copy.device.0, range.start, bytes)?;
                    if copy.verify && !self.memory.matches(host, layer, sum) {
                        return Err(Failure::of(Cause::Mismatch));
                    }
                }
                HostSide::Zeros => self.device.copy_in(copy.device.0, range.start, bytes)?,
                HostSide::Write(host) => {
                    host[range].copy_from_slice(bytes);
                    self.memory.seal(host, layer, sum);
                }
                HostSide::Kept { .. } => {}
            }
        }
        Ok(())
    }
}

struct Moving {
    mover: Arc<Mover>,
    copies: Option<Copies>,
    /// Whether the device was alive at the start.
    alive: bool,
    /// For each copy: the part that it uses (`None`: it was refused), its fate, the bytes read at the start.
    parts: Vec<(Option<Part>, Fate, Option<Vec<u8>>)>,
}

impl UnderWay for Moving {
    fn end(mut self, fate: Fate) {
        let mut books = lock(&self.mover.books);
        books.dead |= fate.fault == Some(Fault::Lost);
        let dead = books.dead;
        drop(books);
        let keeps = dead && self.alive && self.mover.stage.keeps();
        let Some(copies) = &mut self.copies else { return };
        for (copy, (part, fate, early)) in copies.list_mut().iter_mut().zip(&mut self.parts) {
            if keeps && part.take().is_some() {
                self.mover.keep(copy);
            } else if part.is_some() {
                copy.outcome = match dead {
                    true => Err(Failure::of(Cause::Device)),
                    false => self.mover.carry_out(copy, *fate, early.take()),
                };
            }
        }
        // The drop answers it.
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut books = lock(&self.mover.books);
        for part in self.parts.iter().filter_map(|(part, ..)| part.as_ref()) {
            let place = books.under_way.iter().position(|other| other == part);
            place.map(|place| books.under_way.swap_remove(place));
        }
        drop(books);
        self.copies.take();
    }
}

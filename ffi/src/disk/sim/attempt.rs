//! One opening of the file, with its steps taken one by one.
//!
//! ```text
//!   file   ── open ──► all steps taken, on the real file ── undone ──► as it was
//!                                                                        │ repeated through the disk
//!          steps: sync, superblock A, sync, superblock B                 ├─ all of them: a life begins
//!                        ▲ the process or the machine may die            └─ a few, the next torn: again
//! ```

use super::super::file::steps::{Step, told};
use super::super::format::{Salts, Superblock};
use super::super::recovery::Recovery;
use super::SUPERBLOCK;
use super::disk::Disk;
use super::image;
use super::life::{self, Opened};
use super::plan::Plan;
use super::random::Random;
use std::path::Path;

/// A successful opening of a file that has been put back as it was before: its steps are yet to be taken.
pub(super) struct Attempt {
    pub(super) opened: Opened,
    pub(super) recovery: Recovery,
    steps: Vec<Step>,
}

impl Attempt {
    /// Opens a file that exists.
    pub(super) fn new(path: &Path, plan: &Plan, disk: &mut Disk) -> Result<Attempt, String> {
        let ends = |disk: &Disk| {
            let end = disk.bytes() - SUPERBLOCK as u64;
            [0, end].map(|at| (at, disk.read_vec(&(at..at + SUPERBLOCK as u64))))
        };
        let before = ends(disk);
        let expected = image::expected(disk, plan.key().as_ref());
        let (opened, steps) = told(|| life::open(path, plan, plan.key()));
        let (opened, recovery) = opened.map_err(|error| format!("opening: {error}"))?;
        if recovery != expected {
            return Err(format!("opening found {recovery:?}\nbut the file has {expected:?}"));
        }
        if ends(disk).iter().any(|(_, bytes)| *bytes != opened.file.superblock.to_bytes()) {
            return Err("the opening did not write both superblocks".to_owned());
        }
        before.iter().for_each(|(at, old)| disk.undo(*at, old));
        Ok(Attempt { opened, recovery, steps })
    }

    /// Takes all steps.
    pub(super) fn take(&self, disk: &mut Disk) {
        self.steps.iter().for_each(|step| take(step, disk));
    }

    /// Takes a few steps and tears the next one.
    pub(super) fn take_part(&self, disk: &mut Disk, random: &mut Random) -> Part {
        let (taken, rest) = self.steps.split_at(random.within(0, self.steps.len() as u64) as usize);
        taken.iter().for_each(|step| take(step, disk));
        if let Some(Step::Write { offset, bytes }) = rest.first() {
            disk.write_torn(*offset, bytes, random);
        }
        let syncs = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Sync));
        let written = taken.iter().position(|step| matches!(step, Step::Write { .. }));
        Part { synced: syncs(taken), certain: written.is_some_and(|n| syncs(&taken[n..])) }
    }
}

/// The guarantees of the steps that were taken.
pub(super) struct Part {
    /// The earlier contents of the file are on the device for good.
    pub(super) synced: bool,
    /// A superblock of this opening is on the device for good.
    pub(super) certain: bool,
}

fn take(step: &Step, disk: &mut Disk) {
    match step {
        Step::Write { offset, bytes } => {
            disk.write(*offset, bytes);
            disk.heal(*offset..*offset + bytes.len() as u64);
        }
        Step::Sync => disk.sync(disk.writes()),
    }
}

/// The known facts about the superblocks.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// One of these is in the file: volume, salts. No record needs the salts of openings that
    /// were cut short.
    pub(super) any_of: Vec<(u128, Salts)>,
    /// False if there may be none, since no opening has got so far.
    pub(super) certain: bool,
    /// Salts were lost for a known reason: the names in the records that needed them cannot be read.
    pub(super) salts_lost: bool,
    /// The superblocks of all lives so far.
    lives: Vec<(u128, Salts)>,
}

impl Known {
    pub(super) fn add(&mut self, superblock: &Superblock, certain: bool) {
        self.any_of.push((superblock.volume_id, superblock.salts));
        self.certain |= certain;
    }
}

impl Known {
    /// Notes that a life has begun: its superblock is on the device for good. If no record of an epoch was
    /// left, its number is used again with another salt. A record of it that a stale read hid until now then
    /// has the mask of a salt that is lost.
    pub(super) fn lives(&mut self, superblock: &Superblock) {
        let now = (superblock.volume_id, superblock.salts);
        let differ = |(was, is): (&[u8; 16], &[u8; 16])| *was != [0; 16] && was != is;
        let replaced = |life: &(u128, Salts)| life.0 == now.0 && life.1.iter().zip(&now.1).any(differ);
        let salts_lost = self.lives.iter().any(replaced);
        let mut lives = core::mem::take(&mut self.lives);
        lives.push(now);
        *self = Known { any_of: vec![now], certain: true, salts_lost, lives };
    }

    /// Forgets all but the earlier lives: nothing of the file is known.
    pub(super) fn start_over(&mut self) {
        *self = Known { lives: core::mem::take(&mut self.lives), ..Known::default() };
    }
}

/// Makes a file, on a disk without history, and opens it until one opening is complete.
pub(super) fn create(path: &Path, plan: &Plan, random: &mut Random) -> Result<(Disk, Attempt), String> {
    let (opened, recovery) =
        life::open(path, plan, plan.key()).map_err(|error| format!("making the file: {error}"))?;
    if !recovery.created || !recovery.blocks.is_empty() {
        return Err(format!("a new volume holds blocks: {recovery:?}"));
    }
    let mut disk = Disk::open(path).map_err(|error| error.to_string())?;
    let shape = opened.file.superblock.shape;
    drop(opened);
    [0, shape.superblock_b()].iter().for_each(|at| disk.undo(*at, &[0; SUPERBLOCK]));
    let mut attempt = Attempt::new(path, plan, &mut disk)?;
    let mut certain = false;
    while random.once_in(4) {
        certain |= attempt.take_part(&mut disk, random).certain;
        if random.once_in(2) {
            disk.cut_power(random);
        }
        drop(attempt);
        attempt = Attempt::new(path, plan, &mut disk)?;
        if !attempt.recovery.blocks.is_empty() || attempt.recovery.created && certain {
            return Err(format!("a new volume holds blocks, or was created twice: {:?}", attempt.recovery));
        }
    }
    attempt.take(&mut disk);
    Ok((disk, attempt))
}

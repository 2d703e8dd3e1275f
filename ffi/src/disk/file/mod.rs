//! The volume's file: made or found, sized, opened the right way, and gone again if it is not to stay.
//!
//! ```text
//!   keep = false   create (O_EXCL, 0600) ─ lock ─ drop the name ──────────┐
//!   keep = true    open or create ─ lock ─┬ new ──────────────────────────┼─ one set? ─ 0600 ─ room ─┬─ epoch ─ records ─ O_DIRECT? ─ superblocks
//!                                         └ superblocks ─ wanted? ─ table ┘                          │  ─ written through?
//!                  look: each file of a set ──────────────────────────────► prepare: each of them ───► begin: each of them
//! ```
//!
//! Where io_uring is asked for by name, it is tried before all that.
//!
//! Each step can fail, and a file that was made here is gone again when one does. A file that was found stays
//! as it is until it is known to be a volume, and the one that is wanted.
//!
//! Invariants
//! - I1: a file that was made here has a name only while [`Named`] holds its path, or if it is to stay.
//! - I2: nothing is written to a file that was found, nor its mode changed, before all files of its set are
//!   locked, known to be what their paths name, and known to be ours and of one set.

mod begin;
mod extents;
mod look;
mod name;
mod refused;
pub(in crate::disk) mod steps;
mod system;
mod through;

use super::cipher::Cipher;
use super::description::Concern;
use super::error::VolumeError;
use super::format::{SUPERBLOCK_BYTES, Superblock, Which};
use super::options::VolumeOptions;
use super::recovery::Recovery;
use super::table::Table;
use crate::arena::HostArena;
use crate::process::Uninherited;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

pub(super) use look::{look, set_of};
pub(super) use name::{Named, names};
use refused::{no_memory, os};
pub(crate) use system::available_at;
pub(super) use system::{Kernel, System};
use system::{allocate, set_direct};

/// A file that is ready for slots.
#[derive(Debug)]
pub(super) struct VolumeFile {
    /// A forked child does not keep it, nor its lock.
    pub(super) file: Uninherited<File>,
    pub(super) superblock: Superblock,
    pub(super) table: Table,
    /// Of an encrypted volume.
    pub(super) cipher: Option<Arc<Cipher>>,
    pub(super) recovery: Recovery,
    pub(super) direct: bool,
    /// Of memory, file offsets and lengths, in bytes.
    pub(super) alignment: usize,
    /// What of its slots is to be written through in the background, in order.
    pub(super) unwritten: Vec<Range<u64>>,
    /// What was not as asked or as good as it could be.
    pub(super) notes: Vec<String>,
    pub(super) concerns: Vec<Concern>,
    /// Removes the file again if it was made here and nobody comes to say that all went well.
    pub(super) named: Named,
}

/// What is in a file that was found, or is to be in it.
struct Contents {
    superblock: Superblock,
    /// Which copy it is: it is written last.
    counts: Which,
    /// None: an empty one. It is made when there is room for the file, since an absurd size has an absurd table.
    table: Option<RawTable>,
    /// Without the blocks.
    recovery: Recovery,
}

/// A slot table as it was read.
struct RawTable {
    bytes: Vec<u8>,
    /// Pages that could not be read, zeros here.
    unread: Vec<usize>,
}

/// A file that is ours and has its length, and whose superblocks are as they were: [`begin`](Prepared::begin) comes when
/// all files of its set are so.
pub(super) struct Prepared {
    file: Uninherited<File>,
    contents: Contents,
    /// The file's length as it was found.
    length: u64,
    /// Whether the file system has given it all its blocks.
    allocated: bool,
    direct: bool,
    refused: Option<String>,
    alignment: usize,
    notes: Vec<String>,
    concerns: Vec<Concern>,
    named: Named,
}

/// A volume that is a set of its own.
pub(super) fn prepare(options: &mut VolumeOptions) -> Result<Prepared, VolumeError> {
    let seen = look(options)?;
    let set = set_of([(&*options, &seen)])?;
    seen.prepare(options, set)
}

/// Gives the file its length and its blocks; false where the file system cannot give it blocks.
fn make_room(file: &File, path: &Path, bytes: u64, length: u64) -> Result<bool, VolumeError> {
    if length > bytes {
        file.set_len(bytes).map_err(os(path, "cut the file to its length"))?;
    }
    let has = file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
    // One that has them all is not asked about: a volume that fills its file system can be opened again.
    if length >= bytes && has >= bytes {
        return Ok(true);
    }
    allocate(file, path, bytes, bytes.saturating_sub(has))
}

/// Writes both superblocks, the copy that counts so far last, with O_DIRECT if it is wanted, since some file systems
/// grant the flag and refuse the transfer. The inner error says that O_DIRECT does not work; then it is off, and they are
/// written without. `over`: another volume's may be there, damaged. A loss of power could tear the last write so that the other
/// volume's copy is whole again, and it may count more writes: so both are on the device before anything else is.
fn write_superblocks(
    file: &File,
    path: &Path,
    superblock: &Superblock,
    counts: Which,
    direct: bool,
    over: bool,
) -> Result<Result<(), io::Error>, VolumeError> {
    let mut bytes = HostArena::new(1, SUPERBLOCK_BYTES)
        .ok()
        .and_then(|arena| arena.write(0).ok())
        .ok_or_else(|| no_memory(path))?;
    bytes.copy_from_slice(&superblock.to_bytes());
    let (a, b) = (0, superblock.shape.superblock_b());
    let (first, last) = if counts == Which::A { (b, a) } else { (a, b) };
    let write = || {
        // At any moment one whole copy is on the device, whatever a loss of power tears. The one that counts may not be
        // there yet: the process before this one wrote it, and ended.
        steps::sync(file)?;
        steps::write_all(file, &bytes, first)?;
        steps::sync(file)?;
        steps::write_all(file, &bytes, last)?;
        if over { steps::sync(file) } else { Ok(()) }
    };
    let mut refused = Ok(());
    if direct {
        let tried = set_direct(file, true).and_then(|()| write());
        match tried {
            Ok(()) => return Ok(Ok(())),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Err(error),
            Err(error) => return Err(os(path, "write the superblocks")(error)),
        }
        set_direct(file, false).map_err(os(path, "switch O_DIRECT off"))?;
    }
    write().map_err(os(path, "write the superblocks"))?;
    Ok(refused)
}

fn random(path: &Path) -> Result<u128, VolumeError> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(u128::from_le_bytes(bytes)),
        Err(error) => Err(os(path, "get a random number")(io::Error::other(error.to_string()))),
    }
}

//! The volume's file: created or found, sized, opened the right way, and removed again if it
//! is not to stay.
//!
//! ```text
//!   look (each file of a set)
//!     keep = false    create (O_EXCL, 0600) ─ lock ─ drop the name
//!     keep = true     open or create ─ lock ─┬ new
//!                                            └ found: superblocks ─ wanted? ─ table
//!   all of one set?
//!   prepare (each)    mode 0600 ─ room
//!   begin (each)      epoch ─ records ─ O_DIRECT? ─ superblocks ─ write through?
//! ```
//!
//! If io_uring is requested by name, it is tried before all that.
//!
//! Each step can fail; then a file that was created here is removed again. A file that was found is not
//! changed until it is known to be the wanted volume.
//!
//! Invariants
//! - I1: a file that was created here has a name only while [`Named`] holds its path, or if
//!   it is to stay.
//! - I2: before a found file is written to or its mode changed, all files of its set are locked, known to
//!   be the ones that their paths name, and known to be ours and of one set.

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
    /// A forked child keeps neither the file nor its lock.
    pub(super) file: Uninherited<File>,
    pub(super) superblock: Superblock,
    pub(super) table: Table,
    /// Set in an encrypted volume.
    pub(super) cipher: Option<Arc<Cipher>>,
    pub(super) recovery: Recovery,
    pub(super) direct: bool,
    /// Alignment of memory, file offsets and lengths, in bytes.
    pub(super) alignment: usize,
    /// Ranges of the slots that are written through in the background, in order.
    pub(super) unwritten: Vec<Range<u64>>,
    /// Differences from the options, and shortcomings.
    pub(super) notes: Vec<String>,
    pub(super) concerns: Vec<Concern>,
    /// Removes the file again if it was created here, unless it is told that all went well.
    pub(super) named: Named,
}

/// The contents of a file that was found, or the future contents of a new one.
struct Contents {
    superblock: Superblock,
    /// The copy that counts so far. It is written last.
    counts: Which,
    /// None: an empty table. It is made after the file has got its room, since an absurd size has an
    /// absurd table.
    table: Option<RawTable>,
    /// Without the blocks so far.
    recovery: Recovery,
}

/// A slot table as it was read.
struct RawTable {
    bytes: Vec<u8>,
    /// Pages that could not be read; zeros in `bytes`.
    unread: Vec<usize>,
}

/// A file that is ours and has its length, with superblocks as they were. [`begin`](Prepared::begin)
/// follows when all files of its set are prepared.
pub(super) struct Prepared {
    file: Uninherited<File>,
    contents: Contents,
    /// The file's length when it was found.
    length: u64,
    /// Whether the file system has allocated all its blocks.
    allocated: bool,
    direct: bool,
    refused: Option<String>,
    alignment: usize,
    notes: Vec<String>,
    concerns: Vec<Concern>,
    named: Named,
}

/// Prepares a volume that is a set of its own.
pub(super) fn prepare(options: &mut VolumeOptions) -> Result<Prepared, VolumeError> {
    let seen = look(options)?;
    let set = set_of([(&*options, &seen)])?;
    seen.prepare(options, set)
}

/// Gives the file its length and its blocks. Returns false if the file system cannot allocate blocks.
fn make_room(file: &File, path: &Path, bytes: u64, length: u64) -> Result<bool, VolumeError> {
    if length > bytes {
        file.set_len(bytes).map_err(os(path, "truncate the file to its length"))?;
    }
    let has = file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
    // A file with all its blocks needs no request: a volume that fills its file system can
    // be opened again.
    if length >= bytes && has >= bytes {
        return Ok(true);
    }
    allocate(file, path, bytes, bytes.saturating_sub(has))
}

/// Writes both superblocks, the copy that counts so far last. Tries O_DIRECT if it is wanted, since some
/// file systems grant the flag and refuse the transfer. The inner error says that O_DIRECT does not work:
/// it is off then, and the superblocks are written without it.
///
/// `over`: damaged superblocks of another volume may be there. A power loss could tear the last write so
/// that such a copy is intact again, and it may count more writes. So both superblocks are on the device
/// before anything else is.
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
        // At any moment one intact copy is on the device, whatever a power loss tears. The copy that
        // counts may not be there yet, if the previous process wrote it and ended.
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
        Err(error) => Err(os(path, "draw a random number")(io::Error::other(error.to_string()))),
    }
}

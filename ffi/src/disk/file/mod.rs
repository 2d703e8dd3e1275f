//! The volume's file: made or found, sized, opened the right way, and gone again if it is not to stay.
//!
//! ```text
//!   keep = false   create (O_EXCL, 0600) ─ lock ─ drop the name ─ allocate ─────────────────────┐
//!   keep = true    open or create ─ lock ─┬ new: allocate ──────────────────────────────────────┼─ epoch ─ records ─ O_DIRECT? ─ superblocks ─ written through?
//!                                         └ found: superblocks ─ wanted? ─ table ─ 0600 ─ room ─┘
//!                  prepare: each file of a set ────────────────────────────────────────────────► begin: each of them
//! ```
//!
//! Where io_uring is asked for by name, it is tried before all that.
//!
//! Each step can fail, and a file that was made here is gone again when one does. A file that was found stays as it
//! is until it is known to be a volume, and the one that is wanted.
//!
//! Invariants
//! - I1: a file that was made here has a name only while [`Named`] holds its path, or if it is to stay.
//! - I2: nothing is written to a file that was found, nor its mode changed, before it is locked, known to be what the path
//!   names, and known to be ours.

mod begin;
mod extents;
mod name;
pub(in crate::disk) mod steps;
mod system;
mod through;

use super::cipher::{self, Cipher};
use super::error::VolumeError;
use super::format::{
    NO_SALTS, PAGE_BYTES, RECORDS_A_PAGE, SUPERBLOCK_BYTES, SealKind, Shape, Superblock, VERSION, Wanted,
    Which, pick,
};
use super::options::{Backend, VolumeOptions};
use super::recovery::{Recovery, RejectedRecords};
use super::table::Table;
use crate::arena::HostArena;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use begin::not_encrypted;
pub(super) use name::Named;
pub(crate) use system::available_at;
pub(super) use system::{Kernel, System};
use system::{allocate, served_elsewhere, set_direct};

/// Slots are aligned to this where there is no O_DIRECT and hence no rule.
const BUFFERED_ALIGN_BYTES: usize = 512;
/// Where no superblock says how often it was written: more often than anybody opens a volume, so that no old copy wins,
/// and half of the openings that sequence numbers have room for.
const UNKNOWN_WRITES: u64 = 1 << 21;

/// A file that is ready for slots.
#[derive(Debug)]
pub(super) struct VolumeFile {
    pub(super) file: File,
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
    file: File,
    contents: Contents,
    /// The file's length as it was found.
    length: u64,
    /// Whether the file system has given it all its blocks.
    allocated: bool,
    direct: bool,
    refused: Option<String>,
    alignment: usize,
    notes: Vec<String>,
    named: Named,
}

pub(super) fn prepare(options: &mut VolumeOptions) -> Result<Prepared, VolumeError> {
    options.check()?;
    let path = options.path.clone();
    if matches!(options.backend, Backend::UringDirect | Backend::UringBuffered) {
        let tried = options.system.try_uring(options.depth);
        tried.map_err(|source| VolumeError::NoUring { path: path.clone(), source })?;
    }
    let mut notes = Vec::new();
    let name::Opened { file, made, named } = name::open(options, &mut notes)?;
    let magic = options.system.file_system(&file);
    if options.backend == Backend::Auto
        && let Some(name) = magic.and_then(served_elsewhere)
    {
        options.backend = Backend::Blocking;
        notes.push(format!(
            "on {name}, which another process or machine serves: no io_uring unless asked for"
        ));
    }
    let wants_direct = options.backend != Backend::UringBuffered;
    let alignment =
        if wants_direct { options.system.direct_alignment(&file) } else { Ok(BUFFERED_ALIGN_BYTES) };
    let (direct, refused, alignment) = match alignment {
        Ok(alignment) => (wants_direct, None, alignment),
        Err(why) => (false, Some(why), BUFFERED_ALIGN_BYTES),
    };
    let length = file.metadata().map_err(os(&path, "ask the file's length"))?.len();
    let found = if length == 0 { None } else { find(&file, length, alignment, options, &mut notes)? };
    let contents = match found {
        Some(found) => found,
        None => make(options, alignment)?,
    };
    if !made {
        notes.extend(name::close_to_others(&file, options));
    }
    let file_bytes = contents.superblock.shape.file_bytes;
    let allocated = make_room(&file, &path, file_bytes, length)?;
    if let (Some(_), Some(raw)) = (&options.key, &contents.table) {
        let last = begin::last_sequence(&contents.superblock, &raw.bytes);
        // Relaxed: a set's volumes are opened by one thread.
        options.stripe.sequence.fetch_max(last + 1, Ordering::Relaxed);
    }
    Ok(Prepared { file, contents, length, allocated, direct, refused, alignment, notes, named })
}

fn os(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Os { path, operation, source }
}

/// A new volume, with an empty table.
fn make(options: &VolumeOptions, alignment: usize) -> Result<Contents, VolumeError> {
    let shape = options.shape(alignment)?;
    let volume_id = random(&options.path)?;
    let superblock = Superblock {
        volume_id,
        set_id: match options.stripe.set_id {
            Some(set_id) => set_id,
            None => random(&options.path)?,
        },
        layout_fingerprint: options.layout_fingerprint,
        model_fingerprint: options.model_fingerprint,
        shape,
        seal_kind: seal_kind(options),
        writes: 0,
        clean: false,
        stripe_index: options.stripe.index,
        stripe_count: options.stripe.count,
        created_unix_seconds: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs()),
        key_check: key_check(options, volume_id)?,
        salts: NO_SALTS,
    };
    let recovery = Recovery { created: true, ..Recovery::default() };
    Ok(Contents { superblock, counts: Which::B, table: None, recovery })
}

/// The volume that the file holds. None: it is empty, or to be started over.
fn find(
    file: &File,
    length: u64,
    alignment: usize,
    options: &VolumeOptions,
    notes: &mut Vec<String>,
) -> Result<Option<Contents>, VolumeError> {
    let path = &options.path;
    let (a, b) = (read_up_to(file, 0), read_up_to(file, length.saturating_sub(SUPERBLOCK_BYTES as u64)));
    let picked = pick(&a.map_err(os(path, "read the superblock"))?, &b.unwrap_or_default());
    let new = options.shape(alignment)?;
    let over = |writes, notes: &mut Vec<String>, why: &str| {
        notes.push(format!("started over: {why}"));
        let mut fresh = make(options, alignment)?;
        fresh.superblock.writes = writes;
        fresh.recovery.rejected.superblock = picked.bad();
        Ok(Some(fresh))
    };
    let Some((which, superblock)) = picked.best else {
        if let Some(found) = picked.version() {
            if options.reinitialize {
                return over(UNKNOWN_WRITES, notes, "asked to");
            }
            return Err(foreign(path, "version", found.to_string(), VERSION.to_string()));
        }
        // A file of exactly this length is taken for a volume whose superblocks are both damaged. Any other may be
        // anything, and is nobody's to overwrite.
        return match length == new.file_bytes {
            true => over(UNKNOWN_WRITES, notes, "neither superblock is whole"),
            false => Err(VolumeError::NotAVolume { path: path.clone() }),
        };
    };
    if options.reinitialize {
        return over(superblock.writes, notes, "asked to");
    }
    let wanted = Wanted {
        seal_kind: seal_kind(options),
        model_fingerprint: options.model_fingerprint,
        layout_fingerprint: options.layout_fingerprint,
        slots: new.slots,
        slot_bytes: new.slot_bytes,
        stripe_index: options.stripe.index,
        stripe_count: options.stripe.count,
        set_id: options.stripe.set_id,
        alignment: new.alignment,
        key_check: key_check(options, superblock.volume_id)?,
    };
    if let Some(mismatch) = superblock.mismatch(&wanted) {
        return Err(foreign(path, mismatch.field, mismatch.found, mismatch.wanted));
    }
    if picked.bad() > 0 {
        let whole = if which == Which::A { "first" } else { "second" };
        notes.push(format!("one superblock was damaged; the {whole} one is whole"));
    }
    let raw = read_table(file, &superblock.shape, length, path)?;
    let rejected = RejectedRecords {
        table: (raw.unread.len() * RECORDS_A_PAGE) as u64,
        superblock: picked.bad(),
        ..RejectedRecords::default()
    };
    let recovery = Recovery { blocks: Vec::new(), rejected, clean: picked.clean, created: false };
    Ok(Some(Contents { superblock, counts: which, table: Some(raw), recovery }))
}

fn seal_kind(options: &VolumeOptions) -> SealKind {
    if options.key.is_some() { SealKind::Tag } else { SealKind::Checksum }
}

fn key_check(options: &VolumeOptions, volume_id: u128) -> Result<[u8; 16], VolumeError> {
    let check = options.key.as_ref().map(|key| cipher::key_check(key, volume_id));
    check.unwrap_or(Ok([0; 16])).map_err(not_encrypted(&options.path))
}

fn foreign(path: &Path, field: &'static str, found: String, wanted: String) -> VolumeError {
    VolumeError::Foreign { path: path.to_owned(), field, found, wanted }
}

/// As much of a superblock as there is.
fn read_up_to(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// The slot table, zeros for the pages that cannot be read, and which those are.
fn read_table(file: &File, shape: &Shape, length: u64, path: &Path) -> Result<RawTable, VolumeError> {
    let there = shape.table_bytes().min(length.saturating_sub(shape.table_offset));
    let there = usize::try_from(there).map_err(|_| no_memory(path))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(there).map_err(|_| no_memory(path))?;
    bytes.resize(there, 0);
    if file.read_exact_at(&mut bytes, shape.table_offset).is_ok() {
        return Ok(RawTable { bytes, unread: Vec::new() });
    }
    let mut unread = Vec::new();
    for (number, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        if file.read_exact_at(page, shape.table_offset + (number * PAGE_BYTES) as u64).is_err() {
            page.fill(0);
            unread.push(number);
        }
    }
    Ok(RawTable { bytes, unread })
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
/// written without.
fn write_superblocks(
    file: &File,
    path: &Path,
    superblock: &Superblock,
    counts: Which,
    direct: bool,
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
        steps::write_all(file, &bytes, last)
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

fn no_memory(path: &Path) -> VolumeError {
    os(path, "get memory for the volume")(io::Error::from_raw_os_error(libc::ENOMEM))
}

fn random(path: &Path) -> Result<u128, VolumeError> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(u128::from_le_bytes(bytes)),
        Err(error) => Err(os(path, "get a random number")(io::Error::other(error.to_string()))),
    }
}

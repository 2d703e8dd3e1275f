//! Looks at the files of a set, before anything is written to one of them.
//!
//! ```text
//!   file 0   intact: id x  ┐                      ┌ x kept
//!   file 1   missing       ├─ one id, x, or none ─┤ created anew, of set x
//!   file 2   damaged       ┘   (then a new set)   └ started over, of set x
//! ```
//!
//! A missing or damaged file costs its own blocks only: the intact files determine the set, wherever they
//! are in it. If they are of two sets, the files were mixed up, and none is changed.

use super::super::backend::Backend;
use super::super::cipher;
use super::super::description::Concern;
use super::super::error::VolumeError;
use super::super::format::{
    NO_SALTS, PAGE_BYTES, RECORDS_A_PAGE, SUPERBLOCK_BYTES, SealKind, Shape, Superblock, VERSION, Wanted,
    Which, has_magic, pick,
};
use super::super::options::VolumeOptions;
use super::super::recovery::{Recovery, RejectedRecords};
use super::begin::{last_sequence, not_encrypted};
use super::name::{self, Named};
use super::refused::{no_memory, os};
use super::system::{BUFFERED_ALIGN_BYTES, in_memory, served_elsewhere};
use super::{Contents, Prepared, RawTable, make_room, random};
use crate::process::Uninherited;
use crate::shown::shown_path;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// The count of writes for a superblock without a known one. It is more than a volume is ever opened, so
/// that no old copy wins, and half of the openings that sequence numbers have room for.
const UNKNOWN_WRITES: u64 = 1 << 21;

/// A locked file, as it was found.
pub(in crate::disk) struct Seen {
    file: Uninherited<File>,
    /// Whether it was created just now.
    made: bool,
    named: Named,
    length: u64,
    /// Its contents; without a table, its future contents.
    contents: Contents,
    direct: bool,
    refused: Option<String>,
    alignment: usize,
    in_memory: bool,
    notes: Vec<String>,
}

/// The set that files belong to.
#[derive(Debug, Clone, Copy)]
pub(in crate::disk) struct Set {
    id: u128,
    /// Whether one of its files is intact; otherwise the set is new.
    found: bool,
}

/// Opens or creates a file, locks it, and reads its contents.
pub(in crate::disk) fn look(options: &mut VolumeOptions) -> Result<Seen, VolumeError> {
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
            "on {name}, which another process or machine serves: threads \
             move the bytes unless io_uring is requested"
        ));
    }
    let memory = magic.and_then(in_memory);
    if let Some(name) = memory {
        notes.push(format!("on {name}, which is memory: a restart of the machine loses all blocks"));
    }
    let wants_direct = options.backend != Backend::UringBuffered;
    let alignment =
        if wants_direct { options.system.direct_alignment(&file) } else { Ok(BUFFERED_ALIGN_BYTES) };
    let (direct, refused, alignment) = match alignment {
        Ok(alignment) => (wants_direct, None, alignment),
        Err(why) => (false, Some(why), BUFFERED_ALIGN_BYTES),
    };
    let length = file.metadata().map_err(os(&path, "read the file's length"))?.len();
    let found = if length == 0 { None } else { find(&file, length, alignment, options, &mut notes)? };
    let contents = match found {
        Some(found) => found,
        None => make(options, alignment)?,
    };
    let in_memory = memory.is_some();
    Ok(Seen { file, made, named, length, contents, direct, refused, alignment, in_memory, notes })
}

/// The set of files that have all been looked at: the one set of the intact files, or a new one.
pub(in crate::disk) fn set_of<'f>(
    files: impl IntoIterator<Item = (&'f VolumeOptions, &'f Seen)>,
) -> Result<Set, VolumeError> {
    let mut known: Option<(u128, &Path)> = None;
    let mut path = Path::new("");
    for (options, Seen { contents, .. }) in files {
        path = &options.path;
        let id = contents.superblock.set_id;
        match known {
            _ if contents.table.is_none() => {}
            None => known = Some((id, path)),
            Some((wanted, first)) if id != wanted => {
                let wanted = format!("{wanted:032x} of {}", shown_path(first));
                return Err(foreign(path, "set_id", format!("{id:032x}"), wanted));
            }
            Some(_) => {}
        }
    }
    match known {
        Some((id, _)) => Ok(Set { id, found: true }),
        None => Ok(Set { id: random(path)?, found: false }),
    }
}

impl Seen {
    /// Takes group's and others' rights off the file and gives it its length, as a file of this set.
    pub(in crate::disk) fn prepare(
        self,
        options: &mut VolumeOptions,
        set: Set,
    ) -> Result<Prepared, VolumeError> {
        let Seen {
            file,
            made,
            named,
            length,
            mut contents,
            direct,
            refused,
            alignment,
            in_memory,
            mut notes,
        } = self;
        let path = &options.path;
        contents.superblock.set_id = set.id;
        let fresh = contents.table.is_none();
        let concern = match contents.recovery.rejected.superblock {
            _ if options.reinitialize => None,
            _ if set.found && fresh && length == 0 => Some(Concern::MadeAnew),
            0 => None,
            _ if fresh => Some(Concern::StartedOver),
            _ => Some(Concern::Superblock),
        };
        if set.found && fresh && length == 0 {
            let state = if made { "was not there" } else { "was empty" };
            notes.push(format!("the file {state}: created anew for its set; its former blocks are lost"));
        }
        if !made {
            notes.extend(name::close_to_others(&file, options));
        }
        let file_bytes = contents.superblock.shape.file_bytes;
        let allocated = make_room(&file, path, file_bytes, length)?;
        if let (Some(_), Some(raw)) = (&options.key, &contents.table) {
            let last = last_sequence(&contents.superblock, &raw.bytes);
            // Relaxed: a set's volumes are opened by one thread.
            options.stripe.sequence.fetch_max(last + 1, Ordering::Relaxed);
        }
        let concerns = concern.into_iter().chain(in_memory.then_some(Concern::InMemory)).collect();
        Ok(Prepared { file, contents, length, allocated, direct, refused, alignment, notes, concerns, named })
    }
}

/// The contents of a new volume, with an empty table.
fn make(options: &VolumeOptions, alignment: usize) -> Result<Contents, VolumeError> {
    let shape = options.shape(alignment)?;
    let volume_id = random(&options.path)?;
    let superblock = Superblock {
        volume_id,
        // Filled in after all files of its set have been looked at.
        set_id: 0,
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

/// The volume in the file. A volume that is started over has no table.
fn find(
    file: &File,
    length: u64,
    alignment: usize,
    options: &VolumeOptions,
    notes: &mut Vec<String>,
) -> Result<Option<Contents>, VolumeError> {
    let path = &options.path;
    let a = read_up_to(file, 0).map_err(os(path, "read the superblock"))?;
    let b = read_up_to(file, length.saturating_sub(SUPERBLOCK_BYTES as u64)).unwrap_or_default();
    let picked = pick(&a, &b);
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
                return over(UNKNOWN_WRITES, notes, "as the options ask");
            }
            return Err(foreign(path, "version", found.to_string(), VERSION.to_string()));
        }
        // A file of exactly this length is taken for a volume with two damaged superblocks. Any other
        // file may be anything, and must not be overwritten unless something shows that it was a volume.
        let was_one = || {
            let moved = read_up_to(file, new.superblock_b()).unwrap_or_default();
            [&a, &b, &moved].into_iter().any(|copy| has_magic(copy))
        };
        return match options.reinitialize {
            _ if length == new.file_bytes => over(UNKNOWN_WRITES, notes, "both superblocks are damaged"),
            _ if !was_one() => Err(VolumeError::NotAVolume { path: path.clone() }),
            true => over(UNKNOWN_WRITES, notes, "as the options ask"),
            false => Err(VolumeError::Damaged { path: path.clone() }),
        };
    };
    if options.reinitialize {
        return over(superblock.writes, notes, "as the options ask");
    }
    let wanted = Wanted {
        seal_kind: seal_kind(options),
        model_fingerprint: options.model_fingerprint,
        layout_fingerprint: options.layout_fingerprint,
        slots: new.slots,
        slot_bytes: new.slot_bytes,
        stripe_index: options.stripe.index,
        stripe_count: options.stripe.count,
        alignment: new.alignment,
        key_check: key_check(options, superblock.volume_id)?,
    };
    if let Some(mismatch) = superblock.mismatch(&wanted) {
        return Err(foreign(path, mismatch.field, mismatch.found, mismatch.wanted));
    }
    if picked.bad() > 0 {
        let whole = if which == Which::A { "first" } else { "second" };
        notes.push(format!("one superblock was damaged; the {whole} one is intact"));
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

/// Reads a superblock, or as much of it as there is.
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

/// Reads the slot table. Pages that cannot be read are zeros, and listed.
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

//! The end of an opening: the table is loaded, an encrypted volume begins its epoch, and the superblocks
//! are written.
//!
//! All files of a set are prepared by then: sequence numbers and epoch continue from the largest number
//! in any of the files, so that the records of all have one order.

use super::super::backend::Backend;
use super::super::cipher::{Cipher, CipherError};
use super::super::description::Concern;
use super::super::error::VolumeError;
use super::super::format::{COUNT_BITS, Record, Superblock};
use super::super::options::VolumeOptions;
use super::super::recovery::RejectedRecords;
use super::super::table::{Extent, Table};
use super::refused::{no_memory, os};
use super::through::{Found, write_through};
use super::{Contents, Prepared, VolumeFile, write_superblocks};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Prepared {
    /// Loads the records, begins an epoch in an encrypted volume, and writes the superblocks.
    pub(in crate::disk) fn begin(self, options: &mut VolumeOptions) -> Result<VolumeFile, VolumeError> {
        let Prepared {
            file,
            contents,
            length,
            allocated,
            mut direct,
            mut refused,
            alignment,
            mut notes,
            mut concerns,
            named,
        } = self;
        let Contents { mut superblock, counts, table, mut recovery } = contents;
        let path = &options.path;
        let cipher = match &options.key {
            None => None,
            Some(key) => {
                let next = Arc::clone(&options.stripe.sequence);
                let cipher = Cipher::new(key, superblock.volume_id, &superblock.salts, next);
                let cipher = cipher.map_err(not_encrypted(path))?;
                superblock.salts = *cipher.salts();
                Some(Arc::new(cipher))
            }
        };
        let fresh = table.is_none();
        let table = match table {
            Some(raw) => {
                let loaded = Table::load(&superblock, &raw.bytes, length, cipher.clone());
                let (mut table, blocks, rejected) = loaded.ok_or_else(|| no_memory(path))?;
                for page in &raw.unread {
                    table.redirty(Extent { first_page: *page, pages: 1 });
                }
                recovery.blocks = blocks;
                recovery.rejected += rejected;
                table
            }
            None => {
                let table = Table::new(superblock.volume_id, superblock.shape.slots, cipher.clone());
                let mut table = table.ok_or_else(|| no_memory(path))?;
                if length > 0 {
                    // The former records belong to another volume now, but their places have to be zeroed
                    // all the same.
                    table.redirty(Extent { first_page: 0, pages: table.pages() });
                }
                table
            }
        };
        // At least the epoch's number, or records would be above `last_sequence`: in a set the
        // number may come from another file, which is older or newer. Relaxed: a set's volumes are
        // opened by one thread.
        let epoch = options.stripe.sequence.load(Ordering::Relaxed) >> COUNT_BITS;
        superblock.writes = superblock.writes.saturating_add(1).max(epoch);
        superblock.clean = false;
        if let Err(error) = write_superblocks(&file, path, &superblock, counts, direct, fresh && length > 0)?
        {
            direct = false;
            refused = Some(error.to_string());
        }
        if let Some(why) = refused {
            if options.require_direct || options.backend == Backend::UringDirect {
                return Err(VolumeError::NoDirect { path: path.clone(), why });
            }
            notes.push(format!(
                "the file system refuses O_DIRECT ({why}): the page cache holds a second copy of the blocks"
            ));
            // A file system in memory has nothing but the page cache.
            if !concerns.contains(&Concern::InMemory) {
                concerns.push(Concern::Buffered);
            }
        }
        let RejectedRecords { truncated, table: unread, .. } = recovery.rejected;
        for (count, concern) in [(truncated, Concern::Truncated), (unread, Concern::Unread)] {
            concerns.extend((count > 0).then_some(concern));
        }
        // With O_DIRECT if that works, or the page cache would write these bytes again later, in
        // the background.
        let found = Found { fresh, length, allocated };
        let unwritten = write_through(&file, options, &superblock.shape, &found, &mut notes)?;
        Ok(VolumeFile {
            file,
            superblock,
            table,
            cipher,
            recovery,
            direct,
            alignment,
            unwritten,
            notes,
            concerns,
            named,
        })
    }
}

/// The largest sequence number of all intact records, or 0. Numbers that no opening gave are left out.
pub(super) fn last_sequence(superblock: &Superblock, table: &[u8]) -> u64 {
    let records = (0..superblock.shape.slots).zip(table.as_chunks().0);
    let whole =
        records.filter_map(|(slot, bytes)| Record::decode(bytes, superblock.volume_id, slot).ok().flatten());
    let given =
        whole.map(|record| record.sequence).filter(|sequence| *sequence <= superblock.last_sequence());
    given.max().unwrap_or(0)
}

pub(super) fn not_encrypted(path: &Path) -> impl FnOnce(CipherError) -> VolumeError {
    move |error| os(path, "encrypt the volume")(io::Error::other(error))
}

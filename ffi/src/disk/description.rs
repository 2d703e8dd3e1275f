//! The description of an opened volume, for people.

use super::backend::Backend;
use super::recovery::RejectedRecords;
use crate::gds::GdsDescription;
use crate::shown::shown_path;
use std::path::PathBuf;

/// A finding at opening that an operator should look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// Its file was missing or empty although others of its set were not. It was created anew,
    /// without its blocks.
    MadeAnew,
    /// Neither superblock was intact. The volume was started over, without its blocks.
    StartedOver,
    /// One superblock was damaged; the other is intact.
    Superblock,
    /// The file had become shorter, and blocks beyond its end are lost.
    Truncated,
    /// A part of the slot table could not be read.
    Unread,
    /// The volume is on a file system in memory.
    InMemory,
    /// O_DIRECT was wanted, but is refused: transfers go through the page cache.
    Buffered,
    /// The backend was left open, and io_uring is refused: threads move the bytes.
    NoUring,
    /// It could not be opened, but others of its set could. It is out of service; the notes say why.
    NotOpened,
}

/// An opened volume: the backend that works here, and the shortcomings that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Path of the file, which may have no name any more.
    pub path: PathBuf,
    /// Number of slots.
    pub slots: u32,
    /// Payload bytes a slot.
    pub slot_bytes: usize,
    /// Bytes from one slot's start to the next one's.
    pub stride: usize,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// The backend in use; never [`Backend::Auto`].
    pub backend: Backend,
    /// Whether transfers go past the page cache.
    pub direct: bool,
    /// Alignment of transfers in bytes.
    pub alignment: usize,
    /// The ring's set-up, as text.
    pub ring: String,
    /// Bytes of arenas that the ring has registered.
    pub fixed_bytes: u64,
    /// How device memory is served, if it is.
    pub gds: Option<GdsDescription>,
    /// Differences from the options, and shortcomings, with their reasons.
    pub notes: Vec<String>,
    /// The findings that an operator should look at.
    pub concerns: Vec<Concern>,
    /// Records that opening found and rejected.
    pub rejected: RejectedRecords,
}

impl core::fmt::Display for Description {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Description { path, slots, stride, backend, ring, .. } = self;
        if self.concerns.contains(&Concern::NotOpened) {
            return write!(f, "{}: out of service; {}", path.display(), self.notes.join("; "));
        }
        let direct = if self.direct { "O_DIRECT" } else { "buffered" };
        write!(f, "{}: {slots} slots of {stride} bytes by {backend} ({direct}; {ring})", shown_path(path))?;
        if let Some(gds) = &self.gds {
            write!(f, "; device memory by {gds}")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

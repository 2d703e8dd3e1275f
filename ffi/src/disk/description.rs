//! What a volume turned out to be, for people.

use super::backend::Backend;
use super::recovery::RejectedRecords;
use crate::gds::GdsDescription;
use crate::shown::shown_path;
use std::path::PathBuf;

/// What opening a volume has found that somebody is to see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// Its file was gone, or empty, and others of its set were not: it was made anew, without its blocks.
    MadeAnew,
    /// Neither superblock was whole: it was started over, without its blocks.
    StartedOver,
    /// One superblock was damaged, and the other one is whole.
    Superblock,
    /// The file had become shorter, and blocks were behind its end.
    Truncated,
    /// Some of the slot table could not be read.
    Unread,
    /// It is on a file system that is memory.
    InMemory,
    /// O_DIRECT is refused where it was wanted: what is moved goes through the page cache.
    Buffered,
    /// io_uring is refused where it was left to choose: threads move the bytes.
    NoUring,
    /// It could not be opened, and others of its set could: it is out of service. The notes say why.
    NotOpened,
}

/// What a volume turned out to be: which backend works here, and what is not as good as it could be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Path of the file; it may have no name any more.
    pub path: PathBuf,
    /// Number of slots.
    pub slots: u32,
    /// Payload bytes a slot.
    pub slot_bytes: usize,
    /// Bytes from one slot's start to the next one's.
    pub stride: usize,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// The backend that serves it; never [`Backend::Auto`].
    pub backend: Backend,
    /// Whether transfers go past the page cache.
    pub direct: bool,
    /// Alignment of transfers in bytes.
    pub alignment: usize,
    /// The ring's set-up, in words.
    pub ring: String,
    /// Bytes of arenas that the ring has registered.
    pub fixed_bytes: u64,
    /// How device memory is served, where it is.
    pub gds: Option<GdsDescription>,
    /// What is not as asked, or not as good as it could be, and why.
    pub notes: Vec<String>,
    /// What of it is to be seen to.
    pub concerns: Vec<Concern>,
    /// What its opening found and did not take.
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

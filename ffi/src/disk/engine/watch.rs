//! Watches whether the volume's file still has its name.
//!
//! A file that was removed, or replaced by another, is served as well as before, but is gone with the
//! process. Nothing else would show that until the next start, which is cold.

use super::super::file::names;
use crate::process::Uninherited;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(in crate::disk) struct Watch {
    path: PathBuf,
    file: Arc<Uninherited<File>>,
    every: Duration,
    next: Duration,
}

impl Watch {
    pub(in crate::disk) fn new(path: PathBuf, file: Arc<Uninherited<File>>, every: Duration) -> Watch {
        Watch { path, file, every, next: every }
    }

    /// Whether the path names another file now, or none. None before it is time to check again.
    pub(super) fn look(&mut self, now: Duration) -> Option<bool> {
        if now < self.next {
            return None;
        }
        self.next = now + self.every;
        Some(!names(&self.path, &self.file))
    }
}

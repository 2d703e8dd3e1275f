//! Chooses the ring of a volume: the requested backend, or the best one that works here.
//!
//! The thread that uses a ring also makes it, once the file is complete, and writing a big file through
//! takes minutes. So an opening that needs io_uring tries it before it touches the file
//! (`ring/trial.rs`).

use super::backend::Backend;
use super::description::Concern;
use super::error::{VolumeError, uring_remedy};
use super::ring::Ring;
use super::ring::blocking::BlockingRing;
use crate::arena::HostArena;
use crate::process::Uninherited;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The ring that the ring thread made, and the facts that it found.
pub(super) struct Built {
    pub(super) ring: Box<dyn Ring>,
    pub(super) backend: Backend,
    pub(super) words: String,
    pub(super) fixed_bytes: u64,
    pub(super) notes: Vec<String>,
    /// What an operator should look at, if anything.
    pub(super) concern: Option<Concern>,
}

/// The ingredients of a ring.
pub(super) struct Parts {
    pub(super) path: PathBuf,
    pub(super) file: Arc<Uninherited<File>>,
    pub(super) direct: bool,
    pub(super) backend: Backend,
    pub(super) depth: u32,
    pub(super) threads: usize,
    pub(super) arenas: Vec<Arc<HostArena>>,
}

/// Builds the requested ring, or the best one that works here.
pub(super) fn build(parts: Parts) -> Result<Built, VolumeError> {
    choose(parts, uring)
}

/// Calls `make_uring`, unless the blocking backend was requested. With [`Backend::Auto`], falls back to
/// the blocking backend if `make_uring` fails.
pub(super) fn choose(
    mut parts: Parts,
    make_uring: impl FnOnce(&mut Parts) -> io::Result<Built>,
) -> Result<Built, VolumeError> {
    if parts.backend == Backend::Blocking {
        return blocking(parts, Vec::new());
    }
    match make_uring(&mut parts) {
        Ok(built) => Ok(built),
        Err(error) if parts.backend == Backend::Auto => {
            let remedy = uring_remedy(&error);
            let notes = vec![format!("the kernel refuses io_uring ({error}): {remedy}")];
            blocking(parts, notes).map(|built| Built { concern: Some(Concern::NoUring), ..built })
        }
        Err(source) => Err(VolumeError::NoUring { path: parts.path, source }),
    }
}

fn blocking(parts: Parts, notes: Vec<String>) -> Result<Built, VolumeError> {
    let Parts { path, file, depth, threads, .. } = parts;
    let ring = BlockingRing::new(depth, threads, file).map_err(|source| VolumeError::Os {
        path,
        operation: "start the threads of the blocking backend",
        source,
    })?;
    let words = format!("{threads} threads, depth {depth}");
    Ok(Built {
        ring: Box::new(ring),
        backend: Backend::Blocking,
        words,
        fixed_bytes: 0,
        notes,
        concern: None,
    })
}

#[cfg(target_os = "linux")]
fn uring(parts: &mut Parts) -> io::Result<Built> {
    use super::ring::uring::{Granted, UringRing};

    let arenas = core::mem::take(&mut parts.arenas);
    let (ring, granted) = UringRing::new(parts.depth, Arc::clone(&parts.file), arenas)?;
    let Granted { flags, fixed_bytes, refused_buffers } = granted;
    let unregistered = refused_buffers.map(|error| {
        format!(
            "buffers are not registered ({error}), so each request pins its pages; raise the memory-lock \
             limit (`ulimit -l`)"
        )
    });
    let backend = if parts.direct { Backend::UringDirect } else { Backend::UringBuffered };
    let words = format!("{flags}, depth {}", parts.depth);
    let notes = unregistered.into_iter().collect();
    Ok(Built { ring: Box::new(ring), backend, words, fixed_bytes, notes, concern: None })
}

#[cfg(not(target_os = "linux"))]
fn uring(_parts: &mut Parts) -> io::Result<Built> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

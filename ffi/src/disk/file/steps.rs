//! What an opening does to the bytes of a file, step by step: a simulation hears of it, and repeats a part of
//! the steps where the process or the machine is to die between two of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

#[cfg(any(test, feature = "simulation"))]
pub(in crate::disk) use told::{Step, told};

/// Writes all of `bytes`.
pub(super) fn write_all(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)?;
    #[cfg(any(test, feature = "simulation"))]
    told::tell(|| Step::Write { offset, bytes: bytes.to_vec() });
    Ok(())
}

/// What was written to the file so far, by whomever, outlives a loss of power.
pub(super) fn sync(file: &File) -> io::Result<()> {
    file.sync_data()?;
    #[cfg(any(test, feature = "simulation"))]
    told::tell(|| Step::Sync);
    Ok(())
}

#[cfg(any(test, feature = "simulation"))]
mod told {
    use std::cell::RefCell;

    #[derive(Debug, Clone)]
    pub(in crate::disk) enum Step {
        Write { offset: u64, bytes: Vec<u8> },
        Sync,
    }

    thread_local! {
        /// Some while somebody listens.
        static STEPS: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
    }

    pub(super) fn tell(step: impl FnOnce() -> Step) {
        STEPS.with_borrow_mut(|steps| {
            if let Some(steps) = steps {
                steps.push(step());
            }
        });
    }

    /// Does something, and says what it did to files in this thread.
    pub(in crate::disk) fn told<T>(work: impl FnOnce() -> T) -> (T, Vec<Step>) {
        STEPS.set(Some(Vec::new()));
        let worked = work();
        (worked, STEPS.take().unwrap_or_default())
    }
}

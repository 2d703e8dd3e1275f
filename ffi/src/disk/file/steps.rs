//! The writes and syncs of an opening, step by step. A simulation records them, and repeats a part of
//! them when the process or the machine is to die between two steps.

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

/// Makes everything written to the file so far, by any process, survive a power loss.
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
        /// Some while steps are recorded.
        static STEPS: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
    }

    pub(super) fn tell(step: impl FnOnce() -> Step) {
        STEPS.with_borrow_mut(|steps| {
            if let Some(steps) = steps {
                steps.push(step());
            }
        });
    }

    /// Runs `work`, and returns the steps that it did to files in this thread.
    pub(in crate::disk) fn told<T>(work: impl FnOnce() -> T) -> (T, Vec<Step>) {
        STEPS.set(Some(Vec::new()));
        let worked = work();
        (worked, STEPS.take().unwrap_or_default())
    }
}

//! A prepared plan, which all its submissions share.
//!
//! Invariants
//! - I1: every byte that a prepared plan reads or writes, for any blocks of its layouts, lies in its
//!   places, which it holds.

use super::super::context::CudaDevice;
use super::super::copy::Direction;
use super::super::error::CudaError;
use super::super::module::CudaFunction;
use super::bases::Bases;
use super::costs::CopyCosts;
use super::place::{Blocks, Place, Stretches};
use core::ffi::CStr;
use kvstrata_core::plan::{CopyPlan, Run};
use kvstrata_kernels::{CopyKernel, Launch, Parameters, SumKernel};
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel for any blocks of a plan.
#[derive(Debug)]
pub(super) enum Kernel {
    Copy(CopyKernel),
    Sum(Box<SumKernel>),
}

impl Kernel {
    pub(super) fn bases(&self) -> &[u8] {
        match self {
            Kernel::Copy(kernel) => kernel.bases(),
            Kernel::Sum(kernel) => kernel.bases(),
        }
    }

    pub(super) fn names(&self) -> Vec<&'static CStr> {
        match self {
            Kernel::Copy(kernel) => kernel.names().collect(),
            Kernel::Sum(kernel) => kernel.names().collect(),
        }
    }
}

/// A kernel, its functions and its bases on the device.
pub(super) struct Launcher {
    pub(super) kernel: Kernel,
    pub(super) functions: Vec<(&'static CStr, CudaFunction)>,
    pub(super) bases: Option<Bases>,
    pub(super) most_ctas: u32,
    /// The kernel's vector width, in bytes.
    pub(super) width: u64,
}

impl Launcher {
    /// Calls `launch` for each launch of these runs; their sums go to `sums`.
    pub(super) fn launches(
        &self,
        runs: &[Run],
        sums: u64,
        parameters: &mut Parameters,
        mut launch: impl FnMut(&CudaFunction, &Launch<'_>),
    ) {
        let bases = self.bases.as_ref().map_or(0, Bases::address);
        let mut found = |asked: Launch<'_>| {
            // The names are the kernel's; all of them were found when the launcher was made.
            if let Some((_, function)) = self.functions.iter().find(|(name, _)| *name == asked.kernel) {
                launch(function, &asked);
            }
            Ok::<(), core::convert::Infallible>(())
        };
        let Ok(()) = match &self.kernel {
            Kernel::Copy(kernel) => kernel.launches(runs, bases, self.most_ctas, parameters, &mut found),
            Kernel::Sum(kernel) => kernel.launches(runs, bases, sums, self.most_ctas, parameters, &mut found),
        };
    }

    /// Returns the bytes of sums per block; 0 if the kernel makes none.
    pub(super) fn sums_bytes(&self) -> u64 {
        match &self.kernel {
            Kernel::Sum(kernel) => u64::from(kernel.chunks()) * 8,
            Kernel::Copy(_) => 0,
        }
    }
}

/// Data that the submissions of a plan share.
pub(super) struct Prepared {
    pub(super) device: Arc<CudaDevice>,
    pub(super) direction: Direction,
    pub(super) places: [Place; 2],
    /// The stretches of the places.
    pub(super) stretches: [Stretches; 2],
    /// Whether a piece of one block may lie across two stretches.
    pub(super) crosses: bool,
    /// Or the reason why there is none.
    pub(super) launcher: Result<Launcher, CudaError>,
    /// Families of pieces at equal distances, per block.
    pub(super) families: u64,
    pub(super) costs: CopyCosts,
    /// The plan without blocks, from which each scratch starts.
    pub(super) plan: CopyPlan,
    /// Scratches that no submission uses; as many exist as were used at one time.
    pub(super) idle: Mutex<Vec<Scratch>>,
}

impl Prepared {
    /// Takes an idle scratch, or makes one. No lock is held while it is out: its user may wait for a
    /// queue's turn.
    pub(super) fn scratch(&self) -> Scratch {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let new = || {
            let host_blocks = self.places.iter().map(|place| match place {
                Place::Host(pinned) => pinned.arena().blocks(),
                Place::Device(_) => 0,
            });
            let blocks = Blocks::with_room_for(host_blocks.max().unwrap_or(0));
            Scratch { plan: self.plan.clone(), parameters: Parameters::default(), blocks }
        };
        idle.unwrap_or_else(new)
    }

    /// Takes the scratch back.
    pub(super) fn give_back(&self, scratch: Scratch) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}

/// Buffers of a submission, so that it need not allocate.
pub(super) struct Scratch {
    pub(super) plan: CopyPlan,
    pub(super) parameters: Parameters,
    pub(super) blocks: Blocks,
}

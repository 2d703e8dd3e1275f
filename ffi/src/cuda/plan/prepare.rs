//! What is made once for a pair of layouts, so that a submission is a lookup of blocks and a launch.
//!
//! Invariants
//! - I1: every byte that a prepared plan reads or writes, for whatever blocks of its layouts, lies in its places, which it holds.

use super::super::context::CudaDevice;
use super::super::copy::Direction;
use super::super::error::CudaError;
use super::super::module::CudaFunction;
use super::bases::{Bases, BasesTable};
use super::costs::CopyCosts;
use super::kernels::CudaKernels;
use super::place::{Blocks, Of, Place, Stretches};
use super::submit::{PreparedCopy, SummedCopy};
use core::ffi::CStr;
use kvstrata_core::layout::{Layout, Region};
use kvstrata_core::plan::{CopyPlan, Run, Slice};
use kvstrata_kernels::{Conversion, CopyKernel, Launch, Parameters, SumKernel, THREADS};
use std::sync::{Arc, Mutex, PoisonError};

/// How a device's copies are made.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct CopyOptions {
    costs: Option<CopyCosts>,
    most_ctas: Option<u32>,
}

impl CopyOptions {
    /// What is [shipped](CopyCosts::reasoned) for a device of its name; as many CTAs as that says.
    pub fn new() -> CopyOptions {
        CopyOptions::default()
    }

    /// What routes cost, as measured.
    pub fn costs(mut self, costs: CopyCosts) -> Self {
        self.costs = Some(costs);
        self
    }

    /// How many CTAs, of 256 threads each, a copy has at most: what it leaves to the model. At least 1. Unless told, as many as the costs
    /// say for the direction.
    pub fn most_ctas(mut self, ctas: u32) -> Self {
        self.most_ctas = Some(ctas.max(1));
        self
    }
}

/// Prepares the copy plans of a device.
#[derive(Debug)]
pub struct CudaCopy {
    device: Arc<CudaDevice>,
    /// The kernels and where their bases go; or why there are none, and the copy engine has to do.
    kernels: Result<(CudaKernels, Arc<BasesTable>), CudaError>,
    costs: CopyCosts,
    most_ctas: Option<u32>,
}

/// A kernel for a plan's blocks, whichever they are.
#[derive(Debug)]
pub(super) enum Kernel {
    Copy(CopyKernel),
    Sum(Box<SumKernel>),
}

impl Kernel {
    fn bases(&self) -> &[u8] {
        match self {
            Kernel::Copy(kernel) => kernel.bases(),
            Kernel::Sum(kernel) => kernel.bases(),
        }
    }

    fn names(&self) -> Vec<&'static CStr> {
        match self {
            Kernel::Copy(kernel) => kernel.names().collect(),
            Kernel::Sum(kernel) => kernel.names().collect(),
        }
    }
}

/// A kernel, its functions and its bases on the device.
pub(super) struct Launcher {
    kernel: Kernel,
    functions: Vec<(&'static CStr, CudaFunction)>,
    bases: Option<Bases>,
    most_ctas: u32,
    /// Its vector, in bytes.
    pub(super) width: u64,
}

impl Launcher {
    /// Calls `launch` for each launch of these runs; `sums` is where their sums go.
    pub(super) fn launches(
        &self,
        runs: &[Run],
        sums: u64,
        parameters: &mut Parameters,
        mut launch: impl FnMut(&CudaFunction, &Launch<'_>),
    ) {
        let bases = self.bases.as_ref().map_or(0, Bases::address);
        let mut found = |asked: Launch<'_>| {
            // Those of its names, all of which were found when it was made.
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

    /// Bytes of sums a block; 0 if it makes none.
    pub(super) fn sums_bytes(&self) -> u64 {
        match &self.kernel {
            Kernel::Sum(kernel) => u64::from(kernel.chunks()) * 8,
            Kernel::Copy(_) => 0,
        }
    }
}

/// What submissions share.
pub(super) struct Prepared {
    pub(super) device: Arc<CudaDevice>,
    pub(super) direction: Direction,
    pub(super) places: [Place; 2],
    /// Of the places.
    pub(super) stretches: [Stretches; 2],
    /// Whether a piece of one block may lie across two of them.
    pub(super) crosses: bool,
    /// Or why it has none.
    pub(super) launcher: Result<Launcher, CudaError>,
    /// Families of pieces at even distances, of one block.
    pub(super) families: u64,
    pub(super) costs: CopyCosts,
    /// Without blocks: what a scratch starts with.
    plan: CopyPlan,
    /// Those that no submission has; as many as there were at a time.
    idle: Mutex<Vec<Scratch>>,
}

impl Prepared {
    /// One that is idle, or a new one. No lock is held while it is out: who has it may wait for a queue's turn.
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

    /// Takes it back.
    pub(super) fn give_back(&self, scratch: Scratch) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}

/// What a submission works with, so that it need not allocate.
pub(super) struct Scratch {
    pub(super) plan: CopyPlan,
    pub(super) parameters: Parameters,
    pub(super) blocks: Blocks,
}

impl CudaCopy {
    /// With the kernels that this program was built with, if it was and the driver takes them; otherwise with the copy engine alone
    /// ([`kernels`](CudaCopy::kernels) says why).
    pub fn new(device: &Arc<CudaDevice>, options: CopyOptions) -> CudaCopy {
        CudaCopy::with(device, CudaKernels::load(device), options)
    }

    /// With these kernels, or none and why.
    pub fn with(
        device: &Arc<CudaDevice>,
        kernels: Result<CudaKernels, CudaError>,
        options: CopyOptions,
    ) -> CudaCopy {
        let kernels = kernels.and_then(|kernels| Ok((kernels, BasesTable::new(device)?)));
        let CopyOptions { costs, most_ctas } = options;
        let costs = costs.unwrap_or_else(|| CopyCosts::reasoned(&device.describe().name));
        CudaCopy { device: Arc::clone(device), kernels, costs, most_ctas }
    }

    /// Whether there are kernels, and otherwise why not.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or what the driver had against them.
    pub fn kernels(&self) -> Result<(), CudaError> {
        self.kernels.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Gives the kernels of what is prepared from now on so many CTAs at most; or as many as the costs say.
    pub(super) fn limit_ctas(&mut self, most: Option<u32>) {
        self.most_ctas = most;
    }

    /// Prepares copies between the layouts of a plan, of the plan's layers and heads, and of any blocks.
    ///
    /// # Errors
    /// [`CudaError::Outside`] and others of the places; [`CudaError::NoRoute`] if both are the host's; or the driver refuses.
    pub fn prepare(
        &self,
        plan: &CopyPlan,
        source: Place,
        destination: Place,
    ) -> Result<PreparedCopy, CudaError> {
        let places = [source, destination];
        self.check(plan, &places, Of::SIDES)?;
        let kernel = CopyKernel::new(plan);
        let width = kernel.as_ref().map_or(1, CopyKernel::width);
        let kernel = kernel.map_err(|why| CudaError::NoKernels { why: why.to_string() });
        let prepared = self.prepared(plan, places, kernel.map(Kernel::Copy), width)?;
        Ok(PreparedCopy::new(prepared, true))
    }

    /// The same with a sum of each 64 KiB of each block on the way: what the disk tier seals blocks with.
    ///
    /// # Errors
    /// As for [`prepare`](CudaCopy::prepare), and without kernels; [`CudaError::NoKernels`] with [`CannotSum`](kvstrata_kernels::CannotSum)
    /// for blocks that are not in one piece at the destination.
    pub fn prepare_summed(
        &self,
        plan: &CopyPlan,
        source: Place,
        destination: Place,
    ) -> Result<SummedCopy, CudaError> {
        let places = [source, destination];
        self.check(plan, &places, Of::SIDES)?;
        if plan.block_bytes() != plan.dst().block_bytes() {
            return Err(CudaError::NoRoute {
                why: "a seal is of a whole block, and the plan has a part of it",
            });
        }
        let kernel = SumKernel::new(plan).map_err(|why| CudaError::NoKernels { why: why.to_string() })?;
        let prepared = self.prepared(plan, places, Ok(Kernel::Sum(Box::new(kernel))), 16)?;
        prepared.launcher.as_ref().map_err(Clone::clone)?;
        Ok(SummedCopy::new(prepared))
    }

    /// Prepares copies that convert elements: `layers` and `heads` of two layouts that differ in the type of their elements. Bounds of
    /// errors: `kernels/cuda/convert.cu`.
    ///
    /// # Errors
    /// As for [`prepare`](CudaCopy::prepare), and without kernels; [`CudaError::Plan`]; [`CudaError::NoKernels`] with
    /// [`CannotConvert`](kvstrata_kernels::CannotConvert).
    pub fn prepare_converting(
        &self,
        [src, dst]: [&Layout; 2],
        (layers, heads): (impl Into<Slice>, impl Into<Slice>),
        scale: f32,
        source: Place,
        destination: Place,
    ) -> Result<PreparedCopy, CudaError> {
        let refused = |why: kvstrata_kernels::CannotConvert| CudaError::NoKernels { why: why.to_string() };
        let types = [src.config().dtype, dst.config().dtype];
        let conversion = Conversion::between(types[0], types[1]).map_err(refused)?;
        // A plan of stand-ins sees their addresses, and would not notice.
        let meets = |a: &Region, b: &Region| {
            a.address < b.address + b.size_bytes && b.address < a.address + a.size_bytes
        };
        let same = !source.is_host() && !destination.is_host();
        if same && src.regions().iter().any(|a| dst.regions().iter().any(|b| meets(a, b))) {
            return Err(CudaError::NoRoute {
                why: "a conversion's source and destination lie in the same memory",
            });
        }
        let stand_ins = conversion.stand_ins(src, dst).map_err(refused)?;
        let plan = CopyPlan::new(&stand_ins[0], &[], &stand_ins[1], &[], layers, heads)?;
        let widest = types.map(|of| of.bits()).into_iter().max().unwrap_or(8);
        let divided = |side: usize| Of { side, divided_by: u64::from(widest / types[side].bits()) };
        let places = [source, destination];
        self.check(&plan, &places, [divided(0), divided(1)])?;
        let kernel = CopyKernel::converting(&plan, conversion, scale).map_err(refused)?;
        let prepared = self.prepared(&plan, places, Ok(Kernel::Copy(kernel)), 16)?;
        prepared.launcher.as_ref().map_err(Clone::clone)?;
        Ok(PreparedCopy::new(prepared, false))
    }

    fn check(&self, plan: &CopyPlan, places: &[Place; 2], sides: [Of; 2]) -> Result<(), CudaError> {
        places.iter().zip(sides).try_for_each(|(place, of)| place.check(plan, of, &self.device))
    }

    fn prepared(
        &self,
        plan: &CopyPlan,
        places: [Place; 2],
        kernel: Result<Kernel, CudaError>,
        width: u64,
    ) -> Result<Arc<Prepared>, CudaError> {
        let direction = match [places[0].is_host(), places[1].is_host()] {
            [true, false] => Direction::HostToDevice,
            [false, true] => Direction::DeviceToHost,
            [false, false] => Direction::DeviceToDevice,
            [true, true] => {
                return Err(CudaError::NoRoute { why: "both sides are the host's; use HostCopy" });
            }
        };
        let launcher = match places.iter().all(Place::is_mapped) {
            true => match kernel {
                Ok(kernel) => self.launcher(kernel, direction, width)?,
                Err(why) => Err(why),
            },
            false => Err(CudaError::NotMapped),
        };
        let stretches = [places[0].stretches(), places[1].stretches()];
        let crosses = Of::SIDES.iter().zip(&stretches).any(|(of, stretches)| stretches.cut(plan, *of));
        let families = plan.planes().map(|plane| {
            let nest = plane.nest();
            let longest = nest.loops().iter().map(|l| u64::from(l.count)).max().unwrap_or(1);
            plane.bases().len() as u64 * nest.pieces() / longest
        });
        Ok(Arc::new(Prepared {
            device: Arc::clone(&self.device),
            direction,
            places,
            stretches,
            crosses,
            launcher,
            families: families.sum(),
            costs: self.costs.clone(),
            plan: plan.clone(),
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// The kernel on the device, or why there is none for this plan; what the driver refuses now is an error, and no property of the
    /// plan.
    fn launcher(
        &self,
        kernel: Kernel,
        direction: Direction,
        width: u64,
    ) -> Result<Result<Launcher, CudaError>, CudaError> {
        let (kernels, table) = match &self.kernels {
            Ok(there) => there,
            Err(why) => return Ok(Err(why.clone())),
        };
        let functions = kernel.names().into_iter().map(|name| kernels.function(name));
        let functions = match functions.collect::<Result<Vec<_>, _>>() {
            Ok(functions) => functions,
            Err(why) => return Ok(Err(why)),
        };
        let resident = functions.iter().map(|(_, function)| function.resident_blocks(THREADS));
        let resident = resident.collect::<Result<Vec<_>, _>>()?.into_iter().min().unwrap_or(1);
        let bases = match kernel.bases() {
            [] => None,
            bytes => match table.place(bytes) {
                Ok(bases) => Some(bases),
                // Plans that are dropped make room; until then the copy engine does.
                Err(full @ CudaError::Full { .. }) => return Ok(Err(full)),
                Err(other) => return Err(other),
            },
        };
        let multiprocessors = self.device.describe().multiprocessors;
        // A CTA walks until nothing is left: what does not run from the start only makes the last of them late.
        let most_ctas = self
            .most_ctas
            .unwrap_or_else(|| self.costs.ctas(direction, multiprocessors))
            .min(resident.saturating_mul(multiprocessors).max(1));
        Ok(Ok(Launcher { kernel, functions, bases, most_ctas, width }))
    }
}

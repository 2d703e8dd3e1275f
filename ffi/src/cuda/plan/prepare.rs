//! What is made once for a pair of layouts, so that a submission is a lookup of blocks and a launch.
//!
//! The result is in `prepared.rs`. Its I1 is upheld here: a plan that leaves its places is refused.

use super::super::context::CudaDevice;
use super::super::copy::Direction;
use super::super::error::CudaError;
use super::bases::BasesTable;
use super::costs::CopyCosts;
use super::kernels::CudaKernels;
use super::place::{Of, Place};
use super::prepared::{Kernel, Launcher, Prepared};
use super::submit::{PreparedCopy, SummedCopy};
use kvstrata_core::layout::{Layout, Region};
use kvstrata_core::plan::{CopyPlan, Slice};
use kvstrata_kernels::{Conversion, CopyKernel, SumKernel, THREADS};
use std::sync::{Arc, Mutex};

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
                why: "a seal covers a whole block, but the plan copies a part of one; plan whole blocks",
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
                why: "source and destination of the conversion overlap; use separate memory",
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
                return Err(CudaError::NoRoute {
                    why: "source and destination are both host memory; use HostCopy",
                });
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

//! Preparation for a pair of layouts: afterwards, a submission is a lookup of blocks and a launch.
//!
//! The result is in `prepared.rs`. This file upholds its I1: a plan that leaves its places is refused.

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

/// Options for a device's copies.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct CopyOptions {
    costs: Option<CopyCosts>,
    most_ctas: Option<u32>,
}

impl CopyOptions {
    /// The [shipped](CopyCosts::reasoned) costs for a device of its name, and the CTAs that they name.
    pub fn new() -> CopyOptions {
        CopyOptions::default()
    }

    /// Sets the costs of routes, for example measured ones.
    pub fn costs(mut self, costs: CopyCosts) -> Self {
        self.costs = Some(costs);
        self
    }

    /// Sets the maximum CTAs, of 256 threads each, of a copy; the model has the rest of the device. At
    /// least 1. Default: as many as the costs name for the direction.
    pub fn most_ctas(mut self, ctas: u32) -> Self {
        self.most_ctas = Some(ctas.max(1));
        self
    }
}

/// Prepares the copy plans of a device.
#[derive(Debug)]
pub struct CudaCopy {
    device: Arc<CudaDevice>,
    /// The kernels and the memory for their bases; or the reason why there are none and only the copy
    /// engine is used.
    kernels: Result<(CudaKernels, Arc<BasesTable>), CudaError>,
    costs: CopyCosts,
    most_ctas: Option<u32>,
}

impl CudaCopy {
    /// Creates it with the kernels that this program was built with. Without kernels, or if the driver
    /// refuses them, only the copy engine is used ([`kernels`](CudaCopy::kernels) returns the reason).
    pub fn new(device: &Arc<CudaDevice>, options: CopyOptions) -> CudaCopy {
        CudaCopy::with(device, CudaKernels::load(device), options)
    }

    /// Creates it with the given kernels, or with the reason why there are none.
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

    /// Checks that there are kernels.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's reason for refusing them.
    pub fn kernels(&self) -> Result<(), CudaError> {
        self.kernels.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Sets the maximum CTAs of kernels that are prepared from now on; `None` for as many as the costs name.
    pub(super) fn limit_ctas(&mut self, most: Option<u32>) {
        self.most_ctas = most;
    }

    /// Prepares copies of any blocks between the layouts of a plan, restricted to the plan's layers
    /// and heads.
    ///
    /// # Errors
    /// [`CudaError::Outside`] and other errors of the places; [`CudaError::NoRoute`] if both sides are
    /// host memory; or the driver refuses.
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

    /// As [`prepare`](CudaCopy::prepare), and the copy sums each 64 KiB of each block on the way. The
    /// disk tier seals blocks with these sums.
    ///
    /// # Errors
    /// As for [`prepare`](CudaCopy::prepare), and if there are no kernels; [`CudaError::NoKernels`] with
    /// [`CannotSum`](kvstrata_kernels::CannotSum) for blocks that are not in one piece at the destination.
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

    /// Prepares copies that convert elements: `layers` and `heads` of two layouts with different element
    /// types. `kernels/cuda/convert.cu` has the error bounds.
    ///
    /// # Errors
    /// As for [`prepare`](CudaCopy::prepare), and if there are no kernels; [`CudaError::Plan`];
    /// [`CudaError::NoKernels`] with [`CannotConvert`](kvstrata_kernels::CannotConvert).
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
        // A plan of stand-ins sees their addresses, and would not notice an overlap.
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

    /// Returns the kernel on the device, or the reason why this plan has none. A refusal by the driver is
    /// an error, not a property of the plan.
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
                // Dropped plans free space; until then the copy engine is used.
                Err(full @ CudaError::Full { .. }) => return Ok(Err(full)),
                Err(other) => return Err(other),
            },
        };
        let multiprocessors = self.device.describe().multiprocessors;
        // A CTA walks until no work is left. CTAs that cannot start at once would only end late.
        let most_ctas = self
            .most_ctas
            .unwrap_or_else(|| self.costs.ctas(direction, multiprocessors))
            .min(resident.saturating_mul(multiprocessors).max(1));
        Ok(Ok(Launcher { kernel, functions, bases, most_ctas, width }))
    }
}

//! [`ManagerBuilder`]: a manager over an engine's own device memory, or on a given runtime.

use super::KvBlockManager;
use super::device::Device;
use super::error::{BuildError, DeviceError};
use super::{build, devices};
use crate::config::{Group, ManagerConfig};
use kvstrata_tiers::transfer::HostMemory;
use std::sync::Arc;
use tokio::runtime::Handle;

type Open<'b> = dyn FnMut(&Group, &Arc<HostMemory>) -> Result<Device, DeviceError> + 'b;

/// Builds a manager over an engine's own device memory, or on a given runtime. [`device`](Self::device) has
/// an example.
#[must_use = "build() makes the manager"]
pub struct ManagerBuilder<'b> {
    config: &'b ManagerConfig,
    device: Option<Box<Open<'b>>>,
    runtime: Option<Handle>,
}

impl KvBlockManager {
    /// Returns a builder of a manager with these settings; [`ManagerBuilder::device`] has an example. Without
    /// calls on the builder, its manager is that of [`open`](KvBlockManager::open).
    pub fn builder(config: &ManagerConfig) -> ManagerBuilder<'_> {
        ManagerBuilder { config, device: None, runtime: None }
    }
}

impl<'b> ManagerBuilder<'b> {
    /// Uses the engine's device instead of `device.kind`. `open` is called once for each group of layers,
    /// with the group's settings and the host memory that the mover copies to and from. It must return a
    /// device with the number of blocks that the settings give the group ([`ManagerConfig::blocks_of`]).
    ///
    /// ```
    /// # use kvstrata::manager::Device;
    /// # use kvstrata::{KvBlockManager, ManagerConfig, Tier, backend::movers::ThreadsMover};
    /// # use kvstrata_ffi::device::SimDevice;
    /// # use std::sync::Arc;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ManagerConfig::builder().device_blocks(8).host_blocks(16).build()?;
    /// let manager = KvBlockManager::builder(&config)
    ///     .device(|group, memory| {
    ///         // The engine's tensors; here they are host memory.
    ///         let blocks = config.blocks_of(group, Tier::Device) as usize;
    ///         let tensors = Arc::new(SimDevice::with_layers(0, blocks, &[group.block_bytes() as usize])?);
    ///         let mover = ThreadsMover::new(Arc::clone(&tensors), Arc::clone(memory), 1)?;
    ///         Ok(Device::new(Arc::new(mover)).port(tensors).note("the engine's tensors"))
    ///     })
    ///     .build()?;
    /// assert_eq!(manager.default_group().capacity(Tier::Device), 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn device(
        self,
        open: impl FnMut(&Group, &Arc<HostMemory>) -> Result<Device, DeviceError> + 'b,
    ) -> ManagerBuilder<'b> {
        ManagerBuilder { device: Some(Box::new(open)), ..self }
    }

    /// Runs the manager on this runtime, which must have timers and outlive the manager. The default is the
    /// runtime in which [`build`](ManagerBuilder::build) is called, or else one of the manager's own.
    ///
    /// ```
    /// # use kvstrata::{KvBlockManager, ManagerConfig};
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    /// let config = ManagerConfig::builder().device_blocks(8).build()?;
    /// let manager = KvBlockManager::builder(&config).runtime(runtime.handle().clone()).build()?;
    /// assert!(runtime.block_on(manager.shutdown()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runtime(self, runtime: Handle) -> ManagerBuilder<'b> {
        ManagerBuilder { runtime: Some(runtime), ..self }
    }

    /// Builds the manager; [`device`](ManagerBuilder::device) has an example.
    ///
    /// # Errors
    /// [`BuildError`], if memory, a device, a volume, the runtime's threads or an address is not available.
    pub fn build(self) -> Result<KvBlockManager, BuildError> {
        let ManagerBuilder { config, device, runtime } = self;
        let Some(mut open) = device else {
            let simulated = devices::is_simulated(config);
            return build::from_config(config, runtime, simulated, &mut |group, memory| {
                devices::open(config, group, memory)
            });
        };
        build::from_config(config, runtime, false, &mut |group, memory| {
            open(group, memory).map_err(|source| BuildError::OwnDevice { group: group.name.clone(), source })
        })
    }
}

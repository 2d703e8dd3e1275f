//! Managers to measure, their prefixes and bytes.
//!
//! Every copied byte is cold: prefixes of a host tier far beyond the caches take turns, and the
//! device has half of them. So under LRU the next prefix is never in the device, and all the others
//! were touched since its last turn.

use crate::disk::Failure;
use crate::disk::target;
use crate::inputs::{mix, sequence};
use futures_executor::block_on;
use kvstrata::config::{ManagerConfig, ManagerConfigBuilder};
use kvstrata::manager::{Blocks, KvBlockManager, OffloadOptions, OnboardOptions, Onboarded};
use kvstrata::tier::Tier;
use kvstrata_core::layout::DType;
use kvstrata_core::{Policy, SequenceHash};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Settings for blocks of so many bytes, with no work ahead of need.
pub fn settings(block_bytes: usize, device: u32, host: u32) -> ManagerConfigBuilder {
    ManagerConfig::builder()
        .geometry_block_bytes(Some(block_bytes as u64))
        .device_blocks(device)
        .host_blocks(host)
        .watermark_device(1.0)
        .watermark_host(1.0)
        .host_headroom(0)
        .idle_host_after(None)
        .idle_disk_after(None)
}

/// Makes a manager of settings.
///
/// # Errors
/// An invalid setting, or memory that cannot be allocated.
pub fn build(settings: ManagerConfigBuilder) -> Result<KvBlockManager, Failure> {
    Ok(KvBlockManager::open(&settings.build()?)?)
}

/// Returns the answer of a future that need not wait, without the cost of waiting; waits if it must.
pub fn now<T>(future: impl IntoFuture<Output = T>) -> T {
    let mut future = pin!(future.into_future());
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => block_on(future),
    }
}

/// The shape of a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a block, over all layers.
    pub block_bytes: usize,
    /// Blocks of a run.
    pub blocks: usize,
    /// Layers of a block.
    pub layers: u32,
}

impl Shape {
    /// Returns the bytes of a run.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.block_bytes * self.blocks
    }

    /// Returns settings for such blocks.
    pub fn settings(&self, device: u32, host: u32) -> ManagerConfigBuilder {
        let settings = settings(self.block_bytes, device, host);
        if self.layers == 1 {
            return settings;
        }
        // Keys and values, 16 tokens, one head, bf16: 64 bytes an element of the head.
        let head = self.block_bytes / self.layers as usize / 64;
        settings
            .geometry_block_bytes(None)
            .geometry_layers(Some(self.layers))
            .geometry_outer_dim(Some(2))
            .geometry_kv_heads(Some(1))
            .geometry_head_size(Some(head as u32))
            .geometry_dtype(Some(DType::BF16))
    }
}

/// A manager with prefixes below the device, which are brought up one after the other.
pub struct Ground {
    /// The manager.
    pub manager: KvBlockManager,
    /// The shape of its prefixes.
    pub shape: Shape,
    /// The tier of the prefixes.
    tier: Tier,
    prefixes: Vec<Vec<SequenceHash>>,
    next: Cell<usize>,
}

impl Ground {
    /// Makes a host tier of so many bytes, full of prefixes, below a device of half as many, with so
    /// many copying threads.
    ///
    /// # Errors
    /// An error of the manager.
    pub fn host(shape: Shape, bytes: usize, threads: u32) -> Result<Ground, Failure> {
        let prefixes = (bytes / shape.bytes()).max(3);
        let host = (prefixes * shape.blocks) as u32;
        let settings = shape.settings(host.div_ceil(2), host).host_copy_threads(Some(threads));
        let settings = settings.device_policy(Policy::Lru);
        Ground::filled(build(settings)?, shape, Tier::Host, prefixes)
    }

    /// Computes so many prefixes, and sends each to the tier below.
    ///
    /// # Errors
    /// An error of the manager.
    pub fn filled(
        manager: KvBlockManager,
        shape: Shape,
        tier: Tier,
        prefixes: usize,
    ) -> Result<Ground, Failure> {
        let mut ground = Ground { manager, shape, tier, prefixes: Vec::new(), next: Cell::new(0) };
        for number in 0..prefixes as u64 {
            let mut hashes = Vec::with_capacity(shape.blocks);
            sequence(number, shape.blocks, &mut hashes);
            let blocks = ground.compute(&hashes)?;
            let copied =
                block_on(ground.manager.default_group().offload(&blocks, OffloadOptions::default())).copied;
            if copied != shape.blocks {
                return Err(format!("{copied} of {} blocks of a prefix were offloaded", shape.blocks).into());
            }
            ground.prefixes.push(hashes);
        }
        Ok(ground)
    }

    /// Fills blocks with bytes that their hashes determine, and registers them.
    fn compute(&self, hashes: &[SequenceHash]) -> Result<Blocks, Failure> {
        let blocks = block_on(self.manager.default_group().allocate(hashes.len()).into_future())?;
        let port =
            self.manager.default_group().device_port().ok_or("the device's bytes cannot be reached")?;
        let mut bytes = vec![0; self.shape.block_bytes];
        for (block, hash) in blocks.ids().iter().zip(hashes) {
            target::fill(&mut bytes, seed(*hash));
            port.copy_in(block.0, 0, &bytes)?;
        }
        Ok(blocks.register(hashes, None).map_err(|error| error.why)?)
    }

    /// Returns the prefixes. Each is wholly below the device when [`bring`](Ground::bring) gets there.
    #[must_use]
    pub fn prefixes(&self) -> &[Vec<SequenceHash>] {
        &self.prefixes
    }

    /// Returns the next prefix to bring up.
    pub fn next(&self) -> &[SequenceHash] {
        let next = self.next.get();
        self.next.set((next + 1) % self.prefixes.len());
        &self.prefixes[next]
    }

    /// Brings the next prefix up.
    ///
    /// # Panics
    /// If it was not in its tier, or did not arrive: the measurement would be invalid.
    pub fn bring(&self, options: OnboardOptions) -> Onboarded {
        let found = self.manager.default_group().match_prefix(self.next());
        assert_eq!(found.in_tier(self.tier), self.shape.blocks, "the prefix is below the device");
        let up = block_on(self.manager.default_group().onboard(found, options).expect("it fits"));
        assert_eq!((up.blocks.len(), up.missed), (self.shape.blocks, None));
        up
    }

    /// Brings one more up, and compares its bytes.
    ///
    /// # Errors
    /// They are wrong.
    pub fn check(&self) -> Result<(), Failure> {
        let hashes = &self.prefixes[self.next.get()];
        let up = self.bring(OnboardOptions::default());
        let port =
            self.manager.default_group().device_port().ok_or("the device's bytes cannot be reached")?;
        let mut bytes = vec![0; self.shape.block_bytes];
        for (block, hash) in up.blocks.ids().zip(hashes) {
            port.copy_out(block.0, 0, &mut bytes)?;
            if !target::holds(&bytes, seed(*hash)) {
                return Err(format!("block {} has not the bytes of {hash:?}", block.0).into());
            }
        }
        Ok(())
    }
}

fn seed(hash: SequenceHash) -> u64 {
    mix(hash.to_u128() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_requested_prefix_is_below_the_device() {
        for layers in [1, 4] {
            let shape = Shape { block_bytes: 4096, blocks: 4, layers };
            let ground = Ground::host(shape, 8 * shape.bytes(), 1).expect("memory");
            for _ in 0..20 {
                drop(ground.bring(OnboardOptions::default()));
            }
            ground.check().expect("the bytes");
            let stats = ground.manager.stats();
            assert_eq!((stats.onboarded[0], stats.dropped), (21 * 4, [0, 0]));
            assert_eq!(stats.offloaded[0], 8 * 4, "evictions have copied nothing again");
        }
    }
}

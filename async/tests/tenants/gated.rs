//! A manager whose copies wait until the test lets them go, for tests of blocks in flight.

use crate::ground::{BYTES, settings};
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::{KvBlockManager, Needs, Parts, StackParts, TierParts};
use kvstrata::movers::ThreadsMover;
use kvstrata::transfer::{Cause, Copies, DeviceMover, Failure, HostMemory, HostSide, TierPort};
use kvstrata_core::{BlockId, DevicePort, Policy, PoolConfig};
use kvstrata_ffi::device::SimDevice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Starts nothing until it is opened.
#[derive(Debug)]
pub struct Gated {
    inner: ThreadsMover,
    /// `None`: open.
    kept: Mutex<Option<Vec<Copies>>>,
    /// Copies to the device that were started.
    up: AtomicUsize,
    /// Blocks to be overwritten that no answer will name.
    passed_over: AtomicUsize,
    /// Copies to host memory that were started: device blocks, and their layers.
    down: Mutex<Vec<(u32, Range<u32>)>>,
    /// The next start panics.
    panics: AtomicBool,
}

impl Gated {
    pub fn close(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// Lists that wait.
    pub fn waiting(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, Vec::len)
    }

    pub fn open(&self) {
        self.let_go(|copies| self.inner.start(copies));
    }

    /// Opens. The list that has waited longest is carried out last.
    #[allow(dead_code, reason = "not each test that has this file does it")]
    pub fn open_backwards(&self) {
        if let Some(kept) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            kept.reverse();
        }
        self.open();
    }

    /// Carries out all waiting lists except the oldest.
    #[allow(dead_code, reason = "not each test that has this file does it")]
    pub fn open_but_first(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let others = kept.as_mut().map(|kept| kept.split_off(1));
        drop(kept);
        others.into_iter().flatten().for_each(|copies| self.inner.start(copies));
    }

    /// Fails the oldest waiting list for good.
    #[allow(dead_code, reason = "not each test that has this file does it")]
    pub fn fail_first(&self) {
        let first =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(|kept| kept.remove(0));
        first
            .into_iter()
            .for_each(|copies| copies.end(Err(Failure { cause: Cause::Device, retryable: false })));
    }

    /// Opens. Waiting lists fail, and may succeed later.
    pub fn fail(&self) {
        let failure = Failure { cause: Cause::Device, retryable: true };
        self.let_go(|copies| copies.end(Err(failure)));
    }

    fn let_go(&self, how: impl Fn(Copies)) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.into_iter().flatten().for_each(how);
    }

    /// The layers of a device block copied down so far: begin and end of each copy.
    pub fn layers_down(&self, BlockId(block): BlockId) -> Vec<(u32, u32)> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.iter().filter(|(of, _)| *of == block).map(|(_, layers)| (layers.start, layers.end)).collect()
    }

    pub fn copies_up(&self) -> usize {
        self.up.load(Relaxed)
    }

    /// Makes the next start panic, which drops its list.
    #[allow(dead_code, reason = "not each test that has this file does it")]
    pub fn panic_once(&self) {
        self.panics.store(true, Relaxed);
    }

    /// Leaves so many of the next blocks to be overwritten as they are, and out of the answer.
    pub fn pass_over(&self, blocks: usize) {
        self.passed_over.store(blocks, Relaxed);
    }
}

impl DeviceMover for Gated {
    fn start(&self, mut copies: Copies) {
        assert!(!self.panics.swap(false, Relaxed), "a mover of a test panics");
        let up = copies.list().iter().filter(|copy| matches!(copy.host, HostSide::Read(_)));
        self.up.fetch_add(up.count(), Relaxed);
        let down = copies.list().iter().filter(|copy| matches!(copy.host, HostSide::Write(_)));
        let down = down.map(|copy| (copy.device.0, copy.layers.clone()));
        self.down.lock().unwrap_or_else(PoisonError::into_inner).extend(down);
        if copies.list().iter().any(|copy| matches!(copy.host, HostSide::Zeros)) {
            let passed_over = self.passed_over.swap(0, Relaxed);
            copies.list_mut().iter_mut().take(passed_over).for_each(|copy| copy.device = BlockId(u32::MAX));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Some(kept) => kept.push(copies),
            None => self.inner.start(copies),
        }
    }

    fn blocks_at_once(&self) -> usize {
        1
    }

    fn describe(&self) -> String {
        "gated".to_owned()
    }
}

/// A manager, and the parts of it that a test looks at.
pub struct Ground {
    pub manager: KvBlockManager,
    pub mover: Arc<Gated>,
    pub device: Arc<SimDevice>,
    pub memory: Arc<HostMemory>,
}

impl Ground {
    pub fn new(device: u32, host: u32) -> Ground {
        Ground::of(settings(device, host), device, host)
    }

    /// The same with these settings, which are for so many blocks.
    pub fn of(settings: ManagerConfigBuilder, device: u32, host: u32) -> Ground {
        Ground::over(settings, device, host, None)
    }

    /// The same over a disk. Without host blocks there is no host tier.
    pub fn over(
        settings: ManagerConfigBuilder,
        device: u32,
        host: u32,
        disk: Option<Arc<dyn TierPort>>,
    ) -> Ground {
        Ground::with_layers(settings, (device, host), 2, disk)
    }

    /// The same with blocks of so many layers.
    pub fn with_layers(
        settings: ManagerConfigBuilder,
        (device, host): (u32, u32),
        layers: usize,
        disk: Option<Arc<dyn TierPort>>,
    ) -> Ground {
        Ground::with_needs(settings, (device, host), layers, disk, Needs::All { page: 2 })
    }

    /// The same; `needs` says which blocks a sequence needs.
    pub fn with_needs(
        settings: ManagerConfigBuilder,
        (device, host): (u32, u32),
        layers: usize,
        disk: Option<Arc<dyn TierPort>>,
        needs: Needs,
    ) -> Ground {
        let config = settings.build().expect("a configuration");
        let layers = vec![BYTES / layers; layers];
        let staging = if disk.is_some() { 2 } else { 0 };
        let memory = HostMemory::new(host as usize + staging, &layers).expect("memory");
        let sim = Arc::new(SimDevice::with_layers(0, device as usize, &layers).expect("memory"));
        let inner = ThreadsMover::new(Arc::clone(&sim), Arc::clone(&memory), 1).expect("a thread");
        let (up, passed_over, panics, down) = Default::default();
        let mover = Arc::new(Gated { inner, kept: Mutex::new(None), up, passed_over, panics, down });
        let parts = StackParts {
            name: "gated".to_owned(),
            device: PoolConfig::new(device).policy(config.device.policy),
            port: Some(Arc::<SimDevice>::clone(&sim)),
            mover: Arc::<Gated>::clone(&mover),
            memory: Some(Arc::clone(&memory)),
            host: (host > 0).then(|| PoolConfig::new(host).policy(config.host.policy)),
            below: disk.map(|disk| TierParts::new("disk", disk)).into_iter().collect(),
            block_bytes: BYTES as u64,
            layers: layers.len() as u32,
            needs,
            linked: [config.device.policy, config.host.policy].map(|policy| policy != Policy::Lru),
            // LFU too, since a test can tell its order.
            ahead_first: [config.device.policy, config.host.policy]
                .map(|policy| matches!(policy, Policy::Reuse | Policy::Lfu)),
        };
        let runtime = tokio::runtime::Handle::current();
        let parts = Parts { stacks: vec![parts], runtime, own: None, names: None };
        let manager = KvBlockManager::of_parts(&config, parts).expect("a manager");
        Ground { manager, mover, device: sim, memory }
    }

    /// Whether any block of device or host has these bytes.
    pub fn anywhere(&self, bytes: &[u8]) -> bool {
        let mut of_device = vec![0; BYTES];
        let blocks = self.manager.default_group().capacity(kvstrata::tier::Tier::Device) as u32;
        (0..blocks).any(|block| {
            self.device.copy_out(block, 0, &mut of_device).expect("in range");
            of_device == bytes
        }) || (0..self.memory.arena().blocks() as u32)
            .any(|block| *self.memory.read(block).expect("nobody writes") == *bytes)
    }

    pub fn is_zero(&self, BlockId(block): BlockId) -> bool {
        let mut bytes = vec![1; BYTES];
        self.device.copy_out(block, 0, &mut bytes).expect("in range");
        bytes.iter().all(|byte| *byte == 0)
    }
}

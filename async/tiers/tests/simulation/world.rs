//! A manager and its tiers by a seed's settings, and a run from its beginning to its end.

use crate::books::Books;
use crate::common::Random;
use crate::content;
use crate::engine::Engine;
use crate::pace::Pace;
use crate::patience::pass;
use crate::recorder::{Hashes, Notes, Shared, Watched, WatchedDisk, lock};
use crate::settings::Settings;
use crate::sim::{Events, Plan, Remote, SimDisk, SimMover, Weather};
use crate::virtual_runtime::VirtualRuntime;
use crate::watchdog::{self, watch};
use kvstrata_core::{BlockId, Policy, PoolConfig, SequenceHash};
use kvstrata_core::{Hasher, Keyed};
use kvstrata_ffi::device::SimDevice;
use kvstrata_testing::virtual_time::{self, Instant, JoinHandle, spawn_local, timeout};
use kvstrata_tiers::OriginalNames;
use kvstrata_tiers::transfer::{HostMemory, TierPort};
use kvstrata_tiers::{Hashing, Needs, Rules, StackParts, TierParts, Tiers, TiersParts};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The contents of a tier's pool, by hash.
type Stored = Arc<Mutex<BTreeMap<u128, kvstrata_core::BlockRef>>>;

/// Longer than all deadlines and retries together, also where each block passes through a host tier of one.
pub const LONG: Duration = Duration::from_secs(600);

/// The command that replays a seed, behind its number.
pub const REPLAY: &str = "cargo test -p kvstrata-tiers --test simulation seeds -- --nocapture";

/// More than all waits of an engine, one after the other, and of the audit.
const LIMIT: Duration = Duration::from_secs(60 * 60);

pub struct World {
    pub settings: Settings,
    pub books: RefCell<Books>,
    pub device: Arc<SimDevice>,
    pub mover: Arc<SimMover>,
    pub disk: Option<Arc<SimDisk>>,
    /// The tier below the disk.
    pub remote: Option<Arc<Remote>>,
    pub notes: Shared,
    pub stored: [Stored; 2],
    /// Gone once nothing of the manager is left.
    pub memory: Weak<HostMemory>,
    pub runtime: Arc<VirtualRuntime>,
    manager: RefCell<Option<Tiers>>,
    /// Whether another process has written the disk before.
    pub is_restarted: bool,
    engines_left: Cell<u64>,
    pub closing: Cell<bool>,
    /// The iteration that runs, or the last one.
    pub iteration: Cell<u64>,
    pub pace: Pace,
}

/// Tiers of parts, in the thread's virtual time.
pub fn tiers(runtime: &Arc<VirtualRuntime>, stacks: Vec<StackParts>, rules: Rules, names: u64) -> Tiers {
    let hasher: Hasher = Keyed::new(&[1; 32]).into();
    let hashing = Hashing { hasher, origin: "the test's".to_owned(), lasts: true, seed: 1 };
    let parts = TiersParts {
        stacks,
        notes: Vec::new(),
        names: Some(names),
        hashing,
        rules,
        runtime: Arc::<VirtualRuntime>::clone(runtime),
    };
    let (tiers, attendant) = Tiers::of_parts(parts).expect("parts that fit");
    runtime.attend(attendant);
    tiers
}

impl World {
    pub fn new(settings: Settings) -> Rc<World> {
        // Few: the settings allow more in flight now and then.
        let at_once = 2 + settings.queue % 7;
        let (bytes, plan) = (settings.block_bytes(), settings.disk_plan.clone());
        let disk = || SimDisk::striped(settings.disk, bytes, plan, at_once, settings.volumes);
        let disk = (settings.disk > 0).then(|| Arc::new(disk()));
        World::over(settings, disk, false)
    }

    /// The next process over the same disk. To engines it is the same one, which has lost all that was
    /// not on the disk.
    pub fn restarted(&self) -> Option<Rc<World>> {
        let disk = self.disk.as_ref()?;
        let plan = Plan { seed: !self.settings.disk_plan.seed, ..self.settings.disk_plan.clone() };
        let next = World::over(self.settings.clone(), Some(Arc::new(disk.reopened(plan))), true);
        next.books.swap(&self.books);
        next.note(0, &format!("a restart: {} blocks", disk.left().len()));
        Some(next)
    }

    fn over(settings: Settings, disk: Option<Arc<SimDisk>>, restarted: bool) -> Rc<World> {
        let bytes = settings.block_bytes();
        let layers = vec![settings.layer_bytes; settings.layers as usize];
        let device = SimDevice::with_layers(0, settings.device as usize, &layers).expect("memory");
        let device = Arc::new(device);
        let staging = settings.staging();
        let in_memory = settings.host + staging;
        let memory = HostMemory::new(in_memory.max(1) as usize, &layers).expect("memory");
        let notes: Shared = Arc::new(Mutex::new(Notes::default()));
        let stored: [Stored; 2] = Default::default();
        let pool = |tier: usize, blocks| {
            let (notes, stored) = (Arc::clone(&notes), Arc::clone(&stored[tier]));
            let keeps = settings.purges > 0 && settings.mover.keep;
            let twice = [true, settings.rot + settings.mover.damage > 0 || keeps][tier];
            let hashes = Hashes { tier: ["device", "host"][tier], notes, stored, twice };
            // Lanes are chosen by the stack's address: one leaves no choice.
            PoolConfig::new(blocks).policy(settings.policies[tier]).lanes(1).seed(1).events(Box::new(hashes))
        };
        let mover = SimMover::new(Arc::clone(&device), Arc::clone(&memory), settings.mover.clone());
        let mover = Arc::new(mover);
        let watched =
            Watched { mover: Arc::clone(&mover), device: Arc::clone(&device), notes: Arc::clone(&notes) };
        let rots = settings.rot > 0;
        let weather = || Weather::drawn(settings.mover.seed.rotate_left(29));
        let remote = (settings.remote > 0).then(|| Arc::new(Remote::new(settings.remote, bytes, weather())));
        let port = disk.as_ref().map(|disk| -> Arc<dyn TierPort> {
            Arc::new(WatchedDisk { disk: Arc::clone(disk), notes: Arc::clone(&notes), rots })
        });
        let stack = StackParts {
            name: "all".to_owned(),
            device: pool(0, settings.device),
            port: Some(Arc::<SimDevice>::clone(&device)),
            mover: Arc::new(watched),
            memory: (in_memory > 0).then(|| Arc::clone(&memory)),
            host: (settings.host > 0).then(|| pool(1, settings.host)),
            below: port
                .map(|port| TierParts::new("disk", port))
                .into_iter()
                .chain(remote.clone().map(|remote| TierParts::new("remote", remote)))
                .collect(),
            block_bytes: bytes as u64,
            layers: settings.layers,
            needs: Needs::All { page: 16 },
            linked: [settings.linked; 2],
            // Looks of the other policies may pass by a lower class.
            ahead_first: [0, 1].map(|tier| {
                let policy = settings.policies[tier];
                settings.ahead_first[tier] && matches!(policy, Policy::Reuse | Policy::Lru | Policy::Lfu)
            }),
        };
        let runtime = VirtualRuntime::new();
        let manager = tiers(&runtime, vec![stack], settings.rules(), u64::from(restarted));
        Rc::new(World {
            books: RefCell::default(),
            device,
            mover,
            disk,
            remote,
            notes,
            stored,
            memory: Arc::downgrade(&memory),
            runtime,
            manager: RefCell::new(Some(manager)),
            is_restarted: restarted,
            engines_left: Cell::new(settings.engines),
            closing: Cell::new(false),
            iteration: Cell::new(0),
            pace: Pace::default(),
            settings,
        })
    }

    pub fn manager(&self) -> Tiers {
        self.manager.borrow().clone().expect("there until the end")
    }

    /// The handle of a tenant.
    pub fn tenant(&self, number: u64) -> Tiers {
        self.manager().tenant(&format!("tenant {number}")).expect("few tenants")
    }

    /// Notes that a partial block with these bytes will be written.
    pub fn partial(&self, of: SequenceHash) {
        let bytes = content::bytes_of(of, 8);
        let first = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        lock(&self.notes).partial.insert(first, of);
    }

    pub fn note(&self, who: u64, what: &str) {
        self.books.borrow_mut().note(who, what);
    }

    pub fn violation(&self, what: String) {
        self.books.borrow_mut().violation(what);
    }

    /// Faults that hardware has by itself, and checks while all requests wait.
    async fn tick(self: Rc<World>, mut random: Random) {
        let began = Instant::now();
        while self.has_engines() {
            pass(Duration::from_millis(30)).await;
            self.check();
            let blocks = u64::from(self.settings.host);
            if blocks > 0 && random.below(1000) < self.settings.rot {
                let (block, number) = (random.below(blocks) as u32, random.next());
                let rots = self.mover.rot(block, number);
                self.note(0, &format!("block {block} of the host rots: {rots}"));
            }
            if let (Some(after), Some(disk)) = (self.settings.lose_disk_after, &self.disk)
                && began.elapsed() >= after
            {
                disk.lose_volume_of(BlockId(0));
            }
        }
    }

    async fn shut_down(self: Rc<World>, after: Duration) {
        pass(after).await;
        self.closing.set(true);
        self.note(0, "shutdown");
        self.shut_down_now().await;
    }

    /// Shuts down, and checks that it takes no longer than its deadline.
    pub async fn shut_down_now(&self) -> bool {
        let began = Instant::now();
        let over = self.manager().shutdown().await;
        let took = began.elapsed();
        if took > self.settings.shutdown + Duration::from_millis(2) {
            self.violation(format!("shutdown took {took:?} of {:?}", self.settings.shutdown));
        }
        if over
            && !{
                let census = self.manager().census();
                census.up + census.down + census.waiting == 0
            }
        {
            self.violation(format!("shut down, all over, and {:?}", self.manager().census()));
        }
        self.note(0, &format!("shut down: {over}"));
        over
    }

    /// Whether blocks may have become unusable: kept by a failed device, or not overwritten.
    pub fn may_park(&self) -> bool {
        let faulty = |plan: &Plan| plan.fail + plan.lose + plan.hang > 0;
        let disk = faulty(&self.settings.disk_plan) || self.settings.lose_disk_after.is_some();
        // A failed write to the remote store may have left something there.
        faulty(&self.settings.mover) || disk || self.remote.is_some()
    }

    pub fn has_engines(&self) -> bool {
        self.engines_left.get() > 0
    }

    pub fn engine_ends(&self) {
        self.engines_left.set(self.engines_left.get() - 1);
    }

    /// Waits until nothing is in flight. Nothing may hang.
    pub async fn rest_of_manager(&self) {
        while !self.manager().census().is_idle() {
            pass(Duration::from_millis(5)).await;
        }
    }

    /// The same, and ends transfers that hang.
    pub async fn rest(&self) {
        self.mover.shutdown();
        self.disk.iter().for_each(|disk| disk.shutdown());
        let census = || self.manager().census();
        let (mut last, mut same) = (census(), 0);
        // With a budget of one block an iteration, each copy of a block takes an iteration: ten seconds here.
        for _ in 0..60_000 {
            if last.is_idle() && last.unwritten == 0 {
                return self.check_at_rest();
            }
            pass(Duration::from_millis(50)).await;
            let now = census();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            // Transfers may wait for an iteration, for its bytes, or for it to write their blocks.
            if same > 200 {
                same = 0;
                if let Err(error) = self.step() {
                    self.violation(error.to_string());
                }
            }
        }
        self.violation(format!("never comes to rest: {:?}", census()));
    }

    /// Checks that the whole device can be allocated, and that blocks reported in some tier are there.
    async fn audit(&self) {
        let kept = || !self.mover.kept().is_empty();
        let all = self.settings.device as usize - self.manager().census().parked[0][0];
        // Blocks that a failed device keeps keep their parents.
        if !kept() {
            self.unpin_all().await;
            match self.manager().default_group().allocate(all).deadline(LONG).await {
                Ok(blocks) => drop(blocks),
                // The device has failed just now.
                Err(_) if kept() => {}
                Err(error) => {
                    self.violation(format!("at rest, and yet: {error}; {:?}", self.manager().census()))
                }
            }
        }
        let known: Vec<u128> = self.books.borrow().known.keys().copied().collect();
        let (mut here, mut lost) = (0, 0);
        for hash in known.into_iter().map(SequenceHash::from_u128) {
            let up = self.manager().default_group().restore_to_gpu(&[hash]).await;
            match up {
                Ok(up) => {
                    for BlockId(block) in up.blocks.ids() {
                        here += 1;
                        if !content::is(&self.device, block, hash, 0..self.settings.block_bytes()) {
                            self.violation(format!("audit: block {block} is said to be {hash:?}"));
                        }
                    }
                    lost += usize::from(up.missed.is_some());
                }
                Err(error) => self.violation(format!("audit: {error}")),
            }
        }
        self.note(0, &format!("audit: {here} there, {lost} said to be and not"));
    }

    async fn live(self: &Rc<World>, seed: u64, random: &mut Random, tell: bool) {
        self.books.borrow_mut().begin(tell);
        let mut engines: Vec<JoinHandle<()>> = Vec::new();
        for number in 1..=self.settings.engines {
            let engine = Engine::new(Rc::clone(self), number, Random(random.next()));
            engines.push(spawn_local(engine.run()));
        }
        let ticker = spawn_local(Rc::clone(self).tick(Random(random.next())));
        let after = self.settings.shutdown_after;
        let shutdown = after.map(|after| spawn_local(Rc::clone(self).shut_down(after)));
        let every = self.settings.iteration;
        let model = every.map(|every| match self.settings.paced {
            true => spawn_local(Rc::clone(self).pace(every)),
            false => spawn_local(Rc::clone(self).iterate(every)),
        });
        for task in engines.into_iter().chain([ticker]).chain(shutdown).chain(model) {
            if let Err(error) = task.await {
                self.violation(error.to_string());
                return;
            }
        }
        self.rest().await;
        let closed = self.closing.get();
        let whole = self.books.borrow().violations.is_empty();
        if !closed && whole && seed.is_multiple_of(2) {
            self.audit().await;
            self.rest().await;
            if !self.shut_down_now().await {
                self.violation("at rest, and the shutdown is not over".to_owned());
            }
        }
        let stats = self.manager().stats();
        self.note(0, &format!("{stats:?}"));
        // Without a shutdown, or after it: nothing of the manager is left.
        self.manager.borrow_mut().take();
        pass(Duration::from_secs(1)).await;
        if self.memory.strong_count() > 1 {
            // The mover's own is one.
            self.violation(format!("{} still have host memory", self.memory.strong_count()));
        }
    }
}

/// Transfers by path of the settings. Then, for the remote store: blocks written and read, requests
/// while it was away, reads of blocks that it had lost, and requests that succeeded after it was away.
pub const COUNTS: usize = 4 + 5;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub trace: u64,
    pub violation: Option<String>,
    pub counts: Vec<u64>,
}

/// Runs on one thread, with a clock that jumps.
pub fn in_virtual_time<F: Future>(body: F) -> F::Output {
    let _watch = watch(&watchdog::test());
    virtual_time::run(body)
}

/// Runs a seed.
pub fn run(seed: u64, tell: bool) -> Outcome {
    let mut random = Random(seed);
    let settings = Settings::draw(&mut random);
    if tell {
        println!("{settings:#?}");
    }
    let _watch = watch(&format!("KVSTRATA_SEED={seed} {REPLAY}"));
    in_virtual_time(async {
        let mut world = World::new(settings);
        let mut counts = vec![0; COUNTS];
        loop {
            if timeout(LIMIT, world.live(seed, &mut random, tell)).await.is_err() {
                world.violation("hangs".to_owned());
            }
            let landed = lock(&world.notes).landed;
            let of_remote = world.remote.as_ref().map(|remote| remote.events()).unwrap_or_default();
            let Events { written, read, away, rejected, back } = of_remote;
            let now = landed.into_iter().chain([written, read, away, rejected, back]);
            counts.iter_mut().zip(now).for_each(|(all, now)| *all += now);
            let whole = world.books.borrow().violations.is_empty();
            if !whole || !world.settings.restarts || world.is_restarted {
                break;
            }
            let Some(next) = world.restarted() else { break };
            world = next;
        }
        let books = world.books.borrow();
        Outcome { trace: books.trace(), violation: books.violations.first().cloned(), counts }
    })
}

/// A world without faults, for tests of one thing.
pub fn calm(seed: u64) -> Settings {
    let mut settings = Settings::draw(&mut Random(seed));
    settings.mover = Plan::calm(seed);
    settings.disk_plan = Plan::calm(seed);
    settings.mover.keep = false;
    (settings.tenants, settings.quotas, settings.purges) = (0, [1.0; 3], 0);
    (settings.paced, settings.iteration_idle, settings.classes) = (false, None, 0);
    (settings.volumes, settings.restarts, settings.remote) = (1, false, 0);
    (settings.patience, settings.slow_above) = (Some(LONG), LONG);
    (settings.rot, settings.lose_disk_after, settings.shutdown_after) = (0, None, None);
    settings
}

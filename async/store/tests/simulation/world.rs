//! A store by a seed's settings, and a run from its beginning to its end.

use crate::caller;
use crate::common::Random;
use crate::content::{BLANK, KEYS, SIZES, assert_same, blank, key};
use crate::copier::SimCopier;
use crate::settings::Settings;
use crate::sim::SimDisk;
use crate::virtual_runtime::VirtualRuntime;
use kvstrata_core::PoolConfig;
use kvstrata_ffi::arena::HostArena;
use kvstrata_store::{BatchOptions, Outcome, Rules, SizeClassParts, Store, StoreParts};
use kvstrata_testing::virtual_time::{self, Handle, Instant, sleep_until, spawn_local, timeout};
use kvstrata_tiers::transfer::TierPort;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer than all deadlines together, and than a slow disk takes for a full queue.
const LONG: Duration = Duration::from_secs(100_000);

/// The knowledge that callers share of a key.
#[derive(Debug, Default, Clone, Copy)]
pub struct Known {
    /// Stores under way, also those with a dropped future.
    pub storing: u64,
    /// Changes at each beginning and end of a store.
    pub changes: u64,
}

pub struct World {
    pub settings: Settings,
    pub store: Store,
    pub disks: Vec<Arc<SimDisk>>,
    pub memory: Vec<Arc<HostArena>>,
    pub known: RefCell<Vec<Known>>,
    /// Memory of batches with a dropped future.
    pub lent: RefCell<Vec<Arc<HostArena>>>,
    pub events: RefCell<Vec<String>>,
    pub loaded: Cell<u64>,
    tell: bool,
}

impl World {
    pub fn new(settings: Settings, earlier: Option<&[Arc<SimDisk>]>, tell: bool) -> Rc<World> {
        let runtime = VirtualRuntime::new();
        let disk = |number: usize, bytes: usize| match earlier {
            Some(earlier) => earlier[number].reopened(settings.plan.clone()),
            None => SimDisk::with_at_once(settings.disk, bytes, settings.plan.clone(), settings.at_once),
        };
        let disks: Vec<_> = match settings.disk {
            0 => Vec::new(),
            _ => SIZES.iter().enumerate().map(|(number, bytes)| Arc::new(disk(number, *bytes))).collect(),
        };
        let blocks = (settings.host + settings.staging) as usize;
        let memory: Vec<_> = SIZES.map(|bytes| HostArena::new(blocks, bytes).expect("memory")).into();
        let classes = SIZES.iter().enumerate().map(|(number, bytes)| SizeClassParts {
            block_bytes: *bytes,
            host: (settings.host > 0).then(|| PoolConfig::new(settings.host).lanes(1).seed(1)),
            memory: Some(Arc::clone(&memory[number])),
            below: disks.get(number).map(|disk| Arc::clone(disk) as Arc<dyn TierPort>),
        });
        let mut rules = Rules::default();
        (rules.queue, rules.straight) = (settings.queue, settings.straight);
        (rules.load_deadline, rules.store_deadline) = (settings.patience, settings.patience * 2);
        (rules.slow_above, rules.slow_below) = (Duration::from_secs(60), Duration::from_secs(20));
        let parts = StoreParts {
            classes: classes.collect(),
            copier: Arc::new(SimCopier::new(settings.seed, settings.abandon)),
            runtime: Arc::<VirtualRuntime>::clone(&runtime),
            rules,
        };
        let store = Store::of_parts(parts).expect("parts that fit");
        runtime.attend(store.attendant());
        Rc::new(World {
            known: RefCell::new(vec![Known::default(); KEYS as usize]),
            settings,
            store,
            disks,
            memory,
            lent: RefCell::default(),
            events: RefCell::default(),
            loaded: Cell::new(0),
            tell,
        })
    }

    pub fn note(&self, event: impl FnOnce() -> String) {
        let now = Handle::current().now();
        let event = format!("{now:?} {}", event());
        if self.tell {
            println!("{event}");
        }
        self.events.borrow_mut().push(event);
    }

    /// Flips a bit of a block of host memory that nothing borrows just now.
    pub fn rot(&self, random: &mut Random) {
        let memory = &self.memory[random.below(SIZES.len() as u64) as usize];
        let block = random.below(memory.blocks() as u64) as usize;
        if let Ok(mut bytes) = memory.write(block) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
    }

    async fn run(self: &Rc<World>) {
        let callers = (0..self.settings.callers).map(|number| {
            let world = Rc::clone(self);
            spawn_local(async move { caller::run(world, number).await })
        });
        let callers: Vec<_> = callers.collect();
        // Hardware that hangs answers in the end.
        let disks = self.disks.clone();
        spawn_local(async move {
            pass(LONG / 2).await;
            disks.iter().for_each(|disk| disk.shutdown());
        });
        if self.settings.closes {
            let world = Rc::clone(self);
            let close = spawn_local(async move {
                pass(Duration::from_secs(2)).await;
                world.note(|| "close".to_owned());
                // A hanging request delays the end of a close.
                let _ = timeout(Duration::from_secs(30), world.store.close()).await;
            });
            let _ = self.awaited(close, "the close").await;
        }
        for caller in callers {
            let _ = self.awaited(caller, "a caller").await;
        }
        // Hanging requests are answered now, so that nothing is under way.
        self.disks.iter().for_each(|disk| disk.shutdown());
        self.awaited(self.store.close(), "the end").await;
        self.check();
    }

    /// Awaits an end that must come.
    async fn awaited<F: Future>(&self, end: F, what: &str) -> F::Output {
        match timeout(LONG, end).await {
            Ok(output) => output,
            Err(_) => panic!("{what} does not end: {:#?}", self.store.stats()),
        }
    }

    /// I1 and I3, at the end.
    fn check(&self) {
        let stats = self.store.stats();
        assert_eq!(stats.batches, 0, "{stats:#?}");
        for class in &stats.classes {
            assert_eq!((class.waiting, class.moving), (0, 0), "{stats:#?}");
            assert_eq!(class.staging, [u64::from(self.settings.staging); 2], "{stats:#?}");
            assert_eq!(class.host_blocks[0], class.host_free + class.host_blocks[1], "{stats:#?}");
            assert_eq!(class.held, 0, "{stats:#?}");
        }
        for disk in &self.disks {
            let (counts, pool) = (disk.counts(), disk.pool());
            assert_eq!(counts.violations, Vec::<String>::new());
            // Slots that no one can use again, or not yet.
            let out = counts.quarantined as usize + disk.unforgotten().0;
            assert_eq!(pool.active(), out);
        }
        for memory in self.memory.iter().chain(self.lent.borrow().iter()) {
            assert!(
                (0..memory.blocks()).all(|block| memory.write(block).is_ok()),
                "memory is still borrowed"
            );
        }
        assert!(
            self.lent.borrow().iter().all(|memory| Arc::strong_count(memory) == 1),
            "memory is still lent"
        );
    }

    /// Loads everything, in the next process.
    async fn load_all(self: &Rc<World>) {
        self.disks.iter().for_each(|disk| disk.shutdown());
        for number in 0..KEYS {
            let memory = blank(&[number], number % 2 == 0, 0);
            let batch = self.store.load(&[key(number)], Arc::clone(&memory), BatchOptions::default());
            let ended = self.awaited(batch.expect("begun"), "a load").await.expect("an answer");
            let bytes = memory.read(0).expect("given back");
            match ended.outcomes[0] {
                Outcome::Loaded(_) => assert_same(&bytes, number),
                Outcome::Absent => assert!(bytes.iter().all(|byte| *byte == BLANK)),
                _ => {}
            }
        }
    }
}

/// Runs a seed, and then the next process. Returns the events, and the number of keys loaded.
pub fn run(seed: u64, tell: bool) -> (Vec<String>, u64) {
    virtual_time::run(async {
        let world = World::new(Settings::of(seed), None, tell);
        world.note(|| format!("{:?}", world.settings));
        world.run().await;
        if !world.disks.is_empty() {
            let next = World::new(world.settings.clone(), Some(&world.disks), tell);
            next.load_all().await;
            next.disks.iter().for_each(|disk| disk.shutdown());
            next.awaited(next.store.close(), "the next end").await;
            next.check();
        }
        (world.events.take(), world.loaded.get())
    })
}

/// Passes some time.
pub async fn pass(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

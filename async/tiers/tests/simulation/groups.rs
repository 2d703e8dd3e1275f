//! Three groups of layers: full attention, a window and recurrent state. Each has tiers of its own, with
//! their own faults. Engines find prefixes of all groups and bring them up together; they allocate
//! blocks of a group by itself, and of all groups or none.
//!
//! Checked: a match or an onboarding covers exactly so many tokens of each group, with their bytes,
//! held; a miss is a miss of all groups; and in the tiers of each group all blocks add up.

use crate::common::Random;
use crate::content::{self, bytes_of};
use crate::patience::{Patience, pass};
use crate::settings::{millis, one, plan};
use crate::sim::{Plan, SimDisk, SimMover};
use crate::virtual_runtime::VirtualRuntime;
use crate::watchdog::watch;
use crate::world::{in_virtual_time, tiers};
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockId, PoolConfig, SequenceHash};
use kvstrata_ffi::device::SimDevice;
use kvstrata_testing::seeds::Seeds;
use kvstrata_tiers::transfer::HostMemory;
use kvstrata_tiers::{
    Blocks, BlocksMut, GroupsMatch, GroupsOnboarded, Needs, OnboardOptions, Rules, StackParts, TierParts,
    Tiers,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: Range<u64> = 0..400;
const LAYERS: [usize; 2] = [32, 32];
const BYTES: usize = 64;
const GROUPS: usize = 3;
/// Tokens of a block in each group. Prefixes of all groups end at the longer pages.
const PAGES: [u64; GROUPS] = [16, 32, 32];

struct Group {
    needs: Needs,
    device: Arc<SimDevice>,
    mover: Arc<SimMover>,
    disk: Option<Arc<SimDisk>>,
    /// Blocks that engines fill.
    filled: RefCell<BTreeSet<u32>>,
}

struct Model {
    manager: Tiers,
    groups: Vec<Group>,
    window: u64,
    deadline: Duration,
    hasty: u64,
    trace: RefCell<DefaultHasher>,
    violations: RefCell<Vec<String>>,
    engines: Cell<u64>,
}

impl Model {
    fn new(random: &mut Random) -> Rc<Model> {
        let window = 32 * (1 + random.below(2));
        let deadline = millis(random, 50, 3000);
        let defaults = Rules::default();
        let rules = Rules {
            retries: random.below(3) as u32,
            queue: one(random, &[2, 16, 1024]),
            allocate_deadline: deadline,
            onboard_deadline: deadline,
            ..defaults
        };
        let [all, last, state] = PAGES;
        let needs =
            [Needs::All { page: all }, Needs::Last { page: last, window }, Needs::State { page: state }];
        let (mut groups, mut stacks) = (Vec::new(), Vec::new());
        for needs in needs {
            let device_blocks = 8 + random.below(12) as u32;
            let host = one(random, &[0, 4, 24]);
            let disk = one(random, &[0, 24]);
            let staging = if disk > 0 { 2 } else { 0 };
            let mut faults = [0, 0].map(|_| plan(random, 20));
            faults[0].keep = random.below(2) == 0;
            let [mover, disk_plan]: [Plan; 2] = faults;
            let device = SimDevice::with_layers(0, device_blocks as usize, &LAYERS).expect("memory");
            let device = Arc::new(device);
            let memory = HostMemory::new((host + staging).max(1) as usize, &LAYERS).expect("memory");
            let mover = Arc::new(SimMover::new(Arc::clone(&device), Arc::clone(&memory), mover));
            let disk = (disk > 0).then(|| Arc::new(SimDisk::new(disk, BYTES, disk_plan)));
            stacks.push(StackParts {
                name: format!("{needs:?}"),
                device: PoolConfig::new(device_blocks).lanes(1).seed(1),
                port: None,
                mover: Arc::<SimMover>::clone(&mover),
                memory: (host + staging > 0).then_some(memory),
                host: (host > 0).then(|| PoolConfig::new(host).lanes(1).seed(1)),
                below: disk.iter().map(|disk| TierParts::new("disk", Arc::<SimDisk>::clone(disk))).collect(),
                block_bytes: BYTES as u64,
                layers: LAYERS.len() as u32,
                needs,
                linked: [random.below(2) == 0; 2],
                ahead_first: [true, false],
            });
            groups.push(Group { needs, device, mover, disk, filled: RefCell::default() });
        }
        let manager = tiers(&VirtualRuntime::new(), stacks, rules, 0);
        Rc::new(Model {
            manager,
            groups,
            window,
            deadline,
            hasty: one(random, &[0, 20]),
            trace: RefCell::default(),
            violations: RefCell::default(),
            engines: Cell::new(0),
        })
    }

    fn note(&self, what: &str) {
        what.hash(&mut *self.trace.borrow_mut());
    }

    fn violation(&self, what: String) {
        self.violations.borrow_mut().push(what);
    }

    /// Blocks of a group that a prefix of so many tokens needs.
    fn needed(&self, group: usize, tokens: u64) -> Range<usize> {
        let from = match self.groups[group].needs {
            Needs::Last { .. } => tokens.saturating_sub(self.window),
            Needs::State { page } => tokens.saturating_sub(page),
            Needs::All { .. } => 0,
        };
        (from / PAGES[group]) as usize..(tokens / PAGES[group]) as usize
    }

    fn check(&self) {
        let census = self.manager.census();
        for (number, group) in self.groups.iter().enumerate() {
            let (tiers, filled) = (census.tiers[number], group.filled.borrow().len());
            let adds_up = tiers.iter().all(|of| of.capacity == of.free + of.inactive + of.active + of.owned);
            let least = filled + census.inside[number][0] + census.parked[number][0];
            if !adds_up || tiers[0].owned < least {
                self.violation(format!("group {number}, {filled} are filled: {census:?}"));
            }
            group.mover.violations().into_iter().for_each(|what| self.violation(what));
            let of_disk = group.disk.iter().flat_map(|disk| disk.counts().violations);
            of_disk.for_each(|what| self.violation(what));
        }
    }

    fn believe(&self, group: usize, blocks: &Blocks, hashes: &[SequenceHash], whence: &str) {
        for (BlockId(block), hash) in blocks.ids().zip(hashes) {
            if !content::is(&self.groups[group].device, block, *hash, 0..BYTES) {
                self.violation(format!("{whence}: group {group}: block {block} is said to be {hash:?}"));
            }
        }
    }

    /// Waits until nothing is in flight.
    async fn rest(&self) {
        for group in &self.groups {
            group.mover.shutdown();
            group.disk.iter().for_each(|disk| disk.shutdown());
        }
        for _ in 0..2000 {
            let census = self.manager.census();
            if census.is_idle() {
                for (tiers, parked) in census.tiers.iter().zip(&census.parked) {
                    if [tiers[0].owned, tiers[1].owned] != *parked {
                        self.violation(format!("not at rest: {census:?}"));
                    }
                }
                return;
            }
            pass(Duration::from_millis(50)).await;
        }
        self.violation(format!("never comes to rest: {:?}", self.manager.census()));
    }
}

/// One request after another.
struct Engine {
    model: Rc<Model>,
    random: Random,
}

impl Engine {
    async fn run(mut self) {
        for _ in 0..6 {
            self.request().await;
            self.model.check();
        }
        self.model.engines.set(self.model.engines.get() - 1);
    }

    async fn pause(&mut self, most_ms: u64) {
        pass(Duration::from_millis(self.random.below(most_ms))).await;
    }

    /// Hashes of the same tokens, by group.
    fn sequence(&mut self) -> [Vec<SequenceHash>; GROUPS] {
        let (which, tokens) = (self.random.below(3), 32 * (1 + self.random.below(4)));
        [0, 1, 2].map(|group| {
            let mut hashes: Vec<SequenceHash> = Vec::new();
            for _ in 0..tokens / PAGES[group] {
                hashes.push(content::child(hashes.last().copied(), which << 8 | group as u64));
            }
            hashes
        })
    }

    async fn request(&mut self) {
        let (model, of) = (Rc::clone(&self.model), self.sequence());
        let found = model.manager.match_groups(&[&of[0], &of[1], &of[2]]);
        self.found(&found, &of);
        self.pause(50).await;
        let (had, deadline) = (found.tokens(), model.deadline);
        let mut groups: Vec<(usize, Blocks)> = Vec::new();
        let mut tokens = 0;
        if self.random.below(8) == 0 {
            drop(found);
        } else if had > 0 {
            let began = kvstrata_testing::virtual_time::Instant::now();
            let patience = Patience::draw(&mut self.random, model.hasty);
            let up = match model.manager.onboard_groups(found, OnboardOptions::default()) {
                Ok(up) => patience.wait(up).await,
                Err(error) => {
                    model.violation(error.to_string());
                    None
                }
            };
            if began.elapsed() > deadline + Duration::from_millis(2) {
                model.violation(format!("onboarding took {:?} of {deadline:?}", began.elapsed()));
            }
            if let Some(up) = up {
                (tokens, groups) = self.came(up, had, &of);
            }
        }
        model.check();
        self.pause(100).await;
        if self.random.below(4) == 0 {
            self.compute_all(&of, tokens, &mut groups).await;
        } else {
            for (group, hashes) in of.iter().enumerate() {
                let have = (tokens / PAGES[group]) as usize;
                if !self.compute(group, hashes, have, &mut groups).await {
                    break;
                }
            }
        }
        self.pause(100).await;
        for (number, (first, blocks)) in groups.iter().enumerate() {
            let group = number % GROUPS;
            model.believe(group, blocks, &of[group][*first..], "released");
        }
    }

    /// Checks that a match covers its tokens, and no more.
    fn found(&self, found: &GroupsMatch, of: &[Vec<SequenceHash>; GROUPS]) {
        let tokens = found.tokens();
        self.model.note(&format!("found {tokens} of {}", of[1].len() * 32));
        for (group, part) in found.groups().iter().enumerate() {
            let needed = self.model.needed(group, tokens);
            if (part.first, part.found.len()) != (needed.start, needed.len()) {
                self.model.violation(format!("{tokens} tokens: group {group} needs {needed:?}: {part:?}"));
            }
            self.model.believe(group, part.found.device(), &of[group][part.first..], "found");
        }
    }

    fn came(
        &self,
        up: GroupsOnboarded,
        had: u64,
        of: &[Vec<SequenceHash>; GROUPS],
    ) -> (u64, Vec<(usize, Blocks)>) {
        let GroupsOnboarded { tokens, groups, missed } = up;
        self.model.note(&format!("onboarded {tokens} of {had}: {missed:?}"));
        if tokens > had || missed.is_none() && tokens != had || tokens % 32 != 0 {
            self.model.violation(format!("{tokens} tokens of {had} came up, missed: {missed:?}"));
        }
        for (group, (first, blocks)) in groups.iter().enumerate() {
            let needed = self.model.needed(group, tokens);
            let there = *first..first + blocks.len();
            if there != needed && !(needed.is_empty() && blocks.is_empty()) {
                self.model.violation(format!("{tokens} tokens: group {group} needs {needed:?}: {there:?}"));
            }
            self.model.believe(group, blocks, &of[group][*first..], "onboarded");
        }
        (tokens, groups)
    }

    /// Computes a group's missing blocks. False: there was no room.
    async fn compute(
        &mut self,
        group: usize,
        hashes: &[SequenceHash],
        have: usize,
        groups: &mut Vec<(usize, Blocks)>,
    ) -> bool {
        let (model, missing) = (Rc::clone(&self.model), hashes.len() - have);
        if missing == 0 {
            return true;
        }
        let patience = Patience::draw(&mut self.random, model.hasty);
        let Some(Ok(blocks)) =
            patience.wait(model.manager.group(group).expect("a group").allocate(missing)).await
        else {
            model.note(&format!("no room in group {group}"));
            return false;
        };
        self.fill(group, blocks, (hashes, have), groups).await;
        true
    }

    /// The same for all groups at once, or for none.
    async fn compute_all(
        &mut self,
        of: &[Vec<SequenceHash>; GROUPS],
        tokens: u64,
        groups: &mut Vec<(usize, Blocks)>,
    ) {
        let model = Rc::clone(&self.model);
        let have = [0, 1, 2].map(|group| (tokens / PAGES[group]) as usize);
        let counts = [0, 1, 2].map(|group| of[group].len() - have[group]);
        let patience = Patience::draw(&mut self.random, model.hasty);
        let Some(Ok(lists)) = patience.wait(model.manager.allocate_groups(&counts)).await else {
            return model.note("no room in all groups");
        };
        if !lists.iter().map(BlocksMut::len).eq(counts) {
            model.violation(format!("{lists:?}, and {counts:?} were asked for"));
        }
        for (group, blocks) in lists.into_iter().enumerate().filter(|(_, blocks)| !blocks.is_empty()) {
            self.fill(group, blocks, (&of[group], have[group]), groups).await;
        }
    }

    /// Computes the blocks of a sequence behind those that it has.
    async fn fill(
        &mut self,
        group: usize,
        blocks: BlocksMut,
        (hashes, have): (&[SequenceHash], usize),
        groups: &mut Vec<(usize, Blocks)>,
    ) {
        let (model, missing) = (Rc::clone(&self.model), &hashes[have..]);
        let (ids, of) = (blocks.ids().to_vec(), &model.groups[group]);
        let fresh = ids.iter().filter(|block| of.filled.borrow_mut().insert(block.0)).count();
        if fresh < missing.len() {
            model.violation(format!("group {group}: some of {ids:?} are somebody's"));
        }
        for (block, hash) in ids.iter().zip(missing) {
            of.device.copy_in(block.0, 0, &bytes_of(*hash, BYTES)).expect("in range");
        }
        self.pause(30).await;
        ids.iter().for_each(|block| _ = of.filled.borrow_mut().remove(&block.0));
        match blocks.register(missing, None) {
            Ok(blocks) => {
                model.believe(group, &blocks, missing, "registered");
                // Behind the blocks that came up, which end with the last group's.
                while groups.len() % GROUPS != group {
                    groups.push((0, model.manager.default_group().match_device(&[])));
                }
                groups.push((have, blocks));
            }
            Err(error) => model.violation(error.to_string()),
        }
    }
}

/// Runs a seed. Returns its trace, and the first violation.
fn run(seed: u64) -> (u64, Option<String>) {
    let _watch =
        watch(&format!("KVSTRATA_SEED={seed} cargo test -p kvstrata-tiers --test simulation groups"));
    in_virtual_time(async move {
        let mut random = Random(seed ^ 0x9E37_79B9);
        let model = Model::new(&mut random);
        let engines: Vec<_> = (0..1 + random.below(4))
            .map(|_| Engine { model: Rc::clone(&model), random: Random(random.next()) })
            .collect();
        model.engines.set(engines.len() as u64);
        let engines: Vec<_> = engines
            .into_iter()
            .map(|engine| kvstrata_testing::virtual_time::spawn_local(engine.run()))
            .collect();
        for engine in engines {
            engine.await.expect("no panic");
        }
        model.rest().await;
        let first = model.violations.borrow().first().cloned();
        let trace = model.trace.borrow().finish();
        (trace, first)
    })
}

#[test]
fn groups_have_the_same_prefix_or_none() {
    Seeds::asked(SEEDS).run(
        "cargo test -p kvstrata-tiers --test simulation groups -- --nocapture",
        |seed, _| {
            let (trace, violation) = run(seed);
            match violation {
                Some(what) => Err(what),
                None if seed % 20 == 0 && run(seed) != (trace, None) => {
                    Err("again, it does something else".to_owned())
                }
                None => Ok(()),
            }
        },
    );
}

//! The state that all handles of a manager share, and how it is changed.
//!
//! ```text
//!   call ─────► with: lock, change, advance, unlock ─► perform
//!   landing ──► inbox ─► settle: one thread at a time takes the landings, and does the same
//! ```
//!
//! Movers land on any thread of theirs, also from inside `start`. So a landing is only put into the
//! inbox, and the thread that is settling takes it: nothing recurses, and no mover waits for
//! another's landing.
//!
//! Invariants
//! - I1: each landing in the inbox is taken. The thread that puts it there settles, or another thread is
//!   settling, and stops only once it finds the inbox empty. Both are decided under the inbox's lock.
//!
//! # Orderings
//! `pending`, `iteration` and `refusing` are Relaxed: hints, which publish nothing. So is `aheads`: it is
//! reliable only if it is true, or is read under `without`.

use crate::contained::contained;
use crate::engine::checked::Checks;
use crate::engine::counts::Counts;
use crate::engine::group_tiers::{GroupTiers, TierPool};
use crate::engine::naming::Naming;
use crate::engine::notices::{About, Notices};
use crate::engine::rules::{Rules, WriteMode};
use crate::engine::tenants::{TenantUse, Tenants};
use crate::engine::tier_names::TierNames;
use crate::engine::watch::Watch;
use crate::runtime::Runtime;
use crate::signal::Signal;
use crate::state::{GroupId, Traffic};
use crate::tier::Tier;
use crate::transfer::{Failure, Landed, Landing, Lands};
use kvstrata_core::hash::Hasher;
use kvstrata_core::waiting::Waiting;
use kvstrata_core::{BlockRef, TenantId};
use kvstrata_ffi::process::Origin;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;
use tracing::trace;

/// The thread that settles. Gives the role back if a waker panics, so that other threads can take it.
struct Settler<'i>(&'i Inner);

impl Drop for Settler<'_> {
    fn drop(&mut self) {
        self.0.inbox().settling = false;
    }
}

/// Landings that have not been taken, and whether a thread takes them.
#[derive(Default)]
struct Inbox {
    landed: Vec<Landed>,
    settling: bool,
    /// Memory for the next landings.
    spare: Vec<Landed>,
}

pub(crate) struct Inner {
    pub(crate) groups: Box<[GroupTiers]>,
    pub(crate) rules: Rules,
    pub(crate) counts: Counts,
    pub(crate) watch: Watch,
    /// Callers that wait for blocks of a device.
    pub(crate) waiting: Waiting,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Writes whose bytes are to be compared with their sums, in order.
    pub(crate) checks: Checks,
    traffic: Mutex<Traffic>,
    inbox: Mutex<Inbox>,
    /// Number of transfers: a match looks for its hashes among them only if there are any.
    pending: AtomicUsize,
    pub(crate) iteration: AtomicU64,
    /// Calls begin nothing any more. Set before the state under the lock says so, for
    /// callers that do not take the lock.
    pub(crate) refusing: AtomicBool,
    /// Whether any block was ever registered ahead of being written. Set before the lock is taken for the
    /// first one.
    aheads: AtomicBool,
    /// Read-locked by registrations without the lock, as long as `aheads` is false.
    without: RwLock<()>,
    /// Told when nothing is under way, once calls are refused.
    pub(crate) idle: Signal,
    pub(crate) tenants: Tenants,
    pub(crate) naming: Naming,
    pub(crate) hasher: Hasher,
    /// Where the hasher's secret is kept, for people.
    pub(crate) hash_origin: String,
    /// Told at each change while purges run.
    pub(crate) purge_told: Signal,
    pub(crate) tier_names: TierNames,
    /// The process that made the manager.
    origin: Origin,
    this: Weak<Inner>,
}

impl Inner {
    pub(crate) fn new(
        groups: Box<[GroupTiers]>,
        rules: Rules,
        watch: Watch,
        traffic: Traffic,
        (tenants, naming): (Tenants, Naming),
        (hasher, hash_origin): (Hasher, String),
        runtime: Arc<dyn Runtime>,
    ) -> Arc<Inner> {
        let tells = |group: &GroupTiers| {
            group.lower.iter().map(|lower| lower.port.facts().logs_failures).collect::<Vec<bool>>()
        };
        let tier_names = TierNames::of(&groups);
        let notices = Notices::new(groups.iter().map(tells).collect(), tier_names.clone());
        Arc::new_cyclic(|this| Inner {
            groups,
            rules,
            counts: Counts::new(notices, tier_names.below()),
            tier_names,
            watch,
            waiting: Waiting::new(),
            runtime,
            checks: Checks::default(),
            traffic: Mutex::new(traffic),
            inbox: Mutex::default(),
            pending: AtomicUsize::new(0),
            iteration: AtomicU64::new(0),
            refusing: AtomicBool::new(false),
            aheads: AtomicBool::new(false),
            without: RwLock::new(()),
            idle: Signal::default(),
            tenants,
            naming,
            hasher,
            hash_origin,
            purge_told: Signal::default(),
            origin: Origin::here(),
            this: this.clone(),
        })
    }

    /// A reference that does not keep the manager alive.
    pub(crate) fn weak(&self) -> Weak<Inner> {
        self.this.clone()
    }

    /// The time at which `wait` is over; none if no clock has it.
    pub(crate) fn due_in(&self, wait: Duration) -> Option<Duration> {
        self.elapsed().checked_add(wait)
    }

    /// Whether this process was forked from the manager's. It has none of the manager's threads, and its
    /// locks may be held by some of them, so it leaves the manager alone.
    pub(crate) fn is_inherited(&self) -> bool {
        !self.origin.is_here()
    }

    /// Keeps the manager from ever being freed. Called where a handle is dropped in such a process:
    /// freeing the manager would wait for its threads.
    pub(crate) fn keep(&self) {
        std::mem::forget(self.this.upgrade());
    }

    pub(crate) fn group(&self, number: GroupId) -> &GroupTiers {
        &self.groups[number.index()]
    }

    /// The iteration, for ages.
    pub(crate) fn now(&self) -> u64 {
        self.iteration.load(Relaxed)
    }

    /// The time, by the runtime's clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.runtime.now()
    }

    /// The handle by which movers answer.
    pub(crate) fn landing(self: &Arc<Inner>) -> Landing {
        Landing::new(Arc::<Inner>::clone(self))
    }

    pub(crate) fn entered(&self, transfers: usize) {
        self.pending.fetch_add(transfers, Relaxed);
    }

    pub(crate) fn left(&self, transfers: usize) {
        self.pending.fetch_sub(transfers, Relaxed);
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Relaxed) > 0
    }

    /// Locks the state, for reading or for a change that has no consequences.
    pub(crate) fn look(&self) -> MutexGuard<'_, Traffic> {
        // Of code from outside, only the clock, event sinks and metadata methods of ports run under this
        // lock, and they are trusted. A poisoned lock is therefore a bug of ours, perhaps amid a change.
        // We continue: refusing every later call would be worse.
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        (traffic.when, traffic.moment) = (None, None);
        traffic
    }

    /// Makes a change and all that follows from it, then logs the conditions raised.
    pub(crate) fn with<R>(self: &Arc<Inner>, change: impl FnOnce(&mut Traffic) -> R) -> R {
        let result = self.with_unsaid(change);
        self.say();
        result
    }

    /// The same without logging, which is left to the caller.
    fn with_unsaid<R>(self: &Arc<Inner>, change: impl FnOnce(&mut Traffic) -> R) -> R {
        let mut traffic = self.look();
        let result = change(&mut traffic);
        let purges = !traffic.purges.is_empty();
        self.follow(traffic);
        if purges {
            self.purge_told.tell();
        }
        result
    }

    /// The same for a purge, which need not be told of its own change.
    pub(crate) fn change<R>(self: &Arc<Inner>, change: impl FnOnce(&mut Traffic) -> R) -> R {
        let mut traffic = self.look();
        let result = change(&mut traffic);
        self.follow(traffic);
        self.say();
        result
    }

    /// The same for a caller that takes blocks. If this started no transfer, and no caller waits,
    /// nothing follows.
    pub(crate) fn take<R>(self: &Arc<Inner>, take: impl FnOnce(&mut Traffic) -> R) -> R {
        let mut traffic = self.look();
        let before = traffic.begun();
        let result = take(&mut traffic);
        let purges = !traffic.purges.is_empty();
        let same = traffic.begun() == before
            && traffic.effects.is_empty()
            && traffic.none_waits()
            && !traffic.waiting_for_parent.any_over();
        if same && !purges {
            drop(traffic);
            self.say();
            return result;
        }
        self.follow(traffic);
        if purges {
            self.purge_told.tell();
        }
        self.say();
        result
    }

    /// As [`with`](Inner::with), for blocks that are registered ahead of being written. The first call
    /// waits until no thread registers without the lock.
    pub(crate) fn with_ahead<R>(self: &Arc<Inner>, change: impl FnOnce(&mut Traffic) -> R) -> R {
        if !self.aheads.load(Relaxed) {
            let _nobody = self.without.write().unwrap_or_else(PoisonError::into_inner);
            self.aheads.store(true, Relaxed);
        }
        self.with(change)
    }

    /// Registers blocks without the lock. None, without registering, once any blocks have been registered
    /// ahead of being written.
    pub(crate) fn without_ahead<R>(&self, register: impl FnOnce() -> R) -> Option<R> {
        if self.aheads.load(Relaxed) {
            return None;
        }
        let _somebody = self.without.read().unwrap_or_else(PoisonError::into_inner);
        (!self.aheads.load(Relaxed)).then(register)
    }

    /// Logs the conditions that were raised. Must not be called under the lock.
    pub(crate) fn say(&self) {
        self.counts.notices.say(|whose| self.names_of(whose));
    }

    /// Names of the group and the tenant that a condition concerns.
    fn names_of(&self, whose: About) -> [Option<String>; 2] {
        let known = || self.tenants.names.known();
        let name = |of: TenantId| known().into_iter().find(|(_, number)| *number == of);
        let tenant = whose.tenant().and_then(name);
        [whose.group().map(|group| self.group(group).name.clone()), tenant.map(|(name, _)| name.to_string())]
    }

    /// Makes all that follows from a change, and releases the lock.
    fn follow(self: &Arc<Inner>, mut traffic: MutexGuard<'_, Traffic>) {
        traffic.advance(self);
        if traffic.refuses() && traffic.is_idle() {
            traffic.effects.idle();
        }
        if traffic.effects.is_empty() {
            return;
        }
        let next = traffic.scratch.effects();
        let mut effects = std::mem::replace(&mut traffic.effects, next);
        drop(traffic);
        effects.perform(self);
        // Kept for its memory: as many as threads perform effects at once.
        self.look().scratch.return_effects(effects);
    }

    /// Takes the landings, unless another thread does (I1).
    fn settle(self: &Arc<Inner>) {
        let mut landed = {
            let mut inbox = self.inbox();
            if std::mem::replace(&mut inbox.settling, true) {
                return;
            }
            std::mem::take(&mut inbox.spare)
        };
        let role = Settler(self);
        loop {
            {
                let mut inbox = self.inbox();
                if inbox.landed.is_empty() {
                    inbox.settling = false;
                    inbox.spare = landed;
                    std::mem::forget(role);
                    break;
                }
                std::mem::swap(&mut inbox.landed, &mut landed);
            }
            self.with_unsaid(|traffic| landed.drain(..).for_each(|landed| traffic.land(self, landed)));
        }
        // A subscriber is a caller's code, and may wait for long: other threads settle meanwhile.
        self.say();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves waiting callers after blocks of a device were released.
    pub(crate) fn released(&self) {
        self.released_of(None);
    }

    /// The same. Also notes the release for the blocks' owners, before it takes the lock under which that
    /// is read.
    pub(crate) fn released_of(&self, blocks: Option<(&TierPool, &[BlockRef])>) {
        if self.waiting.anyone()
            && let Some(this) = self.this.upgrade()
        {
            if let Some((tier_pool, blocks)) = blocks {
                blocks.iter().for_each(|block| tier_pool.owners().stir(block.id));
            }
            this.with(|_| {});
        }
    }
}

impl Inner {
    /// Writes blocks through that their engine has registered, if the settings say so.
    pub(crate) fn registered(self: &Arc<Inner>, group: GroupId, blocks: &[BlockRef]) {
        if self.rules.mode == WriteMode::Through {
            self.with(|traffic| blocks.iter().for_each(|block| traffic.write_through(self, group, *block)));
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inner({} groups)", self.groups.len())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The attendant, which looks after deadlines, then finds that the engine is gone.
        self.runtime.wake_at(Duration::ZERO);
        self.close_lower();
    }
}

impl Lands for Inner {
    fn landed(&self, landed: Landed) {
        let failed = |failure: &Failure| failure.cause.name();
        let of_lower = match &landed {
            Landed::Read(token, outcome) => Some((token.0, outcome.as_ref().err().map(failed))),
            Landed::Write(token, outcome) => Some((token.0, outcome.as_ref().err().map(failed))),
            Landed::Copies(_) => None,
        };
        if let Some((token, failed)) = of_lower {
            contained(|| trace!(token, failed, "a transfer of a tier below ended"));
        }
        self.inbox().landed.push(landed);
        if let Some(this) = self.this.upgrade() {
            this.settle();
        }
    }
}

impl Inner {
    /// All tiers, from the device down.
    pub(crate) fn tiers(&self) -> impl DoubleEndedIterator<Item = Tier> + Clone + use<> {
        Tier::all(self.tier_names.below())
    }

    /// A tenant's blocks and quota in a tier, over all groups.
    pub(crate) fn usage(&self, tenant: TenantId, tier: Tier) -> TenantUse {
        let owners = self.groups.iter().filter_map(|group| group.owners(tier));
        owners.fold(TenantUse::default(), |so_far, owners| TenantUse {
            blocks: so_far.blocks + owners.used(tenant),
            quota: owners.limit(tenant).map(|limit| so_far.quota.unwrap_or(0) + limit).or(so_far.quota),
        })
    }
}

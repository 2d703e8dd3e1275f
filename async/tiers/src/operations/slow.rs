//! A tier below that takes its time: no request for blocks of the device waits for it for long.
//!
//! ```text
//!   a victim of the device needs a host block, and the host is full
//!     requests may wait ──── the host's next victim is written; its block is had when that has ended
//!     they may not ────┬──── a host victim that the disk has: at once
//!                      ├──── host victims are written as far as few are (the share): nobody waits for these
//!                      └──── the next one is dropped, and counted: its block is had at once
//! ```
//!
//! A path whose lower end may be slow is [`slow_path`]'s; what follows is the same for each: the requests'
//! [`Patience`](crate::transfer::Patience) says whether they wait, the path's
//! [`Breaker`](crate::transfer::Breaker) whether more than one transfer goes. Where there is no host tier,
//! victims of the device are treated as those of the host are.
//!
//! Reads have a path of their own, and go on.
//!
//! Nobody waits for tiers further down than the first: a victim that goes on there is none of those on their way, for whoever
//! waits, and of what nobody has asked for no more goes there than the same part of the blocks (`room.rs`). A block that one of
//! the tiers below has is not lost where another does not take it.
//!
//! Invariants
//! - I1: who waits in the queue for longer than the patience lets it waits for no write: a victim of the
//!   device gets a host block that is free, or a dropped victim's, or one on its way to the host; or it is
//!   dropped itself.
//! - I2: while requests do not wait, no more than a part ([`SHARE`]) of the tier's blocks are on their way
//!   down for their sake; one, while the breaker is open.
//! - I3: each block that is dropped so is counted once: by its path with [`Cause::Slow`], and by its tier.
//! - I4: while a request waits for a write there is an alarm for when that is to be looked at again.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::engine::notices::{About, Notice};
use crate::state::{At, Came, Cargo, Down, DownId, GroupId, Have, HostSlot, Piece, Slot, Traffic, Waits};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure, Path};
use kvstrata_core::{BlockId, SequenceHash, TenantId, VictimsSeen};
use kvstrata_ffi::disk::Name;
use std::time::Duration;

/// Of a tier's blocks, one in so many may be on its way down while nobody waits for that.
const SHARE: usize = 8;

/// Next victims of the host among which one is looked for that the disk has.
const CLEAN: usize = 8;

/// After so long without a dropped block a path is said to have recovered.
pub(crate) const RECOVERED: Duration = Duration::from_secs(30);

/// The path from a group's memory to the tier below that victims are written to, which may be slow. They go further down
/// only where that keeps up, too ([`Traffic::waits_for_none`]).
fn slow_path(of: &GroupTiers) -> Option<Path> {
    (!of.lower.is_empty()).then_some(Path::ToBelow(0))
}

impl Traffic {
    /// When this change is, by the manager's clock: read once.
    pub(crate) fn moment(&mut self, inner: &Inner) -> Duration {
        *self.moment.get_or_insert_with(|| inner.elapsed())
    }

    /// Something of a path is under way from now on, or nothing is.
    pub(crate) fn busy(&mut self, inner: &Inner, path: Path, busy: bool) {
        self.paces[path.index()].set_busy(busy, || inner.elapsed());
    }

    /// So many bytes have been moved on a path.
    pub(crate) fn moved(&mut self, inner: &Inner, path: Path, bytes: u64) {
        let now = self.moment(inner);
        self.paces[path.index()].moved(bytes, now);
    }

    /// How long blocks of devices were being copied to host memory, in all.
    fn copied(&self, now: Duration) -> Duration {
        self.paces[Path::DeviceToHost.index()].busy_until(now)
    }

    /// For a request that gets into a line.
    pub(crate) fn came_at(&mut self, inner: &Inner, group: GroupId) -> Came {
        if slow_path(inner.group(group)).is_none() {
            return Came::default();
        }
        let now = self.moment(inner);
        Came { copying: self.copied(now), below: self.groups[group].below.until(now) }
    }

    /// A request has all its blocks.
    pub(crate) fn served_in_queue(&mut self, inner: &Inner, group: GroupId, came: Came) {
        let Some(path) = slow_path(inner.group(group)) else { return };
        let (now, at_once) = (self.moment(inner), inner.watch.at_once(group));
        let copying = self.copied(now).saturating_sub(came.copying);
        let keeps_up = self.keeps_up(inner, path);
        let waits = &mut self.groups[group].below;
        let below = waits.until(now).saturating_sub(came.below);
        waits.served(copying, below, keeps_up, at_once);
    }

    /// Whether a path to a slower tier keeps up with the copies that fill the one above.
    fn keeps_up(&mut self, inner: &Inner, path: Path) -> bool {
        let now = self.moment(inner);
        let [above, below] = [Path::DeviceToHost, path].map(|path| &self.paces[path.index()]);
        below.keeps_up_with(above, inner.rules.keeps_up, now)
    }

    /// Whether who waits in the queue may wait for writes to the tier below (I1).
    pub(crate) fn may_wait_below(&mut self, inner: &Inner, group: GroupId) -> bool {
        let Some(path) = slow_path(inner.group(group)) else { return true };
        if self.is_slow(inner, path) {
            return false;
        }
        let keeps_up = self.keeps_up(inner, path) && !self.pauses(inner, path);
        let now = self.moment(inner);
        let state = &mut self.groups[group];
        let (below, look) = (state.below.until(now), state.below.next_look());
        // The first one has waited the longest.
        let waits = |came: Came| below.saturating_sub(came.below);
        let waiting = state.queue.iter().take_while(|entry| waits(entry.came()) >= look).count();
        let longest = state.queue.first().map_or(Duration::ZERO, |entry| waits(entry.came()));
        state.below.may_wait(waiting, longest, keeps_up)
    }

    /// Whether no request waits for long for a victim that goes down a path, too.
    pub(crate) fn waits_for_none(&mut self, inner: &Inner, group: GroupId, path: Path) -> bool {
        !self.is_slow(inner, path)
            && !self.pauses(inner, path)
            && self.keeps_up(inner, path)
            && self.may_wait_below(inner, group)
    }

    /// Whether a path is so slow that one transfer at a time goes.
    fn is_slow(&mut self, inner: &Inner, path: Path) -> bool {
        let runs = |down: &Down, number| down.serial() == number && matches!(down.at(), At::Moving);
        let downs = &self.downs;
        let runs = |key, number| downs.get(key).is_some_and(|down| runs(down, number));
        let Some(since) = self.paces[path.index()].oldest(runs) else {
            return self.paces[path.index()].is_open();
        };
        let now = self.moment(inner);
        self.paces[path.index()].is_open_after(now.saturating_sub(since))
    }

    /// Whether the oldest transfer of a path takes far longer than most: the drive pauses. To be asked behind
    /// [`is_slow`](Traffic::is_slow), which takes out those that have ended.
    fn pauses(&mut self, inner: &Inner, path: Path) -> bool {
        let now = self.moment(inner);
        self.paces[path.index()].hangs(now)
    }

    /// A transfer starts on a path to a slower tier.
    pub(crate) fn started_below(&mut self, inner: &Inner, key: DownId, path: Path) {
        let now = self.moment(inner);
        let Some(number) = self.downs.get(key).map(|down| down.serial()) else { return };
        self.paces[path.index()].started(key, number, now);
    }

    /// It has ended.
    pub(crate) fn ended_below(&mut self, inner: &Inner, key: DownId, path: Path) {
        let now = self.moment(inner);
        let Some(number) = self.downs.get(key).map(|down| down.serial()) else { return };
        self.paces[path.index()].ended(key, number, now);
    }

    /// How many victims of a tier may be on their way to a slow one while nobody waits for that (I2).
    fn share(&self, inner: &Inner, group: GroupId, path: Path) -> usize {
        if self.paces[path.index()].is_open() {
            return usize::from(!self.is_shut(path));
        }
        Traffic::share_of(inner.group(group))
    }

    /// How many of the blocks above the tiers below host memory may be on a way that nobody waits for.
    pub(crate) fn share_of(of: &GroupTiers) -> usize {
        (of.host.as_ref().unwrap_or(&of.device).pool().capacity() / SHARE).max(1)
    }

    /// A block of the host tier for a victim of the device, without waiting for a write (I1).
    pub(crate) fn slot_without_waiting(&mut self, inner: &Inner, group: GroupId, class: Class) -> Slot {
        let of = inner.group(group);
        let (Some(host), Some(path)) = (&of.host, slow_path(of)) else { return Slot::Never };
        if let Some(block) = self.clean_host_victim(inner, group) {
            return Slot::Now(HostSlot::of(block));
        }
        while let Some((block, hash)) = self.one_victim(inner, group, host.pool()) {
            let tenant = host.owners().owner(block);
            if self.hand_to_purge(tenant, Piece::Host(group, HostSlot::of(block))) {
                continue;
            }
            let name = host.name(block, hash);
            if self.sink_or_drop(inner, group, block, name, class).is_none() {
                return Slot::Now(HostSlot::of(block));
            }
        }
        // All others are in use, or on their way: those that have not begun go no further.
        if let Some(key) = self.queued_sink(group, path) {
            let (at, tenant) = (self.downs[key].at(), self.downs[key].tenant());
            self.recall(at);
            self.note_dropping(inner, path, About::of(group, tenant));
            self.down_failed(inner, key, Failure::of(Cause::Slow));
            // What it had is free: copies by choice may wait for that.
            self.again = true;
            // Who has waited for longer may have it.
            return match self.scratch.one_free(host.pool()) {
                Some(slot) => Slot::Now(HostSlot::of(slot)),
                None => Slot::Soon,
            };
        }
        Slot::Never
    }

    /// Sends a victim of the host down; or drops it, where requests do not wait and as many are on their way
    /// as may be then (I2).
    pub(crate) fn sink_or_drop(
        &mut self,
        inner: &Inner,
        group: GroupId,
        block: BlockId,
        name: Name,
        class: Class,
    ) -> Option<DownId> {
        let of = inner.group(group);
        if let (Some(host), Some(path)) = (&of.host, slow_path(of))
            && self.groups[group].on_their_way.host_victims() >= self.share(inner, group, path)
            && !self.may_wait_below(inner, group)
        {
            if !of.in_lower(name.hash, host.class(block)) && !of.any_lower_contains(name.hash) {
                self.drop_slow(inner, group, Tier::Host, host.owners().owner(block));
            }
            return None;
        }
        self.sink(inner, group, Cargo::new(Have::Owned(block), name, class))
    }

    /// Among the host's next victims, one that the tier below has.
    fn clean_host_victim(&mut self, inner: &Inner, group: GroupId) -> Option<BlockId> {
        let of = inner.group(group);
        let (host, mut seen, mut next) =
            (of.host.as_ref()?, VictimsSeen::default(), self.scratch.lend_next_victims());
        next.clear();
        host.pool().victims_behind(&mut seen, CLEAN, &mut next);
        let is_below = |hash: SequenceHash| of.is_kept_below(Tier::Host, hash);
        let clean = next
            .drain(..)
            .find(|(block, hash)| is_below(*hash) && !self.is_purging(host.owners().owner(block.id)));
        self.scratch.return_next_victims(next);
        let victim = host.pool().evict_this(clean?.0).ok()?;
        // It has the block's class for eviction from now on.
        let _ = of.in_lower(victim.hash(), host.class(victim.id()));
        Some(victim.into_mutable().into_id())
    }

    /// A victim that waits for its turn on a path.
    fn queued_sink(&self, group: GroupId, path: Path) -> Option<DownId> {
        let waits = |down: &Down| {
            let on = matches!(down.at(), At::Queued(of, _) if of == path);
            on && (down.group(), down.from()) == (group, Tier::Host) && down.is_victim()
        };
        self.downs.iter().find(|(_, down)| waits(down)).map(|(key, _)| key)
    }

    /// Whether a victim of the device is to go straight to a slow tier, where there is no host tier; or else
    /// it is dropped.
    pub(crate) fn may_go_below(&mut self, inner: &Inner, group: GroupId) -> bool {
        let of = inner.group(group);
        let Some(path) = slow_path(of).filter(|_| of.host.is_none()) else { return true };
        if self.may_wait_below(inner, group) {
            return true;
        }
        let reads = self.urgent_reads(group);
        let state = &self.groups[group];
        state.staging.free() > reads && state.on_their_way.device_victims() < self.share(inner, group, path)
    }

    /// Blocks of the device that will be free without a write that nobody may wait for.
    pub(crate) fn draining(&mut self, inner: &Inner, group: GroupId) -> usize {
        let draining = self.groups[group].on_their_way.device_victims();
        let waits = draining == 0 || inner.group(group).host.is_some() || self.may_wait_below(inner, group);
        if waits { draining } else { 0 }
    }

    /// Victims of the device that wait for their turn on the way to a slow tier, where there is no host tier,
    /// go no further: up to `wanted`. Whether there was one.
    pub(crate) fn call_off_draining(&mut self, inner: &Inner, group: GroupId, wanted: usize) -> bool {
        let of = inner.group(group);
        let Some(path) = slow_path(of).filter(|_| of.host.is_none()) else { return false };
        if self.may_wait_below(inner, group) {
            return false;
        }
        let waits = |down: &Down| {
            (down.group(), down.from()) == (group, Tier::Device)
                && matches!((down.at(), down.source()), (At::Wants | At::Queued(..), Have::Owned(_)))
        };
        let such = self.downs.iter().filter(|(_, down)| waits(down)).take(wanted);
        let such: Vec<(DownId, At, TenantId)> =
            such.map(|(key, down)| (key, down.at(), down.tenant())).collect();
        self.groups[group].waiting_for_host.retain(|key| such.iter().all(|(of, ..)| of != key));
        for (key, at, tenant) in &such {
            self.recall(*at);
            self.note_dropping(inner, path, About::of(group, *tenant));
            self.down_failed(inner, *key, Failure::of(Cause::Slow));
            self.again = true;
        }
        !such.is_empty()
    }

    /// A victim goes no further, since the tier below takes too long (I3).
    pub(crate) fn drop_slow(&mut self, inner: &Inner, group: GroupId, from: Tier, tenant: TenantId) {
        let Some(path) = slow_path(inner.group(group)) else { return };
        let about = About::of(group, tenant);
        inner.counts.dropped(from);
        inner.counts.failed(path, Cause::Slow, about);
        self.note_dropping(inner, path, about);
    }

    /// A victim of the device that waited for a host block is about to be dropped, for the same reason.
    pub(crate) fn note_slow(&mut self, inner: &Inner, group: GroupId, tenant: TenantId) {
        if let Some(path) = slow_path(inner.group(group)) {
            self.note_dropping(inner, path, About::of(group, tenant));
        }
    }

    /// Blocks are being dropped: said once, until that is over.
    fn note_dropping(&mut self, inner: &Inner, path: Path, about: About) {
        let now = self.moment(inner);
        if self.paces[path.index()].dropped(now) {
            inner.counts.notices.raise_anew(Notice::Slow(path), about);
            self.due(inner.due_in(RECOVERED), Waits::Recovery(path));
        }
    }

    /// Whether a path has recovered: none were dropped for a while.
    pub(crate) fn look_at_recovery(&mut self, inner: &Inner, path: Path) {
        let now = self.moment(inner);
        let Some(last) = self.paces[path.index()].last_dropped() else { return };
        let left = RECOVERED.saturating_sub(now.saturating_sub(last));
        if !left.is_zero() {
            return self.due(inner.due_in(left), Waits::Recovery(path));
        }
        self.paces[path.index()].recovered();
        inner.counts.notices.raise_anew(Notice::Recovered(path), About::default());
    }

    /// Notes since when the wait queue waits for writes below, and has an alarm for it (I4).
    pub(crate) fn note_below(&mut self, inner: &Inner, group: GroupId) {
        let of = inner.group(group);
        if slow_path(of).is_none() {
            return;
        }
        let state = &self.groups[group];
        let waits = match of.host {
            Some(_) => state.on_their_way.host_victims() > 0 && state.waiting_for_host.victims() > 0,
            None => state.on_their_way.device_victims() > 0 && !state.queue.is_empty(),
        };
        if waits != state.below.is_on() {
            let now = self.moment(inner);
            self.groups[group].below.set(waits, now);
        }
        if !waits || self.groups[group].below.has_alarm() {
            return;
        }
        let now = self.moment(inner);
        let state = &mut self.groups[group];
        let Some(first) = state.queue.first() else { return };
        let waited = state.below.until(now).saturating_sub(first.came().below);
        let look = state.below.next_look();
        // At its limit, and from then on each time that this has passed again.
        let wait = if waited < look { look - waited } else { look.max(Duration::from_millis(1)) };
        state.below.alarm_set();
        self.due(inner.due_in(wait), Waits::Below(group));
    }
}

//! A slow tier below: no request for blocks of the device waits long for it.
//!
//! ```text
//!   a victim of the device needs a host block, and the host is full
//!     requests may wait ──── the host's next victim is written; its block is available afterwards
//!     they may not ────┬──── a host victim that the disk has: available at once
//!                      ├──── a few host victims (the share) are written: no request waits for these
//!                      └──── the next one is dropped, and counted: its block is available at once
//! ```
//!
//! [`slow_path`] returns the path that may be slow at its lower end; the rest is the same for each path.
//! The requests' [`Patience`](crate::transfer::Patience) says whether they wait; the path's
//! [`Breaker`](crate::transfer::Breaker) says whether more than one transfer goes. Where there is no host
//! tier, victims of the device are treated as those of the host are.
//!
//! Reads have a path of their own, and go on.
//!
//! No request waits for tiers further down than the first: for waiters, a victim that goes on there is
//! none of those on their way. Blocks that no caller has asked for go there up to the same share
//! (`room.rs`). A block that one of the tiers below has is not lost where another does not take it.
//!
//! Invariants
//! - I1: a request that has waited in the queue for longer than the patience lets it waits for no write.
//!   A victim of the device gets a host block that is free, or a dropped victim's, or one on its way to
//!   the host; or it is dropped itself.
//! - I2: while requests do not wait, at most a part ([`SHARE`]) of the tier's blocks are on their way
//!   down for their sake; one, while the breaker is open.
//! - I3: each block dropped in this way is counted once: by its path with [`Cause::Slow`], and by its tier.
//! - I4: while a request waits for a write, an alarm is set for the next look at that.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::engine::notices::{About, Notice};
use crate::state::{At, Came, Cargo, Down, DownId, GroupId, Have, HostSlot, Piece, Slot, Traffic, Waits};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure, Path};
use kvstrata_core::{BlockId, SequenceHash, TenantId, VictimsSeen};
use kvstrata_ffi::disk::Name;
use std::time::Duration;

/// One in `SHARE` of a tier's blocks may be on its way down while no request waits for that.
const SHARE: usize = 8;

/// Number of the host's next victims among which to find one that the disk has.
const CLEAN: usize = 8;

/// After this time without a dropped block, a path is reported as recovered.
pub(crate) const RECOVERED: Duration = Duration::from_secs(30);

/// Returns the path on which victims go from a group's memory to the tier below, which may be slow. They
/// go further down only where that keeps up, too ([`Traffic::waits_for_none`]).
fn slow_path(of: &GroupTiers) -> Option<Path> {
    (!of.lower.is_empty()).then_some(Path::ToBelow(0))
}

impl Traffic {
    /// Returns the time of this change by the manager's clock, read once.
    pub(crate) fn moment(&mut self, inner: &Inner) -> Duration {
        *self.moment.get_or_insert_with(|| inner.elapsed())
    }

    /// Notes whether transfers of a path are under way.
    pub(crate) fn busy(&mut self, inner: &Inner, path: Path, busy: bool) {
        self.paces[path.index()].set_busy(busy, || inner.elapsed());
    }

    pub(crate) fn moved(&mut self, inner: &Inner, path: Path, bytes: u64) {
        let now = self.moment(inner);
        self.paces[path.index()].moved(bytes, now);
    }

    /// Returns for how long blocks of devices were being copied to host memory, in total.
    fn copied(&self, now: Duration) -> Duration {
        self.paces[Path::DeviceToHost.index()].busy_until(now)
    }

    /// Returns how long copying and waiting below have taken so far, for a request that enters a queue.
    pub(crate) fn came_at(&mut self, inner: &Inner, group: GroupId) -> Came {
        if slow_path(inner.group(group)).is_none() {
            return Came::default();
        }
        let now = self.moment(inner);
        Came { copying: self.copied(now), below: self.groups[group].below.until(now) }
    }

    /// Notes that a request has all its blocks.
    pub(crate) fn served_in_queue(&mut self, inner: &Inner, group: GroupId, came: Came) {
        let Some(path) = slow_path(inner.group(group)) else { return };
        let (now, at_once) = (self.moment(inner), inner.watch.at_once(group));
        let copying = self.copied(now).saturating_sub(came.copying);
        let keeps_up = self.keeps_up(inner, path);
        let waits = &mut self.groups[group].below;
        let below = waits.until(now).saturating_sub(came.below);
        waits.served(copying, below, keeps_up, at_once);
    }

    /// Whether a path to a slower tier keeps up with the copies that fill the tier above.
    fn keeps_up(&mut self, inner: &Inner, path: Path) -> bool {
        let now = self.moment(inner);
        let [above, below] = [Path::DeviceToHost, path].map(|path| &self.paces[path.index()]);
        below.keeps_up_with(above, inner.rules.keeps_up, now)
    }

    /// Whether requests in the queue may wait for writes to the tier below (I1).
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

    /// Whether a victim may go down a path, too, without making a request wait for long.
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

    /// Whether the oldest transfer of a path takes far longer than most: the drive pauses. To be called
    /// after [`is_slow`](Traffic::is_slow), which removes the transfers that have ended.
    fn pauses(&mut self, inner: &Inner, path: Path) -> bool {
        let now = self.moment(inner);
        self.paces[path.index()].hangs(now)
    }

    /// Notes that a transfer starts on a path to a slower tier.
    pub(crate) fn started_below(&mut self, inner: &Inner, key: DownId, path: Path) {
        let now = self.moment(inner);
        let Some(number) = self.downs.get(key).map(|down| down.serial()) else { return };
        self.paces[path.index()].started(key, number, now);
    }

    pub(crate) fn ended_below(&mut self, inner: &Inner, key: DownId, path: Path) {
        let now = self.moment(inner);
        let Some(number) = self.downs.get(key).map(|down| down.serial()) else { return };
        self.paces[path.index()].ended(key, number, now);
    }

    /// Returns how many victims may be on their way to a slow tier while no request waits for that (I2).
    fn share(&self, inner: &Inner, group: GroupId, path: Path) -> usize {
        if self.paces[path.index()].is_open() {
            return usize::from(!self.is_shut(path));
        }
        Traffic::share_of(inner.group(group))
    }

    /// Returns how many of the blocks above the lower tiers may be on a way for which no request waits.
    pub(crate) fn share_of(of: &GroupTiers) -> usize {
        (of.host.as_ref().unwrap_or(&of.device).pool().capacity() / SHARE).max(1)
    }

    /// Takes a block of the host tier for a victim of the device, without waiting for a write (I1).
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
        // All others are in use, or on their way: one that has not begun goes no further.
        if let Some(key) = self.queued_sink(group, path) {
            let (at, tenant) = (self.downs[key].at(), self.downs[key].tenant());
            self.recall(at);
            self.note_dropping(inner, path, About::of(group, tenant));
            self.down_failed(inner, key, Failure::of(Cause::Slow));
            // All that it had is free: copies by choice may wait for that.
            self.again = true;
            // A victim that has waited for longer may have it.
            return match self.scratch.one_free(host.pool()) {
                Some(slot) => Slot::Now(HostSlot::of(slot)),
                None => Slot::Soon,
            };
        }
        Slot::Never
    }

    /// Sends a victim of the host down. It is dropped instead if requests do not wait and as many are on
    /// their way as may be then (I2).
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

    /// Takes one of the host's next victims that a tier below has.
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
        // The copy below takes over the block's class for eviction.
        let _ = of.in_lower(victim.hash(), host.class(victim.id()));
        Some(victim.into_mutable().into_id())
    }

    /// Finds a victim that waits for its turn on a path.
    fn queued_sink(&self, group: GroupId, path: Path) -> Option<DownId> {
        let waits = |down: &Down| {
            let on = matches!(down.at(), At::Queued(of, _) if of == path);
            on && (down.group(), down.from()) == (group, Tier::Host) && down.is_victim()
        };
        self.downs.iter().find(|(_, down)| waits(down)).map(|(key, _)| key)
    }

    /// Whether a victim of the device may go straight to a slow tier, where there is no host tier.
    /// Otherwise it is dropped.
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

    /// Counts device blocks that will be free, except by a write for which no request may wait.
    pub(crate) fn draining(&mut self, inner: &Inner, group: GroupId) -> usize {
        let draining = self.groups[group].on_their_way.device_victims();
        let waits = draining == 0 || inner.group(group).host.is_some() || self.may_wait_below(inner, group);
        if waits { draining } else { 0 }
    }

    /// Ends up to `wanted` victims of the device that wait for their turn on the way to a slow tier,
    /// where there is no host tier. Returns whether there was one.
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

    /// Counts a victim that goes no further, since the tier below takes too long (I3).
    pub(crate) fn drop_slow(&mut self, inner: &Inner, group: GroupId, from: Tier, tenant: TenantId) {
        let Some(path) = slow_path(inner.group(group)) else { return };
        let about = About::of(group, tenant);
        inner.counts.dropped(from);
        inner.counts.failed(path, Cause::Slow, about);
        self.note_dropping(inner, path, about);
    }

    /// Reports that a device victim that waited for a host block is about to be dropped for the same reason.
    pub(crate) fn note_slow(&mut self, inner: &Inner, group: GroupId, tenant: TenantId) {
        if let Some(path) = slow_path(inner.group(group)) {
            self.note_dropping(inner, path, About::of(group, tenant));
        }
    }

    /// Reports dropped blocks once, until that is over.
    fn note_dropping(&mut self, inner: &Inner, path: Path, about: About) {
        let now = self.moment(inner);
        if self.paces[path.index()].dropped(now) {
            inner.counts.notices.raise_anew(Notice::Slow(path), about);
            self.due(inner.due_in(RECOVERED), Waits::Recovery(path));
        }
    }

    /// Checks whether a path has recovered: no block was dropped for a while.
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

    /// Notes since when the wait queue waits for writes below, and sets its alarm (I4).
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
        // At its limit, and from then on each time that the limit has passed again.
        let wait = if waited < look { look - waited } else { look.max(Duration::from_millis(1)) };
        state.below.alarm_set();
        self.due(inner.due_in(wait), Waits::Below(group));
    }
}

//! Where every block is: the manager's books against the pools'.

use crate::engine::inner::Inner;
use crate::state::{GroupId, Piece, Source, Traffic, Waiter};
use crate::tier::Tier;
use crate::transfer::Class;

/// Blocks of one tier of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierCensus {
    /// Of the tier.
    pub capacity: usize,
    /// As the pool counts them, slot by slot.
    pub free: usize,
    /// Registered, not held.
    pub inactive: usize,
    /// Registered, held by handles or transfers.
    pub active: usize,
    /// In the hands of one owner: handles, transfers, the wait queue.
    pub owned: usize,
}

/// What is under way, and where blocks are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// Device and host of each group, in the order of groups.
    pub tiers: Vec<[TierCensus; 2]>,
    /// Transfers up.
    pub up: usize,
    /// Transfers down.
    pub down: usize,
    /// Onboardings that nobody has taken the outcome of.
    pub onboardings: usize,
    /// Who waits in the queue.
    pub waiting: usize,
    /// Blocks that the wait queue has gathered.
    pub gathered: usize,
    /// Free blocks of staging.
    pub staging: usize,
    /// Blocks of staging that transfers have.
    pub staged: usize,
    /// Of each group, owned blocks of device and host that no handle has: transfers', the queue's,
    /// onboardings'.
    pub inside: Vec<[usize; 2]>,
    /// Copies down that wait for a layer or an iteration of the engine's, each with a reference; those that
    /// have some of their layers down are transfers, too.
    pub gated: usize,
    /// Blocks of the device that were registered ahead of a pass that is not over, or withdrawn since:
    /// references to them.
    pub unwritten: usize,
    /// Transfers down that wait for a block of host memory.
    pub grounded: usize,
    /// Purges under way.
    pub purges: usize,
    /// Of each group, owned blocks of device and host that are never used again.
    pub parked: Vec<[usize; 2]>,
    /// Transfers that wait in queues.
    pub queued: usize,
    /// Of these, urgent reads of the disk: as many free blocks of staging are for them.
    pub urgent_reads: usize,
    /// Transfers with movers.
    pub moving: usize,
}

impl Census {
    /// Whether nothing is under way and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let under_way = self.up + self.down + self.gated + self.queued + self.moving + self.purges;
        under_way + self.onboardings + self.waiting + self.gathered == 0
    }
}

pub(crate) fn census(inner: &Inner) -> Census {
    let traffic = inner.look();
    let of_pool = |group: usize, tier| {
        inner.groups[group].pool(tier).map_or_else(TierCensus::default, |pool| {
            let counted = pool.census();
            TierCensus {
                capacity: pool.capacity(),
                free: counted.free,
                inactive: counted.inactive,
                active: counted.active,
                owned: counted.owned,
            }
        })
    };
    Census {
        tiers: (0..inner.groups.len())
            .map(|s| [Tier::Device, Tier::Host].map(|tier| of_pool(s, tier)))
            .collect(),
        up: traffic.ups.len(),
        down: traffic.downs.len(),
        onboardings: traffic.onboardings.len(),
        waiting: traffic.waiting_for_quota.waiting()
            + traffic.groups.iter().map(|of| of.queue.len()).sum::<usize>(),
        gathered: traffic.groups.iter().map(|of| of.queue.gathered()).sum(),
        staged: staged(inner, &traffic),
        inside: (0..inner.groups.len()).map(|s| inside(inner, &traffic, GroupId::new(s))).collect(),
        staging: traffic.groups.iter().map(|of| of.staging.free()).sum(),
        gated: traffic.iterations.waiters().filter(|waiter| waiter.marked() == 0).count(),
        unwritten: traffic.iterations.waiters().map(Waiter::marked).sum(),
        grounded: traffic.groups.iter().map(|of| of.waiting_for_host.len()).sum(),
        purges: traffic.purges.len(),
        parked: (0..inner.groups.len()).map(|s| parked(&traffic, GroupId::new(s))).collect(),
        queued: traffic.queues.iter().map(|queue| queue.waiting() as usize).sum(),
        urgent_reads: traffic
            .queues
            .reads()
            .map(|path| traffic.queues[path].waiting_of(Class::Urgent) as usize)
            .sum(),
        moving: traffic.queues.iter().map(|queue| queue.in_flight() as usize).sum(),
    }
}

/// Blocks of host memory outside the host tier that transfers have.
fn staged(inner: &Inner, traffic: &Traffic) -> usize {
    let ups = traffic.ups.iter().filter(|(_, up)| matches!(up.source(), Source::Below(.., Some(_))));
    let staged = |group| inner.group(group).host.is_none();
    let downs = traffic.downs.iter().filter(|(_, down)| staged(down.group()) && down.host().is_some());
    ups.count() + downs.count() + traffic.in_purges(|piece| matches!(piece, Piece::Staged(..)))
}

/// Owned blocks of device and host that nobody will have again.
fn parked(traffic: &Traffic, group: GroupId) -> [usize; 2] {
    let owned = || traffic.quarantine.owned();
    let device = owned().filter(|piece| matches!(piece, Piece::Device(of, _) if *of == group)).count();
    [device, owned().filter(|piece| matches!(piece, Piece::Host(of, _) if *of == group)).count()]
}

/// Owned blocks of device and host that no handle has.
fn inside(inner: &Inner, traffic: &Traffic, group: GroupId) -> [usize; 2] {
    let ups = traffic.ups.iter().filter(|(_, up)| up.group() == group && up.device().is_some()).count();
    let of = || traffic.downs.iter().map(|(_, down)| down).filter(|down| down.group() == group);
    let owned = |tier| of().filter(|down| down.from() == tier && down.is_victim()).count();
    let filling = of().filter(|down| down.from() == Tier::Device && down.host().is_some()).count();
    let filling = if inner.group(group).host.is_some() { filling } else { 0 };
    let gathered = traffic.groups[group].queue.gathered();
    let purged_device = traffic.in_purges(|piece| matches!(piece, Piece::Device(of, _) if *of == group));
    let purged_host = traffic.in_purges(|piece| matches!(piece, Piece::Host(of, _) if *of == group));
    let device = ups + owned(Tier::Device) + gathered + purged_device;
    [device, owned(Tier::Host) + filling + purged_host]
}

//! Where every block is: the engine's records beside the pools' own counts.

use crate::engine::inner::Inner;
use crate::state::{GroupId, Piece, Source, Traffic, Waiter};
use crate::tier::Tier;
use crate::transfer::Class;

/// Blocks of one tier of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierCensus {
    /// Blocks of the tier.
    pub capacity: usize,
    /// Free, as the pool counts them, slot by slot.
    pub free: usize,
    /// Registered, not held.
    pub inactive: usize,
    /// Registered, held by handles or transfers.
    pub active: usize,
    /// With one owner: a handle, a transfer, the wait queue.
    pub owned: usize,
}

/// Work under way, and where blocks are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// Device and host of each group, in the order of groups.
    pub tiers: Vec<[TierCensus; 2]>,
    /// Transfers up.
    pub up: usize,
    /// Transfers down.
    pub down: usize,
    /// Onboardings whose outcome no caller has taken yet.
    pub onboardings: usize,
    /// Waiters in the queue.
    pub waiting: usize,
    /// Blocks that the wait queue has gathered.
    pub gathered: usize,
    /// Free blocks of staging.
    pub staging: usize,
    /// Blocks of staging that transfers use.
    pub staged: usize,
    /// By group, owned blocks of device and host without a handle: those of transfers, of the wait
    /// queue, of onboardings.
    pub inside: Vec<[usize; 2]>,
    /// Copies down that wait for a layer or an iteration of the engine, each with a reference. A copy
    /// with some of its layers down is also a transfer.
    pub gated: usize,
    /// References to blocks of the device that were registered ahead of a pass which is not over, or
    /// withdrawn since.
    pub unwritten: usize,
    /// Transfers down that wait for a block of host memory.
    pub waiting_for_host: usize,
    /// Purges under way.
    pub purges: usize,
    /// By group, owned blocks of device and host that are never used again.
    pub quarantined: Vec<[usize; 2]>,
    /// Transfers that wait in queues.
    pub queued: usize,
    /// Of `queued`, urgent reads of tiers below host memory: as many free blocks of staging are reserved
    /// for them.
    pub urgent_reads: usize,
    /// Transfers that movers have.
    pub moving: usize,
}

impl Census {
    /// Returns whether nothing is under way and no caller waits.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
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
        waiting_for_host: traffic.groups.iter().map(|of| of.waiting_for_host.len()).sum(),
        purges: traffic.purges.len(),
        quarantined: (0..inner.groups.len()).map(|s| quarantined(&traffic, GroupId::new(s))).collect(),
        queued: traffic.queues.iter().map(|queue| queue.waiting() as usize).sum(),
        urgent_reads: traffic
            .queues
            .reads()
            .map(|path| traffic.queues[path].waiting_of(Class::Urgent) as usize)
            .sum(),
        moving: traffic.queues.iter().map(|queue| queue.in_flight() as usize).sum(),
    }
}

/// Counts blocks of host memory outside the host tier that transfers use.
fn staged(inner: &Inner, traffic: &Traffic) -> usize {
    let ups = traffic.ups.iter().filter(|(_, up)| matches!(up.source(), Source::Below(.., Some(_))));
    let staged = |group| inner.group(group).host.is_none();
    let downs = traffic.downs.iter().filter(|(_, down)| staged(down.group()) && down.host().is_some());
    ups.count() + downs.count() + traffic.in_purges(|piece| matches!(piece, Piece::Staged(..)))
}

/// Counts owned blocks of device and host that are never used again.
fn quarantined(traffic: &Traffic, group: GroupId) -> [usize; 2] {
    let owned = || traffic.quarantine.owned();
    let device = owned().filter(|piece| matches!(piece, Piece::Device(of, _) if *of == group)).count();
    [device, owned().filter(|piece| matches!(piece, Piece::Host(of, _) if *of == group)).count()]
}

/// Counts owned blocks of device and host without a handle.
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

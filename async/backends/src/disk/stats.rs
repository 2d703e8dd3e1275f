//! Counters of the disk tier.

use kvstrata_ffi::disk::Rejection;
use kvstrata_tiers::shared::Stripes;
use kvstrata_tiers::transfer::{
    FailedTransfers, Rejected, RejectedAtOpening, RejectedReads, TierStats, VolumeStates,
};
use std::sync::atomic::AtomicU64;

/// A thread's counters.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    pub(super) offered: AtomicU64,
    pub(super) refused_by_admission: AtomicU64,
    pub(super) refused_by_budget: AtomicU64,
    pub(super) refused_by_volume: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) quarantined: AtomicU64,
    pub(super) abandoned: AtomicU64,
    empty: AtomicU64,
    other_hash: AtomicU64,
    payload: AtomicU64,
    after_crash: AtomicU64,
}

/// The counters behind [`TierStats`]; each thread counts for itself.
#[derive(Debug)]
pub(super) struct Counters(Stripes<Stripe>);

impl Counters {
    pub(super) fn new() -> Counters {
        Counters(Stripes::new(Stripe::default))
    }

    /// Adds one.
    pub(super) fn add(&self, counter: impl FnOnce(&Stripe) -> &AtomicU64) {
        self.0.add(counter, 1);
    }

    /// `after_crash`: the block was written by a process that ended without a shutdown.
    pub(super) fn rejected(&self, why: Rejection, after_crash: bool) {
        self.add(|mine| match why {
            Rejection::Payload if after_crash => &mine.after_crash,
            Rejection::Empty => &mine.empty,
            Rejection::OtherHash => &mine.other_hash,
            Rejection::Payload => &mine.payload,
        });
    }

    pub(super) fn snapshot(&self, at_opening: &RejectedAtOpening, lost_volumes: u64) -> TierStats {
        let rejected_reads = RejectedReads {
            empty: self.0.sum(|stripe| &stripe.empty),
            other_hash: self.0.sum(|stripe| &stripe.other_hash),
            payload: self.0.sum(|stripe| &stripe.payload),
            after_crash: self.0.sum(|stripe| &stripe.after_crash),
        };
        TierStats {
            offered: self.0.sum(|stripe| &stripe.offered),
            refused_by_admission: self.0.sum(|stripe| &stripe.refused_by_admission),
            refused_by_budget: self.0.sum(|stripe| &stripe.refused_by_budget),
            refused_by_volume: self.0.sum(|stripe| &stripe.refused_by_volume),
            written: self.0.sum(|stripe| &stripe.written),
            rejected: Rejected::of(at_opening, &rejected_reads),
            rejected_at_opening: *at_opening,
            rejected_reads,
            quarantined: self.0.sum(|stripe| &stripe.quarantined),
            abandoned: self.0.sum(|stripe| &stripe.abandoned),
            lost_volumes,
            volumes: VolumeStates::default(),
            failed: FailedTransfers::default(),
            removed_files: 0,
        }
    }
}

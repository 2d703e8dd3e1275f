//! Owners and the other data of blocks beside their pool (`src/owners.rs`, I1 to I5; `src/classes.rs`,
//! `src/parents.rs`): the pool's transitions alone order it, and no credit is lost or given back twice.
#![cfg(loom)]

mod loom;

use ::loom::sync::Arc;
use kvstrata_core::owners::Ends;
use kvstrata_core::*;
use loom::{Rig, hash, model, spawn};

const ONE: TenantId = TenantId(1);
const TWO: TenantId = TenantId(2);
const BLOCK: BlockId = BlockId(0);

/// A pool that reports ends to its owners, and the data of its blocks.
struct Desk {
    rig: Arc<Rig>,
    owners: std::sync::Arc<Owners>,
    classes: Classes,
    parents: Parents,
}

impl Desk {
    /// A desk without a quota.
    fn new(blocks: u32) -> Arc<Desk> {
        let owners = Owners::new(blocks as usize, 4, [].into_iter(), 1.0);
        let ends = Box::new(Ends(owners.clone()));
        let (classes, parents) = (Classes::new(blocks as usize), Parents::new(blocks as usize));
        Arc::new(Desk { rig: Rig::with(blocks, |config| config.events(ends)), owners, classes, parents })
    }

    /// Registers a block as a tenant's, with its credit, and with data that match its hash.
    fn register(&self, number: u64, tenant: TenantId) -> Option<ImmutableBlock<'_>> {
        let mut blocks = Vec::with_capacity(1);
        self.rig.pool.allocate(1, &mut blocks).ok()?;
        let block = blocks.pop().expect("one");
        assert!(self.owners.take(tenant, 1));
        self.owners.note(block.id(), tenant);
        self.parents.set(block.id(), Some(hash(number + 10)));
        self.classes.set(block.id(), Priority::Normal);
        let complete = block.complete(hash(number)).expect("a new block is Reset");
        Some(self.rig.pool.register(complete, None).into_block())
    }

    /// Each tenant's credits are its registered blocks; there is at most one.
    fn at_rest(&self) {
        let there = self.rig.pool.registered(BLOCK).is_some();
        for tenant in [ONE, TWO] {
            let own = usize::from(there && self.owners.owner(BLOCK) == tenant);
            assert_eq!(self.owners.used(tenant), own, "a credit of {tenant:?} was lost or made");
        }
    }
}

/// I3: of two takes that together exceed the quota one is refused, and the credits are those of the other.
#[test]
fn takes_at_once_stay_within_the_quota() {
    model(|| {
        let owners = Owners::new(3, 4, [].into_iter(), 0.67);
        assert_eq!(owners.limit(ONE), Some(2));
        let other = owners.clone();
        let thread = spawn(move || {
            let taken = usize::from(other.take(ONE, 1));
            assert!(other.used(ONE) <= 2);
            taken
        });
        let taken = 2 * usize::from(owners.take(ONE, 2));
        let all = taken + thread.join().expect("no panic");
        assert!(all == 1 || all == 2, "{all} of 2");
        assert_eq!(owners.used(ONE), all);
    });
}

/// I2: a block is evicted and registered anew, by another tenant, during a lookup: a holder under a hash
/// finds the data of that registration.
#[test]
fn owner_read_during_reuse_is_of_the_registration() {
    model(|| {
        let desk = Desk::new(1);
        let other = desk.clone();
        drop(desk.register(1, ONE));
        let thread = spawn(move || drop(other.register(2, TWO)));
        for (number, tenant) in [(2, TWO), (1, ONE)] {
            if let Some(held) = desk.rig.pool.lookup(hash(number)) {
                assert_eq!(desk.owners.owner(held.id()), tenant, "another registration's owner");
                assert_eq!(
                    desk.parents.get(held.id()),
                    Some(hash(number + 10)),
                    "another registration's parent"
                );
            }
        }
        thread.join().expect("no panic");
    });
}

/// I2: an evictor that comes after a holder's release finds the class that the holder gave.
#[test]
fn class_set_before_release_is_seen_by_the_evictor() {
    model(|| {
        let desk = Desk::new(1);
        let other = desk.clone();
        drop(desk.register(1, ONE));
        let thread = spawn(move || {
            let held = other.rig.pool.lookup(hash(1))?;
            other.classes.set(held.id(), Priority::High);
            Some(())
        });
        let mut victims = Vec::with_capacity(1);
        desk.rig.pool.evict(1, &mut victims);
        let found = victims.first().map(|victim| desk.classes.get(victim.id()));
        victims.clear();
        let class = match thread.join().expect("no panic") {
            Some(()) => Priority::High,
            None => Priority::Normal,
        };
        assert!(found.is_none_or(|found| found == class), "evicted as {found:?}, and was {class:?}");
    });
}

/// I1: an unowned block is claimed by its holder, and evicted then, or before: its end
/// gives back its one credit.
#[test]
fn claim_against_registration_end_returns_the_credit_once() {
    model(|| {
        let desk = Desk::new(1);
        let other = desk.clone();
        drop(desk.register(1, TenantId::NONE));
        let thread = spawn(move || {
            if let Some(held) = other.rig.pool.lookup(hash(1)) {
                other.owners.claim(held.id(), ONE);
            }
        });
        desk.rig.pool.evict(1, &mut Vec::with_capacity(1));
        thread.join().expect("no panic");
        desk.at_rest();
    });
}

/// I1: two hold an unowned block, and claim it: one of them gets it.
#[test]
fn claims_of_two_tenants_have_one_winner() {
    model(|| {
        let desk = Desk::new(1);
        let other = desk.clone();
        drop(desk.register(1, TenantId::NONE));
        let claim = |desk: &Desk, tenant| {
            let held = desk.rig.pool.lookup(hash(1)).expect("nobody takes it");
            desk.owners.claim(held.id(), tenant);
        };
        let thread = spawn(move || claim(&other, TWO));
        claim(&desk, ONE);
        thread.join().expect("no panic");
        desk.at_rest();
        assert_ne!(desk.owners.owner(BLOCK), TenantId::NONE);
    });
}

/// I1, I2: a holder of a block withdraws it and takes it with its credit, if the other holder has
/// released it. If not, the last of the two ends it, and finds the tag unchanged.
#[test]
fn block_taken_back_during_a_release_keeps_its_tag() {
    model(|| {
        let desk = Desk::new(1);
        let pool = &desk.rig.pool;
        let held = desk.register(1, ONE).expect("one for one").into_ref();
        let again = pool.hold_again(held).expect("it is held");
        let other = desk.clone();
        let thread = spawn(move || assert_eq!(other.rig.pool.release_refs([again]), 0));
        assert!(pool.withdraw_held(held));
        desk.owners.note(BLOCK, TenantId::NONE);
        match pool.take_withdrawn(held) {
            Some(_taken) => {
                assert_eq!(desk.owners.used(ONE), 1, "it goes with the block");
                desk.owners.give(ONE, 1);
            }
            None => {
                desk.owners.note(BLOCK, ONE);
                assert_eq!(pool.release_refs([held]), 0);
            }
        }
        thread.join().expect("no panic");
        assert_eq!(desk.owners.used(ONE), 0);
    });
}

/// I4: a slot of the first tenant is handed over to the second, with the second's credit, while all lost
/// slots are given up.
#[test]
fn slot_handed_over_during_give_up_keeps_credits_exact() {
    model(|| {
        let owners = Owners::new(2, 4, [].into_iter(), 1.0);
        let other = owners.clone();
        assert!(owners.take(ONE, 1) && owners.take(TWO, 1));
        owners.hand_over(BLOCK, ONE);
        let thread = spawn(move || other.give_up(|_| true));
        owners.hand_over(BLOCK, TWO);
        thread.join().expect("no panic");
        assert_eq!(owners.used(ONE), 0, "given back once");
        assert_eq!(owners.used(TWO), usize::from(owners.counted(BLOCK) == TWO));
        assert_eq!(owners.owner(BLOCK), TWO);
    });
}

/// I4: an unowned slot is claimed by one tenant while it is handed over to another.
#[test]
fn slot_handed_over_during_a_claim_goes_to_the_receiver() {
    model(|| {
        let owners = Owners::new(2, 4, [].into_iter(), 1.0);
        let other = owners.clone();
        assert!(owners.take(TWO, 1));
        let thread = spawn(move || other.claim(BLOCK, ONE));
        owners.hand_over(BLOCK, TWO);
        thread.join().expect("no panic");
        assert_eq!(owners.owner(BLOCK), TWO);
        assert_eq!((owners.used(ONE), owners.used(TWO)), (0, 1));
    });
}

/// I5: a caller that has looked for a tenant's victims and found none finds another state after
/// a release, unless the look saw it. An evictor of others may have moved the list's cursor
/// past the block's coming place.
#[test]
fn release_unseen_by_a_search_changes_the_state() {
    model(|| {
        let desk = Desk::new(3);
        let pool = &desk.rig.pool;
        let held = desk.register(1, ONE).expect("room").into_ref();
        let theirs = desk.register(2, TWO).expect("room");
        // Its place is the first of two in a word of the list.
        drop(desk.register(3, TWO));
        assert_eq!(pool.evict(1, &mut Vec::with_capacity(1)), 1);
        let other = desk.clone();
        let thread = spawn(move || {
            assert_eq!(other.rig.pool.release_refs([held]), 0);
            other.owners.stir(held.id);
        });
        drop(theirs);
        let mut victims = Vec::with_capacity(1);
        pool.evict(1, &mut victims);
        let taken = victims.iter().any(|victim| victim.id() == held.id);
        let state = desk.owners.state_of(ONE, false);
        let mut next = Vec::with_capacity(2);
        pool.next_victims(2, &mut next);
        let seen = taken || next.iter().any(|(victim, _)| *victim == held);
        thread.join().expect("no panic");
        assert!(seen || desk.owners.state_of(ONE, false) != state, "nobody would look again");
    });
}

/// I5: the same for a parent that an evictor has deferred, and that is a victim again since its child is
/// gone. The cursor is past its old place, into which it is requeued.
#[test]
fn parent_unseen_by_a_search_changes_the_state() {
    model(|| {
        let desk = Desk::new(3);
        let pool = &desk.rig.pool;
        let parent = desk.register(1, ONE).expect("room");
        let mut blocks = Vec::with_capacity(1);
        pool.allocate(1, &mut blocks).expect("room");
        let child = blocks.pop().expect("one").complete(hash(2)).expect("a new block is Reset");
        let child = pool.register(child, Some(&parent)).into_block().into_ref();
        let parent = parent.into_ref();
        assert_eq!(pool.release_refs([parent]), 0);
        for number in 3..6 {
            drop(desk.register(number, TWO));
            assert_eq!(pool.evict(1, &mut Vec::with_capacity(1)), 1, "the parent waits for its child");
        }
        let other = desk.clone();
        let thread = spawn(move || {
            assert!(other.rig.pool.withdraw_held(child));
            assert_eq!(other.rig.pool.release_refs([child]), 0);
        });
        let state = desk.owners.state_of(ONE, true);
        let mut victims = Vec::with_capacity(1);
        pool.next_victims(1, &mut victims);
        thread.join().expect("no panic");
        assert!(!victims.is_empty() || desk.owners.state_of(ONE, true) != state, "nobody would look again");
    });
}

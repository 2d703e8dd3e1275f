//! Tenants' names and the numbers that stand for them, in this manager and on the disk.
//!
//! ```text
//!   name "acme" ──SHA-256──► owner id, 64 bits          the same in each process: in the records of volumes
//!                               │ in order of arrival
//!                               ▼
//!                            number, 1 to 4095          of this manager, for tags, quotas and purges;
//!                                                       at most quota.tenants
//! ```
//!
//! A restart finds owner ids before it knows their names. They get numbers all the same; later the name
//! finds its number by its id, with all that counts for it. Old disks must not use up the numbers of new
//! tenants: at most half of the numbers go to ids that are found. The owners of the newest blocks get
//! theirs first, of each group in turn, because ages of blocks of several groups cannot be compared.
//! Blocks of the other owners are unowned, and counted.
//!
//! The hash is cryptographic, since tenants may choose their names: no choice may give another
//! tenant's id.
//!
//! When all numbers are given out, the unused ones come back. A number is unused if nothing has it: no
//! handle of the manager's or of a match that was found for the tenant, no credit in any tier, no tag on
//! a disk, no transfer, place in a queue, hint or purge, and no block that a failed device keeps
//! (`unused.rs`). Tenants that the settings name keep their numbers: their limits are by number.
//!
//! Invariants
//! - I1: at each time an id has one number, and a number one id. Exception: of names in the settings that
//!   share an id, the first one's number is the id's.
//! - I2: a number means the same tenant as long as anything has it. A number without a handle gets one
//!   only under this lock. So a number that is found unused under this lock and the manager's stays
//!   unused until it is given out again.
//!
//! # Orderings
//! Relaxed: an id is written before its number is given out under the lock, from which each user of the
//! number has it.

use crate::engine::inherited::INHERITED;
use kvstrata_core::{BlockId, TenantId};
use kvstrata_ffi::disk::OwnerId;
use ring::digest::{Context, SHA256};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Why a tenant is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// The name is empty.
    #[error("the tenant name is empty; for calls without a tenant, use the manager itself")]
    Empty,
    /// No number is left.
    #[error(
        "tenant {name:?}: all quota.tenants = {most} are in use; purge one and drop its handles, or raise quota.tenants"
    )]
    TooMany {
        /// The name that was asked for.
        name: String,
        /// The setting `quota.tenants`.
        most: usize,
    },
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
}

/// Hashed before the name, so that these bytes give this id for no other purpose.
const PURPOSE: &[u8] = b"kvstrata owner 1: ";

/// Returns the id of a tenant's blocks on disks; never the id of unowned blocks.
fn owner_id(name: &str) -> OwnerId {
    let mut hash = Context::new(&SHA256);
    hash.update(PURPOSE);
    hash.update(name.as_bytes());
    let first = hash.finish().as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    OwnerId(first.max(1))
}

/// A tenant's number, which no other name gets while this handle or a clone of it lives. Without a tenant
/// there is no number to keep.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantHandle(Option<Arc<TenantId>>);

impl TenantHandle {
    pub(crate) fn id(&self) -> TenantId {
        self.0.as_deref().copied().unwrap_or(TenantId::NONE)
    }
}

/// Names and numbers.
#[derive(Debug)]
pub(crate) struct Names {
    known: Mutex<Known>,
    /// By number.
    ids: Box<[AtomicU64]>,
    /// Blocks that were found and have no number left for their owners.
    beyond: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    by_name: HashMap<Arc<str>, TenantId>,
    by_id: HashMap<OwnerId, TenantId>,
    /// Handles by number, up to the greatest number that was given out.
    handles: Vec<Weak<TenantId>>,
    /// Number of tenants that the settings name.
    named: usize,
    /// Numbers that have come back.
    free: Vec<TenantId>,
}

impl Known {
    fn handle(&mut self, number: TenantId) -> TenantHandle {
        let handles = &mut self.handles[usize::from(number.0) - 1];
        let handle = handles.upgrade().unwrap_or_else(|| Arc::new(number));
        *handles = Arc::downgrade(&handle);
        TenantHandle(Some(handle))
    }

    /// Forgets the tenants that have no handle, and for which `unused` finds nothing else either.
    fn take_back(&mut self, unused: impl FnOnce(Vec<TenantId>) -> Vec<TenantId>) {
        let handles = (1..).zip(&self.handles).skip(self.named);
        let without = handles.filter(|(_, handles)| handles.strong_count() == 0);
        // Until this lock is released, they get no handle.
        self.free = unused(without.map(|(number, _)| TenantId(number)).collect());
        let gone: HashSet<TenantId> = self.free.iter().copied().collect();
        self.by_name.retain(|_, number| !gone.contains(number));
        self.by_id.retain(|_, number| !gone.contains(number));
    }
}

impl Names {
    /// Makes room for `most` tenants at once. Those that the settings name get the first numbers,
    /// in order.
    pub(crate) fn new<'n>(most: usize, named: impl Iterator<Item = &'n str>) -> Names {
        let ids = (0..=most).map(|_| AtomicU64::new(0)).collect();
        let names = Names { known: Mutex::default(), ids, beyond: AtomicUsize::new(0) };
        let mut known = names.known.lock().unwrap_or_else(PoisonError::into_inner);
        for name in named {
            // Each has its own number, even if ids are equal: limits are by number.
            let Some(number) = names.number(&mut known, owner_id(name)) else { break };
            known.by_name.insert(Arc::from(name), number);
            known.named += 1;
        }
        drop(known);
        names
    }

    /// Maximum number of tenants at once.
    pub(crate) fn most(&self) -> usize {
        self.ids.len() - 1
    }

    /// Takes a number that no tenant has.
    fn number(&self, known: &mut Known, id: OwnerId) -> Option<TenantId> {
        let number = known.free.pop().or_else(|| {
            let next = known.handles.len() + 1;
            // None once all numbers are given out.
            (next < self.ids.len()).then(|| known.handles.push(Weak::new()))?;
            Some(TenantId(next as u16))
        })?;
        self.ids[usize::from(number.0)].store(id.0, Relaxed);
        known.by_id.entry(id).or_insert(number);
        Some(number)
    }

    /// Returns the number of a name, which is known from now on. If all numbers are given out, `unused`
    /// is asked which tenants, of those without a handle, have nothing left.
    pub(crate) fn intern(
        &self,
        name: &str,
        unused: impl FnOnce(Vec<TenantId>) -> Vec<TenantId>,
    ) -> Result<(TenantHandle, Arc<str>), TenantError> {
        if name.is_empty() {
            return Err(TenantError::Empty);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, number)) = known.by_name.get_key_value(name) {
            let (name, number) = (Arc::clone(name), *number);
            return Ok((known.handle(number), name));
        }
        let id = owner_id(name);
        let number = known.by_id.get(&id).copied().or_else(|| {
            if known.free.is_empty() && known.handles.len() == self.most() {
                known.take_back(unused);
            }
            self.number(&mut known, id)
        });
        let too_many = || TenantError::TooMany { name: name.to_owned(), most: self.most() };
        let (number, name) = (number.ok_or_else(too_many)?, Arc::<str>::from(name));
        known.by_name.insert(Arc::clone(&name), number);
        Ok((known.handle(number), name))
    }

    /// Gives the owners of blocks that were found on disks, each disk's oldest first. `tell` gets the
    /// place of the disk in `tiers`, the block, and its owner.
    pub(crate) fn recovered(
        &self,
        tiers: &[Vec<(BlockId, OwnerId)>],
        mut tell: impl FnMut(usize, BlockId, TenantId),
    ) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest_first: Vec<_> = tiers.iter().map(|blocks| blocks.iter().rev().copied()).collect();
        loop {
            let mut more = false;
            for (place, blocks) in newest_first.iter_mut().enumerate() {
                let Some((block, id)) = blocks.next() else { continue };
                more = true;
                let left = known.handles.len() < self.ids.len() / 2;
                let number = known.by_id.get(&id).copied();
                let number = number.or_else(|| left.then(|| self.number(&mut known, id)).flatten());
                match number {
                    Some(number) => tell(place, block, number),
                    None => {
                        self.beyond.fetch_add(1, Relaxed);
                    }
                }
            }
            if !more {
                return;
            }
        }
    }

    /// The owner id of a tenant's blocks on the disk.
    pub(crate) fn id(&self, tenant: TenantId) -> OwnerId {
        self.ids.get(usize::from(tenant.0)).map_or(OwnerId::NONE, |id| OwnerId(id.load(Relaxed)))
    }

    /// The known names, sorted, with their numbers.
    pub(crate) fn known(&self) -> Vec<(Arc<str>, TenantId)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            known.by_name.iter().map(|(name, number)| (Arc::clone(name), *number)).collect();
        drop(known);
        all.sort();
        all
    }

    /// Number of found blocks that are unowned, since no number is left for their owners.
    pub(crate) fn beyond(&self) -> usize {
        self.beyond.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 4095;

    /// Finds none of the tenants unused.
    fn keep(_: Vec<TenantId>) -> Vec<TenantId> {
        Vec::new()
    }

    #[test]
    fn number_without_users_comes_back() {
        let names = Names::new(3, ["x"].into_iter());
        let all = |tenants: Vec<TenantId>| tenants;
        let (a, _) = names.intern("a", all).expect("room");
        let (b, _) = names.intern("b", all).expect("room");
        let again = b.clone();
        drop(b);
        let error = names.intern("c", all).expect_err("each has a handle");
        assert_eq!(error, TenantError::TooMany { name: "c".to_owned(), most: 3 });
        drop(again);
        assert!(names.intern("c", keep).is_err(), "blocks of b's are left");
        let seen = |tenants: Vec<TenantId>| {
            assert_eq!(tenants, [TenantId(3)], "neither the settings' nor who has a handle");
            tenants
        };
        let (c, _) = names.intern("c", seen).expect("b's number");
        assert_eq!((c.id(), names.id(c.id())), (TenantId(3), owner_id("c")));
        assert!(names.intern("b", all).is_err(), "forgotten, and there is no number");
        assert_eq!(
            names.known().into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(),
            ["a", "c", "x"]
        );
        drop((a, c));
        // A known name is the same tenant, with or without a handle.
        assert_eq!(names.intern("c", keep).map(|(handle, _)| handle.id()), Ok(TenantId(3)));
    }

    /// Volumes have these ids: they must never change. Computed with Python's `hashlib`.
    #[test]
    fn owner_id_never_changes() {
        assert_eq!(owner_id("acme"), OwnerId(0x7dd7_d457_aee1_5470));
        assert_eq!(owner_id("größer"), OwnerId(0x929a_83e9_c37c_3be8));
    }

    #[test]
    fn name_gets_the_number_of_its_recovered_id() {
        let names = Names::new(MOST, ["x", "y"].into_iter());
        let number = |name: &str| names.intern(name, keep).map(|(handle, _)| handle.id().0);
        let found = ["y", "b", "a", "b"].map(|name| (BlockId(7), owner_id(name)));
        let mut numbers = Vec::new();
        names.recovered(&[found.to_vec()], |_, block, number| numbers.push((block.0, number.0)));
        assert_eq!(numbers, [3, 4, 3, 2].map(|number| (7, number)));
        assert_eq!((number("a"), number("c"), number("b"), number("x")), (Ok(4), Ok(5), Ok(3), Ok(1)));
        assert_eq!(
            ["x", "y", "b", "a", "c"].map(owner_id).to_vec(),
            [1, 2, 3, 4, 5].map(|number| names.id(TenantId(number)))
        );
        assert_eq!(names.id(TenantId::NONE), OwnerId::NONE);
    }

    #[test]
    fn recovered_ids_leave_numbers_and_the_newest_get_theirs() {
        let names = Names::new(MOST, ["x"].into_iter());
        let (last, most) = (MOST as u32 + 1, MOST as u32 / 2 + 1);
        let found: Vec<_> = (2..last + 2).map(|id| (BlockId(id), OwnerId(u64::from(id)))).collect();
        let mut told = Vec::new();
        let all = std::slice::from_ref(&found);
        names.recovered(all, |_, block, number| told.push((block.0, u32::from(number.0))));
        // One id has a number already, by its name.
        let newest = (2..=most).map(|number| (last + 3 - number, number));
        assert_eq!(told, newest.collect::<Vec<_>>());
        assert_eq!(names.beyond(), found.len() - told.len());
        assert_eq!(names.intern("new", keep).map(|(handle, _)| u32::from(handle.id().0)), Ok(most + 1));
        assert_eq!(names.intern("x", keep).map(|(handle, _)| handle.id().0), Ok(1));
    }
    /// Groups take turns: the newest owner of each group gets a number, however many another has.
    #[test]
    fn newest_owners_of_each_group_have_numbers() {
        let names = Names::new(MOST, std::iter::empty());
        let most = MOST / 2 + 1;
        let of = |group: u64, blocks: usize| {
            (0..blocks as u64).map(|id| (BlockId(id as u32), OwnerId((group << 32) | (id + 1)))).collect()
        };
        let found: [Vec<_>; 3] = [of(1, 2 * most), of(2, 3), of(3, 2 * most)];
        let mut told = [0; 3];
        let mut last = [u32::MAX; 3];
        names.recovered(&found, |place, block, _| {
            assert!(block.0 < last[place], "newest first");
            (told[place], last[place]) = (told[place] + 1, block.0);
        });
        let (large, others) = ((most - 3) / 2, 3);
        assert_eq!(told, [most - others - large, others, large]);
        assert_eq!(names.beyond(), 4 * most + 3 - most);
    }
}

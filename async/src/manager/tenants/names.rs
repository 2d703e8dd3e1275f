//! Who has which number: names, and the numbers that they have in this manager and on the disk.
//!
//! ```text
//!   name "acme" ──SHA-256──► owner id, 64 bits          the same in each process: in the records of volumes
//!                               │ in order of arrival
//!                               ▼
//!                            number, 1 to 4095          of this manager: tags, quotas, purges
//! ```
//!
//! A restart finds owner ids before anybody asks for their names. They get numbers all the same, and the name finds its number by its id, with all
//! that counts for it. But old disks never use up the numbers of those who come: at most half of them go to what is found, the newest blocks'
//! owners first, of each group in turn: the ages of several groups' blocks cannot be compared. The blocks of the others are nobody's, and counted.
//!
//! A cryptographic hash, since names may be chosen by those whom they name: another tenant's id is not to be had by choosing.
//!
//! Invariants
//! - I1: an id has one number, and a number one id, for the life of the manager; but of names in the settings that have one id the first
//!   has it.
//!
//! # Orderings
//! Relaxed: an id is written before its number is given out, by the lock; whoever has the number has it from there.

use super::{MAX_TENANTS, TenantError, TenantId};
use kvstrata_core::BlockId;
use kvstrata_ffi::disk::OwnerId;
use ring::digest::{Context, SHA256};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What is hashed before the name, so that the id is that of nothing else with these bytes.
const PURPOSE: &[u8] = b"kvstrata owner 1: ";

/// The id of a tenant's blocks on disks; never nobody's.
fn owner_id(name: &str) -> OwnerId {
    let mut hash = Context::new(&SHA256);
    hash.update(PURPOSE);
    hash.update(name.as_bytes());
    let first = hash.finish().as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    OwnerId(first.max(1))
}

/// Names and numbers.
#[derive(Debug)]
pub(in crate::manager) struct Names {
    known: Mutex<Known>,
    /// By number.
    ids: Box<[AtomicU64]>,
    /// Blocks that were found, and that no number is left for.
    beyond: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    by_name: HashMap<Arc<str>, TenantId>,
    by_id: HashMap<OwnerId, TenantId>,
    /// The greatest number.
    last: u16,
}

impl Names {
    /// Those that the settings name, in their order.
    pub(super) fn new<'n>(named: impl Iterator<Item = &'n str>) -> Names {
        let ids = (0..MAX_TENANTS).map(|_| AtomicU64::new(0)).collect();
        let names = Names { known: Mutex::default(), ids, beyond: AtomicUsize::new(0) };
        let mut known = names.known.lock().unwrap_or_else(PoisonError::into_inner);
        for name in named {
            // Each has its own, whatever its id: limits are by number.
            let Some(number) = names.number(&mut known, owner_id(name)) else { break };
            known.by_name.insert(Arc::from(name), number);
        }
        drop(known);
        names
    }

    /// The next number.
    fn number(&self, known: &mut Known, id: OwnerId) -> Option<TenantId> {
        let next = usize::from(known.last) + 1;
        // None behind the last.
        self.ids.get(next)?.store(id.0, Relaxed);
        known.last = next as u16;
        let number = TenantId(known.last);
        known.by_id.entry(id).or_insert(number);
        Some(number)
    }

    /// The number of a name, which is known from now on.
    pub(super) fn intern(&self, name: &str) -> Result<(TenantId, Arc<str>), TenantError> {
        if name.is_empty() {
            return Err(TenantError::Empty);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, number)) = known.by_name.get_key_value(name) {
            return Ok((*number, Arc::clone(name)));
        }
        let id = owner_id(name);
        let number = known.by_id.get(&id).copied().or_else(|| self.number(&mut known, id));
        let number = number.ok_or_else(|| TenantError::TooMany { name: name.to_owned() })?;
        let name = Arc::<str>::from(name);
        known.by_name.insert(Arc::clone(&name), number);
        Ok((number, name))
    }

    /// Tells whose the blocks are that were found on disks, each one's oldest first: on which disk, and where.
    pub(in crate::manager) fn recovered(
        &self,
        disks: &[Vec<(BlockId, OwnerId)>],
        mut tell: impl FnMut(usize, BlockId, TenantId),
    ) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest_first: Vec<_> = disks.iter().map(|blocks| blocks.iter().rev().copied()).collect();
        loop {
            let mut more = false;
            for (disk, blocks) in newest_first.iter_mut().enumerate() {
                let Some((block, id)) = blocks.next() else { continue };
                more = true;
                let left = usize::from(known.last) < MAX_TENANTS / 2;
                let number = known.by_id.get(&id).copied();
                let number = number.or_else(|| left.then(|| self.number(&mut known, id)).flatten());
                match number {
                    Some(number) => tell(disk, block, number),
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

    /// What the disk is told of a tenant's block.
    pub(in crate::manager) fn id(&self, tenant: TenantId) -> OwnerId {
        self.ids.get(usize::from(tenant.0)).map_or(OwnerId::NOBODY, |id| OwnerId(id.load(Relaxed)))
    }

    /// Names that are known here, in their order, and their numbers.
    pub(in crate::manager) fn known(&self) -> Vec<(Arc<str>, TenantId)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            known.by_name.iter().map(|(name, number)| (Arc::clone(name), *number)).collect();
        drop(known);
        all.sort();
        all
    }

    /// Blocks that were found, and are nobody's because no number is left for their owners.
    pub(in crate::manager) fn beyond(&self) -> usize {
        self.beyond.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What volumes have must mean the same for ever. Of Python's `hashlib`.
    #[test]
    fn an_owner_id_is_what_it_was() {
        assert_eq!(owner_id("acme"), OwnerId(0x7dd7_d457_aee1_5470));
        assert_eq!(owner_id("größer"), OwnerId(0x929a_83e9_c37c_3be8));
    }

    #[test]
    fn a_name_finds_the_number_that_its_id_was_found_under() {
        let names = Names::new(["x", "y"].into_iter());
        let number = |name: &str| names.intern(name).map(|(number, _)| number.0);
        let found = ["y", "b", "a", "b"].map(|name| (BlockId(7), owner_id(name)));
        let mut numbers = Vec::new();
        names.recovered(&[found.to_vec()], |_, block, number| numbers.push((block.0, number.0)));
        assert_eq!(numbers, [3, 4, 3, 2].map(|number| (7, number)));
        assert_eq!((number("a"), number("c"), number("b"), number("x")), (Ok(4), Ok(5), Ok(3), Ok(1)));
        assert_eq!(
            ["x", "y", "b", "a", "c"].map(owner_id).to_vec(),
            [1, 2, 3, 4, 5].map(|number| names.id(TenantId(number)))
        );
        assert_eq!(names.id(TenantId::NOBODY), OwnerId::NOBODY);
    }

    #[test]
    fn what_is_found_leaves_numbers_for_who_comes_and_goes_to_the_newest() {
        let names = Names::new(["x"].into_iter());
        let (last, most) = (MAX_TENANTS as u32, MAX_TENANTS as u32 / 2);
        let found: Vec<_> = (2..last + 2).map(|id| (BlockId(id), OwnerId(u64::from(id)))).collect();
        let mut told = Vec::new();
        let all = std::slice::from_ref(&found);
        names.recovered(all, |_, block, number| told.push((block.0, u32::from(number.0))));
        // One is named already.
        let newest = (2..=most).map(|number| (last + 3 - number, number));
        assert_eq!(told, newest.collect::<Vec<_>>());
        assert_eq!(names.beyond(), found.len() - told.len());
        assert_eq!(names.intern("new").map(|(number, _)| u32::from(number.0)), Ok(most + 1));
        assert_eq!(names.intern("x").map(|(number, _)| number.0), Ok(1));
    }
    /// Groups take turns: the newest owner of one has a number, whatever there is of another.
    #[test]
    fn the_newest_owners_of_each_group_have_numbers() {
        let names = Names::new(std::iter::empty());
        let most = MAX_TENANTS / 2;
        let of = |group: u64, blocks: usize| {
            (0..blocks as u64).map(|id| (BlockId(id as u32), OwnerId((group << 32) | (id + 1)))).collect()
        };
        let found: [Vec<_>; 3] = [of(1, 2 * most), of(2, 3), of(3, 2 * most)];
        let mut told = [0; 3];
        let mut last = [u32::MAX; 3];
        names.recovered(&found, |disk, block, _| {
            assert!(block.0 < last[disk], "newest first");
            (told[disk], last[disk]) = (told[disk] + 1, block.0);
        });
        let (large, others) = ((most - 3) / 2, 3);
        assert_eq!(told, [most - others - large, others, large]);
        assert_eq!(names.beyond(), 4 * most + 3 - most);
    }
}

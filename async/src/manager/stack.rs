//! A stack: the tiers of one group of layers, books and bytes.
//!
//! ```text
//!   device   pool ── parents          blocks of the device, which the mover reaches
//!   host     pool ── parents          blocks 0 … h-1 of the host memory     ┐ one arena
//!   staging  a list of free ones      blocks h … h+s-1 of it                ┘
//!   disk     a port with its own pool
//! ```
//!
//! Invariants
//! - I1: block `b` of a pool is block `b` of its memory.
//! - I2: what a pool has registered has its bytes: of the device they have arrived, of the host they are sealed too.

use super::tenants::{Owners, TenantId};
use crate::disk::{Sketch, sketch_key};
use crate::parents::Parents;
use crate::scheduler::Ages;
use crate::tier::Tier;
use crate::transfer::{DeviceMover, DiskPort, HostMemory};
use kvstrata_core::DevicePort;
use kvstrata_core::{BlockId, BlockPool, BlockRef, SequenceHash};
use kvstrata_ffi::disk::Name;
use std::ops::Range;
use std::sync::Arc;

/// A tier's books.
pub(super) struct Books {
    pub(super) pool: BlockPool,
    pub(super) ages: Ages,
    pub(super) owners: Arc<Owners>,
    parents: Parents,
    linked: bool,
}

impl Books {
    /// `linked`: whether blocks are registered with their parents, so that no policy evicts a parent before its children.
    pub(super) fn new(pool: BlockPool, owners: Arc<Owners>, linked: bool) -> Books {
        let blocks = pool.capacity();
        Books { ages: Ages::new(blocks as u32), owners, parents: Parents::new(blocks), pool, linked }
    }

    /// The name of a block that was just evicted, or is held.
    pub(super) fn name(&self, block: BlockId, hash: SequenceHash) -> Name {
        Name { hash, parent: self.parents.get(block) }
    }

    /// Notes the parent and the owner of a block that is about to be registered.
    pub(super) fn note(&self, block: BlockId, parent: Option<SequenceHash>, tenant: TenantId) {
        self.parents.set(block, parent);
        self.owners.note(block, tenant);
    }

    /// Whether parents are to be looked up at registration.
    pub(super) fn links(&self) -> bool {
        self.linked
    }

    /// Registers an owned block whose bytes are there (I2), with its tenant's credit, and gives a reference: to it, or to the one of its
    /// hash that was there, and then the block is free. None if the books say that it is not owned: a bug, which must not spread.
    pub(super) fn register(&self, block: BlockId, name: Name, tenant: TenantId) -> Option<BlockRef> {
        let registered = self.register_owned(block, name, tenant, true);
        if registered.is_none_or(|there| there.id != block) {
            self.owners.give(tenant, 1);
        }
        registered
    }

    /// As [`register`](Books::register), and the block stays whatever is there: for one that somebody reads.
    pub(super) fn register_beside(&self, block: BlockId, name: Name, tenant: TenantId) -> Option<BlockRef> {
        let registered = self.register_owned(block, name, tenant, false);
        if registered.is_none() {
            self.owners.give(tenant, 1);
        }
        registered
    }

    fn register_owned(&self, block: BlockId, name: Name, tenant: TenantId, once: bool) -> Option<BlockRef> {
        let owned = self.pool.adopt_mutable(block).ok()?;
        self.note(block, name.parent, tenant);
        let parent = name.parent.filter(|_| self.linked).and_then(|parent| self.pool.lookup(parent));
        let complete = owned.complete(name.hash).ok()?;
        let registered = match once {
            true => self.pool.register(complete, parent.as_ref()).into_block(),
            false => self.pool.register_beside(complete, parent.as_ref()),
        };
        Some(registered.into_ref())
    }

    /// Takes a tenant's registered block that nobody holds, to be filled on: its credit stays.
    pub(super) fn take_back(&self, block: BlockRef, tenant: TenantId) -> Option<BlockId> {
        if self.owners.owner(block.id) != tenant {
            return None;
        }
        // Nobody's registration ends, so that no credit does.
        self.owners.note(block.id, TenantId::NOBODY);
        let taken = self.pool.take_out(block).ok().map(|taken| taken.into_mutable().into_id());
        if taken.is_none() {
            self.owners.note(block.id, tenant);
        }
        taken
    }

    /// One reference less.
    pub(super) fn release(&self, block: BlockRef, now: u64) {
        self.ages.released(block, now);
        self.pool.release_refs([block]);
    }
}

/// What of a sequence a group needs, for a prefix to be usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// All blocks.
    All {
        /// Tokens a block.
        page: u64,
    },
    /// Those that a window reaches back to.
    Last {
        /// Tokens a block.
        page: u64,
        /// Tokens that it reaches back.
        window: u64,
    },
    /// The state that was kept at the end of the prefix.
    State {
        /// Tokens from one that is kept to the next.
        page: u64,
    },
}

/// The tiers of a group.
pub(super) struct Stack {
    pub(super) name: String,
    pub(super) device: Books,
    pub(super) port: Option<Arc<dyn DevicePort>>,
    pub(super) mover: Arc<dyn DeviceMover>,
    pub(super) host: Option<Books>,
    /// Of the host tier and of what is staged; none if there is neither a host tier nor a disk.
    pub(super) memory: Option<Arc<HostMemory>>,
    pub(super) disk: Option<Arc<dyn DiskPort>>,
    pub(super) needs: Needs,
    /// How often blocks have been used of late; none where nobody asks.
    pub(super) heat: Option<Sketch>,
    /// By slot, of what this process has written there, or brought up from there.
    pub(super) disk_owners: Arc<Owners>,
    pub(super) block_bytes: u64,
    pub(super) layers: u32,
}

impl Stack {
    /// The pool of a tier.
    pub(super) fn pool(&self, tier: Tier) -> Option<&BlockPool> {
        match tier {
            Tier::Device => Some(&self.device.pool),
            Tier::Host => self.host.as_ref().map(|host| &host.pool),
            Tier::Disk => self.disk.as_ref().map(|disk| disk.pool()),
        }
    }

    /// Takes note of uses.
    pub(super) fn used(&self, hashes: &[SequenceHash]) {
        if let Some(disk) = &self.disk {
            hashes.iter().for_each(|hash| disk.used(*hash));
        }
        if let Some(heat) = &self.heat {
            hashes.iter().for_each(|hash| heat.add(sketch_key(*hash)));
        }
    }

    /// Whether a block has been used so often of late.
    pub(super) fn is_hot(&self, hash: SequenceHash, from: Option<u64>) -> bool {
        let count = || self.heat.as_ref().map_or(0, |heat| heat.count(sketch_key(hash)));
        from.is_some_and(|from| count() >= from)
    }

    /// Whose blocks a tier has.
    pub(super) fn owners(&self, tier: Tier) -> Option<&Owners> {
        match tier {
            Tier::Device => Some(&self.device.owners),
            Tier::Host => self.host.as_ref().map(|host| &*host.owners),
            Tier::Disk => self.disk.as_ref().map(|_| &*self.disk_owners),
        }
    }

    /// Bytes of some layers of a block.
    pub(super) fn bytes_of(&self, layers: &Range<u32>) -> u64 {
        match &self.memory {
            Some(memory) if layers.len() < self.layers as usize => memory.bytes_of(layers) as u64,
            _ => self.block_bytes,
        }
    }
}

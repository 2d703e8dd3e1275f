//! The parts of a store.

use crate::calls::store::Store;
use crate::copier::Copier;
use crate::engine::fixed::Fixed;
pub use crate::engine::fixed::Rules;
use crate::engine::inner::Inner;
use crate::host_blocks::HostBlocks;
use crate::size_class::{SizeClass, Spared};
use crate::state::{Lane, State};
use kvstrata_core::{BlockId, BlockPool, ConfigError, PoolConfig};
use kvstrata_ffi::arena::HostArena;
use kvstrata_tiers::Runtime;
use kvstrata_tiers::transfer::{Breaker, TierPort};
use std::sync::Arc;

/// The parts of a size class.
pub struct SizeClassParts {
    /// Bytes of its blocks: the longest entry that it takes.
    pub block_bytes: usize,
    /// The pool of the host tier; `None`: there is no host tier.
    pub host: Option<PoolConfig>,
    /// Host memory: the blocks of the host tier, then staging blocks. `None`: there is neither.
    pub memory: Option<Arc<HostArena>>,
    /// The tier below host memory. It stores entries of any length ([`Extras::sizes`]).
    ///
    /// [`Extras::sizes`]: kvstrata_tiers::transfer::Extras::sizes
    pub below: Option<Arc<dyn TierPort>>,
}

/// The parts of a store.
pub struct StoreParts {
    /// The size classes, each of another size.
    pub classes: Vec<SizeClassParts>,
    /// Copies in host memory.
    pub copier: Arc<dyn Copier>,
    /// The clock, the timer and the threads.
    pub runtime: Arc<dyn Runtime>,
    /// Limits.
    pub rules: Rules,
}

/// Why parts make no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// There is no size class.
    #[error("size classes: none; give at least one")]
    NoClass,
    /// Two classes have the same size.
    #[error("size classes: two of {bytes} bytes; give each another size")]
    SameSize {
        /// The size.
        bytes: usize,
    },
    /// A class has nowhere to put blocks.
    #[error("size class of {bytes} bytes: it has neither a host tier nor a tier below; give it one")]
    NoTier {
        /// The size.
        bytes: usize,
    },
    /// A class has a tier below, and no staging for memory that is not aligned.
    #[error(
        "size class of {bytes} bytes: it has no host memory; give it staging blocks, for memory that is not page-aligned"
    )]
    NoStaging {
        /// The size.
        bytes: usize,
    },
    /// The memory of a class has other blocks than its pool and size say.
    #[error(
        "size class of {bytes} bytes: its memory has {blocks} blocks of {block_bytes} bytes, its host tier {host} \
         blocks; give it at least as many blocks, of its size"
    )]
    Memory {
        /// The size.
        bytes: usize,
        /// Blocks of the memory.
        blocks: usize,
        /// Bytes of a block of the memory.
        block_bytes: usize,
        /// Blocks of the host tier.
        host: usize,
    },
    /// The tier below stores whole blocks only.
    #[error(
        "size class of {bytes} bytes: its tier below stores only entries of a block's length; give it another tier"
    )]
    Sizes {
        /// The size.
        bytes: usize,
    },
    /// A pool cannot be made.
    #[error(transparent)]
    Pool(#[from] ConfigError),
}

impl Store {
    /// Makes a store of parts.
    ///
    /// # Errors
    /// [`PartsError`], if they do not fit together.
    pub fn of_parts(parts: StoreParts) -> Result<Store, PartsError> {
        let StoreParts { mut classes, copier, runtime, rules } = parts;
        classes.sort_by_key(|class| class.block_bytes);
        if let Some(pair) = classes.windows(2).find(|pair| pair[0].block_bytes == pair[1].block_bytes) {
            return Err(PartsError::SameSize { bytes: pair[0].block_bytes });
        }
        if classes.is_empty() {
            return Err(PartsError::NoClass);
        }
        let made = classes.into_iter().map(|class| size_class(class, &rules));
        let (classes, lanes): (Vec<_>, Vec<_>) = made.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let fixed = Fixed { classes: classes.into(), rules, copier, runtime };
        Ok(Store::of(Inner::new(fixed, State::new(lanes.into()))))
    }
}

fn size_class(parts: SizeClassParts, rules: &Rules) -> Result<(SizeClass, Lane), PartsError> {
    let SizeClassParts { block_bytes: bytes, host, memory, below } = parts;
    let host_blocks = host.as_ref().map_or(0, |host| host.blocks() as usize);
    if host.is_none() && below.is_none() {
        return Err(PartsError::NoTier { bytes });
    }
    let blocks = memory.as_ref().map_or(0, |memory| memory.blocks());
    let block_bytes = memory.as_ref().map_or(bytes, |memory| memory.block_bytes());
    if blocks < host_blocks || block_bytes != bytes {
        return Err(PartsError::Memory { bytes, blocks, block_bytes, host: host_blocks });
    }
    if below.is_some() && blocks == 0 {
        return Err(PartsError::NoStaging { bytes });
    }
    if below.as_ref().is_some_and(|below| below.extras().sizes.is_none()) {
        return Err(PartsError::Sizes { bytes });
    }
    let most = below.as_ref().map_or([0; 2], |below| {
        let facts = below.facts();
        [facts.reads_at_once, facts.writes_at_once]
    });
    let lane = Lane::new(
        most,
        // The last is taken first: low numbers, since their pages are touched already.
        (host_blocks as u32..blocks as u32).rev().map(BlockId).collect(),
        Breaker::new(rules.slow_above, rules.slow_below),
    );
    let class = SizeClass {
        block_bytes: bytes,
        host: host.map(BlockPool::new).transpose()?,
        blocks: memory.map(HostBlocks::new),
        below,
        spared: Spared::default(),
    };
    Ok((class, lane))
}

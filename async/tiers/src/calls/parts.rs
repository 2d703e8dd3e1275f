//! The parts of [`Tiers`], and how they are put together.

use crate::calls::attendant::Attendant;
use crate::calls::tiers::Tiers;
use crate::engine::group_tiers::{GroupTiers, TierPool};
use crate::engine::inner::Inner;
use crate::engine::lower::LowerTier;
use crate::engine::naming::Naming;
use crate::engine::needs::Needs;
use crate::engine::rules::Rules;
use crate::engine::tenants;
use crate::engine::tenants::Tenants;
use crate::engine::tier_names::TierNames;
use crate::engine::watch::Watch;
use crate::places::Places;
use crate::runtime::Runtime;
use crate::sketch::Sketch;
use crate::state::{GroupId, GroupState, HostSlot, Staging, Traffic, WaitsBelow};
use crate::tier::{MOST_BELOW, Tier};
use crate::transfer::{DeviceMover, HostMemory, Limits, Path, Patience, TierPort};
use kvstrata_core::hash::Hasher;
use kvstrata_core::owners::Ends;
use kvstrata_core::{BlockPool, ConfigError, DevicePort, PoolConfig};
use kvstrata_ffi::shown::shown;
use std::sync::Arc;

/// A tier below host memory.
pub struct TierParts {
    /// Name in figures, messages and calls: `disk`, `memory`, `remote`, …
    pub name: String,
    /// The tier's blocks and bytes.
    pub port: Arc<dyn TierPort>,
}

impl TierParts {
    /// Returns a tier with a name.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/tests/manager/below.rs)
    #[must_use]
    pub fn new(name: impl Into<String>, port: Arc<dyn TierPort>) -> TierParts {
        TierParts { name: name.into(), port }
    }
}

/// The tiers of one group of layers.
pub struct StackParts {
    /// Name in messages.
    pub name: String,
    /// The device's blocks.
    pub device: PoolConfig,
    /// Reaches the bytes of the device's blocks, for engines without kernels that do.
    pub port: Option<Arc<dyn DevicePort>>,
    /// Moves bytes between the device's blocks and `memory`.
    pub mover: Arc<dyn DeviceMover>,
    /// Host memory: the host tier's blocks, then those for staging.
    pub memory: Option<Arc<HostMemory>>,
    /// The host tier's blocks; none: no host tier.
    pub host: Option<PoolConfig>,
    /// The tiers below host memory, in order: at most [`MOST_BELOW`].
    pub below: Vec<TierParts>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Layers of a block.
    pub layers: u32,
    /// The part of a sequence that the group needs.
    pub needs: Needs,
    /// Whether blocks of device and host are registered with their parents, for policies that would
    /// otherwise evict the parents first.
    pub linked: [bool; 2],
    /// Whether victims of device and host that were copied ahead of need leave first, even if the policy
    /// would take others by then. For [`Policy::Reuse`](kvstrata_core::Policy::Reuse), which is told of
    /// these evictions.
    pub ahead_first: [bool; 2],
}

impl StackParts {
    /// Refuses parts that contradict each other: all must agree on the layers and bytes of a block.
    ///
    /// # Errors
    /// [`PartsError::Misfit`], if two parts contradict each other.
    pub fn check(&self) -> Result<(), PartsError> {
        let StackParts { memory, block_bytes, layers, needs, .. } = self;
        let misfit = |why: String| Err(PartsError::Misfit { group: self.name.clone(), why });
        if *layers == 0 {
            return misfit("its blocks have 0 layers; give at least 1".to_owned());
        }
        if needs.page() == 0 {
            return misfit("its pages have 0 tokens; give at least 1".to_owned());
        }
        if let Some(memory) = memory {
            let (of_memory, in_memory) = (memory.layers(), memory.arena().block_bytes());
            if of_memory != *layers {
                return misfit(format!(
                    "layers per block: {layers}, in host memory: {of_memory}; make them equal"
                ));
            }
            if in_memory as u64 != *block_bytes {
                return misfit(format!(
                    "bytes per block: {block_bytes}, in host memory: {in_memory}; make them equal"
                ));
            }
        }
        let in_memory = memory.as_ref().map_or(0, |memory| memory.arena().blocks()) as u32;
        let of_host = self.host.as_ref().map_or(0, PoolConfig::blocks);
        if in_memory < of_host {
            return misfit(format!(
                "blocks of the host tier: {of_host}, of host memory: {in_memory}; enlarge host memory"
            ));
        }
        if self.below.len() > MOST_BELOW {
            return misfit(format!(
                "tiers below host memory: {}; give at most {MOST_BELOW}",
                self.below.len()
            ));
        }
        let mut names: Vec<&str> = Tier::OF_SETTINGS[..2].iter().map(|tier| tier.name()).collect();
        for part in &self.below {
            if names.contains(&part.name.as_str()) || part.name.is_empty() {
                let name = shown(&part.name);
                return misfit(format!(
                    "the tier name {name} is empty, reserved or used twice; give each tier below host memory its own name"
                ));
            }
            names.push(&part.name);
        }
        if !self.below.is_empty() && in_memory < of_host + 2 {
            return misfit(format!(
                "blocks of host memory: {in_memory}, of the host tier: {of_host}; staging for lower tiers needs 2 more"
            ));
        }
        Ok(())
    }
}

/// The function of the block hashes, and where its secret is kept.
pub struct Hashing {
    /// The function, with its secret.
    pub hasher: Hasher,
    /// Where the secret is kept, in words for people.
    pub origin: String,
    /// Whether the next process has the secret too.
    pub lasts: bool,
    /// Random seed that places hashes in tables: hashes may be an attacker's.
    pub seed: u64,
}

/// Parts of [`Tiers`].
pub struct TiersParts {
    /// One for each group of layers.
    pub stacks: Vec<StackParts>,
    /// A note on each group's device, for people.
    pub notes: Vec<Option<String>>,
    /// Seed of the names of partial blocks; random if none. For tests that repeat the same run.
    pub names: Option<u64>,
    /// The block hashes.
    pub hashing: Hashing,
    /// The settings.
    pub rules: Rules,
    /// The runtime that runs the tiers.
    pub runtime: Arc<dyn Runtime>,
}

/// Why parts do not fit together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// A pool cannot be made.
    #[error("{tier}.blocks = {blocks} in group {}: {source}", shown(group))]
    Pool {
        /// The pool's tier.
        tier: Tier,
        /// The pool's group.
        group: String,
        /// Blocks of the pool.
        blocks: u32,
        /// Why the pool refuses.
        source: ConfigError,
    },
    /// Parts that contradict each other.
    #[error("group {}: {why}", shown(group))]
    Misfit {
        /// The group.
        group: String,
        /// Why they do not fit.
        why: String,
    },
}

impl Tiers {
    /// Builds tiers from parts, with an attendant that answers their deadlines for the runtime.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/src/manager/build.rs)
    ///
    /// # Errors
    /// [`PartsError`], if the parts do not fit together.
    pub fn of_parts(parts: TiersParts) -> Result<(Tiers, Attendant), PartsError> {
        let TiersParts { stacks: parts, notes, names, hashing, rules, runtime } = parts;
        let heats = rules.hot_from.is_some();
        // The seed that places hashes in tables is secret, unless the parts have a seed of their own.
        let seed = parts.first().and_then(|group| group.device.given_seed()).unwrap_or(hashing.seed);
        let (mut groups, mut states, mut layers) = (Vec::new(), Vec::new(), 0);
        let notes = notes.into_iter().chain(std::iter::repeat(None));
        for ((number, part), note) in GroupId::all(parts.len()).zip(parts).zip(notes) {
            part.check()?;
            layers += part.layers;
            let (group, state) = group(&rules, part, heats, seed)?;
            groups.push(GroupTiers { note, number, ..group });
            states.push(state);
        }
        check_names(&groups)?;
        let traffic = Traffic::new(
            limits(&rules, &groups),
            rules.queue,
            (rules.iteration_bytes, rules.breaker.clone()),
            layers,
            states.into(),
            Places::new(seed),
        );
        let tenants = Tenants::of(&rules.quotas);
        let lower: Vec<&LowerTier> = groups.iter().flat_map(|group| &group.lower).collect();
        let recovered: Vec<Vec<_>> = lower.iter().map(|lower| lower.port.recovered()).collect();
        if !hashing.lasts && recovered.iter().any(|blocks| !blocks.is_empty()) {
            tracing::warn!(
                remedy = "set hash.key_file or hash.key_env to the secret of the earlier process",
                "a lower tier has blocks of an earlier process, but this process has a new hash secret: lookups never find \
                 those blocks"
            );
        }
        let claim = |at: usize, slot, tenant| lower[at].owners.claim(slot, tenant);
        tenants.names.recovered(&recovered, claim);
        let below = groups.iter().map(|group| group.lower.len()).max().unwrap_or(0);
        let watch = Watch::new(groups.len(), below, rules.histograms, Arc::clone(&runtime));
        let Hashing { hasher, origin, .. } = hashing;
        let naming = Naming::new(names);
        let inner =
            Inner::new(groups.into(), rules, watch, traffic, (tenants, naming), (hasher, origin), runtime);
        let attendant = Attendant(inner.weak());
        Ok((Tiers::over(inner), attendant))
    }
}

/// Checks that a tier has one name in all groups: tiers at one place share a path and its figures.
fn check_names(groups: &[GroupTiers]) -> Result<(), PartsError> {
    let names = TierNames::of(groups);
    for of in groups {
        for (number, lower) in of.lower_from(0) {
            let other = names.tier(Tier::Below(number));
            if lower.name != other {
                let (name, other) = (shown(&lower.name), shown(other));
                let why = format!(
                    "a tier below host memory is named {name}, but {other} in another group; use one name in all groups"
                );
                return Err(PartsError::Misfit { group: of.name.clone(), why });
            }
        }
    }
    Ok(())
}

fn group(
    rules: &Rules,
    parts: StackParts,
    heats: bool,
    seed: u64,
) -> Result<(GroupTiers, GroupState), PartsError> {
    let StackParts {
        name,
        device,
        port,
        mover,
        memory,
        host,
        below: lower,
        block_bytes,
        layers,
        needs,
        linked,
        ahead_first,
    } = parts;
    let pool = |tier, blocks: PoolConfig| {
        let count = blocks.blocks();
        let failed = |source| PartsError::Pool { tier, group: name.clone(), blocks: count, source };
        let owners = tenants::owners(&rules.quotas, tier, count as usize);
        let seed = blocks.given_seed().unwrap_or(seed);
        let blocks = blocks.seed(seed).events(Box::new(Ends(Arc::clone(&owners))));
        let tier_pool = |pool| TierPool::new(pool, owners, linked[tier.index()], ahead_first[tier.index()]);
        BlockPool::new(blocks).map(tier_pool).map_err(failed)
    };
    let device = pool(Tier::Device, device)?;
    let host = host.map(|host| pool(Tier::Host, host)).transpose()?;
    let in_memory = memory.as_ref().map_or(0, |memory| memory.arena().blocks()) as u32;
    let of_host = host.as_ref().map_or(0, |host| host.pool().capacity()) as u32;
    // Staging takes from the end of this list.
    let staging = (of_host..in_memory).rev();
    let lower = (0..).zip(lower).map(|(number, TierParts { name, port })| {
        let owners = tenants::owners(&rules.quotas, Tier::Below(number), port.pool().capacity());
        LowerTier { name, port, owners }
    });
    let lower: Box<[LowerTier]> = lower.collect();
    let below = host.as_ref().map_or(0, |host| host.pool().capacity())
        + lower.iter().map(|lower| lower.port.pool().capacity()).sum::<usize>();
    let heat = (heats && below > 0).then(|| Sketch::new(device.pool().capacity() + below, seed));
    let below = WaitsBelow::new(Patience::new(rules.patience));
    let state = GroupState::new(below, Staging::new(staging.map(HostSlot::new).collect()));
    let group = GroupTiers {
        number: GroupId::FIRST,
        name,
        device,
        port,
        mover,
        host,
        memory,
        staging: (in_memory - of_host) as usize,
        lower,
        needs,
        heat,
        block_bytes,
        layers,
        note: None,
    };
    Ok((group, state))
}

/// Returns the limits of each path: those of the rules, with at most as many transfers in flight as the
/// tier below takes without making a caller wait. Groups share a path's queue, so the tier that takes
/// least decides.
fn limits(rules: &Rules, groups: &[GroupTiers]) -> Vec<Limits> {
    let below = groups.iter().map(|group| group.lower.len()).max().unwrap_or(0);
    let of = |path: Path| {
        let at_once = |group: &GroupTiers| {
            let facts = group.lower(path.below()?)?.port.facts();
            Some(if path.is_up() { facts.reads_at_once } else { facts.writes_at_once })
        };
        let most = groups.iter().filter_map(at_once).min().unwrap_or(u32::MAX);
        let limits = rules.in_flight[path.kind()];
        Limits { in_flight: limits.in_flight.min(most), ..limits }
    };
    Path::all(below).map(of).collect()
}

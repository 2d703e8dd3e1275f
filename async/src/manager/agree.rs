//! Refuses parts that contradict settings, since one of the two would be ignored.
//!
//! Only a setting that was given counts; a default expresses no wish.

use super::error::{BuildError, given};
use crate::config::{Group, GroupKind, ManagerConfig, bytes_text};
use crate::tier::Tier;
use kvstrata_core::{Policy, PoolConfig};
use kvstrata_tiers::{Needs, StackParts};

/// The settings that describe a tier's pool.
const KEYS: [(Tier, [&str; 3]); 3] = [
    (Tier::Device, ["device.blocks", "device.bytes", "device.policy"]),
    (Tier::Host, ["host.blocks", "host.bytes", "host.policy"]),
    (Tier::DISK, ["disk.blocks", "disk.bytes", "disk.policy"]),
];

/// The settings that determine the length of a block.
const LENGTH: [&str; 10] = [
    "model",
    "group",
    "geometry.block_bytes",
    "geometry.layers",
    "geometry.kv_heads",
    "geometry.head_size",
    "geometry.outer_dim",
    "geometry.dtype",
    "geometry.page_size",
    "geometry.tp",
];

/// Checks that a group's tiers, made from parts, agree with the given settings. `told`: the settings
/// distinguish the group's layers.
pub(super) fn check(
    config: &ManagerConfig,
    group: &Group,
    told: bool,
    stack: &StackParts,
) -> Result<(), BuildError> {
    let refuse = |why: String| Err(BuildError::Parts { group: stack.name.clone(), why });
    for (tier, [blocks, bytes, policy]) in KEYS {
        let pool = pool_of(stack, tier);
        let (wanted, there) = (config.blocks_of(group, tier), pool.map_or(0, |(blocks, _)| blocks));
        if let Some(key) = [bytes, blocks].into_iter().find(|key| config.origin(key).is_given())
            && u64::from(wanted) != there
        {
            return refuse(format!(
                "{}: blocks of the {tier} tier: {wanted}, of the parts: {there}; make them equal, or remove the setting",
                said(config, tier, key)
            ));
        }
        let wanted = policy_of(config, tier);
        let given_policy = |(_, there): &(u64, Policy)| config.origin(policy).is_given() && *there != wanted;
        if let Some((_, there)) = pool.filter(given_policy) {
            return refuse(format!(
                "{}, but the parts' {tier} tier has {}; make them equal, or remove the setting",
                given(config, &[(policy, &wanted)]),
                there
            ));
        }
    }
    let length = LENGTH.into_iter().find(|key| config.origin(key).is_given());
    if let Some(key) = length.filter(|_| group.block_bytes() != stack.block_bytes) {
        return refuse(format!(
            "bytes per block: {1} by {key} ({0}), {2} by the parts; make them equal, or remove the setting",
            config.origin(key),
            group.block_bytes(),
            stack.block_bytes
        ));
    }
    let needed = needs(group);
    // The group's entry or model says what its layers keep; opaque blocks may keep anything.
    let differs = match told {
        true => needed != stack.needs,
        false => needed.page() != stack.needs.page(),
    };
    let says = ["group", "geometry.page_size"].into_iter().find(|key| config.origin(key).is_given());
    if let Some(key) = says.filter(|_| differs) {
        return refuse(format!(
            "needs {1} by {key} ({0}), {2} by the parts; make them equal, or remove the setting",
            config.origin(key),
            needed.words(),
            stack.needs.words()
        ));
    }
    Ok(())
}

/// Returns the blocks that a group's layers need, by its settings.
pub(super) fn needs(group: &Group) -> Needs {
    let page = u64::from(group.page_size.max(1));
    match (group.kind, group.window) {
        (GroupKind::State, _) => Needs::State { page },
        (GroupKind::Window, Some(window)) => Needs::Last { page, window: u64::from(window) },
        _ => Needs::All { page },
    }
}

/// Returns the blocks of a tier, and its policy.
fn pool_of(parts: &StackParts, tier: Tier) -> Option<(u64, Policy)> {
    let of = |pool: &PoolConfig| (u64::from(pool.blocks()), pool.given_policy());
    match tier {
        Tier::Device => Some(of(&parts.device)),
        Tier::Host => parts.host.as_ref().map(of),
        Tier::Below(_) => {
            let port = &parts.below.iter().find(|part| part.name == tier.name())?.port;
            Some((port.pool().capacity() as u64, port.pool().policy()))
        }
    }
}

fn said(config: &ManagerConfig, tier: Tier, key: &str) -> String {
    let bytes = match tier {
        Tier::Device => config.device.bytes,
        Tier::Host => config.host.bytes,
        Tier::Below(_) => config.disk.bytes,
    };
    match bytes.filter(|_| key.ends_with("bytes")) {
        Some(bytes) => given(config, &[(key, &bytes_text(bytes))]),
        None => given(config, &[(key, &config.blocks(tier))]),
    }
}

fn policy_of(config: &ManagerConfig, tier: Tier) -> Policy {
    match tier {
        Tier::Device => config.device.policy,
        Tier::Host => config.host.policy,
        Tier::Below(_) => config.disk.policy,
    }
}

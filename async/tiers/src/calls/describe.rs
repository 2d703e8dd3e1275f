//! A description of a manager's tiers, for people.

use crate::calls::tiers::Tiers;
use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::figures::{binary, count};
use crate::tier::Tier;
use kvstrata_ffi::shown::shown;
use std::fmt::Write;

impl Tiers {
    /// Returns all tiers, from the device down.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn tiers(&self) -> impl DoubleEndedIterator<Item = Tier> + Clone + use<> {
        self.inner().tiers()
    }

    /// Returns the name of a tier: `device`, `host`, or the name that its parts give to a tier below.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn tier_name(&self, tier: Tier) -> &str {
        self.inner().tier_names.tier(tier)
    }

    /// Returns the tier with a name.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<Tier> {
        self.inner().tier_names.find(name)
    }
}

/// Describes tiers, sizes, and the ways that bytes take.
pub(crate) fn describe(inner: &Inner) -> String {
    let mut text = String::new();
    for group in &inner.groups {
        // Writing to a string does not fail.
        let _ = of_group(inner, &mut text, group);
    }
    let hasher = &inner.hasher;
    let _ = writeln!(
        text,
        "block hashes: {} ({:032x}), {}",
        hasher.name(),
        hasher.fingerprint(),
        inner.hash_origin
    );
    if let beyond @ 1.. = inner.tenants.names.beyond() {
        let most = inner.tenants.names.most();
        let _ = writeln!(
            text,
            "recovered blocks without a tenant: {beyond} (never purged); half of quota.tenants = {most} is for recovered ones"
        );
    }
    text
}

fn of_group(inner: &Inner, text: &mut String, group: &GroupTiers) -> std::fmt::Result {
    let kind = group.needs.words();
    let (layers, bytes) = (group.layers, binary(group.block_bytes as f64));
    let s = if layers == 1 { "" } else { "s" };
    writeln!(text, "group {}: {kind}, {layers} layer{s}, {bytes} a block", shown(&group.name))?;
    for tier in inner.tiers() {
        let Some(pool) = group.pool(tier) else { continue };
        let (blocks, policy) = (pool.capacity(), pool.policy());
        write!(
            text,
            "  {:<6} {blocks:>9} blocks {:>10} {:>13} tokens  {policy:<6}",
            inner.tier_names.tier(tier),
            binary(blocks as f64 * group.block_bytes as f64),
            count(blocks as u64 * group.needs.page())
        )?;
        match (tier, &group.memory) {
            (Tier::Device, _) => {
                writeln!(text, "  {}", group.mover.describe())?;
                group.note.iter().try_for_each(|note| writeln!(text, "    {note}"))?;
            }
            (Tier::Host, Some(memory)) => writeln!(text, "  {}", memory.arena().backing())?,
            (Tier::Below(number), _) => {
                let description = group.lower(number).map(|lower| lower.port.facts().description);
                writeln!(text, "  {}", description.unwrap_or_default())?;
            }
            _ => writeln!(text)?,
        }
    }
    Ok(())
}

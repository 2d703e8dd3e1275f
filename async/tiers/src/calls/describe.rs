//! What a manager turned out to be, for people.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::figures::{binary, count};
use crate::tier::Tier;
use kvstrata_ffi::shown::shown;
use std::fmt::Write;

/// Tiers, sizes, and the ways that bytes take.
pub(crate) fn describe(inner: &Inner) -> String {
    let mut text = String::new();
    for group in &inner.groups {
        // Writing to a string does not fail.
        let _ = of_stack(&mut text, group);
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
            "tenants: {beyond} blocks that the disk had are nobody's, and are not purged: half of quota.tenants = {most} go to tenants that are found"
        );
    }
    text
}

fn of_stack(text: &mut String, group: &GroupTiers) -> std::fmt::Result {
    let kind = group.needs.words();
    let (layers, bytes) = (group.layers, binary(group.block_bytes as f64));
    writeln!(text, "group {}: {kind}, {layers} layers, {bytes} a block", shown(&group.name))?;
    for tier in Tier::ALL {
        let Some(pool) = group.pool(tier) else { continue };
        let (blocks, policy) = (pool.capacity(), pool.policy());
        write!(
            text,
            "  {tier:<6} {blocks:>9} blocks {:>10} {:>13} tokens  {policy:<6}",
            binary(blocks as f64 * group.block_bytes as f64),
            count(blocks as u64 * group.needs.page())
        )?;
        match (tier, &group.memory, &group.disk) {
            (Tier::Device, ..) => {
                writeln!(text, "  {}", group.mover.describe())?;
                group.note.iter().try_for_each(|note| writeln!(text, "    {note}"))?;
            }
            (Tier::Host, Some(memory), _) => writeln!(text, "  {}", memory.arena().backing())?,
            (Tier::Disk, _, Some(disk)) => writeln!(text, "  {}", disk.facts().description)?,
            _ => writeln!(text)?,
        }
    }
    Ok(())
}

//! What a manager turned out to be, for people.

use super::inner::Inner;
use super::stack::{Needs, Stack};
use crate::tier::Tier;
use std::fmt::Write;

/// Tiers, sizes, and the ways that bytes take.
pub(super) fn describe(inner: &Inner) -> String {
    let mut text = String::new();
    for stack in &inner.stacks {
        // Writing to a string does not fail.
        let _ = of_stack(&mut text, stack);
    }
    text
}

fn of_stack(text: &mut String, stack: &Stack) -> std::fmt::Result {
    let kind = match stack.needs {
        Needs::All { page } => format!("pages of {page} tokens"),
        Needs::Last { page, window } => format!("pages of {page} tokens, a window of {window}"),
        Needs::State { page } => format!("a state every {page} tokens"),
    };
    let (layers, bytes) = (stack.layers, size(stack.block_bytes));
    writeln!(text, "group {}: {kind}, {layers} layers, {bytes} a block", stack.name)?;
    for tier in Tier::ALL {
        let Some(pool) = stack.pool(tier) else { continue };
        let (blocks, policy) = (pool.capacity(), pool.policy());
        write!(
            text,
            "  {tier:<6} {blocks:>9} blocks {:>10}  {policy:<6}",
            size(blocks as u64 * stack.block_bytes)
        )?;
        match (tier, &stack.memory, &stack.disk) {
            (Tier::Device, ..) => {
                writeln!(text, "  {}", stack.mover.describe())?;
                stack.note.iter().try_for_each(|note| writeln!(text, "    {note}"))?;
            }
            (Tier::Host, Some(memory), _) => writeln!(text, "  {}", memory.arena().backing())?,
            (Tier::Disk, _, Some(disk)) => writeln!(text, "  {}", disk.describe())?,
            _ => writeln!(text)?,
        }
    }
    Ok(())
}

/// Bytes in the largest unit that leaves few digits.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = (0..units.len()).rev().find(|unit| bytes >> (10 * unit) > 0).unwrap_or(0);
    let whole = bytes as f64 / (1u64 << (10 * unit)) as f64;
    if whole.fract() == 0.0 {
        format!("{whole} {}", units[unit])
    } else {
        format!("{whole:.1} {}", units[unit])
    }
}

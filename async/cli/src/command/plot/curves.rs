//! Hits by capacity: a curve for each policy, below that of the optimum.

use super::Drawing;
use super::panel::{Axis, Line, Look, Panel};
use crate::policies::{Curve, Report};
use kvstrata::shared::figures::count;

pub(in crate::command) fn curves(report: &Report) -> Drawing {
    let line = |curve: &Curve, look: Look| Line {
        name: curve.name.to_owned(),
        stretches: vec![
            report
                .capacities
                .iter()
                .zip(&curve.hit_ratio)
                .map(|(blocks, ratio)| (f64::from(*blocks).log2(), 100.0 * ratio))
                .collect(),
        ],
        look: look.marked(),
    };
    let mut lines = vec![line(&report.optimum, Look::MEASURE)];
    lines.extend(report.policies.iter().enumerate().map(|(nth, curve)| line(curve, Look::nth(nth))));
    let ends = [report.capacities.first(), report.capacities.last()];
    let [from, to] = ends.map(|blocks| blocks.map_or(1.0, |blocks| f64::from(*blocks)));
    let most =
        report.curves().flat_map(|curve| &curve.hit_ratio).fold(0.0, |most: f64, ratio| most.max(*ratio));
    let panel = Panel {
        height: 560,
        title: "Hits by capacity",
        x: Axis::doubling("blocks of the tier, in powers of two", from, to, blocks),
        y: Axis::linear("hits, % of all blocks", 100.0 * most, 1.0, |percent| format!("{percent}")),
        lines,
    };
    let title = format!(
        "{} requests, {} blocks, {} distinct",
        count(report.requests),
        count(report.blocks),
        count(report.distinct_blocks)
    );
    Drawing { trace: report.trace.clone(), title, panels: vec![panel] }
}

/// A number of blocks in the notation of `--capacities`.
fn blocks(blocks: f64) -> String {
    let units = [(1u64 << 20, "M"), (1 << 10, "K")];
    let blocks = blocks.round() as u64;
    match units.into_iter().find(|(unit, _)| blocks >= *unit && blocks.is_multiple_of(*unit)) {
        Some((unit, letter)) => format!("{}{letter}", blocks / unit),
        None => blocks.to_string(),
    }
}

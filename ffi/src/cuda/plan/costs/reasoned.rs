//! Costs for devices without measurements: **reasoned, not measured**. They come from data sheets, and
//! from public knowledge of drivers and engines of these years; each number is meant to be replaced by
//! `kvstrata tune`.
//!
//! ```text
//!   single   latency + count × max(the host's call, the engine's piece + size / link)
//!   batch    latency + count × (a piece of many + size / link)
//!   rows     latency + max(calls × the host's call,
//!                          calls × the engine's piece + count × (a piece of many + size / link))
//!   kernel   latency + count × (a little + size / (90 % of the link))
//! ```

use super::super::route::Route;
use super::{COUNTS, Cells, CopyCosts, DirectionCosts, NARROW, SIZES};

/// The figures of a data sheet, in bytes per nanosecond as transfers see them.
struct Card {
    /// Words of the device's name.
    words: &'static [&'static str],
    name: &'static str,
    /// Rate of a PCIe link, either way.
    link: f64,
    /// Rate of the memory, reads and writes together.
    memory: f64,
}

/// PCIe 5 ×16 carries some 55 GB/s of payload. The first card that fits is taken.
const CARDS: [Card; 3] = [
    Card { words: &["H200"], name: "H200", link: 55.0, memory: 4800.0 },
    Card { words: &["H100", "PCIe"], name: "H100 PCIe", link: 55.0, memory: 2000.0 },
    Card { words: &["H100"], name: "H100", link: 55.0, memory: 3350.0 },
];

/// PCIe 4 ×16, and the memory rate of a card with such a link.
const UNKNOWN: Card = Card { words: &[], name: "an unknown device", link: 25.0, memory: 1500.0 };

/// Nanoseconds from a submission to the wake-up of the thread that waits for its end: an event, a wake-up.
const LATENCY: f64 = 10_000.0;
/// The extra time of a launch over a copy.
const LAUNCH: f64 = 3_000.0;
/// The host's time for a call, and for a call of rows.
const CALL: f64 = 1_500.0;
const ROWS_CALL: f64 = 2_000.0;
/// The engine's time per piece beside its bytes: in a call of its own, in a call for many. No public
/// source says that a row costs less.
const PIECE: f64 = 1_200.0;
const BATCH_PIECE: f64 = 400.0;
/// A kernel's time per piece beside its bytes.
const KERNEL_PIECE: f64 = 5.0;
/// The share of the engine's rate that kernels reach.
const KERNEL_SHARE: f64 = 0.9;
/// The share of the memory's rate that the engine reaches within it: each byte is read and written.
const WITHIN: f64 = 0.9 / 2.0;

/// Returns the costs for a card of this name.
pub(super) fn costs(name: &str) -> (&'static str, [DirectionCosts; 3]) {
    let has = |wanted: &&str| name.split([' ', '-', '_']).any(|word| word == *wanted);
    let card = CARDS.iter().find(|card| card.words.iter().all(has)).unwrap_or(&UNKNOWN);
    let link = || direction(card.link);
    let mut within = direction(card.memory * WITHIN);
    // There is no such route within a device.
    within.cells[Route::Rows as usize] = Cells::default();
    (card.name, [link(), link(), within])
}

fn direction(rate: f64) -> DirectionCosts {
    let bytes = |size: f64| size / rate;
    let calls = |count: f64| (count / CopyCosts::FAMILY as f64).ceil();
    DirectionCosts {
        cells: [
            cells(|size, count| count * CALL.max(PIECE + bytes(size))),
            cells(|size, count| count * (BATCH_PIECE + bytes(size))),
            cells(|size, count| {
                (calls(count) * ROWS_CALL).max(calls(count) * PIECE + count * (BATCH_PIECE + bytes(size)))
            }),
            cells(|size, count| LAUNCH + count * (KERNEL_PIECE + bytes(size) / KERNEL_SHARE)),
        ],
        ctas: None,
        // A warp's loads are still of whole sectors, and the same bytes need more loads.
        narrow: NARROW.map(|width| (16.0 / width as f64).sqrt()),
    }
}

fn cells(time: impl Fn(f64, f64) -> f64) -> Cells {
    SIZES.map(|size| COUNTS.map(|count| Some((LATENCY + time(size as f64, count as f64)).round() as u64)))
}

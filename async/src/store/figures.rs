//! The figures of a store as Prometheus text.

use super::StoreStats;
use std::fmt::Write;

/// A metric: name, type, description.
type Metric = (&'static str, &'static str, &'static str);

const STORED: Metric = ("kvstrata_store_stored_keys_total", "counter", "Keys stored.");
const STORED_BYTES: Metric = ("kvstrata_store_stored_bytes_total", "counter", "Bytes stored.");
const PRESENT: Metric =
    ("kvstrata_store_present_keys_total", "counter", "Keys of stores that were there already.");
const LOADED: Metric =
    ("kvstrata_store_loaded_keys_total", "counter", "Keys loaded, by the tier that had them.");
const LOADED_BYTES: Metric = ("kvstrata_store_loaded_bytes_total", "counter", "Bytes loaded.");
const ABSENT: Metric = ("kvstrata_store_absent_keys_total", "counter", "Keys of loads that were not there.");
const FORGOTTEN: Metric = ("kvstrata_store_forgotten_keys_total", "counter", "Keys forgotten on request.");
const MISSED: Metric = (
    "kvstrata_store_missed_keys_total",
    "counter",
    "Keys that were not stored, or were there and not loaded, by call and cause.",
);
const JOINED: Metric =
    ("kvstrata_store_joined_keys_total", "counter", "Keys that joined a transfer of the same key under way.");
const DROPPED: Metric = (
    "kvstrata_store_dropped_blocks_total",
    "counter",
    "Blocks evicted from host memory that the disk did not have. Raise disk.bytes, or loosen disk.admission.",
);
const TRANSFERS: Metric = (
    "kvstrata_store_transfers_total",
    "counter",
    "Transfers to and from the disk: straight from and to lent memory, or staged by way of host memory.",
);
const BATCHES: Metric = ("kvstrata_store_batches", "gauge", "Batches under way.");
const BLOCKS: Metric = ("kvstrata_store_blocks", "gauge", "Blocks registered, by tier and size.");
const CAPACITY: Metric = ("kvstrata_store_capacity_blocks", "gauge", "Blocks of a tier, by size.");
const WAITING: Metric = ("kvstrata_store_waiting_transfers", "gauge", "Transfers that wait, by size.");
const MOVING: Metric =
    ("kvstrata_store_moving_transfers", "gauge", "Transfers under way to and from the disk, by size.");
const SLOW: Metric = (
    "kvstrata_store_disk_slow",
    "gauge",
    "1 while the disk takes so long that lookups pass it by (transfer.slow_above).",
);

/// All metrics, for the reference.
const ALL: [Metric; 17] = [
    STORED,
    STORED_BYTES,
    PRESENT,
    LOADED,
    LOADED_BYTES,
    ABSENT,
    FORGOTTEN,
    MISSED,
    JOINED,
    DROPPED,
    TRANSFERS,
    BATCHES,
    BLOCKS,
    CAPACITY,
    WAITING,
    MOVING,
    SLOW,
];

/// Returns the reference of the store's metrics as Markdown, for `docs/metrics.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "\n## The store\n\nA store (`kvstrata::store`, [C](c-api.md), [Python](python.md)) has metrics of its \
         own, which it serves at `metrics.listen`.\n\n| metric | type | description |\n|---|---|---|\n",
    );
    for (name, kind, help) in ALL {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {help} |");
    }
    text
}

/// Returns the text of a scrape.
pub(super) fn text(stats: &StoreStats) -> String {
    let mut out = Text(String::new());
    out.one(STORED, stats.stored);
    out.one(STORED_BYTES, stats.stored_bytes);
    out.one(PRESENT, stats.present);
    out.many(
        LOADED,
        [
            ("tier=\"host\"".to_owned(), stats.loaded_from_host),
            ("tier=\"disk\"".to_owned(), stats.loaded_from_below),
        ],
    );
    out.one(LOADED_BYTES, stats.loaded_bytes);
    out.one(ABSENT, stats.absent);
    out.one(FORGOTTEN, stats.forgotten);
    let missed = [("store", &stats.store_misses), ("load", &stats.load_misses)];
    let missed = missed.into_iter().flat_map(|(call, causes)| {
        causes.iter().map(move |(cause, count)| (format!("call=\"{call}\",cause=\"{cause}\""), *count))
    });
    out.many(MISSED, missed);
    out.one(JOINED, stats.joined);
    out.one(DROPPED, stats.dropped);
    out.many(
        TRANSFERS,
        [("way=\"straight\"".to_owned(), stats.straight), ("way=\"staged\"".to_owned(), stats.staged)],
    );
    out.one(BATCHES, stats.batches);
    for (metric, index) in [(BLOCKS, 1), (CAPACITY, 0)] {
        let blocks = stats.classes.iter().flat_map(|class| {
            let of = |tier, blocks: [u64; 2]| {
                (format!("tier=\"{tier}\",bytes=\"{}\"", class.block_bytes), blocks[index])
            };
            [of("host", class.host_blocks), of("disk", class.below_blocks)]
        });
        out.many(metric, blocks);
    }
    let by_size = |value: fn(&super::SizeClassStats) -> u64| {
        stats.classes.iter().map(move |class| (format!("bytes=\"{}\"", class.block_bytes), value(class)))
    };
    out.many(WAITING, by_size(|class| class.waiting));
    out.many(MOVING, by_size(|class| class.moving));
    out.many(SLOW, by_size(|class| class.slow.into()));
    out.0
}

struct Text(String);

impl Text {
    fn head(&mut self, (name, kind, help): Metric) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, metric: Metric, value: u64) {
        self.head(metric);
        let _ = writeln!(self.0, "{} {value}", metric.0);
    }

    fn many(&mut self, metric: Metric, values: impl IntoIterator<Item = (String, u64)>) {
        self.head(metric);
        for (labels, value) in values {
            let _ = writeln!(self.0, "{}{{{labels}}} {value}", metric.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_in_the_text_once() {
        let text = text(&StoreStats::default());
        for (name, kind, _) in ALL {
            assert_eq!(text.matches(&format!("# TYPE {name} {kind}\n")).count(), 1, "{name}");
        }
        assert_eq!(text.matches("# TYPE ").count(), ALL.len());
    }
}

//! The view of a manager's metrics.

use crate::{PLAIN, SECOND, at_work, rows, screen, texts, watched};
use kvstrata::backend::transfer::Path;
use kvstrata::metrics::{Found, LatencyHistogram, Lookups, Metrics};
use kvstrata_cli::top::{COLUMNS, Look, ROWS, Watch};
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::time::Instant;

#[tokio::test]
async fn view_has_the_figures_of_the_manager() {
    let (manager, [before, after]) = at_work(None).await;
    let (watch, now) = watched(&[before.to_prometheus(), after.to_prometheus()]);
    let view = watch.view(now);
    assert_eq!((view.gone.clone(), view.restarts, view.interval_seconds), (None, 0, Some(1.0)));
    assert_eq!(view.version.as_deref(), Some(after.version));
    assert_eq!(view.uptime_seconds, Some(after.uptime.as_secs_f64()));
    assert!(after.uptime > before.uptime, "{:?}, then {:?}", before.uptime, after.uptime);
    assert_eq!(view.tiers.len(), 3);
    for ((seen, was), is) in view.tiers.iter().zip(&before.tiers).zip(&after.tiers) {
        let states = [seen.blocks, seen.in_use, seen.inactive, seen.free, seen.evicted];
        assert_eq!(states, [is.blocks, is.inflight(), is.inactive, is.free, is.evicted], "{}", seen.tier);
        assert_eq!(seen.evicted_per_second, Some((is.evicted - was.evicted) as f64), "{}", seen.tier);
        assert_eq!(seen.tier, is.tier.name());
    }
    assert!(view.tiers[0].evicted_per_second > Some(0.0), "the device had no room");
    for (seen, path) in view.paths.iter().zip(Path::OF_SETTINGS) {
        let of = |metrics: &Metrics| (metrics.stats.path(path).bytes, metrics.stats.path(path).transfers);
        let ((bytes, transfers), (bytes_now, transfers_now)) = (of(&before), of(&after));
        assert_eq!(seen.bytes_per_second, Some((bytes_now - bytes) as f64), "{path:?}");
        assert_eq!(seen.transfers_per_second, Some((transfers_now - transfers) as f64), "{path:?}");
        assert_eq!(seen.path, path.name().replace("_to_", "→"));
        let latency = |metrics: &Metrics| metrics.paths[path.index()].transfer.expect("counted");
        let (was, is) = (latency(&before), latency(&after));
        let mut buckets = is.buckets;
        buckets.iter_mut().zip(was.buckets).for_each(|(is, was)| *is -= was);
        let between = LatencyHistogram { buckets, sum: is.sum - was.sum };
        for (seen, per_mille) in [(seen.p50, 500), (seen.p99, 990)] {
            let end = seen.map(|seen| seen.seconds);
            assert_eq!(end, between.quantile(per_mille).map(|end| end.as_secs_f64()), "{path:?} {per_mille}");
        }
    }
    let up = view.paths.iter().filter(|path| path.path.ends_with("→device"));
    assert!(up.clone().any(|path| path.bytes_per_second > Some(0.0) && path.p99.is_some()), "{up:?}");
    let named = |place: Found| match place {
        Found::Tier(tier) => tier.name(),
        Found::Pending => "pending",
    };
    let [before, after] = [&before, &after].map(|metrics| metrics.groups[0].lookups.clone());
    let asked = (after.blocks - before.blocks) as f64;
    for hit in &view.hits {
        let found = |lookups: &Lookups| match Found::all(1).find(|found| named(*found) == hit.place) {
            Some(found) => lookups.found_by(found),
            None => lookups.found.iter().sum(),
        };
        assert_eq!(hit.now, Some((found(&after) - found(&before)) as f64 / asked), "{}", hit.place);
        assert_eq!(hit.overall, Some(found(&after) as f64 / after.blocks as f64), "{}", hit.place);
        assert_eq!(hit.history, [hit.now]);
    }
    let all = view.hits.last().expect("all of them");
    assert!(all.place == "all" && all.now > Some(0.0) && all.now < Some(1.0), "{all:?}");
    let tenant = view.tenant.expect("one with a quota");
    assert_eq!((tenant.tenant.as_str(), tenant.tier.as_str(), tenant.quota), ("acme", "device", 4));
    manager.shutdown().await;
}

/// A manager's text with made-up figures.
const MADE_UP: &str = "\
kvstrata_build_info{version=\"0.1.0\"} 1
kvstrata_uptime_seconds UPTIME
kvstrata_tier_blocks{tier=\"device\",group=\"all\"} 2048
kvstrata_tier_blocks{tier=\"host\",group=\"all\"} 8192
kvstrata_blocks{tier=\"device\",group=\"all\",state=\"free\"} 0
kvstrata_blocks{tier=\"device\",group=\"all\",state=\"inactive\"} 1024
kvstrata_blocks{tier=\"device\",group=\"all\",state=\"active\"} 1000
kvstrata_blocks{tier=\"device\",group=\"all\",state=\"owned\"} 24
kvstrata_blocks{tier=\"host\",group=\"all\",state=\"free\"} 4096
kvstrata_blocks{tier=\"host\",group=\"all\",state=\"inactive\"} 4095
kvstrata_blocks{tier=\"host\",group=\"all\",state=\"owned\"} 1
kvstrata_evicted_blocks_total{tier=\"device\",group=\"all\"} COUNT
kvstrata_lookup_blocks_total{group=\"all\"} COUNT
kvstrata_hit_blocks_total{group=\"all\",tier=\"device\"} HALF
kvstrata_hit_blocks_total{group=\"all\",tier=\"host\"} 0
kvstrata_dropped_blocks_total{tier=\"host\"} COUNT
kvstrata_dropped_blocks_total{tier=\"device\"} 0
kvstrata_verification_failures_total{tier=\"disk\",cause=\"payload\"} 2
kvstrata_queue_transfers{path=\"device_to_host\",class=\"urgent\"} 1
kvstrata_queue_transfers{path=\"device_to_host\",class=\"offload\"} 2
kvstrata_inflight_transfers{path=\"device_to_host\"} 4
kvstrata_transfers_total{path=\"device_to_host\"} COUNT
kvstrata_transfer_bytes_total{path=\"device_to_host\"} COUNT000
kvstrata_transfer_seconds_bucket{path=\"device_to_host\",le=\"0.0001\"} HALF
kvstrata_transfer_seconds_bucket{path=\"device_to_host\",le=\"0.00025\"} COUNT
kvstrata_transfer_seconds_bucket{path=\"device_to_host\",le=\"+Inf\"} COUNT
kvstrata_transfers_total{path=\"host_to_device\"} 0
kvstrata_waiting_requests 3
kvstrata_worker_request_active_slots 5
kvstrata_worker_request_total_slots 8
";

fn made_up(uptime: u64, count: u64) -> String {
    let text = MADE_UP.replace("UPTIME", &uptime.to_string()).replace("HALF", &(count / 2).to_string());
    text.replace("COUNT", &count.to_string())
}

const FRAME: &str = "\
kvstrata 0.1.0 at worker-3:9400                                         every 1s
up 1h 00m; serves 5 of 8 requests
waiting: 3 for blocks

TIER             blocks  █in use ▒inactive ·free   in use  evicted/s     evicted
device            2,048  ████████████▒▒▒▒▒▒▒▒▒▒▒      50%      2,000       6,000
host              8,192  █▒▒▒▒▒▒▒▒▒▒▒···········       0%          0           0

PATH                 bytes/s  transfers/s    p50 ≤    p99 ≤   queued  in flight
device→host         1.91 MiB        2,000    100µs    250µs        3          4
host→device              0 B            0        –        –        0          0

HITS         now    overall  0 to 100 % every 1s, latest on the right
device       50%        50%  ▅
host          0%         0%  ▁
all          50%        50%  ▅

TROUBLE  since the start (+ in the last interval)
wrong bytes disk payload: 2   dropped from host: 6,000 (+2,000)
";

#[test]
fn view_is_drawn_as_expected() {
    let (watch, now) = watched(&[made_up(3600, 4000), made_up(3601, 6000)]);
    let view = watch.view(now);
    assert_eq!(view.text(false, COLUMNS, ROWS), FRAME, "\n{}", view.text(false, COLUMNS, ROWS));
    let seen = rows(&screen(&view, PLAIN, COLUMNS, ROWS));
    assert_eq!(seen.iter().map(|row| row.clone() + "\n").collect::<String>().trim_end(), FRAME.trim_end());
    let ascii = view.text(true, COLUMNS, ROWS);
    assert!(ascii.is_ascii(), "{ascii}");
    assert_eq!(
        ascii.lines().map(str::len).collect::<Vec<_>>(),
        FRAME.lines().map(|line| line.chars().count()).collect::<Vec<_>>()
    );
}

#[test]
fn terminal_of_80_by_24_shows_every_section() {
    let (watch, now) = watched(texts());
    let view = watch.view(now);
    let (seen, all) = (rows(&screen(&view, PLAIN, 80, 24)), view.text(false, 80, 200));
    // The same rows as on an endless screen, except for blank rows between sections.
    let shown = |text: &mut dyn Iterator<Item = &str>| {
        text.filter(|row| !row.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown(&mut seen.iter().map(String::as_str)), shown(&mut all.lines()));
    for part in [
        "TIER",
        "PATH",
        "HITS",
        "TROUBLE",
        "device→host",
        "disk→device",
        "all ",
        "tenant nearest to its quota: acme",
    ] {
        assert!(seen.iter().any(|row| row.starts_with(part)), "{part}: {seen:#?}");
    }
    assert!(seen.iter().all(|row| row.chars().count() <= 80));
}

#[test]
fn groups_of_layers_have_a_row_each_and_leave_room() {
    let group = |number: usize, tier: &str| {
        format!("kvstrata_tier_blocks{{tier=\"{tier}\",group=\"window-{number}\"}} 65536\n")
    };
    let text = |groups: usize| {
        let more: String =
            (0..groups).map(|number| group(number, "device") + &group(number, "host")).collect();
        made_up(3600, 4000) + &more
    };
    let view = |groups| {
        let (watch, now) = watched(&[text(groups), text(groups)]);
        watch.view(now)
    };
    let few = view(1);
    let names: Vec<&str> = few.tiers.iter().map(|tier| tier.tier.as_str()).collect();
    assert_eq!(names, ["device all", "host all", "device window-0", "host window-0"]);
    let places: Vec<&str> = few.hits.iter().map(|hit| hit.place.as_str()).collect();
    assert_eq!(places, ["device", "host", "all"]);
    let row = "device window-0  65,536  ·······················       0%          0           0\n";
    assert!(few.text(false, 80, 24).contains(row), "{}", few.text(false, 80, 24));
    let many = view(20).text(false, 80, 24);
    assert!(many.lines().count() <= 24 && many.contains("\n… 3"), "{many}");
    assert!(many.contains("\nHITS") && many.contains("dropped from host: 4,000"), "{many}");
}

/// Blocks of different groups have different sizes: here one group has 500 hits of 1,000
/// blocks, the other 10 of 10.
#[test]
fn hits_of_groups_of_layers_are_not_added_up() {
    let text = |asked: u64| {
        let of = |group: &str, asked: u64, found: u64| {
            let labels = format!("{{group=\"{group}\"");
            format!(
                "kvstrata_tier_blocks{labels},tier=\"device\"}} 64\n\
                 kvstrata_lookup_blocks_total{labels}}} {asked}\n\
                 kvstrata_hit_blocks_total{labels},tier=\"device\"}} {found}\n\
                 kvstrata_hit_blocks_total{labels},tier=\"pending\"}} 0\n"
            )
        };
        of("full-attention", asked * 100, asked * 50) + &of("window", asked, asked)
    };
    let (watch, now) = watched(&[text(10), text(20)]);
    let view = watch.view(now);
    let hits: Vec<_> =
        view.hits.iter().map(|hit| (hit.group.as_str(), hit.place.as_str(), hit.now, hit.overall)).collect();
    let of = |group, place, part| (group, place, Some(part), Some(part));
    let [full, window] = ["full-attention", "window"];
    assert_eq!(
        hits,
        [of(full, "device", 0.5), of(full, "all", 0.5), of(window, "device", 1.0), of(window, "all", 1.0)]
    );
    let shown = view.text(false, COLUMNS, ROWS);
    let rows = "\
HITS              now    overall  0 to 100 % every 1s, latest on the right
full-attention    50%        50%  ▅
window           100%       100%  █
";
    assert!(shown.contains(rows), "{shown}");
    let small = view.text(false, 40, 10);
    assert!(small.contains("hits full-attention 50%") && small.contains("hits window 100%"), "{small}");
}

#[test]
fn small_terminal_shows_the_size_needed_and_hits() {
    let (watch, now) = watched(texts());
    let seen = rows(&screen(&watch.view(now), PLAIN, 40, 10));
    assert_eq!(seen[..2], ["needs 80 × 24, this is 40 × 10", "worker-3:9400"]);
    assert!(seen[2].starts_with("up ") && seen[3].starts_with("hits "), "{seen:#?}");
    for (columns, rows) in [(79, 24), (80, 23), (1, 1), (3, 40)] {
        let lines = watch.view(now).lines(PLAIN, columns, rows);
        assert!(lines[0].to_string().starts_with("needs 80 × 24") && lines.len() <= usize::from(rows));
        let _ = screen(&watch.view(now), PLAIN, columns, rows);
    }
}

#[test]
fn view_without_colours_has_the_same_text() {
    let (mut watch, now) = watched(&[made_up(3600, 4000), made_up(3601, 6000)]);
    for gone in [false, true] {
        if gone {
            watch.missed("no process listens there".to_owned());
        }
        let draw = |colour| screen(&watch.view(now), Look { colour, ..PLAIN }, 80, 24);
        let coloured = |screen: &TestBackend| {
            screen
                .buffer()
                .content()
                .iter()
                .filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
                .count()
        };
        assert!(coloured(&draw(true)) > 20 && coloured(&draw(false)) == 0);
        assert_eq!(rows(&draw(true)), rows(&draw(false)));
    }
}

#[test]
fn restarted_manager_has_no_rates_until_the_next_answer() {
    // Smaller counts; equal counts with a smaller uptime; larger counts with a smaller uptime.
    for (uptime, count) in [(1, 10), (1, 6000), (5, 900_000)] {
        let (mut watch, at) = watched(&[made_up(3600, 4000), made_up(3601, 6000)]);
        let later = at + 10 * SECOND;
        watch.take(&made_up(uptime, count), later..later).expect("a manager's");
        let view = watch.view(later);
        assert_eq!((view.restarts, view.interval_seconds), (1, None), "{uptime} {count}");
        assert_eq!(
            (view.tiers[0].evicted_per_second, view.paths[0].bytes_per_second, view.hits[0].now),
            (None, None, None)
        );
        assert_eq!((view.paths[0].p50, view.troubles[1].new), (None, None));
        assert_eq!(view.tiers[0].evicted, count);
        let text = view.text(false, 80, 24);
        assert!(text.contains("restarts while watched: 1"), "{text}");
        let later = later + SECOND;
        watch.take(&made_up(uptime + 1, count + 30), later..later).expect("a manager's");
        let view = watch.view(later);
        assert_eq!((view.restarts, view.tiers[0].evicted_per_second), (1, Some(30.0)));
    }
    // An uptime longer than the earlier one, but shorter than the time that passed.
    let (mut watch, at) = watched(&[made_up(1, 4000), made_up(2, 6000)]);
    let later = at + 60 * SECOND;
    watch.take(&made_up(30, 900_000), later..later).expect("a manager's");
    assert_eq!((watch.view(later).restarts, watch.view(later).interval_seconds), (1, None));
    // A manager that does not report its uptime: smaller counts show the restart.
    let untold = |count| made_up(0, count).replace("kvstrata_uptime_seconds 0\n", "");
    let (watch, now) = watched(&[untold(6000), untold(10)]);
    assert_eq!((watch.view(now).restarts, watch.view(now).tiers[0].evicted_per_second), (1, None));
}

/// A thousand events a second, with an answer that comes late: made at the question, or only at its arrival.
#[test]
fn late_answer_gives_the_right_rate() {
    for (made, next) in [(3602, 3605), (3605, 3606)] {
        let (mut watch, at) = watched(&[made_up(3600, 4000), made_up(3601, 5000)]);
        let count = |uptime: u64| 4000 + (uptime - 3600) * 1000;
        // Asked after a second, answered three seconds later; the next question follows at once.
        let came = at + 4 * SECOND;
        let after = (at + (next - 3601) as u32 * SECOND).max(came);
        for (uptime, asked, came) in [(made, at + SECOND, came), (next, came, after)] {
            watch.take(&made_up(uptime, count(uptime)), asked..came).expect("a manager's");
            let view = watch.view(came + 9 * SECOND);
            assert_eq!((view.restarts, view.tiers[0].evicted_per_second), (0, Some(1000.0)), "{uptime}");
        }
    }
    // An implausible uptime is bounded by the times of question and answer.
    let (mut watch, at) = watched(&[made_up(3600, 4000), made_up(3601, 5000)]);
    let later = at + 2 * SECOND;
    watch.take(&made_up(9999, 6000), later..later).expect("a manager's");
    assert_eq!(watch.view(later).tiers[0].evicted_per_second, Some(500.0));
}

#[test]
fn silent_manager_is_shown_with_the_time_and_comes_back() {
    let (mut watch, at) = watched(&[made_up(3600, 4000), made_up(3601, 6000)]);
    watch.missed("no process listens there".to_owned());
    watch.missed("no process listens there".to_owned());
    let view = watch.view(at + 75 * SECOND);
    let text = view.text(false, 80, 24);
    assert!(text.lines().nth(1) == Some("NO ANSWER for 1m 15s: no process listens there"), "{text}");
    assert_eq!(view.tiers[0].evicted, 6000, "the last figures stay");
    assert_eq!(text.lines().nth(2), Some("the figures below are the last ones received"), "{text}");
    let small = rows(&screen(&view, PLAIN, 40, 10));
    assert_eq!(small[2], "NO ANSWER for 1m 15s: no process listens", "{small:#?}");
    let at = at + 76 * SECOND;
    watch.take(&made_up(3677, 6076), at..at).expect("a manager's");
    let view = watch.view(at);
    assert_eq!((view.gone, view.restarts, view.tiers[0].evicted_per_second), (None, 0, Some(1.0)));
    assert_eq!(view.hits[0].history, [Some(0.5), None, Some(0.5)], "a gap, however often nobody answered");

    // A manager that never answered.
    let began = Instant::now();
    let mut watch = Watch::new("worker-3:9400", SECOND, began);
    assert!(watch.view(began).text(false, 80, 24).contains("waiting for the first answer"));
    watch.missed("no process listens there".to_owned());
    let text = watch.view(began + 3 * SECOND).text(false, 80, 24);
    assert!(text.contains("NO ANSWER for 3s: no process listens there"), "{text}");
}

#[test]
fn waiting_calls_are_shown_in_one_line() {
    let line = |waits: [u64; 6]| {
        let gauges = [
            "waiting_requests",
            "onboarding_requests",
            "waiting_for_queue_transfers",
            "waiting_for_host_transfers",
            "gated_transfers",
            "purges",
        ];
        let gauges = gauges.iter().zip(waits).map(|(name, count)| format!("kvstrata_{name} {count}\n"));
        let text =
            made_up(3600, 4000).replace("kvstrata_waiting_requests 3\n", "") + &gauges.collect::<String>();
        let (watch, now) = watched(&[text.clone(), text]);
        watch.view(now).text(false, COLUMNS, ROWS).lines().nth(2).expect("a row").to_owned()
    };
    assert_eq!(line([0; 6]), "waiting: none");
    assert_eq!(line([0, 0, 7, 0, 0, 1]), "waiting: 7 for queue room, 1 purging");
    assert_eq!(
        line([1, 2, 0, 3, 4, 0]),
        "waiting: 1 for blocks, 2 onboarding, 3 for host memory, 4 at gates"
    );
    let all = line([1000; 6]);
    assert!(all.chars().count() == 80 && all.ends_with('…'), "{all}");
}

#[test]
fn every_failure_is_shown_by_cause() {
    let [_, text] = texts();
    let (watch, now) = watched(&[text.clone(), text.clone()]);
    let quiet: Vec<String> = watch.view(now).troubles.into_iter().map(|trouble| trouble.what).collect();
    assert!(quiet.iter().all(|what| what.starts_with("dropped from")), "{quiet:?}");
    let wrong: String = text
        .lines()
        .map(|line| match line.strip_suffix(" 0") {
            Some(front) if !line.starts_with('#') => format!("{front} 7\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let (watch, now) = watched(&[text.clone(), wrong]);
    let view = watch.view(now);
    for what in [
        "wrong bytes host mismatch",
        "volumes lost",
        "transfers quarantined",
        "slots quarantined disk",
        "failed disk→device deadline",
        "short onboards lost",
        "short onboards quota",
        "late allocations",
        "dropped from",
        "offload refused gates",
        "refused by disk budget",
    ] {
        let found = view.troubles.iter().find(|trouble| trouble.what.starts_with(what));
        assert!(found.is_some_and(|trouble| what == "dropped from" || (trouble.count, trouble.new) == (7, Some(7))), "{what}: {:?}", view.troubles);
    }
    // These causes need no action.
    let usual = |what: &str| {
        ["cancelled", "admission"].iter().any(|cause| what.ends_with(cause))
            || what.starts_with("failed") && what.ends_with("quota")
    };
    assert!(!view.troubles.iter().any(|trouble| usual(&trouble.what)), "{:?}", view.troubles);
    let text = view.text(false, 80, 24);
    assert!(text.contains("wrong bytes host mismatch: 7 (+7)") && text.lines().count() <= 24, "{text}");
    assert!(text.lines().last().is_some_and(|row| row.contains("… ") && row.ends_with(" more")), "{text}");
    let all = view.text(false, 80, 200);
    assert!(
        view.troubles.iter().all(|trouble| all.contains(&trouble.what)) && !all.contains("more"),
        "{all}"
    );
}

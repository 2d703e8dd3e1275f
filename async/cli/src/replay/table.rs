//! The report as a table for people, in 80 columns.

use super::report::{Disk, Latency, Report};
use crate::fold;
use core::fmt;
use kvstrata::shared::figures::{binary, count, scaled};
use kvstrata_ffi::arena::Backing;
use kvstrata_ffi::shown::shown;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = &self.settings;
        writeln!(f, "trace            {}", self.trace)?;
        self.trace_warnings.iter().try_for_each(|warning| note(f, "warning          ", warning))?;
        writeln!(
            f,
            "tiers            {}",
            format_args!(
                "device {}, host {}, disk {} blocks of {}",
                count(u64::from(asked.device_blocks)),
                count(u64::from(asked.host_blocks)),
                count(u64::from(asked.disk_blocks)),
                binary(asked.block_bytes as f64)
            )
        )?;
        if let Some(backing) = self.host_backing {
            writeln!(f, "host memory      {backing}{}", slower(backing))?;
        }
        if let Some(disk) = &self.disk {
            let direct = match disk.direct {
                _ if disk.backend.contains("O_DIRECT") => "",
                true => " with O_DIRECT",
                false => ", buffered",
            };
            writeln!(f, "disk             {} by {}{direct}", shown(&disk.path), disk.backend)?;
            let blank = " ".repeat(17);
            disk.notes.iter().try_for_each(|of| note(f, &blank, &shown(of).to_string()))?;
            found_line(f, disk)?;
        }
        writeln!(
            f,
            "served           device {}, policy {}{}, seed {}, concurrency {}{}",
            asked.device,
            asked.policy,
            if asked.policy_below == asked.policy {
                String::new()
            } else {
                format!(" (below: {})", asked.policy_below)
            },
            asked.seed,
            asked.concurrency,
            if asked.speed > 0.0 { format!(", speed {}", asked.speed) } else { String::new() }
        )?;
        if self.interrupted {
            writeln!(
                f,
                "interrupted      before the end of the trace; this report covers the requests served"
            )?;
        }
        writeln!(f)?;
        self.blocks_table(f)?;
        writeln!(f)?;
        self.bytes_table(f)?;
        writeln!(f)?;
        self.latency_table(f)?;
        writeln!(f)?;
        self.failures_line(f)?;
        self.disk_lines(f)?;
        let peak = self.peak_memory_bytes.map_or("unknown".to_owned(), |bytes| binary(bytes as f64));
        writeln!(f, "peak memory      {peak}")?;
        writeln!(
            f,
            "wall time        {:.2} s, and {:.2} s to set up",
            self.wall_seconds, self.setup_seconds
        )?;
        writeln!(f, "blocks verified  {}", count(self.verified_blocks))?;
        write!(f, "wrong bytes      {}", count(self.wrong_bytes))?;
        if let Some(wrong) = &self.first_wrong {
            writeln!(f, ", in {}", plural(self.wrong_blocks, "block"))?;
            write!(
                f,
                "first of them    line {}, id {}: {} from offset {}, found in tier {}",
                wrong.line,
                wrong.id,
                plural(wrong.bytes, "byte"),
                wrong.first_offset,
                format!("{:?}", wrong.found_in).to_lowercase()
            )?;
        }
        Ok(())
    }
}

impl Report {
    fn blocks_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hits, evicted) = (&self.hits, &self.evicted);
        writeln!(f, "requests         {:>12}", count(self.requests))?;
        writeln!(f, "blocks           {:>12}", count(self.blocks))?;
        if self.uncached_blocks > 0 {
            writeln!(
                f,
                "  of them        {:>12} not served: no room on the device",
                count(self.uncached_blocks)
            )?;
        }
        writeln!(f, "hit ratio        {:>10.2} %\n", self.hit_ratio * 100.0)?;
        writeln!(f, "                 {:>12} {:>12} {:>12} {:>12}", "device", "host", "disk", "total")?;
        let row = |f: &mut fmt::Formatter<'_>, name, device, host, disk| {
            let all = count(device + host + disk);
            writeln!(f, "{name:<16} {:>12} {:>12} {:>12} {all:>12}", count(device), count(host), count(disk))
        };
        row(f, "hits, blocks", hits.device, hits.host, hits.disk)?;
        row(f, "evicted, blocks", evicted.device, evicted.host, evicted.disk)
    }

    fn bytes_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, rates) = (&self.bytes, &self.bytes_per_second);
        let rows = [
            ("device → host", bytes.device_to_host, rates.device_to_host),
            ("host → disk", bytes.host_to_disk, rates.host_to_disk),
            ("disk → host", bytes.disk_to_host, rates.disk_to_host),
            ("host → device", bytes.host_to_device, rates.host_to_device),
            ("filled", bytes.filled, rates.filled),
        ];
        writeln!(f, "                 {:>12} {:>12}", "moved", "while busy")?;
        for (path, bytes, rate) in rows {
            let rate = if bytes == 0 { "–".to_owned() } else { format!("{}/s", binary(rate)) };
            writeln!(f, "{path:<16} {:>12} {rate:>12}", binary(bytes as f64))?;
        }
        Ok(())
    }

    fn latency_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = &self.latency_ns;
        let rows = [
            ("allocation", steps.allocation),
            ("match", steps.matching),
            ("onboard", steps.onboard),
            ("release", steps.release),
        ];
        writeln!(f, "a request's      {:>12} {:>12} {:>12} {:>12}", "p50", "p99", "p99.9", "requests")?;
        let late = self.lateness_ns.map(|late| ("lateness", late));
        for (step, Latency { count: requests, p50, p99, p999, .. }) in rows.into_iter().chain(late) {
            let [p50, p99, p999] = [p50, p99, p999].map(|value| time(requests, value));
            writeln!(f, "{step:<16} {p50:>12} {p99:>12} {p999:>12} {:>12}", count(requests))?;
        }
        Ok(())
    }

    fn failures_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures = &self.failures;
        if failures.total() > 0 {
            let causes = causes([
                ("disk reads", failures.disk_read),
                ("disk writes", failures.disk_write),
                ("device reads", failures.device_read),
                ("device writes", failures.device_write),
                ("busy host blocks", failures.host_busy),
                ("changed host blocks", failures.host_mismatch),
            ]);
            writeln!(f, "failed transfers {causes}; each is a miss")?;
        }
        if self.dropped_blocks > 0 {
            writeln!(
                f,
                "not offloaded    {}: no room in the tier below, or the copy failed",
                plural(self.dropped_blocks, "block")
            )?;
        }
        Ok(())
    }

    fn disk_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(disk) = &self.disk else { return Ok(()) };
        if disk.rejected.total() > 0 {
            writeln!(f, "rejected on disk {}; each is a miss", causes(disk.rejected.causes()))?;
        }
        if disk.offered_blocks > disk.written_blocks {
            let refused = causes([
                (self.settings.disk_admission, disk.refused_by_admission_blocks),
                ("over the budget", disk.refused_by_budget_blocks),
            ]);
            let (written, offered) =
                (count(disk.written_blocks), plural(disk.offered_blocks, "offered block"));
            let refused = if refused.is_empty() { String::new() } else { format!("; refused {refused}") };
            writeln!(f, "written to disk  {written} of {offered}{refused}")?;
        }
        if disk.lost_volumes > 0 {
            let (all, quarantined) =
                (plural(disk.volumes as u64, "volume"), plural(disk.quarantined_slots, "slot"));
            writeln!(f, "out of service   {} of {all}; {quarantined} quarantined", disk.lost_volumes)?;
        }
        Ok(())
    }
}

/// A line of prose, wrapped.
fn note(f: &mut fmt::Formatter<'_>, head: &str, words: &str) -> fmt::Result {
    let mut text = String::new();
    fold::paragraph(&mut text, head, words, fold::COLUMNS);
    f.write_str(&text)
}

/// `1 block`, `2 blocks`.
fn plural(number: u64, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// The blocks found of an earlier run, if there was one.
fn found_line(f: &mut fmt::Formatter<'_>, disk: &Disk) -> fmt::Result {
    if disk.created {
        return Ok(());
    }
    let how = if disk.clean { "clean shutdown" } else { "after a crash" };
    writeln!(f, "recovered        {}, {how}", plural(disk.recovered_blocks, "block"))
}

/// A remark on memory in pages of 4 KiB.
fn slower(backing: Backing) -> &'static str {
    match backing {
        Backing::HugeTlb | Backing::TransparentHuge | Backing::Lent => "",
        Backing::BasePages => ": slower disk transfers; see `kvstrata doctor`",
    }
}

/// The counts that are not 0, with their names.
fn causes<'c>(causes: impl IntoIterator<Item = (&'c str, u64)>) -> String {
    let causes = causes.into_iter().filter(|(_, times)| *times > 0);
    causes.map(|(cause, times)| format!("{} {cause}", count(times))).collect::<Vec<_>>().join(", ")
}

/// Nanoseconds with three digits and a unit.
fn time(measured: u64, nanoseconds: u64) -> String {
    if measured == 0 {
        return "–".to_owned();
    }
    scaled(nanoseconds as f64, 1000.0, &["ns", "µs", "ms", "s"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_base_pages_are_called_slower() {
        let slower = |backing| slower(backing).contains("slower");
        assert_eq!(
            [Backing::HugeTlb, Backing::TransparentHuge, Backing::BasePages].map(slower),
            [false, false, true]
        );
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [5, 999, 1000, 12_345, 99_960, 1_234_567, 9_000_000_000].map(|value| time(1, value));
        assert_eq!(times, ["5 ns", "999 ns", "1.00 µs", "12.3 µs", "100 µs", "1.23 ms", "9.00 s"]);
        assert_eq!(time(0, 0), "–");
    }
}

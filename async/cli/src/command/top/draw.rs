//! A [`View`] as lines of a terminal or of a text: a function of the view and the size of the screen.
//!
//! ```text
//!   manager, uptime, waiting calls            3 rows, 4 with tenants
//!   TIER      a row for each tier             the remaining rows
//!   PATH      a row for each path
//!   HITS      a row for each tier, and for all
//!   TROUBLE   failures                        at least a heading and a row
//! ```
//!
//! Invariants
//! - I1: no information is in a colour alone; a word, a sign or a position has it too.
//! - I2: a screen of [`COLUMNS`] × [`ROWS`] shows every section; a smaller one shows the size that it needs.

use super::super::screen::plain;
use super::buckets::Quantile;
use super::reading::Requests;
use super::view::{ALL, HitView, PathView, TierView, TroubleView, View};
use kvstrata::shared::figures;
use ratatui::Frame;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// The columns that the whole view needs.
pub const COLUMNS: u16 = 80;
/// The rows that the whole view needs.
pub const ROWS: u16 = 24;
/// The most rows of a section, except that of the tiers, which has the remaining rows.
const MOST_ROWS: usize = 6;
const NONE: &str = "–";
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The abilities of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to use ASCII characters only.
    pub ascii: bool,
    /// Whether it reads keys.
    pub keys: bool,
}

impl Look {
    fn in_colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}

impl View {
    /// Draws the view on the whole frame.
    pub fn draw(&self, look: Look, frame: &mut Frame<'_>) {
        let area = frame.area();
        frame.render_widget(Paragraph::new(self.lines(look, area.width, area.height)), area);
    }

    /// The lines of the view on a screen of this size. There are at most `rows` lines. None is longer
    /// than `columns`, unless that is below [`COLUMNS`].
    #[must_use]
    pub fn lines(&self, look: Look, columns: u16, rows: u16) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(columns), usize::from(rows));
        let mut lines = match columns < COLUMNS || rows < ROWS {
            true => self.small(columns, rows),
            false => self.whole(look, width, height),
        };
        lines.truncate(height);
        if look.ascii {
            for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
                span.content = plain(&span.content).into();
            }
        }
        lines
    }

    /// The view as text.
    #[must_use]
    pub fn text(&self, ascii: bool, columns: u16, rows: u16) -> String {
        let lines = self.lines(Look { colour: false, ascii, keys: false }, columns, rows);
        lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
    }

    fn small(&self, columns: u16, rows: u16) -> Vec<Line<'static>> {
        let mut lines = vec![
            Line::from(format!("needs {COLUMNS} × {ROWS}, this is {columns} × {rows}")).bold(),
            Line::from(self.target.clone()),
            Line::from(self.state()),
        ];
        let all = self.hits.iter().filter(|hit| hit.place == ALL);
        lines.extend(all.map(|all| {
            let group = if self.has_groups() { format!("{} ", all.group) } else { String::new() };
            let (now, overall) = (percent(all.now), percent(all.overall));
            Line::from(format!("hits {group}{now} ({overall} since the start)"))
        }));
        lines.extend(self.troubles.iter().map(|trouble| Line::from(told(trouble))));
        lines
    }

    fn whole(&self, look: Look, width: usize, height: usize) -> Vec<Line<'static>> {
        let mut head = vec![self.title(look, width), self.status(look)];
        let Some(requests) = &self.requests else { return head };
        head.push(match self.gone {
            Some(_) => Line::from("the figures below are the last ones received"),
            None => waiting(requests, width),
        });
        head.extend(self.tenant.as_ref().map(|of| {
            let (part, blocks, quota) = (percent(Some(of.part())), whole(of.blocks), whole(of.quota));
            Line::from(format!(
                "tenant nearest to its quota: {}, {part} of {} ({blocks} of {quota} blocks)",
                of.tenant, of.tier
            ))
        }));
        let paths = section(path_heading(), &self.paths, MOST_ROWS, path_row);
        let hits = self.hit_rows();
        let names = hits.iter().map(|(name, _)| name.chars().count()).fold(HIT_NAME, usize::max);
        let hits = section(hit_heading(names, self.every_seconds), &hits, MOST_ROWS, |(name, hit)| {
            hit_row(look, &format!("{name:<names$}"), hit, width)
        });
        // Reserves a heading and a row for the troubles, and a heading for the tiers,
        // which have at least one row.
        let left = height.saturating_sub(head.len() + paths.len() + hits.len() + 3).max(1);
        let tiers = section(tier_heading(look, width), &self.tiers, left, |tier| tier_row(look, tier, width));
        let used = head.len() + paths.len() + hits.len() + tiers.len();
        let troubles = self.trouble_rows(look, width, height.saturating_sub(used).max(1));
        let mut blanks = height.saturating_sub(used + troubles.len());
        for part in [tiers, paths, hits, troubles] {
            if blanks > 0 {
                blanks -= 1;
                head.push(Line::default());
            }
            head.extend(part);
        }
        head
    }

    fn has_groups(&self) -> bool {
        self.hits.iter().any(|hit| hit.group != self.hits[0].group)
    }

    /// A row for each place; with several groups of layers, a row for each group with all its places.
    fn hit_rows(&self) -> Vec<(&str, &HitView)> {
        match self.has_groups() {
            true => {
                let all = self.hits.iter().filter(|hit| hit.place == ALL);
                all.map(|hit| (hit.group.as_str(), hit)).collect()
            }
            false => self.hits.iter().map(|hit| (hit.place.as_str(), hit)).collect(),
        }
    }

    fn title(&self, look: Look, width: usize) -> Line<'static> {
        let version = self.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let left = format!("kvstrata{version} at {}", self.target);
        let right = format!("every {}{}", long(self.every_seconds), if look.keys { "  q quits" } else { "" });
        let gap = width.saturating_sub(left.chars().count() + right.chars().count()).max(1);
        Line::from(vec![Span::from(left).bold(), Span::from(" ".repeat(gap)), Span::from(right)])
    }

    /// Whether the manager answers, in words.
    fn state(&self) -> String {
        match (&self.gone, self.uptime_seconds) {
            (Some(gone), _) => format!("NO ANSWER for {}: {}", long(gone.seconds.floor()), gone.why),
            (None, _) if self.requests.is_none() => "waiting for the first answer".to_owned(),
            (None, Some(uptime)) => format!("up {}", long(uptime.floor())),
            (None, None) => "up".to_owned(),
        }
    }

    fn status(&self, look: Look) -> Line<'static> {
        let mut text = self.state();
        if self.gone.is_some() {
            return Line::from(text).style(look.in_colour(Color::Red)).bold().reversed();
        }
        if self.restarts > 0 {
            text += &format!(" (restarts while watched: {})", self.restarts);
        }
        if let Some(of) = self.requests.filter(|of| of.slots > 0) {
            text += &format!("; serves {} of {} requests", whole(of.served), whole(of.slots));
        }
        Line::from(text)
    }

    fn trouble_rows(&self, look: Look, width: usize, most: usize) -> Vec<Line<'static>> {
        if self.troubles.is_empty() {
            return vec![Line::from(vec![heading("TROUBLE"), Span::from("  none since the start")])];
        }
        let mut rows = vec![Line::from(vec![
            heading("TROUBLE"),
            Span::from("  since the start (+ in the last interval)"),
        ])];
        let mut used = width;
        for (index, trouble) in self.troubles.iter().enumerate() {
            let mut text = told(trouble);
            let rest = format!("… {} more", self.troubles.len() - index);
            let last_row = rows.len() == most;
            // The last row keeps room for the count of those left out.
            let kept = if last_row && index + 1 < self.troubles.len() { rest.chars().count() + 3 } else { 0 };
            if used + 3 + text.chars().count() + kept > width {
                if last_row || most == 1 {
                    if let Some(row) = rows.last_mut() {
                        row.push_span(Span::from(format!("   {rest}")));
                    }
                    break;
                }
                rows.push(Line::default());
                used = 0;
            } else {
                text.insert_str(0, "   ");
            }
            used += text.chars().count();
            let fresh = trouble.new.is_some_and(|new| new > 0);
            let style = if fresh { look.in_colour(Color::Yellow).bold() } else { Style::new() };
            if let Some(row) = rows.last_mut() {
                row.push_span(Span::styled(text, style));
            }
        }
        rows
    }
}

fn waiting(of: &Requests, width: usize) -> Line<'static> {
    let calls = [
        (of.waiting, "for blocks"),
        (of.onboarding, "onboarding"),
        (of.waiting_for_queue, "for queue room"),
        (of.waiting_for_host, "for host memory"),
        (of.gated, "at gates"),
        (of.purges, "purging"),
    ];
    let calls = calls.into_iter().filter(|(count, _)| *count > 0);
    let calls: Vec<String> = calls.map(|(count, words)| format!("{} {words}", whole(count))).collect();
    let text = format!("waiting: {}", if calls.is_empty() { "none".to_owned() } else { calls.join(", ") });
    match text.chars().count() > width {
        true => Line::from(text.chars().take(width - 1).chain(['…']).collect::<String>()),
        false => Line::from(text),
    }
}

/// A heading and a row for each item. If there are more than `most`, the last row counts the items left out.
fn section<T>(
    heading: Line<'static>,
    all: &[T],
    most: usize,
    row: impl Fn(&T) -> Line<'static>,
) -> Vec<Line<'static>> {
    let shown = if all.len() > most { most.saturating_sub(1) } else { all.len() };
    let mut lines = vec![heading];
    lines.extend(all[..shown].iter().map(row));
    if shown < all.len() {
        lines.push(Line::from(format!("… {} more", all.len() - shown)));
    }
    lines
}

fn heading(text: &str) -> Span<'static> {
    Span::from(text.to_owned()).bold()
}

const NAME_AND_BLOCKS: usize = 23;
/// Columns of the legend of the bar's signs.
const LEGEND: usize = 23;
/// Columns of a tier's row beside its bar.
const BESIDE_BAR: usize = 57;

fn tier_heading(look: Look, width: usize) -> Line<'static> {
    let legend =
        [("█", "in use ", Color::Cyan), ("▒", "inactive ", Color::Blue), ("·", "free", Color::Reset)];
    let gap = " ".repeat((width - BESIDE_BAR).saturating_sub(LEGEND) + 2);
    let mut spans = vec![heading(&format!("{:<9}{:>14}  ", "TIER", "blocks"))];
    for (sign, words, colour) in legend {
        spans.extend([Span::styled(sign, look.in_colour(colour)), Span::from(words).bold()]);
    }
    spans.push(heading(&format!("{gap}{:>7}{:>11}{:>12}", "in use", "evicted/s", "evicted")));
    Line::from(spans)
}

fn tier_row(look: Look, tier: &TierView, width: usize) -> Line<'static> {
    let bar = width - BESIDE_BAR;
    let part = |blocks: u64| match blocks {
        0 => 0,
        // At least one sign if there are any blocks.
        _ => ((blocks as f64 / (tier.blocks.max(1) as f64) * bar as f64).round() as usize).clamp(1, bar),
    };
    let used = part(tier.in_use);
    let kept = part(tier.inactive).min(bar - used);
    // Name and number share their columns; a long name is cut.
    let blocks = whole(tier.blocks);
    let room = NAME_AND_BLOCKS.saturating_sub(blocks.chars().count() + 1);
    let name = match tier.tier.chars().count() > room {
        true => tier.tier.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
        false => tier.tier.clone(),
    };
    let in_use = (tier.blocks > 0).then(|| tier.in_use as f64 / tier.blocks as f64);
    Line::from(vec![
        Span::from(format!("{name:<room$} {blocks}  ")),
        Span::styled("█".repeat(used), look.in_colour(Color::Cyan)),
        Span::styled("▒".repeat(kept), look.in_colour(Color::Blue)),
        Span::from("·".repeat(bar - used - kept)),
        Span::from(format!(
            "  {:>7}{:>11}{:>12}",
            percent(in_use),
            rate(tier.evicted_per_second),
            whole(tier.evicted)
        )),
    ])
}

fn path_heading() -> Line<'static> {
    Line::from(heading(&format!(
        "{:<14}{:>14}{:>13}{:>9}{:>9}{:>9}{:>11}",
        "PATH", "bytes/s", "transfers/s", "p50 ≤", "p99 ≤", "queued", "in flight"
    )))
}

fn path_row(path: &PathView) -> Line<'static> {
    let bytes = path.bytes_per_second.map_or(NONE.to_owned(), figures::binary);
    Line::from(format!(
        "{:<14}{bytes:>14}{:>13}{:>9}{:>9}{:>9}{:>11}",
        path.path,
        rate(path.transfers_per_second),
        quantile(path.p50),
        quantile(path.p99),
        whole(path.queued),
        whole(path.inflight)
    ))
}

/// Columns of the names of places.
const HIT_NAME: usize = 9;

fn hit_heading(names: usize, every: f64) -> Line<'static> {
    let mark = format!("  0 to 100 % every {}, latest on the right", long(every));
    Line::from(heading(&format!("{:<names$}{:>7}{:>11}{mark}", "HITS", "now", "overall")))
}

fn hit_row(look: Look, name: &str, hit: &HitView, width: usize) -> Line<'static> {
    let front = format!("{name}{:>7}{:>11}  ", percent(hit.now), percent(hit.overall));
    let room = width.saturating_sub(front.chars().count());
    let from = hit.history.len().saturating_sub(room);
    let step = |ratio: &Option<f64>| ratio.map_or(' ', |ratio| STEPS[((ratio * 8.0) as usize).min(7)]);
    let line: String = hit.history[from..].iter().map(step).collect();
    Line::from(vec![Span::from(front), Span::styled(line, look.in_colour(Color::Green))])
}

fn told(trouble: &TroubleView) -> String {
    let new = trouble.new.filter(|new| *new > 0).map(|new| format!(" (+{})", whole(new))).unwrap_or_default();
    format!("{}: {}{new}", trouble.what, whole(trouble.count))
}

fn percent(part: Option<f64>) -> String {
    part.map_or(NONE.to_owned(), |part| format!("{:.0}%", part * 100.0))
}

/// A count; with three digits and a unit from a billion on.
fn whole(count: u64) -> String {
    match count {
        ..1_000_000_000 => figures::count(count),
        _ => figures::scaled(count as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"]),
    }
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => NONE.to_owned(),
        Some(rate) if rate == 0.0 || rate >= 9.95 => whole(rate.round() as u64),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// The end of a bucket, with one decimal at most.
fn quantile(of: Option<Quantile>) -> String {
    let Some(of) = of else { return NONE.to_owned() };
    let (unit, scale) = match of.seconds {
        ..0.9995e-3 => ("µs", 1e6),
        ..0.9995 => ("ms", 1e3),
        _ => ("s", 1.0),
    };
    let number = (of.seconds * scale * 10.0).round() / 10.0;
    format!("{}{number}{unit}", if of.above { ">" } else { "" })
}

/// A duration in its two largest units.
fn long(seconds: f64) -> String {
    if seconds < 10.0 && seconds.fract() != 0.0 {
        return format!("{seconds:.1}s");
    }
    let seconds = seconds as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {:02}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes:02}m"),
        _ => format!("{days}d {hours:02}h"),
    }
}

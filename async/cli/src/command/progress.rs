//! Progress bars: on standard error, and only where that is a terminal.

use crate::replay::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Shows how far a replay has come; nothing where nobody looks.
pub(super) struct Bar {
    bar: ProgressBar,
    /// Counted in requests where their number is known, otherwise in bytes of the trace.
    by_requests: bool,
}

impl Bar {
    pub(super) fn new(requests: Option<u64>, input_bytes: Option<u64>) -> Bar {
        let bar = match requests.or(input_bytes) {
            _ if !std::io::stderr().is_terminal() => ProgressBar::hidden(),
            Some(length) => ProgressBar::new(length),
            None => ProgressBar::new_spinner(),
        };
        let template = match (requests, input_bytes) {
            (Some(_), _) => "{bar:40} {human_pos} of {human_len} requests, {eta} left",
            (None, Some(_)) => "{bar:40} {percent} % of the trace, {eta} left",
            (None, None) => "{spinner} {human_pos} requests in {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Bar { bar, by_requests: requests.is_some() || input_bytes.is_none() }
    }

    pub(super) fn show(&self, progress: Progress) {
        self.bar.set_position(if self.by_requests { progress.requests } else { progress.input_bytes });
    }

    /// Writes something else where the bar is, which then comes back.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Wipes the bar, so that what follows stands alone.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Shows how far a file has been written through.
pub(super) struct FillBar(ProgressBar);

impl FillBar {
    pub(super) fn new() -> FillBar {
        let bar = ProgressBar::hidden();
        let template = "{bar:40} {bytes} of {total_bytes} of the disk tier written through, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        FillBar(bar)
    }

    pub(super) fn show(&self, done: u64, bytes: u64) {
        if self.0.length() != Some(bytes) {
            self.0.set_length(bytes);
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.set_position(done);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Shows how many steps of a known number are done; nothing where nobody looks.
pub(super) struct StepBar(ProgressBar);

impl StepBar {
    /// Of what: points, runs.
    pub(super) fn new(of: &str) -> StepBar {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(0),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) =
            ProgressStyle::with_template(&format!("{{bar:40}} {{percent}} % of the {of}, {{elapsed}}"))
        {
            bar.set_style(style);
        }
        StepBar(bar)
    }

    pub(super) fn show(&self, done: usize, of: usize) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

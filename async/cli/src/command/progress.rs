//! Progress bars on standard error, if that is a terminal.

use crate::replay::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// The progress of a replay; hidden unless standard error is a terminal.
pub(super) struct Bar {
    bar: ProgressBar,
    /// Whether progress counts requests rather than bytes of the trace.
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

    /// Hides the bar while `write` writes to the terminal.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of filling a file; hidden unless standard error is a terminal.
pub(super) struct FillBar(ProgressBar);

impl FillBar {
    pub(super) fn new() -> FillBar {
        let bar = ProgressBar::hidden();
        let template = "{bar:40} {bytes} of {total_bytes} of the disk tier filled, {eta} left";
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

/// The progress of a known number of steps; hidden unless standard error is a terminal.
pub(super) struct StepBar(ProgressBar);

impl StepBar {
    /// `of` names the steps: points, runs.
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

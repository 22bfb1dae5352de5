//! A progress bar on standard error, if that is a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::input::Source;
use crate::stderr;
use crate::text::short;

/// Both fit 40 columns.
const SIZED: &str = "{wide_bar} {percent:>3}% {msg} {eta:>4}";
const UNSIZED: &str = "{spinner} {bytes} {msg}";

/// The progress of a load, for a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    consumed: Arc<AtomicU64>,
}

impl Progress {
    /// Begins to show how much of `source` was read; `hidden`: shows nothing.
    pub fn new(source: &Source, hidden: bool) -> Progress {
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(source.size(), target);
        let template = if source.size().is_some() { SIZED } else { UNSIZED };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        stderr::print_above(&bar);
        Progress { bar, consumed: source.consumed() }
    }

    /// Shows that `rows` rows were committed.
    pub fn update(&self, rows: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let seconds = self.bar.elapsed().as_secs_f64().max(1e-3);
        let rate = short((rows as f64 / seconds) as u64);
        self.bar.set_message(format!("{} rows {rate}/s", short(rows)));
        self.bar.set_position(self.consumed.load(Ordering::Relaxed));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

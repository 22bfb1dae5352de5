//! The current run and the time left, on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::signals;
use crate::measurement::Stage;
use crate::number::number;
use crate::plan::Progress;

/// The bar's length.
const WHOLE: u64 = 1000;

/// A progress bar, and the signals.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub fn new() -> Bar {
        let bar = ProgressBar::with_draw_target(Some(WHOLE), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:12} {wide_msg}") {
            bar.set_style(style);
        }
        Bar(bar)
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }

    /// Shows the progress; returns whether to continue: no signal has asked to end.
    pub fn show(&self, progress: &Progress) -> bool {
        if !self.0.is_hidden() {
            self.draw(progress);
        }
        !signals::asked()
    }

    fn draw(&self, progress: &Progress) {
        let left = match progress.left_seconds {
            None => String::new(),
            Some(seconds) => format!("about {} left, ", span(seconds)),
        };
        let stage = match progress.stage {
            Stage::Filling(share) => format!("filling, {:.0} %", share * 100.0),
            Stage::Warming => "warming up".to_string(),
            Stage::Running(operations) => format!("{} operations", number(operations as f64)),
            Stage::Checking => "checking the store".to_string(),
        };
        let Progress { round, rounds, what, .. } = progress;
        self.0.set_message(format!("{left}round {round} of {rounds}, {what}: {stage}"));
        if let Some(left) = progress.left_seconds {
            let share = progress.done_seconds / (progress.done_seconds + left).max(f64::MIN_POSITIVE);
            self.0.set_position((share * WHOLE as f64) as u64);
        }
    }
}

/// Seconds in fitting units.
fn span(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_fitting_units() {
        assert_eq!([0.4, 90.0, 601.0, 7260.0].map(span), ["0 s", "90 s", "11 min", "2 h 1 min"]);
    }
}

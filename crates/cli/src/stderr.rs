//! Standard error: whole lines of text, or JSON objects for programs; neither breaks a progress bar.
//!
//! A command continues without a reader of standard error: its results and its exit code suffice.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, WeakProgressBar};
use serde_json::{Value, json};

/// Whether a program reads it: set once, before the first line is printed.
static FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// The progress bar on the terminal, if any. The lock also keeps the lines of several threads apart.
static BAR: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Sets whether a program reads it: then every line is a JSON object.
pub(crate) fn set_for_programs(for_programs: bool) {
    FOR_PROGRAMS.store(for_programs, Ordering::Relaxed);
}

/// Whether a program reads it.
pub(crate) fn is_for_programs() -> bool {
    FOR_PROGRAMS.load(Ordering::Relaxed)
}

/// From now on prints lines above the bar.
pub(crate) fn print_above(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
}

/// Prints a note.
pub(crate) fn note(text: &str) {
    match is_for_programs() {
        true => object(&json!({ "note": text })),
        false => line(&format!("note: {text}")),
    }
}

/// Prints a line for a program.
pub(crate) fn object(object: &Value) {
    line(&object.to_string());
}

/// Prints a line.
pub(crate) fn line(text: &str) {
    let _ = write(format!("{text}\n").as_bytes());
}

/// Prints whole lines.
fn write(lines: &[u8]) -> io::Result<()> {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    match bar.as_ref().and_then(WeakProgressBar::upgrade) {
        Some(bar) => bar.suspend(|| io::stderr().write_all(lines)),
        None => io::stderr().write_all(lines),
    }
}

/// Writes whole lines at once, as the formatter of events passes them.
pub(crate) struct Lines;

impl Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        write(lines)?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal that records all output.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<Vec<String>>>);

    impl Screen {
        fn note(&self, what: &str) -> io::Result<()> {
            self.0.lock().unwrap().push(what.to_string());
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.note(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.note(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.note("cleared")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_takes_the_bar_away_and_draws_it_below() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let bar = ProgressBar::with_draw_target(Some(10), target);
        print_above(&bar);
        bar.tick();
        screen.0.lock().unwrap().clear();
        line("a line of a test");
        let shown = screen.0.lock().unwrap().join("\n");
        let (before, after) = shown.split_once("cleared").unwrap_or(("nothing was cleared", ""));
        assert!(before.is_empty() && after.contains("0/10"), "{shown}");
    }
}

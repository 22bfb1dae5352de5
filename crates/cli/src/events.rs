//! What the library reports of itself (its tracing events), on standard error.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::failure::Failure;

/// Prints events from now on, if -v or the variable RUST_LOG asks for them. RUST_LOG names levels by part of the
/// program; -v says the level of the parts that it does not name.
pub(crate) fn show(verbose: u8) -> Result<(), Failure> {
    let by_part = std::env::var("RUST_LOG").unwrap_or_default();
    let level = match verbose {
        0 if by_part.is_empty() => return Ok(()),
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut targets: Targets = by_part.parse().map_err(|error| {
        Failure::usage(format!("RUST_LOG is `{by_part}`: {error}; an example is info,fulgurite_log=debug"))
    })?;
    if verbose > 0 {
        targets = targets.with_default(level);
    }
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
    tracing::subscriber::set_global_default(registry().with(lines.with_filter(targets)))
        .map_err(|error| Failure::new(format!("printing events: {error}")))
}

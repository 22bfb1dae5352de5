//! The library's tracing events, on standard error.

use std::fmt::Debug;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, fmt, registry};

use crate::failure::Failure;
use crate::stderr;

/// The event for commits that the log does not prove durable: `open_reader` prints a note of its own for it.
const PRINTED_AS_NOTE: &str = "fulgurite::unproven";

/// Prints events from now on: warnings and errors, more of them with -v. The variable RUST_LOG sets levels by module;
/// the modules that it does not name have the level of -v, or else warnings.
pub(crate) fn show(verbose: u8) -> Result<(), Failure> {
    let targets = targets(verbose)?;
    let lines = fmt::layer().with_writer(|| stderr::Lines).with_ansi(false).log_internal_errors(false);
    let printed = match stderr::is_for_programs() {
        true => Objects.boxed(),
        false => lines.boxed(),
    };
    tracing::subscriber::set_global_default(registry().with(printed.with_filter(targets)))
        .map_err(|error| Failure::new(format!("printing events: {error}")))
}

/// Which events are printed.
fn targets(verbose: u8) -> Result<Targets, Failure> {
    let by_module = std::env::var("RUST_LOG").unwrap_or_default();
    let targets = match by_module.as_str() {
        "" if verbose == 0 => {
            return Ok(Targets::new()
                .with_default(LevelFilter::WARN)
                .with_target(PRINTED_AS_NOTE, LevelFilter::OFF));
        }
        "" => Targets::new(),
        by_module => by_module.parse().map_err(|error| {
            Failure::usage(format!(
                "RUST_LOG is `{by_module}`: {error}; an example is info,fulgurite_log=debug"
            ))
        })?,
    };
    Ok(match verbose {
        0 if targets.default_level().is_some() => targets,
        0 => targets.with_default(LevelFilter::WARN),
        1 => targets.with_default(LevelFilter::INFO),
        2 => targets.with_default(LevelFilter::DEBUG),
        _ => targets.with_default(LevelFilter::TRACE),
    })
}

/// Prints events as JSON objects.
struct Objects;

impl<S: Subscriber> Layer<S> for Objects {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let what = event.metadata();
        stderr::object(&json!({
            "event": fields.0.remove("message"),
            "level": what.level().as_str().to_lowercase(),
            "target": what.target(),
            "fields": fields.0,
        }));
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}

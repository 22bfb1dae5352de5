//! The seconds of a run, of all threads and of what was seen beside them.

use std::sync::atomic::Ordering;

use crate::beside::Seen;
use crate::run::{Second, Timeline};
use crate::seconds::{OfSecond, Seconds};
use crate::worker::Shared;

/// The timeline of a run that has ended after `operations`; `None` if its seconds were not asked for.
pub(crate) fn timeline(shared: &Shared, seen: Seen, operations: u64) -> Option<Timeline> {
    let of_seconds = shared.seconds.as_ref().map(|seconds| Seconds::finish(&mut seconds.lock()))?;
    let schedule = shared.schedule.get();
    let interrupted = shared.stop.load(Ordering::Relaxed);
    let bare = seen.bare.unwrap_or_default();
    let second = |(index, of_threads): (usize, &OfSecond)| Second {
        due: of_threads.due,
        completed: of_threads.ended,
        latency: of_threads.latency,
        bare: bare.seconds.get(index).copied().flatten(),
        watched: seen.watched.get(index).copied().flatten(),
    };
    Some(Timeline {
        rate: schedule.map(|schedule| schedule.rate),
        not_begun: schedule.filter(|_| !interrupted).map_or(0, |schedule| schedule.left_after(operations)),
        bare: bare.seconds.iter().any(Option::is_some).then_some(bare.all),
        seconds: of_seconds.iter().enumerate().map(second).collect(),
    })
}

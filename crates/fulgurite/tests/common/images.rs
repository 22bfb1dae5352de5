//! The disk images that a crash leaves, at each change of the disk.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, SimEnv};

use super::model::History;
use super::rng::Rng;
use super::setting;
use super::tap::{Observer, Op};
use super::verify::verify_image;

/// Which crashes to try.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The test, for the command that replays a failure.
    pub test: &'static str,
    pub seed: u64,
    /// Every so many operations.
    pub stride: u64,
    /// Images of each kind at each operation.
    pub images: u64,
}

impl Plan {
    /// The plan as the environment overrides it.
    pub fn from_env(test: &'static str, stride: u64, images: u64) -> Plan {
        let all = setting("FULGURITE_CRASH_ALL").is_some_and(|value| value != 0);
        Plan {
            test,
            seed: setting("FULGURITE_CRASH_SEED").unwrap_or(1),
            stride: if all { 1 } else { stride },
            images: if all { images.max(2) } else { images },
        }
    }
}

/// The crashes that were tried, and those that failed.
#[derive(Debug, Default)]
pub struct Tally {
    pub operations: u64,
    pub crash_points: u64,
    pub images: u64,
    /// The numbers of commits beyond the acknowledged ones that recoveries found.
    pub beyond: BTreeSet<u64>,
    pub failures: Vec<String>,
}

impl Tally {
    /// Fails the test if anything failed.
    pub fn conclude(&self, least_images: u64) {
        println!(
            "{} operations, {} crash points, {} images, found beyond what was acknowledged: {:?}",
            self.operations, self.crash_points, self.images, self.beyond
        );
        assert!(self.failures.is_empty(), "{} failures:\n{}", self.failures.len(), self.failures.join("\n"));
        assert!(self.images >= least_images, "only {} images were checked", self.images);
    }
}

const FAILURES_MAX: usize = 5;

/// Stops the machine in the middle of each operation that the plan selects, and passes the remaining disk and a seed to
/// `check`.
pub fn at_each_operation(
    plan: Plan,
    tally: Arc<Mutex<Tally>>,
    check: impl Fn(&Arc<SimEnv>, u64) -> Result<u64, String> + Send + Sync + 'static,
) -> Observer {
    let only = setting("FULGURITE_CRASH_OP");
    let only_image = setting("FULGURITE_CRASH_IMAGE");
    let offset = plan.seed;
    Box::new(move |sim: &Arc<SimEnv>, op: Op<'_>| {
        let nth = {
            let mut tally = tally.lock().unwrap();
            tally.operations += 1;
            let selected = match only {
                Some(only) => tally.operations == only,
                None => tally.operations % plan.stride == offset % plan.stride,
            };
            if !selected || tally.failures.len() >= FAILURES_MAX || std::thread::panicking() {
                return;
            }
            tally.crash_points += 1;
            tally.operations
        };
        for image in 0..2 * plan.images {
            if only_image.is_some_and(|only| only != image) {
                continue;
            }
            let kind = if image % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
            let seed = Rng::new(plan.seed << 40 | nth << 8 | image).next();
            let left = stop_in(sim, op, kind, seed);
            let outcome = check(&left, seed);
            let mut tally = tally.lock().unwrap();
            tally.images += 1;
            match outcome {
                Ok(beyond) => _ = tally.beyond.insert(beyond),
                Err(what) => tally.failures.push(format!(
                    "{kind:?} in operation {nth} ({op}), image {image}: {what}\n  again: FULGURITE_CRASH_SEED={} \
                     FULGURITE_CRASH_OP={nth} FULGURITE_CRASH_IMAGE={image} cargo test -p fulgurite {}",
                    plan.seed, plan.test
                )),
            }
        }
    })
}

/// The usual check: all of [`verify_image`].
pub fn against(
    history: Arc<Mutex<History>>,
) -> impl Fn(&Arc<SimEnv>, u64) -> Result<u64, String> + Send + Sync {
    move |image, seed| {
        let history = history.lock().unwrap().clone();
        verify_image(image, &history, seed).map(|csn| csn - history.acknowledged())
    }
}

/// The remaining disk of a machine that stops in the middle of `op`. `sim` itself continues.
pub fn stop_in(sim: &Arc<SimEnv>, op: Op<'_>, kind: CrashKind, seed: u64) -> Arc<SimEnv> {
    let fork = sim.crash(CrashKind::Kill, seed ^ 0x5bd1);
    fork.faults().crash_at(1);
    let stopped = op.perform(fork.disk());
    assert!(stopped.is_err(), "the machine was to stop in {op}");
    fork.crash(kind, seed)
}

//! The run: prepare, measure all cases in turns, report.

use std::path::Path;
use std::sync::Arc;

use fulgurite::env::Env;

use super::cases::{ReadCase, WRITE_BYTES, WriteCase};
use super::cpu::CpuTime;
use super::files::Files;
use super::samples::Samples;
use super::writes::Writer;
use super::{Report, cpu, reads};
use crate::failure::Failure;
use crate::interrupt;

/// How often each case has its turn.
const ROUNDS: u64 = 3;

/// The progress of a run.
pub(crate) struct Step<'a> {
    pub done: u64,
    pub total: u64,
    /// The next case.
    pub what: &'a str,
}

/// Measures in `dir` for about `seconds`. Leaves the directory as it was, also after an error.
pub(crate) fn measure(
    env: &Arc<dyn Env>,
    dir: &Path,
    seconds: u64,
    mut show: impl FnMut(Step<'_>),
) -> Result<Report, Failure> {
    let began_ns = env.clock().monotonic_ns();
    let failed = |error: std::io::Error| Failure::new(format!("measuring: {error}"));
    let files = Files::create(env, dir, seconds)?;
    let device = env.disk().device(dir).map_err(failed)?;
    let takes_direct_writes = files.zeroed.takes_direct_writes().map_err(failed)?;
    let mut writes = start(WriteCase::all());
    writes.retain(|(case, _)| takes_direct_writes || !case.variant.is_direct());
    let mut reads = start(ReadCase::all());
    let total = ROUNDS * (writes.len() + reads.len()) as u64;
    show(Step { done: 0, total, what: "preparing files" });
    files.fill().map_err(failed)?;
    check_interrupt()?;

    let ends_ns = began_ns + seconds.saturating_mul(1_000_000_000);
    // The remaining time is shared among the remaining turns.
    let share = |done: u64| ends_ns.saturating_sub(env.clock().monotonic_ns()) / (total - done);
    let mut writer = Writer::new(&files, env.clock(), WRITE_BYTES[WRITE_BYTES.len() - 1], env.random_u64());
    let mut done = 0;
    let mut cpu_time = CpuTime::default();
    for _ in 0..ROUNDS {
        let cpu_began = cpu::now(&**env);
        for (case, samples) in &mut writes {
            show(Step { done, total, what: case.variant.label() });
            writer.turn(*case, share(done), samples).map_err(failed)?;
            check_interrupt()?;
            done += 1;
        }
        if let Some((began, ended)) = cpu_began.zip(cpu::now(&**env)) {
            cpu_time = cpu_time.and(began.until(ended));
        }
        for (case, samples) in &mut reads {
            show(Step { done, total, what: "random direct reads" });
            reads::turn(env, &files, *case, share(done), samples).map_err(failed)?;
            check_interrupt()?;
            done += 1;
        }
    }
    let figures = |case: WriteCase| {
        let position = writes.iter().position(|(measured, _)| *measured == case)?;
        let samples = std::mem::take(&mut writes[position].1);
        Some(samples.figures(case.writes_per_sync, case.bytes))
    };
    Ok(Report {
        directory: dir.display().to_string(),
        device,
        takes_direct_writes,
        writes: with(WriteCase::all(), figures),
        reads: reads.into_iter().map(|(case, samples)| (case, samples.figures(1, case.bytes))).collect(),
        seconds: (env.clock().monotonic_ns() - began_ns) as f64 / 1e9,
        cpu_idle: cpu_time.idle_share(),
    })
}

fn start<C: Copy>(cases: Vec<C>) -> Vec<(C, Samples)> {
    with(cases, |_| Samples::default())
}

fn with<C: Copy, V>(cases: Vec<C>, mut value: impl FnMut(C) -> V) -> Vec<(C, V)> {
    cases.into_iter().map(|case| (case, value(case))).collect()
}

fn check_interrupt() -> Result<(), Failure> {
    match interrupt::asked() {
        true => Err(Failure::interrupted_before("the probe's files are removed, nothing is reported")),
        false => Ok(()),
    }
}

//! Explores schedules with shuttle: `cargo test -p fulgurite-log --features shuttle --lib schedules`.
//!
//! The whole log runs over a simulated disk on which threads switch while a write or a sync is in flight; the leader
//! (`leader.rs`, `parking.rs`), the groups (`groups.rs`) and the signals (`resting.rs`) run without the rest. Shuttle
//! interleaves at every lock and atomic of `fulgurite_types::sync`, and takes all atomics for sequentially consistent.
//! Weaker orders are argued for where the code uses them. A thread that is never woken is a deadlock, which shuttle
//! reports.
//!
//! Shuttle's own random numbers choose scheme, device and faults, so that a schedule repeats them.

use shuttle::Runner;
use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};

mod chunks;
mod disk;
mod entries;
mod failures;
mod groups;
mod insertion;
mod leader;
mod parking;
mod resting;
mod staging;
mod times;
mod waiting;
mod world;

/// Explores `model` with three schedulers: random switches, often or seldom; random steps; and PCT, with few
/// preemptions. A quarter of the iterations by default; `FULGURITE_SCHEDULES=4` runs all of them.
fn explore(iterations: usize, model: fn()) {
    let quarters =
        std::env::var("FULGURITE_SCHEDULES").map_or(1, |quarters| quarters.parse().expect("a number"));
    let iterations = (iterations * quarters / 4).max(2);
    let sticky = Sticky { random: RandomScheduler::new(iterations), state: 1, chance: 0 };
    Runner::new(sticky, shuttle::Config::default()).run(model);
    shuttle::check_random(model, iterations / 2);
    shuttle::check_pct(model, iterations / 2, 4);
}

/// Lets a thread run for a while, in each execution another while. If each step drew the thread anew, one thread would
/// next to never take a hundred steps during a few steps of another.
#[derive(Debug)]
struct Sticky {
    random: RandomScheduler,
    /// The state of an xorshift generator.
    state: u64,
    /// In how many of 256 steps the thread switches.
    chance: u64,
}

impl Sticky {
    fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 32
    }
}

impl Scheduler for Sticky {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.chance = 1 << (1 + self.draw() % 7);
        self.random.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let may_stay = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        if may_stay.is_some() && !is_yielding && self.draw() % 256 >= self.chance {
            return may_stay;
        }
        self.random.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}

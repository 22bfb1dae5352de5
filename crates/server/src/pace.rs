//! Long work that lets others have the processor again and again.
//!
//! A scheduler gives a thread that wakes its turn at once, also if it is nicer than the one that runs, and lets it have that turn for
//! milliseconds: Linux decides anew at a tick. A worker wakes for each piece of a reply. So an I/O thread on the same processor, or its
//! clients, waited for one to four milliseconds about once a `KEYS *`, whatever the priority of the workers. A thread that yields has
//! others wait for [`TURN_NS`] instead, and goes on at once if there are none.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::yield_now;

use fulgurite::env::Env;

/// A thread yields when it has worked for so many nanoseconds.
const TURN_NS: u64 = 100_000;

/// It looks at the clock once in so many steps.
const STEPS_A_LOOK: u32 = 16;

struct Pace {
    env: Arc<dyn Env>,
    steps: u32,
    /// When its turn began.
    began_ns: u64,
}

thread_local! {
    static PACE: RefCell<Option<Pace>> = const { RefCell::new(None) };
}

impl Pace {
    fn now_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }
}

/// The calling thread begins a task, in which [`step`] yields.
pub(crate) fn begin(env: &Arc<dyn Env>) {
    PACE.with_borrow_mut(|pace| {
        let pace = pace.get_or_insert_with(|| Pace { env: env.clone(), steps: 0, began_ns: 0 });
        pace.began_ns = pace.now_ns();
    });
}

/// The calling thread did a little, as much as a row takes. Nothing on threads that never began a task.
#[inline]
pub(crate) fn step() {
    PACE.with_borrow_mut(|pace| {
        let Some(pace) = pace else { return };
        pace.steps += 1;
        if pace.steps >= STEPS_A_LOOK {
            pace.steps = 0;
            if pace.now_ns().saturating_sub(pace.began_ns) >= TURN_NS {
                yield_now();
                pace.began_ns = pace.now_ns();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use fulgurite::env::RealEnv;

    use super::*;

    fn turn_began_ns() -> Option<u64> {
        PACE.with_borrow(|pace| pace.as_ref().map(|pace| pace.began_ns))
    }

    #[test]
    fn long_tasks_yield_and_short_ones_do_not() {
        step();
        assert_eq!(turn_began_ns(), None, "this thread has no task");
        let env: Arc<dyn Env> = RealEnv::new();
        begin(&env);
        let began_ns = turn_began_ns().unwrap();
        (1..STEPS_A_LOOK).for_each(|_| step());
        assert_eq!(turn_began_ns(), Some(began_ns), "the clock is not looked at");
        while env.clock().monotonic_ns() < began_ns + TURN_NS {
            std::hint::spin_loop();
        }
        step();
        assert!(turn_began_ns().unwrap() >= began_ns + TURN_NS, "another turn");
    }
}

use std::time::Duration;

use fulgurite_env::{Env, SimEnv};

use super::*;

const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

fn pass(machine: &SimEnv, ms: i64) {
    machine.advance(Duration::from_millis(ms.unsigned_abs()));
}

fn wall(machine: &SimEnv) -> u64 {
    machine.clock().wall_ms()
}

/// A machine, and the clock of a database that is opened on it right after it was left.
fn clock() -> (std::sync::Arc<SimEnv>, Clock) {
    let machine = SimEnv::new(1);
    let clock = Clock::open(wall(&machine), None, machine.clock());
    (machine, clock)
}

/// The clock after the database was opened again, with the machine's clock moved by `ms` in between.
fn reopened(machine: &SimEnv, clock: &Clock, ms: i64) -> Clock {
    machine.jump_wall_clock(ms);
    Clock::open(clock.newest_ms(), clock.step(), machine.clock())
}

#[test]
fn it_follows_a_machine_whose_clock_is_set_right() {
    let (machine, clock) = clock();
    for _ in 0..1000 {
        pass(&machine, 7 * 60 * SECOND);
        assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    }
    machine.jump_wall_clock(4 * 60 * SECOND);
    let ahead = clock.now_ms(machine.clock());
    assert_eq!(ahead, wall(&machine));
    machine.jump_wall_clock(-4 * 60 * SECOND);
    assert_eq!(clock.now_ms(machine.clock()), ahead, "it never runs back");
    assert_eq!(clock.confirmed_ms(machine.clock()), wall(&machine));
    pass(&machine, HOUR);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    assert_eq!(clock.status(machine.clock()).state, ClockState::Follows);
}

#[test]
fn small_jumps_do_not_add_up() {
    let (machine, clock) = clock();
    let start = wall(&machine);
    for _ in 0..50 {
        machine.jump_wall_clock(4 * 60 * SECOND);
        pass(&machine, SECOND);
        let _ = clock.now_ms(machine.clock());
    }
    assert!(clock.now_ms(machine.clock()) <= start + REACH_MS + 51_000);
}

#[test]
fn a_jump_is_not_believed_and_forgotten_when_it_is_taken_back() {
    for jump in [YEAR * 50, HOUR, -HOUR, -YEAR * 20] {
        let (machine, clock) = clock();
        let start = clock.now_ms(machine.clock());
        for _ in 0..3 {
            machine.jump_wall_clock(jump);
            pass(&machine, SECOND);
            let shown_ms = clock.now_ms(machine.clock());
            assert!(shown_ms >= start && shown_ms <= start + 10_000_000, "{jump}: {shown_ms}, {start}");
            assert_eq!(clock.status(machine.clock()).state, ClockState::Doubts);
            assert!(clock.confirmed_ms(machine.clock()) <= shown_ms.min(wall(&machine)));
            pass(&machine, 50 * 60 * SECOND);
            let _ = clock.now_ms(machine.clock());
            machine.jump_wall_clock(-jump);
            pass(&machine, SECOND);
            assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
            assert_eq!(clock.status(machine.clock()).state, ClockState::Follows);
        }
    }
}

#[test]
fn a_jump_is_believed_after_an_hour() {
    let (machine, clock) = clock();
    machine.jump_wall_clock(3 * DAY);
    let shown_ms = clock.now_ms(machine.clock());
    for minutes in 1..60 {
        pass(&machine, 60 * SECOND);
        assert!(clock.now_ms(machine.clock()) <= shown_ms + minutes * 60_000 + 10);
    }
    pass(&machine, 2 * 60 * SECOND);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    assert_eq!(clock.confirmed_ms(machine.clock()), wall(&machine));
    // And back: the clock stops.
    machine.jump_wall_clock(-DAY);
    let _ = clock.now_ms(machine.clock());
    pass(&machine, HOUR + SECOND);
    let standing = clock.now_ms(machine.clock());
    pass(&machine, 10 * HOUR);
    assert_eq!(clock.now_ms(machine.clock()), standing);
    let status = clock.status(machine.clock());
    assert_eq!((status.state, status.confirmed_ms), (ClockState::Ahead, wall(&machine)));
    pass(&machine, 20 * HOUR);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
}

#[test]
fn a_clock_that_jumps_about_is_never_believed() {
    let (machine, clock) = clock();
    let start = clock.now_ms(machine.clock());
    for _ in 0..100 {
        machine.jump_wall_clock(DAY);
        pass(&machine, 30 * 60 * SECOND);
        let shown_ms = clock.now_ms(machine.clock());
        assert!(shown_ms <= start + 51 * 3_600_000, "{shown_ms}");
    }
}

#[test]
fn a_month_closed_is_plausible_and_fifty_years_are_not() {
    let (machine, clock) = clock();
    let left = clock.now_ms(machine.clock());
    let clock = reopened(&machine, &clock, 30 * DAY);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    let status = clock.status(machine.clock());
    assert_eq!((status.state, status.confirmed_ms), (ClockState::Unconfirmed, left));
    pass(&machine, HOUR);
    let status = clock.status(machine.clock());
    assert_eq!((status.state, status.confirmed_ms), (ClockState::Follows, wall(&machine)));

    let left = clock.now_ms(machine.clock());
    let clock = reopened(&machine, &clock, 50 * YEAR);
    pass(&machine, SECOND);
    let shown_ms = clock.now_ms(machine.clock());
    assert!(shown_ms >= left && shown_ms <= left + 2000);
    assert_eq!(clock.status(machine.clock()).state, ClockState::Doubts);
    let clock = reopened(&machine, &clock, -50 * YEAR);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    assert_eq!(clock.status(machine.clock()).state, ClockState::Follows);
}

#[test]
fn a_short_break_is_confirmed_soon() {
    let (machine, clock) = clock();
    let left = clock.now_ms(machine.clock());
    let clock = reopened(&machine, &clock, 10 * 60 * SECOND);
    assert_eq!(clock.confirmed_ms(machine.clock()), left);
    pass(&machine, 10 * 60 * SECOND + SECOND);
    assert_eq!(clock.confirmed_ms(machine.clock()), wall(&machine));
    let clock = reopened(&machine, &clock, 60 * SECOND);
    assert_eq!(clock.confirmed_ms(machine.clock()), wall(&machine), "no jump at all");
}

/// The database is open for two seconds every ten minutes: expired values are confirmed after an hour, not kept for
/// ever.
#[test]
fn short_lives_add_up() {
    let (machine, mut clock) = clock();
    for life in 0..100 {
        clock = reopened(&machine, &clock, 10 * 60 * SECOND);
        pass(&machine, 2 * SECOND);
        assert_eq!(clock.now_ms(machine.clock()), wall(&machine), "{life}");
        assert!(clock.confirmed_ms(machine.clock()) + 75 * 60 * 1000 >= wall(&machine), "{life}");
    }
    let _ = clock;
}

/// Openings that follow each other at once confirm nothing, however many there are.
#[test]
fn a_crash_loop_confirms_nothing() {
    let (machine, clock) = clock();
    let left = clock.now_ms(machine.clock());
    let mut clock = reopened(&machine, &clock, 300 * DAY);
    for _ in 0..100 {
        pass(&machine, SECOND);
        let _ = clock.now_ms(machine.clock());
        assert_eq!(clock.confirmed_ms(machine.clock()), left);
        clock = reopened(&machine, &clock, 0);
    }
    // The machine's clock is set right: times after its own are not confirmed.
    let clock = reopened(&machine, &clock, -300 * DAY);
    assert_eq!(clock.confirmed_ms(machine.clock()), left);
    pass(&machine, HOUR);
    let _ = clock.now_ms(machine.clock());
    pass(&machine, HOUR);
    let status = clock.status(machine.clock());
    assert_eq!((status.state, status.confirmed_ms), (ClockState::Ahead, wall(&machine)));
}

/// A database that was closed for years and is then never open for an hour.
#[test]
fn a_machine_that_insists_over_several_lives_is_believed() {
    let (machine, clock) = clock();
    let mut clock = reopened(&machine, &clock, 3 * YEAR);
    let left = clock.now_ms(machine.clock());
    for _ in 0..5 {
        pass(&machine, SECOND);
        assert!(clock.now_ms(machine.clock()) < left + 60_000);
        clock = reopened(&machine, &clock, 10 * 60 * SECOND);
    }
    let clock = reopened(&machine, &clock, 20 * 60 * SECOND);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    assert!(clock.confirmed_ms(machine.clock()) < left + 60_000, "it is still to be confirmed");
}

#[test]
fn a_clock_that_was_never_set_is_no_anchor() {
    let machine = SimEnv::new(1);
    let right = wall(&machine);
    machine.jump_wall_clock(-right.cast_signed());
    let clock = Clock::open(wall(&machine), None, machine.clock());
    assert!(clock.now_ms(machine.clock()) < 1000);
    machine.jump_wall_clock(right.cast_signed());
    assert!(clock.now_ms(machine.clock()) >= right);
}

/// A database that has followed a wrong clock before: nothing is removed by that clock, and it can be set back.
#[test]
fn a_clock_that_jumped_before_can_be_set_back() {
    let machine = SimEnv::new(1);
    let jumped = wall(&machine) + (50 * YEAR).unsigned_abs();
    let clock = Clock::open(jumped, None, machine.clock());
    assert!(clock.now_ms(machine.clock()) >= jumped);
    assert_eq!(clock.confirmed_ms(machine.clock()), wall(&machine));
    clock.reset(machine.clock());
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
    assert_eq!(clock.status(machine.clock()).state, ClockState::Follows);
    let clock = reopened(&machine, &clock, 0);
    assert_eq!(clock.now_ms(machine.clock()), wall(&machine));
}

//! Keys that expire under a wrong clock. The rules are in the guide `expiry`.

use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::sim::CrashKind;
use fulgurite::env::{Env, SimEnv};
use fulgurite::{ClockState, Database, Expiry, Table};

use crate::common::{PATH, open, options};

const DAY_MS: i64 = 24 * 3600 * 1000;
const FIFTY_YEARS_MS: i64 = 50 * 365 * DAY_MS;
const KEYS: u32 = 100;

fn wall_ms(env: &Arc<SimEnv>) -> u64 {
    env.clock().wall_ms()
}

/// A database with keys that expire after a day, and others that expire after an hour.
fn sessions(env: &Arc<SimEnv>) -> (Database, Table) {
    let db = open(env.clone()).unwrap();
    let table = db.table("sessions").unwrap();
    for n in 0..KEYS {
        let hours = if n % 2 == 0 { 24 } else { 1 };
        let at = wall_ms(env) + hours * 3_600_000;
        let _ = table.put_expiring(&n.to_be_bytes(), b"who", Expiry::at_unix_ms(at)).unwrap();
    }
    (db, table)
}

fn live(table: &Table) -> usize {
    table.range(..).unwrap().count()
}

/// Writes enough that everything is merged, and a checkpoint.
fn merge(db: &Database) {
    let other = db.table("other").unwrap();
    let _ = other.put(b"k", b"v").unwrap();
    db.checkpoint().unwrap();
}

/// Kills the process: its writes are in the log only, and the next process merges them.
fn kill(env: &Arc<SimEnv>, db: Database, table: Table) -> Arc<SimEnv> {
    std::mem::forget((db, table));
    env.crash(CrashKind::Kill, 2)
}

fn reopen(env: &Arc<SimEnv>, db: Database) -> (Database, Table) {
    db.close().unwrap();
    let db = open(env.clone()).unwrap();
    let table = db.table("sessions").unwrap();
    (db, table)
}

#[test]
fn one_jump_of_the_clock_takes_no_key_away() {
    let env = SimEnv::new(1);
    let (db, table) = sessions(&env);
    env.jump_wall_clock(FIFTY_YEARS_MS);
    let _ = table.put(b"one commit", b"while the clock is wrong").unwrap();
    assert_eq!(db.stats().clock.state, ClockState::Doubts);
    merge(&db);
    env.jump_wall_clock(-FIFTY_YEARS_MS);
    assert_eq!(live(&table), KEYS as usize + 1);
    // And new ones can be stored, now and in the next life.
    let _ = table.put_expiring(b"new", b"", Duration::from_secs(60)).unwrap();
    assert_eq!(live(&table), KEYS as usize + 2);
    drop(table);
    let (db, table) = reopen(&env, db);
    assert_eq!(live(&table), KEYS as usize + 2);
    let _ = table.put_expiring(b"newer", b"", Duration::from_secs(60)).unwrap();
    assert_eq!(live(&table), KEYS as usize + 3);
    assert_eq!(db.stats().clock.state, ClockState::Follows);
    env.advance(Duration::from_secs(2 * 3600));
    assert_eq!(live(&table), KEYS as usize / 2 + 1);
}

#[test]
fn a_clock_that_is_wrong_at_open_takes_no_key_away() {
    for jump_ms in [300 * DAY_MS, FIFTY_YEARS_MS] {
        let env = SimEnv::new(1);
        let (db, table) = sessions(&env);
        let env = kill(&env, db, table);
        env.jump_wall_clock(jump_ms);
        let mut db = open(env.clone()).unwrap();
        let mut table = db.table("sessions").unwrap();
        for _ in 0..3 {
            merge(&db);
            // A jump of fifty years hides nothing; one of 300 days may be right.
            assert_eq!(live(&table), if jump_ms == FIFTY_YEARS_MS { KEYS as usize } else { 0 });
            let _ = table.put(b"one", b"commit").unwrap();
            let _ = table.delete(b"one").unwrap();
            drop(table);
            (db, table) = reopen(&env, db);
        }
        env.jump_wall_clock(-jump_ms);
        drop(table);
        db.close().unwrap();
        let reset = Database::reset_clock_with(env.clone(), PATH, options()).unwrap();
        assert!(reset.after_ms <= wall_ms(&env));
        let db = open(env.clone()).unwrap();
        assert_eq!(live(&db.table("sessions").unwrap()), KEYS as usize, "jump by {jump_ms} ms");
        assert_eq!(db.stats().clock.state, ClockState::Follows);
    }
}

#[test]
fn keys_that_expired_while_the_database_was_closed_are_removed_when_the_time_is_confirmed() {
    let env = SimEnv::new(1);
    let (db, table) = sessions(&env);
    let env = kill(&env, db, table);
    env.jump_wall_clock(30 * DAY_MS);
    let db = open(env.clone()).unwrap();
    let table = db.table("sessions").unwrap();
    assert_eq!((live(&table), db.stats().clock.state), (0, ClockState::Unconfirmed));
    env.advance(Duration::from_secs(3601));
    assert_eq!((live(&table), db.stats().clock.state), (0, ClockState::Follows));
    merge(&db);
    assert_eq!(table.len_estimate(), 0);
}

#[test]
fn a_database_that_jumped_before_has_a_way_back() {
    let env = SimEnv::new(1);
    env.jump_wall_clock(FIFTY_YEARS_MS);
    let db = open(env.clone()).unwrap();
    let table = db.table("sessions").unwrap();
    let _ = table.put(b"k", b"v").unwrap();
    drop((db, table));
    env.jump_wall_clock(-FIFTY_YEARS_MS);
    let expires_at_ms = wall_ms(&env) + 600_000;
    let db = open(env.clone()).unwrap();
    let table = db.table("sessions").unwrap();
    let _ = table.put_expiring(b"lease", b"", Expiry::at_unix_ms(expires_at_ms)).unwrap();
    assert!(table.get(b"lease").unwrap().is_none(), "it has expired by the wrong clock");
    merge(&db);
    env.advance(Duration::from_secs(5));
    assert_eq!(db.stats().clock.state, ClockState::Doubts);
    // Killed, so that the wrong times are in the log, too.
    std::mem::forget((db, table));
    let env = env.crash(CrashKind::PowerCut, 2);
    let reset = Database::reset_clock_with(env.clone(), PATH, options()).unwrap();
    assert!(reset.before_ms - reset.after_ms > (FIFTY_YEARS_MS - DAY_MS).unsigned_abs());
    for _ in 0..2 {
        let db = open(env.clone()).unwrap();
        assert_eq!(db.stats().clock.state, ClockState::Follows);
        assert_eq!(live(&db.table("sessions").unwrap()), 2);
        db.close().unwrap();
    }
}

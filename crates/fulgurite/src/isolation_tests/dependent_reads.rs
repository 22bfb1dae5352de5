//! Reads that say which commits have to be durable before their results may leave the process (INV-TXN-17).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite_env::SimEnv;
use fulgurite_env::sim::CrashKind;

use super::support::*;
use crate::{Csn, Database, Durability, Error, Found, Missing, Options, Result, Table, Transaction};

const ASYNC: Durability = Durability::Async { interval: Duration::from_secs(3600) };

/// A database whose log is flushed only by threads that wait for it, with a table.
fn quiet(env: &Arc<SimEnv>) -> (Database, Table) {
    let db = open(env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    (db, table)
}

/// Commits without waiting; returns the number.
fn write(db: &Database, level: Durability, body: impl FnOnce(&mut Transaction) -> Result<()>) -> Csn {
    let mut txn = db.begin();
    txn.set_durability(level).unwrap();
    body(&mut txn).unwrap();
    txn.commit_deferred().unwrap().csn()
}

fn fields_of(found: &Found) -> (Option<String>, Csn, Csn) {
    (found.value.clone().map(text), found.csn, found.needs)
}

#[test]
fn a_commit_that_waits_for_nothing_shows_one_on_its_way_and_a_read_says_so() {
    for level in [ASYNC, Durability::None] {
        let env = SimEnv::new(1);
        let (db, table) = quiet(&env);
        table.put("k", "old").unwrap();
        let synchronous = write(&db, Durability::Sync, |txn| txn.put(&table, "k", "new"));
        assert_eq!(table.read_at("k", Csn::ZERO).unwrap().value.unwrap(), "old");
        let asynchronous = write(&db, level, |txn| txn.put(&table, "other", "v"));
        // What `get` shows from now on is not durable.
        assert_eq!(table.get("k").unwrap().unwrap(), "new");
        for found in [table.read_at("k", Csn::ZERO).unwrap(), table.try_read_at("k", Csn::ZERO).unwrap()] {
            assert_eq!(fields_of(&found), (Some("new".into()), synchronous, synchronous), "{level:?}");
        }
        // The other commit may have read the first one.
        let other = table.read_at("other", Csn::ZERO).unwrap();
        assert_eq!(fields_of(&other), (Some("v".into()), asynchronous, synchronous));
        assert_eq!(db.snapshot().needs(), synchronous);
        // Without durability the value is lost: a reply before it would have told of what never was.
        let lost = open(&env.crash(CrashKind::PowerCut, 1), Options::default());
        assert_eq!(lost.table("t").unwrap().get("k").unwrap().unwrap(), "old");
        db.wait_durable(synchronous).unwrap();
        assert_eq!(table.read_at("k", Csn::ZERO).unwrap().needs, Csn::ZERO);
        assert_eq!(table.read_at("other", Csn::ZERO).unwrap().needs, Csn::ZERO);
        assert_eq!(db.snapshot().needs(), Csn::ZERO);
        let kept = open(&env.crash(CrashKind::PowerCut, 2), Options::default());
        assert_eq!(kept.table("t").unwrap().get("k").unwrap().unwrap(), "new");
    }
}

#[test]
fn what_hides_a_key_is_what_the_read_depends_on() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    for key in ["deleted", "range", "expired", "replaced"] {
        table.put(key, "v").unwrap();
    }
    db.checkpoint().unwrap();
    let deleted = write(&db, Durability::Sync, |txn| txn.delete(&table, "deleted"));
    let range = write(&db, Durability::Sync, |txn| txn.delete_range(&table, "r".."rb"));
    let expired = write(&db, Durability::Sync, |txn| {
        txn.put_expiring(&table, "expired", "w", Duration::from_millis(1))
    });
    env.advance(Duration::from_secs(1));
    let read = |key: &str, at: Csn| fields_of(&table.read_at(key, at).unwrap());
    // Their own commits are seen by the thread that made them, and by no other.
    assert_eq!(read("deleted", Csn::ZERO).0, Some("v".into()));
    assert_eq!(read("deleted", deleted), (None, deleted, deleted));
    assert_eq!(read("range", deleted).0, Some("v".into()));
    assert_eq!(read("range", range), (None, range, range));
    assert_eq!(read("expired", range).0, Some("v".into()));
    assert_eq!(read("expired", expired), (None, expired, expired));
    assert_eq!(read("expired", Csn::MAX), (None, expired, expired));
    let both = write(&db, Durability::Sync, |txn| {
        txn.delete_range(&table, "r".."rb")?;
        txn.put(&table, "range", "w")
    });
    assert_eq!(read("range", both), (Some("w".into()), both, both));
    assert_eq!(read("never", Csn::MAX), (None, Csn::ZERO, Csn::ZERO));
    db.wait_durable(both).unwrap();
    assert_eq!(read("deleted", Csn::ZERO), (None, deleted, Csn::ZERO));
    assert_eq!(read("expired", Csn::ZERO), (None, expired, Csn::ZERO));
    // Pruned: nothing is known of them any more, and nothing is needed.
    db.checkpoint().unwrap();
    assert_eq!(read("deleted", Csn::ZERO), (None, Csn::ZERO, Csn::ZERO));
    assert_eq!(read("expired", Csn::ZERO), (None, Csn::ZERO, Csn::ZERO));
    assert_eq!(read("range", Csn::ZERO), (Some("w".into()), both, Csn::ZERO));
}

#[test]
fn a_database_without_synchronous_commits_needs_nothing() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    let before = db.stats().durable;
    for n in 0..50u32 {
        let csn = write(&db, Durability::None, |txn| txn.put(&table, "k", n.to_string()));
        let found = table.read_at("k", Csn::ZERO).unwrap();
        assert_eq!(fields_of(&found), (Some(n.to_string()), csn, Csn::ZERO));
    }
    assert_eq!(db.stats().durable, before, "nothing was flushed");
}

/// A look-up moves up to a newer CSN than it was given where range tombstones were dropped meanwhile: what it finds there may
/// have got its number after the read began.
#[test]
fn a_commit_that_becomes_visible_during_the_read_counts() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    table.put("k", "v").unwrap();
    let (hooked, reader) = (AtomicBool::new(false), table.clone());
    let (writer, written) = (db.clone(), table.clone());
    let commits = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noted = commits.clone();
    db.engine().hooks.set("read CSN taken", move || {
        if hooked.swap(true, Ordering::Relaxed) {
            return;
        }
        // When the last one is applied, no reader needs the first two any more.
        for level in [Durability::Sync, Durability::Sync, Durability::None, Durability::None] {
            noted.lock().push(write(&writer, level, |txn| txn.delete_range(&written, "a".."z")));
        }
    });
    let found = reader.read_at("k", Csn::ZERO).unwrap();
    db.engine().hooks.clear();
    let commits = commits.lock();
    assert_eq!(fields_of(&found), (None, commits[2], commits[1]));
}

/// INV-TXN-14: what has expired is judged in a snapshot, which sees the caller's own commit, too.
#[test]
fn a_read_that_asks_a_snapshot_sees_the_own_commit_and_depends_on_it() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    let mut txn = db.begin();
    txn.put_expiring(&table, "k", "lease", Duration::from_secs(1)).unwrap();
    txn.commit().unwrap();
    let own =
        write(&db, Durability::Sync, |txn| txn.put_expiring(&table, "k", "renewed", Duration::from_secs(5)));
    env.advance(Duration::from_secs(2));
    assert_eq!(fields_of(&table.read_at("k", Csn::ZERO).unwrap()).0, None, "the lease that others see");
    let mine = table.read_at("k", own).unwrap();
    assert_eq!(fields_of(&mine), (Some("renewed".into()), own, own));
    assert!(mine.expires_at.is_some());
    env.advance(Duration::from_secs(10));
    assert_eq!(fields_of(&table.read_at("k", own).unwrap()), (None, own, own));
}

#[test]
fn a_transaction_says_what_its_reads_depend_on() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    table.put("durable", "v").unwrap();
    let csn = write(&db, Durability::Sync, |txn| txn.put(&table, "k", "v"));
    let txn = db.begin();
    assert_eq!(txn.read(&table, b"durable"), Some("v".into()));
    assert_eq!(txn.needs(), Csn::ZERO);
    assert_eq!(txn.read(&table, b"k"), Some("v".into()));
    assert_eq!(txn.needs(), csn);
    db.wait_durable(csn).unwrap();
    assert_eq!(txn.needs(), Csn::ZERO);
}

#[test]
fn the_newest_write_is_known_until_a_delete_is_pruned() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    let newest = |key: &str| {
        let csn = table.newest_csn(key).unwrap();
        assert_eq!(table.try_newest_csn(key).unwrap(), csn);
        csn
    };
    assert_eq!(newest("k"), Csn::ZERO);
    // Visible is enough: a transaction that begins now sees it.
    let put = write(&db, Durability::Sync, |txn| txn.put(&table, "k", "v"));
    assert_eq!(newest("k"), put);
    assert_eq!(table.read_at("k", put).unwrap().csn, put);
    db.checkpoint().unwrap();
    assert_eq!(newest("k"), put, "merged");
    let range = write(&db, Durability::None, |txn| txn.delete_range(&table, "j".."l"));
    assert_eq!(newest("k"), range);
    let before = db.begin();
    let deleted = write(&db, Durability::None, |txn| txn.delete(&table, "k"));
    assert_eq!(newest("k"), deleted);
    db.checkpoint().unwrap();
    assert_eq!(newest("k"), deleted, "a transaction is left that began before the delete");
    drop(before);
    table.put("k2", "v").unwrap();
    table.delete("k2").unwrap();
    for _ in 0..4 {
        db.checkpoint().unwrap();
    }
    assert_eq!(newest("k2"), Csn::ZERO);
    db.drop_table("t").unwrap();
    assert!(matches!(table.newest_csn("k"), Err(Error::TableDropped { .. })));
    assert!(matches!(table.read_at("k", Csn::ZERO), Err(Error::TableDropped { .. })));
}

/// What each commit of a random history did to the keys.
#[derive(Default)]
struct History {
    commits: BTreeMap<Csn, (bool, Vec<Op>)>,
}

enum Op {
    Put(u64, u64),
    Delete(u64),
    DeleteRange(u64, u64),
}

impl History {
    /// The value of a key at a CSN, and the commit that wrote it last.
    fn at(&self, key: u64, csn: Csn) -> (Option<u64>, Csn) {
        for (at, (_, ops)) in self.commits.range(..=csn).rev() {
            let mut found = None;
            for op in ops {
                match *op {
                    Op::Put(put, value) if put == key => found = Some(Some(value)),
                    Op::Delete(deleted) if deleted == key => found = Some(None),
                    Op::DeleteRange(from, to) if (from..to).contains(&key) => found = Some(None),
                    _ => {}
                }
            }
            if let Some(value) = found {
                return (value, *at);
            }
        }
        (None, Csn::ZERO)
    }

    /// The newest commit at or below `csn` that waits for durability.
    fn synchronous(&self, csn: Csn) -> Csn {
        let mut synchronous = self.commits.range(..=csn).rev().filter(|(_, (waits, _))| *waits);
        synchronous.next().map_or(Csn::ZERO, |(csn, _)| *csn)
    }
}

const KEYS: u64 = 12;

fn key(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

fn random_write(db: &Database, table: &Table, history: &mut History, random: &mut Random) -> Csn {
    let level = [Durability::Sync, ASYNC, Durability::None][random.below(3) as usize];
    let mut ops = Vec::new();
    let csn = write(db, level, |txn| {
        if random.below(4) == 0 {
            txn.get(table, key(random.below(KEYS)))?;
        }
        for _ in 0..=random.below(2) {
            let (n, value) = (random.below(KEYS), random.below(1 << 40));
            match random.below(8) {
                0..5 => {
                    txn.put(table, key(n), value.to_string().repeat(1 + random.below(200) as usize))?;
                    ops.push(Op::Put(n, value));
                }
                5 | 6 => {
                    txn.delete(table, key(n))?;
                    ops.push(Op::Delete(n));
                }
                _ => {
                    let to = n + 1 + random.below(3);
                    txn.delete_range(table, key(n)..key(to))?;
                    ops.push(Op::DeleteRange(n, to));
                }
            }
        }
        Ok(())
    });
    history.commits.insert(csn, (level.waits(), ops));
    csn
}

/// Checks a read against the history.
fn random_read(db: &Database, table: &Table, history: &History, random: &mut Random, own: Csn) -> Found {
    let n = random.below(KEYS);
    let at = [Csn::ZERO, own, Csn::MAX][random.below(3) as usize];
    let pipeline = &db.engine().pipeline;
    let effective = pipeline.read_csn().max(at.min(pipeline.visible()));
    let found = table.read_at(key(n), at).unwrap();
    let (value, csn) = history.at(n, effective);
    let is_value = |found: &crate::Value, value: u64| found.starts_with(value.to_string().as_bytes());
    match (&found.value, value) {
        (Some(found), Some(value)) => assert!(is_value(found, value), "key {n} at {effective}"),
        (None, None) => {}
        (found, value) => panic!("key {n} at {effective}: {found:?} instead of {value:?}"),
    }
    let durable = db.stats().durable;
    let is_pruned = found.csn < csn && value.is_none() && csn <= durable;
    assert!(found.csn == csn || is_pruned, "key {n} at {effective}: {} instead of {csn}", found.csn);
    let synchronous = history.synchronous(found.csn);
    match found.needs {
        Csn::ZERO => assert!(synchronous <= durable, "key {n} at {effective} needs {synchronous}"),
        needs => assert!(synchronous <= needs && needs <= found.csn && needs > durable),
    }
    assert!(table.newest_csn(key(n)).unwrap() <= history.at(n, Csn::MAX).1);
    found
}

/// Mixed levels on a disk that loses power: every result that was free to leave is true afterwards, or superseded.
#[test]
fn no_result_that_was_free_to_leave_is_undone_by_a_power_cut() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 1..=30 {
        let env = SimEnv::new(seed);
        let (db, table) = quiet(&env);
        let (mut history, mut reads, mut random) = (History::default(), Vec::new(), Random(seed * 7919));
        let mut newest = Csn::ZERO;
        for _ in 0..100 + random.below(200) {
            match random.below(40) {
                0..20 => newest = random_write(&db, &table, &mut history, &mut random),
                20..37 => reads.push(random_read(&db, &table, &history, &mut random, newest)),
                37 => db.wait_durable(Csn(random.below(newest.0 + 1))).unwrap(),
                38 => _ = db.maintain().unwrap(),
                _ if random.below(4) == 0 => drop(db.checkpoint().unwrap()),
                _ => {}
            }
        }
        let durable = db.stats().durable;
        let db = open(&env.crash(CrashKind::PowerCut, seed), Options::default());
        let table = db.table("t").unwrap();
        let left = db.snapshot().csn();
        assert!(left >= durable);
        for n in 0..KEYS {
            let found = table.get(key(n)).unwrap().map(text);
            let value = history.at(n, left).0.map(|value| value.to_string());
            assert_eq!(found.is_some(), value.is_some());
            assert!(found.is_none_or(|found| found.starts_with(&value.unwrap())));
        }
        for read in reads {
            let is_free = read.needs <= durable;
            let is_true = history.synchronous(read.csn) <= left;
            assert!(is_true || !is_free, "seed {seed}: commit {} is lost, {} are left", read.csn, left);
            kept += u64::from(is_free);
            lost += u64::from(!is_true);
        }
    }
    assert!(kept > 1000 && lost > 100, "{kept} results were free to leave, and {lost} were undone");
}

/// A commit without a ticket may be numbered while an earlier one is still being applied.
#[test]
fn a_read_at_a_commit_that_is_not_visible_yet_waits_for_it() {
    let (db, table) = one_table();
    let meeting = Meeting::new();
    let held = meeting.clone();
    db.engine().hooks.set("numbered", move || held.hold_first());
    std::thread::scope(|scope| {
        let (other, own) = (db.clone(), table.clone());
        scope.spawn(move || {
            let mut txn = other.begin();
            txn.put(&own, b"first", b"v").unwrap();
            txn.commit_numbered().unwrap()
        });
        meeting.wait_for(1);
        let mut txn = db.begin();
        txn.put(&table, b"second", b"v").unwrap();
        let second = txn.commit_numbered().unwrap();
        let found = table.try_read_at(b"second", second.csn);
        assert!(matches!(found, Err(Error::WouldBlock(Missing::Order))), "{found:?}");
        let own = table.clone();
        let reader = scope.spawn(move || own.read_at(b"second", second.csn).unwrap());
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        assert!(!reader.is_finished());
        meeting.open();
        let found = reader.join().unwrap();
        assert_eq!((found.csn, found.value.unwrap().to_vec()), (second.csn, b"v".to_vec()));
    });
    // No commit has this number.
    assert!(table.read_at(b"second", Csn(1_000_000)).unwrap().value.is_some());
}

/// A transaction depends on the last write to each key that it read, not on all commits that it saw.
#[test]
fn a_transaction_needs_the_writes_that_it_found() {
    let env = SimEnv::new(1);
    let (db, table) = quiet(&env);
    table.put("old", "v").unwrap();
    let deleted = write(&db, Durability::Sync, |txn| txn.delete(&table, "deleted"));
    let ranged = write(&db, Durability::Sync, |txn| txn.delete_range(&table, "r".."s"));
    let unwaited = write(&db, Durability::None, |txn| txn.put(&table, "none", "v"));
    let newest = write(&db, Durability::Sync, |txn| txn.put(&table, "new", "v"));
    for (key, needs) in [
        ("old", Csn::ZERO),
        ("never", Csn::ZERO),
        ("deleted", deleted),
        ("ranged", ranged),
        // It may have read what came before it.
        ("none", unwaited),
        ("new", newest),
    ] {
        for attempts in [false, true] {
            let txn = db.begin();
            let found = if attempts { txn.try_get(&table, key) } else { txn.get(&table, key) };
            assert_eq!(found.unwrap().is_some(), !["never", "deleted", "ranged"].contains(&key));
            assert_eq!(txn.needs(), needs, "{key}");
            assert_eq!(txn.commit_numbered().unwrap().needs, needs, "{key}");
        }
    }
    db.wait_durable(newest).unwrap();
    let txn = db.begin();
    assert!(txn.get(&table, "deleted").unwrap().is_none());
    assert_eq!(txn.needs(), Csn::ZERO);
}

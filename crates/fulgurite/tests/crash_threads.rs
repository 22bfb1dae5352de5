//! Threads commit while others merge and checkpoint, until the machine stops. Which commits the stop interrupts differs
//! from run to run; the conditions do not: no commit that was acknowledged as durable is missing, and no transaction is
//! there in part. The commits that share a write are of all levels; one that was acknowledged before it was durable may
//! be missing.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::rng::Rng;
use common::verify::guarded;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Durability, Options, Table};

const WRITERS: u64 = 3;
const ACCOUNTS: u64 = 20;
const SUM: u64 = 1000 * ACCOUNTS;

/// The levels that the rounds take in turn.
const LEVELS: [Durability; 5] = [
    Durability::Sync,
    Durability::Async { interval: Duration::from_millis(1) },
    Durability::None,
    Durability::Sync,
    Durability::Async { interval: Duration::from_secs(1) },
];

/// The progress of each writer.
#[derive(Default)]
struct Progress {
    attempted: AtomicU64,
    acknowledged: AtomicU64,
}

/// Without staging, or with it.
fn options(stages: bool) -> Options {
    let options = if stages { common::staged() } else { common::options() };
    Options { background: true, ..options }
}

fn open(sim: &Arc<SimEnv>, stages: bool) -> fulgurite::Result<Database> {
    Database::open_with(sim.clone(), common::PATH, options(stages), |_| {})
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("a value begins with its round"))
}

/// A value of this round: some are stored in the leaf, some in the log, some in chunks.
fn value(writer: u64, round: u64, nth: u64) -> Vec<u8> {
    let len = match (round + nth) % 9 {
        0 => 1_500,
        1 if round % 40 == 3 => 140_000,
        _ => 30,
    };
    let mut bytes = round.to_le_bytes().to_vec();
    bytes.extend(Rng::new(writer << 40 | round << 8 | nth).bytes(len));
    bytes
}

/// Each round writes five keys to the same round number, until the machine stops.
fn write(db: &Database, table: &Table, writer: u64, progress: &Progress, stages: bool) {
    let mut round = progress.acknowledged.load(Ordering::SeqCst);
    loop {
        round += 1;
        progress.attempted.store(round, Ordering::SeqCst);
        let mut txn = db.begin();
        for nth in 0..5 {
            let key = format!("writer {writer} {nth}");
            if txn.put(table, key.as_bytes(), &value(writer, round, nth)).is_err() {
                return;
            }
        }
        let mut level = LEVELS[(round + writer) as usize % LEVELS.len()];
        if stages && level == Durability::Sync && round % 4 < 2 {
            level = Durability::Staged;
        }
        txn.set_durability(level).expect("every database has these levels");
        let committed = match round % 3 {
            0 => txn.commit_deferred().and_then(|ticket| ticket.wait()),
            _ => txn.commit(),
        };
        if committed.is_err() {
            return;
        }
        if level.waits() || level == Durability::Staged {
            progress.acknowledged.store(round, Ordering::SeqCst);
        }
    }
}

/// Moves amounts between accounts; the sum stays.
fn transfer(db: &Database, accounts: &Table, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
        let moved = db.transact(|txn| {
            let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
            let balance = number(&txn.get(accounts, &from)?.expect("the account exists"));
            if from == to || balance == 0 {
                return Ok(());
            }
            let other = number(&txn.get(accounts, &to)?.expect("the account exists"));
            txn.put(accounts, &from, &(balance - 1).to_le_bytes())?;
            txn.put(accounts, &to, &(other + 1).to_le_bytes())
        });
        if moved.is_err() {
            return;
        }
    }
}

fn prepare(db: &Database) -> (Table, Table) {
    let (rounds, accounts) = (db.table("rounds").unwrap(), db.table("accounts").unwrap());
    db.transact(|txn| {
        for account in 0..ACCOUNTS {
            if txn.get(&accounts, &account.to_be_bytes())?.is_none() {
                txn.put(&accounts, &account.to_be_bytes(), &1000u64.to_le_bytes())?;
            }
        }
        Ok(())
    })
    .unwrap();
    (rounds, accounts)
}

fn live(sim: &Arc<SimEnv>, progress: &[Progress], seed: u64, stages: bool) {
    let db = open(sim, stages).unwrap();
    let (rounds, accounts) = prepare(&db);
    let faults = sim.faults();
    faults.crash_at(faults.op_count() + 200 + Rng::new(seed).below(1_500));
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, progress) in progress.iter().enumerate() {
            let (db, rounds) = (&db, &rounds);
            scope.spawn(move || write(db, rounds, writer as u64, progress, stages));
        }
        scope.spawn(|| transfer(&db, &accounts, seed));
        scope.spawn(|| {
            while !stopped.load(Ordering::SeqCst) && db.checkpoint().is_ok() {
                std::thread::yield_now();
            }
        });
        while !faults.has_crashed() {
            let sum = db.snapshot().range(&accounts, ..).map(|scan| {
                scan.map(|entry| entry.map(|(_, balance)| number(&balance))).sum::<fulgurite::Result<u64>>()
            });
            if let Ok(Ok(sum)) = sum {
                assert_eq!(sum, SUM, "a snapshot saw part of a transfer");
            }
        }
        stopped.store(true, Ordering::SeqCst);
    });
}

fn look(db: &Database, progress: &[Progress]) -> Result<(), String> {
    let failed = |error: fulgurite::Error| error.to_string();
    let (rounds, accounts) =
        (db.open_table("rounds").map_err(failed)?, db.open_table("accounts").map_err(failed)?);
    for (writer, progress) in progress.iter().enumerate() {
        let least = progress.acknowledged.load(Ordering::SeqCst);
        let most = progress.attempted.load(Ordering::SeqCst);
        let mut found = None;
        for nth in 0..5 {
            let key = format!("writer {writer} {nth}");
            let bytes = rounds.get(key.as_bytes()).map_err(failed)?;
            let round = bytes.as_deref().map_or(0, number);
            if bytes.is_some_and(|bytes| bytes != value(writer as u64, round, nth)) {
                return Err(format!("{key} has other bytes than round {round} wrote"));
            }
            if *found.get_or_insert(round) != round {
                return Err(format!("writer {writer}: rounds {found:?} and {round} are both there in part"));
            }
        }
        let round = found.unwrap_or(0);
        if round < least || round > most {
            return Err(format!(
                "writer {writer} is at round {round}; {least} was acknowledged, {most} tried"
            ));
        }
        progress.acknowledged.store(round, Ordering::SeqCst);
        progress.attempted.store(round, Ordering::SeqCst);
    }
    let balances = accounts.range(..).map_err(failed)?;
    let sum = balances.map(|entry| entry.map(|(_, balance)| number(&balance))).sum::<Result<u64, _>>();
    match sum.map_err(failed)? {
        SUM => {}
        sum => return Err(format!("the accounts hold {sum}, not {SUM}")),
    }
    let problems = db.check(|_| {}).map_err(failed)?.problems;
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

#[test]
fn threads_lose_nothing_that_was_acknowledged() {
    run(false);
}

/// Acknowledged once they are staged in persistent memory.
#[test]
fn threads_lose_nothing_that_was_staged() {
    run(true);
}

fn run(stages: bool) {
    let runs = common::setting("FULGURITE_CRASH_RUNS").unwrap_or(6);
    let mut acknowledged = 0;
    for seed in 1..=runs {
        let progress: Vec<Progress> = (0..WRITERS).map(|_| Progress::default()).collect();
        let mut sim = SimEnv::new(seed);
        for life in 0..3 {
            live(&sim, &progress, seed << 8 | life, stages);
            let kind = if life == 1 { CrashKind::Kill } else { CrashKind::PowerCut };
            sim = sim.crash(kind, seed << 8 | life);
            let outcome = guarded(|| {
                let db = open(&sim, stages).map_err(|error| format!("opening failed: {error}"))?;
                look(&db, &progress)
            });
            outcome.unwrap_or_else(|what| panic!("run {seed}, life {life}, {kind:?}: {what}"));
        }
        acknowledged += progress.iter().map(|p| p.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
    }
    println!("{runs} runs, 3 lives each, {acknowledged} rounds");
    assert!(acknowledged > 0);
}

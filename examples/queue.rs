//! A job queue with several workers: `cargo run --example queue`. It leaves `./data` behind.
//!
//! A job is an entry of the table `jobs`; keys sort, so the first key is the next job. A worker takes a job and writes
//! what came of it in one transaction: if it fails, or the process dies, the job is there again, at its place.

use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite::{Database, Error, Options, Result, Table};

/// Urgent jobs first, then in the order in which they came.
fn key(priority: u8, number: u64) -> [u8; 9] {
    let mut key = [priority; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number after the last one of a priority, from where the process that ran before has stopped.
fn next_number(table: &Table, priority: u8) -> Result<u64> {
    let last = table.last(key(priority, 0)..=key(priority, u64::MAX))?;
    Ok(last.map_or(0, |(key, _)| u64::from_be_bytes(key[1..].try_into().expect("nine bytes")) + 1))
}

/// What a job is about; every hundredth attempt fails.
fn work(job: &[u8], attempt: u64) -> std::result::Result<String, String> {
    if attempt % 100 == 99 {
        return Err("the printer is on fire".to_string());
    }
    Ok(String::from_utf8_lossy(job).to_uppercase())
}

/// Takes one job and does it; false if there is none that no other worker has.
fn take_one(db: &Database, jobs: &Table, done: &Table, attempts: &AtomicU64) -> Result<bool> {
    let mut txn = db.begin();
    // Passes over what other workers have taken and not committed yet: no worker waits for another, none conflicts.
    let Some((key, job)) = txn.pop_first_unclaimed(jobs, ..)? else { return Ok(false) };
    match work(&job, attempts.fetch_add(1, Ordering::Relaxed)) {
        Ok(result) => {
            txn.put(done, &key, result)?;
            txn.commit()?; // the job is gone and its result is there, both durable
        }
        // The transaction is dropped: the job is the first one again. To try it later, commit it under another key.
        Err(why) => println!("{}: {why}", String::from_utf8_lossy(&job)),
    }
    Ok(true)
}

fn main() -> Result<()> {
    let db = Database::open("./data", Options::default())?;
    let (jobs, done) = (db.table("jobs")?, db.table("done")?);

    // Jobs are put one by one, each durable when `put` returns, or many in a transaction.
    let first = next_number(&jobs, 1)?.max(next_number(&done, 1)?);
    let mut txn = db.begin();
    for number in first..first + 1000 {
        txn.put(&jobs, key(1, number), format!("job {number}"))?;
    }
    txn.put(&jobs, key(0, first), "an urgent one")?;
    txn.commit()?;

    // Workers in this process; a queue that was not empty when a process ended is where it was.
    let attempts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let work = || -> Result<u64> {
            let mut count = 0;
            while take_one(&db, &jobs, &done, &attempts)? {
                count += 1;
            }
            Ok(count)
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            println!("a worker took {} jobs", worker.join().expect("a worker that does not panic")?);
        }
        Ok::<_, Error>(())
    })?;

    // What cannot wait is looked at, and not taken.
    match jobs.first(..)? {
        Some((_, job)) => println!("left: {}", String::from_utf8_lossy(&job)),
        None => println!("{} jobs are done", done.range(..)?.count()),
    }
    db.close()
}

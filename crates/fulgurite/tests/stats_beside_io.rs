//! `stats()` waits for no write, sync, or change of a directory: it is asked before each of them, by another thread.

mod common;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::tap::{Op, Tap};
use fulgurite::env::sim::SimEnv;
use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, limits};

/// A call that takes this long waits for the thread that is about to do the operation.
const FOR_EVER: Duration = Duration::from_secs(20);

/// The thread that asks, and the first operation during which it got no answer.
#[derive(Default)]
struct Asker {
    requests: Mutex<Option<Sender<Sender<()>>>>,
    asked: Mutex<u64>,
    silent_during: Mutex<Option<String>>,
}

impl Asker {
    fn ask(&self, op: &Op<'_>) {
        let Some(requests) = self.requests.lock().unwrap().clone() else { return };
        let (reply, replied) = channel();
        requests.send(reply).unwrap();
        *self.asked.lock().unwrap() += 1;
        if replied.recv_timeout(FOR_EVER).is_err() {
            self.silent_during.lock().unwrap().get_or_insert(op.to_string());
            // The requests end with the first failure.
            self.requests.lock().unwrap().take();
        }
    }
}

#[test]
fn stats_are_there_while_the_disk_works() {
    let asker = Arc::new(Asker::default());
    let observing = asker.clone();
    let tap = Tap::new(&SimEnv::new(1), Box::new(move |_, op| observing.ask(&op)));
    let db = common::open(tap).unwrap();
    let (sender, requests) = channel::<Sender<()>>();
    *asker.requests.lock().unwrap() = Some(sender);
    let asked = db.clone();
    let thread = RealEnv::new().spawn(
        "asks",
        Box::new(move || {
            for reply in requests {
                assert!(asked.stats().poisoned.is_none());
                _ = reply.send(());
            }
        }),
    );
    work(&db);
    asker.requests.lock().unwrap().take();
    assert!(thread.unwrap().join());
    assert_eq!(*asker.silent_during.lock().unwrap(), None);
    let asked = *asker.asked.lock().unwrap();
    assert!(asked > 300, "only {asked} operations");
}

/// Work that makes, leaves and frees segments of both streams.
fn work(db: &Database) {
    let table = db.table("t").unwrap();
    for round in 0..4u8 {
        for n in 0..2_000u32 {
            table.put(n.to_be_bytes(), vec![round; 150 + n as usize % 100]).unwrap();
        }
        for n in 0..8u32 {
            table.put([n as u8], vec![round; limits::SPILL_BYTES_MIN * 2]).unwrap();
        }
        let other = db.table(&format!("t{round}")).unwrap();
        other.put("key", "value").unwrap();
        db.checkpoint().unwrap();
        db.maintain().unwrap();
        table.delete_range(..100u32.to_be_bytes()).unwrap();
        db.drop_table(&format!("t{round}")).unwrap();
    }
    assert!(db.stats().log.segments_freed > 0);
}

//! Helpers for the tests of workloads: a store on Fulgurite, and threads that run the operations of clients.

mod bed;

pub(crate) use self::bed::{Bed, Rows, is_near};

use std::sync::Arc;

use fulgurite::Options;
use tempfile::TempDir;

use crate::engine::{Engine, Level, Mode, Opening, Store, Transaction, Verdict};
use crate::retrying_session::RetryingSession;
use crate::workload::{Done, Filling, Step, Workload};
use crate::{FulguriteEngine, Result};

/// A new store that `workload` has filled. Its directory is removed on drop.
pub(crate) fn store(workload: &dyn Workload) -> (TempDir, Arc<dyn Store>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let engine =
        FulguriteEngine { name: "fulgurite".to_string(), options: Options::default(), missing: None };
    let opening =
        Opening { dir: dir.path(), tables: workload.tables(), cache_bytes: 16 << 20, level: Level::Memory };
    let store = engine.open(&opening).expect("a new store");
    workload.fill(&*store, &mut Filling::new(&mut |_| true)).expect("filling");
    (dir, store)
}

/// Each of `threads` threads does up to `steps` operations; they end sooner if their client has no more.
pub(crate) fn run(workload: &dyn Workload, store: &Arc<dyn Store>, threads: u32, steps: u64) -> Done {
    let kinds = workload.kinds().len();
    let mut done = Done { kinds: vec![0; kinds], rolled_back: vec![0; kinds] };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || run_client(workload, &**store, [thread, threads], steps)))
            .collect();
        for client in clients {
            for step in client.join().expect("a client that does not panic") {
                match step {
                    Step::Done(kind) => done.kinds[kind] += 1,
                    Step::RolledBack(kind) => done.rolled_back[kind] += 1,
                    Step::End => {}
                }
            }
        }
    });
    done
}

fn run_client(
    workload: &dyn Workload,
    store: &dyn Store,
    [thread, threads]: [u32; 2],
    steps: u64,
) -> Vec<Step> {
    let mut session = store.session().expect("a session");
    let mut session = RetryingSession::new(&mut *session, 0);
    let mut client = workload.client(thread, threads);
    let step = |_| client.step(&mut session).expect("an operation that works");
    (0..steps).map(step).take_while(|step| *step != Step::End).collect()
}

/// A filled store after up to `steps` operations on each of `threads` threads, which passed the workload's checks.
pub(crate) fn checked(workload: &dyn Workload, threads: u32, steps: u64) -> (TempDir, Arc<dyn Store>, Done) {
    let (dir, store) = store(workload);
    let done = run(workload, &store, threads, steps);
    workload.check(&*store, Some(&done)).expect("the store holds what it must");
    workload.check(&*store, None).expect("the store holds what it must at any moment");
    (dir, store, done)
}

/// Commits a change that the workload does not know of.
pub(crate) fn tamper(store: &Arc<dyn Store>, mut with: impl FnMut(&mut dyn Transaction) -> Result<()>) {
    let mut session = store.session().expect("a session");
    session
        .transact(Mode::Write, &mut |transaction| with(transaction).map(|()| Verdict::Commit))
        .expect("a transaction that works");
}

//! Tables that are used as queues: appended at one end, popped or deleted at the other.

use fulgurite_env::SimEnv;
use fulgurite_env::sim::CrashKind;

use super::support::*;
use crate::{Options, Table};

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Fragments and links of a table's range deletes.
fn room_of_range_deletes(table: &Table) -> (usize, usize) {
    let deletes = table.state.index.range_deletes();
    (deletes.len(), deletes.links())
}

/// A queue, or a retention window, deletes everything up to a key that rises. This once held a link for each delete in
/// each of as many fragments: 831 MiB after 6,000 deletes, and again at every open.
#[test]
fn deleting_up_to_a_rising_key_takes_the_same_room_after_many() {
    let env = SimEnv::new(1);
    let options = || Options { background: false, ..Options::default() };
    let db = open(&env, options());
    let table = db.table("t").unwrap();
    let mut snapshots = Vec::new();
    for n in 1..3_000 {
        table.put(&key(n), b"job").unwrap();
        let end = key(n);
        table.delete_range(..&end[..]).unwrap();
        if n % 1000 == 0 {
            snapshots.push((n, db.snapshot()));
        }
        let (fragments, links) = room_of_range_deletes(&table);
        assert!(fragments <= 4 + snapshots.len(), "{fragments} fragments after {n}");
        assert!(links <= 20, "{links} links after {n}");
    }
    for (n, snapshot) in &snapshots {
        let rows: Vec<_> = snapshot.range(&table, ..).unwrap().map(|row| row.unwrap().0.to_vec()).collect();
        assert_eq!(rows, [key(*n).to_vec()], "a snapshot sees what it saw");
    }
    let env = env.crash(CrashKind::PowerCut, 1);
    let db = open(&env, options());
    let table = db.table("t").unwrap();
    assert_eq!(room_of_range_deletes(&table), (1, 1), "replay joins them");
    assert_eq!(table.range(..).unwrap().count(), 1);
    // One checkpoint purges, the next one drops.
    table.put(b"\xff", b"").unwrap();
    db.checkpoint().unwrap();
    table.put(b"\xff", b"").unwrap();
    db.checkpoint().unwrap();
    assert_eq!(room_of_range_deletes(&table), (0, 0));
    assert_eq!(table.range(..).unwrap().count(), 2);
}

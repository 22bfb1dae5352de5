//! Prints the cost of each operation on memtables: `cargo run --release -p fulgurite-index --example memtables_bench`.

use std::time::Instant;

use fulgurite_index::VersionFlags;
use fulgurite_index::memtables::{BlockBuilder, BlockOp, Memtables, RecoveredBuilder, RecoveredOp};
use fulgurite_types::{Csn, Lsn, TableId, hash_key};

const TABLE: TableId = TableId(1);
const ENTRIES: u64 = 1_000_000;
const VALUE: [u8; 100] = [7; 100];

fn key(i: u64) -> [u8; 20] {
    let mut z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mut key = [0; 20];
    key[..8].copy_from_slice(&(z ^ (z >> 27)).to_be_bytes());
    key[8..16].copy_from_slice(&i.to_be_bytes());
    key
}

fn op(key: &[u8]) -> BlockOp<'_> {
    BlockOp {
        key,
        hash: hash_key(TABLE, key),
        flags: VersionFlags(0),
        expires_at_ms: 0,
        payload: &VALUE,
        value_offset: Some(100),
        checksum: 1,
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn measure<R>(what: &str, ops: u64, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    let ns = start.elapsed().as_nanos() as f64 / ops as f64;
    println!("{what:<58} {ns:>9.1} ns/op");
    result
}

fn single_inserts() -> Memtables {
    let memtables = Memtables::with_capacity(ENTRIES);
    let blocks: Vec<_> = measure("prepare a block of one operation", ENTRIES, || {
        let build = |i| {
            let key = key(i);
            let mut builder = BlockBuilder::new(TABLE, 1, 120);
            builder.push(op(&key));
            builder.finish()
        };
        (0..ENTRIES).map(build).collect()
    });
    let mut blocks = blocks.into_iter().zip(1..);
    for quarters in 1..=4u64 {
        let what = format!("random insert, one a commit, up to {} entries", ENTRIES / 4 * quarters);
        measure(&what, ENTRIES / 4, || {
            for (block, csn) in blocks.by_ref().take((ENTRIES / 4) as usize) {
                memtables.apply(block, Csn(csn), Lsn::new(1, 0));
            }
        });
    }
    memtables
}

fn gets(memtables: &Memtables, hashed: &[(u64, [u8; 20])]) {
    let hits = measure("get, hit, 1 M entries", ENTRIES, || {
        hashed.iter().filter(|(hash, key)| memtables.get(key, *hash, Csn::MAX).is_some()).count()
    });
    let absent: Vec<_> = (ENTRIES..2 * ENTRIES).map(|i| (hash_key(TABLE, &key(i)), key(i))).collect();
    measure("get, miss, filter of 1 M entries", ENTRIES, || {
        absent.iter().filter(|(hash, key)| memtables.get(key, *hash, Csn::MAX).is_some()).count()
    });
    let few = Memtables::new();
    let mut builder = BlockBuilder::new(TABLE, 1, 120);
    builder.push(op(&key(1)));
    few.apply(builder.finish(), Csn(1), Lsn::new(1, 0));
    few.freeze(Csn(1));
    let found = measure("get, miss, two nearly empty memtables", ENTRIES, || {
        absent.iter().filter(|(hash, key)| few.get(key, *hash, Csn::MAX).is_some()).count()
    });
    assert_eq!((hits, found), (ENTRIES as usize, 0));
}

fn sorted_blocks() {
    for (gap, what) in [(1, "dense"), (1000, "each between two others")] {
        let memtables = Memtables::with_capacity(ENTRIES);
        let blocks: Vec<_> = (0..1000u64)
            .map(|b| {
                let mut builder = BlockBuilder::new(TABLE, 1000, 108_000);
                for i in 0..1000u64 {
                    let key = if gap == 1 { b * 1000 + i } else { i * gap + b * 7919 % gap }.to_be_bytes();
                    builder.push(op(&key));
                }
                builder.finish()
            })
            .collect();
        measure(&format!("sorted blocks of 1000 operations, {what}"), ENTRIES, || {
            for (block, csn) in blocks.into_iter().zip(1..) {
                memtables.apply(block, Csn(csn), Lsn::new(1, 0));
            }
        });
    }
}

fn recovery() {
    for batch in [ENTRIES, ENTRIES / 4, ENTRIES / 16] {
        let memtables = Memtables::with_capacity(ENTRIES);
        measure(&format!("recovery, random keys, batches of {batch}"), ENTRIES, || {
            for start in (0..ENTRIES).step_by(batch as usize) {
                let mut builder = RecoveredBuilder::new(TABLE);
                for i in start..start + batch {
                    let key = key(i);
                    builder.push(RecoveredOp {
                        key: &key,
                        hash: hash_key(TABLE, &key),
                        csn: Csn(i + 1),
                        flags: VersionFlags(0),
                        expires_at_ms: 0,
                        payload: &VALUE,
                        value_lsn: Some(Lsn::new(1, 64)),
                        checksum: 0,
                    });
                }
                memtables.apply_recovered(builder.finish());
            }
        });
    }
}

fn scan(memtables: &Memtables) {
    let mut cursor = memtables.cursor(Csn::MAX);
    let rows = measure("forward scan of the memtables, random inserts", ENTRIES, || {
        memtables.order();
        memtables.seek(&mut cursor, &[]);
        let mut rows = 0;
        while cursor.key().is_some() {
            rows += 1;
            cursor.step().expect("nothing is merged");
        }
        rows
    });
    assert_eq!(rows, ENTRIES);
}

fn main() {
    let memtables = single_inserts();
    println!("{} bytes an entry", memtables.bytes() / ENTRIES);
    let hashed: Vec<_> =
        (0..ENTRIES).map(|i| i * 7919 % ENTRIES).map(|i| (hash_key(TABLE, &key(i)), key(i))).collect();
    gets(&memtables, &hashed);
    scan(&memtables);
    measure("drop a memtable, one block an entry", ENTRIES, || drop(memtables));
    sorted_blocks();
    recovery();
}

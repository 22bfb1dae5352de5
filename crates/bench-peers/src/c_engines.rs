//! The engines of C and their settings.

use fulgurite_bench::Engine;

use crate::c_engine::CEngine;
use crate::common::{ALL_LEVELS, WRITTEN_LEVELS};

/// The `struct peer_library` of a file of C, or the package that was missing when this crate was built.
macro_rules! library {
    ($peer:literal, $symbol:ident, $package:literal) => {{
        #[cfg(peer = $peer)]
        {
            unsafe extern "C" {
                safe static $symbol: crate::c_engine::Library;
            }
            Ok(&$symbol)
        }
        #[cfg(not(peer = $peer))]
        {
            Err($package)
        }
    }};
}

const BATCHES_ONLY: &str = "it has batches of writes, and nothing that isolates reads and writes together";

/// All engines of C.
pub(crate) fn engines() -> impl Iterator<Item = Box<dyn Engine>> {
    c_engines().into_iter().map(|engine| Box::new(engine) as Box<dyn Engine>)
}

/// The same, with their own type.
pub(crate) fn c_engines() -> Vec<CEngine> {
    rocksdb().into_iter().chain([leveldb(), wiredtiger()]).chain(berkeleydb()).collect()
}

fn rocksdb() -> [CEngine; 3] {
    let plain = CEngine {
        name: "rocksdb",
        library: library!("rocksdb", peer_rocksdb, "librocksdb-dev"),
        variant: 0,
        settings: "no compression, dynamic level bytes; bloom filters of 10 bits a key; memtables, index and filters within \
                   the cache size; its log files are not used again, which 7.8 does not do with recovery to a point in \
                   time",
        levels: ALL_LEVELS,
        isolation: "none: batches of writes, snapshots for reads",
        no_transactions: Some(BATCHES_ONLY),
    };
    let txn = CEngine {
        name: "rocksdb-txn",
        variant: 1,
        settings: "TransactionDB, deadlocks detected; else as rocksdb",
        isolation: "snapshot, with locks of what is written",
        no_transactions: None,
        ..plain
    };
    let blob = CEngine {
        name: "rocksdb-blob",
        variant: 2,
        settings: "values from 512 bytes in blob files, which are collected; else as rocksdb",
        ..plain
    };
    [plain, txn, blob]
}

fn leveldb() -> CEngine {
    CEngine {
        name: "leveldb",
        library: library!("leveldb", peer_leveldb, "libleveldb-dev"),
        variant: 0,
        settings: "no compression; bloom filter of 10 bits a key; two memtables of an eighth of the cache size each, 64 MiB at \
                   most, within it",
        levels: WRITTEN_LEVELS,
        isolation: "none: batches of writes, snapshots for reads",
        no_transactions: Some(BATCHES_ONLY),
    }
}

fn wiredtiger() -> CEngine {
    CEngine {
        name: "wiredtiger",
        library: library!("wiredtiger", peer_wiredtiger, "libwiredtiger-dev"),
        variant: 0,
        settings: "log, fsync, log files filled with zeros beforehand; a checkpoint a minute or 100 MiB of log",
        levels: ALL_LEVELS,
        isolation: "snapshot",
        no_transactions: None,
    }
}

fn berkeleydb() -> [CEngine; 2] {
    let locking = CEngine {
        name: "bdb",
        library: library!("berkeleydb", peer_berkeleydb, "libdb5.3-dev"),
        variant: 0,
        settings: "regions in the heap, log buffer 4 MiB, log files filled with zeros beforehand; a checkpoint a minute or \
                   64 MiB of log",
        levels: ALL_LEVELS,
        isolation: "serializable, by locks of pages",
        no_transactions: None,
    };
    let mvcc = CEngine {
        name: "bdb-mvcc",
        variant: 1,
        settings: "a crash of 5.3 mended; else as bdb",
        isolation: "snapshot, by versions of pages",
        ..locking
    };
    [locking, mvcc]
}

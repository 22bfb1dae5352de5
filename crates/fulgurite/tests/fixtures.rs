//! Databases that earlier versions of the format wrote still open, with all their contents.
//!
//! `FULGURITE_WRITE_FIXTURE=NAME cargo test -p fulgurite --test fixtures` writes `tests/fixtures/NAME-crashed` and
//! `tests/fixtures/NAME-closed`, gzipped files: once for each version of the format, before it is released.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use fulgurite::{Database, Options};

/// The time after every test has ended.
const FAR_FUTURE_MS: u64 = 253_402_300_799_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn long_value(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + n * 7 + at / 253) as u8).collect()
}

/// Writes every kind of record of the format.
fn fill(db: &Database) {
    let rows = db.table("rows").unwrap();
    for batch in 0..10u32 {
        db.transact(|txn| {
            (0..50u32).try_for_each(|n| {
                let n = batch * 50 + n;
                txn.put(&rows, format!("row/{n:05}").as_bytes(), format!("value of row {n}").as_bytes())
            })
        })
        .unwrap();
    }
    let long = db.table("long").unwrap();
    long.put(b"", b"the empty key").unwrap();
    long.put(&[0xff; 65_535], b"the longest key").unwrap();
    long.put(b"in the frame", &long_value(1, 20_000)).unwrap();
    long.put(b"in parts", &long_value(2, 1_200_000)).unwrap();
    let idle = ["idle 1", "idle 2", "idle 3", "idle 4"];
    idle.iter().for_each(|name| _ = db.table(name).unwrap().put(b"k", b"v").unwrap());
    // A full checkpoint record, then one of what changed.
    db.checkpoint().unwrap();
    long.put(b"", b"the empty key").unwrap();
    db.checkpoint().unwrap();
    idle.iter().for_each(|name| db.drop_table(name).unwrap());
    rows.delete(b"row/00007").unwrap();
    rows.delete_range(b"row/00100".as_slice()..b"row/00200".as_slice()).unwrap();
    rows.put_expiring(b"expired", b"gone", fulgurite::Expiry::at_unix_ms(1)).unwrap();
    rows.put_expiring(b"expiring", b"there", fulgurite::Expiry::at_unix_ms(FAR_FUTURE_MS)).unwrap();
    db.transact(|txn| (0..9000u32).try_for_each(|n| txn.put(&long, &n.to_be_bytes(), &long_value(3, 40))))
        .unwrap();
    db.create_table("dropped").unwrap().put(b"k", b"v").unwrap();
    db.drop_table("dropped").unwrap();
    db.create_table("before").unwrap().put(b"k", b"renamed").unwrap();
    db.rename_table("before", "after").unwrap();
}

fn verify(db: &Database) {
    let names: Vec<String> = db.tables().unwrap().iter().map(|table| table.name()).collect();
    assert_eq!(names, ["after", "long", "rows"]);
    let rows = db.open_table("rows").unwrap();
    for n in 0..500u32 {
        let found = rows.get(format!("row/{n:05}").as_bytes()).unwrap();
        if n == 7 || (100..200).contains(&n) {
            assert!(found.is_none(), "row {n}");
        } else {
            assert_eq!(found.unwrap(), format!("value of row {n}"), "row {n}");
        }
    }
    assert!(rows.get(b"expired").unwrap().is_none());
    assert_eq!(rows.get(b"expiring").unwrap().unwrap(), b"there");
    assert_eq!(rows.range(..).unwrap().count(), 400);
    let long = db.open_table("long").unwrap();
    assert_eq!(long.get(b"").unwrap().unwrap(), b"the empty key");
    assert_eq!(long.get(&[0xff; 65_535]).unwrap().unwrap(), b"the longest key");
    assert_eq!(long.get(b"in the frame").unwrap().unwrap(), long_value(1, 20_000));
    assert_eq!(long.get(b"in parts").unwrap().unwrap(), long_value(2, 1_200_000));
    assert_eq!(long.range(..).unwrap().count(), 9004);
    assert_eq!(long.get(&8999u32.to_be_bytes()).unwrap().unwrap(), long_value(3, 40));
    assert_eq!(db.open_table("after").unwrap().get(b"k").unwrap().unwrap(), b"renamed");
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// The old program wrote this database and could never open it again; `check` reports that in notes.
#[test]
fn a_database_that_inline_bytes_max_0_made_unopenable_opens_again() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&root().join("v1-catalog-out-of-line"), dir.path());
    for inline_bytes_max in [1024, 0] {
        let options = Options { create: false, inline_bytes_max, ..Options::default() };
        let db = Database::open(dir.path(), options).unwrap();
        verify(&db);
        let report = db.check(|_| {}).unwrap();
        assert_eq!(report.notes.len(), 3, "one of each table: {:?}", report.notes);
        assert!(report.notes.iter().all(|note| note.contains("catalog")), "{:?}", report.notes);
        db.close().unwrap();
    }
}

#[test]
fn every_fixture_opens() {
    if let Ok(name) = std::env::var("FULGURITE_WRITE_FIXTURE") {
        write(&name);
    }
    let mut fixtures = list(&root());
    fixtures.retain(|path| path.is_dir());
    assert!(fixtures.len() >= 2, "there are fixtures of each version");
    for fixture in fixtures {
        let dir = tempfile::tempdir().unwrap();
        unpack(&fixture, dir.path());
        let open = || {
            Database::open(dir.path(), Options { create: false, ..Options::default() })
                .unwrap_or_else(|error| panic!("{}: {error}", fixture.display()))
        };
        let db = open();
        verify(&db);
        // Records of this version beside old ones, also where a leaf is read from two.
        let rows = db.open_table("rows").unwrap();
        rows.put(b"new", b"row").unwrap();
        db.checkpoint().unwrap();
        rows.delete(b"new").unwrap();
        db.close().unwrap();
        verify(&open());
    }
}

fn write(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options { background: false, ..Options::default() }).unwrap();
    fill(&db);
    verify(&db);
    pack(dir.path(), &root().join(format!("{name}-crashed")));
    db.close().unwrap();
    pack(dir.path(), &root().join(format!("{name}-closed")));
}

#[expect(clippy::disallowed_methods, reason = "fixtures are files of the repository, not of a database")]
fn list(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[expect(clippy::disallowed_methods, reason = "fixtures are files of the repository, not of a database")]
fn pack(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in list(from) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            pack(&path, &to.join(name));
        } else if name != "LOCK" {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packed.write_all(&std::fs::read(&path).unwrap()).unwrap();
            std::fs::write(to.join(format!("{name}.gz")), packed.finish().unwrap()).unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "fixtures are files of the repository, not of a database")]
fn unpack(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in list(from) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            unpack(&path, &to.join(name));
        } else {
            let packed = std::fs::read(&path).unwrap();
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
            std::fs::write(to.join(name.strip_suffix(".gz").unwrap()), bytes).unwrap();
        }
    }
}

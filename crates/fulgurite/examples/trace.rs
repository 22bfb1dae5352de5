//! One put, one get and one open with replay, for `scripts/trace.py`, which counts the files and functions of each.

use fulgurite::{Database, Options};

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn trace_begin(what: u32) {
    std::hint::black_box(what);
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn trace_end(what: u32) {
    std::hint::black_box(what);
}

fn main() -> fulgurite::Result<()> {
    let dir = std::env::args_os().nth(1).expect("the directory of a new database");
    // No thread of maintenance, whose functions would be counted.
    let options = || Options { background: false, ..Options::default() };
    let db = Database::open(&dir, options())?;
    let table = db.create_table("rows")?;
    for n in 0..200u32 {
        table.put(n.to_be_bytes(), b"value")?;
    }
    trace_begin(1);
    table.put(7u32.to_be_bytes(), b"another")?;
    trace_end(1);
    trace_begin(2);
    let found = table.get(9u32.to_be_bytes())?;
    trace_end(2);
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    std::mem::forget((db, table));
    // A copy of the directory, which the first handle keeps locked, as a kill would leave it.
    let copy = std::path::PathBuf::from(&dir).with_extension("copy");
    copy_dir(dir.as_ref(), &copy);
    trace_begin(3);
    let db = Database::open(&copy, options())?;
    trace_end(3);
    db.close()
}

#[expect(clippy::disallowed_methods, reason = "an example copies a database behind its back")]
fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a new directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

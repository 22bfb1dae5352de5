//! Names, locks and space.

use std::io::ErrorKind;

use fulgurite_env::{DirEntry, Lock, LockMode, Locking, OpenOptions, raw_os_error};

use super::{Bed, content};

const ENOENT: i32 = 2;

pub(super) fn create_new_refuses_a_taken_name(bed: &Bed) {
    bed.create("f");
    let taken = bed.env.disk().open(&bed.path("f"), OpenOptions::CreateNew);
    assert_eq!(taken.expect_err("taken").kind(), ErrorKind::AlreadyExists);
}

pub(super) fn a_missing_file_is_not_found_and_named(bed: &Bed) {
    let path = bed.path("nowhere");
    let disk = bed.env.disk();
    let errors = [
        disk.open(&path, OpenOptions::Read).map(drop).expect_err("open"),
        disk.open(&path, OpenOptions::Write).map(drop).expect_err("open"),
        disk.open(&path.join("f"), OpenOptions::CreateNew).map(drop).expect_err("create"),
        disk.remove(&path).expect_err("remove"),
        disk.rename(&path, &bed.path("f")).expect_err("rename"),
        disk.list(&path).map(drop).expect_err("list"),
        disk.sync_dir(&path).expect_err("sync_dir"),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(raw_os_error(&error), Some(ENOENT), "{error}");
        assert!(error.to_string().contains("nowhere"), "{error}");
    }
}

pub(super) fn listing_is_sorted_and_tells_kinds_and_lengths(bed: &Bed) {
    bed.create("b").write_at(&[1; 77], 0).expect("write");
    bed.create("c");
    bed.env.disk().create_dir_all(&bed.path("a/deeper")).expect("mkdir");
    let entry = |name: &str, is_dir, len| DirEntry { name: name.to_owned(), is_dir, len };
    let expected = [entry("a", true, 0), entry("b", false, 77), entry("c", false, 0)];
    assert_eq!(bed.env.disk().list(&bed.dir).expect("list"), expected);
}

pub(super) fn directories_are_created_with_their_parents(bed: &Bed) {
    let disk = bed.env.disk();
    disk.create_dir_all(&bed.path("x/y/z")).expect("mkdir");
    disk.create_dir_all(&bed.path("x/y/z")).expect("again");
    disk.open(&bed.path("x/y/z/f"), OpenOptions::CreateNew).expect("create");
    assert!(disk.create_dir_all(&bed.path("x/y/z/f")).is_err(), "a file is in the way");
    assert!(disk.create_dir_all(&bed.path("x/y/z/f/g")).is_err(), "a file is in the way");
    for dir in ["", "x", "x/y", "x/y/z"] {
        disk.sync_dir(&bed.path(dir)).expect("sync_dir");
    }
}

pub(super) fn rename_replaces_the_target(bed: &Bed) {
    let new = bed.create("new");
    new.write_at(b"new", 0).expect("write");
    let old = bed.create("old");
    old.write_at(b"old", 0).expect("write");
    bed.env.disk().rename(&bed.path("new"), &bed.path("old")).expect("rename");
    assert_eq!(bed.names(), ["old"]);
    let reopened = bed.env.disk().open(&bed.path("old"), OpenOptions::Read).expect("open");
    assert_eq!(content(&*reopened), b"new");
    assert_eq!(content(&*old), b"old", "the handle keeps the replaced file");
}

pub(super) fn remove_frees_the_name(bed: &Bed) {
    bed.create("f").write_at(b"x", 0).expect("write");
    bed.env.disk().remove(&bed.path("f")).expect("remove");
    assert!(bed.names().is_empty());
    assert!(bed.create("f").is_empty().expect("len"));
}

fn lock(bed: &Bed, path: &std::path::Path, mode: LockMode) -> Option<Box<dyn Lock>> {
    let dir = bed.env.disk().open_dir(path).expect("open");
    match dir.lock("LOCK", mode).expect("lock") {
        Locking::Taken(lock) => Some(lock),
        Locking::Held(_) => None,
    }
}

pub(super) fn a_lock_excludes_and_ends_with_the_value(bed: &Bed) {
    let other = bed.path("other");
    bed.env.disk().create_dir_all(&other).expect("mkdir");
    let held = lock(bed, &bed.dir, LockMode::Exclusive).expect("free");
    assert!(lock(bed, &bed.dir, LockMode::Exclusive).is_none(), "held");
    assert!(lock(bed, &bed.dir, LockMode::Shared).is_none(), "held");
    assert!(lock(bed, &other, LockMode::Exclusive).is_some(), "another directory");
    bed.env.disk().remove(&bed.path("LOCK")).expect("remove");
    assert!(lock(bed, &bed.dir, LockMode::Exclusive).is_none(), "held without its file");
    drop(held);
    let readers = [(); 2].map(|()| lock(bed, &bed.dir, LockMode::Shared).expect("shared"));
    assert!(lock(bed, &bed.dir, LockMode::Exclusive).is_none(), "held by readers");
    drop(readers);
    assert!(lock(bed, &bed.dir, LockMode::Exclusive).is_some(), "released");
}

pub(super) fn an_open_directory_stays_the_same_when_it_is_moved(bed: &Bed) {
    let disk = bed.env.disk();
    let (path, moved) = (bed.path("db"), bed.path("old"));
    disk.create_dir_all(&path).expect("mkdir");
    let dir = disk.open_dir(&path).expect("open");
    dir.open("a", OpenOptions::CreateNew).expect("create").write_at(b"old", 0).expect("write");
    bed.move_dir("db", "old");
    disk.create_dir_all(&path).expect("mkdir");
    disk.open(&path.join("b"), OpenOptions::CreateNew).expect("create");

    dir.rename("a", "b").expect("the other directory has this name, not this one");
    dir.open("c", OpenOptions::CreateNew).expect("create");
    dir.create_dir("log").expect("mkdir");
    let log = dir.open_dir("log").expect("open");
    log.open("d", OpenOptions::CreateNew).expect("create");
    dir.sync().expect("sync");
    let names = |path: &std::path::Path| -> Vec<String> {
        disk.list(path).expect("list").into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(&moved), ["b", "c", "log"]);
    assert_eq!(names(&moved.join("log")), ["d"]);
    assert_eq!(names(&path), ["b"]);
    let file = disk.open(&moved.join("b"), OpenOptions::Read).expect("open");
    assert_eq!(content(&*file), b"old");
    dir.remove("c").expect("remove");
    assert_eq!(dir.list().expect("list").len(), 2);
}

pub(super) fn renaming_in_a_directory_replaces_nothing(bed: &Bed) {
    bed.create("new").write_at(b"new", 0).expect("write");
    bed.create("old").write_at(b"old", 0).expect("write");
    let dir = bed.env.disk().open_dir(&bed.dir).expect("open");
    let error = dir.rename("new", "old").expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(dir.rename("nowhere", "f").expect_err("missing").kind(), ErrorKind::NotFound);
    assert_eq!(dir.create_dir("old").expect_err("taken").kind(), ErrorKind::AlreadyExists);
    assert_eq!(content(&*dir.open("old", OpenOptions::Read).expect("open")), b"old");
    dir.rename("new", "newer").expect("free");
    assert_eq!(bed.names(), ["newer", "old"]);
}

pub(super) fn a_file_is_no_directory(bed: &Bed) {
    bed.create("f");
    let disk = bed.env.disk();
    assert_eq!(disk.open_dir(&bed.path("f")).expect_err("a file").kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.open_dir(&bed.path("g")).expect_err("nothing").kind(), ErrorKind::NotFound);
    let dir = disk.open_dir(&bed.dir).expect("open");
    assert_eq!(dir.open_dir("f").expect_err("a file").kind(), ErrorKind::NotADirectory);
    assert_eq!(dir.path(), bed.dir);
}

pub(super) fn space_is_reported(bed: &Bed) {
    assert!(bed.env.disk().free_bytes(&bed.dir).expect("statvfs") > 0);
}

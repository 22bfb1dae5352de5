//! Names, locks and space.

use std::io::ErrorKind;

use fulgurite_env::{DirEntry, Lock, LockMode, Locking, OpenOptions, raw_os_error};

use super::{Place, content};

const ENOENT: i32 = 2;

pub(super) fn create_new_refuses_a_taken_name(place: &Place) {
    place.create("f");
    let taken = place.env.disk().open(&place.path("f"), OpenOptions::CreateNew);
    assert_eq!(taken.expect_err("taken").kind(), ErrorKind::AlreadyExists);
}

pub(super) fn a_missing_file_is_not_found_and_named(place: &Place) {
    let path = place.path("nowhere");
    let disk = place.env.disk();
    let errors = [
        disk.open(&path, OpenOptions::Read).map(drop).expect_err("open"),
        disk.open(&path, OpenOptions::Write).map(drop).expect_err("open"),
        disk.open(&path.join("f"), OpenOptions::CreateNew).map(drop).expect_err("create"),
        disk.remove(&path).expect_err("remove"),
        disk.rename(&path, &place.path("f")).expect_err("rename"),
        disk.list(&path).map(drop).expect_err("list"),
        disk.sync_dir(&path).expect_err("sync_dir"),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(raw_os_error(&error), Some(ENOENT), "{error}");
        assert!(error.to_string().contains("nowhere"), "{error}");
    }
}

pub(super) fn listing_is_sorted_and_tells_kinds_and_lengths(place: &Place) {
    place.create("b").write_at(&[1; 77], 0).expect("write");
    place.create("c");
    place.env.disk().create_dir_all(&place.path("a/deeper")).expect("mkdir");
    let entry = |name: &str, is_dir, len| DirEntry { name: name.to_owned(), is_dir, len };
    let expected = [entry("a", true, 0), entry("b", false, 77), entry("c", false, 0)];
    assert_eq!(place.env.disk().list(&place.dir).expect("list"), expected);
}

pub(super) fn directories_are_created_with_their_parents(place: &Place) {
    let disk = place.env.disk();
    disk.create_dir_all(&place.path("x/y/z")).expect("mkdir");
    disk.create_dir_all(&place.path("x/y/z")).expect("again");
    disk.open(&place.path("x/y/z/f"), OpenOptions::CreateNew).expect("create");
    assert!(disk.create_dir_all(&place.path("x/y/z/f")).is_err(), "a file is in the way");
    assert!(disk.create_dir_all(&place.path("x/y/z/f/g")).is_err(), "a file is in the way");
    for dir in ["", "x", "x/y", "x/y/z"] {
        disk.sync_dir(&place.path(dir)).expect("sync_dir");
    }
}

pub(super) fn rename_replaces_the_target(place: &Place) {
    let new = place.create("new");
    new.write_at(b"new", 0).expect("write");
    let old = place.create("old");
    old.write_at(b"old", 0).expect("write");
    place.env.disk().rename(&place.path("new"), &place.path("old")).expect("rename");
    assert_eq!(place.names(), ["old"]);
    let reopened = place.env.disk().open(&place.path("old"), OpenOptions::Read).expect("open");
    assert_eq!(content(&*reopened), b"new");
    assert_eq!(content(&*old), b"old", "the handle keeps the replaced file");
}

pub(super) fn remove_frees_the_name(place: &Place) {
    place.create("f").write_at(b"x", 0).expect("write");
    place.env.disk().remove(&place.path("f")).expect("remove");
    assert!(place.names().is_empty());
    assert!(place.create("f").is_empty().expect("len"));
}

fn lock(place: &Place, path: &std::path::Path, mode: LockMode) -> Option<Box<dyn Lock>> {
    let dir = place.env.disk().open_dir(path).expect("open");
    match dir.lock("LOCK", mode).expect("lock") {
        Locking::Taken(lock) => Some(lock),
        Locking::Held(_) => None,
    }
}

pub(super) fn a_lock_excludes_and_ends_with_the_value(place: &Place) {
    let other = place.path("other");
    place.env.disk().create_dir_all(&other).expect("mkdir");
    let held = lock(place, &place.dir, LockMode::Exclusive).expect("free");
    assert!(lock(place, &place.dir, LockMode::Exclusive).is_none(), "held");
    assert!(lock(place, &place.dir, LockMode::Shared).is_none(), "held");
    assert!(lock(place, &other, LockMode::Exclusive).is_some(), "another directory");
    place.env.disk().remove(&place.path("LOCK")).expect("remove");
    assert!(lock(place, &place.dir, LockMode::Exclusive).is_none(), "held without its file");
    drop(held);
    let readers = [(); 2].map(|()| lock(place, &place.dir, LockMode::Shared).expect("shared"));
    assert!(lock(place, &place.dir, LockMode::Exclusive).is_none(), "held by readers");
    drop(readers);
    assert!(lock(place, &place.dir, LockMode::Exclusive).is_some(), "released");
}

pub(super) fn an_open_directory_stays_the_same_when_it_is_moved(place: &Place) {
    let disk = place.env.disk();
    let (path, moved) = (place.path("db"), place.path("old"));
    disk.create_dir_all(&path).expect("mkdir");
    let dir = disk.open_dir(&path).expect("open");
    dir.open("a", OpenOptions::CreateNew).expect("create").write_at(b"old", 0).expect("write");
    place.move_dir("db", "old");
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

pub(super) fn renaming_in_a_directory_replaces_nothing(place: &Place) {
    place.create("new").write_at(b"new", 0).expect("write");
    place.create("old").write_at(b"old", 0).expect("write");
    let dir = place.env.disk().open_dir(&place.dir).expect("open");
    let error = dir.rename("new", "old").expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(dir.rename("nowhere", "f").expect_err("missing").kind(), ErrorKind::NotFound);
    assert_eq!(dir.create_dir("old").expect_err("taken").kind(), ErrorKind::AlreadyExists);
    assert_eq!(content(&*dir.open("old", OpenOptions::Read).expect("open")), b"old");
    dir.rename("new", "newer").expect("free");
    assert_eq!(place.names(), ["newer", "old"]);
}

pub(super) fn a_file_is_no_directory(place: &Place) {
    place.create("f");
    let disk = place.env.disk();
    assert_eq!(disk.open_dir(&place.path("f")).expect_err("a file").kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.open_dir(&place.path("g")).expect_err("nothing").kind(), ErrorKind::NotFound);
    let dir = disk.open_dir(&place.dir).expect("open");
    assert_eq!(dir.open_dir("f").expect_err("a file").kind(), ErrorKind::NotADirectory);
    assert_eq!(dir.path(), place.dir);
}

pub(super) fn space_is_reported(place: &Place) {
    assert!(place.env.disk().free_bytes(&place.dir).expect("statvfs") > 0);
}

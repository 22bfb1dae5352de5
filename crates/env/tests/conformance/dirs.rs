//! Names, locks and space.

use std::io::ErrorKind;

use fulgurite_env::{DirEntry, OpenOptions, raw_os_error};

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

pub(super) fn a_lock_excludes_and_ends_with_the_value(place: &Place) {
    let disk = place.env.disk();
    let path = place.path("LOCK");
    let held = disk.lock(&path).expect("lock").expect("free");
    assert!(disk.lock(&path).expect("lock").is_none(), "held");
    assert!(disk.lock(&place.path("OTHER")).expect("lock").is_some(), "another file");
    drop(held);
    assert!(disk.lock(&path).expect("lock").is_some(), "released");
}

pub(super) fn space_is_reported(place: &Place) {
    assert!(place.env.disk().free_bytes(&place.dir).expect("statvfs") > 0);
}

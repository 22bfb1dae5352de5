//! Directories after crashes.

use std::collections::BTreeSet;
use std::path::Path;

use fulgurite_env::sim::CrashKind::{Kill, PowerCut};
use fulgurite_env::sim::SimEnv;
use fulgurite_env::{Env, LockMode, Locking, OpenOptions};

use super::{SECTOR, SEEDS, log, root, with_log};

/// The names and lengths of all files after power cuts.
fn outcomes(sim: &SimEnv) -> BTreeSet<Vec<(String, u64)>> {
    let listing = |sim: &SimEnv| -> Vec<(String, u64)> {
        sim.list_raw().into_iter().map(|(path, len)| (path.display().to_string(), len)).collect()
    };
    (0..SEEDS).map(|seed| listing(&sim.crash(PowerCut, seed))).collect()
}

fn create(sim: &SimEnv, path: &str, len: usize) {
    let file = sim.disk().open(Path::new(path), OpenOptions::CreateNew).expect("create");
    file.write_at(&vec![1; len], 0).expect("write");
    file.sync_data().expect("sync");
}

fn named(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, len)| ((*name).to_owned(), *len)).collect()
}

#[test]
fn a_new_file_needs_its_directory_synced() {
    let sim = SimEnv::new(1);
    create(&sim, "/a", 5);
    assert_eq!(outcomes(&sim), BTreeSet::from([vec![], named(&[("/a", 5)])]));
    sim.disk().sync_dir(root()).expect("sync_dir");
    assert_eq!(outcomes(&sim), BTreeSet::from([named(&[("/a", 5)])]));
}

#[test]
fn new_files_survive_in_any_combination() {
    let sim = SimEnv::new(1);
    for path in ["/a", "/b", "/c"] {
        create(&sim, path, 1);
    }
    assert_eq!(outcomes(&sim).len(), 8);
}

#[test]
fn a_rename_is_lost_or_kept_as_a_whole() {
    let sim = SimEnv::new(1);
    create(&sim, "/new", 5);
    create(&sim, "/current", 3);
    sim.disk().sync_dir(root()).expect("sync_dir");
    sim.disk().rename(Path::new("/new"), Path::new("/current")).expect("rename");
    let before = named(&[("/current", 3), ("/new", 5)]);
    let after = named(&[("/current", 5)]);
    assert_eq!(outcomes(&sim), BTreeSet::from([before, after.clone()]));
    sim.disk().sync_dir(root()).expect("sync_dir");
    assert_eq!(outcomes(&sim), BTreeSet::from([after]));
}

#[test]
fn a_name_may_become_durable_before_the_data() {
    let sim = SimEnv::new(1);
    let file = sim.disk().open(Path::new("/a"), OpenOptions::CreateNew).expect("create");
    file.write_at(&[1; SECTOR], 0).expect("write");
    sim.disk().sync_dir(root()).expect("sync_dir");
    assert!(outcomes(&sim).contains(&named(&[("/a", 0)])), "the directory sync covers no data");
}

#[test]
fn a_removal_may_be_lost_and_brings_the_content_back() {
    let (sim, file) = with_log(2, 1);
    drop(file);
    sim.disk().remove(log()).expect("remove");
    let there = named(&[("/log", 2 * SECTOR as u64)]);
    assert_eq!(outcomes(&sim), BTreeSet::from([vec![], there]));
    let returned =
        (0..SEEDS).map(|seed| sim.crash(PowerCut, seed)).find(|image| !image.list_raw().is_empty());
    let bytes = returned.expect("some image has it").read_raw(log()).expect("read");
    assert_eq!(bytes, [1; 2 * SECTOR]);
    sim.disk().sync_dir(root()).expect("sync_dir");
    assert_eq!(outcomes(&sim), BTreeSet::from([vec![]]));
}

#[test]
fn a_kill_keeps_names_that_a_power_cut_may_lose() {
    let sim = SimEnv::new(1);
    create(&sim, "/a", 1);
    let killed = sim.crash(Kill, 0);
    assert_eq!(killed.list_raw().len(), 1);
    assert_eq!(outcomes(&killed).len(), 2);
    killed.disk().sync_dir(root()).expect("sync_dir");
    assert_eq!(outcomes(&killed).len(), 1);
}

#[test]
fn a_rename_between_directories_needs_both_synced() {
    let sim = SimEnv::new(1);
    sim.disk().create_dir_all(Path::new("/x")).expect("mkdir");
    sim.disk().create_dir_all(Path::new("/y")).expect("mkdir");
    create(&sim, "/x/f", 1);
    for dir in ["/", "/x", "/y"] {
        sim.disk().sync_dir(Path::new(dir)).expect("sync_dir");
    }
    sim.disk().rename(Path::new("/x/f"), Path::new("/y/f")).expect("rename");
    sim.disk().sync_dir(Path::new("/x")).expect("sync_dir");
    assert_eq!(outcomes(&sim).len(), 2);
    sim.disk().sync_dir(Path::new("/y")).expect("sync_dir");
    assert_eq!(outcomes(&sim), BTreeSet::from([named(&[("/y/f", 1)])]));
}

#[test]
fn a_synced_name_is_not_undone_by_an_older_rename() {
    let sim = SimEnv::new(1);
    sim.disk().create_dir_all(Path::new("/x")).expect("mkdir");
    sim.disk().create_dir_all(Path::new("/y")).expect("mkdir");
    create(&sim, "/x/f", 1);
    for dir in ["/", "/x", "/y"] {
        sim.disk().sync_dir(Path::new(dir)).expect("sync_dir");
    }
    sim.disk().rename(Path::new("/x/f"), Path::new("/y/f")).expect("rename");
    create(&sim, "/x/f", 2);
    sim.disk().sync_dir(Path::new("/x")).expect("sync_dir");
    assert_eq!(outcomes(&sim), BTreeSet::from([named(&[("/x/f", 2), ("/y/f", 1)])]));
}

#[test]
fn a_directory_may_be_lost_unless_something_in_it_survived() {
    let sim = SimEnv::new(1);
    let dir = Path::new("/db/parts");
    sim.disk().create_dir_all(dir).expect("mkdir");
    let survives = |sim: &SimEnv, seed| sim.crash(PowerCut, seed).disk().list(dir).is_ok();
    assert!((0..SEEDS).any(|seed| survives(&sim, seed)));
    assert!((0..SEEDS).any(|seed| !survives(&sim, seed)));
    create(&sim, "/db/parts/f", 1);
    sim.disk().sync_dir(dir).expect("sync_dir");
    assert!((0..SEEDS).all(|seed| survives(&sim, seed)));
}

#[test]
fn locks_and_handles_die_with_the_machine() {
    let (sim, _file) = with_log(1, 1);
    let lock = |sim: &SimEnv| sim.disk().open_dir(root()).expect("open").lock("LOCK", LockMode::Exclusive);
    let held = lock(&sim).expect("lock");
    assert!(matches!((&held, lock(&sim)), (Locking::Taken(_), Ok(Locking::Held(_)))));
    assert!(matches!(lock(&sim.crash(Kill, 0)), Ok(Locking::Taken(_))));
}

#[test]
fn what_was_unsynced_in_a_directory_that_is_moved_stays_so() {
    let sim = SimEnv::new(1);
    sim.disk().create_dir_all(Path::new("/db")).expect("mkdir");
    sim.disk().sync_dir(root()).expect("sync_dir");
    let dir = sim.disk().open_dir(Path::new("/db")).expect("open");
    let file = dir.open("a", OpenOptions::CreateNew).expect("create");
    sim.move_dir_raw(Path::new("/db"), Path::new("/old")).expect("moved");
    file.write_at(b"x", 0).expect("write");
    file.sync_data().expect("sync");
    assert_eq!(outcomes(&sim), BTreeSet::from([vec![], named(&[("/old/a", 1)])]));
    dir.sync().expect("sync");
    assert_eq!(outcomes(&sim), BTreeSet::from([named(&[("/old/a", 1)])]));
    assert!(sim.move_dir_raw(Path::new("/db"), Path::new("/x")).is_err(), "it is there no more");
}

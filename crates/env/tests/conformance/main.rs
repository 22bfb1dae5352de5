//! One suite over both environments: the machine and the simulation keep the traits' promises.

mod dirs;
mod files;
mod mapped;
mod outside;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite_env::{Env, File, OpenOptions, RealEnv, SimEnv};

type Mover = Box<dyn Fn(&Path, &Path)>;

/// An environment and an empty directory in it.
struct Bed {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// Moves a directory, as another process would.
    mover: Mover,
}

impl Bed {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn move_dir(&self, from: &str, to: &str) {
        (self.mover)(&self.path(from), &self.path(to));
    }

    fn create(&self, name: &str) -> Arc<dyn File> {
        self.env.disk().open(&self.path(name), OpenOptions::CreateNew).expect("create")
    }

    fn names(&self) -> Vec<String> {
        self.env.disk().list(&self.dir).expect("list").into_iter().map(|entry| entry.name).collect()
    }
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().expect("len")).expect("a small file")];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

fn on_real(check: fn(&Bed)) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let env = RealEnv::new();
    let mover = Box::new(|from: &Path, to: &Path| RealEnv::new().disk().rename(from, to).expect("rename"));
    check(&Bed { env, dir: temporary.path().to_path_buf(), mover });
}

fn on_sim(check: fn(&Bed)) {
    let env = SimEnv::new(1);
    let dir = Path::new("/db");
    fulgurite_env::Env::disk(&*env).create_dir_all(dir).expect("mkdir");
    let sim = Arc::clone(&env);
    let mover = Box::new(move |from: &Path, to: &Path| sim.move_dir_raw(from, to).expect("rename"));
    check(&Bed { env, dir: dir.to_path_buf(), mover });
}

macro_rules! suite {
    ($($module:ident::$name:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $name() { super::on_real(super::$module::$name) })*
        }
        mod sim {
            $(#[test] fn $name() { super::on_sim(super::$module::$name) })*
        }
    };
}

/// The same on tmpfs, where files are mapped.
fn on_tmpfs(check: fn(&Bed)) {
    let Ok(temporary) = tempfile::tempdir_in("/dev/shm") else { return };
    let env = RealEnv::new();
    if env.disk().device(temporary.path()).expect("statfs").file_system != "tmpfs" {
        return;
    }
    let mover = Box::new(|from: &Path, to: &Path| RealEnv::new().disk().rename(from, to).expect("rename"));
    check(&Bed { env, dir: temporary.path().to_path_buf(), mover });
}

#[test]
fn mapped_files_of_tmpfs() {
    on_tmpfs(mapped::what_is_stored_is_there_for_all_and_after_it_is_closed);
    on_tmpfs(mapped::what_cannot_be_mapped_is_refused_and_changes_nothing);
}

suite! {
    mapped::what_is_stored_is_there_for_all_and_after_it_is_closed,
    mapped::what_cannot_be_mapped_is_refused_and_changes_nothing,
    files::reads_stop_at_the_end,
    files::writes_extend_and_leave_zeros_between,
    files::vectored_writes_join_their_pieces,
    files::more_pieces_than_one_call_takes,
    files::synced_writes_are_read_back,
    files::direct_reads_agree_with_cached_ones,
    files::direct_writes_are_read_back_or_refused,
    files::the_device_is_described,
    files::set_len_cuts_and_extends_with_zeros,
    files::allocated_space_is_taken_and_changes_no_byte,
    files::a_hole_at_the_end_reads_as_zeros_and_takes_no_space,
    files::a_file_opened_for_reading_refuses_writes,
    files::a_removed_file_stays_readable,
    files::threads_write_their_own_blocks,
    dirs::create_new_refuses_a_taken_name,
    dirs::a_missing_file_is_not_found_and_named,
    dirs::listing_is_sorted_and_tells_kinds_and_lengths,
    dirs::directories_are_created_with_their_parents,
    dirs::rename_replaces_the_target,
    dirs::remove_frees_the_name,
    dirs::a_lock_excludes_and_ends_with_the_value,
    dirs::an_open_directory_stays_the_same_when_it_is_moved,
    dirs::renaming_in_a_directory_replaces_nothing,
    dirs::a_file_is_no_directory,
    dirs::space_is_reported,
    outside::monotonic_time_advances,
    outside::wall_time_is_this_century,
    outside::random_numbers_differ,
    outside::threads_are_named_and_joined,
}

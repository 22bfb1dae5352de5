//! Mapped files, where the environment has them.

use std::io::ErrorKind;
use std::sync::Arc;

use fulgurite_env::{MAPPED_BYTES, MappedFile, MemoryMedium, OpenOptions};

use super::{Bed, content};

const BYTES: u64 = 3 * MAPPED_BYTES as u64;

/// `None` where the test's directory is neither in persistent memory nor in that of the machine: then it says why.
fn create(bed: &Bed, name: &str) -> Option<Arc<dyn MappedFile>> {
    match bed.env.disk().create_mapped(&bed.path(name), BYTES) {
        Ok(file) => Some(file),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("MAP_SYNC") && error.to_string().contains(name), "{error}");
            assert_eq!(bed.names(), Vec::<String>::new(), "it was created all the same");
            None
        }
    }
}

pub(super) fn what_is_stored_is_there_for_all_and_after_it_is_closed(bed: &Bed) {
    let Some(file) = create(bed, "m") else { return };
    assert_eq!((file.len() as u64, file.is_empty()), (BYTES, false));
    assert!(file.as_ptr().cast::<u8>().addr().is_multiple_of(MAPPED_BYTES));
    assert_eq!(file.load_word(BYTES as usize - 8), 0);
    file.store_word(8, 0x0102);
    // SAFETY: the bytes are within the file, and no other thread accesses them.
    unsafe { file.as_ptr().add(MAPPED_BYTES).write(7) };
    file.write_back(0..BYTES as usize).expect("write back");
    file.write_back(5..5).expect("nothing");
    file.fence().expect("fence");
    file.store_word(16, 3);
    // The machine gives a file to one process for writing.
    file.release();
    let second = bed.env.disk().open_mapped(&bed.path("m"), OpenOptions::Read).expect("a second mapping");
    assert_eq!((second.load_word(8), second.medium()), (0x0102, file.medium()));
    assert_eq!(second.load_word(16), 3);
    drop((file, second));
    let file = bed.env.disk().open_mapped(&bed.path("m"), OpenOptions::Write).expect("again");
    assert_eq!((file.load_word(8), file.load_word(16), file.load_word(MAPPED_BYTES)), (0x0102, 3, 7));
    let bytes = content(&*bed.env.disk().open(&bed.path("m"), OpenOptions::Read).expect("as a file"));
    assert_eq!((bytes.len() as u64, &bytes[8..11], bytes[MAPPED_BYTES]), (BYTES, &[2, 1, 0][..], 7));
}

pub(super) fn what_cannot_be_mapped_is_refused_and_changes_nothing(bed: &Bed) {
    let disk = bed.env.disk();
    for bytes in [0, 1, 4095, 5000] {
        let error = disk.create_mapped(&bed.path("m"), bytes).expect_err("a length that is none");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("{bytes} bytes")), "{error}");
    }
    let missing = disk.open_mapped(&bed.path("m"), OpenOptions::Write).expect_err("there is none");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(bed.names(), Vec::<String>::new());
    bed.create("short").write_at(b"five", 0).expect("write");
    let short = disk.open_mapped(&bed.path("short"), OpenOptions::Write).expect_err("too short");
    assert_eq!(short.kind(), ErrorKind::InvalidInput);
    let taken = disk.create_mapped(&bed.path("short"), BYTES).expect_err("the name is taken");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    disk.remove(&bed.path("short")).expect("remove");
    let Some(file) = create(bed, "m") else { return };
    let taken = disk.create_mapped(&bed.path("m"), BYTES).expect_err("the name is taken");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    assert!(matches!(file.medium(), MemoryMedium::Persistent | MemoryMedium::Volatile));
    drop(file);
    disk.remove(&bed.path("m")).expect("remove");
    assert_eq!(bed.names(), Vec::<String>::new());
}

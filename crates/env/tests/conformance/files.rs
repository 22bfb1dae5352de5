//! Open files.

use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;

use fulgurite_env::{AlignedBuf, DIRECT_BYTES, OpenOptions};

use super::{Bed, content};

pub(super) fn reads_stop_at_the_end(bed: &Bed) {
    let file = bed.create("f");
    file.write_at(b"hello", 0).expect("write");
    let mut buf = [9; 8];
    assert_eq!(file.read_at(&mut buf, 2).expect("read"), 3);
    assert_eq!(&buf, b"llo\x09\x09\x09\x09\x09");
    assert_eq!(file.read_at(&mut buf, 5).expect("at the end"), 0);
    assert_eq!(file.read_at(&mut buf, 500).expect("behind the end"), 0);
    let error = file.read_exact_at(&mut buf, 2).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(!file.is_empty().expect("len"));
}

pub(super) fn writes_extend_and_leave_zeros_between(bed: &Bed) {
    let file = bed.create("f");
    assert!(file.is_empty().expect("len"));
    file.write_at(b"a", 0).expect("write");
    file.write_at(b"b", 10_000).expect("write");
    file.write_at(b"", 20_000).expect("an empty write");
    let mut expected = vec![0; 10_001];
    expected[0] = b'a';
    expected[10_000] = b'b';
    assert_eq!(content(&*file), expected);
    file.write_at(&[7; 5_000], 4_000).expect("write");
    expected[4_000..9_000].fill(7);
    file.write_at(&[0; 4_500], 4_050).expect("zeros over data");
    expected[4_050..8_550].fill(0);
    assert_eq!(content(&*file), expected);
}

pub(super) fn vectored_writes_join_their_pieces(bed: &Bed) {
    let file = bed.create("f");
    file.write_vectored_at(&[], 7).expect("nothing");
    assert_eq!(file.len().expect("len"), 0);
    let pieces = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
    file.write_vectored_at(&pieces, 1).expect("write");
    assert_eq!(content(&*file), b"\0abcde");
}

pub(super) fn more_pieces_than_one_call_takes(bed: &Bed) {
    let file = bed.create("f");
    let bytes: Vec<u8> = (0..5_000u32).map(|i| (i % 251) as u8).collect();
    let pieces: Vec<IoSlice<'_>> = bytes.chunks(2).map(IoSlice::new).collect();
    file.write_vectored_at(&pieces, 0).expect("write");
    assert_eq!(content(&*file), bytes);
}

pub(super) fn synced_writes_are_read_back(bed: &Bed) {
    let file = bed.create("f");
    file.write_at_dsync(&[1; 1_000], 0).expect("dsync");
    file.write_at_dsync(&[2; 1_000], 500).expect("dsync");
    file.sync_data().expect("sync");
    bed.env.disk().sync_dir(&bed.dir).expect("sync_dir");
    assert_eq!(content(&*file), [vec![1; 500], vec![2; 1_000]].concat());
}

pub(super) fn direct_reads_agree_with_cached_ones(bed: &Bed) {
    let file = bed.create("f");
    let bytes: Vec<u8> = (0..1_500_000u32).map(|i| (i / 3 % 253) as u8).collect();
    file.write_at(&bytes, 0).expect("write");
    for (offset, len) in
        [(0, 4_096), (4_096, 8_192), (1, 1), (4_095, 2), (700, 1_400_000), (1_499_000, 5_000)]
    {
        let end = bytes.len().min(offset + len);
        let mut buf = vec![9; len];
        let count = file.read_at_direct(&mut buf, offset as u64).expect("direct read");
        assert_eq!(count, end - offset, "{len} bytes at {offset}");
        assert!(buf[..count] == bytes[offset..end], "{len} bytes at {offset}");
    }
    let mut buf = [9; 16];
    assert_eq!(file.read_at_direct(&mut buf, 2_000_000).expect("behind the end"), 0);
    assert_eq!(file.read_at_direct(&mut [], 5).expect("nothing"), 0);
    file.write_at(b"new", 4_094).expect("overwrite");
    assert_eq!(file.read_at_direct(&mut buf[..3], 4_094).expect("direct read"), 3);
    assert_eq!(&buf[..3], b"new");
}

pub(super) fn direct_writes_are_read_back_or_refused(bed: &Bed) {
    let file = bed.create("f");
    file.write_at(&[1; 3 * DIRECT_BYTES], 0).expect("write");
    let mut buf = AlignedBuf::new(2 * DIRECT_BYTES);
    buf.fill(2);
    if !file.takes_direct_writes().expect("the kernel says it") {
        let error = file.write_direct(&buf, 0, true).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(content(&*file), [1; 3 * DIRECT_BYTES]);
        return;
    }
    assert_eq!(content(&*file), [1; 3 * DIRECT_BYTES], "asking changes nothing");
    file.write_direct(&buf, DIRECT_BYTES as u64, true).expect("write");
    assert_eq!(content(&*file), [vec![1; DIRECT_BYTES], vec![2; 2 * DIRECT_BYTES]].concat());
    file.write_direct(&buf[DIRECT_BYTES..], 4 * DIRECT_BYTES as u64, false).expect("behind the end");
    file.write_direct(&[], 0, true).expect("nothing");
    file.write_at(&[3; 10], 0).expect("over it");
    let mut expected = [vec![1; DIRECT_BYTES], vec![2; 2 * DIRECT_BYTES]].concat();
    expected.resize(4 * DIRECT_BYTES, 0);
    expected.resize(5 * DIRECT_BYTES, 2);
    expected[..10].fill(3);
    assert_eq!(content(&*file), expected);
    bed.env.disk().remove(&bed.path("f")).expect("remove");
    file.write_direct(&buf, 0, true).expect("a file without a name");
}

pub(super) fn the_device_is_described(bed: &Bed) {
    let info = bed.env.disk().device(&bed.dir).expect("known");
    assert!(!info.file_system.is_empty());
}

pub(super) fn set_len_cuts_and_extends_with_zeros(bed: &Bed) {
    let file = bed.create("f");
    file.write_at(&[5; 6_000], 0).expect("write");
    file.set_len(10).expect("cut");
    file.set_len(9_000).expect("extend");
    let mut expected = vec![0; 9_000];
    expected[..10].fill(5);
    assert_eq!(content(&*file), expected);
}

/// A file system may have no holes: then it says so, and nothing has changed.
pub(super) fn a_hole_at_the_end_reads_as_zeros_and_takes_no_space(bed: &Bed) {
    const BYTES: usize = 1 << 20;
    let file = bed.create("f");
    file.write_at(&vec![7; BYTES], 0).expect("write");
    file.sync_data().expect("sync");
    let before = file.allocated_bytes().expect("known");
    match file.punch_hole_from(8192) {
        Ok(()) => {}
        Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
    }
    let mut expected = vec![0; BYTES];
    expected[..8192].fill(7);
    assert_eq!(content(&*file), expected);
    let after = file.allocated_bytes().expect("known");
    assert!(before >= BYTES as u64 && after <= 64 * 1024, "{before} bytes before, {after} after");
    file.write_at(&vec![0; BYTES - 8192], 8192).expect("write into the hole");
    file.sync_data().expect("sync");
    assert!(file.allocated_bytes().expect("known") >= BYTES as u64, "it takes space again");
    assert_eq!(content(&*file), expected);
}

/// A file system may not take space without a write: then it says so, and nothing has changed.
pub(super) fn allocated_space_is_taken_and_changes_no_byte(bed: &Bed) {
    const BYTES: u64 = 1 << 20;
    let file = bed.create("f");
    file.write_at(&[7; 6_000], 0).expect("write");
    if let Err(error) = file.allocate(BYTES) {
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        assert_eq!(file.len().expect("len"), 6_000);
        return;
    }
    let mut expected = vec![7; 6_000];
    expected.resize(BYTES as usize, 0);
    assert_eq!(content(&*file), expected);
    assert!(file.allocated_bytes().expect("known") >= BYTES);
    file.allocate(5_000).expect("it has that");
    assert_eq!(content(&*file), expected);
    file.write_at(&[8; 6_000], 2_000).expect("write");
    expected[2_000..8_000].fill(8);
    if file.punch_hole_from(16_384).is_ok() {
        assert!(file.allocated_bytes().expect("known") < BYTES);
        file.allocate(BYTES).expect("the hole is filled");
        assert!(file.allocated_bytes().expect("known") >= BYTES);
    }
    file.sync_data().expect("sync");
    assert_eq!(content(&*file), expected);
}

pub(super) fn a_file_opened_for_reading_refuses_writes(bed: &Bed) {
    bed.create("f").write_at(b"x", 0).expect("write");
    let file = bed.env.disk().open(&bed.path("f"), OpenOptions::Read).expect("open");
    assert!(file.write_at(b"y", 0).is_err());
    assert!(file.write_at_dsync(b"y", 0).is_err());
    assert!(!file.takes_direct_writes().expect("the kernel says it"));
    assert!(file.write_direct(&AlignedBuf::new(1), 0, false).is_err());
    assert!(file.set_len(0).is_err());
    assert!(file.punch_hole_from(0).is_err());
    assert!(file.allocate(8192).is_err());
    assert_eq!(content(&*file), b"x");
}

pub(super) fn a_removed_file_stays_readable(bed: &Bed) {
    let file = bed.create("f");
    file.write_at(b"still here", 0).expect("write");
    bed.env.disk().remove(&bed.path("f")).expect("remove");
    bed.env.disk().sync_dir(&bed.dir).expect("sync_dir");
    assert_eq!(content(&*file), b"still here");
}

pub(super) fn threads_write_their_own_blocks(bed: &Bed) {
    let file = bed.create("f");
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            let file = Arc::clone(&file);
            let body = move || {
                for round in 0..50 {
                    let offset = (round * 4 + u64::from(thread)) * 1_000;
                    file.write_at(&[thread + 1; 1_000], offset).expect("write");
                }
                file.sync_data().expect("sync");
            };
            bed.env.spawn("writer", Box::new(body)).expect("spawn")
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join()));
    let bytes = content(&*file);
    assert_eq!(bytes.len(), 200_000);
    for (block, bytes) in bytes.chunks(1_000).enumerate() {
        assert!(bytes.iter().all(|byte| usize::from(*byte) == block % 4 + 1), "block {block}");
    }
}

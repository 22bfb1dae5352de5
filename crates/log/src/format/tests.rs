//! Golden bytes, round trips, and invalid inputs.

use super::frame::Record;
use super::*;
use crate::staging::StagingId;
use fulgurite_types::{Csn, DatabaseId, EntryId, Epoch, Lsn, Reader, crc32c};
use proptest::prelude::*;

const ID: DatabaseId = DatabaseId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn group() -> GroupHeader {
    GroupHeader {
        format: GroupFormat::Replicable,
        kind: GroupKind::Frames,
        database: ID,
        epoch: Epoch(3),
        segment: 5,
        offset: 4096,
        payload_bytes: 4,
        first_csn: Csn(0x1122),
        frames: 1,
        next_segment: 0,
        durable: Csn(0x1121),
        entry: EntryId { term: 0x31, index: 0x3233 },
        agreed: Agreed { index: 0x3232, csn: Csn(0x1120) },
    }
}

/// As programs wrote it before there was replication.
fn local_group() -> GroupHeader {
    let (entry, agreed) = Default::default();
    GroupHeader { format: GroupFormat::Local, entry, agreed, ..group() }
}

fn frame(body: &[u8]) -> FrameHeader {
    FrameHeader {
        kind: 1,
        flags: 2,
        codec: 3,
        body_bytes: body.len() as u32,
        csn: Csn(7),
        term: 8,
        commit_time_ms: 9,
        body_crc: crc32c(body),
    }
}

fn chunk() -> ChunkRef {
    let spill = SpillId { node: 1, epoch: Epoch(2), counter: 3 };
    ChunkRef { spill, ordinal: 4, lsn: Lsn::new(5, 6), len: 7 }
}

#[test]
fn golden_segment_header() {
    let block = SegmentHeader { bytes: 1 << 20, database: ID, number: 42 }.encode();
    assert_eq!(block.len(), 4096);
    assert_eq!(hex(&block[..40]), GOLDEN_SEGMENT);
    assert!(block[40..].iter().all(|&byte| byte == 0));
}

#[test]
fn golden_group_header() {
    assert_eq!(hex(&group().encode(b"abcd")), GOLDEN_GROUP);
    assert_eq!(group().encode(b"abcd").len() as u32, GROUP_HEADER_BYTES);
}

#[test]
fn golden_group_header_of_format_1() {
    assert_eq!(hex(&local_group().encode(b"abcd")), GOLDEN_LOCAL_GROUP);
    assert_eq!(local_group().encode(b"abcd").len() as u32, BULK_START_BYTES);
    let start = GroupHeader::bulk_start(ID, Epoch(3), 5, Csn(0));
    assert_eq!(start.encode(&[]).len() as u32, BULK_START_BYTES);
}

/// The first version differs in its number.
#[test]
fn segment_headers_of_version_1_decode() {
    let header = SegmentHeader { bytes: 1 << 20, database: ID, number: 42 };
    let mut block = header.encode();
    block[8] = 1;
    let crc = crc32c(&block[..36]);
    block[36..40].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(hex(&block[..40]), GOLDEN_SEGMENT_1);
    assert_eq!(SegmentHeader::decode(&block), Ok(header));
    block[8] = 3;
    assert!(SegmentHeader::decode(&block).is_err());
}

#[test]
fn golden_frame_header() {
    assert_eq!(hex(&frame(b"abcd").encode()), GOLDEN_FRAME);
}

#[test]
fn golden_local_record() {
    let mut bytes = Vec::new();
    encode_local_record(&[chunk()], &mut bytes);
    assert_eq!(hex(&bytes), GOLDEN_LOCAL);
    assert_eq!(bytes.len() as u32, local_record_bytes(1));
}

#[test]
fn golden_epoch_start() {
    let start = EpochStart {
        epoch: Epoch(3),
        previous: Epoch(2),
        previous_segment: 4,
        previous_end: Lsn::new(6, 4200),
        previous_csn: Csn(99),
        staging: None,
    };
    let bytes = start.encode();
    assert_eq!(hex(&bytes), GOLDEN_EPOCH);
    assert_eq!(EpochStart::decode(&bytes), Ok(start));
    let staging = EpochStart { staging: Some(StagingId(0x0102)), ..start };
    let bytes = staging.encode();
    assert_eq!(hex(&bytes), format!("{GOLDEN_EPOCH}02010000000000000000000000000000"));
    assert_eq!(bytes.len() as u32, EpochStart::BYTES_MAX);
    assert_eq!(EpochStart::decode(&bytes), Ok(staging));
    assert!(EpochStart::decode(&bytes[..40]).is_err(), "half of an id");
}

#[test]
fn golden_bulk_record() {
    let lsn = Lsn::new(5, 4168);
    let header = BulkHeader { kind: BulkKind::LeafNode, codec: 0, flags: 0, body_bytes: 4, lsn };
    let bytes = header.encode(ID, &[b"ab", b"cd"]);
    assert_eq!(hex(&bytes), GOLDEN_BULK);
    assert_eq!(BulkHeader::decode(&bytes, lsn), Ok(header));
    assert_eq!(header.check(ID, &bytes, b"abcd"), Ok(()));
    assert!(header.check(DatabaseId(1), &bytes, b"abcd").is_err());
    assert!(BulkHeader::decode(&bytes, Lsn::new(6, 4168)).is_err());
}

const GOLDEN_SEGMENT: &str =
    "46756c675365670a0200000000001000000102030405060708090a0b0c0d0e0f2a00000069b9f5c0";
const GOLDEN_SEGMENT_1: &str =
    "46756c675365670a0100000000001000000102030405060708090a0b0c0d0e0f2a000000c4522723";
const GOLDEN_GROUP: &str = "4667727002010000000102030405060708090a0b0c0d0e0f03000000050000000010000004000000221100000000000001000000000000002111000000000000310000000000000033320000000000003232000000000000201100000000000091750bd500000000";
const GOLDEN_LOCAL_GROUP: &str = "4667727001010000000102030405060708090a0b0c0d0e0f030000000500000000100000040000002211000000000000010000000000000021110000000000003bfb167b00000000";
const GOLDEN_FRAME: &str = "0101020304000000070000000000000008000000000000000900000000000000310ac89216d0c013";
const GOLDEN_LOCAL: &str = "80000100904f9bb10100000002000000030000000000000004000000060000000500000007000000";
const GOLDEN_EPOCH: &str = "03000000020000000400000068100000060000006300000000000000";
const GOLDEN_BULK: &str = "020000000400000048100000050000006bc3ba6600000000";

#[test]
fn a_group_is_valid_where_it_was_written_only() {
    is_valid_where_it_was_written_only(group());
    is_valid_where_it_was_written_only(local_group());
}

fn is_valid_where_it_was_written_only(group: GroupHeader) {
    let mut bytes = group.encode(b"abcd").to_vec();
    bytes.extend_from_slice(b"abcd");
    let own = group.at();
    assert_eq!(GroupHeader::decode_at(&bytes, own), Ok((group, &b"abcd"[..])));
    let others = [
        GroupAt { database: DatabaseId(1), ..own },
        GroupAt { segment: 6, ..own },
        GroupAt { offset: 4104, ..own },
    ];
    for other in others {
        assert!(GroupHeader::decode_at(&bytes, other).is_err());
    }
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        assert!(GroupHeader::decode_at(&bytes, own).is_err(), "byte {at} is checked");
        bytes[at] ^= 1;
    }
}

#[test]
fn every_byte_of_a_frame_is_checked() {
    let mut payload = Vec::new();
    encode_local_record(&[chunk(), chunk()], &mut payload);
    payload.extend_from_slice(&frame(b"body").encode());
    payload.extend_from_slice(b"body");
    let records: Vec<_> = Records::new(&payload).collect();
    let body_at = local_record_bytes(2) + FRAME_HEADER_BYTES;
    let expected = Record { header: frame(b"body"), body: b"body", body_at, local: vec![chunk(), chunk()] };
    assert_eq!(records, vec![Ok(expected)]);
    for at in 0..payload.len() {
        payload[at] ^= 4;
        assert!(Records::new(&payload).any(|record| record.is_err()), "byte {at} is checked");
        payload[at] ^= 4;
    }
}

#[test]
fn names_of_segments() {
    assert_eq!(segment_file_name(42), "0000000042.seg");
    assert_eq!(parse_number("0000000042.seg", SEGMENT_SUFFIX), Some(42));
    for wrong in
        ["42.seg", "0000000042.new", "0000000000.seg", "00000000042.seg", "+000000042.seg", "9999999999.seg"]
    {
        assert_eq!(parse_number(wrong, SEGMENT_SUFFIX), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn no_input_panics(bytes: Vec<u8>) {
        _ = SegmentHeader::decode(&bytes);
        _ = GroupHeader::decode_unchecked(&bytes);
        _ = GroupHeader::decode_at(&bytes, group().at());
        _ = EpochStart::decode(&bytes);
        _ = FrameHeader::decode(&mut Reader::new(&bytes));
        _ = BulkHeader::decode(&bytes, Lsn::NULL).map(|header| header.check(ID, &bytes, &bytes));
        Records::new(&bytes).for_each(drop);
    }

    /// Valid beginnings with arbitrary continuations reach deeper than noise.
    #[test]
    fn no_mutation_panics(at in 0usize..200, value: u8, rest: Vec<u8>) {
        let mut payload = Vec::new();
        encode_local_record(&[chunk()], &mut payload);
        payload.extend_from_slice(&frame(b"body").encode());
        payload.extend_from_slice(b"body");
        payload.extend_from_slice(&rest);
        let at = at % payload.len();
        payload[at] = value;
        Records::new(&payload).for_each(drop);
        let mut bytes = group().encode(&payload).to_vec();
        bytes.extend_from_slice(&payload);
        bytes[at % 72] = value;
        _ = GroupHeader::decode_at(&bytes, group().at());
    }

    #[test]
    fn frames_come_back(kind: u8, flags: u8, codec: u8, csn: u64, term: u64, time: u64, body: Vec<u8>) {
        let header = FrameHeader {
            kind, flags, codec, body_bytes: body.len() as u32, csn: Csn(csn), term, commit_time_ms: time,
            body_crc: crc32c(&body),
        };
        let mut payload = header.encode().to_vec();
        payload.extend_from_slice(&body);
        let record = Records::new(&payload).next().expect("one record").expect("a valid one");
        prop_assert_eq!(record.header, header);
        prop_assert_eq!(record.body, &body[..]);
    }
}

#[test]
fn local_records_are_taken_out_of_a_payload_and_put_back() {
    let put = |csn: u64, chunks: u32, out: &mut Vec<u8>, plain: &mut Vec<u8>| {
        let body = vec![csn as u8; csn as usize % 5];
        let local: Vec<_> = (0..chunks).map(|ordinal| ChunkRef { ordinal, ..chunk() }).collect();
        if chunks > 0 {
            encode_local_record(&local, out);
        }
        let frame = [&FrameHeader { csn: Csn(csn), ..frame(&body) }.encode()[..], &body].concat();
        out.extend_from_slice(&frame);
        plain.extend_from_slice(&frame);
        (Csn(csn), local)
    };
    for counts in [&[0_u32, 2, 0, 1, 3][..], &[1], &[0, 1], &[2, 0], &[]] {
        let (mut payload, mut plain) = (Vec::new(), Vec::new());
        let records = (7..).zip(counts).map(|(csn, count)| put(csn, *count, &mut payload, &mut plain));
        let records: LocalRecords = records.filter(|(_, local)| !local.is_empty()).collect();
        let (rest, taken) = take_local_records(&payload).unwrap();
        assert_eq!((rest.as_deref().unwrap_or(&payload), &taken), (&plain[..], &records));
        assert_eq!(rest.is_none(), records.is_empty());
        assert_eq!(put_local_records(&plain, &records).unwrap(), payload);
        let other = vec![(Csn(99), vec![chunk()])];
        assert!(put_local_records(&plain, &other).is_err(), "a record of a frame that is not there");
    }
}

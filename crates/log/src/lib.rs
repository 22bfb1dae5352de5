//! The log: frames in, LSNs out. It carries opaque bytes and knows no keys.
//!
//! A commit takes four calls: [`CommitLog::admit`] waits for room, [`Log::reserve`] gives the frame its CSN and its
//! reserved range, [`CommitLog::fill`] copies the frame there, and [`CommitLog::wait_durable`] returns once it survives a
//! power cut. Large records that no commit path writes go to the bulk stream: [`Log::append_bulk`], [`Log::sync_bulk`].
//!
//! ```
//! use fulgurite_types::{Csn, DatabaseId, crc32c};
//! use fulgurite_env::SimEnv;
//! use fulgurite_log::{CommitLog, Durability, Log, LogError, LogOptions, frame_bytes};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), LogError> {
//! let log = Log::create(SimEnv::new(1), Path::new("/db/log"), DatabaseId(1), LogOptions::default())?;
//! let body = b"what a transaction did";
//! let admission = log.admit(frame_bytes(body.len() as u32), 0)?;
//! let reservation = log.reserve(admission, Durability::Sync);
//! let (csn, lsn) = (reservation.csn(), reservation.body_lsn());
//! let header = reservation.header(1, crc32c(body));
//! log.fill(reservation, &header, body, &[]);
//! log.wait_durable(csn)?;
//! assert_eq!(log.read_bytes(lsn, body.len() as u32)?, body);
//! assert_eq!(log.reader(Csn::ZERO)?.next()?.map(|frame| frame.header.csn), Some(csn));
//! log.close()
//! # }
//! ```
//!
//! # Invariants
//! - INV-LOG-1: `synced <= written <= filled <= reserved` and `synced <= durable <= filled`. `durable` passes a byte
//!   only if it is known to survive a power cut (`stream/watermarks.rs` says how).
//! - INV-LOG-2: a segment is flushed, its end record included, before a frame of the next one counts as durable.
//! - INV-LOG-3: reserved ranges never overlap. One thread fills each, once, and no thread reads it before.
//! - INV-LOG-4: an admitted commit never lacks a buffer or a segment: credit covers every promise.
//! - INV-LOG-5: segment numbers rise along the commit stream; each segment keeps room for its end record; no record
//!   spans segments.
//! - INV-LOG-6: one flush leader at a time. It releases only groups that it took, and only after it wrote them.
//! - INV-LOG-7: after a failed write or sync, or a commit that died while filling, nothing is written again.
//! - INV-LOG-8: an epoch begins in a segment of its own, with a number above any on disk. Its start is synced before
//!   its first commit, and after all that it declares alive was made durable.
//! - INV-LOG-9: recovery writes nothing before it has judged the end of the log.
//! - INV-LOG-10: a replay point is at or before the first frame that replay has to deliver.
//! - INV-LOG-11: a sleeper sees the change that it waits for, or the waker sees the sleeper's bit.
//! - INV-LOG-12, 13: a group that a committer joined keeps its slot until it is filled; a closed one never changes its
//!   size.
//! - INV-LOG-14: while a commit waits, there is a flush leader or a waiter that is awake.
//! - INV-LOG-15: no work waits for a background thread that sleeps.
//! - INV-LOG-16: a frame is written only after the bulk stream was synced up to the position that its committer
//!   required ([`CommitLog::require_bulk`]) before it reserved. So a frame that recovery finds has its chunks.
//! - INV-LOG-17: at most 4 MiB at each append point of the bulk stream, and the last record of each appending thread, are unsynced. That
//!   bounds the sync of INV-LOG-16, for which all later commits wait.
//! - INV-LOG-18: on a full disk, openings that are killed, any number of them, never use up what the next one needs.
//!   Let `P` count the files of the reserve, the segments of epochs that were passed over, those that a killed opening
//!   made and in which no epoch began, and 1 if the newest epoch has no commit and the replay point is before it. An
//!   opening takes a file for its epoch, which has no commit. It passes over the newest epoch if that has none either.
//!   Once its own epoch has begun it gives that segment back to the reserve; if it is killed before, the next recovery
//!   does, and gives back a segment in which no epoch began. So `P` stays, and with `P >= 2` there is always a file to
//!   take. Users' writes take nothing of the reserve, and a checkpoint leaves two files. A first commit, or a
//!   replay point in the epoch, takes 1 from `P`: on a full disk only if two files are left ([`Log::must_stay_empty`]).
//!   Free space does not count, because another program may take it; and on a nearly full disk no segment is made
//!   before two files are kept. A failed sync, or options with another smallest size, may cost files of the reserve.
//! - INV-LOG-19: on a full disk sealed segments give back the space at their ends that holds no group and no record
//!   (`segments/tails.rs`).
//! - INV-LOG-20: a file that comes back under a name which it had lost is not taken for the segment of that name, nor
//!   is one file used as two (`segments/reserve.rs`).
//! - INV-LOG-21, 22: a segment has all its space before it has its name, and one with bytes of a former life of its file
//!   begins with zeros or with the start of the bulk stream (`segments/make.rs`).
//! - INV-LOG-23: no thread waits for the write of a record that is longer than the largest segment, but the one that
//!   appends it, or another that appends one, or that closes the log (`bulk_stream/long_record.rs`).
//! - INV-STG-1 to 4: the staged commits, when its memory is used again, what recovery takes from it, and when an opening needs it
//!   (`staging/mod.rs`).
//! - INV-TIME-1: commit times rise with CSNs.

mod bulk_stream;
mod chunks;
mod commit_log;
mod durability;
mod error;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group_cursor;
mod log;
mod options;
mod reader;
mod recovery;
mod room;
mod scan;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod segments;
mod sent_chunks;
mod shared;
mod signal;
mod staging;
mod stats;
mod stream;
mod threads;

pub use bulk_stream::{Apart, BULK_BUFFERS_BYTES, BulkPosition, BulkRecord, ClosedLog, ReadBulk};
pub use commit_log::CommitLog;
pub use durability::{Durability, FlushScheme, Waiting};
pub use error::{Damage, LogError, PoisonCause};
pub use format::{
    Agreed, BULK_HEADER_BYTES, BulkHeader, BulkKind, ChunkRef, EncodedHeader, EpochStart, FRAME_HEADER_BYTES,
    FrameHeader, GROUP_HEADER_BYTES, GroupFormat, GroupHeader, GroupKind, OwnedBytes, SEGMENT_DATA_START,
    SegmentHeader, SpillId, ValueOwner, frame_bytes, local_record_bytes,
};
pub use log::{BulkBoundary, Log};
pub use options::{LogOptions, StagingOptions};
pub use reader::{EntryReader, LogReader, OwnedFrame};
pub use recovery::{RecoveredFrame, RecoveryReport, RecoverySink, ReplayFrom};
pub use room::LogRoom;
pub use scan::{ScanItem, ScanProblem, SegmentScan, scan_segment, scan_segment_in, visit_segment};
pub use segments::{SegmentInfo, Stream};
pub use sent_chunks::{ChunkPins, FrameChunks, SentChunk};
pub use signal::{Signal, Sleep};
pub use staging::{StagingId, StagingSummary, inspect_staging};
pub use stats::LogStats;
pub use stream::append_entries::Entry;
pub use stream::entries::{EntryMatch, EntryPositions, Role};
pub use stream::groups::TimeBounds;
pub use stream::watermarks::Watermarks;
pub use stream::{Admission, Numbers, Reservation};

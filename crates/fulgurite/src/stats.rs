//! Counters and sizes of an open database.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_index::{MemoryWaits, NodeLoads};
use fulgurite_log::{CommitLog, FlushScheme, LogStats, SegmentInfo, StagingOptions, Stream};
use fulgurite_types::Csn;

use crate::CsnRange;
use crate::checkpoint::pacing::CheckpointProgress;
use crate::clock::ClockStatus;
use crate::collection::CollectionStats;
use crate::engine::Engine;
use crate::latency::{Latencies, Waits};
use crate::progress::{MaintenanceError, WorkTimes};
use crate::space::view::{SpaceStats, Viewed};

/// Counters, sizes in bytes, and times: the result of [`Database::stats`](crate::Database::stats).
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let before = db.stats();
/// db.table("users")?.put("alice", "1")?;
/// let after = db.stats();
/// assert!(after.durable > before.durable);
/// assert!(after.poisoned.is_none() && after.maintenance_error.is_none());
/// println!("{} bytes on disk, {} in memtables", after.segment_bytes, after.memtable_bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The newest commit that transactions of this process see.
    pub visible: Csn,
    /// The newest commit up to which all survive a power cut.
    pub durable: Csn,
    /// The newest commit up to which all were synced by a flush of the device. Less than `durable` only with
    /// [`Durability::NoBarrier`](crate::Durability::NoBarrier), and by the commits that are staged in persistent memory.
    pub synced: Csn,
    /// The newest commit that the last checkpoint covers: the next open replays the commits above it.
    pub checkpoint_covered: Csn,
    /// Bytes of log since the last checkpoint began, the operations of large transactions included: about what the next open
    /// would replay after a crash now.
    pub uncovered_log_bytes: u64,
    /// Checkpoints since the database was opened, those that found nothing new included.
    pub checkpoints: u64,
    /// How long they took.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// db.table("users")?.put("alice", "1")?;
    /// db.checkpoint()?;
    /// let stats = db.stats();
    /// assert!(stats.checkpoints >= 1 && stats.checkpoint_times.last_ns <= stats.checkpoint_times.max_ns);
    /// # Ok(())
    /// # }
    /// ```
    pub checkpoint_times: WorkTimes,
    /// The checkpoint that is being written.
    pub checkpoint: Option<CheckpointProgress>,
    /// Bytes of nodes in memory that the next checkpoint has to write: those of the memtables come on top.
    pub dirty_bytes: u64,
    /// How many memtables were merged into their tables' trees since the database was opened.
    pub merges: u64,
    /// How long the merges took.
    pub merge_times: WorkTimes,
    /// The last error of background work, which is retried without a call. Commits may have to wait for it, and are
    /// refused with its reason where they cannot proceed without it.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// if let Some(error) = db.stats().maintenance_error.filter(|error| error.rounds > 0) {
    ///     eprintln!("failing for {} rounds: {}", error.rounds, error.what);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub maintenance_error: Option<MaintenanceError>,
    /// How many times the database has been opened.
    pub epoch: u32,
    /// Tables, the catalog not counted.
    pub tables: u64,
    /// The memory budget, and what takes of it.
    pub memory: MemoryStats,
    /// Memory of the memtables: versions that are not merged yet.
    pub memtable_bytes: u64,
    /// Versions in the memtables, not merged yet.
    pub memtable_entries: u64,
    /// Open snapshots and transactions, those that were ended not counted.
    pub snapshots: u64,
    /// How many snapshots and transactions were ended since the database was opened because they were older than
    /// [`Options::max_snapshot_age`](crate::Options::max_snapshot_age).
    pub snapshots_ended: u64,
    /// Versions in the trees that newer ones of their keys replaced, kept by merges since the database was opened: open
    /// snapshots see them, or their leaf was not merged since. Those in memtables and of dropped tables are not in it.
    pub superseded_versions: u64,
    /// The CSN of the oldest of them.
    pub oldest_snapshot: Option<Csn>,
    /// How long the one that was taken first has been open. The versions that it sees stay on disk. It may be above
    /// [`Options::max_snapshot_age`](crate::Options::max_snapshot_age): nothing has been pruned since.
    pub oldest_snapshot_age: Option<Duration>,
    /// Reads of one key since the database was opened. These and scans are counted without locks: with more than 64
    /// reading threads the counters may miss a few.
    pub gets: u64,
    /// Ranges that were opened for reading since the database was opened.
    pub scans: u64,
    /// Bytes of keys and values that were committed since the database was opened, counted as `gets` are.
    pub user_bytes: u64,
    /// Commits that were refused with [`Error::Conflict`](crate::Error::Conflict) since the database was opened.
    pub conflicts: u64,
    /// How many times [`Database::transact`](crate::Database::transact) and its variants ran a transaction again.
    pub retries: u64,
    /// Bytes on disk that the last checkpoint refers to.
    pub live_bytes: u64,
    /// Bytes of all keys and their newest values, as the last checkpoint has them: beside `segment_bytes`, how much more the
    /// database takes than its data. Rows that have expired, or that a range delete hides, count until they are purged. `None` of a
    /// database from before these were counted.
    pub data_bytes: Option<u64>,
    /// Bytes of all segments, ready ones included.
    pub segment_bytes: u64,
    /// How many segments there are.
    pub segments: SegmentCounts,
    /// The room on the disk, and how much is kept of it.
    pub room: RoomStats,
    /// What the bytes of the segments are: live, dead, pinned and by what. While background work frees segments, as they
    /// were just before.
    pub space: SpaceStats,
    /// Why writes are refused, if they are.
    pub poisoned: Option<String>,
    /// If the log has failed: the range from the first to the last commit that was acknowledged at level
    /// [`Durability::Async`](crate::Durability::Async) or [`Durability::None`](crate::Durability::None) and is not
    /// known to be durable.
    pub at_risk: Option<CsnRange>,
    /// Whether the database was opened with [`Options::read_only`](crate::Options::read_only).
    pub read_only: bool,
    /// If it was, and the last writing process was killed: the commits after the log's last durable mark. Reads see
    /// them. The log does not prove that they had reached the disk: those that were acknowledged at
    /// [`Durability::Sync`](crate::Durability::Sync) had; a power cut may undo some of the others. Opening for writing
    /// makes all of them durable.
    pub unproven: Option<CsnRange>,
    /// The clock by which keys expire.
    pub clock: ClockStatus,
    /// How long commits took.
    pub latency: Latencies,
    /// How long commits waited for background work.
    pub waits: Waits,
    /// Whether the log is written around the page cache. [`Options::direct_io`](crate::Options::direct_io), the flush
    /// scheme and the file system decide that when the database is opened.
    pub direct_io: bool,
    /// How commits share writes and flushes.
    pub flush_scheme: FlushScheme,
    /// Where commits are staged ([`Options::staging`](crate::Options::staging)); [`LogStats::staged_bytes`] are those that
    /// are only there.
    pub staging: Option<StagingOptions>,
    /// What garbage collection has done.
    pub collection: CollectionStats,
    /// The log's counters.
    pub log: LogStats,
}

/// The memory budget ([`Options::memory_bytes`](crate::Options::memory_bytes)) and what takes of it, counted from allocation to
/// release, in use by the database or held by the program.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.table("users")?.put("alice", "1")?;
/// let memory = db.stats().memory;
/// assert!(memory.memtable_bytes > 0 && memory.total_bytes() <= memory.budget_bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget.
    pub budget_bytes: u64,
    /// Bytes of the nodes of trees: leaves with their values, and inner nodes.
    pub node_bytes: u64,
    /// Bytes of values that are not in leaves and were read from the log: cached ones, and those that the program holds.
    pub value_bytes: u64,
    /// Bytes of those nodes and values that no tree and no cache has any more: values, cursors and transactions of the program hold
    /// them, and, for moments, reads and merges.
    pub lent_bytes: u64,
    /// Bytes of the slot of each node below those in memory, where its record's position is noted; and of the accounts and
    /// keys that changed since nodes were written.
    pub slot_bytes: u64,
    /// Bytes of what memtables hold, with those that are merged and still read, and of the commits' versions that values hold.
    pub memtable_bytes: u64,
    /// About the bytes of the state of the tables, each with its name and its empty memtable: 1.5 KB for each table, which nothing gives
    /// back until it is dropped. Where these alone exceed the budget, eviction leaves a sixteenth of it for nodes.
    pub table_bytes: u64,
    /// Bytes of the log's buffers: [`Options::log_buffer_bytes`](crate::Options::log_buffer_bytes), those of the bulk stream, and
    /// those of [`Options::staging`](crate::Options::staging) in volatile memory, with half as much for the list of their groups.
    pub log_buffer_bytes: u64,
    /// Bytes of what open transactions have written and read, savepoints included.
    pub transaction_bytes: u64,
    /// Bytes of range tombstones.
    pub tombstone_bytes: u64,
    /// About the bytes of the tickets that are not complete, in steps of 64 tickets.
    pub ticket_bytes: u64,
    /// About the bytes of the accounts: how much of each segment is live, by table, as of now, of the last write-out, and of
    /// two checkpoints.
    pub account_bytes: u64,
    /// Bytes of the segment that garbage collection has decoded, at most.
    pub collection_bytes: u64,
    /// Bytes that the program counts itself ([`Database::program_memory`](crate::Database::program_memory)).
    pub program_bytes: u64,
    /// Resident bytes of the whole process, not of files; 0 if that is not known. Beside [`MemoryStats::total_bytes`] it has the program's own memory, code,
    /// stacks, and `freed_bytes`.
    pub resident_bytes: u64,
    /// At most so many of these were freed, by the database or the rest of the program, and are kept by the allocator, in holes between
    /// others; 0 if that is not known (it is with glibc 2.33 and later, and by
    /// [`use_allocator`](crate::env::use_allocator)).
    pub freed_bytes: u64,
    /// How many values that are not in leaves were read and found in memory, and how many were read from the log, since the
    /// database was opened.
    pub value_hits: u64,
    /// See `value_hits`.
    pub value_misses: u64,
    /// How many nodes were evicted since the database was opened.
    pub evicted_nodes: u64,
    /// How many values.
    pub evicted_values: u64,
    /// The bytes of both.
    pub evicted_bytes: u64,
    /// How many dirty leaves were written so that they could be evicted. They are `evicted_nodes`, too, unless they changed or
    /// were read meanwhile; the others were clean.
    pub leaves_written_to_evict: u64,
    /// The bytes of their records, and of those of inner nodes.
    pub bytes_written_to_evict: u64,
    /// How many nodes were read from disk, by cause. Beside [`Stats::gets`] and [`Stats::scans`]: how often reads miss.
    pub node_loads: NodeLoads,
    /// How often reads from disk and merges had to wait for memory, and for how long. How long commits waited for memtables
    /// is in [`Waits::memtables`].
    pub waits: MemoryWaits,
}

impl MemoryStats {
    /// All that is used.
    pub fn total_bytes(&self) -> u64 {
        let of_index = self.node_bytes + self.value_bytes + self.slot_bytes + self.memtable_bytes;
        let of_engine = self.log_buffer_bytes
            + self.transaction_bytes
            + self.ticket_bytes
            + self.account_bytes
            + self.collection_bytes
            + self.program_bytes;
        of_index + self.table_bytes + self.tombstone_bytes + of_engine
    }
}

/// Bytes that were given to the device since the database was opened, by cause ([`Stats::writes`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteBytes {
    /// Groups of commits in the log.
    pub commits: u64,
    /// Large values, and the operations of large transactions, which are written beside the log.
    pub chunks: u64,
    /// Nodes that checkpoints wrote: those that commits changed, and those that garbage collection made dirty or purged.
    pub checkpoints: u64,
    /// Nodes that were written so that they could be evicted.
    pub evictions: u64,
    /// Records of nodes that garbage collection copied.
    pub copied_nodes: u64,
    /// Values that garbage collection moved.
    pub moved_values: u64,
    /// Checkpoints' own records, and the starts of segments.
    pub other: u64,
    /// Zeros with which segments were filled before they were used.
    pub zeros: u64,
}

impl WriteBytes {
    /// Every cause with its bytes, for reports.
    pub fn by_cause(&self) -> [(&'static str, u64); 8] {
        let WriteBytes { commits, chunks, checkpoints, evictions, copied_nodes, moved_values, other, zeros } =
            *self;
        [
            ("commits", commits),
            ("chunks", chunks),
            ("checkpoints", checkpoints),
            ("evictions", evictions),
            ("copied_nodes", copied_nodes),
            ("moved_values", moved_values),
            ("other", other),
            ("zeros", zeros),
        ]
    }

    /// Of all causes.
    pub fn total(&self) -> u64 {
        self.by_cause().iter().map(|(_, bytes)| bytes).sum()
    }

    /// How many bytes were written for each of `user_bytes`; `None` if there are none.
    pub fn amplification(&self, user_bytes: u64) -> Option<f64> {
        (user_bytes > 0).then(|| self.total() as f64 / user_bytes as f64)
    }
}

/// How many segments the log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentCounts {
    /// Of the commit stream.
    pub commit: u64,
    /// Of the bulk stream.
    pub bulk: u64,
    /// Ready to be used by either.
    pub ready: u64,
}

impl SegmentCounts {
    fn of(segments: &[SegmentInfo]) -> SegmentCounts {
        let mut counts = SegmentCounts::default();
        for segment in segments {
            *match segment.stream {
                Some(Stream::Commit) => &mut counts.commit,
                Some(Stream::Bulk) => &mut counts.bulk,
                None => &mut counts.ready,
            } += 1;
        }
        counts
    }
}

/// The room on the disk of the log. While there is enough, commits are admitted; else they wait for a checkpoint, and
/// are refused if checkpoints free nothing.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let room = db.stats().room;
/// if let Some(why) = &room.puts_refused {
///     eprintln!("{why}; checkpoints may free {} bytes", room.freeable_bytes);
/// }
/// # assert!(room.puts_refused.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoomStats {
    /// Bytes that are free on the disk of the log, as the file system reports it; `u64::MAX` if it does not. Where a quota
    /// gives fewer, `puts_refused` says so.
    pub free_bytes: u64,
    /// The same for the disk of the database's directory, if the log is on another one. Nothing is refused for it: its
    /// files are overwritten in place, which takes no space unless the file system copies on write.
    pub home_free_bytes: u64,
    /// Bytes of the log's own files that are free for checkpoints: recycled ones, ready ones, the reserve.
    pub ready_bytes: u64,
    /// Bytes that are kept for checkpoints, the way out of a full disk: puts wait once fewer are free or ready.
    pub reserved_bytes: u64,
    /// About how many bytes checkpoints would free by now, in segments that are dead.
    pub freeable_bytes: u64,
    /// After how many seconds puts will be refused, at the rate at which the room has shrunk in the last minute, by
    /// this database or another program: the space that checkpoints would free counts as free. `None` if it has not
    /// shrunk, or has not been watched for four seconds. It is watched while commits come, and by each call of
    /// [`Database::stats`](crate::Database::stats).
    pub seconds_left: Option<u64>,
    /// Why puts are refused, if the last one that did not fit was and there has been no room for it since.
    pub puts_refused: Option<String>,
}

impl RoomStats {
    fn read(engine: &Engine) -> RoomStats {
        let seen = engine.room.figures();
        RoomStats {
            free_bytes: seen.log.reported_bytes,
            home_free_bytes: engine.room.home_free_bytes(),
            ready_bytes: seen.ready_bytes(),
            reserved_bytes: seen.kept,
            freeable_bytes: engine.room.freeable_bytes(),
            seconds_left: engine.room.seconds_left(&seen),
            puts_refused: engine.room.puts_refused(),
        }
    }
}

impl Stats {
    /// How many bytes were given to the device for each byte of the user's ([`Stats::user_bytes`]) since the database was
    /// opened: the log, nodes and chunks as they were written, and the zeros with which segments were filled before. The
    /// file system's own writes come on top. `None` before the first commit.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// db.table("users")?.put("alice", "1")?;
    /// println!("{:.1} bytes written for each byte", db.stats().write_amplification().unwrap_or(0.0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_amplification(&self) -> Option<f64> {
        self.writes().amplification(self.user_bytes)
    }

    /// The bytes that were given to the device since the database was opened, by cause.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// db.table("users")?.put("alice", "1")?;
    /// db.checkpoint()?;
    /// for (cause, bytes) in db.stats().writes().by_cause() {
    ///     println!("{cause}: {bytes} bytes");
    /// }
    /// # assert!(db.stats().writes().checkpoints > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn writes(&self) -> WriteBytes {
        let LogStats {
            written_bytes, bulk_written_bytes, chunk_bytes, moved_value_bytes, zero_bytes, ..
        } = self.log;
        let evictions = self.memory.bytes_written_to_evict;
        let copied_nodes = self.collection.copied_node_bytes;
        let nodes = self.log.node_record_bytes();
        WriteBytes {
            commits: written_bytes,
            chunks: chunk_bytes,
            checkpoints: nodes.saturating_sub(evictions + copied_nodes),
            evictions,
            copied_nodes,
            moved_values: moved_value_bytes,
            // Counters are read one after the other, and records are counted before they are written.
            other: bulk_written_bytes.saturating_sub(chunk_bytes + nodes + moved_value_bytes),
            zeros: zero_bytes,
        }
    }

    pub(crate) fn read(engine: &Engine) -> Stats {
        let progress = &engine.progress;
        let log = engine.log.stats();
        let active = engine.tables.active();
        let (snapshots, _) = engine.reads.snapshots.open();
        let (open, oldest_ms) = engine.reads.snapshots.count_and_oldest_ms();
        let all_segments = engine.log.written_segments();
        let oldest_snapshot_age =
            oldest_ms.map(|ms| Duration::from_millis(engine.now_ms().saturating_sub(ms)));
        let dropped = engine.tables.dropped();
        let space = progress.space_of(
            &engine.space,
            &Viewed {
                segments: &all_segments,
                dropped: &dropped,
                oldest_snapshot: snapshots.first().copied(),
                snapshot_age: oldest_snapshot_age,
                replay_segment: progress.replay_segment.load(Ordering::Acquire),
            },
        );
        Stats {
            visible: engine.pipeline.visible(),
            durable: engine.pipeline.stable(),
            synced: engine.pipeline.floor(),
            checkpoint_covered: Csn(progress.covered.load(Ordering::Acquire)),
            uncovered_log_bytes: engine.growth.uncovered().total(),
            checkpoints: progress.checkpoints.count(),
            checkpoint_times: progress.checkpoints.times(),
            checkpoint: engine.pacing.progress(),
            dirty_bytes: engine.tables.dirty_bytes(),
            merges: progress.merges.count(),
            merge_times: progress.merges.times(),
            maintenance_error: progress.last_error(),
            epoch: engine.log.epoch().0,
            tables: engine.tables.count() as u64,
            memory: engine.memory_stats(),
            memtable_bytes: active.sum(|table| table.index.memtables().bytes()),
            memtable_entries: active.sum(|table| table.index.memtables().entries()),
            oldest_snapshot: snapshots.first().copied(),
            snapshots: open,
            snapshots_ended: engine.reads.snapshots.ended(),
            superseded_versions: engine.memory.index.superseded_versions(),
            oldest_snapshot_age,
            gets: engine.counters.gets.read(),
            scans: engine.counters.scans.read(),
            user_bytes: engine.counters.user_bytes.read(),
            conflicts: engine.counters.conflicts.load(Ordering::Relaxed),
            retries: engine.counters.retries.load(Ordering::Relaxed),
            live_bytes: progress.live_bytes.load(Ordering::Acquire),
            data_bytes: Some(progress.data_bytes.load(Ordering::Acquire)).filter(|bytes| *bytes != u64::MAX),
            segment_bytes: all_segments.iter().map(|segment| u64::from(segment.bytes)).sum(),
            segments: SegmentCounts::of(&all_segments),
            room: RoomStats::read(engine),
            space,
            poisoned: engine.log.poisoned().map(|why| why.to_string()),
            at_risk: engine.pipeline.at_risk(),
            read_only: engine.options.read_only,
            unproven: engine.unproven,
            clock: engine.clock.status(engine.env.clock()),
            latency: engine.pipeline.stopwatch().read(),
            waits: engine.pipeline.stopwatch().waits(),
            direct_io: engine.log.is_direct(),
            flush_scheme: engine.options.research.flush_scheme,
            staging: engine.options.staging.clone(),
            collection: progress.collected.read(log.moved_value_bytes, engine.merger.purging.leaves()),
            log,
        }
    }
}

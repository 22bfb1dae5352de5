//! Options, and the sizes derived from them.

use crate::durability::{FlushScheme, Waiting};
use crate::error::LogError;
use crate::format::{BULK_START_BYTES, SEGMENT_DATA_START, bulk_record_bytes};
use crate::stream::groups::{JOINABLE_BYTES_MAX, group_charge};
use fulgurite_env::{MAPPED_BYTES, MemoryMedium, OpenOptions};
use fulgurite_types::limits;
use std::path::PathBuf;
use std::time::Duration;

/// Where commits are staged ([`crate::Durability::Staged`]): buffers in a file in memory that survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagingOptions {
    /// The file. It is created if there is none.
    pub path: PathBuf,
    /// How many buffers: with one, commits wait while it is written to the segments; with two or more only if all are full. 1 to 64.
    pub buffers: u32,
    /// The length of each in bytes, a multiple of 4096, 1 GiB at most, and enough for the longest group.
    pub buffer_bytes: u32,
    /// What the memory survives. A file that is on something else is refused.
    pub medium: MemoryMedium,
}

impl StagingOptions {
    /// Two buffers of 8 MiB.
    pub fn new(path: impl Into<PathBuf>, medium: MemoryMedium) -> StagingOptions {
        StagingOptions { path: path.into(), buffers: 2, buffer_bytes: 8 << 20, medium }
    }

    /// Reports what is out of range. `longest` is that of a group, in bytes.
    fn validate(&self, longest: u32, wrong: &mut Vec<String>) {
        let StagingOptions { buffers, buffer_bytes, .. } = *self;
        if !(1..=STAGING_BUFFERS_MAX).contains(&buffers) {
            wrong.push(format!("staging has {buffers} buffers, not 1 to {STAGING_BUFFERS_MAX}"));
        }
        if buffer_bytes < longest
            || !buffer_bytes.is_multiple_of(MAPPED_BYTES as u32)
            || buffer_bytes > STAGING_BUFFER_CEILING
        {
            wrong.push(format!(
                "a staging buffer has {buffer_bytes} bytes, not a multiple of {MAPPED_BYTES} between {longest}, which the \
                 longest group has, and {STAGING_BUFFER_CEILING}"
            ));
        }
    }
}

const STAGING_BUFFERS_MAX: u32 = 64;
const STAGING_BUFFER_CEILING: u32 = 1 << 30;

/// How a log is laid out in memory and on disk. Only tests should need other values than the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The size of the first segment in bytes; each segment that a stream takes doubles the next. A multiple of 4096,
    /// at least 16 KiB; frames are at most a quarter of it.
    pub segment_bytes_min: u32,
    /// The largest segment in bytes. A multiple of 4096.
    pub segment_bytes_max: u32,
    /// How many bytes of frames may wait to be written; above it admission waits.
    pub buffer_bytes: usize,
    /// How many segments are kept ready. More hide slower disks, fewer save space.
    pub ready_segments: usize,
    /// How many files of the smallest size are kept for a full disk: one for the next opening, which needs a segment to
    /// begin its epoch in, one for the checkpoint that it writes then, two for the openings after that (INV-LOG-18).
    pub reserve_segments: usize,
    /// Whether the log is read-only: opening replays, and writes nothing at all. Commits fail with
    /// [`LogError::Closed`].
    pub read_only: bool,
    /// Whether background threads keep segments ready, write mark groups and lead requested flushes. Without them the
    /// caller calls [`Log::maintain`](crate::Log::maintain), which makes everything deterministic.
    pub background: bool,
    /// How long the commit stream has to be idle before a mark group is written.
    pub mark_idle: Duration,
    /// The number of this node in spill ids; 0 on a single one.
    pub node: u32,
    /// How commits share writes and flushes.
    pub scheme: FlushScheme,
    /// What a committer does while another thread writes for it.
    pub waiting: Waiting,
    /// Whether the commit stream is written around the page cache where the file system allows it. Only
    /// [`FlushScheme::Combined`] does.
    pub direct: bool,
    /// Whether a write without a flush counts as durable ([`crate::Durability::NoBarrier`]): the device's cache
    /// survives a power cut.
    pub power_safe_cache: bool,
    /// Where commits are staged, if they are. Only [`FlushScheme::Combined`] does: the others compare ways to sync.
    pub staging: Option<StagingOptions>,
    /// Opens the log without what a lost staging file held: the commits in it are lost.
    pub adopt_staging_loss: bool,
    /// Whether the log is one of several that are replicas: each opening begins as a follower ([`Log::lead`](crate::Log::lead)). Only
    /// [`FlushScheme::Combined`] numbers entries, and every segment has to have room for the longest group of another node.
    pub replicated: bool,
    /// So many bytes of entries, and sixteen times as many of the chunks that were written since agreement rose last, may wait to be agreed; above it commits wait ([`CommitLog::wait_quorum`](crate::CommitLog::wait_quorum)).
    pub unagreed_bytes_max: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes_min: limits::SEGMENT_BYTES_MIN,
            segment_bytes_max: limits::SEGMENT_BYTES_MAX,
            buffer_bytes: 8 * 1024 * 1024,
            ready_segments: 2,
            reserve_segments: 4,
            read_only: false,
            background: true,
            mark_idle: Duration::from_millis(10),
            node: 0,
            scheme: FlushScheme::default(),
            waiting: Waiting::default(),
            direct: true,
            power_safe_cache: false,
            staging: None,
            adopt_staging_loss: false,
            replicated: false,
            unagreed_bytes_max: 16 << 20,
        }
    }
}

const SEGMENT_BYTES_FLOOR: u32 = 16 * 1024;
/// No segment is longer, whatever the options say.
pub(crate) const SEGMENT_BYTES_CEILING: u32 = 1 << 30;
pub(crate) const BLOCK_BYTES: u32 = 4096;

impl LogOptions {
    /// Reports every option that is out of range, all at once.
    pub fn validate(&self) -> Result<(), LogError> {
        let mut wrong = Vec::new();
        let (min, max) = (self.segment_bytes_min, self.segment_bytes_max);
        if min < SEGMENT_BYTES_FLOOR || !min.is_multiple_of(BLOCK_BYTES) {
            wrong.push(format!(
                "segment_bytes_min is {min}, not a multiple of {BLOCK_BYTES} of at least {SEGMENT_BYTES_FLOOR}"
            ));
        }
        if max < min || max > SEGMENT_BYTES_CEILING || !max.is_multiple_of(BLOCK_BYTES) {
            wrong.push(format!(
                "segment_bytes_max is {max}, not a multiple of {BLOCK_BYTES} between {min} and {SEGMENT_BYTES_CEILING}"
            ));
        }
        if self.buffer_bytes < min as usize {
            wrong.push(format!(
                "buffer_bytes is {}, below segment_bytes_min, which is {min}",
                self.buffer_bytes
            ));
        }
        if let Some(staging) = &self.staging {
            staging.validate(self.longest_group(), &mut wrong);
            if self.scheme != FlushScheme::Combined {
                wrong.push(format!(
                    "staging needs the scheme {}, not {}, which syncs in the committing threads",
                    FlushScheme::Combined.name(),
                    self.scheme.name()
                ));
            }
        }
        if self.replicated {
            self.validate_replicated(&mut wrong);
        }
        if wrong.is_empty() { Ok(()) } else { Err(LogError::Usage(wrong.join("; "))) }
    }

    fn validate_replicated(&self, wrong: &mut Vec<String>) {
        if self.scheme != FlushScheme::Combined {
            wrong.push(format!(
                "a replicated log needs the scheme {}, not {}",
                FlushScheme::Combined.name(),
                self.scheme.name()
            ));
        }
        if self.charge_max() < JOINABLE_BYTES_MAX as u32 {
            wrong.push(format!(
                "segment_bytes_min is {}, too little for a replicated log: other nodes send groups of {JOINABLE_BYTES_MAX} bytes",
                self.segment_bytes_min
            ));
        }
    }

    /// Whether the commit stream is written around the page cache, if the file system allows it.
    pub(crate) fn writes_directly(&self) -> bool {
        self.direct && self.scheme == FlushScheme::Combined && !self.read_only
    }

    /// How segments that exist are opened.
    pub(crate) fn open_options(&self) -> OpenOptions {
        if self.read_only { OpenOptions::Read } else { OpenOptions::Write }
    }

    /// Longest frame in bytes, header included.
    pub fn frame_bytes_max(&self) -> u32 {
        self.segment_bytes_min / 4
    }

    /// Longest local record in bytes.
    pub fn local_bytes_max(&self) -> u32 {
        self.segment_bytes_min / 8
    }

    /// Longest body of a bulk record in bytes, whatever the sizes of segments: one that no segment of these sizes holds gets
    /// a longer one for itself. A leaf gets that long if many snapshots each keep a version of one key.
    pub fn bulk_bytes_max(&self) -> u32 {
        body_max(SEGMENT_BYTES_CEILING)
    }

    /// Longest body of a bulk record that the largest of these segments holds.
    pub(crate) fn segment_body_max(&self) -> u32 {
        body_max(self.segment_bytes_max)
    }

    /// The longest group in bytes.
    pub(crate) fn longest_group(&self) -> u32 {
        self.charge_max().max(JOINABLE_BYTES_MAX as u32)
    }

    /// The most bytes that one admission can take of a segment: a group of its own.
    pub(crate) fn charge_max(&self) -> u32 {
        group_charge(self.frame_bytes_max() + self.local_bytes_max())
    }
}

/// The longest body of a bulk record in a segment of `bytes`.
fn body_max(bytes: u32) -> u32 {
    bytes - SEGMENT_DATA_START - BULK_START_BYTES - bulk_record_bytes(0)
}

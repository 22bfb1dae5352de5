//! The files of a database, decoded without opening it.
//!
//! Nothing here takes the lock, recovers, or writes. While a process has the database open, a segment may end in the
//! middle of a group, and may be recycled or removed between two calls.
//!
//! ```
//! # fn main() -> fulgurite::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
//! use fulgurite::dump::{self, Action, Body, Item};
//! use fulgurite::env::{Env, RealEnv};
//!
//! db.table("users")?.put("alice", "1")?;
//! let env = RealEnv::new();
//! let copies = dump::superblock(env.disk(), db.path())?;
//! # assert_eq!(copies.len(), 2);
//! let mut keys = Vec::new();
//! for (_, path) in dump::segment_paths(env.disk(), db.path())? {
//!     for item in dump::segment(env.disk(), &path)?.items {
//!         let Item::Frame(frame) = item else { continue };
//!         let Body::Operations(operations) = frame.body else { continue };
//!         keys.extend(operations.into_iter().filter(|op| matches!(op.action, Action::Put { .. })).map(|op| op.key));
//!     }
//! }
//! assert!(keys.contains(&b"alice".to_vec()));
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};

use fulgurite_env::{Disk, OpenOptions};
use fulgurite_log::{ScanItem, scan_segment};
use fulgurite_types::{DatabaseId, Epoch};

pub use fulgurite_log::{
    BulkHeader, BulkKind, ChunkRef, EpochStart, FrameHeader, GroupHeader, GroupKind, ScanProblem,
    SegmentHeader, SpillId, Stream,
};

use fulgurite_index::btree::describe;
pub use fulgurite_index::btree::{EntryDescription, NodeDescription};

use crate::body::{self, KIND_COMMIT, KIND_COMMIT_IN_CHUNKS, Op, Ops};
use crate::database::log_dir;
use crate::error::OrError;
use crate::recovery::directory::{Found, look, open_home};
use crate::superblock::{COPY_BYTES, CopyFault, FILE_NAME, Superblock};
use crate::{Csn, Error, Lsn, Result, TableId};

/// A copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockCopy {
    /// It decodes.
    Valid(SuperblockContent),
    /// It has this format version, which a newer program wrote.
    Newer(u16),
    /// It was never written, or not completely, or was damaged later.
    Invalid,
}

/// The contents of a valid copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockContent {
    /// The identity of the database.
    pub id: DatabaseId,
    /// Rises with each write; the copy with the higher sequence is current.
    pub sequence: u64,
    /// The newest epoch when the copy was written.
    pub epoch: Epoch,
    /// The index record of the checkpoint; null if there was none.
    pub checkpoint: Lsn,
    /// Where replay begins.
    pub replay: Lsn,
    /// The newest commit that the checkpoint covers.
    pub covered: Csn,
    /// A commit that was durable when the copy was written.
    pub durable: Csn,
    /// A lower bound of the database's clock, in milliseconds since 1970-01-01 UTC.
    pub clock_ms: u64,
    /// The time up to which the clock is confirmed, if it has an unconfirmed jump; else the same as `clock_ms`.
    pub confirmed_ms: u64,
    /// The end of the log if it was closed cleanly, else [`Lsn::NULL`].
    pub closed_at: Lsn,
}

impl From<Superblock> for SuperblockContent {
    fn from(copy: Superblock) -> SuperblockContent {
        let Superblock {
            id,
            sequence,
            epoch,
            checkpoint,
            replay,
            covered,
            durable,
            clock_ms,
            clock_step,
            closed_at,
        } = copy;
        let confirmed_ms = clock_step.map_or(clock_ms, |step| step.confirmed_ms);
        SuperblockContent {
            id,
            sequence,
            epoch,
            checkpoint,
            replay,
            covered,
            durable,
            clock_ms,
            confirmed_ms,
            closed_at,
        }
    }
}

/// A segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Its header, if that is valid.
    pub header: Option<SegmentHeader>,
    /// The stream that it belongs to; `None` if nothing was written to it.
    pub stream: Option<Stream>,
    /// The end of its data, in bytes from the start of the file.
    pub used_bytes: u32,
    /// The items that decode, in file order.
    pub items: Vec<Item>,
    /// The bytes that do not decode. A torn tail is listed here, too: the file alone does not distinguish it from
    /// damage.
    pub problems: Vec<ScanProblem>,
}

/// One item of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A group of the commit stream; its frames follow. Also the group at the start of a bulk segment.
    Group(GroupHeader),
    /// The start of an epoch, after its group.
    EpochStart(EpochStart),
    /// A commit.
    Frame(Frame),
    /// A record of the bulk stream: a chunk of a large value or operation list, or of a checkpoint record.
    Bulk(BulkHeader),
    /// A node of a table's tree, or why it does not decode.
    Node(BulkHeader, std::result::Result<NodeDescription, String>),
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its header.
    pub header: FrameHeader,
    /// The LSN of its body.
    pub body_lsn: Lsn,
    /// Its body, decoded.
    pub body: Body,
    /// The chunks that the body refers to, with their LSNs.
    pub chunks: Vec<ChunkRef>,
}

/// The body of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Its operations.
    Operations(Vec<Operation>),
    /// The operations are in chunks.
    InChunks(Chunks),
    /// It does not decode, for this reason.
    Undecodable(String),
}

/// Bytes that were written ahead in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// The spill that they belong to.
    pub spill: SpillId,
    /// The number of the first chunk.
    pub ordinal: u32,
    /// Their length in bytes, all together.
    pub len: u64,
}

impl From<body::ChunksRef> for Chunks {
    fn from(chunks: body::ChunksRef) -> Chunks {
        Chunks { spill: chunks.spill, ordinal: chunks.ordinal, len: chunks.len }
    }
}

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The table, by number; 0 is the catalog.
    pub table: TableId,
    /// The key; of a range, its first.
    pub key: Vec<u8>,
    /// Its effect.
    pub action: Action,
}

/// The effect of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes a value.
    Put {
        /// The value.
        value: Vec<u8>,
        /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
        expires_at_ms: u64,
    },
    /// Writes a value that is in chunks.
    PutInChunks {
        /// The chunks.
        chunks: Chunks,
        /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
        expires_at_ms: u64,
    },
    /// Deletes the key.
    Delete,
    /// Deletes all keys from the key on.
    DeleteRange {
        /// Up to this key, which is not deleted itself; `None`: to the end.
        end: Option<Vec<u8>>,
    },
}

/// The two copies of the superblock.
///
/// # Errors
/// [`Error::NotADatabase`] if the directory has neither a superblock nor a log, [`Error::Damaged`] if it has a log alone,
/// [`Error::Io`].
pub fn superblock(disk: &dyn Disk, dir: &Path) -> Result<[SuperblockCopy; 2]> {
    let path = dir.join(FILE_NAME);
    let failed = |error| Error::io(format!("reading {}", path.display()), error);
    let home = open_home(disk, dir)?;
    if let Found::Empty = look(&*home)? {
        let found = format!("it has no file {FILE_NAME}");
        return Err(Error::NotADatabase { path: dir.to_path_buf(), found });
    }
    let file = home.open(FILE_NAME, OpenOptions::Read).map_err(failed)?;
    let mut bytes = vec![0; 2 * COPY_BYTES];
    let len = file.read_at(&mut bytes, 0).map_err(failed)?;
    Ok([0, COPY_BYTES].map(|start| {
        match Superblock::decode(bytes[..len].get(start..start + COPY_BYTES).unwrap_or_default()) {
            Ok(copy) => SuperblockCopy::Valid(copy.into()),
            Err(CopyFault::Newer(version)) => SuperblockCopy::Newer(version),
            Err(CopyFault::Damaged) => SuperblockCopy::Invalid,
        }
    }))
}

/// The files of the log's segments, by number.
pub fn segment_paths(disk: &dyn Disk, dir: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let dir = log_dir(dir);
    let entries = disk.list(&dir).map_err(|error| Error::io(format!("listing {}", dir.display()), error))?;
    let number = |name: &str| name.strip_suffix(".seg").and_then(|digits| digits.parse().ok());
    let mut paths: Vec<_> =
        entries.iter().filter_map(|entry| Some((number(&entry.name)?, dir.join(&entry.name)))).collect();
    paths.sort();
    Ok(paths)
}

/// Decodes a segment file.
pub fn segment(disk: &dyn Disk, path: &Path) -> Result<Segment> {
    let scan = scan_segment(disk, path).or_error()?;
    Ok(Segment {
        path: scan.path,
        file_bytes: scan.file_bytes,
        header: scan.header,
        stream: scan.stream,
        used_bytes: scan.used_bytes,
        items: scan.items.into_iter().filter_map(item).collect(),
        problems: scan.problems,
    })
}

fn item(item: ScanItem) -> Option<Item> {
    Some(match item {
        ScanItem::Group(header) => Item::Group(header),
        ScanItem::EpochStart(start) => Item::EpochStart(start),
        ScanItem::Bulk { header, body } => match header.kind {
            BulkKind::InternalNode | BulkKind::LeafNode | BulkKind::LeafDelta => {
                Item::Node(header, describe(body).map_err(|error| error.to_string()))
            }
            _ => Item::Bulk(header),
        },
        ScanItem::Frame { header, body_lsn, body, local } => {
            Item::Frame(Frame { body: decode_body(header.kind, &body), header, body_lsn, chunks: local })
        }
        _ => return None,
    })
}

fn decode_body(kind: u8, bytes: &[u8]) -> Body {
    match kind {
        KIND_COMMIT => match operations(bytes) {
            Ok(operations) => Body::Operations(operations),
            Err(error) => Body::Undecodable(error.to_string()),
        },
        KIND_COMMIT_IN_CHUNKS => match body::decode_chunks_body(bytes) {
            Ok(chunks) => Body::InChunks(chunks.into()),
            Err(error) => Body::Undecodable(error.to_string()),
        },
        _ => Body::Undecodable(format!("the kind {kind} is unknown")),
    }
}

fn operations(body: &[u8]) -> Result<Vec<Operation>, fulgurite_types::DecodeError> {
    let mut operations = Vec::new();
    let mut ops = Ops::new(body);
    while let Some((table, op, _)) = ops.next()? {
        let (key, action) = match op {
            Op::Put { key, value, expires_at_ms } => {
                (key, Action::Put { value: value.to_vec(), expires_at_ms })
            }
            Op::PutInChunks { key, expires_at_ms, chunks } => {
                (key, Action::PutInChunks { chunks: chunks.into(), expires_at_ms })
            }
            Op::Delete { key } => (key, Action::Delete),
            Op::DeleteRange { start, end } => (start, Action::DeleteRange { end: end.map(<[u8]>::to_vec) }),
        };
        operations.push(Operation { table, key: key.to_vec(), action });
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, Options};
    use fulgurite_env::{Env, SimEnv};

    #[test]
    fn a_commit_is_found_without_opening() {
        let env = SimEnv::new(7);
        let dir = Path::new("/db");
        let options = Options { background: false, ..Options::default() };
        let db = Database::open_with(env.clone(), dir, options, |_| {}).unwrap();
        db.table("t").unwrap().put(b"k", b"v").unwrap();
        let copies = superblock(env.disk(), dir).unwrap();
        assert!(copies.iter().any(|copy| matches!(copy, SuperblockCopy::Valid(_))));
        let put = Action::Put { value: b"v".to_vec(), expires_at_ms: 0 };
        let found = segment_paths(env.disk(), dir).unwrap().iter().any(|(_, path)| {
            let segment = segment(env.disk(), path).unwrap();
            assert_eq!(segment.problems, []);
            segment.items.iter().any(|item| match item {
                Item::Frame(Frame { body: Body::Operations(ops), .. }) => {
                    ops.iter().any(|op| op.key == b"k" && op.action == put)
                }
                _ => false,
            })
        });
        assert!(found);
    }

    #[test]
    fn a_directory_without_a_superblock_is_refused() {
        let env = SimEnv::new(1);
        env.disk().create_dir_all(Path::new("/x")).unwrap();
        let error = superblock(env.disk(), Path::new("/x")).unwrap_err();
        assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    }

    #[test]
    fn a_log_without_a_superblock_is_damaged() {
        let env = SimEnv::new(1);
        let dir = Path::new("/db");
        let options = Options { background: false, ..Options::default() };
        drop(Database::open_with(env.clone(), dir, options, |_| {}).unwrap());
        env.disk().remove(&dir.join(FILE_NAME)).unwrap();
        let error = superblock(env.disk(), dir).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}

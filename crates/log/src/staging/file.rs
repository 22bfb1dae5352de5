//! The staging file: a header, then buffers of equal length, each a sequence of groups as they will be in their segments.
//!
//! A group's header names database, epoch, segment and offset, and no LSN is ever given twice: a valid group is the one of its
//! LSN, whichever lap of the buffer it is from. `docs/format/staging.md` has the bytes.

use crate::error::LogError;
use crate::format::{
    GROUP_ALIGN, GROUP_HEADER_BYTES, GROUP_MAGIC, GroupHeader, GroupKind, SEGMENT_DATA_START, align8,
};
use crate::options::StagingOptions;
use fulgurite_env::{Env, MappedFile, MemoryMedium, OpenOptions};
use fulgurite_types::{DatabaseId, DecodeError, Epoch, Lsn, Reader, Writer, crc32c};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the buffers begin.
pub(crate) const STAGING_DATA_START: usize = 4096;

/// Where the two copies of the header are. Each change goes to the older one, so a torn one never hurts.
const COPIES: [usize; 2] = [0, 2048];
const HEADER_BYTES: usize = 88;
const MAGIC: u64 = u64::from_le_bytes(*b"FgStagng");
const FORMAT: u32 = 1;

/// Ties a staging file to one opening of a database: random, given anew by each. The start of the epoch names it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StagingId(pub u128);

impl StagingId {
    pub(crate) fn random(env: &dyn Env) -> StagingId {
        StagingId((u128::from(env.random_u64()) << 64) | u128::from(env.random_u64()) | 1)
    }
}

impl fmt::Display for StagingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for StagingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StagingId({self})")
    }
}

/// The header of a staging file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagingHeader {
    pub database: DatabaseId,
    pub buffers: u32,
    pub buffer_bytes: u32,
    /// Rises with each change: the newer copy counts.
    pub sequence: u64,
    /// The opening that uses it.
    pub id: StagingId,
    /// The opening before, for one that ended before its epoch began; zero if that one did not stage.
    pub previous: StagingId,
}

impl StagingHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put_u64(MAGIC);
        bytes.put_u32(FORMAT);
        bytes.put_u32(self.buffers);
        bytes.put_u128(self.database.0);
        bytes.put_u64(self.buffer_bytes.into());
        bytes.put_u64(self.sequence);
        bytes.put_u128(self.id.0);
        bytes.put_u128(self.previous.0);
        bytes.put_u32(crc32c(&bytes));
        bytes.put_u32(0);
        bytes.try_into().expect("the fields have that length")
    }

    pub fn decode(bytes: &[u8]) -> Result<StagingHeader, DecodeError> {
        let wrong = |field, offset| Err(DecodeError { field, offset });
        let mut reader = Reader::new(bytes);
        if reader.u64("magic")? != MAGIC {
            return wrong("magic", 0);
        }
        if reader.u32("format")? != FORMAT {
            return wrong("format", 8);
        }
        let buffers = reader.u32("number of buffers")?;
        let database = DatabaseId(reader.u128("database id")?);
        let buffer_bytes = reader.u64("length of a buffer")?;
        let sequence = reader.u64("sequence")?;
        let id = StagingId(reader.u128("id")?);
        let previous = StagingId(reader.u128("previous id")?);
        if reader.u32("checksum")? != crc32c(&bytes[..HEADER_BYTES - 8]) {
            return wrong("checksum", HEADER_BYTES - 8);
        }
        if reader.u32("reserved")? != 0 {
            return wrong("reserved", HEADER_BYTES - 4);
        }
        let Ok(buffer_bytes) = u32::try_from(buffer_bytes) else {
            return wrong("length of a buffer", 32);
        };
        Ok(StagingHeader { database, buffers, buffer_bytes, sequence, id, previous })
    }

    fn file_bytes(&self) -> u64 {
        STAGING_DATA_START as u64 + u64::from(self.buffers) * u64::from(self.buffer_bytes)
    }
}

/// A staging file of this database, mapped.
pub(crate) struct StagingFile {
    mapped: Arc<dyn MappedFile>,
    path: PathBuf,
    pub header: StagingHeader,
}

impl fmt::Debug for StagingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagingFile").field("path", &self.path).field("header", &self.header).finish()
    }
}

/// What a path names.
pub(crate) enum AtPath {
    Nothing,
    /// A file of zeros, but perhaps a part of its first header: it was made, and never used.
    Unused,
    /// A staging file, of whichever database.
    File(StagingFile),
}

impl StagingFile {
    /// Creates the file.
    pub fn create(
        env: &dyn Env,
        options: &StagingOptions,
        database: DatabaseId,
        id: StagingId,
        previous: StagingId,
    ) -> Result<StagingFile, LogError> {
        let StagingOptions { path, buffers, buffer_bytes, medium } = options;
        let header = StagingHeader {
            database,
            buffers: *buffers,
            buffer_bytes: *buffer_bytes,
            sequence: 1,
            id,
            previous,
        };
        let mapped = env.disk().create_mapped(path, header.file_bytes());
        let mapped = mapped.map_err(|source| LogError::io("create the staging file", path, source))?;
        let file = StagingFile { mapped, path: path.clone(), header };
        if let Err(error) = file.check_medium(*medium) {
            let _ = env.disk().remove(path);
            return Err(error);
        }
        file.store_header(COPIES[0])?;
        Ok(file)
    }

    /// Opens the file at a path.
    ///
    /// # Errors
    /// [`LogError::Staging`] if it is something else than a staging file, [`LogError::Damaged`] if its header was one.
    pub fn open(env: &dyn Env, path: &Path, how: OpenOptions) -> Result<AtPath, LogError> {
        let mapped = match env.disk().open_mapped(path, how) {
            Ok(mapped) => mapped,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AtPath::Nothing),
            // Its creation was cut off before it had a length.
            Err(_)
                if env.disk().open(path, OpenOptions::Read).is_ok_and(|file| file.len().ok() == Some(0)) =>
            {
                return Ok(AtPath::Unused);
            }
            Err(source) => return Err(LogError::io("open the staging file", path, source)),
        };
        let file = StagingFile {
            mapped,
            path: path.to_owned(),
            header: StagingHeader {
                database: DatabaseId(0),
                buffers: 0,
                buffer_bytes: 0,
                sequence: 0,
                id: StagingId::default(),
                previous: StagingId::default(),
            },
        };
        let copies = COPIES.map(|at| StagingHeader::decode(file.bytes(at, HEADER_BYTES)));
        let newest = copies.iter().flatten().max_by_key(|header| header.sequence).copied();
        let Some(header) = newest else {
            let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            let begins = file.bytes(0, 8);
            // The first header may be torn; nothing was staged before it was whole.
            let may_be_ours = is_zero(begins) || begins == MAGIC.to_le_bytes();
            let rest = file.bytes(HEADER_BYTES, file.mapped.len() - HEADER_BYTES);
            let is_unused = may_be_ours && is_zero(rest);
            file.check()?;
            if is_unused {
                return Ok(AtPath::Unused);
            }
            if COPIES.iter().any(|&at| file.bytes(at, 8) == MAGIC.to_le_bytes()) {
                return Err(LogError::damaged(path, 0, None, "the header of the staging file is not valid"));
            }
            return Err(LogError::Staging(format!(
                "{} is not a staging file; give another path, or remove it",
                path.display()
            )));
        };
        // On hugetlbfs it is longer: its pages are.
        if header.file_bytes() > file.mapped.len() as u64 {
            let what =
                format!("it has {} bytes, but its header says {}", file.mapped.len(), header.file_bytes());
            return Err(LogError::damaged(path, 0, None, what));
        }
        Ok(AtPath::File(StagingFile { header, ..file }))
    }

    /// Fails if the file is not on the medium that the options say.
    pub fn check_medium(&self, wanted: MemoryMedium) -> Result<(), LogError> {
        let name = |medium| match medium {
            MemoryMedium::Persistent => "persistent memory",
            MemoryMedium::Volatile => "volatile memory, which a power cut clears",
        };
        if self.mapped.medium() == wanted {
            return Ok(());
        }
        Err(LogError::Staging(format!(
            "the staging file {} is in {}, and the options say that it is in {}",
            self.path.display(),
            name(self.mapped.medium()),
            name(wanted)
        )))
    }

    /// Ties the file to another opening, after which `previous` may still be the newest that has begun its epoch.
    pub fn bind(&mut self, id: StagingId, previous: StagingId) -> Result<(), LogError> {
        // A killed process may have left the newer copy in a cache only, and the older one is overwritten now.
        self.write_back(0, STAGING_DATA_START)?;
        self.fence()?;
        self.header = StagingHeader { sequence: self.header.sequence + 1, id, previous, ..self.header };
        self.store_header(COPIES[(self.header.sequence - 1) as usize % 2])
    }

    /// Takes the first group from each buffer, and so all of them: they are in the segments, and a later epoch has begun, or the log was
    /// closed.
    pub fn clear(&self) -> Result<(), LogError> {
        for buffer in 0..self.header.buffers {
            self.store(self.buffer_start(buffer), &[0; GROUP_HEADER_BYTES as usize]);
            self.write_back(self.buffer_start(buffer), GROUP_HEADER_BYTES as usize)?;
        }
        self.fence()
    }

    /// Leaves the file to any opening of this database: it was closed.
    pub fn free(&self) -> Result<(), LogError> {
        self.clear()?;
        let mut header = StagingHeader { sequence: self.header.sequence + 1, ..self.header };
        (header.id, header.previous) = (StagingId::default(), StagingId::default());
        self.write_back(0, STAGING_DATA_START)?;
        self.fence()?;
        let at = COPIES[(header.sequence - 1) as usize % 2];
        self.store(at, &header.encode());
        self.write_back(at, HEADER_BYTES)?;
        self.fence()
    }

    /// Whether no opening uses it.
    pub fn is_free(&self) -> bool {
        (self.header.id, self.header.previous) == Default::default() && self.newest_epoch().is_none()
    }

    fn store_header(&self, at: usize) -> Result<(), LogError> {
        self.store(at, &self.header.encode());
        self.write_back(at, HEADER_BYTES)?;
        self.fence()
    }

    pub fn medium(&self) -> MemoryMedium {
        self.mapped.medium()
    }

    /// Whether its bytes survive a power cut.
    pub fn is_persistent(&self) -> bool {
        self.medium() == MemoryMedium::Persistent
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes_total(&self) -> u64 {
        self.mapped.len() as u64
    }

    /// Where a buffer begins.
    pub fn buffer_start(&self, buffer: u32) -> usize {
        STAGING_DATA_START + buffer as usize * self.header.buffer_bytes as usize
    }

    // Access. The users agree which thread accesses which bytes: [`super::Staging`] says how.

    /// Stores bytes. They are not durable before `write_back` and `fence`.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.mapped.len(), "INV-STG-1: staged bytes are inside the file");
        // SAFETY: in bounds as asserted. One thread appends at a time, and to bytes of which no piece is left (INV-STG-2), so no
        // thread reads them.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.mapped.as_ptr().add(at), bytes.len());
        }
    }

    pub fn write_back(&self, at: usize, len: usize) -> Result<(), LogError> {
        self.mapped
            .write_back(at..at + len)
            .map_err(|source| LogError::io("write back to the staging file", &self.path, source))
    }

    pub fn fence(&self) -> Result<(), LogError> {
        self.mapped.fence().map_err(|source| LogError::io("fence the staging file", &self.path, source))
    }

    /// Fails if bytes that were read so far are not those of the file, because the memory did not deliver them.
    pub fn check(&self) -> Result<(), LogError> {
        self.mapped.check().map_err(|error| LogError::damaged(&self.path, 0, None, error.to_string()))
    }

    /// Bytes that no thread writes while the result lives: those of a piece that is not released (INV-STG-2), or any while nothing
    /// is staged.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.mapped.len(), "INV-STG-1: staged bytes are inside the file");
        // SAFETY: in bounds as asserted, and no thread writes them, as said above.
        unsafe { std::slice::from_raw_parts(self.mapped.as_ptr().add(at), len) }
    }

    /// The newest epoch with which a buffer begins.
    pub fn newest_epoch(&self) -> Option<Epoch> {
        let first = |buffer| {
            let bytes = self.bytes(self.buffer_start(buffer), self.header.buffer_bytes as usize);
            let epoch = GroupHeader::decode_unchecked(bytes).ok()?.epoch;
            group_at(bytes, self.header.database, epoch).map(|_| epoch)
        };
        (0..self.header.buffers).filter_map(first).max()
    }

    /// The headers of all valid groups of an epoch, at any aligned place of the buffers: what damage, or an earlier use of the buffer,
    /// separates from its beginning, too.
    pub fn headers(&self, epoch: Epoch) -> Vec<GroupHeader> {
        let magic = GROUP_MAGIC.to_le_bytes();
        let data = self.bytes(STAGING_DATA_START, self.header.file_bytes() as usize - STAGING_DATA_START);
        let aligned =
            (0..data.len()).step_by(GROUP_ALIGN as usize).filter(|&at| data[at..].starts_with(&magic));
        aligned
            .filter_map(|at| group_at(&data[at..], self.header.database, epoch))
            .map(|(header, _)| header)
            .collect()
    }

    /// Whether bytes are a valid group of an epoch.
    pub fn is_group(&self, bytes: &[u8], epoch: Epoch) -> bool {
        group_at(bytes, self.header.database, epoch).is_some_and(|(_, len)| len == bytes.len())
    }

    /// Whether the memory delivers all of its pages.
    pub fn is_whole(&self) -> bool {
        let bytes = self.bytes(0, self.mapped.len());
        bytes.iter().step_by(fulgurite_env::MAPPED_BYTES).for_each(|byte| _ = std::hint::black_box(*byte));
        self.check().is_ok()
    }

    /// Gives up the lock of the file. Nothing is stored any more.
    pub fn release(&self) {
        self.mapped.release();
    }

    /// The groups of an epoch that the buffers hold, by LSN. Those of a buffer follow each other in the log: what does not was left
    /// by an earlier lap.
    pub fn groups(&self, epoch: Epoch) -> Vec<StagedGroup<'_>> {
        let mut groups = Vec::new();
        for buffer in 0..self.header.buffers {
            let bytes = self.bytes(self.buffer_start(buffer), self.header.buffer_bytes as usize);
            let mut at = 0;
            let mut next = None;
            while let Some((header, len)) = group_at(&bytes[at..], self.header.database, epoch) {
                let start = Lsn::new(header.segment, header.offset);
                if next.is_some_and(|next| start != next) {
                    break;
                }
                next = Some(match header.kind {
                    GroupKind::SegmentEnd => Lsn::new(header.next_segment, SEGMENT_DATA_START),
                    _ => Lsn::new(header.segment, header.end()),
                });
                groups.push(StagedGroup { start, bytes: &bytes[at..at + len] });
                at += len;
            }
        }
        groups.sort_by_key(|group| group.start);
        groups
    }
}

/// A group in a staging file, padding included.
pub(crate) struct StagedGroup<'a> {
    pub start: Lsn,
    pub bytes: &'a [u8],
}

/// The valid group of an epoch at the start of `bytes`, and its length.
fn group_at(bytes: &[u8], database: DatabaseId, epoch: Epoch) -> Option<(GroupHeader, usize)> {
    let claimed = GroupHeader::decode_unchecked(bytes).ok()?;
    if claimed.database != database || claimed.epoch != epoch {
        return None;
    }
    let (header, payload) = GroupHeader::decode_at(bytes, claimed.at()).ok()?;
    let len = align8(header.header_bytes() + payload.len() as u32) as usize;
    (len <= bytes.len()).then_some((header, len))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use fulgurite_env::sim::{CrashKind, SimEnv};

    fn header(sequence: u64) -> StagingHeader {
        StagingHeader {
            database: DatabaseId(0x0102),
            buffers: 2,
            buffer_bytes: 8 << 20,
            sequence,
            id: StagingId(3),
            previous: StagingId(4),
        }
    }

    #[test]
    fn golden_header() {
        let bytes = header(5).encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = "466753746167 6e67 01000000 02000000 02010000000000000000000000000000 0000800000000000 0500000000000000 \
                      03000000000000000000000000000000 04000000000000000000000000000000 CRC 00000000";
        let crc: String =
            crc32c(&bytes[..80]).to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.replace(' ', "").replace("CRC", &crc));
        assert_eq!(StagingHeader::decode(&bytes), Ok(header(5)));
        for at in 0..80 {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert!(StagingHeader::decode(&wrong).is_err(), "byte {at}");
        }
        (0..bytes.len()).for_each(|len| assert!(StagingHeader::decode(&bytes[..len]).is_err()));
    }

    /// Whatever a crash leaves of a change, one of the two copies is valid: the one before, or the new one.
    #[test]
    fn a_change_of_the_header_is_torn_off_or_whole() {
        let options =
            StagingOptions { buffer_bytes: 4096, ..StagingOptions::new("/file", MemoryMedium::Persistent) };
        let mut seen = [0; 2];
        for seed in 0..200u64 {
            let env = SimEnv::new(seed);
            let (first, second) = (StagingId(1), StagingId(2));
            let created = StagingFile::create(&*env, &options, DatabaseId(9), first, StagingId(0));
            let mut file = created.expect("there is room");
            env.faults().crash_at(env.faults().op_count() + 1 + seed % 5);
            let bound = file.bind(second, first).is_ok();
            drop(file);
            let kind = if seed % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
            let env = env.crash(kind, seed);
            let AtPath::File(file) =
                StagingFile::open(&*env, Path::new("/file"), OpenOptions::Write).unwrap()
            else {
                panic!("seed {seed}: it is gone")
            };
            assert!(file.header.id == second || (!bound && file.header.id == first), "seed {seed}");
            seen[usize::from(file.header.id == second)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
    }
}

//! The superblock: two copies in one file, written in turn, each of which points to a checkpoint. Grammar in
//! `docs/format/superblock.md`.

use std::sync::Arc;

use fulgurite_env::{Dir, File, OpenOptions};
use fulgurite_types::{Csn, DatabaseId, Epoch, Lsn, Reader, Writer, crc32c};

use crate::clock::ClockStep;
use crate::{Damage, Error, Result};

/// The file's name in the database directory.
pub(crate) const FILE_NAME: &str = "SUPERBLOCK";
/// The name that it has while it is being created.
pub(crate) const TEMPORARY_NAME: &str = "SUPERBLOCK.new";
const MAGIC: u64 = u64::from_le_bytes(*b"FULGSUPR");
/// The format version that this program writes.
pub(crate) const FORMAT_VERSION: u16 = 5;
/// The length of a copy; only its first [`ENCODED_BYTES`] bytes are used.
pub(crate) const COPY_BYTES: usize = 4096;
pub(crate) const ENCODED_BYTES: usize = 100;

/// The contents of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub id: DatabaseId,
    /// Rises with each write. The valid copy with the higher sequence is current; the parity selects a copy's offset.
    pub sequence: u64,
    /// The newest epoch of this database when the copy was written.
    pub epoch: Epoch,
    /// The index record of the checkpoint; [`Lsn::NULL`] in a database that had none yet.
    pub checkpoint: Lsn,
    /// Where replay begins.
    pub replay: Lsn,
    /// The newest commit that the checkpoint covers: replay delivers the commits above it.
    pub covered: Csn,
    /// A commit that was durable when the copy was written: its absence is damage.
    pub durable: Csn,
    /// No clock of this database may show less.
    pub clock_ms: u64,
    /// A jump of the clock that was not confirmed.
    pub clock_step: Option<ClockStep>,
    /// Where the log ends, if it was closed cleanly; [`Lsn::NULL`] while it is open and after a crash.
    pub closed_at: Lsn,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(COPY_BYTES);
        out.put_u64(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u16(0);
        out.put_u128(self.id.0);
        out.put_u64(self.sequence);
        out.put_u32(self.epoch.0);
        out.put_u64(self.checkpoint.0);
        out.put_u64(self.replay.0);
        out.put_u64(self.covered.0);
        out.put_u64(self.durable.0);
        out.put_u64(self.clock_ms);
        out.put_u64(self.closed_at.0);
        let (behind_s, step_s) = self.clock_step.map_or((0, 0), |step| encode_step(self.clock_ms, step));
        out.put_u32(behind_s);
        out.put_u32(step_s);
        assert_eq!(out.len(), ENCODED_BYTES - 4, "the fields have the lengths of the grammar");
        let crc = crc32c(&out);
        out.put_u32(crc);
        out.resize(COPY_BYTES, 0);
        out
    }

    /// Reads a copy.
    pub(crate) fn decode(copy: &[u8]) -> Result<Superblock, CopyFault> {
        let mut reader = Reader::new(copy);
        let short = |_| CopyFault::Damaged;
        if reader.u64("magic").map_err(short)? != MAGIC {
            return Err(CopyFault::Damaged);
        }
        let version = reader.u16("format version").map_err(short)?;
        if version > FORMAT_VERSION {
            return Err(CopyFault::Newer(version));
        }
        let crc = copy.get(ENCODED_BYTES - 4..ENCODED_BYTES).ok_or(CopyFault::Damaged)?;
        if crc32c(&copy[..ENCODED_BYTES - 4]).to_le_bytes() != *crc {
            return Err(CopyFault::Damaged);
        }
        reader.u16("reserved").map_err(short)?;
        let mut superblock = Superblock {
            id: DatabaseId(reader.u128("database id").map_err(short)?),
            sequence: reader.u64("sequence").map_err(short)?,
            epoch: Epoch(reader.u32("epoch").map_err(short)?),
            checkpoint: Lsn(reader.u64("checkpoint").map_err(short)?),
            replay: Lsn(reader.u64("replay").map_err(short)?),
            covered: Csn(reader.u64("covered").map_err(short)?),
            durable: Csn(reader.u64("durable").map_err(short)?),
            clock_ms: reader.u64("clock").map_err(short)?,
            clock_step: None,
            closed_at: Lsn(reader.u64("end of the log").map_err(short)?),
        };
        let behind_s = reader.u32("what of the clock is not confirmed").map_err(short)?;
        let step_s = reader.u32("step of the clock").map_err(short)?;
        superblock.clock_step = decode_step(superblock.clock_ms, behind_s, step_s);
        Ok(superblock)
    }
}

/// The seconds from the confirmed time to the clock, and from the confirmed time to the end of the jump; (0, 0) for a
/// jump of more than 136 years, which does not fit: the clock does not follow it, and the next open detects it again.
fn encode_step(clock_ms: u64, step: ClockStep) -> (u32, u32) {
    let behind_s = clock_ms.saturating_sub(step.confirmed_ms).div_ceil(1000);
    let step_s = step.landed_ms.saturating_sub(clock_ms.saturating_sub(behind_s * 1000)).div_ceil(1000);
    match (u32::try_from(behind_s), u32::try_from(step_s)) {
        (Ok(behind_s), Ok(step_s)) => (behind_s, step_s.max(1)),
        _ => (0, 0),
    }
}

/// The mirror of [`encode_step`], to the second.
fn decode_step(clock_ms: u64, behind_s: u32, step_s: u32) -> Option<ClockStep> {
    let confirmed_ms = clock_ms.saturating_sub(u64::from(behind_s) * 1000);
    let landed_ms = confirmed_ms.saturating_add(u64::from(step_s) * 1000);
    (step_s != 0).then_some(ClockStep { confirmed_ms, landed_ms })
}

/// Why a copy is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFault {
    /// It has this format version, which a newer program wrote.
    Newer(u16),
    /// It was never written, or not completely, or was damaged later.
    Damaged,
}

/// The open superblock file.
#[derive(Debug)]
pub(crate) struct SuperblockFile {
    file: Arc<dyn File>,
    current: Superblock,
    previous: Option<Superblock>,
    /// The copy that was found damaged when the file was opened.
    damaged: Option<usize>,
}

impl SuperblockFile {
    /// Whether the file system of the database lets files be written around the page cache.
    pub fn takes_direct_writes(&self) -> Result<bool> {
        let failed = |error| Error::io("asking whether files can be written around the page cache", error);
        self.file.takes_direct_writes().map_err(failed)
    }

    /// Creates the file with its first copy, atomically: before the log has any segment, so that a directory with
    /// segments and without a superblock is a damaged database and never a new one.
    pub fn create(home: &dyn Dir, first: Superblock) -> Result<SuperblockFile> {
        let what = || format!("creating {}", home.path().join(FILE_NAME).display());
        let failed = |error| Error::io(what(), error);
        match home.remove(TEMPORARY_NAME) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file = home.open(TEMPORARY_NAME, OpenOptions::CreateNew).map_err(failed)?;
        file.write_at(&vec![0; 2 * COPY_BYTES], 0).map_err(failed)?;
        file.write_at(&first.encode(), copy_offset(first.sequence)).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        home.rename(TEMPORARY_NAME, FILE_NAME).map_err(failed)?;
        home.sync().map_err(failed)?;
        let file = home.open(FILE_NAME, OpenOptions::Write).map_err(failed)?;
        Ok(SuperblockFile { file, current: first, previous: None, damaged: None })
    }

    /// Opens the file and selects the newest valid copy. A damaged one is reported; the first write replaces it.
    pub fn open(home: &dyn Dir, options: OpenOptions) -> Result<SuperblockFile> {
        let path = home.path().join(FILE_NAME);
        let failed = |error| Error::io(format!("reading {}", path.display()), error);
        let file = home.open(FILE_NAME, options).map_err(failed)?;
        let mut bytes = vec![0; 2 * COPY_BYTES];
        let len = file.read_at_direct(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(len);
        let copies: Vec<_> = [0, COPY_BYTES]
            .map(|start| Superblock::decode(bytes.get(start..start + COPY_BYTES).unwrap_or(&[])))
            .into();
        for copy in &copies {
            if let Err(CopyFault::Newer(found)) = copy {
                return Err(Error::NewerFormat { path, found: *found, supported: FORMAT_VERSION });
            }
        }
        let mut valid: Vec<Superblock> = copies.iter().filter_map(|copy| copy.clone().ok()).collect();
        valid.sort_by_key(|copy| copy.sequence);
        let Some(current) = valid.pop() else {
            let what = format!("it has {len} of {} bytes and no valid copy", 2 * COPY_BYTES);
            return Err(Damage::new(what).in_file(path).into());
        };
        let mut opened = SuperblockFile { file, current, previous: valid.pop(), damaged: None };
        opened.damaged = opened.damaged_copy(&bytes);
        if let Some(copy) = opened.damaged {
            tracing::warn!(path = %path.display(), copy, "one of both copies of the superblock is damaged; the other one is used");
        }
        Ok(opened)
    }

    pub fn current(&self) -> &Superblock {
        &self.current
    }

    /// The copy that was damaged when the file was opened.
    pub fn damaged_at_open(&self) -> Option<usize> {
        self.damaged
    }

    /// The copy that is damaged on the disk now.
    pub fn damaged_now(&self) -> Result<Option<usize>> {
        let mut bytes = vec![0; 2 * COPY_BYTES];
        let read = self.file.read_at_direct(&mut bytes, 0);
        let len = read.map_err(|error| Error::io("reading the superblock", error))?;
        bytes.truncate(len);
        Ok(self.damaged_copy(&bytes))
    }

    /// The copy that does not decode, although it was written: the first write leaves the other copy empty.
    fn damaged_copy(&self, bytes: &[u8]) -> Option<usize> {
        let copy = |number: usize| bytes.get(number * COPY_BYTES..(number + 1) * COPY_BYTES).unwrap_or(&[]);
        let is_empty = |copy: &[u8]| copy.len() == COPY_BYTES && copy.iter().all(|&byte| byte == 0);
        (0..2).find(|&number| {
            let is_first = self.current.sequence == 1 && is_empty(copy(number));
            Superblock::decode(copy(number)).is_err() && !is_first
        })
    }

    /// Both copies that recovery might use.
    pub fn copies(&self) -> impl Iterator<Item = &Superblock> {
        std::iter::once(&self.current).chain(&self.previous)
    }

    /// The newest epoch that another process has written since this one opened the file: that process has the database
    /// now, and a copy written here would hide its commits. `None` as long as the lock of the directory works. A newer
    /// copy of this process's own epoch is from an own write that failed.
    pub fn foreign_epoch(&self) -> Result<Option<Epoch>> {
        let mut bytes = vec![0; 2 * COPY_BYTES];
        let read = self.file.read_at_direct(&mut bytes, 0);
        read.map_err(|error| Error::io("reading the superblock before writing it", error))?;
        let copies = bytes.chunks(COPY_BYTES).filter_map(|copy| Superblock::decode(copy).ok());
        let foreign = copies.filter(|copy| copy.epoch > self.current.epoch || copy.id != self.current.id);
        Ok(foreign.map(|copy| copy.epoch).max())
    }

    /// Writes the next copy over the older one; durable when it returns.
    pub fn write(&mut self, mut next: Superblock) -> Result<()> {
        next.sequence = self.current.sequence + 1;
        let failed = |error| Error::io("writing the superblock", error);
        self.file.write_at(&next.encode(), copy_offset(next.sequence)).map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        self.previous = Some(std::mem::replace(&mut self.current, next));
        Ok(())
    }
}

fn copy_offset(sequence: u64) -> u64 {
    (sequence % 2) * COPY_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            id: DatabaseId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            sequence: 5,
            epoch: Epoch(3),
            checkpoint: Lsn::new(9, 4096),
            replay: Lsn::new(8, 4168),
            covered: Csn(1000),
            durable: Csn(1001),
            clock_ms: 1_700_000_000_000,
            clock_step: Some(ClockStep { confirmed_ms: 1_699_999_000_000, landed_ms: 1_699_999_400_000 }),
            closed_at: Lsn::new(8, 8192),
        }
    }

    #[test]
    fn a_copy_comes_back() {
        assert_eq!(Superblock::decode(&sample().encode()).unwrap(), sample());
    }

    #[test]
    fn golden_bytes() {
        let hex: String =
            sample().encode()[..ENCODED_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            &hex[..96],
            "46554c475355505205000000efcdab8967452301efcdab89674523010500000000000000030000000010000009000000"
        );
    }

    /// Versions 1 to 4 had the same fields: only the records that a copy leads to may be newer.
    #[test]
    fn copies_of_older_versions_decode() {
        for version in [1, 2, 3, 4] {
            let mut copy = sample().encode();
            copy[8] = version;
            let crc = crc32c(&copy[..ENCODED_BYTES - 4]);
            copy[ENCODED_BYTES - 4..ENCODED_BYTES].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Superblock::decode(&copy).unwrap(), sample());
        }
    }

    /// Without a jump of the clock, a copy has the bytes that it had before jumps were stored.
    #[test]
    fn golden_bytes_of_the_clock() {
        let steps = [None, sample().clock_step, Some(ClockStep { confirmed_ms: 5, landed_ms: u64::MAX })];
        let clocks = steps.map(|clock_step| {
            let copy = Superblock { clock_step, ..sample() }.encode();
            copy[72..80].iter().chain(&copy[88..96]).map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        let clock = "0068e5cf8b010000";
        assert_eq!(
            clocks,
            ["0000000000000000", "e803000090010000", "0000000000000000"].map(|step| format!("{clock}{step}"))
        );
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = sample().encode();
        for bit in 0..ENCODED_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bad).is_err(), "bit {bit}");
        }
    }
}

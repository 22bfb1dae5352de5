//! Reads bytes at an LSN: from memory until they are written, else from the file.

use crate::core::Core;
use crate::error::LogError;
use crate::log::Log;
use crate::segment::{Segment, Stream};
use fulgurite_types::Lsn;
use fulgurite_types::sync::yield_now;
use std::io;
use std::sync::Arc;

enum InMemory {
    Bytes(Vec<u8>),
    BeingFilled,
    No,
}

impl Core {
    pub fn segment(&self, lsn: Lsn) -> Result<Arc<Segment>, LogError> {
        self.store.get(lsn.segment()).ok_or_else(|| {
            let path = self.store.path(lsn.segment());
            LogError::damaged(&path, lsn.offset().into(), None, format!("it is missing, and {lsn} is in it"))
        })
    }

    /// How many bytes the segment has from `lsn` on.
    pub fn segment_room(&self, segment: &Segment, lsn: Lsn) -> u32 {
        segment.bytes.saturating_sub(lsn.offset())
    }

    pub fn read_file(&self, segment: &Segment, offset: u32, len: u32) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; len as usize];
        let file = self.store.file(segment).map_err(|error| LogError::io("open", &segment.path, error))?;
        match file.read_exact_at(&mut bytes, offset.into()) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(LogError::damaged(&segment.path, offset.into(), None, error.to_string()))
            }
            Err(error) => Err(LogError::io("read", &segment.path, error)),
        }
    }

    fn read_memory(&self, lsn: Lsn, len: u32) -> InMemory {
        let groups = self.groups();
        let Some((group, at)) = groups.find(lsn, len, &self.ring) else {
            return InMemory::No;
        };
        if !groups.is_filled(group, &self.ring) {
            return InMemory::BeingFilled;
        }
        let buffer = Arc::clone(&group.buffer);
        drop(groups);
        // SAFETY: this thread saw the range reserved and filled under the lock of the groups, and it excludes the
        // header.
        InMemory::Bytes(unsafe { buffer.read(at as usize, len as usize) }.to_vec())
    }

    pub fn read_bytes(&self, lsn: Lsn, len: u32) -> Result<Vec<u8>, LogError> {
        let segment = self.segment(lsn)?;
        if len > self.segment_room(&segment, lsn) {
            return Err(LogError::Usage(format!("{len} bytes at {lsn} would cross the end of the segment")));
        }
        match segment.stream() {
            Some(Stream::Bulk) => {
                if let Some(bytes) = self.read_bulk_buffer(&segment, lsn, len) {
                    return Ok(bytes);
                }
            }
            _ => {
                while lsn >= self.written() {
                    match self.read_memory(lsn, len) {
                        InMemory::Bytes(bytes) => return Ok(bytes),
                        InMemory::BeingFilled => yield_now(),
                        InMemory::No => break,
                    }
                    self.poison.check()?;
                }
            }
        }
        self.read_file(&segment, lsn.offset(), len)
    }
}

impl Log {
    /// Reads `len` bytes at `lsn` of either stream, unverified: the caller stored a checksum with the LSN.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if there is no such segment, [`LogError::Usage`] if it is shorter, [`LogError::Io`].
    pub fn read_bytes(&self, lsn: Lsn, len: u32) -> Result<Vec<u8>, LogError> {
        self.core.read_bytes(lsn, len)
    }
}

//! Reading records of a log that is not open: opening it needs to know which segments the checkpoint refers to.

use super::{BulkRecord, READ_AHEAD_BYTES, read_record};
use crate::error::LogError;
use crate::format::{SEGMENT_DATA_START, segment_file_name};
use crate::log::Log;
use fulgurite_env::{Dir, File, OpenOptions};
use fulgurite_types::{DatabaseId, Lsn};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// Reads records of the bulk stream.
pub trait ReadBulk {
    /// Reads and verifies the record that begins at `lsn`.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if there is no such record or no such segment; [`LogError::Io`].
    fn read_bulk(&self, lsn: Lsn) -> Result<BulkRecord, LogError>;

    /// The error for damage at `lsn`.
    fn damage_at(&self, lsn: Lsn, what: String) -> LogError;
}

impl ReadBulk for Log {
    fn read_bulk(&self, lsn: Lsn) -> Result<BulkRecord, LogError> {
        Log::read_bulk(self, lsn)
    }

    fn damage_at(&self, lsn: Lsn, what: String) -> LogError {
        Log::damage_at(self, lsn, what)
    }
}

/// The segments of a log that is not open. It reads them as the device has them, and writes nothing.
pub struct ClosedLog<'a> {
    dir: &'a dyn Dir,
    database: DatabaseId,
}

impl<'a> ClosedLog<'a> {
    /// The log of a database, whose segments are in `dir`.
    pub fn new(dir: &'a dyn Dir, database: DatabaseId) -> ClosedLog<'a> {
        ClosedLog { dir, database }
    }

    fn path(&self, segment: u32) -> PathBuf {
        self.dir.path().join(segment_file_name(segment))
    }

    fn open(&self, lsn: Lsn) -> Result<Arc<dyn File>, LogError> {
        let opened = self.dir.open(&segment_file_name(lsn.segment()), OpenOptions::Read);
        opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.damage_at(lsn, format!("it is missing, and {lsn} is in it")),
            _ => LogError::io("open", &self.path(lsn.segment()), error),
        })
    }

    fn read(&self, file: &dyn File, lsn: Lsn, len: u32) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; len as usize];
        let read = file.read_at_direct(&mut bytes, lsn.offset().into());
        let got = read.map_err(|error| LogError::io("read", &self.path(lsn.segment()), error))?;
        if got < bytes.len() {
            return Err(self.damage_at(lsn, format!("the file ends {got} bytes later")));
        }
        Ok(bytes)
    }
}

impl ReadBulk for ClosedLog<'_> {
    fn read_bulk(&self, lsn: Lsn) -> Result<BulkRecord, LogError> {
        let path = self.path(lsn.segment());
        let file = self.open(lsn)?;
        let len = file.len().map_err(|error| LogError::io("measure", &path, error))?;
        if lsn.offset() < SEGMENT_DATA_START || u64::from(lsn.offset()) >= len {
            return Err(self.damage_at(lsn, format!("it has {len} bytes, and a record should begin there")));
        }
        let room = (len - u64::from(lsn.offset())).min(u64::from(u32::MAX)) as u32;
        let first = self.read(&*file, lsn, READ_AHEAD_BYTES.min(room))?;
        read_record(self.database, &path, lsn, room, first, |from, len| self.read(&*file, from, len))
    }

    fn damage_at(&self, lsn: Lsn, what: String) -> LogError {
        LogError::damaged(&self.path(lsn.segment()), lsn.offset().into(), None, what)
    }
}

//! Reading a segment's file at an LSN.

use super::{Segment, Segments};
use crate::error::LogError;
use fulgurite_types::Lsn;
use std::io;
use std::sync::Arc;

impl Segments {
    /// The segment that holds `lsn`.
    pub fn segment_of(&self, lsn: Lsn) -> Result<Arc<Segment>, LogError> {
        self.get(lsn.segment()).ok_or_else(|| {
            let path = self.path(lsn.segment());
            LogError::damaged(&path, lsn.offset().into(), None, format!("it is missing, and {lsn} is in it"))
        })
    }

    pub fn read(&self, segment: &Segment, offset: u32, len: u32) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; len as usize];
        let file = self.file(segment).map_err(|error| LogError::io("open", &segment.path, error))?;
        match file.read_exact_at(&mut bytes, offset.into()) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(LogError::damaged(&segment.path, offset.into(), None, error.to_string()))
            }
            Err(error) => Err(LogError::io("read", &segment.path, error)),
        }
    }
}

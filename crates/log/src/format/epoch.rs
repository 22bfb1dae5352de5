//! The beginning of an epoch.

use crate::staging::StagingId;
use fulgurite_types::{Csn, DecodeError, Epoch, Lsn, Reader, Writer};

/// The payload of a group of kind [`EpochStart`](super::GroupKind::EpochStart): it names the epoch before, and declares
/// where that ended. The first epoch's previous one is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch that begins here.
    pub epoch: Epoch,
    /// The epoch before.
    pub previous: Epoch,
    /// The segment in which the previous epoch began.
    pub previous_segment: u32,
    /// Where the previous epoch ends: groups after it are dead.
    pub previous_end: Lsn,
    /// The last living CSN of the previous epoch.
    pub previous_csn: Csn,
    /// The staging file in which commits of this epoch are acknowledged, if there is one.
    pub staging: Option<StagingId>,
}

impl EpochStart {
    /// The most bytes of [`EpochStart::encode`].
    pub const BYTES_MAX: u32 = 44;

    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES_MAX as usize);
        bytes.put_u32(self.epoch.0);
        bytes.put_u32(self.previous.0);
        bytes.put_u32(self.previous_segment);
        bytes.put_u64(self.previous_end.0);
        bytes.put_u64(self.previous_csn.0);
        if let Some(id) = self.staging {
            bytes.put_u128(id.0);
        }
        bytes
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Result<EpochStart, DecodeError> {
        let mut reader = Reader::new(payload);
        let mut start = EpochStart {
            epoch: Epoch(reader.u32("epoch")?),
            previous: Epoch(reader.u32("previous epoch")?),
            previous_segment: reader.u32("previous epoch's start segment")?,
            previous_end: Lsn(reader.u64("previous end")?),
            previous_csn: Csn(reader.u64("previous last CSN")?),
            staging: None,
        };
        if !reader.is_empty() {
            start.staging = Some(StagingId(reader.u128("staging id")?));
        }
        reader.finish("epoch start")?;
        if start.previous >= start.epoch {
            return Err(DecodeError { field: "previous epoch", offset: 4 });
        }
        Ok(start)
    }
}

//! One segment file in use.

use crate::format::segment_file_name;
use fulgurite_env::{Dir, File, OpenOptions};
use fulgurite_types::{Csn, Epoch};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// An append point of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Frames; latency counts.
    Commit = 1,
    /// Nodes, chunks, checkpoint records; bandwidth counts.
    Bulk = 2,
}

/// The state of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: u32,
    /// The length of the file in bytes.
    pub bytes: u32,
    /// The stream that took it; `None` if nothing was written to it.
    pub stream: Option<Stream>,
    /// The epoch that wrote it, as far as known.
    pub epoch: Epoch,
    /// The CSN of the first frame in it; 0 in the bulk stream, and if not known.
    pub first_csn: Csn,
    /// The end of its data, in bytes from the start of the file; its whole length if not known.
    pub used_bytes: u32,
    /// Whether the log itself still needs it: ready, being appended to, or the start of the newest epoch.
    pub open: bool,
    /// When this opening made it, in monotonic nanoseconds of the environment; 0 if an earlier one did.
    pub made_ns: u64,
}

const READY: u8 = 0;
const OPEN: u8 = 1;
pub(crate) const SEALED: u8 = 2;

#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u32,
    pub bytes: u32,
    /// For messages.
    pub path: PathBuf,
    /// Whether its file was kept for a full disk.
    pub of_reserve: bool,
    /// Open while the log appends to the segment. Sealed segments that were read stay open, as many as `mod.rs`
    /// allows.
    file: Mutex<Option<Arc<dyn File>>>,
    state: AtomicU8,
    stream: AtomicU8,
    epoch: AtomicU32,
    first_csn: AtomicU64,
    used: AtomicU32,
    made_ns: AtomicU64,
    /// Whether all of its file was written, in this life or a former one of the file since the log was opened.
    is_file_written: AtomicBool,
    /// Whether the space at its end was given back, or it was found that there is nothing to give.
    pub tail_given_back: AtomicBool,
}

impl Segment {
    pub fn new(number: u32, bytes: u32, path: PathBuf, file: Option<Arc<dyn File>>) -> Segment {
        Segment {
            number,
            bytes,
            path,
            of_reserve: false,
            file: Mutex::new(file),
            state: AtomicU8::new(READY),
            stream: AtomicU8::new(0),
            epoch: AtomicU32::new(0),
            first_csn: AtomicU64::new(0),
            used: AtomicU32::new(0),
            made_ns: AtomicU64::new(0),
            is_file_written: AtomicBool::new(false),
            tail_given_back: AtomicBool::new(false),
        }
    }

    /// The file's name.
    pub fn name(&self) -> String {
        segment_file_name(self.number)
    }

    /// The file, if it is open.
    pub fn open_file(&self) -> Option<Arc<dyn File>> {
        self.file.lock().clone()
    }

    /// Opens the file. Returns it, and false if another thread has opened it meanwhile.
    pub fn open(&self, dir: &dyn Dir, options: OpenOptions) -> io::Result<(Arc<dyn File>, bool)> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok((Arc::clone(file), false));
        }
        let opened = dir.open(&self.name(), options)?;
        *file = Some(Arc::clone(&opened));
        Ok((opened, true))
    }

    /// Closes the file, unless the log still appends to it.
    pub fn close_file(&self) {
        if self.state() == SEALED {
            *self.file.lock() = None;
        }
    }

    /// Records the stream and epoch that took it.
    pub fn hand_out(&self, stream: Stream, epoch: Epoch, first_csn: Csn) {
        self.stream.store(stream as u8, Relaxed);
        self.epoch.store(epoch.0, Relaxed);
        self.first_csn.store(first_csn.0, Relaxed);
        self.state.store(OPEN, Relaxed);
    }

    pub fn set_made(&self, now_ns: u64) {
        self.made_ns.store(now_ns, Relaxed);
    }

    /// Notes whether all of its file was written: its extents are recorded, and it has no hole.
    pub fn set_file_written(&self, is_written: bool) {
        self.is_file_written.store(is_written, Relaxed);
    }

    pub fn is_file_written(&self) -> bool {
        self.is_file_written.load(Relaxed)
    }

    pub fn seal(&self) {
        self.state.store(SEALED, Relaxed);
    }

    pub fn state(&self) -> u8 {
        self.state.load(Relaxed)
    }

    pub fn set_used(&self, bytes: u32) {
        self.used.store(bytes, Relaxed);
    }

    /// The end of the data of a segment of the bulk stream; its whole length if not known. `None` if it does not have the
    /// start of that stream, whatever it was taken for.
    pub fn bulk_end(&self) -> Option<u32> {
        let has_start = self.stream() == Some(Stream::Bulk) && self.epoch.load(Relaxed) > 0;
        has_start.then(|| self.used.load(Relaxed))
    }

    pub fn stream(&self) -> Option<Stream> {
        match self.stream.load(Relaxed) {
            1 => Some(Stream::Commit),
            2 => Some(Stream::Bulk),
            _ => None,
        }
    }

    /// The CSN of the first frame in it, or of the next frame after it if it has none; 0 in the bulk stream and where not
    /// known.
    pub fn first_csn(&self) -> Csn {
        Csn(self.first_csn.load(Relaxed))
    }

    /// How many bytes it has from `offset` on.
    pub fn room(&self, offset: u32) -> u32 {
        self.bytes.saturating_sub(offset)
    }

    pub fn info(&self, epoch_start: u32) -> SegmentInfo {
        SegmentInfo {
            number: self.number,
            bytes: self.bytes,
            stream: self.stream(),
            epoch: Epoch(self.epoch.load(Relaxed)),
            first_csn: Csn(self.first_csn.load(Relaxed)),
            used_bytes: self.used.load(Relaxed),
            open: self.state() != SEALED || self.number == epoch_start,
            made_ns: self.made_ns.load(Relaxed),
        }
    }
}

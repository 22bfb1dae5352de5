//! An open file of the simulated disk.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::error::{Errno, crashed};
use super::fate::Fate;
use super::inode::{Inode, Reach};
use super::medium::{Bytes, Flight};
use super::names::Ino;
use super::plan::{Loss, Op, Verdict};
use super::rng::Rng;
use super::state::{Shared, State, fly};
use crate::aligned::assert_direct;
use crate::{DIRECT_BYTES, File};

pub(super) struct SimFile {
    shared: Arc<Shared>,
    ino: Ino,
    path: PathBuf,
    writable: bool,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SimFile {
    /// A handle; the caller has the lock and passes the file's state.
    pub(super) fn open(
        shared: &Arc<Shared>,
        inode: &mut Inode,
        ino: Ino,
        path: &Path,
        writable: bool,
    ) -> SimFile {
        inode.open += 1;
        SimFile { shared: Arc::clone(shared), ino, path: path.to_path_buf(), writable }
    }

    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        self.shared.enter()
    }

    fn enter_to_write(&self, operation: &'static str) -> io::Result<MutexGuard<'_, State>> {
        if !self.writable {
            return Err(Errno::BadDescriptor.on(operation, &self.path));
        }
        let mut state = self.enter()?;
        // Nothing here writes to a file both ways.
        if self.inode(&mut state)?.memory().is_some() {
            return Err(Errno::Unsupported.on(operation, &self.path));
        }
        Ok(state)
    }

    /// The inode of an open file is never collected.
    fn inode<'a>(&self, state: &'a mut State) -> io::Result<&'a mut Inode> {
        let missing = || Errno::Io.on("find", &self.path);
        state.medium.inodes.get_mut(&self.ino).ok_or_else(missing)
    }

    fn write(&self, data: &[u8], offset: u64, how: How) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let mut state = self.enter_to_write("write")?;
        let How { reach, dsync } = how;
        if reach == Reach::Device && !state.plan.settings.direct_writes {
            return Err(Errno::Unsupported.on("write", &self.path));
        }
        let verdict = state.admit(Op::Write);
        self.shared.clock.advance(state.plan.settings.latency_of(dsync));
        let flight = Flight::Write { ino: self.ino, offset, data: Bytes::new(data), reach };
        match verdict {
            Verdict::Proceed => {}
            Verdict::Full => return Err(Errno::NoSpace.on("write", &self.path)),
            Verdict::Fail(_) => return self.fail_write(&mut state, data, offset, how),
            Verdict::Crash => {
                state.medium.submit(flight);
                return Err(crashed());
            }
        }
        let fitting = self.fitting(&mut state, data, offset, reach)?;
        if fitting.len() < data.len() {
            let seq = state.medium.next_seq();
            self.inode(&mut state)?.write(fitting, offset, seq, reach);
            return Err(Errno::NoSpace.on("write", &self.path));
        }
        fly(&mut state, flight)?;
        let seq = state.medium.next_seq();
        let (fua, syncs_ignored) = (state.plan.settings.fua, state.plan.syncs_ignored);
        let inode = self.inode(&mut state)?;
        let grew = offset + data.len() as u64 > inode.len();
        inode.write(data, offset, seq, reach);
        if !dsync || syncs_ignored {
            return Ok(());
        }
        if !fua && reach == Reach::PageCache {
            inode.sync(seq);
        } else {
            inode.sync_range(offset, data.len() as u64, grew);
            if !fua {
                inode.flush_device();
            }
        }
        Ok(())
    }

    /// The part of a write that fits into the free space; whole blocks of a direct one.
    fn fitting<'d>(
        &self,
        state: &mut State,
        data: &'d [u8],
        offset: u64,
        reach: Reach,
    ) -> io::Result<&'d [u8]> {
        if state.plan.settings.space.is_none() {
            return Ok(data);
        }
        let free = state.free();
        let end_max = self.inode(state)?.allocated().saturating_add(free);
        let count = usize::try_from(end_max.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = count.min(data.len());
        Ok(&data[..if reach == Reach::Device { count - count % DIRECT_BYTES } else { count }])
    }

    /// A failed write leaves any part of itself; a data-synchronous one also loses any part of it permanently.
    fn fail_write(&self, state: &mut State, data: &[u8], offset: u64, how: How) -> io::Result<()> {
        let mut rng = Rng::new(state.rng.next());
        let fitting = self.fitting(state, data, offset, how.reach)?;
        state.medium.write_torn(self.ino, (fitting, offset), how.reach, &mut rng);
        if how.dsync {
            let mut fate = Fate::draw(rng, state.medium.last_seq());
            let power_safe = state.plan.settings.power_safe;
            self.inode(state)?.fail_sync_range((offset, data.len() as u64), &mut fate, power_safe);
        }
        Err(Errno::Io.on("write", &self.path))
    }
}

/// A kind of write.
#[derive(Clone, Copy)]
struct How {
    reach: Reach,
    dsync: bool,
}

const BUFFERED: How = How { reach: Reach::PageCache, dsync: false };

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.inode(&mut *self.enter()?)?.read(buf, offset))
    }

    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.inode(&mut *self.enter()?)?.read_direct(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(buf, offset, BUFFERED)
    }

    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let [piece] = pieces {
            return self.write(piece, offset, BUFFERED);
        }
        let mut joined = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        self.write(&joined, offset, BUFFERED)
    }

    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(buf, offset, How { dsync: true, ..BUFFERED })
    }

    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        assert_direct(buf, offset);
        self.write(buf, offset, How { reach: Reach::Device, dsync: sync })
    }

    fn takes_direct_writes(&self) -> io::Result<bool> {
        Ok(self.writable && self.shared.state.lock().plan.settings.direct_writes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.enter()?;
        let verdict = state.admit(Op::Sync);
        self.shared.clock.advance(state.plan.settings.latency_of(true));
        let cutoff = state.medium.last_seq();
        if verdict == Verdict::Proceed {
            MutexGuard::bump(&mut state);
            state.alive()?;
        }
        let rng = Rng::new(state.rng.next());
        let (power_safe, syncs_ignored) = (state.plan.settings.power_safe, state.plan.syncs_ignored);
        let inode = self.inode(&mut state)?;
        match verdict {
            Verdict::Crash => return Err(crashed()),
            Verdict::Fail(Loss::All) => inode.fail_sync(cutoff, &mut Fate::lose_all(), power_safe),
            Verdict::Fail(Loss::Some) => inode.fail_sync(cutoff, &mut Fate::draw(rng, cutoff), power_safe),
            Verdict::Proceed | Verdict::Full if syncs_ignored => return Ok(()),
            Verdict::Proceed | Verdict::Full => {
                inode.sync(cutoff);
                return Ok(());
            }
        }
        Err(Errno::Io.on("fdatasync", &self.path))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode(&mut *self.enter()?)?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.enter_to_write("ftruncate")?;
        let flight = Flight::SetLen { ino: self.ino, len };
        if state.admit(Op::SetLen) == Verdict::Crash {
            state.medium.submit(flight);
            return Err(crashed());
        }
        let growth = len.saturating_sub(self.inode(&mut state)?.len());
        if growth > 0 && growth > state.free() {
            return Err(Errno::NoSpace.on("ftruncate", &self.path));
        }
        fly(&mut state, flight)?;
        let seq = state.medium.next_seq();
        self.inode(&mut state)?.set_len(len, seq);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.enter_to_write("fallocate")?;
        if !state.plan.settings.allocation {
            return Err(Errno::Unsupported.on("fallocate", &self.path));
        }
        let flight = |len| Flight::SetLen { ino: self.ino, len };
        let verdict = state.admit(Op::Allocate);
        let free = state.free();
        let inode = self.inode(&mut state)?;
        let len = inode.len();
        let fitting = inode.allocated().saturating_add(free).min(bytes);
        match verdict {
            Verdict::Crash => {
                state.medium.submit(flight(len.max(bytes)));
                return Err(crashed());
            }
            Verdict::Full => return Err(Errno::NoSpace.on("fallocate", &self.path)),
            Verdict::Proceed | Verdict::Fail(_) => {}
        }
        // Too little space: it takes what there is, as a real file system may.
        if fitting > len {
            fly(&mut state, flight(fitting))?;
        }
        let seq = state.medium.next_seq();
        self.inode(&mut state)?.allocate(fitting, seq);
        if fitting < bytes {
            return Err(Errno::NoSpace.on("fallocate", &self.path));
        }
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.inode(&mut *self.enter()?)?.allocated())
    }

    fn punch_hole_from(&self, offset: u64) -> io::Result<()> {
        let mut state = self.enter_to_write("fallocate")?;
        if state.admit(Op::SetLen) == Verdict::Crash {
            return Err(crashed());
        }
        let seq = state.medium.next_seq();
        self.inode(&mut state)?.punch_hole_from(offset, seq);
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(inode) = state.medium.inodes.get_mut(&self.ino) {
            inode.open -= 1;
        }
    }
}

//! Applying what other nodes commit: reads the log from `visible` on, as far as it is agreed and durable here, and applies each commit
//! (INV-REP-5, INV-REP-6). Once this node leads and has applied all, it admits commits (INV-REP-7).

use std::sync::Arc;

use fulgurite_log::{CommitLog, LogReader, OwnedFrame};

use crate::catalog::TableState;
use crate::commit::Apply;
use crate::commit::decode::{Decoded, decode};
use crate::engine::Engine;
use crate::error::OrError;
use crate::maintenance::Round;
use crate::merger::freeze_if_grown;
use crate::space::budget::Kind;
use crate::space::need::WriteCost;
use crate::{ErrorKind, Result};

/// About how long an operation with its frame is.
const ENTRY_BYTES_PER_KEY: usize = 200;

/// So many commits are applied in one round.
const ROUND_COMMITS: u32 = 1024;

/// How far the log was read.
#[derive(Default)]
pub(crate) struct Applying {
    reader: Option<LogReader>,
    /// A commit that could not be applied.
    next: Option<OwnedFrame>,
    /// Tables that the last commit wrote: one of them may have to be merged before the next one is applied.
    written: Vec<Arc<TableState>>,
}

impl Engine {
    /// One round of applying what other nodes committed.
    pub fn apply_round(&self) -> Result<Round> {
        let done = Round { worked: false, left: false };
        if !self.pipeline.is_following() || self.options.read_only {
            return Ok(done);
        }
        let mut applying = self.applying.lock();
        self.check_open()?;
        let mut worked = false;
        for _ in 0..ROUND_COMMITS {
            if self.pipeline.visible() >= self.pipeline.stable() {
                let path = self.files.path.display();
                if self.pipeline.begin_serving(|| self.clock.go_on()) {
                    tracing::info!(%path, visible = self.pipeline.visible().0, "leads, and takes commits");
                }
                return Ok(Round { worked, left: false });
            }
            if self.applying_has_to_wait(&applying) {
                self.wakeups.wake_merger();
                return Ok(Round { worked, left: true });
            }
            match self.apply_next(&mut applying) {
                Ok(true) => {}
                Ok(false) => return Ok(Round { worked, left: true }),
                Err(error) => {
                    if error.kind() == ErrorKind::Restore {
                        // It has acknowledged what it cannot read: it acknowledges and promises nothing any more.
                        self.log.poison("applying a commit of another node: the log is damaged");
                    }
                    return Err(error);
                }
            }
            worked = true;
        }
        Ok(Round { worked, left: true })
    }

    /// Waits for room for entries and chunks of another node, before they are appended.
    pub fn admit_entries(&self, entry_bytes: usize, chunk_bytes: usize) -> Result<()> {
        self.check_writable()?;
        let cost = || {
            let WriteCost { log_bytes, .. } = WriteCost::of_chunks(chunk_bytes);
            // How many keys the entries write is not known: as many as if each were short.
            let entries = entry_bytes.div_ceil(ENTRY_BYTES_PER_KEY) as u64;
            WriteCost { entries, memory: entry_bytes as u64, log_bytes: log_bytes + entry_bytes as u64 }
        };
        let _admitted = self.admit_by_room(Kind::Puts, cost)?;
        if chunk_bytes > 0 {
            // They take space before the entry that refers to them comes.
            self.wakeups.chunk_written();
        }
        Ok(())
    }

    /// Whether there is something to apply, or commits may be admitted now.
    pub fn has_to_apply(&self) -> bool {
        self.pipeline.is_following()
            && self.log.poisoned().is_none()
            && (self.pipeline.visible() < self.pipeline.stable() || self.pipeline.may_serve())
    }

    /// Whether memtables have to be merged first, as for a committer.
    fn applying_has_to_wait(&self, applying: &Applying) -> bool {
        self.memtables_have_to_be_merged()
            || applying.written.iter().any(|table| self.has_too_many_memtables(table))
    }

    /// Applies the commit after `visible`. False if it is not in the log yet.
    fn apply_next(&self, applying: &mut Applying) -> Result<bool> {
        let frame = match applying.next.take() {
            Some(frame) => frame,
            None => {
                let reader = match &mut applying.reader {
                    Some(reader) => reader,
                    none => none.insert(self.log.reader(self.pipeline.visible()).or_error()?),
                };
                let Some(frame) = reader.next().or_error()? else { return Ok(false) };
                frame
            }
        };
        let inline_max = self.options.inline_bytes_max;
        let decoded = decode(&self.log, &self.tables, &frame, inline_max, || self.reads.readers());
        let Decoded { work, tables, ops, list_bytes, chunk_bytes } = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                applying.next = Some(frame);
                return Err(error);
            }
        };
        let (csn, body_lsn) = (frame.header.csn, frame.body_lsn);
        self.hooks.reached("commit of another node");
        self.pipeline.follow(csn, || {
            work.apply(csn, body_lsn);
            // Before the commit is visible: no snapshot sees it at an earlier time.
            self.clock.note_commit(frame.header.commit_time_ms);
        });
        match list_bytes {
            0 => self.growth.count_ops(ops),
            bytes => self.growth.count_list(bytes, ops),
        }
        self.growth.count_ahead(chunk_bytes);
        self.counters.user_bytes.add(frame.body.len() as u64 + chunk_bytes);
        for table in &tables {
            freeze_if_grown(table, &self.pipeline, self.memtable_bytes_max());
        }
        self.look_at_memtables();
        self.wakeups.commit_numbered();
        applying.written = tables;
        Ok(true)
    }
}

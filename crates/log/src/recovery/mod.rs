//! Recovery of the log. `docs/recovery.md` is the table of cases; [`recover`] has the steps, each in a file.

mod begin;
mod chain;
mod harden;
mod inventory;
mod read;
mod staged;
mod tail;
mod walk;

pub(crate) use begin::begin_epoch;
pub(crate) use harden::holds_something;
pub(crate) use staged::{Need, prepare};

use self::chain::Chain;
use self::inventory::Inventory;
use self::walk::{Cut, Walked};
use crate::error::LogError;
use crate::format::{Agreed, ChunkRef, EpochStart, FrameHeader};
use crate::options::LogOptions;
use crate::segments::Segments;
use crate::staging::{StagedTail, StagingFile};
use crate::stream::entries::FoundEntries;
use crate::stream::groups::AppendPoint;
use crate::stream::watermarks::{ReplayIndex, Tip};
use fulgurite_env::{Dir, Env};
use fulgurite_types::{Csn, DatabaseId, EntryId, Epoch, Lsn};
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

/// One epoch, up to the end that a later epoch declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochSpan {
    pub epoch: Epoch,
    pub start_segment: u32,
    /// `None` for the newest.
    pub end: Option<Tip>,
}

/// A log that recovery judged and opened, or that was created: its owners are made from it.
pub(crate) struct Opened {
    pub segments: Segments,
    pub at: AppendPoint,
    /// The epochs from the replay point on.
    pub spans: Vec<EpochSpan>,
    pub index: ReplayIndex,
    /// The staging file, bound to this opening.
    pub staging: Option<StagingFile>,
    pub entries: FoundEntries,
    /// In a read-only log: the staged commits.
    pub staged_tail: Option<StagedTail>,
}

/// What the last checkpoint recorded about the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayFrom {
    /// Where replay starts: what [`Log::replay_point`](crate::Log::replay_point) returned for `csn`.
    pub lsn: Lsn,
    /// Frames up to this CSN are in the checkpoint and are not delivered.
    pub csn: Csn,
    /// The newest epoch that the superblock names. If the newest on disk is older, that is damage.
    pub epoch: Epoch,
    /// The newest CSN that was durable in that epoch.
    pub durable_csn: Csn,
    /// Where that epoch ended, if it was closed cleanly with everything durable: recovery ignores what follows, and
    /// makes nothing durable again.
    pub closed_at: Option<Lsn>,
    /// Segments that the checkpoint refers to: those of its record, and those with live bytes. If one is missing, opening fails;
    /// none is taken for one that was never used.
    pub must_exist: BTreeSet<u32>,
    /// Frames after this CSN are cut off, on purpose. Not in a replicated log.
    pub up_to: Option<Csn>,
    /// The entry after which a replicated log is cut off, because the leader's has others there. It is at or above the agreed one.
    pub up_to_entry: Option<u64>,
}

impl ReplayFrom {
    /// For a log that was created and never checkpointed.
    pub fn beginning() -> ReplayFrom {
        ReplayFrom {
            lsn: Lsn::new(1, crate::format::SEGMENT_DATA_START),
            epoch: Epoch(1),
            ..ReplayFrom::default()
        }
    }
}

/// A frame found by recovery.
#[derive(Clone, Debug)]
pub struct RecoveredFrame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Its body.
    pub body: &'a [u8],
    /// The body's LSN.
    pub body_lsn: Lsn,
    /// The extents of the chunks that the body refers to.
    pub local: Vec<ChunkRef>,
}

/// Receives the frames that recovery finds.
pub trait RecoverySink {
    /// Takes the next frame, in CSN order. If opening fails later, all delivered frames are void.
    ///
    /// # Errors
    /// Ends recovery with [`LogError::Sink`].
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Hears of a frame that is not delivered and refers to chunks: the checkpoint covers it, or it is not known to be agreed. Other
    /// nodes may need its chunks, and an agreed frame is applied later.
    fn passed_over(&mut self, csn: Csn, chunks: Vec<ChunkRef>) {
        let _ = (csn, chunks);
    }

    /// Reports how much of the log has been read.
    fn progress(&mut self, done_bytes: u64, total_bytes: u64) {
        let _ = (done_bytes, total_bytes);
    }
}

/// A recovery's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The epoch that begins; in a read-only log the newest one found.
    pub epoch: Epoch,
    /// The last commit that survived.
    pub last_csn: Csn,
    /// In a replicated log: the last entry that survived.
    pub last_entry: EntryId,
    /// In a replicated log: the newest entry that is known to be agreed. The frames after it, up to `last_csn`, were not delivered.
    pub agreed: Agreed,
    /// The newest commit that is known to survive a power cut. In a read-only log it may be below `last_csn`: a killed
    /// process may have left commits in the cache. Any other log has made all of them durable.
    pub proven_csn: Csn,
    /// Where the log ended.
    pub end: Lsn,
    /// How many frames were delivered.
    pub frames: u64,
    /// How many bytes of log were read.
    pub read_bytes: u64,
    /// How many bytes of groups there are from the replay point on: the next recovery would walk them again.
    pub walked_bytes: u64,
    /// Of these bytes: those of groups with commits that the checkpoint does not cover, and how many epochs have such. In a replicated log
    /// more is kept.
    pub uncovered_bytes: u64,
    /// See `uncovered_bytes`.
    pub uncovered_epochs: u32,
    /// When the newest commit that the checkpoint covers happened, in milliseconds since 1970; 0 if its frame was not read.
    pub covered_time_ms: u64,
    /// How many living epochs were walked from the replay point on; each left a segment.
    pub epochs: u32,
    /// How many bytes were written again, because neither a durable mark nor the checkpoint covered them.
    pub rewritten_bytes: u64,
    /// Frames cut off by [`ReplayFrom::up_to`].
    pub cut_frames: u64,
    /// Segments that had never been used. They are removed, now or soon, or their files fill the reserve.
    pub removed_segments: u32,
    /// How long all of it took.
    pub elapsed_ns: u64,
}

/// Judges the end of the log, and how much of it is proven. A durable mark may speak of staged bytes, which are in no segment, or not
/// synced there.
fn judge(
    inventory: &Inventory,
    chain: &Chain,
    walked: &mut Walked,
    from: &ReplayFrom,
    need: Need,
    staged: Option<&StagedTail>,
    options: &LogOptions,
) -> Result<(), LogError> {
    let is_staged =
        |tail: &StagedTail| tail.lost.is_some() || tail.first().is_none_or(|first| first <= walked.end);
    let adopts_loss = need != Need::Nothing && options.adopt_staging_loss && staged.is_none_or(is_staged);
    let witnesses = staged.map_or(&[][..], StagedTail::headers);
    let staged_beyond = staged.and_then(|tail| tail.proven_beyond(walked.last_csn));
    tail::judge(inventory, chain, walked, from, (witnesses, staged_beyond), adopts_loss)?;
    let unproven = match staged {
        Some(tail) if tail.lost.is_none() => tail.first(),
        _ => adopts_loss.then(|| Lsn::new(chain.newest().start_segment, 0)),
    };
    walked.proven = unproven.map_or(walked.proven, |unproven| walked.proven.min(unproven));
    Ok(())
}

/// The report on what was found, if all of it is durable.
fn found(chain: &Chain, walked: &Walked) -> RecoveryReport {
    RecoveryReport {
        epoch: chain.newest().epoch,
        last_csn: walked.last_csn,
        last_entry: walked.entries.last,
        agreed: walked.entries.agreed,
        proven_csn: walked.last_csn,
        end: walked.end,
        frames: walked.frames,
        read_bytes: walked.read_bytes,
        walked_bytes: walked
            .live
            .iter()
            .map(|range| u64::from(range.end.offset() - range.start.offset()))
            .sum(),
        uncovered_bytes: walked.uncovered_bytes,
        uncovered_epochs: walked.uncovered_epochs,
        covered_time_ms: walked.covered_time_ms,
        epochs: chain.spans.len() as u32,
        ..RecoveryReport::default()
    }
}

/// Cuts the entries of a replicated log after the one that [`ReplayFrom::up_to_entry`] names.
fn cut_entries(walked: &mut Walked, from: &ReplayFrom, options: &LogOptions) -> Result<(), LogError> {
    let Walked { entries, span_entries, cut, .. } = walked;
    if entries.last.index > 0 && (!options.replicated || from.up_to.is_some()) {
        let what = format!("it is one of a cluster, and ends with entry {}", entries.last);
        return Err(LogError::Usage(what));
    }
    let Some(index) = from.up_to_entry.filter(|index| *index < entries.last.index) else {
        *cut = None;
        return Ok(());
    };
    let Some(Cut { entry: id, nth_span, .. }) = *cut else {
        return Err(LogError::Usage(format!("the log cannot be cut after entry {index}: it is not read")));
    };
    if index < entries.agreed.index {
        let agreed = entries.agreed.index;
        let what = format!("INV-REP-3: the log cannot be cut after entry {index}: entry {agreed} is agreed");
        return Err(LogError::Usage(what));
    }
    entries.last = id;
    entries.pending.retain(|(pending, _)| pending.index <= index);
    span_entries.truncate(nth_span);
    span_entries.push(id);
    Ok(())
}

/// Ends the chain where the log ends, after the cut, and returns that end. Epochs after it are dead.
fn end(chain: &mut Chain, walked: &Walked, from: &ReplayFrom) -> Tip {
    let tip = match walked.cut {
        Some(cut) => {
            chain.spans.truncate(cut.nth_span + 1);
            cut.tip
        }
        None => {
            let csn = from.up_to.map_or(walked.last_csn, |up_to| up_to.min(walked.last_csn));
            Tip { csn, lsn: walked.end }
        }
    };
    chain.close(tip);
    tip
}

/// The start of an epoch that follows the chain, which ends at `tip`, or earlier if epochs without commits were passed over.
fn epoch_start(epoch: Epoch, chain: &Chain, tip: Tip, staging: Option<&StagingFile>) -> EpochStart {
    let previous = chain.newest();
    EpochStart {
        epoch,
        previous: previous.epoch,
        previous_segment: previous.start_segment,
        previous_end: previous.end.map_or(tip.lsn, |end| end.lsn),
        previous_csn: tip.csn,
        staging: staging.map(|file| file.header.id),
    }
}

/// 1. `inventory`: lists the segments, with their headers and first groups.
/// 2. `chain`: follows the epochs from the newest start back to the replay point. A clean close ends the newest epoch.
/// 3. `staged`: takes the groups of the newest epoch from the staging file, if that epoch has one. From here on they are seen in what
///    is read of their segments.
/// 4. `walk`: checks every group forward from the replay point, and delivers the frames.
/// 5. `tail`: judges whether the end is a torn tail or damage. With [`LogOptions::read_only`] this is the last step but
///    making the log (`read`).
/// 6. `harden`: makes durable what the walk found. Then it tidies the directory: files of the reserve and unfinished
///    ones, segments of passed-over epochs, unused segments.
/// 7. `begin`: begins an epoch, which declares where the one before ended and passes over those without commits.
///
/// Steps 3, 5 and the first half of 6 are left out after a clean close: everything was durable then, and the end is known.
/// Recovery writes nothing before step 6 (INV-LOG-9).
pub(crate) fn recover(
    env: &dyn Env,
    dir: &Arc<dyn Dir>,
    database: DatabaseId,
    options: &LogOptions,
    from: &ReplayFrom,
    sink: &mut dyn RecoverySink,
) -> Result<(Opened, RecoveryReport), LogError> {
    let started = env.clock().monotonic_ns();
    if from.up_to.is_some_and(|up_to| up_to < from.csn) {
        let what = format!("the log cannot be cut before its checkpoint at commit {}", from.csn);
        return Err(LogError::Usage(what));
    }
    let mut inventory = inventory::take(dir, database, options.open_options())?;
    let mut chain = chain::read(&inventory, from)?;
    let closed = from.closed_at.filter(|_| chain.newest().epoch == from.epoch);
    if let Some(end) = closed {
        chain.close(Tip { csn: from.durable_csn, lsn: end });
    }
    let need = staged::need(&chain, closed.is_some());
    let staged_tail = staged::read(env, options, &inventory, &chain, from, need)?;
    if let Some(tail) = &staged_tail {
        inventory.stage(tail);
    }
    let mut walked = walk::walk(&inventory, &chain, from, sink)?;
    if closed.is_none() {
        judge(&inventory, &chain, &mut walked, from, need, staged_tail.as_ref(), options)?;
    }
    if !options.read_only {
        cut_entries(&mut walked, from, options)?;
    }
    let mut report = found(&chain, &walked);
    if options.read_only {
        if closed.is_none() {
            report.proven_csn = walked.mark.max(from.csn).min(walked.last_csn);
        }
        let opened = read::into_opened(dir, options, &inventory, chain, walked, staged_tail)?;
        report.elapsed_ns = env.clock().monotonic_ns().saturating_sub(started);
        return Ok((opened, report));
    }
    if closed.is_none() {
        report.rewritten_bytes = harden::harden(&inventory, &chain, &walked)?;
    }
    let mut reserve = harden::sort_unfinished(&inventory, options)?;
    let mut gone = harden::give_back_passed_over(&inventory, &chain, from, options, &mut reserve)?;
    let unused = harden::remove_unused(&inventory, &walked, from, options, &mut reserve)?;
    gone.extend(unused.gone.iter().chain(&unused.later));
    let epoch = Epoch(inventory.newest_epoch().max(chain.newest().epoch).max(from.epoch).0 + 1);
    chain.close(Tip { csn: walked.last_csn, lsn: walked.end });
    // Before the cut: until the new epoch has begun, another opening finds the file as this one did.
    let staging = prepare(env, options, database, need, Some(&chain))?;
    let tip = end(&mut chain, &walked, from);
    let last_csn = tip.csn;
    let passed_over = chain.pass_over_empty(&walked.span_entries);
    let start = epoch_start(epoch, &chain, tip, staging.as_ref());
    let entries = std::mem::take(&mut walked.entries);
    let number = inventory.next_number()?;
    let begun = begin_epoch(dir.clone(), database, options, number, reserve, &start, entries)?;
    staging.as_ref().map_or(Ok(()), StagingFile::clear)?;
    report.epoch = start.epoch;
    report.last_csn = last_csn;
    report.end = tip.lsn;
    report.proven_csn = last_csn;
    report.cut_frames = walked.last_csn.0 - last_csn.0;
    report.removed_segments = (unused.gone.len() + unused.later.len()) as u32;
    report.elapsed_ns = env.clock().monotonic_ns().saturating_sub(started);
    begun.segments.remove_later(&unused.later);
    begun.take_over(inventory.kept_segments(&gone, &walked), &passed_over);
    Ok((begun.into_opened(chain.spans, Some(walked.index), staging), report))
}

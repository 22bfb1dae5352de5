//! A read-only log: it ends where recovery found its end, begins no epoch, and takes no commits.

use super::chain::Chain;
use super::inventory::Inventory;
use super::walk::Walked;
use crate::core::Core;
use crate::error::LogError;
use crate::groups::AppendPoint;
use crate::options::LogOptions;
use crate::store::Store;
use fulgurite_env::{Dir, Env};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) fn into_core(
    env: Arc<dyn Env>,
    dir: &Arc<dyn Dir>,
    options: LogOptions,
    inventory: &Inventory,
    chain: Chain,
    walked: Walked,
) -> Result<Core, LogError> {
    let store =
        Store::new(dir.clone(), inventory.database, options.clone(), inventory.next_number()?, Vec::new());
    for segment in inventory.kept_segments(&[], &walked) {
        store.add(segment);
    }
    // The rest of a torn group may follow the end.
    store.set_epoch_start(walked.end.segment());
    inventory.named(walked.end.segment(), || "the log ends in it".into())?;
    let segment = store.get(walked.end.segment()).expect("it is there and readable, or recovery had failed");
    let newest = chain.newest();
    let at = AppendPoint {
        epoch: newest.epoch,
        segment,
        offset: walked.end.offset(),
        next_csn: walked.last_csn.next(),
    };
    let mut index = walked.index;
    index.set_tip(walked.last_csn, walked.end);
    let path = dir.path().to_path_buf();
    let core = Core::new(env, inventory.database, options, store, at, chain.0, index);
    let core = core.map_err(|source| LogError::io("prepare reading of", &path, source))?;
    core.closed.store(true, Ordering::Release);
    core.ended.store(true, Ordering::Release);
    Ok(core)
}

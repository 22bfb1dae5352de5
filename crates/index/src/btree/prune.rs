//! Decides which versions of a key may be pruned: one pure function.

use fulgurite_types::Csn;

use super::node::entry::Stamped;
use crate::{PruneRules, VersionFlags};

/// What of [`PruneRules`] does not depend on a key.
#[derive(Clone, Copy)]
pub(crate) struct Pruner<'a> {
    horizon: Csn,
    snapshots: &'a [Csn],
    expired_until_ms: u64,
}

impl<'a> Pruner<'a> {
    /// # Panics
    /// Unless the snapshots ascend: pruning by an unsorted list would lose versions.
    pub(crate) fn new(rules: &'a PruneRules) -> Pruner<'a> {
        assert!(rules.snapshots.is_sorted(), "snapshots must ascend");
        Pruner {
            horizon: rules.horizon,
            snapshots: &rules.snapshots,
            expired_until_ms: rules.expired_until_ms,
        }
    }

    /// Whether a version that is its key's only one stays, range tombstones aside.
    pub(crate) fn keeps_alone(&self, version: &Stamped<'_>) -> bool {
        !self.is_nothing(version)
    }

    /// Removes the versions whose absence no reader can detect: none at a snapshot, and none at or above the horizon.
    /// `versions` are all of one key, newest first, each CSN once. `covering` gives the CSN of the newest range
    /// tombstone at or below a CSN that covers the key. Readers apply range tombstones themselves; a version whose CSN
    /// equals a range tombstone's wins over it.
    ///
    /// A version is needed if it is the newest at or below some reader's CSN and no range tombstone between the two
    /// hides it. Versions that are not needed can be removed together: suppose a reader no longer finds a version that
    /// a range tombstone hid from it. It finds an older one instead, and the same range tombstone hides that.
    ///
    /// That holds for readers at or above the range tombstone. A single operation that began below it, without a snapshot, reads the
    /// newest version that is left, and no range tombstone hides that from it (INV-TXN-14). So as long as any version stays, the
    /// newest one does.
    ///
    /// A tombstone, or a version that has expired for every reader, is the same to a reader as no version. If it is the
    /// last version of a key, it is removed too, unless an open transaction is old enough to have to detect a conflict
    /// by it.
    pub(crate) fn prune(&self, versions: &mut Vec<Stamped<'_>>, covering: impl Fn(Csn) -> Option<Csn>) {
        let newest = versions.first().copied();
        let mut next_newer: Option<Csn> = None;
        versions.retain(|version| {
            let needed = self.is_needed(version.csn, next_newer, &covering);
            next_newer = Some(version.csn);
            needed
        });
        if let Some((newest, first)) = newest.zip(versions.first())
            && first.csn < newest.csn
        {
            versions.insert(0, newest);
        }
        if let [last] = versions.as_slice()
            && self.is_nothing(last)
            && last.csn <= self.horizon
            && self.snapshots.first().is_none_or(|oldest| last.csn <= *oldest)
        {
            versions.clear();
        }
    }

    fn is_needed(&self, csn: Csn, next_newer: Option<Csn>, covering: &impl Fn(Csn) -> Option<Csn>) -> bool {
        let seen_by = |reader: Csn| {
            csn <= reader
                && next_newer.is_none_or(|next| reader < next)
                && covering(reader).is_none_or(|range_delete| range_delete <= csn)
        };
        // Of the readers at or above the horizon the lowest one sees the most, and so does the lowest snapshot at or above `csn`
        // of all snapshots: the newer the reader, the more range tombstones hide from it.
        if seen_by(self.horizon.max(csn)) {
            return true;
        }
        let from = self.snapshots.partition_point(|snapshot| *snapshot < csn);
        self.snapshots.get(from).is_some_and(|snapshot| seen_by(*snapshot))
    }

    fn is_nothing(&self, version: &Stamped<'_>) -> bool {
        let expired = version.expires_at_ms != 0 && version.expires_at_ms <= self.expired_until_ms;
        version.flags & VersionFlags::TOMBSTONE != 0 || expired
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    /// The CSN of the version that a reader at `at` sees of a key; `None` if it sees no value.
    fn seen(versions: &[Stamped<'_>], range_deletes: &[u64], at: Csn, expired_until_ms: u64) -> Option<Csn> {
        let newest = versions.iter().find(|version| version.csn <= at)?;
        let hidden = range_deletes.iter().any(|csn| *csn <= at.0 && *csn > newest.csn.0);
        let expired = newest.expires_at_ms != 0 && newest.expires_at_ms <= expired_until_ms;
        let nothing = newest.flags & VersionFlags::TOMBSTONE != 0 || expired;
        (!hidden && !nothing).then_some(newest.csn)
    }

    fn stamped(csn: u64, flags: u8, expires_at_ms: u64) -> Stamped<'static> {
        Stamped { flags, csn: Csn(csn), expires_at_ms, payload: &[] }
    }

    fn pruned(
        versions: &[Stamped<'static>],
        horizon: u64,
        snapshots: &[u64],
        range_deletes: &[u64],
    ) -> Vec<u64> {
        let snapshots: Vec<Csn> = snapshots.iter().copied().map(Csn).collect();
        let pruner = Pruner { horizon: Csn(horizon), snapshots: &snapshots, expired_until_ms: 100 };
        let mut kept = versions.to_vec();
        pruner.prune(&mut kept, |at| covering(range_deletes, at));
        kept.iter().map(|version| version.csn.0).collect()
    }

    fn covering(range_deletes: &[u64], at: Csn) -> Option<Csn> {
        range_deletes.iter().copied().filter(|csn| *csn <= at.0).max().map(Csn)
    }

    #[test]
    fn the_newest_at_the_horizon_stays() {
        let versions = [stamped(9, 0, 0), stamped(5, 0, 0), stamped(2, 0, 0)];
        assert_eq!(pruned(&versions, 10, &[], &[]), [9]);
        assert_eq!(pruned(&versions, 8, &[], &[]), [9, 5]);
        assert_eq!(pruned(&versions, 10, &[3], &[]), [9, 2]);
        assert_eq!(pruned(&versions, 10, &[5, 8], &[]), [9, 5]);
    }

    #[test]
    fn a_tombstone_goes_alone_and_when_old_enough() {
        let versions = [stamped(9, VersionFlags::TOMBSTONE, 0), stamped(5, 0, 0)];
        assert_eq!(pruned(&versions, 10, &[], &[]), [0u64; 0]);
        assert_eq!(pruned(&versions, 10, &[6], &[]), [9, 5]);
        assert_eq!(pruned(&versions[..1], 10, &[6], &[]), [9]);
        assert_eq!(pruned(&versions[..1], 8, &[], &[]), [9]);
    }

    #[test]
    fn an_expired_version_is_a_tombstone() {
        let versions = [stamped(9, VersionFlags::EXPIRES, 100), stamped(5, 0, 0)];
        assert_eq!(pruned(&versions, 10, &[], &[]), [0u64; 0]);
        assert_eq!(pruned(&versions, 10, &[7], &[]), [9, 5]);
        assert_eq!(pruned(&[stamped(9, VersionFlags::EXPIRES, 101)], 10, &[], &[]), [9]);
    }

    #[test]
    fn a_range_delete_hides_what_is_older_and_not_what_is_equal() {
        let versions = [stamped(5, 0, 0), stamped(3, 0, 0)];
        assert_eq!(pruned(&versions, 10, &[], &[6]), [0u64; 0]);
        assert_eq!(pruned(&versions, 10, &[], &[5]), [5]);
        assert_eq!(pruned(&versions, 10, &[5], &[6]), [5]);
        assert_eq!(pruned(&versions, 5, &[], &[6]), [5]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn no_reader_can_tell(
            versions in btree_map(1u64..30, (any::<bool>(), prop_oneof![Just(0u64), 90u64..110]), 0..8),
            snapshots in btree_set(0u64..30, 0..5),
            range_deletes in vec(1u64..30, 0..4),
            horizon in 0u64..32,
        ) {
            let versions: Vec<Stamped<'static>> = versions.iter().rev().map(|(csn, (dead, expires))| {
                let flags = if *dead { VersionFlags::TOMBSTONE } else { 0 };
                let expiry = if *expires != 0 { VersionFlags::EXPIRES } else { 0 };
                stamped(*csn, flags | expiry, *expires)
            }).collect();
            let snapshots: Vec<u64> = snapshots.into_iter().collect();
            let kept = pruned(&versions, horizon, &snapshots, &range_deletes);
            let kept: Vec<Stamped<'static>> =
                versions.iter().copied().filter(|version| kept.contains(&version.csn.0)).collect();
            for reader in snapshots.iter().copied().chain(horizon..40) {
                prop_assert_eq!(
                    seen(&versions, &range_deletes, Csn(reader), 100),
                    seen(&kept, &range_deletes, Csn(reader), 100),
                    "reader at {}", reader
                );
            }
            // A transaction older than the newest version must find the conflict, in a version or in a range tombstone.
            if let (Some(newest), Some(oldest)) = (versions.first(), snapshots.first()) {
                let conflict = |of: &[Stamped<'_>]| {
                    let newest = of.first().map_or(0, |version| version.csn.0);
                    newest.max(covering(&range_deletes, Csn::MAX).unwrap_or_default().0) > *oldest
                };
                if newest.csn.0 > *oldest {
                    prop_assert!(conflict(&kept));
                }
            }
            // A single operation reads the newest version that is left: that of all, or none.
            prop_assert!(kept.first().is_none_or(|left| left.csn == versions[0].csn));
            // Pruning is complete: a second pass removes nothing.
            let again = pruned(&kept, horizon, &snapshots, &range_deletes);
            prop_assert_eq!(again.len(), kept.len());
        }
    }
}

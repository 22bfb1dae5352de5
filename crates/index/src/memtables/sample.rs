//! Sums over the keys of a table's memtables, from a sample of its nodes.

use fulgurite_types::{Csn, TableId, hash_key};

use super::Memtables;
use crate::version::VersionRef;

impl Memtables {
    /// About the sum of `count` over all keys, each with its newest version at or below `at`. A key for which `count`
    /// is `None` is unknown and counts as the mean of the others. Of a memtable with more than `nodes_max` nodes it
    /// samples between a quarter of `nodes_max` and `nodes_max`: the nodes of one level of the skip list, which is as
    /// good as drawing them at random. A key has one newest version, so it counts once, however many versions it has.
    pub(crate) fn sum_of_keys(
        &self,
        table: TableId,
        at: Csn,
        nodes_max: u64,
        count: impl Fn(&[u8], VersionRef<'_>) -> Option<i64>,
    ) -> f64 {
        let list = self.list.keep();
        let mut sum = 0.0;
        for memtable in list.newest_first() {
            memtable.order();
            let entries = memtable.entries();
            // Each level has a quarter of the nodes of the one below.
            let mut level = 0;
            while entries >> (2 * level) > nodes_max {
                level += 1;
            }
            let (mut nodes, mut known, mut known_sum) = (0u64, 0u64, 0i64);
            for node in memtable.list().level(level) {
                nodes += 1;
                let newest = list.find(node.key(), hash_key(table, node.key()), at);
                let counted = match newest {
                    Some(newest) if newest.csn() == node.csn() => count(node.key(), node.version_ref()),
                    _ => Some(0),
                };
                if let Some(counted) = counted {
                    known += 1;
                    known_sum += counted;
                }
            }
            let all = if level == 0 { nodes } else { entries };
            if known > 0 {
                sum += known_sum as f64 / known as f64 * all as f64;
            }
        }
        sum
    }
}

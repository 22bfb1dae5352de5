//! The block `memory` of `fulgurite stat`: the budget, what takes of it, and what it cost to stay within it.

use fulgurite::{MemoryStats, MemoryWaits, NodeLoads};
use serde_json::{Value, json};

use crate::text::{count, number, size};

pub(super) fn as_json(memory: &MemoryStats) -> Value {
    let NodeLoads { reads, scans, merges, validation, maintenance, .. } = memory.node_loads;
    let waits = memory.waits;
    json!({
        "budget_bytes": memory.budget_bytes,
        "total_bytes": memory.total_bytes(),
        "node_bytes": memory.node_bytes,
        "value_bytes": memory.value_bytes,
        "lent_bytes": memory.lent_bytes,
        "slot_bytes": memory.slot_bytes,
        "memtable_bytes": memory.memtable_bytes,
        "table_bytes": memory.table_bytes,
        "log_buffer_bytes": memory.log_buffer_bytes,
        "transaction_bytes": memory.transaction_bytes,
        "tombstone_bytes": memory.tombstone_bytes,
        "ticket_bytes": memory.ticket_bytes,
        "account_bytes": memory.account_bytes,
        "collection_bytes": memory.collection_bytes,
        "program_bytes": memory.program_bytes,
        "resident_bytes": memory.resident_bytes,
        "freed_bytes": memory.freed_bytes,
        "value_hits": memory.value_hits,
        "value_misses": memory.value_misses,
        "evicted_nodes": memory.evicted_nodes,
        "evicted_values": memory.evicted_values,
        "evicted_bytes": memory.evicted_bytes,
        "leaves_written_to_evict": memory.leaves_written_to_evict,
        "bytes_written_to_evict": memory.bytes_written_to_evict,
        "node_loads": {
            "reads": reads,
            "scans": scans,
            "merges": merges,
            "validation": validation,
            "maintenance": maintenance,
        },
        "waits": {
            "reads": waits.reads,
            "merges": waits.merges,
            "total_ns": waits.total_ns,
            "max_ns": waits.max_ns,
        },
    })
}

/// Gives `row` the name, the value and the note of each row.
pub(super) fn rows(memory: &MemoryStats, row: &mut impl FnMut(&str, String, &str)) {
    row("memory", size(memory.total_bytes()), &format!("of a budget of {}", size(memory.budget_bytes)));
    row("  nodes", size(memory.node_bytes), "of trees: leaves with their values, and inner nodes");
    row("  values", size(memory.value_bytes), "that are not in leaves");
    row("  lent", size(memory.lent_bytes), "of these two: no tree and no cache has them any more");
    row("  slots", size(memory.slot_bytes), "where the records of nodes are");
    row("  memtables", size(memory.memtable_bytes), "");
    row("  tables", size(memory.table_bytes), "their state, which nothing gives back");
    row("  log buffers", size(memory.log_buffer_bytes), "");
    row("  transactions", size(memory.transaction_bytes), "open ones");
    row("  tombstones", size(memory.tombstone_bytes), "of ranges that were deleted");
    row("  tickets", size(memory.ticket_bytes), "of commits that are not complete");
    row("  accounts", size(memory.account_bytes), "of the live bytes of segments");
    row("  collection", size(memory.collection_bytes), "a segment out of which live bytes are moved");
    row("  program", size(memory.program_bytes), "of the program itself: a server's connections");
    row(
        "resident",
        size(memory.resident_bytes),
        &format!("{} of it were freed, and are in holes", size(memory.freed_bytes)),
    );
    let (nodes, values) = (count(memory.evicted_nodes, "node"), count(memory.evicted_values, "value"));
    let written = count(memory.leaves_written_to_evict, "dirty leaf");
    row("evicted", size(memory.evicted_bytes), &format!("{nodes} and {values}; {written} written for that"));
    let NodeLoads { reads, scans, merges, validation, maintenance, .. } = memory.node_loads;
    let by_cause = [
        ("reads of a key", reads),
        ("scans", scans),
        ("merges", merges),
        ("commits", validation),
        ("maintenance", maintenance),
    ];
    row("loaded nodes", number(memory.node_loads.total()), &list(&by_cause));
    let looks = memory.value_hits + memory.value_misses;
    let (rate, note) = match looks {
        0 => ("n/a".into(), "no value that is not in a leaf was read".into()),
        looks => (
            format!("{} %", 100 * memory.value_hits / looks),
            format!("of {} that are not in leaves", count(looks, "read value")),
        ),
    };
    row("values in memory", rate, &note);
    row("waits for memory", number(memory.waits.count()), &waits_note(&memory.waits));
}

/// The causes that have a count: `for scans 3, merges 1`.
fn list(by_cause: &[(&str, u64)]) -> String {
    let with_count = by_cause.iter().filter(|(_, times)| *times > 0);
    let causes: Vec<String> =
        with_count.map(|(cause, times)| format!("{cause} {}", number(*times))).collect();
    if causes.is_empty() { String::new() } else { format!("for {}", causes.join(", ")) }
}

fn waits_note(waits: &MemoryWaits) -> String {
    if waits.count() == 0 {
        return String::new();
    }
    let ms = |ns: u64| number(ns.div_ceil(1_000_000));
    let causes = [("reads", waits.reads), ("merges", waits.merges)];
    let (total, longest) = (ms(waits.total_ns), ms(waits.max_ns));
    format!("{}: {total} ms in all, the longest {longest} ms", list(&causes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_text(memory: &MemoryStats) -> Vec<String> {
        let mut lines = Vec::new();
        rows(memory, &mut |name, value, note| lines.push(format!("{name}: {value} {note}")));
        lines
    }

    #[test]
    fn counts_are_listed_by_cause_and_rates_have_their_base() {
        let mut memory = MemoryStats::default();
        let lines = as_text(&memory);
        assert!(lines.contains(&"loaded nodes: 0 ".into()), "{lines:?}");
        assert!(lines.contains(&"values in memory: n/a no value that is not in a leaf was read".into()));
        (memory.node_loads.scans, memory.node_loads.merges) = (1200, 1);
        (memory.value_hits, memory.value_misses) = (3, 1);
        (memory.evicted_nodes, memory.evicted_bytes) = (2, 8192);
        memory.leaves_written_to_evict = 2;
        (memory.waits.merges, memory.waits.total_ns, memory.waits.max_ns) = (2, 30_000_000, 19_500_000);
        let lines = as_text(&memory);
        for line in [
            "evicted: 8.0 KiB 2 nodes and 0 values; 2 dirty leaves written for that",
            "loaded nodes: 1,201 for scans 1,200, merges 1",
            "values in memory: 75 % of 4 read values that are not in leaves",
            "waits for memory: 2 for merges 2: 30 ms in all, the longest 20 ms",
        ] {
            assert!(lines.contains(&line.into()), "{line}: {lines:?}");
        }
    }
}

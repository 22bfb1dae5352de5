//! The tunables of a tree, and the rule that chooses between a full record and a leaf delta record.

/// The tunables of a [`super::BTree`]. None of them changes the result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BTreeOptions {
    /// Target size of a leaf's body in bytes. Larger leaves make scans and merges of dense batches cheaper, smaller
    /// ones make random writes cheaper. A leaf exceeds it only for the versions of a single key.
    pub leaf_bytes: usize,
    /// Target size of an inner node's body in bytes.
    pub inner_bytes: usize,
    /// When a changed leaf is written as a delta record.
    pub delta_rule: DeltaRule,
    /// How many delta records of one leaf are written in a row before a full record is, at most. Each holds all changes
    /// since the full record, so a load reads at most two records. 0: no delta records.
    pub max_deltas: u8,
}

impl Default for BTreeOptions {
    fn default() -> BTreeOptions {
        BTreeOptions {
            leaf_bytes: 8 * 1024,
            inner_bytes: 8 * 1024,
            delta_rule: DeltaRule::LeastWritten { share: 2 },
            max_deltas: 200,
        }
    }
}

impl BTreeOptions {
    /// Reports every invalid setting.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut violations = Vec::new();
        for (name, value) in [("leaf_bytes", self.leaf_bytes), ("inner_bytes", self.inner_bytes)] {
            if !(NODE_BYTES_MIN..=NODE_BYTES_MAX).contains(&value) {
                violations
                    .push(format!("{name} is {value}, it must be {NODE_BYTES_MIN} to {NODE_BYTES_MAX}"));
            }
        }
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

const NODE_BYTES_MIN: usize = 128;
const NODE_BYTES_MAX: usize = 1024 * 1024;

/// When a changed leaf is written as a delta record instead of a full record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaRule {
    /// Always full records.
    Never,
    /// A delta record if it is smaller than the leaf divided by `share`.
    ByteShare {
        /// The divisor.
        share: u32,
    },
    /// A delta record if it is no longer than the average of the records that were written of the leaf since its full one,
    /// that included: then another one makes the average smaller. For a row that changes again and again that goes on,
    /// where each record holds a row more it ends at twice as many bytes of delta records as of the full one. And it is smaller
    /// than the leaf divided by `share`, because the full record stays, too.
    LeastWritten {
        /// The divisor.
        share: u32,
    },
    /// The I/O time estimate of FlashTKV (Table II): writing the delta record and reading two records back must be
    /// cheaper than writing the leaf and reading one.
    FlashTkv {
        /// Bytes of a flash page.
        page_bytes: u32,
        /// Time to write a page sequentially, in nanoseconds.
        page_write_ns: u32,
        /// Time to read a page at random, in nanoseconds.
        page_read_ns: u32,
    },
}

/// The input of a [`DeltaRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Bytes of the whole leaf's body.
    pub leaf_bytes: u64,
    /// Entries of the leaf.
    pub leaf_entries: u64,
    /// Bytes of the delta record's body.
    pub delta_bytes: u64,
    /// Entries of the delta record.
    pub delta_entries: u64,
    /// How many delta records were written since the full record.
    pub deltas: u64,
    /// Their bytes.
    pub deltas_bytes: u64,
}

impl DeltaShape {
    /// Where room is scarce a delta record is smaller than its leaf divided by this, whatever the rule: the
    /// full record stays, too.
    const SCARCE_SHARE: u64 = 4;

    /// Whether a delta record is written although room is scarce.
    pub(crate) fn fits_scarce_room(&self) -> bool {
        Self::fits(self.delta_bytes, self.leaf_bytes)
    }

    /// The same for bodies of so many bytes.
    pub(crate) fn fits(delta_bytes: u64, leaf_bytes: u64) -> bool {
        delta_bytes.saturating_mul(Self::SCARCE_SHARE) < leaf_bytes
    }
}

impl DeltaRule {
    /// Whether to write the leaf as a delta record.
    pub fn prefers_delta(&self, shape: &DeltaShape) -> bool {
        match *self {
            DeltaRule::Never => false,
            DeltaRule::ByteShare { share } => {
                u128::from(shape.delta_bytes) * u128::from(share) < u128::from(shape.leaf_bytes)
            }
            DeltaRule::LeastWritten { share } => {
                let records = u128::from(shape.deltas) + 1;
                let bytes = u128::from(shape.leaf_bytes) + u128::from(shape.deltas_bytes);
                DeltaRule::ByteShare { share }.prefers_delta(shape)
                    && u128::from(shape.delta_bytes) * records < bytes
            }
            DeltaRule::FlashTkv { page_bytes, page_write_ns, page_read_ns } => {
                // Both sides are multiplied by pages x entries, which avoids division:
                // (n_dirty / n) W + 2 R < W + R, with W = S_leaf / S_page x T_write.
                let whole = u128::from(shape.leaf_bytes) * u128::from(page_write_ns);
                let entries = u128::from(shape.leaf_entries);
                let extra_read = u128::from(page_read_ns) * u128::from(page_bytes) * entries;
                u128::from(shape.delta_entries) * whole + extra_read < entries * whole
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DeltaShape = DeltaShape {
        leaf_bytes: 8192,
        leaf_entries: 80,
        delta_bytes: 1000,
        delta_entries: 10,
        deltas: 0,
        deltas_bytes: 0,
    };

    const RULE: DeltaRule = DeltaRule::LeastWritten { share: 2 };

    /// How many delta records are written in a row, of which each is `longer` than the one before.
    fn deltas_in_a_row(first_bytes: u64, longer: u64) -> u64 {
        let mut shape = DeltaShape { delta_bytes: first_bytes, ..SHAPE };
        while RULE.prefers_delta(&shape) && shape.deltas < 10_000 {
            shape.deltas += 1;
            shape.deltas_bytes += shape.delta_bytes;
            shape.delta_bytes += longer;
        }
        shape.deltas
    }

    /// The bytes of a leaf's records, from a full one to the last before the next, for each of them.
    fn average(first_bytes: u64, longer: u64, deltas: u64) -> f64 {
        let bytes = SHAPE.leaf_bytes + (0..deltas).map(|n| first_bytes + n * longer).sum::<u64>();
        bytes as f64 / (deltas + 1) as f64
    }

    #[test]
    fn least_written_writes_the_fewest_bytes() {
        for (first, longer) in [(150, 140), (300, 300), (1500, 50), (100, 1), (2000, 2000)] {
            let deltas = deltas_in_a_row(first, longer);
            let best = (0..2000).map(|count| average(first, longer, count)).min_by(f64::total_cmp).unwrap();
            let own = average(first, longer, deltas);
            assert!(own <= best * 1.01, "{first} + {longer}: {deltas} deltas, {own} bytes each, not {best}");
        }
        assert_eq!(deltas_in_a_row(250, 0), 10_000, "a row that changes again and again");
        assert_eq!(deltas_in_a_row(4096, 0), 0, "half of a leaf");
    }

    #[test]
    fn byte_share_compares_sizes() {
        let rule = DeltaRule::ByteShare { share: 4 };
        assert!(rule.prefers_delta(&SHAPE));
        assert!(rule.prefers_delta(&DeltaShape { delta_bytes: 2047, ..SHAPE }));
        assert!(!rule.prefers_delta(&DeltaShape { delta_bytes: 2048, ..SHAPE }));
        assert!(!DeltaRule::Never.prefers_delta(&SHAPE));
    }

    #[test]
    fn flashtkv_weighs_the_second_read_against_the_saved_write() {
        let rule = |page_read_ns| DeltaRule::FlashTkv { page_bytes: 4096, page_write_ns: 1000, page_read_ns };
        // The whole leaf costs 2 x 1000 ns, an eighth of it 250 ns: a second read pays below 1750 ns.
        assert!(rule(1749).prefers_delta(&SHAPE));
        assert!(!rule(1750).prefers_delta(&SHAPE));
        assert!(!rule(0).prefers_delta(&DeltaShape { delta_entries: 80, ..SHAPE }));
    }

    #[test]
    fn validation_reports_every_violation() {
        assert!(BTreeOptions::default().validate().is_ok());
        let bad = BTreeOptions { leaf_bytes: 1, inner_bytes: usize::MAX, ..BTreeOptions::default() };
        assert_eq!(bad.validate().unwrap_err().len(), 2);
    }
}

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
    /// How many delta records of one leaf are written in a row before a full record is. Each holds all changes since
    /// the full record, so a load reads at most two records. 0: no delta records.
    pub max_deltas: u8,
}

impl Default for BTreeOptions {
    fn default() -> BTreeOptions {
        BTreeOptions {
            leaf_bytes: 8 * 1024,
            inner_bytes: 8 * 1024,
            delta_rule: DeltaRule::ByteShare { share: 2 },
            max_deltas: 8,
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

    const SHAPE: DeltaShape =
        DeltaShape { leaf_bytes: 8192, leaf_entries: 80, delta_bytes: 1000, delta_entries: 10 };

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

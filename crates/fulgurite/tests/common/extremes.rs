//! Legal options at their limits.

use std::time::Duration;

use fulgurite::{FlushScheme, Options, ResearchOptions, Waiting};

use super::rng::Rng;

/// Every option at one of its limits, drawn anew for each seed; `background` stays off. `log_buffer_bytes` stays far
/// below its limit, because it is allocated.
pub fn options(seed: u64) -> Options {
    let mut rng = Rng::new(seed);
    let mut one_of = |from: &[u64]| from[rng.below(from.len() as u64) as usize];
    let leaf_bytes = one_of(&[512, 513, 8 << 10, 256 << 10]) as usize;
    let inline_bytes_max = one_of(&[0, 1, 6, 7, 256, 32 << 10]) as usize;
    Options {
        leaf_bytes,
        inline_bytes_max: inline_bytes_max.min(leaf_bytes / 2),
        memtable_bytes_max: Some(one_of(&[64 << 10, 64 << 30]) as usize),
        checkpoint_log_bytes: one_of(&[1 << 20, 64 << 30]),
        log_buffer_bytes: one_of(&[1 << 20, 16 << 20]) as usize,
        transaction_bytes_max: one_of(&[2 << 20, 64 << 30]) as usize,
        conflict_retries_max: one_of(&[0, u32::MAX.into()]) as u32,
        direct_io: one_of(&[0, 1]) == 1,
        close_timeout: [Duration::ZERO, Duration::MAX][one_of(&[0, 1]) as usize],
        background: false,
        research: ResearchOptions {
            mark_idle: Duration::from_secs(one_of(&[0, 3600])),
            flush_scheme: [FlushScheme::Combined, FlushScheme::Aggregated, FlushScheme::OwnLsn]
                [one_of(&[0, 1, 2]) as usize],
            waiting: [Waiting::Block, Waiting::SpinThenBlock][one_of(&[0, 1]) as usize],
            evict_everything: one_of(&[0, 1]) == 1,
            collect: one_of(&[0, 1]) == 1,
        },
        ..Options::default()
    }
}

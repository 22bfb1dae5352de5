//! Decides which unsynced changes survive: one procedure for sectors, lengths and names.

use super::rng::Rng;

/// The number of a completed change, in the order of completion over the whole disk.
pub(super) type Seq = u64;

/// How a power cut treats changes that no sync covered. All modes are possible on a real disk. Mixing the simple ones
/// with the scattered one finds more bugs than independent coin flips, which almost never lose or keep everything.
#[derive(Clone, Copy, Debug)]
enum Mode {
    LoseAll,
    KeepAll,
    /// Everything up to a moment was written back.
    Before(Seq),
    /// Each item is kept in this many of 256 cases.
    Scatter(u64),
}

/// A seeded sequence of decisions.
#[derive(Debug)]
pub(super) struct Fate {
    rng: Rng,
    mode: Mode,
    /// Whether a mode is drawn for each file.
    per_file: bool,
    now: Seq,
}

impl Fate {
    /// Draws a mode. `now` is the number of the latest change.
    pub(super) fn draw(mut rng: Rng, now: Seq) -> Fate {
        let per_file = rng.chance(64);
        let mode = draw_mode(&mut rng, now);
        Fate { rng, mode, per_file, now }
    }

    /// Loses everything.
    pub(super) fn lose_all() -> Fate {
        Fate { rng: Rng::new(0), mode: Mode::LoseAll, per_file: false, now: 0 }
    }

    /// Called before the decisions about a file.
    pub(super) fn next_file(&mut self) {
        if self.per_file {
            self.mode = draw_mode(&mut self.rng, self.now);
        }
    }

    /// Which of the successive versions with these numbers is on the medium: 0 for the durable one, `i` for the i-th of
    /// the list.
    pub(super) fn pick(&mut self, versions: impl ExactSizeIterator<Item = Seq>) -> usize {
        let count = versions.len();
        match self.mode {
            Mode::LoseAll => 0,
            Mode::KeepAll => count,
            Mode::Before(moment) => versions.take_while(|seq| *seq <= moment).count(),
            Mode::Scatter(of_256) if count > 0 && self.rng.chance(of_256) => {
                1 + self.rng.below(count as u64) as usize
            }
            Mode::Scatter(_) => 0,
        }
    }

    /// Whether the change with this number is on the medium.
    pub(super) fn keeps(&mut self, seq: Seq) -> bool {
        self.pick(std::iter::once(seq)) == 1
    }
}

fn draw_mode(rng: &mut Rng, now: Seq) -> Mode {
    match rng.below(8) {
        0 => Mode::LoseAll,
        1 => Mode::KeepAll,
        2 | 3 => {
            let window = 1 << rng.below(13);
            Mode::Before(now.saturating_sub(rng.below(window)))
        }
        4 => Mode::Scatter(24),
        5 => Mode::Scatter(232),
        _ => Mode::Scatter(128),
    }
}

/// Which of the `count` sectors of an incomplete write are on the medium: one decision for each.
pub(super) fn torn(rng: &mut Rng, count: usize) -> Vec<bool> {
    let edge = rng.below(count as u64 + 1) as usize;
    match rng.below(8) {
        0 => vec![false; count],
        1 => vec![true; count],
        2 => (0..count).map(|i| i < edge).collect(),
        3 => (0..count).map(|i| i >= edge).collect(),
        4 => (0..count).map(|i| i != edge).collect(),
        _ => (0..count).map(|_| rng.chance(128)).collect(),
    }
}

//! Which segments to clean: whose live nodes and values to write again, so that the segments are freed.
//!
//! A load that writes leaves in random order leaves a few live ones in every segment, and a segment is freed only when
//! nothing in it is live. Where the room is short a checkpoint moves the live nodes out of the segments that have the
//! fewest: as the cleaner of a log-structured file system does (Rosenblum and Ousterhout, 1992), with the greedy choice.

use std::collections::BTreeSet;

/// A segment that holds live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sparse {
    pub number: u32,
    pub bytes: u64,
    pub live: u64,
}

/// Of a segment that is fuller than this, in sixteenths, cleaning costs too much for what it gains.
const FULL_SIXTEENTHS: u64 = 15;

/// Nodes leave a segment of which less than this is live, in tenths: each byte that is written for that gives at least one and
/// a half bytes back, and most of it is written for leaves that are dirty anyway. Of fuller segments more leaves would be
/// clean, or only their changes would have been written.
const LEFT_TENTHS: u64 = 4;

/// How many bytes have to be free for the commits that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub puts: u64,
    pub deletes: u64,
}

impl Sparse {
    fn gain(&self) -> u64 {
        self.bytes - self.live.min(self.bytes)
    }

    fn is_worth_it(&self) -> bool {
        self.live < self.bytes / 16 * FULL_SIXTEENTHS
    }

    fn is_cheap(&self) -> bool {
        self.live <= self.bytes / 8 * 7
    }

    /// Whether nodes are to leave it.
    fn is_to_be_left(&self) -> bool {
        self.live < self.bytes / 10 * LEFT_TENTHS
    }
}

/// Chooses the segments with the fewest live bytes for their length, as long as those fit into `allowance`: until half of
/// what nothing needs is free, and what waiting commits want; for puts only as long as no segment is fuller than seven eighths. `free` is
/// free now, or after the checkpoint that is being written.
pub(crate) fn choose(mut segments: Vec<Sparse>, allowance: u64, free: u64, wanted: Wanted) -> Vec<u32> {
    let unneeded = free + segments.iter().map(Sparse::gain).sum::<u64>();
    segments.retain(Sparse::is_worth_it);
    segments.sort_by(|a, b| (a.live * b.bytes).cmp(&(b.live * a.bytes)).then(a.number.cmp(&b.number)));
    let (mut moved, mut gained) = (0, 0);
    let mut chosen = Vec::new();
    for segment in segments {
        let puts = if segment.is_cheap() { wanted.puts } else { 0 };
        let enough = (unneeded / 2).max(wanted.deletes).max(puts);
        if free + gained >= enough || moved + segment.live > allowance {
            break;
        }
        moved += segment.live;
        gained += segment.gain();
        chosen.push(segment.number);
    }
    chosen
}

/// The segments that nodes are to leave while there is plenty of room.
pub(crate) fn to_be_left(segments: &[Sparse]) -> BTreeSet<u32> {
    segments.iter().filter(|segment| segment.is_to_be_left()).map(|segment| segment.number).collect()
}

/// How much may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    /// The bytes of the segments that hold live ones, in percent of these.
    pub percent: u64,
    /// Beside that: in a small database a few segments are never full.
    pub slack: u64,
}

/// The segments whose live bytes are to be moved.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    pub chosen: Vec<u32>,
    /// Whether the allowance was too little for the goal.
    pub is_too_little: bool,
}

/// Of a segment that is fuller than this, in percent, moving costs too much for what it gains, unless the goal is fuller ones.
const VICTIM_PERCENT: u64 = 90;

/// Chooses victims until the goal is reached, or more than `allowance` bytes would be moved, but one of at most `room` bytes in any
/// case: by benefit over cost, as a log-structured
/// file system does (Rosenblum and Ousterhout, 1992). The bytes that become free, and how long they have been dead already, which the age
/// of the segment stands for, over those that are read and written for it. A young segment that is half dead is soon dead by itself, and an
/// old one that is half live stays so. Of the age the square root counts: loads that overwrite all keys alike are best served by
/// the emptiest segments.
pub(crate) fn victims(mut segments: Vec<Sparse>, goal: &Goal, allowance: u64, room: u64) -> Victims {
    let sum = |of: fn(&Sparse) -> u64| segments.iter().map(of).sum::<u64>();
    let (bytes, live) = (sum(|segment| segment.bytes), sum(|segment| segment.live));
    let allowed = (u128::from(live) * u128::from(goal.percent) / 100) as u64 + goal.slack;
    let mut excess = bytes.saturating_sub(allowed);
    if excess == 0 {
        return Victims::default();
    }
    let newest = segments.iter().map(|segment| segment.number).max().unwrap_or(0);
    let score = |segment: &Sparse| {
        let age = u64::from(newest - segment.number) + 1;
        segment.gain() as f64 * (age as f64).sqrt() / (segment.bytes + segment.live) as f64
    };
    let fullest = (10_000 / goal.percent).max(VICTIM_PERCENT);
    segments.retain(|segment| segment.live < segment.bytes / 100 * fullest);
    segments.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let mut moved = 0;
    let mut victims = Victims::default();
    for segment in segments {
        if excess == 0 {
            break;
        }
        let is_allowed = moved + segment.live <= allowance || victims.chosen.is_empty();
        victims.is_too_little |= !is_allowed;
        if is_allowed && moved + segment.live <= room {
            moved += segment.live;
            excess = excess.saturating_sub(segment.gain());
            victims.chosen.push(segment.number);
        }
    }
    victims.is_too_little &= excess > 0;
    victims
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Wanted = Wanted { puts: 0, deletes: 0 };

    fn sparse(number: u32, bytes: u64, live: u64) -> Sparse {
        Sparse { number, bytes, live }
    }

    #[test]
    fn the_emptiest_segments_are_chosen_until_half_of_what_nothing_needs_is_free() {
        let segments =
            vec![sparse(1, 1600, 800), sparse(2, 1600, 1590), sparse(3, 3200, 400), sparse(4, 1600, 300)];
        assert_eq!(choose(segments.clone(), 10_000, 0, NONE), [3]);
        assert_eq!(choose(segments.clone(), 10_000, 10_000, NONE), []);
        let deletes = Wanted { puts: 0, deletes: 9000 };
        assert_eq!(choose(segments.clone(), 10_000, 0, deletes), [3, 4, 1]);
        let puts = Wanted { puts: 9000, deletes: 0 };
        assert_eq!(choose(segments.clone(), 10_000, 0, puts), [3, 4, 1]);
        let fuller = vec![sparse(1, 1600, 1300), sparse(2, 1600, 1450)];
        assert_eq!(choose(fuller.clone(), 10_000, 0, puts), [1]);
        assert_eq!(choose(fuller, 10_000, 0, deletes), [1, 2]);
        let half = vec![sparse(1, 1600, 800), sparse(4, 1600, 900), sparse(3, 1600, 700)];
        assert_eq!(choose(half, 10_000, 0, NONE), [3, 1]);
        assert_eq!(choose(segments, 399, 0, NONE), [], "what is moved has to fit");
    }

    #[test]
    fn nodes_leave_segments_of_which_less_than_two_fifths_is_live() {
        let segments = [sparse(1, 1600, 639), sparse(2, 1600, 640), sparse(3, 3200, 640), sparse(4, 1600, 1)];
        assert_eq!(to_be_left(&segments), BTreeSet::from([1, 3, 4]));
    }

    #[test]
    fn full_segments_are_left_alone() {
        assert_eq!(choose(vec![sparse(1, 1600, 1550), sparse(2, 1600, 1500)], 10_000, 0, NONE), []);
        assert_eq!(choose(vec![sparse(1, 1600, 1550), sparse(2, 1600, 1499)], 10_000, 0, NONE), [2]);
    }

    #[test]
    fn victims_are_chosen_until_the_goal_is_reached() {
        let goal = Goal { percent: 125, slack: 0 };
        let chosen = |segments: &[(u32, u64)], goal: &Goal, allowance| {
            let segments = segments.iter().map(|(number, live)| sparse(*number, 1000, *live)).collect();
            victims(segments, goal, allowance, 10_000.min(10 * allowance)).chosen
        };
        // 3,000 bytes, of which 2,000 are live.
        assert_eq!(chosen(&[(1, 900), (2, 400), (3, 700)], &goal, 10_000), [2]);
        assert_eq!(chosen(&[(1, 900), (2, 400), (3, 700)], &Goal { slack: 500, ..goal }, 10_000), []);
        assert_eq!(chosen(&[(1, 900), (2, 400), (3, 700)], &goal, 399), [2]);
        assert_eq!(chosen(&[(1, 900), (2, 400), (3, 700)], &goal, 39), []);
        assert_eq!(chosen(&[(1, 899), (2, 850), (3, 850)], &goal, 10_000), []);
        assert_eq!(chosen(&[(1, 500), (2, 500), (3, 500)], &goal, 10_000), [1, 2, 3]);
        assert_eq!(chosen(&[(1, 500), (2, 500), (3, 500)], &goal, 1_000), [1, 2]);
        assert_eq!(chosen(&[], &goal, 1_000), []);
    }

    #[test]
    fn old_segments_are_chosen_before_young_ones() {
        let chosen = |number, live| {
            let old = sparse(number, 1000, live);
            let segments = vec![old, sparse(99, 1000, 500), sparse(100, 1000, 1000)];
            victims(segments, &Goal { percent: 125, slack: 0 }, 10_000, 10_000).chosen[0]
        };
        assert_eq!([chosen(1, 500), chosen(1, 800), chosen(80, 800), chosen(98, 800)], [1, 1, 80, 99]);
    }
}

use std::cell::Cell;

use fulgurite::env::SimEnv;
use fulgurite::{Database, Options};

use super::*;
use crate::model::Model;
use crate::random::Random;
use crate::runner::Runner;

/// A sorted set beside a plain sorted vector.
struct Pair {
    db: Database,
    model: Model,
    zset: Collection,
    members: Vec<(f64, Vec<u8>)>,
    /// Rows of blocks may be those of format 2.
    has_old_rows: bool,
    random: Random,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let env = SimEnv::new(seed);
        let db = Database::open_with(env, "/data", Options::default(), |_| {}).unwrap();
        let model = Model::open(&db, 1, seed).unwrap();
        let zset = Collection { id: 7, count: 0, first: 0 };
        // Its neighbours in the table have rows of all sections.
        let pair =
            Pair { db, model, zset, members: Vec::new(), has_old_rows: false, random: Random::new(seed) };
        for id in [6, 8] {
            let mut other = Collection { id, count: 0, first: 0 };
            let members: Vec<_> = (0..300).map(|n| (f64::from(n), n.to_string())).collect();
            pair.write(|write, _| write.fill(&mut other, &members));
        }
        pair
    }

    fn write<T>(&self, step: impl FnOnce(&mut Write<'_>, &mut Collection) -> Result<T>) -> (Collection, T) {
        let mut zset = self.zset;
        let mut txn = self.db.begin();
        let result =
            step(&mut Write::new(&mut txn, &self.model, Runner::LongWorker, 0, 0), &mut zset).unwrap();
        txn.commit().unwrap();
        (zset, result)
    }

    fn view<T>(&self, read: impl FnOnce(&View<'_>) -> Result<T>) -> T {
        let mut txn = self.db.begin();
        read(&Write::new(&mut txn, &self.model, Runner::LongWorker, 0, 0).view()).unwrap()
    }

    /// Writes the rows of blocks as programs did that knew format 2.
    fn write_old_rows(&mut self) {
        self.has_old_rows = true;
        self.write(|write, zset| {
            let bounds = section_bounds(zset.id, Section::Blocks);
            for (key, value) in write.view().rows(bounds, Order::Forward, usize::MAX)? {
                write.put_row(&key, &value[..8])?;
            }
            Ok(())
        });
    }

    fn score(&mut self) -> f64 {
        match self.random.below(20) {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            2..7 => self.random.below(3) as f64 - 1.0,
            _ => self.random.below(1_000) as f64 / 4.0,
        }
    }

    fn name(&mut self, names: u64) -> Vec<u8> {
        match self.random.below(names) {
            0 => Vec::new(),
            number if number % 20 == 0 => [&[b'x'; 100], number.to_string().as_bytes()].concat(),
            number => number.to_string().into_bytes(),
        }
    }

    fn put(&mut self, names: u64) {
        let (score, name) = (self.score(), self.name(names));
        let found = self.members.iter().position(|(_, other)| *other == name);
        let old = found.map(|index| self.members.remove(index).0);
        self.zset = self.write(|write, zset| write.put_score(zset, &name, old, score)).0;
        let index = self.members.partition_point(|(other, after)| (*other, after) < (score, &name));
        self.members.insert(index, (score, name));
    }

    fn remove(&mut self, names: u64) {
        let name = self.name(names);
        let Some(index) = self.members.iter().position(|(_, other)| *other == name) else { return };
        let (score, _) = self.members.remove(index);
        self.zset = self.write(|write, zset| write.remove_score(zset, &name, score)).0;
    }

    /// Divides the set to the end, in a transaction for each step; other commands may come between them. Returns how many blocks were split.
    fn divide(&mut self, mut between: impl FnMut(&mut Pair)) -> usize {
        let (mut from, mut steps) = (None, 0);
        loop {
            let (zset, next) = self.write(|write, zset| write.divide(zset, from.clone()));
            self.zset = zset;
            if next.is_none() {
                return steps;
            }
            (from, steps) = (next, steps + 1);
            between(self);
        }
    }

    /// Whether a read passes more rows than it should have to.
    fn walks(&self, read: impl FnOnce(&View<'_>) -> Result<u64>) -> bool {
        let has_walked = Cell::new(false);
        self.view(|view| read(&View { has_walked: Some(&has_walked), ..*view }));
        has_walked.get()
    }

    /// Two edges, and between which indices of the vector they are.
    fn edges(&mut self) -> (Span, std::ops::Range<usize>) {
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (score, name): (f64, &'static [u8]) = (self.score(), self.name(5_000).leak());
            let end = match self.random.below(4) {
                0 => (Edge::BeforeScore(score), self.members.partition_point(|(other, _)| *other < score)),
                1 => (Edge::AfterScore(score), self.members.partition_point(|(other, _)| *other <= score)),
                2 => {
                    let before = |(other, after): &(f64, Vec<u8>)| (*other, &after[..]) < (score, name);
                    (Edge::Before(score, name), self.members.partition_point(before))
                }
                _ => {
                    let before = |(other, after): &(f64, Vec<u8>)| (*other, &after[..]) <= (score, name);
                    (Edge::After(score, name), self.members.partition_point(before))
                }
            };
            ends.push(end);
        }
        let span = Span::new(&self.zset, ends[0].0, ends[1].0);
        (span, ends[0].1..ends[1].1.max(ends[0].1))
    }

    /// Checks all of INV-ZSET-1, and what is read.
    fn check(&mut self) {
        let (zset, members) = (self.zset, self.members.clone());
        assert_eq!(zset.count, members.len() as u64);
        let named = |rows: Vec<Value>| -> Vec<(f64, Vec<u8>)> {
            rows.iter()
                .map(|row| split_score_key(row).map(|(score, name)| (score, name.to_vec())).unwrap())
                .collect()
        };
        let all = named(self.view(|view| view.span_rows(&Span::all(&zset), Order::Forward, 0, u64::MAX)));
        assert_eq!(all, members);
        for (score, name) in &members {
            assert_eq!(self.view(|view| view.score(&zset, name)), Some(*score));
        }
        let rows =
            self.view(|view| view.rows(section_bounds(zset.id, Section::Blocks), Order::Forward, usize::MAX));
        let blocks: Vec<Block> = rows.iter().map(|(key, value)| Block::decode(key, value).unwrap()).collect();
        assert_eq!(blocks.len() as i64, zset.first);
        assert!(zset.count > UNDIVIDED_MAX / 2 || blocks.is_empty());
        assert!(blocks.first().is_none_or(|first| first.key == first_block_key(zset.id)));
        assert!(blocks.iter().skip(1).all(|block| block.members > 0));
        let starts: Vec<TableKey> = blocks.iter().map(Block::start).collect();
        for (index, block) in blocks.iter().enumerate() {
            let end = blocks.get(index + 1).map_or(BlockEnd::Last, |next| Block::end_before(&next.key));
            assert!(block.end == end || block.end == BlockEnd::Unknown && self.has_old_rows, "block {index}");
            let rows = members.iter().map(|(score, name)| score_key(zset.id, Section::Scores, *score, name));
            let is_counted =
                |row: &TableKey| *row >= starts[index] && starts.get(index + 1).is_none_or(|end| row < end);
            assert_eq!(rows.filter(is_counted).count() as u64, block.members, "block {index}");
        }
        // Few rows are read for a rank.
        assert!(
            blocks.len() as u64 <= 8 + 8 * zset.count.isqrt(),
            "{} blocks of {}",
            blocks.len(),
            zset.count
        );
        for _ in 0..20 {
            let (span, range) = self.edges();
            assert_eq!(self.view(|view| view.count_span(&zset, &span)), range.len() as u64, "{span:?}");
            let skip = self.random.below(zset.count + 2);
            let take = self.random.below(zset.count + 2);
            let forward = named(self.view(|view| view.ranked_rows(&zset, Order::Forward, skip, take)));
            let expected: Vec<_> = members.iter().skip(skip as usize).take(take as usize).cloned().collect();
            assert_eq!(forward, expected, "{take} from {skip} on");
            let backward = named(self.view(|view| view.ranked_rows(&zset, Order::Backward, skip, take)));
            let expected: Vec<_> =
                members.iter().rev().skip(skip as usize).take(take as usize).cloned().collect();
            assert_eq!(backward, expected, "{take} back from {skip} on");
            if zset.count > 0 {
                let index = self.random.below(zset.count) as usize;
                let (score, name) = &members[index];
                assert_eq!(self.view(|view| view.rank(&zset, *score, name)), index as u64);
            }
        }
    }
}

/// Sets grow and shrink, and are divided now and then; after each stretch blocks, ranks and ranges are those of a sorted vector.
#[test]
fn blocks_count_what_a_sorted_vector_has() {
    let mut splits = 0;
    for seed in 1..=3 {
        let mut pair = Pair::new(seed);
        for (names, puts_of_ten, steps) in [
            (100, 8, 200),
            (3_000, 9, 1_800),
            (3_000, 2, 900),
            (3_000, 9, 600),
            (3_000, 1, 4_000),
            (200, 5, 300),
        ] {
            for step in 0..steps {
                match pair.random.below(10) {
                    roll if roll < puts_of_ten => pair.put(names),
                    _ => pair.remove(names),
                }
                if step % 300 == 299 {
                    pair.check();
                }
                if step % 700 == 400 {
                    splits += pair.divide(|pair| {
                        pair.put(names);
                        pair.remove(names);
                    });
                    pair.check();
                }
                if seed == 3 && step % 500 == 250 {
                    pair.write_old_rows();
                }
            }
            pair.check();
            let (span, range) = pair.edges();
            if range.len() < pair.members.len() {
                let (zset, removed) = pair.write(|write, zset| write.remove_span(zset, &span));
                pair.zset = zset;
                assert_eq!(removed, range.len() as u64);
                pair.members.drain(range);
                pair.check();
            }
        }
    }
    assert!(splits > 30, "blocks were split: {splits}");
}

/// What no command has asked for is not counted; a step of dividing leaves all as it should be, and the last one leaves even blocks.
#[test]
fn a_set_is_divided_in_steps_and_what_has_grown_since_once_more() {
    let mut pair = Pair::new(1);
    let add = |pair: &mut Pair, numbers: std::ops::Range<u32>| {
        for n in numbers {
            let (score, name) = (f64::from(n), format!("m{n}").into_bytes());
            pair.zset = pair.write(|write, zset| write.put_score(zset, &name, None, score)).0;
            pair.members.push((score, name));
        }
    };
    add(&mut pair, 0..2_000);
    assert_eq!(pair.zset.first, 0);
    pair.check();
    let count = |view: &View<'_>, zset: &Collection, to: f64| {
        view.count_span(zset, &Span::new(zset, Edge::BeforeScore(f64::NEG_INFINITY), Edge::BeforeScore(to)))
    };
    let zset = pair.zset;
    assert!(pair.walks(|view| count(view, &zset, 1_000.0)));
    assert!(pair.walks(|view| Ok(view.ranked_rows(&zset, Order::Forward, 1_000, 1)?.len() as u64)));
    assert!(pair.walks(|view| Ok(view.ranked_rows(&zset, Order::Backward, 1_000, 1)?.len() as u64)));
    assert!(!pair.walks(|view| count(view, &zset, 100.0)), "near the end it costs little");
    assert!(!pair.walks(|view| Ok(view.ranked_rows(&zset, Order::Backward, 200, 1)?.len() as u64)));

    let steps = pair.divide(|pair| pair.check());
    assert!((15..40).contains(&steps), "{steps} steps");
    let is_even = |pair: &Pair| {
        let zset = pair.zset;
        (0..zset.count).step_by(97).all(|rank| {
            let (score, name) = &pair.members[rank as usize];
            !pair.walks(|view| view.rank(&zset, *score, name))
                && !pair.walks(|view| Ok(view.ranked_rows(&zset, Order::Forward, rank, 1)?.len() as u64))
                && !pair.walks(|view| Ok(view.ranked_rows(&zset, Order::Backward, rank, 1)?.len() as u64))
        })
    };
    assert!(is_even(&pair));
    let blocks = pair.zset.first;
    add(&mut pair, 2_000..6_000);
    pair.check();
    assert_eq!(pair.zset.first, blocks, "writes count, and split nothing");
    assert!(!is_even(&pair));
    assert!(pair.divide(|_| {}) > 10);
    assert!(is_even(&pair));
    pair.check();
    // From the end, in one call and against the order.
    let zset = pair.zset;
    let rows = pair.view(|view| view.ranked_rows(&zset, Order::Backward, 0, 700));
    pair.zset = pair.write(|write, zset| write.remove_rows(zset, &rows)).0;
    pair.members.truncate(5_300);
    pair.check();
    // One that is stored anew has none again.
    let stored = pair.members.clone();
    pair.zset = Collection { id: 9, count: 0, first: 0 };
    pair.zset = pair.write(|write, zset| write.fill(zset, &stored)).0;
    pair.check();
    assert!(!is_even(&pair));
    pair.divide(|_| {});
    assert!(is_even(&pair));
    pair.check();
}

/// The bytes of `docs/format/redis.md`.
#[test]
fn rows_of_blocks_have_the_bytes_of_the_specification() {
    let key = score_key(7, Section::Blocks, 1.5, b"m");
    let next = Block::end_before(&key);
    for (end, golden) in [
        (BlockEnd::Unknown, &[3, 1, 0, 0, 0, 0, 0, 0][..]),
        (BlockEnd::Last, &[3, 1, 0, 0, 0, 0, 0, 0, 0]),
        (next, &[3, 1, 0, 0, 0, 0, 0, 0, 1, 0xBF, 0xF8, 0, 0, 0, 0, 0, 0, b'm']),
    ] {
        let block = Block { key: key.clone(), members: 259, end };
        assert_eq!(block.encode()[..], *golden);
        assert_eq!(Block::decode(&key, golden).unwrap(), block);
    }
    let long = Block::end_before(&score_key(7, Section::Blocks, 1.5, &[b'm'; 100]));
    assert!(matches!(long, BlockEnd::Next(next) if next.len() == END_BYTES_MAX));
    for bytes in [&[][..], &[0; 7], &[0, 0, 0, 0, 0, 0, 0, 0, 2], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        assert!(Block::decode(&key, bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn edges_are_between_members() {
    let zset = Collection { id: 7, count: 0, first: 0 };
    let longest = [0xFF; NAME_BYTES_MAX];
    let mut longest_a = longest;
    longest_a[NAME_BYTES_MAX - 1] = b'a';
    let longer = [&longest_a[..], b"more"].concat();
    let mut longest_b = longest_a;
    longest_b[NAME_BYTES_MAX - 1] = b'b';
    let edges = [
        Edge::BeforeScore(f64::NEG_INFINITY),
        Edge::AfterScore(f64::NEG_INFINITY),
        Edge::BeforeScore(0.0),
        Edge::After(0.0, b""),
        Edge::Before(0.0, b"a"),
        Edge::After(0.0, b"a"),
        Edge::Before(0.0, &longest_a),
        Edge::After(0.0, &longest_a),
        Edge::After(0.0, &longest_b),
        Edge::AfterScore(0.0),
        Edge::AfterScore(f64::INFINITY),
    ];
    let keys = edges.map(|edge| edge_key(zset.id, edge));
    assert!(keys.iter().all(|key| key.len() <= KEY_BYTES_MAX));
    for (pair, edges) in keys.windows(2).zip(edges.windows(2)) {
        assert!(pair[0] < pair[1], "{edges:?}");
    }
    let row = |name: &[u8]| score_key(zset.id, Section::Scores, 0.0, name);
    assert!(edge_key(7, Edge::After(0.0, &longest)) > row(&longest));
    assert!(edge_key(7, Edge::Before(0.0, &longer)) > row(&longest_a));
    assert!(edge_key(7, Edge::Before(0.0, &longer)) <= row(&longest_b));
    assert_eq!(edge_key(7, Edge::Before(-0.0, b"x")), edge_key(7, Edge::Before(0.0, b"x")));
}

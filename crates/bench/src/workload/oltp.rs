//! `oltp`: several statements a transaction, with a secondary index.

use super::rows::{Random, Sizes, check_rows, fill, write_key};
use super::sealed::missing;
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::Result;
use crate::engine::{Needs, Store, Transaction, Verdict};

const ROWS: usize = 0;
const BY_K: usize = 1;

/// The statements that write in the OLTP test of sysbench, as in the macro-benchmark of Son, Yeom and Han (2017), Fig.
/// 6.
///
/// A row is an id, a number k that is indexed, and text. It is in the table `rows` (key: the id; value: k in eight
/// bytes, then the text) and in the index `by_k` (key: k, then the id; no value). Each transaction picks three rows,
/// all equally likely, and does
///
/// 1. an update of the indexed column: reads the first row, adds one to its k, writes the row, deletes its index entry
///    and writes the new one;
/// 2. an update of a column without an index: reads the second row, writes it with another text;
/// 3. a delete: reads the third row, deletes it and its index entry;
/// 4. an insert: writes the third row again, with another k and another text, and its index entry.
///
/// That is three reads, four puts and deletes in `rows` and four in `by_k`. A transaction that conflicts with another
/// on the same row is retried. There are as many rows and entries afterwards as before.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Oltp {
    /// How long keys and values are: values at least [`Oltp::VALUE_BYTES_MIN`].
    pub sizes: Sizes,
    /// At least one.
    pub rows: u64,
}

impl Oltp {
    /// 20-byte keys and the row of sysbench: k (8 bytes), 120 and 60 bytes of text.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 188 };
    /// The shortest value: k.
    pub const VALUE_BYTES_MIN: usize = K_BYTES;

    fn entry_bytes(&self) -> u64 {
        (self.sizes.key_bytes + K_BYTES) as u64
    }
}

const K_BYTES: usize = 8;

impl Workload for Oltp {
    fn shape(&self) -> Shape {
        let (row_bytes, entry_bytes) = (self.sizes.row_bytes(), self.entry_bytes());
        Shape {
            name: "oltp".into(),
            about: format!("{} rows, {}", self.rows, self.sizes),
            tables: &["rows", "by_k"],
            needs: Needs { transactions: true, ..Needs::default() },
            kinds: &["transaction"],
            loaded_bytes: self.rows * (row_bytes + entry_bytes),
            bytes_per_operation: 3 * row_bytes + 4 * entry_bytes,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut buffers = Buffers::new(self.sizes);
        let row_bytes = self.sizes.row_bytes() + self.entry_bytes();
        fill(store, 0..self.rows, row_bytes, filling, |row, open| {
            let mut random = Random::new(row);
            write_key(&mut buffers.key, row);
            buffers.new_value(&mut random, self.rows);
            open.put(ROWS, &buffers.key, &buffers.value)?;
            open.put(BY_K, buffers.entry(), &[])
        })
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let (rows, mut buffers) = (self.rows, Buffers::new(self.sizes));
        let mut random = Random::new(u64::from(thread) << 32);
        Box::new(move |session| {
            let picked = [(); 3].map(|()| random.below(rows));
            let seed = random.next();
            session.write(|open| statements(open, &mut buffers, picked, seed, rows))?;
            Ok(Step::Done(0))
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        check_rows(store, ROWS, "rows", self.rows)?;
        check_rows(store, BY_K, "by_k", self.rows)
    }
}

struct Buffers {
    /// The id.
    key: Vec<u8>,
    /// k and the text.
    value: Vec<u8>,
    entry: Vec<u8>,
}

impl Buffers {
    fn new(sizes: Sizes) -> Buffers {
        Buffers { key: vec![0; sizes.key_bytes], value: vec![0; sizes.value_bytes], entry: Vec::new() }
    }

    /// The key of the index entry.
    fn entry(&mut self) -> &[u8] {
        self.entry.clear();
        self.entry.extend_from_slice(&self.value[..K_BYTES]);
        self.entry.extend_from_slice(&self.key);
        &self.entry
    }

    fn new_value(&mut self, random: &mut Random, k_bound: u64) {
        self.value[..K_BYTES].copy_from_slice(&random.below(k_bound).to_be_bytes());
        random.fill(&mut self.value[K_BYTES..]);
    }

    fn read(&mut self, open: &mut dyn Transaction, row: u64) -> Result<()> {
        write_key(&mut self.key, row);
        match open.get_for_update(ROWS, &self.key, &mut self.value)? {
            true => Ok(()),
            false => Err(missing(&self.key)),
        }
    }
}

/// The new texts are made from `seed`.
fn statements(
    open: &mut dyn Transaction,
    buffers: &mut Buffers,
    [indexed, plain, replaced]: [u64; 3],
    seed: u64,
    rows: u64,
) -> Result<Verdict> {
    let mut random = Random::new(seed);

    buffers.read(open, indexed)?;
    open.delete(BY_K, buffers.entry())?;
    let k = u64::from_be_bytes(buffers.value[..K_BYTES].try_into().expect("eight bytes"));
    buffers.value[..K_BYTES].copy_from_slice(&(k + 1).to_be_bytes());
    open.put(ROWS, &buffers.key, &buffers.value)?;
    open.put(BY_K, buffers.entry(), &[])?;

    buffers.read(open, plain)?;
    random.fill(&mut buffers.value[K_BYTES..]);
    open.put(ROWS, &buffers.key, &buffers.value)?;

    buffers.read(open, replaced)?;
    open.delete(BY_K, buffers.entry())?;
    open.delete(ROWS, &buffers.key)?;

    buffers.new_value(&mut random, rows);
    open.put(ROWS, &buffers.key, &buffers.value)?;
    open.put(BY_K, buffers.entry(), &[])?;
    Ok(Verdict::Commit)
}

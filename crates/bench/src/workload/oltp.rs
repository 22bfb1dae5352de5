//! `oltp`: several statements a transaction, with a secondary index.

use super::rows::{Random, preload, write_key};
use super::update_search::missing;
use super::{Choice, Client, Sizes, Workload};
use crate::Result;
use crate::engine::{Store, Transaction};

const ROWS: usize = 0;
const BY_K: usize = 1;

/// The statements that write in the OLTP test of sysbench, as the macro-benchmark of Son, Yeom and Han (2017), Fig. 6,
/// has them.
///
/// A row is an id, a number k that is indexed, and text. It lies in the table `rows` (key: the id; value: k in eight
/// bytes, then the text) and in the index `by_k` (key: k, then the id; no value). Each transaction picks three rows,
/// all being equally likely, and does
///
/// 1. an update of the indexed column: reads the first row, adds one to its k, writes the row, deletes its index entry
///    and writes the new one;
/// 2. an update of a column without an index: reads the second row, writes it with another text;
/// 3. a delete: reads the third row, deletes it and its index entry;
/// 4. an insert: writes the third row again, with another k and another text, and its index entry.
///
/// That is three reads, four puts and deletes in `rows` and four in `by_k`. A transaction that conflicts with another,
/// because both took the same row, is run again. There are as many rows and entries afterwards as before.
#[derive(Clone, Copy, Debug)]
pub struct Oltp {
    sizes: Sizes,
    rows: u64,
}

impl Oltp {
    /// 20-byte keys and the row of sysbench: k (8 bytes), 120 and 60 bytes of text.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 188 };
    /// The shortest value: k.
    pub const VALUE_BYTES_MIN: usize = K_BYTES;

    /// The workload on `rows` rows, at least one, of that size.
    pub fn new(sizes: Sizes, rows: u64) -> Oltp {
        Oltp { sizes, rows }
    }
}

const K_BYTES: usize = 8;

impl Workload for Oltp {
    fn name(&self) -> &'static str {
        "oltp"
    }

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn preloaded(&self) -> u64 {
        self.rows
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows", "by_k"]
    }

    fn preload(&self, store: &dyn Store) -> Result<()> {
        let mut buffers = Buffers::new(self.sizes);
        preload(store, self.rows, self.sizes, |row, transaction| {
            let mut random = Random::new(row);
            write_key(&mut buffers.key, row);
            buffers.new_value(&mut random, self.rows);
            transaction.put(ROWS, &buffers.key, &buffers.value)?;
            transaction.put(BY_K, buffers.entry(), &[])
        })
    }

    fn client(&self, thread: u32, _: u32) -> Box<dyn Client> {
        Box::new(OltpClient {
            rows: self.rows,
            random: Random::new(u64::from(thread) << 32),
            picked: [0; 3],
            seed: 0,
            buffers: Buffers::new(self.sizes),
        })
    }

    fn rows_after(&self, _: u64) -> Vec<u64> {
        vec![self.rows, self.rows]
    }

    fn bytes_per_transaction(&self) -> u64 {
        3 * self.sizes.row_bytes() + 4 * (self.sizes.key_bytes + K_BYTES) as u64
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

    fn read(&mut self, transaction: &mut dyn Transaction, row: u64) -> Result<()> {
        write_key(&mut self.key, row);
        match transaction.get(ROWS, &self.key, &mut self.value)? {
            true => Ok(()),
            false => Err(missing(&self.key)),
        }
    }
}

struct OltpClient {
    rows: u64,
    random: Random,
    picked: [u64; 3],
    /// What the new texts of this transaction are made from.
    seed: u64,
    buffers: Buffers,
}

impl Client for OltpClient {
    fn choose(&mut self) -> Choice {
        self.picked = [(); 3].map(|()| self.random.below(self.rows));
        self.seed = self.random.next();
        Choice::Commit
    }

    fn search(&mut self, _: &dyn Store) -> Result<()> {
        unreachable!("this workload never chooses a search")
    }

    fn statements(&mut self, transaction: &mut dyn Transaction) -> Result<()> {
        let buffers = &mut self.buffers;
        let [indexed, plain, replaced] = self.picked;
        let mut random = Random::new(self.seed);

        buffers.read(transaction, indexed)?;
        transaction.delete(BY_K, buffers.entry())?;
        let k = u64::from_be_bytes(buffers.value[..K_BYTES].try_into().expect("eight bytes"));
        buffers.value[..K_BYTES].copy_from_slice(&(k + 1).to_be_bytes());
        transaction.put(ROWS, &buffers.key, &buffers.value)?;
        transaction.put(BY_K, buffers.entry(), &[])?;

        buffers.read(transaction, plain)?;
        random.fill(&mut buffers.value[K_BYTES..]);
        transaction.put(ROWS, &buffers.key, &buffers.value)?;

        buffers.read(transaction, replaced)?;
        transaction.delete(BY_K, buffers.entry())?;
        transaction.delete(ROWS, &buffers.key)?;

        buffers.new_value(&mut random, self.rows);
        transaction.put(ROWS, &buffers.key, &buffers.value)?;
        transaction.put(BY_K, buffers.entry(), &[])
    }
}

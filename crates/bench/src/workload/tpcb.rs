//! `tpcb`: a bank whose busiest rows are in every transaction.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hint::black_box;

use super::fields::{Field, concat};
use super::rows::{Random, check_rows, fill, read_all};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Needs, Range, Store, Transaction, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

const BRANCHES: usize = 0;
const TELLERS: usize = 1;
const ACCOUNTS: usize = 2;
const HISTORY: usize = 3;
const TABLES: &[&str] = &["branches", "tellers", "accounts", "history"];

/// Tellers of a branch.
const TELLERS_PER_BRANCH: u32 = 10;
/// A branch, a teller or an account: key and value.
const ROW_BYTES: usize = 100;
/// A row of the history: key and value.
const HISTORY_BYTES: usize = 50;
/// The largest amount of a transaction.
const AMOUNT_MAX: u64 = 999_999;

/// TPC-B by its specification 2.0, on key-value tables.
///
/// A transaction changes the balance of an account by an amount, writes a row of history, changes the balances of a
/// teller and of its branch by the same amount, and returns the account's. The teller is any; in 85 of 100 cases the
/// account is one of the teller's branch, otherwise one of another. Branches are few and each transaction changes one:
/// that is where transactions wait for each other or conflict.
///
/// Branches, tellers and accounts have numbers as keys, big-endian, and 100 bytes with key and value; a row of history
/// has 50, and as its key the thread and the number of the transaction in it.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tpcb {
    /// At least one, with ten tellers each.
    pub branches: u32,
    /// At least one; the specification has 100,000.
    pub accounts_per_branch: u32,
}

impl Tpcb {
    fn tellers(&self) -> u32 {
        self.branches * TELLERS_PER_BRANCH
    }

    fn accounts(&self) -> u64 {
        u64::from(self.branches) * u64::from(self.accounts_per_branch)
    }

    fn rows(&self) -> u64 {
        u64::from(self.branches) + u64::from(self.tellers()) + self.accounts()
    }
}

impl Workload for Tpcb {
    fn shape(&self) -> Shape {
        let Tpcb { branches, accounts_per_branch } = self;
        Shape {
            name: "tpcb".into(),
            about: format!("{branches} branches with 10 tellers and {accounts_per_branch} accounts each"),
            tables: TABLES,
            needs: Needs { transactions: true, ..Needs::default() },
            kinds: &["transaction"],
            loaded_bytes: self.rows() * ROW_BYTES as u64,
            bytes_per_operation: (3 * ROW_BYTES + HISTORY_BYTES) as u64,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let (branches, tellers) = (u64::from(self.branches), u64::from(self.tellers()));
        fill(store, 0..self.rows(), ROW_BYTES as u64, filling, |row, open| {
            if row < branches {
                put_balance(open, BRANCHES, &(row as u32).to_be_bytes(), 0)
            } else if row < branches + tellers {
                put_balance(open, TELLERS, &((row - branches) as u32).to_be_bytes(), 0)
            } else {
                put_balance(open, ACCOUNTS, &(row - branches - tellers).to_be_bytes(), 0)
            }
        })
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let random = Random::new(u64::from(thread) << 32);
        let mut terminal = Terminal { bank: *self, thread, random, next: None, value: Vec::new() };
        Box::new(move |session| terminal.step(session))
    }

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let history = Sums::of_history(store, self)?;
        check_rows(store, BRANCHES, "branches", self.branches.into())?;
        check_rows(store, TELLERS, "tellers", self.tellers().into())?;
        check_rows(store, ACCOUNTS, "accounts", self.accounts())?;
        history.check(&Sums::of_balances(store)?)?;
        done.map_or(Ok(()), |done| check_rows(store, HISTORY, "history", done.operations()))
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        Some(self.shape().loaded_bytes + done.operations() * HISTORY_BYTES as u64)
    }
}

/// Balances that are not 0, by number, of the tables [`BRANCHES`], [`TELLERS`] and [`ACCOUNTS`].
#[derive(Default)]
struct Sums {
    tables: [BTreeMap<u64, i64>; 3],
}

impl Sums {
    /// From the tables.
    fn of_balances(store: &dyn Store) -> Result<Sums> {
        let mut sums = Sums::default();
        for (table, sums) in sums.tables.iter_mut().enumerate() {
            read_all(store, table, |key, value| {
                let (number, balance) = number(key).zip(balance(value)).ok_or_else(|| strange(table))?;
                if balance != 0 {
                    sums.insert(number, balance);
                }
                Ok(())
            })?;
        }
        Ok(sums)
    }

    /// From the history.
    fn of_history(store: &dyn Store, bank: &Tpcb) -> Result<Sums> {
        let mut sums = Sums::default();
        read_all(store, HISTORY, |_, value| {
            let row = History::decode(value).ok_or_else(|| strange(HISTORY))?;
            if row.teller >= bank.tellers() || row.branch != row.teller / TELLERS_PER_BRANCH {
                return Err(strange(HISTORY));
            }
            let numbers = [row.branch.into(), row.teller.into(), row.account];
            for (sums, number) in sums.tables.iter_mut().zip(numbers) {
                *sums.entry(number).or_default() += row.amount;
            }
            Ok(())
        })?;
        sums.tables.iter_mut().for_each(|sums| sums.retain(|_, sum| *sum != 0));
        Ok(sums)
    }

    /// Every row agrees with the history, and so all four sums are the same.
    fn check(&self, balances: &Sums) -> Result<()> {
        for (table, (history, balances)) in TABLES.iter().zip(self.tables.iter().zip(&balances.tables)) {
            if history != balances {
                let [history, sum] = [history, balances].map(|sums| sums.values().sum::<i64>());
                return Err(Error::Wrong(format!(
                    "some balances of `{table}`, whose sum is {sum}, are not what the history says, whose sum is \
                     {history}"
                )));
            }
        }
        Ok(())
    }
}

struct Terminal {
    bank: Tpcb,
    thread: u32,
    random: Random,
    /// The number of the next transaction, once it is known.
    next: Option<u64>,
    value: Vec<u8>,
}

impl Terminal {
    /// Picks the next transaction.
    fn pick(&mut self) -> History {
        let Tpcb { branches, accounts_per_branch } = self.bank;
        let teller = self.random.below(self.bank.tellers().into()) as u32;
        let home = teller / TELLERS_PER_BRANCH;
        let at_home = branches == 1 || self.random.below(100) < 85;
        let account_branch = match at_home {
            true => home,
            false => {
                let other = self.random.below(u64::from(branches) - 1) as u32;
                other + u32::from(other >= home)
            }
        };
        let within = self.random.below(accounts_per_branch.into());
        let account = u64::from(account_branch) * u64::from(accounts_per_branch) + within;
        let amount = self.random.within(0, 2 * AMOUNT_MAX) as i64 - AMOUNT_MAX as i64;
        History { account, teller, branch: home, amount, time: 0 }
    }

    /// The number after the newest one that the store has of this thread.
    fn next_number(&mut self, session: &mut RetryingSession<'_>) -> Result<u64> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        let end = history_key(self.thread, u64::MAX);
        session.read(|open| {
            let mut next = 0;
            open.scan(Range::reverse(HISTORY, Some(&end)), &mut |key, _| {
                let number =
                    key.strip_prefix(&self.thread.to_be_bytes()).and_then(|rest| rest.try_into().ok());
                next = number.map_or(0, |number| u64::from_be_bytes(number) + 1);
                Ok(false)
            })?;
            Ok(next)
        })
    }

    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        let number = self.next_number(session)?;
        let transaction = History { time: number, ..self.pick() };
        let key = history_key(self.thread, number);
        session.write(|open| {
            black_box(transaction.run(open, &key, &mut self.value)?);
            Ok(Verdict::Commit)
        })?;
        self.next = Some(number + 1);
        Ok(Step::Done(0))
    }
}

/// A transaction, and its row of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct History {
    account: u64,
    teller: u32,
    branch: u32,
    amount: i64,
    /// By a clock that ticks once a transaction of the thread.
    time: u64,
}

impl History {
    /// The new balance of the account.
    fn run(&self, open: &mut dyn Transaction, key: &[u8], value: &mut Vec<u8>) -> Result<i64> {
        let balance = add(open, ACCOUNTS, &self.account.to_be_bytes(), self.amount, value)?;
        open.put(HISTORY, key, &self.encode())?;
        add(open, TELLERS, &self.teller.to_be_bytes(), self.amount, value)?;
        add(open, BRANCHES, &self.branch.to_be_bytes(), self.amount, value)?;
        Ok(balance)
    }

    /// Account, teller, branch, amount and time, little-endian, and blanks.
    fn encode(&self) -> [u8; HISTORY_BYTES - HISTORY_KEY_BYTES] {
        let [account, time] = [self.account, self.time].map(u64::to_le_bytes);
        let [teller, branch] = [self.teller, self.branch].map(u32::to_le_bytes);
        concat([&account, &teller, &branch, &self.amount.to_le_bytes(), &time, HISTORY_BLANKS])
    }

    fn decode(mut row: &[u8]) -> Option<History> {
        let rest = &mut row;
        let history = History {
            account: Field::take(rest)?,
            teller: Field::take(rest)?,
            branch: Field::take(rest)?,
            amount: Field::take(rest)?,
            time: Field::take(rest)?,
        };
        (row == HISTORY_BLANKS).then_some(history)
    }
}

const HISTORY_KEY_BYTES: usize = 12;
/// They fill up a row of the history.
const HISTORY_BLANKS: &[u8] = b"      ";

fn history_key(thread: u32, number: u64) -> [u8; HISTORY_KEY_BYTES] {
    concat([&thread.to_be_bytes(), &number.to_be_bytes()])
}

/// Writes a row with this balance: eight bytes, little-endian, and blanks.
fn put_balance(open: &mut dyn Transaction, table: usize, key: &[u8], balance: i64) -> Result<()> {
    let mut row = [b' '; ROW_BYTES];
    row[..8].copy_from_slice(&balance.to_le_bytes());
    open.put(table, key, &row[..ROW_BYTES - key.len()])
}

/// The number in a key.
fn number(key: &[u8]) -> Option<u64> {
    let branch_or_teller = || key.try_into().ok().map(u32::from_be_bytes).map(u64::from);
    key.try_into().ok().map(u64::from_be_bytes).or_else(branch_or_teller)
}

fn balance(row: &[u8]) -> Option<i64> {
    row.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
}

/// Adds to a balance, and returns the new one.
fn add(
    open: &mut dyn Transaction,
    table: usize,
    key: &[u8],
    amount: i64,
    value: &mut Vec<u8>,
) -> Result<i64> {
    if !open.get_for_update(table, key, value)? {
        let what = format!("a row of the table `{}` that was filled in is not there", TABLES[table]);
        return Err(Error::engine("reading", what));
    }
    let balance = balance(value).ok_or_else(|| strange(table))? + amount;
    put_balance(open, table, key, balance)?;
    Ok(balance)
}

fn strange(table: usize) -> Error {
    Error::Wrong(format!("the table `{}` has a row that was never written", TABLES[table]))
}

//! The expected contents of the database: the state after each commit, and the newest acknowledged commit.

use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Arc<[u8]>,
    /// 0: never.
    pub expires_at_ms: u64,
}

impl Entry {
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.expires_at_ms == 0 || self.expires_at_ms > now_ms
    }
}

pub type TableMap = BTreeMap<Vec<u8>, Entry>;

/// All tables after some commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub tables: BTreeMap<String, Arc<TableMap>>,
}

impl State {
    pub fn table(&mut self, name: &str) -> &mut TableMap {
        Arc::make_mut(self.tables.get_mut(name).unwrap_or_else(|| panic!("the model has no table {name}")))
    }

    pub fn create(&mut self, name: &str) {
        assert!(self.tables.insert(name.to_string(), Arc::default()).is_none(), "{name} exists");
    }

    pub fn drop_table(&mut self, name: &str) {
        self.tables.remove(name).expect("the table exists");
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        let table = self.tables.remove(from).expect("the table exists");
        assert!(self.tables.insert(to.to_string(), table).is_none(), "{to} exists");
    }

    pub fn put(&mut self, table: &str, key: &[u8], value: &[u8], expires_at_ms: u64) {
        self.table(table).insert(key.to_vec(), Entry { value: value.into(), expires_at_ms });
    }

    pub fn delete(&mut self, table: &str, key: &[u8]) {
        self.table(table).remove(key);
    }

    /// `end` `None` is the end of the table.
    pub fn delete_range(&mut self, table: &str, start: &[u8], end: Option<&[u8]>) {
        let inside = |key: &[u8]| key >= start && end.is_none_or(|end| key < end);
        self.table(table).retain(|key, _| !inside(key));
    }
}

/// The states after commits `0..=submitted`, by CSN.
#[derive(Clone, Debug)]
pub struct History {
    states: Vec<State>,
    acknowledged: u64,
}

impl Default for History {
    fn default() -> History {
        History { states: vec![State::default()], acknowledged: 0 }
    }
}

impl History {
    pub fn newest(&self) -> &State {
        self.states.last().expect("there is a state before the first commit")
    }

    pub fn at(&self, csn: u64) -> &State {
        &self.states[csn as usize]
    }

    pub fn submitted(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// A commit is about to be submitted; it may be found from now on. Returns its number.
    pub fn submit(&mut self, change: impl FnOnce(&mut State)) -> u64 {
        let mut state = self.newest().clone();
        change(&mut state);
        self.states.push(state);
        self.submitted()
    }

    /// `csn` and everything before it has to be found from now on.
    pub fn acknowledge(&mut self, csn: u64) {
        assert!(csn <= self.submitted(), "commit {csn} was acknowledged, {} submitted", self.submitted());
        self.acknowledged = self.acknowledged.max(csn);
    }

    /// The commit that was submitted last did not happen.
    pub fn retract(&mut self) {
        self.states.pop();
        assert!(self.acknowledged <= self.submitted(), "an acknowledged commit cannot be retracted");
    }

    /// The last `count` acknowledged commits may be missing after all.
    pub fn doubt(&mut self, count: u64) {
        self.acknowledged -= count;
    }

    /// A recovery found everything up to `csn`: later commits never happened, and these have to stay.
    pub fn recovered(&mut self, csn: u64) {
        assert!(csn >= self.acknowledged && csn <= self.submitted());
        self.states.truncate(csn as usize + 1);
        self.acknowledged = csn;
    }
}

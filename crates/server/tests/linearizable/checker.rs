//! Whether a history is linearizable: the algorithm of Wing and Gong (1993) as Lowe (2017) improved it. It is a depth-first search for an
//! order of the operations that respects their times and gives their replies; a cache of the sets of operations in order, each with the state
//! after them, keeps it from searching twice what two orders of the same operations lead to.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, DefaultHasher};

use fulgurite_resp::Reply;

use crate::model::{Command, State, keys, ordered, run};
use crate::support::text;

/// The time of what never came.
pub const NEVER: u64 = u64::MAX;

/// Commands that happen at one moment.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The operations of a client happen in their order, also if it sends the next one before a reply.
    pub client: usize,
    /// Whether its commit is durable before its reply.
    pub is_sync: bool,
    /// One, or those of a transaction.
    pub commands: Vec<Command>,
    pub invoked: u64,
    /// [`NEVER`] if it got no reply, and may have happened or not.
    pub returned: u64,
    /// One for each command, none if it got no reply.
    pub replies: Vec<Reply>,
}

/// How a history ends, and what was found then.
#[derive(Clone, Debug)]
pub enum End {
    /// All operations had their replies before this was read.
    Quiet(State),
    /// The server stopped, and this was read after a restart. Commits that were not to be durable may be lost, newest first; what changed
    /// nothing may have seen them.
    Crash(State),
}

impl End {
    pub fn state(&self) -> &State {
        match self {
            End::Quiet(state) | End::Crash(state) => state,
        }
    }
}

/// Checks a history that begins with a state, each set of keys that operations connect by itself.
///
/// # Errors
/// The operations of the keys that no order explains, as a text.
pub fn check(initial: &State, operations: &[Operation], end: &End) -> Result<(), String> {
    for (keys, operations) in components(initial, operations, end) {
        check_whole(
            &restrict(initial, &keys),
            &operations,
            &match end {
                End::Quiet(state) => End::Quiet(restrict(state, &keys)),
                End::Crash(state) => End::Crash(restrict(state, &keys)),
            },
        )?;
    }
    Ok(())
}

/// Checks a history as one.
///
/// # Errors
/// See [`check`].
pub fn check_whole(initial: &State, operations: &[Operation], end: &End) -> Result<(), String> {
    let mut operations = operations.to_vec();
    operations.sort_by_key(|operation| operation.invoked);
    for operation in &mut operations {
        let Operation { commands, replies, .. } = operation;
        for (command, reply) in commands.iter().zip(replies) {
            *reply = ordered(&command[0], reply);
        }
    }
    Search::new(initial, &operations, end).run()
}

fn restrict(state: &State, keys: &BTreeSet<String>) -> State {
    state
        .iter()
        .filter(|(key, _)| keys.contains(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Sets of keys that no operation connects, each with its operations.
fn components(
    initial: &State,
    operations: &[Operation],
    end: &End,
) -> Vec<(BTreeSet<String>, Vec<Operation>)> {
    let mut all: BTreeSet<String> = initial.keys().chain(end.state().keys()).cloned().collect();
    let of = |operation: &Operation| -> Option<BTreeSet<String>> {
        let keys: Option<Vec<_>> = operation.commands.iter().map(|command| keys(command)).collect();
        Some(keys?.into_iter().flatten().map(str::to_string).collect())
    };
    let touched: Vec<_> = operations.iter().map(of).collect();
    touched.iter().flatten().for_each(|keys| all.extend(keys.iter().cloned()));
    // The name of the set to which each key belongs.
    let mut names: BTreeMap<String, String> = all.iter().map(|key| (key.clone(), key.clone())).collect();
    for keys in &touched {
        let keys = keys.as_ref().unwrap_or(&all);
        let Some(first) = keys.first() else { continue };
        let joined: BTreeSet<String> = keys.iter().map(|key| names[key].clone()).collect();
        let name = names[first].clone();
        names.values_mut().filter(|other| joined.contains(*other)).for_each(|other| other.clone_from(&name));
    }
    let mut components = BTreeMap::<String, (BTreeSet<String>, Vec<Operation>)>::new();
    for (key, name) in &names {
        components.entry(name.clone()).or_default().0.insert(key.clone());
    }
    for (operation, keys) in operations.iter().zip(&touched) {
        if let Some(key) = keys.as_ref().unwrap_or(&all).first() {
            let component = components.get_mut(&names[key]).expect("each key has one");
            component.1.push(operation.clone());
        }
    }
    components.into_values().collect()
}

/// An operation is invoked or has returned. The index after the last operation is the end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Invoked(usize),
    Returned(usize),
}

type Seen = HashSet<(Vec<u64>, State), BuildHasherDefault<DefaultHasher>>;

struct Search<'a> {
    operations: &'a [Operation],
    end: &'a End,
    initial: &'a State,
    /// The operation of the same client before each.
    before: Vec<Option<usize>>,
    events: Vec<Event>,
    /// The events that are left, in their order, as a list with links; the last index is its head.
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Of each operation, and of the end.
    invoked_at: Vec<usize>,
    returned_at: Vec<Option<usize>>,
    /// What is in the order, as bits.
    done: Vec<u64>,
    /// The order, with the state before each.
    order: Vec<(usize, State)>,
    /// The longest order so far.
    longest: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(initial: &'a State, operations: &'a [Operation], end: &'a End) -> Search<'a> {
        let end_index = operations.len();
        let mut last_of = BTreeMap::new();
        let before =
            operations.iter().enumerate().map(|(index, operation)| last_of.insert(operation.client, index));
        let before = before.collect();
        // A crash happens at any time, and takes back what came after what it left.
        let crash = if matches!(end, End::Crash(_)) { 0 } else { NEVER };
        let mut events = vec![(crash, 0, Event::Invoked(end_index)), (NEVER, 1, Event::Returned(end_index))];
        for (index, operation) in operations.iter().enumerate() {
            assert!(operation.invoked < operation.returned, "{operation:?}");
            events.push((operation.invoked, 0, Event::Invoked(index)));
            if operation.returned != NEVER {
                events.push((operation.returned, 0, Event::Returned(index)));
            }
        }
        events.sort_by_key(|(time, last, _)| (*time, *last));
        let events: Vec<Event> = events.into_iter().map(|(_, _, event)| event).collect();
        let head = events.len();
        let at = |event| events.iter().position(|other| *other == event);
        Search {
            operations,
            end,
            initial,
            before,
            next: (1..=head).chain([0]).collect(),
            previous: [head].into_iter().chain(0..head).collect(),
            invoked_at: (0..=end_index).map(|index| at(Event::Invoked(index)).unwrap()).collect(),
            returned_at: (0..=end_index).map(|index| at(Event::Returned(index))).collect(),
            events,
            done: vec![0; end_index / 64 + 1],
            order: Vec::new(),
            longest: Vec::new(),
        }
    }

    fn run(mut self) -> Result<(), String> {
        let head = self.events.len();
        let mut left = self.returned_at.iter().flatten().count();
        let mut state = self.initial.clone();
        let mut seen = Seen::default();
        let mut at = self.next[head];
        while left > 0 {
            match (at != head).then(|| self.events[at]) {
                Some(Event::Invoked(index)) => match self.after(index, &state) {
                    Some(after)
                        if {
                            self.mark(index, true);
                            seen.insert((self.done.clone(), after.clone()))
                        } =>
                    {
                        self.order.push((index, std::mem::replace(&mut state, after)));
                        self.take_out(index);
                        left -= usize::from(self.returned_at[index].is_some());
                        if self.order.len() > self.longest.len() {
                            self.longest = self.order.iter().map(|(index, _)| *index).collect();
                        }
                        at = self.next[head];
                    }
                    _ => {
                        self.mark(index, false);
                        at = self.next[at];
                    }
                },
                // It returns before what could come next: another order has to be found.
                Some(Event::Returned(_)) | None => {
                    let Some((index, before)) = self.order.pop() else { return Err(self.explain()) };
                    state = before;
                    self.mark(index, false);
                    self.put_back(index);
                    left += usize::from(self.returned_at[index].is_some());
                    at = self.next[self.invoked_at[index]];
                }
            }
        }
        Ok(())
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64] & 1 << (index % 64) != 0
    }

    fn mark(&mut self, index: usize, is_done: bool) {
        let bit = 1 << (index % 64);
        self.done[index / 64] =
            if is_done { self.done[index / 64] | bit } else { self.done[index / 64] & !bit };
    }

    /// The state after an operation that happens now, if it can.
    fn after(&self, index: usize, state: &State) -> Option<State> {
        let end = self.operations.len();
        if index == end {
            return (state == self.end.state()).then(|| state.clone());
        }
        if self.before[index].is_some_and(|before| !self.is_done(before)) {
            return None;
        }
        let operation = &self.operations[index];
        let mut after = state.clone();
        for (nth, command) in operation.commands.iter().enumerate() {
            let reply = run(&mut after, command);
            if operation.replies.get(nth).is_some_and(|shown| *shown != reply) {
                return None;
            }
        }
        // What a crash took back was no commit that had to be durable.
        let is_lost = self.is_done(end) && operation.is_sync && after != *state;
        (!is_lost).then_some(after)
    }

    fn unlink(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn link(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = at;
        self.previous[next] = at;
    }

    fn take_out(&mut self, index: usize) {
        self.unlink(self.invoked_at[index]);
        if let Some(at) = self.returned_at[index] {
            self.unlink(at);
        }
    }

    fn put_back(&mut self, index: usize) {
        if let Some(at) = self.returned_at[index] {
            self.link(at);
        }
        self.link(self.invoked_at[index]);
    }

    /// The history, and how far the longest order comes.
    fn explain(&self) -> String {
        let mut lines = format!("no order explains this history, which begins with {:?}\n", self.initial);
        for (index, operation) in self.operations.iter().enumerate() {
            let Operation { client, is_sync, commands, invoked, returned, replies } = operation;
            let position = self.longest.iter().position(|other| *other == index);
            let position = position.map_or("-".into(), |position| position.to_string());
            let commands = commands.iter().map(|command| command.join(" ")).collect::<Vec<_>>().join("; ");
            let replies = replies.iter().map(text).collect::<Vec<_>>().join("; ");
            let returned = if *returned == NEVER { "never".into() } else { returned.to_string() };
            let level = if *is_sync { "" } else { " (not synchronous)" };
            _ = writeln!(
                lines,
                "{position:>4}  {invoked}..{returned} client {client}{level}: {commands} -> {replies}"
            );
        }
        _ = writeln!(lines, "and ends with {:?}", self.end);
        _ = writeln!(
            lines,
            "The first column is the longest order that was found; the end is in it: {}.",
            self.longest.contains(&self.operations.len())
        );
        lines
    }
}

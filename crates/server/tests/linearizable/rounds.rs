//! Rounds of concurrent clients, with crashes and restarts between them. Each is a history that begins with what was found after the one
//! before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite::Database;
use fulgurite::env::SimEnv;
use fulgurite::env::sim::CrashKind;
use fulgurite_server::{Config, Dispatch, Flushing, Server};

use crate::checker::{End, NEVER, Operation, check, check_whole};
use crate::clients::{Clock, Mix, Recorder, read_all};
use crate::model::State;
use crate::support::{Client, Random, Stopper, config, open, wait_until};

/// What was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub rounds: u64,
    pub crashes: u64,
    pub operations: u64,
    /// Those of a crash that got no reply before it.
    pub unknown: u64,
    /// Acknowledged commits at a lower level than `sync` that a crash may have taken back.
    pub lower: u64,
    /// Rounds after which less was there than before the crash.
    pub losses: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.rounds += other.rounds;
        self.crashes += other.crashes;
        self.operations += other.operations;
        self.unknown += other.unknown;
        self.lower += other.lower;
        self.losses += other.losses;
    }
}

/// A database whose server has concurrent clients, round by round.
pub struct Rounds {
    random: Random,
    clock: Clock,
    mix: Mix,
    env: Arc<SimEnv>,
    running: Option<(Database, Server)>,
    state: State,
    pub tally: Tally,
}

impl Rounds {
    pub fn new(seed: u64, mix: Mix) -> Rounds {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let env = SimEnv::new(seed);
        let running = start(&env, &mut random);
        let (clock, state, tally) = (Clock::new(), State::new(), Tally::default());
        Rounds { random, clock, mix, env, running: Some(running), state, tally }
    }

    /// Runs a round and checks its history.
    pub fn run(&mut self) {
        let crash = [
            None,
            Some(CrashKind::PowerCut),
            Some(CrashKind::PowerCut),
            Some(CrashKind::OsCrash),
            Some(CrashKind::Kill),
        ][self.random.below(5)];
        let all = (self.mix.clients * self.mix.operations) as u64;
        let crashes_after = self.random.below(all as usize * 3 / 4) as u64;
        let (mut operations, crashed) = self.run_clients(crash, crashes_after);
        let end = match crashed {
            Some((cut, crashed)) => {
                for operation in operations.iter_mut().filter(|operation| operation.returned > cut) {
                    (operation.returned, operation.replies) = (NEVER, Vec::new());
                }
                self.running = None;
                self.env = crashed;
                self.running = Some(start(&self.env, &mut self.random));
                self.tally.crashes += 1;
                End::Crash(self.read_all())
            }
            None => {
                assert!(operations.iter().all(|operation| operation.returned != NEVER), "{operations:?}");
                // The next crash takes nothing back that happened before this: a server that stops loses nothing, at no level, and a
                // synchronous commit keeps all before it.
                if self.random.below(2) == 0 {
                    self.running = None;
                    self.running = Some(start(&self.env, &mut self.random));
                } else {
                    let (_, server) = self.running.as_ref().expect("it runs");
                    assert_eq!(Client::connect(server).ask("SET other 1"), "OK");
                }
                End::Quiet(self.read_all())
            }
        };
        self.note(&operations, &end);
        let check = if self.mix.levels.is_empty() { check } else { check_whole };
        if let Err(violation) = check(&self.state, &operations, &end) {
            panic!("after {:?}, of {:?}: {violation}", self.tally, self.mix);
        }
        self.state = end.state().clone();
    }

    fn read_all(&self) -> State {
        read_all(&self.running.as_ref().expect("it runs").1, self.mix.keys)
    }

    /// Runs the clients to their end, or to a crash once so many operations have begun: with its time, and what it left.
    fn run_clients(
        &mut self,
        crash: Option<CrashKind>,
        crashes_after: u64,
    ) -> (Vec<Operation>, Option<(u64, Arc<SimEnv>)>) {
        let (mix, clock, env) = (&self.mix, &self.clock, &self.env);
        let server = &self.running.as_ref().expect("it runs").1;
        let (stops, begun) = (AtomicBool::new(false), AtomicU64::new(0));
        let seeds: Vec<u64> = (0..mix.clients).map(|_| self.random.next()).collect();
        std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            let recorders: Vec<_> = (0..mix.clients)
                .map(|number| {
                    let level = mix.levels.get(number).copied().unwrap_or("sync");
                    Recorder::new(server, clock, number, seeds[number], level)
                })
                .collect();
            let clients: Vec<_> = recorders
                .into_iter()
                .map(|recorder| {
                    let (stops, begun) = (&stops, &begun);
                    scope.spawn(move || recorder.run(mix, stops, begun))
                })
                .collect();
            let crashed = crash.map(|kind| {
                wait_until(|| {
                    begun.load(Ordering::SeqCst) >= crashes_after
                        || clients.iter().all(|client| client.is_finished())
                });
                // Whatever the server does after the crash is not in what the crash left, and neither are the replies.
                let cut = clock.tick();
                let crashed = env.crash(kind, seeds[0]);
                let after = clock.tick();
                stops.store(true, Ordering::SeqCst);
                (cut, after, crashed)
            });
            let mut operations: Vec<Operation> =
                clients.into_iter().flat_map(|client| client.join().expect("a client has ended")).collect();
            let crashed = crashed.map(|(cut, after, crashed)| {
                operations.retain(|operation| operation.invoked < after);
                (cut, crashed)
            });
            (operations, crashed)
        })
    }

    fn note(&mut self, operations: &[Operation], end: &End) {
        let count = |is: &dyn Fn(&Operation) -> bool| operations.iter().filter(|one| is(one)).count() as u64;
        self.tally.rounds += 1;
        self.tally.operations += operations.len() as u64;
        self.tally.unknown += count(&|one| one.returned == NEVER);
        if let End::Crash(state) = end {
            self.tally.lower += count(&|one| one.returned != NEVER && !one.is_sync);
            // Whether all of it is there: then it is linearizable as if no level were lower.
            let mut all = operations.to_vec();
            all.iter_mut().for_each(|one| one.is_sync = true);
            if !self.mix.levels.is_empty()
                && check_whole(&self.state, &all, &End::Crash(state.clone())).is_err()
            {
                self.tally.losses += 1;
            }
        }
    }
}

fn start(env: &Arc<SimEnv>, random: &mut Random) -> (Database, Server) {
    let db = open(env);
    let server = Server::start(db.clone(), any_config(random)).expect("a server starts");
    (db, server)
}

fn any_config(random: &mut Random) -> Config {
    let mut config = config();
    config.flushing = [Flushing::Auto, Flushing::Lead, Flushing::Watch][random.below(3)];
    config.io_threads = 1 + random.below(2);
    config.workers = 1 + random.below(3);
    config.dispatch = if random.below(4) == 0 { Dispatch::Queue } else { Dispatch::Inline };
    config
}

//! Clients with pipelines, each with keys of its own, beside maps that say what every reply is: data larger than the memory, so that nodes
//! are merged, evicted and loaded between the prefetch of a pipeline and its commands.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use fulgurite::Options;
use fulgurite::env::{Env, RealEnv, SimEnv};
use fulgurite_resp::encode_command;
use fulgurite_server::Server;

const CLIENTS: u64 = 3;
const KEYS: usize = 40_000;
const MEMBERS: usize = 1_500;

/// What a client has written.
struct Model {
    random: Random,
    client: u64,
    strings: BTreeMap<String, String>,
    fields: BTreeMap<String, String>,
    scores: BTreeMap<String, u64>,
    order: BTreeSet<(u64, String)>,
}

fn now_ns() -> u64 {
    RealEnv::new().clock().monotonic_ns()
}

fn quoted(value: Option<&String>) -> String {
    value.map_or("nil".into(), |value| format!("\"{value}\""))
}

impl Model {
    fn new(client: u64) -> Model {
        let random = Random(0x9E37_79B9 * (client + 1));
        let (strings, fields, scores, order) = Default::default();
        Model { random, client, strings, fields, scores, order }
    }

    fn key(&mut self) -> String {
        format!("{}:{:05}", self.client, self.random.below(KEYS))
    }

    fn value(&mut self) -> String {
        let letter = char::from(b'a' + self.random.below(26) as u8);
        let len = [5, 300, 700, 900][self.random.below(4)];
        letter.to_string().repeat(len)
    }

    fn rank(&self, score: u64, member: &str) -> usize {
        self.order.range(..(score, member.to_owned())).count()
    }

    /// A command, and its reply.
    fn next(&mut self) -> (Vec<String>, String) {
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self.random.below(20) {
            0..6 => {
                let (key, value) = (self.key(), self.value());
                self.strings.insert(key.clone(), value.clone());
                (command(&["SET", &key, &value]), "OK".into())
            }
            6..10 => {
                let key = self.key();
                (command(&["GET", &key]), quoted(self.strings.get(&key)))
            }
            10 => {
                let key = self.key();
                let deleted = self.strings.remove(&key).is_some();
                (command(&["DEL", &key]), i32::from(deleted).to_string())
            }
            11 => {
                let mut words = command(&["MSET"]);
                for _ in 0..5 {
                    let (key, value) = (self.key(), self.value());
                    self.strings.insert(key.clone(), value.clone());
                    words.extend([key, value]);
                }
                (words, "OK".into())
            }
            12 => {
                let keys: Vec<_> = (0..5).map(|_| self.key()).collect();
                let values = keys.iter().map(|key| quoted(self.strings.get(key))).collect::<Vec<_>>();
                ([command(&["MGET"]), keys].concat(), format!("[{}]", values.join(" ")))
            }
            other => self.next_of_collections(other),
        }
    }

    fn next_of_collections(&mut self, choice: usize) -> (Vec<String>, String) {
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (hash, zset) = (format!("{}:h", self.client), format!("{}:z", self.client));
        let name = format!("name{}", self.random.below(MEMBERS));
        match choice {
            13 => {
                let value = self.value();
                let is_new = self.fields.insert(name.clone(), value.clone()).is_none();
                (command(&["HSET", &hash, &name, &value]), i32::from(is_new).to_string())
            }
            14 => (command(&["HGET", &hash, &name]), quoted(self.fields.get(&name))),
            15..18 => {
                let score = self.random.below(300) as u64;
                let old = self.scores.insert(name.clone(), score);
                old.map(|old| self.order.remove(&(old, name.clone())));
                self.order.insert((score, name.clone()));
                let reply = i32::from(old.is_none()).to_string();
                (command(&["ZADD", &zset, &score.to_string(), &name]), reply)
            }
            18 => {
                let rank = self.scores.get(&name).map(|score| self.rank(*score, &name).to_string());
                (command(&["ZRANK", &zset, &name]), rank.unwrap_or("nil".into()))
            }
            _ => {
                let old = self.scores.remove(&name);
                old.map(|old| self.order.remove(&(old, name.clone())));
                (command(&["ZREM", &zset, &name]), i32::from(old.is_some()).to_string())
            }
        }
    }

    fn run(&mut self, server: &Server, until_ns: u64) -> usize {
        let mut client = Client::connect(server);
        let mut ran = 0;
        while now_ns() < until_ns {
            let count = [1, 3, 16, 40][self.random.below(4)];
            let commands: Vec<_> = (0..count).map(|_| self.next()).collect();
            let mut bytes = Vec::new();
            commands.iter().for_each(|(words, _)| encode_command(&mut bytes, words));
            client.send(&bytes);
            for (words, reply) in commands {
                assert_eq!(client.receive_text(), reply, "client {}, after {ran}: {words:?}", self.client);
                ran += 1;
            }
        }
        ran
    }
}

/// `SECONDS` says for how long.
#[test]
fn replies_to_pipelines_are_those_of_maps_while_memory_is_short() {
    let seconds: u64 = std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    let options = Options { memory_bytes: Some(18 << 20), log_buffer_bytes: 1 << 20, ..Options::default() };
    let mut config = config();
    config.io_threads = 2;
    let db = open_with(&SimEnv::new(1), options);
    let server = Server::start(db.clone(), config).unwrap();
    let until_ns = now_ns() + seconds * 1_000_000_000;
    let ran: usize = std::thread::scope(|scope| {
        let server = &server;
        let clients =
            (0..CLIENTS).map(|client| scope.spawn(move || Model::new(client).run(server, until_ns)));
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let evicted = db.stats().memory.evicted_nodes;
    let read_ahead = figure(&mut Client::connect(&server), "fulgurite_rows_read_ahead");
    println!("{ran} replies, {evicted} nodes evicted, {read_ahead} rows read ahead");
    assert!(ran > 1_000 && evicted > 100 && read_ahead > 100);
}

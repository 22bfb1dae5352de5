//! Clients that send commands chosen at random, and note when they did and when the replies came.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_resp::{Reply, encode_command};
use fulgurite_server::Server;

use crate::checker::{NEVER, Operation};
use crate::model::{Command, State, command, read_of, value_of};
use crate::support::{Client, Random};

/// The one clock of a history: each look at it is later than those before.
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn new() -> Clock {
        Clock(AtomicU64::new(1))
    }

    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// What the clients of a round do.
#[derive(Clone, Debug)]
pub struct Mix {
    pub keys: &'static [&'static str],
    pub clients: usize,
    /// How many operations each client begins at most.
    pub operations: usize,
    /// How many it sends before it waits for replies, at most.
    pub pipeline: usize,
    /// Whether there are commands of several keys, and transactions.
    pub has_transactions: bool,
    /// Whether transactions flush the database, too.
    pub flushes_in_exec: bool,
    /// The level of the commits of each client; the others are at `sync`.
    pub levels: Vec<&'static str>,
}

/// What a client sends at a time.
enum Request {
    Single(Command),
    /// `MULTI`, these, `EXEC`.
    Exec(Vec<Command>),
    /// `WATCH` and a read of these keys, then a transaction with these commands, which happens if the keys are the same as when they
    /// were read.
    Watched {
        reads: Vec<Command>,
        commands: Vec<Command>,
    },
}

/// Commands of several keys: a small letter is a key of this type, V and W are values, F is a field, M a member.
const SEVERAL: &[&str] = &[
    "MGET n n",
    "MGET n s n",
    "MSET n V n W",
    "DEL n t",
    "DEL l t",
    "COPY n n REPLACE",
    "RENAME n n",
    "SINTERSTORE t t t",
    "SINTERSTORE t t t",
    "SUNIONSTORE t t t",
    "SDIFFSTORE t t t",
    "SMOVE t t M",
    "SMOVE t t M",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l l LEFT RIGHT",
    "COPY t t REPLACE",
];

/// A client, and what it did.
pub struct Recorder<'a> {
    client: Client,
    clock: &'a Clock,
    number: usize,
    is_sync: bool,
    random: Random,
    /// No two values that it writes are the same.
    values: u64,
    operations: Vec<Operation>,
}

impl<'a> Recorder<'a> {
    pub fn new(server: &Server, clock: &'a Clock, number: usize, seed: u64, level: &str) -> Recorder<'a> {
        let mut client = Client::connect(server);
        assert_eq!(client.ask(&format!("DURABILITY {level}")), "OK");
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64) | 1 << 40);
        let values = clock.tick() * 100 + number as u64;
        Recorder { client, clock, number, is_sync: level == "sync", random, values, operations: Vec::new() }
    }

    /// Sends operations until it is to stop, and returns what it did.
    pub fn run(mut self, mix: &Mix, stops: &AtomicBool, begun: &AtomicU64) -> Vec<Operation> {
        while self.operations.len() < mix.operations && !stops.load(Ordering::SeqCst) {
            let requests: Vec<Request> = match self.random.below(8) {
                0 if mix.has_transactions => vec![self.watched(mix)],
                _ => (0..1 + self.random.below(mix.pipeline)).map(|_| self.request(mix)).collect(),
            };
            begun.fetch_add(requests.len() as u64, Ordering::SeqCst);
            let is_open = match &requests[..] {
                [Request::Watched { reads, commands }] => self.run_watched(reads, commands),
                _ => self.run_pipeline(&requests),
            };
            if !is_open {
                break;
            }
        }
        self.operations
    }

    /// Notes an operation, which is about to be sent.
    fn begin(&mut self, commands: &[Command]) -> usize {
        let (client, is_sync, invoked) = (self.number, self.is_sync, self.clock.tick());
        let commands = commands.to_vec();
        self.operations.push(Operation {
            client,
            is_sync,
            commands,
            invoked,
            returned: NEVER,
            replies: vec![],
        });
        self.operations.len() - 1
    }

    fn end(&mut self, index: usize, replies: Vec<Reply>) {
        assert_eq!(self.operations[index].commands.len(), replies.len(), "{:?}", self.operations[index]);
        (self.operations[index].replies, self.operations[index].returned) = (replies, self.clock.tick());
    }

    fn run_pipeline(&mut self, requests: &[Request]) -> bool {
        let mut bytes = Vec::new();
        let mut indexes = Vec::new();
        for request in requests {
            match request {
                Request::Single(single) => {
                    encode_command(&mut bytes, single);
                    indexes.push(self.begin(std::slice::from_ref(single)));
                }
                Request::Exec(commands) => {
                    encode_exec(&mut bytes, commands);
                    indexes.push(self.begin(commands));
                }
                Request::Watched { .. } => unreachable!("it is sent alone"),
            }
        }
        self.client.send(&bytes);
        for (request, index) in requests.iter().zip(indexes) {
            let replies = match request {
                Request::Single(_) => self.client.receive().map(|reply| vec![reply]),
                _ => {
                    let commands = self.operations[index].commands.len();
                    match self.exec_reply(commands) {
                        Some(Reply::Array(replies)) => Some(replies),
                        None => None,
                        other => panic!("{other:?}"),
                    }
                }
            };
            match replies {
                Some(replies) => self.end(index, replies),
                None => return false,
            }
        }
        true
    }

    /// The reply to `EXEC`, after those to `MULTI` and to so many commands.
    fn exec_reply(&mut self, commands: usize) -> Option<Reply> {
        assert_eq!(self.client.receive()?, Reply::Simple(b"OK".to_vec()));
        for _ in 0..commands {
            assert_eq!(self.client.receive()?, Reply::Simple(b"QUEUED".to_vec()));
        }
        self.client.receive()
    }

    fn run_watched(&mut self, reads: &[Command], commands: &[Command]) -> bool {
        let mut bytes = Vec::new();
        let watch: Vec<&str> =
            ["WATCH"].into_iter().chain(reads.iter().map(|read| read[1].as_str())).collect();
        encode_command(&mut bytes, &watch);
        reads.iter().for_each(|read| encode_command(&mut bytes, read));
        let indexes: Vec<usize> = reads.iter().map(|read| self.begin(std::slice::from_ref(read))).collect();
        self.client.send(&bytes);
        match self.client.receive() {
            Some(reply) => assert_eq!(reply, Reply::Simple(b"OK".to_vec())),
            None => return false,
        }
        let mut replies = Vec::new();
        for index in indexes {
            let Some(reply) = self.client.receive() else { return false };
            self.end(index, vec![reply.clone()]);
            replies.push(reply);
        }
        // That the reads give the same is a condition of the transaction, which shows with its replies.
        let index = self.begin(commands);
        let mut bytes = Vec::new();
        encode_exec(&mut bytes, commands);
        self.client.send(&bytes);
        match self.exec_reply(commands.len()) {
            Some(Reply::Array(own)) => {
                self.operations[index].commands.splice(0..0, reads.to_vec());
                replies.extend(own);
                self.end(index, replies);
                true
            }
            Some(Reply::NullBulk | Reply::NullArray) => {
                // Nothing happened.
                self.operations.pop();
                true
            }
            None => {
                self.operations[index].commands.splice(0..0, reads.to_vec());
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn value(&mut self) -> u64 {
        self.values += 100;
        self.values
    }

    fn request(&mut self, mix: &Mix) -> Request {
        if !mix.has_transactions {
            return Request::Single(self.single(mix));
        }
        match self.random.below(8) {
            0 | 1 => {
                let commands = 2 + self.random.below(3);
                Request::Exec((0..commands).map(|_| self.any(mix)).collect())
            }
            2 if self.random.below(3) == 0 => Request::Single(command("FLUSHDB")),
            _ => Request::Single(self.any(mix)),
        }
    }

    fn watched(&mut self, mix: &Mix) -> Request {
        let reads = (0..1 + self.random.below(2)).map(|_| read_of(self.random.of(mix.keys))).collect();
        let commands = (0..1 + self.random.below(2)).map(|_| self.any(mix)).collect();
        Request::Watched { reads, commands }
    }

    /// A command of one key or of several.
    fn any(&mut self, mix: &Mix) -> Command {
        match self.random.below(20) {
            0..7 => self.several(mix),
            7 if mix.flushes_in_exec && self.random.below(4) == 0 => command("FLUSHDB"),
            _ => self.single(mix),
        }
    }

    /// A key whose name begins with this letter.
    fn key(&mut self, mix: &Mix, letter: &str) -> &'static str {
        let keys: Vec<&str> = mix.keys.iter().copied().filter(|key| key.starts_with(letter)).collect();
        self.random.of(&keys)
    }

    fn several(&mut self, mix: &Mix) -> Command {
        let has = |word: &str| !is_key(word) || mix.keys.iter().any(|key| key.starts_with(word));
        let templates: Vec<&str> =
            SEVERAL.iter().copied().filter(|template| template.split(' ').all(has)).collect();
        let (value, other, template) = (self.value(), self.value(), self.random.of(&templates));
        self.fill(mix, template, value, other)
    }

    fn single(&mut self, mix: &Mix) -> Command {
        let templates: &[&str] = match self.random.of(mix.keys).as_bytes()[0] {
            b'n' => &[
                "INCR n",
                "INCR n",
                "INCR n",
                "GET n",
                "GET n",
                "GET n",
                "SET n V",
                "SET n V NX",
                "SETNX n V",
                "GETSET n V",
                "GETDEL n",
                "DEL n",
                "INCRBY n V",
                "DECR n",
                "EXISTS n",
            ],
            b's' => &[
                "APPEND s .V",
                "APPEND s .V",
                "APPEND s .V",
                "GET s",
                "GET s",
                "GET s",
                "SET s V",
                "SET s V NX",
                "GETSET s V",
                "GETDEL s",
                "DEL s",
                "STRLEN s",
            ],
            b'l' => &[
                "LPUSH l V",
                "RPUSH l V",
                "LPUSH l V",
                "LPOP l",
                "RPOP l",
                "LPOP l",
                "LLEN l",
                "LINDEX l 0",
                "LRANGE l 0 -1",
                "LTRIM l 0 2",
                "DEL l",
            ],
            b'h' => &[
                "HINCRBY h F 1",
                "HINCRBY h F 1",
                "HINCRBY h F V",
                "HGET h F",
                "HGET h F",
                "HSET h F V",
                "HDEL h F",
                "HLEN h",
                "HGETALL h",
                "DEL h",
            ],
            b't' => &[
                "SADD t M",
                "SADD t M",
                "SADD t M",
                "SREM t M",
                "SREM t M",
                "SMEMBERS t",
                "SMEMBERS t",
                "SCARD t",
                "SISMEMBER t M",
                "DEL t",
            ],
            _ => &[
                "ZINCRBY z 1 M",
                "ZINCRBY z 1 M",
                "ZINCRBY z V M",
                "ZSCORE z M",
                "ZSCORE z M",
                "ZADD z V M",
                "ZREM z M",
                "ZCARD z",
                "DEL z",
            ],
        };
        let (value, template) = (self.value(), self.random.of(templates));
        self.fill(mix, template, value, value)
    }

    fn fill(&mut self, mix: &Mix, template: &str, value: u64, other: u64) -> Command {
        let word = |word: &str| match word {
            "V" => value.to_string(),
            ".V" => format!(".{value}"),
            "W" => other.to_string(),
            "F" => format!("f{}", self.random.below(2)),
            "M" => format!("m{}", self.random.below(4)),
            letter if is_key(letter) => self.key(mix, letter).to_string(),
            word => word.to_string(),
        };
        template.split(' ').map(word).collect()
    }
}

/// Whether a word of a template is the letter of a type, for a key.
fn is_key(word: &str) -> bool {
    word.len() == 1 && word.as_bytes()[0].is_ascii_lowercase()
}

fn encode_exec(bytes: &mut Vec<u8>, commands: &[Command]) {
    encode_command(bytes, &["MULTI"]);
    commands.iter().for_each(|command| encode_command(bytes, command));
    encode_command(bytes, &["EXEC"]);
}

/// What a client finds in all keys while no other one is there.
pub fn read_all(server: &Server, keys: &[&str]) -> State {
    let mut client = Client::connect(server);
    keys.iter().for_each(|key| client.send_arguments(&read_of(key)));
    let read = |key: &&str| {
        let reply = client.receive().expect("the server is there");
        value_of(key, &reply).map(|value| (key.to_string(), value))
    };
    keys.iter().filter_map(read).collect()
}

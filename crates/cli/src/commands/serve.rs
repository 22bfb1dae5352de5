//! `fulgurite serve`: a server for Redis clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fulgurite::Durability;
use fulgurite::env::{Env, RealEnv, limit_arenas_to};
use fulgurite_server::{Config, Dispatch, Password, Server};

use crate::failure::Failure;
use crate::interrupt;
use crate::open::{Missing, with_database};
use crate::output::Output;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite serve --dir data
  fulgurite serve --dir data --bind 127.0.0.1:7000 --memory 4GiB
  FULGURITE_PASSWORD=secret fulgurite serve --dir data --bind 0.0.0.0:6379
  redis-cli SET greeting hello EX 100";

/// So many arenas of glibc serve a build without jemalloc: I/O threads, workers and the merger take and free memory all the time.
const ARENAS: u8 = 4;

/// How often it looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(20);

/// Serve a database to Redis clients: every write is durable when its reply arrives.
///
/// It speaks RESP2 and RESP3, and has strings, hashes, lists, sets, sorted sets, expiry, MULTI and WATCH; COMMAND lists what there is.
/// `DURABILITY none` or `DURABILITY async 100` lowers the level of one connection's own writes. The keys are in tables of the database that begin with
/// `redis:`. SIGTERM, SIGINT or SHUTDOWN ends it: it sends the replies that are due, and closes the database; a second one ends it at once, which
/// loses nothing that was acknowledged.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory; created if it is missing.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// An address to listen on; may be given several times. One that is not a loopback address needs a password, in the variable
    /// FULGURITE_PASSWORD.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6379")]
    bind: Vec<SocketAddr>,
    /// How many threads read commands and write replies; half of the processors if it is not given.
    #[arg(long, value_name = "COUNT")]
    io_threads: Option<usize>,
    /// How many threads run commands that read from disk; as many more run those that wait for room, and those that take long. As many as
    /// there are processors if it is not given, at least 2. More, as 16, pay where most reads miss the system's page cache, too.
    #[arg(long, value_name = "COUNT")]
    workers: Option<usize>,
    /// How many microseconds a thread that reads commands looks for the next one before it sleeps, while that pays; 0 is never. Costs processor
    /// time. 50 if it is not given, 0 with one processor.
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(..=1_000))]
    idle_poll: Option<u64>,
    /// How many clients may be connected at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    maxclients: usize,
    /// Where commands run: inline, on the thread that received them where they need not wait; filter, there only reads of keys that no
    /// memtable holds; or queue, each on a worker.
    #[arg(long, value_name = "WAY", default_value = "inline", value_parser = Dispatch::ALL.map(Dispatch::name))]
    dispatch: String,
    /// When a write is acknowledged on connections that do not say so themselves, with DURABILITY: sync, once it is durable; staged, once it
    /// is in the file of --staging; async:MS, at once, and
    /// it is durable so many milliseconds later at most; or none, at once, and it is durable when another one is.
    #[arg(long, value_name = "LEVEL", default_value = "sync", value_parser = durability)]
    durability: Durability,
}

/// A level of durability, as `--durability` has it.
fn durability(level: &str) -> Result<Durability, String> {
    match level.split_once(':') {
        None if level == "sync" => Ok(Durability::Sync),
        None if level == "none" => Ok(Durability::None),
        None if level == "staged" => Ok(Durability::Staged),
        Some(("async", ms)) => match ms.parse() {
            Ok(ms) => Ok(Durability::Async { interval: Duration::from_millis(ms) }),
            Err(_) => Err(format!("{ms:?} is not a number of milliseconds")),
        },
        _ => Err("the levels are sync, staged, async:MS and none".into()),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = config(args)?;
    interrupt::listen()?;
    limit_arenas_to(ARENAS);
    let env = RealEnv::new();
    with_database(&args.dir, Missing::Create, |db| {
        let server = Server::start(db.clone(), config).map_err(|error| Failure::new(error.to_string()))?;
        let mut output = Output::new();
        for address in server.addresses() {
            output.line(format!("listening on {address}, with the data in {}", args.dir.display()))?;
        }
        output.flush()?;
        while !interrupt::asked() && !server.is_stopping() {
            env.clock().sleep(LOOK);
        }
        server.stop();
        Ok(())
    })
}

fn config(args: &Args) -> Result<Config, Failure> {
    let mut config = Config::default();
    config.bind.clone_from(&args.bind);
    config.io_threads = args.io_threads.unwrap_or(config.io_threads);
    config.workers = args.workers.unwrap_or(config.workers);
    config.idle_poll = args.idle_poll.map_or(config.idle_poll, Duration::from_micros);
    config.clients_max = args.maxclients;
    config.durability = args.durability;
    let dispatch = Dispatch::ALL.into_iter().find(|dispatch| dispatch.name() == args.dispatch);
    config.dispatch = dispatch.expect("clap refuses other names");
    let password = std::env::var("FULGURITE_PASSWORD").ok().filter(|password| !password.is_empty());
    config.password = password.map(Password::new);
    config.validate().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(config)
}

//! Starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use fulgurite::Database;
use fulgurite::env::{Env, Joiner, RealEnv};
use mio::net::TcpListener;

use crate::clients::Clients;
use crate::command::Directives;
use crate::cursors::Cursors;
use crate::io::{Inbox, IoThread};
use crate::locks::KeyLocks;
use crate::model::{Counts, Model};
use crate::pause::Pause;
use crate::read_ahead::{self, ReadAhead};
use crate::reclaim::{self, Reclaimed};
use crate::runner::Pool;
use crate::saves::Saves;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::tallies::Tallies;
use crate::worker::{self, Queues};
use crate::{Config, StartError};

/// A running server. Dropping it stops it as [`Server::stop`] does. The database stays open while handles to it live.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    io_threads: Vec<Box<dyn Joiner>>,
    /// By their pool.
    workers: [Vec<Box<dyn Joiner>>; Pool::ALL.len()],
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server over an open database, whose tables `redis:...` it owns.
    ///
    /// # Errors
    /// [`StartError`]: no thread was left running.
    pub fn start(db: Database, config: Config) -> Result<Server, StartError> {
        config.validate_for(&db)?;
        let threads = config.io_threads + Pool::ALL.len() * config.workers + 1;
        let env = RealEnv::new();
        let model = Model::open(&db, threads, env.random_u64())?;
        let mut listeners = Vec::new();
        for &address in &config.bind {
            let listen = TcpListener::bind(address);
            listeners.push(listen.map_err(|source| StartError::Listen { address, source })?);
        }
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        // Of a server that ran over the same database before, too.
        db.wait_durable(db.visible_csn())?;
        let mut counts = Counts::load(&db, &model.tables, threads)?.into_iter();
        let mut next_counts = || counts.next().expect("there are some for each thread");
        let polls = (0..config.io_threads).map(|_| mio::Poll::new()).collect::<Result<Vec<_>, _>>()?;
        let inboxes = polls.iter().map(Inbox::new).collect::<Result<Vec<_>, _>>()?;
        let inbox_count = inboxes.len();
        let shared = Arc::new(Shared {
            saves: Arc::new(Saves::new(&db)),
            clients: Clients::new(db.program_memory()),
            settings: Settings::new(&config),
            directives: Directives::new(&config, &addresses, &db),
            db,
            env: env.clone(),
            model,
            config,
            locks: KeyLocks::new(),
            cursors: Cursors::new(env.random_u64()),
            reclaimed: Reclaimed::default(),
            dividing: Default::default(),
            split_blocks: AtomicU64::new(0),
            arrivals: Default::default(),
            long_replies: Default::default(),
            queues: Queues::default(),
            read_ahead: ReadAhead::default(),
            inboxes: inboxes.into_iter().map(Arc::new).collect(),
            accepted: AtomicU64::new(0),
            newest_id: AtomicU64::new(0),
            connected: AtomicUsize::new(0),
            rejected: AtomicU64::new(0),
            pause: Pause::default(),
            commands: Tallies::new(threads),
            started_ns: env.clock().monotonic_ns(),
            run_id: run_id(&*env),
            io_threads: AtomicUsize::new(inbox_count),
            last_open: Default::default(),
            is_stopping: AtomicBool::new(false),
            stopping: Default::default(),
        });
        let mut server = Server { shared, addresses, io_threads: Vec::new(), workers: Default::default() };
        for (number, poll) in polls.into_iter().enumerate() {
            let listeners = if number == 0 { std::mem::take(&mut listeners) } else { Vec::new() };
            let thread = IoThread::new(&server.shared, number, poll, listeners, next_counts())?;
            let shared = server.shared.clone();
            let body = move || {
                thread.run();
                shared.end_io_thread();
            };
            let spawned = env.spawn(&format!("fg-io-{number}"), Box::new(body))?;
            server.io_threads.push(spawned);
        }
        server.spawn_workers(&*env, &mut next_counts)?;
        Ok(server)
    }

    fn spawn_workers(
        &mut self,
        env: &dyn Env,
        next_counts: &mut dyn FnMut() -> Counts,
    ) -> std::io::Result<()> {
        for number in 0..self.shared.config.workers {
            for pool in Pool::ALL {
                let (shared, counts) = (self.shared.clone(), next_counts());
                let body = move || worker::run(&shared, counts, pool);
                let spawned = env.spawn(&format!("fg-{}-{number}", pool.name()), Box::new(body))?;
                self.workers[pool as usize].push(spawned);
            }
        }
        let (shared, counts) = (self.shared.clone(), next_counts());
        self.workers[0].push(env.spawn("fg-reclaim", Box::new(move || reclaim::run(&shared, counts)))?);
        for number in 0..read_ahead::THREADS {
            let shared = self.shared.clone();
            let spawned =
                env.spawn(&format!("fg-ahead-{number}"), Box::new(move || read_ahead::run(&shared)))?;
            self.workers[0].push(spawned);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The addresses on which it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether it stops: [`Server::stop`] was called, or a client sent `SHUTDOWN`. The program drops it then, and ends.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::SeqCst)
    }

    /// Stops it: accepts no connection and reads no command any more, sends the replies of those that ran as they become durable,
    /// within five seconds, and closes all connections.
    pub fn stop(self) {
        drop(self);
    }
}

/// 40 hexadecimal digits.
fn run_id(env: &dyn Env) -> String {
    let digits: String = (0..3).map(|_| format!("{:016x}", env.random_u64())).collect();
    digits[..40].into()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.begin_stop();
        self.io_threads.drain(..).for_each(|thread| _ = thread.join());
        self.shared.read_ahead.close();
        // Workers hand on to the other pools, and these to none.
        for (pool, threads) in Pool::ALL.into_iter().zip(&mut self.workers) {
            self.shared.queues.close(pool);
            threads.drain(..).for_each(|thread| _ = thread.join());
        }
        self.shared.saves.wait();
    }
}

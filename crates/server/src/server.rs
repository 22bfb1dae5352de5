//! Starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use fulgurite::Database;
use mio::net::TcpListener;

use crate::io::{Inbox, IoThread, Message};
use crate::locks::KeyLocks;
use crate::model::Model;
use crate::shared::Shared;
use crate::worker::{self, Queue};
use crate::{Config, StartError, reclaim};

/// A running server. Dropping it stops it as [`Server::stop`] does. The database stays open while handles to it live.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    io_threads: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
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
        config.validate()?;
        let model = Model::open(&db)?;
        let mut listeners = Vec::new();
        for &address in &config.bind {
            let listen = TcpListener::bind(address);
            listeners.push(listen.map_err(|source| StartError::Listen { address, source })?);
        }
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let polls = (0..config.io_threads).map(|_| mio::Poll::new()).collect::<Result<Vec<_>, _>>()?;
        let inboxes = polls.iter().map(Inbox::new).collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared {
            db,
            model,
            config,
            locks: KeyLocks::new(),
            queue: Queue::default(),
            inboxes: inboxes.into_iter().map(Arc::new).collect(),
            accepted: AtomicU64::new(0),
            newest_id: AtomicU64::new(0),
            connected: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        });
        let mut server = Server { shared, addresses, io_threads: Vec::new(), workers: Vec::new() };
        for (number, poll) in polls.into_iter().enumerate() {
            let listeners = if number == 0 { std::mem::take(&mut listeners) } else { Vec::new() };
            let thread = IoThread::new(&server.shared, number, poll, listeners)?;
            let spawned =
                std::thread::Builder::new().name(format!("fg-io-{number}")).spawn(move || thread.run());
            server.io_threads.push(spawned?);
        }
        for number in 0..server.shared.config.workers {
            let shared = server.shared.clone();
            let stripe = (server.shared.config.io_threads + number) as u32;
            let spawned = std::thread::Builder::new()
                .name(format!("fg-worker-{number}"))
                .spawn(move || worker::run(&shared, stripe));
            server.workers.push(spawned?);
        }
        let shared = server.shared.clone();
        let stripe = (server.shared.config.io_threads + server.shared.config.workers) as u32;
        let reclaimer =
            std::thread::Builder::new().name("fg-expiry".into()).spawn(move || reclaim::run(&shared, stripe));
        server.workers.push(reclaimer?);
        Ok(server)
    }

    /// The addresses on which it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops it: accepts no connection and reads no command any more, sends the replies of those that ran as they become durable,
    /// within five seconds, and closes all connections.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
        self.io_threads.drain(..).for_each(|thread| _ = thread.join());
        self.shared.queue.close();
        self.workers.drain(..).for_each(|thread| {
            thread.thread().unpark();
            _ = thread.join();
        });
    }
}

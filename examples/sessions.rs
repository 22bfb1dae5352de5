//! Sessions of a web server: async handlers, keys that expire, commits that are awaited.
//!
//! ```text
//! cargo run -p fulgurite --example sessions [DIR]
//! ```
//!
//! What is worth copying:
//! - A session is a key that expires. No job cleans up: an expired key is gone for every reader, and maintenance takes its
//!   space.
//! - `commit_deferred` gives a ticket, and a ticket is a future: while the disk works, no thread waits. All that commit
//!   meanwhile share its write.
//! - What may block (a read from disk, a transaction that is retried) runs in `spawn_blocking`; what memory answers does not.
//! - An extension of a session need not be durable at once: `Durability::Async` says how much later it may be.

use std::path::Path;
use std::time::Duration;

use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, Durability, Error, Options, Table};
use tokio::task::spawn_blocking;

/// Why a request is not served.
#[derive(Debug)]
enum SessionError {
    /// There is no such session, or not any more.
    LoggedOut,
    /// The database said no; `Error::kind` tells what to do.
    Storage(Error),
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionError::LoggedOut => write!(f, "log in again"),
            SessionError::Storage(error) => write!(f, "{error}"),
        }
    }
}

/// What `?` needs, and `Database::transact_as`.
impl From<Error> for SessionError {
    fn from(error: Error) -> SessionError {
        SessionError::Storage(error)
    }
}

/// Cheap to clone: each handler has one. The database stays open as long as one of them lives.
#[derive(Clone)]
struct Sessions {
    db: Database,
    /// Token to user.
    sessions: Table,
    /// User, a zero byte, token: which sessions a user has.
    by_user: Table,
    /// How long a session lives without being used.
    idle: Duration,
}

impl Sessions {
    fn open(dir: &Path, idle: Duration) -> fulgurite::Result<Sessions> {
        let db = Database::open(dir, Options::default())?;
        Ok(Sessions { sessions: db.table("sessions")?, by_user: db.table("sessions by user")?, db, idle })
    }

    /// Logs a user in. When it returns, the session survives a power cut.
    async fn log_in(&self, user: &str) -> Result<String, SessionError> {
        let token = new_token();
        let ticket = {
            // The transaction ends before the `.await`. Do not hold one across it: that compiles, but while the future
            // sleeps the transaction keeps old versions on disk, and what others commit meanwhile may conflict with it.
            let mut txn = self.db.begin();
            txn.put_expiring(&self.sessions, &token, user, self.idle)?;
            txn.put_expiring(&self.by_user, user_key(user, &token), "", self.idle)?;
            txn.commit_deferred()?
        };
        ticket.await?;
        Ok(token)
    }

    /// Whose session it is.
    async fn user(&self, token: &str) -> Result<String, SessionError> {
        let found = match self.sessions.try_get(token) {
            // It is not in memory: the read goes where it may block.
            Err(Error::WouldBlock(_)) => {
                let (sessions, token) = (self.sessions.clone(), token.to_string());
                spawn_blocking(move || sessions.get(token)).await.expect("a read does not panic")
            }
            found => found,
        };
        let user = found?.ok_or(SessionError::LoggedOut)?;
        Ok(String::from_utf8_lossy(&user).into_owned())
    }

    /// Lets a session live on, if it is not over. A logout beside it wins: one of the two conflicts, and is run again.
    async fn extend(&self, token: &str) -> Result<(), SessionError> {
        let (this, token) = (self.clone(), token.to_string());
        let extend = move || {
            this.db.transact_as(|txn| {
                // A crash may undo the extension within this time: that costs one login.
                txn.set_durability(Durability::Async { interval: Duration::from_secs(1) })?;
                let Some(user) = txn.get(&this.sessions, &token)? else {
                    return Err(SessionError::LoggedOut);
                };
                txn.expire_at(&this.sessions, &token, this.idle)?;
                txn.expire_at(&this.by_user, user_key(&String::from_utf8_lossy(&user), &token), this.idle)?;
                Ok(())
            })
        };
        spawn_blocking(extend).await.expect("it does not panic")
    }

    /// Ends all sessions of a user, also those that begin while it runs; returns how many it found.
    async fn log_out_everywhere(&self, user: &str) -> Result<usize, SessionError> {
        let (this, prefix) = (self.clone(), user_key(user, ""));
        let log_out = move || {
            this.db.transact(|txn| {
                let mut tokens = Vec::new();
                for entry in txn.prefix(&this.by_user, &prefix)? {
                    tokens.push(entry?.0[prefix.len()..].to_vec());
                }
                for token in &tokens {
                    txn.delete(&this.sessions, token)?;
                }
                // The range was read and is written: a login in between is a conflict, and all of this runs again.
                txn.delete_prefix(&this.by_user, &prefix)?;
                Ok(tokens.len())
            })
        };
        Ok(spawn_blocking(log_out).await.expect("it does not panic")?)
    }
}

fn user_key(user: &str, token: &str) -> String {
    format!("{user}\0{token}")
}

/// 128 random bits from the operating system. A program of yours takes them from `getrandom` or `rand`: this is what is at
/// hand without another dependency.
fn new_token() -> String {
    let env = RealEnv::new();
    format!("{:016x}{:016x}", env.random_u64(), env.random_u64())
}

#[tokio::main]
async fn main() -> Result<(), SessionError> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let dir = std::env::args().nth(1).map_or(scratch.path().join("sessions.db"), Into::into);
    run(&dir).await
}

async fn run(dir: &Path) -> Result<(), SessionError> {
    let sessions = Sessions::open(dir, Duration::from_secs(30 * 60))?;

    // A hundred users log in at once; their commits share writes.
    let logins = (0..100).map(|n| {
        let sessions = sessions.clone();
        tokio::spawn(async move { sessions.log_in(&format!("user {n}")).await })
    });
    let mut tokens = Vec::new();
    for login in logins.collect::<Vec<_>>() {
        tokens.push(login.await.expect("a login does not panic")?);
    }
    assert_eq!(sessions.user(&tokens[7]).await?, "user 7");
    sessions.extend(&tokens[7]).await?;

    let second = sessions.log_in("user 7").await?;
    assert_eq!(sessions.log_out_everywhere("user 7").await?, 2);
    for token in [&tokens[7], &second] {
        assert!(matches!(sessions.user(token).await, Err(SessionError::LoggedOut)));
        assert!(matches!(sessions.extend(token).await, Err(SessionError::LoggedOut)));
    }

    // A session that is not used ends by itself.
    let short = Sessions { idle: Duration::from_millis(50), ..sessions.clone() };
    let token = short.log_in("guest").await?;
    while short.user(&token).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("99 users are logged in, one logged out, one guest was forgotten");

    // Handles are left, in `sessions`: `close` closes for all of them, and reports what a drop can only log.
    short.db.close()?;
    Ok(())
}

#[tokio::test]
async fn the_page_works() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("sessions.db")).await.unwrap();
}

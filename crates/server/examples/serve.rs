//! Serves a database: `cargo run --release -p fulgurite-server --example serve -- DIR ADDRESS [lead|watch|auto] [queue|filter|inline] [threads=N]`.
//! It stops, and closes the database, when its standard input ends.

use std::error::Error;
use std::io::Read;

use fulgurite::{Database, Options};
use fulgurite_server::{Config, Dispatch, Flushing, Server};

fn main() -> Result<(), Box<dyn Error>> {
    fulgurite::env::limit_arenas();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, address, options @ ..] = &arguments[..] else {
        return Err("usage: serve DIR ADDRESS [lead|watch|auto] [queue|filter|inline] [threads=N]".into());
    };
    let mut config = Config::default();
    config.bind = vec![address.parse()?];
    for option in options {
        match &**option {
            "lead" => config.flushing = Flushing::Lead,
            "watch" => config.flushing = Flushing::Watch,
            "auto" => config.flushing = Flushing::Auto,
            "queue" => config.dispatch = Dispatch::Queue,
            "filter" => config.dispatch = Dispatch::Filter,
            "inline" => config.dispatch = Dispatch::Inline,
            other => match other.strip_prefix("threads=") {
                Some(count) => config.io_threads = count.parse()?,
                None => return Err(format!("there is no option {other}").into()),
            },
        }
    }
    let db = Database::open(dir, Options::default())?;
    let server = Server::start(db.clone(), config)?;
    println!("listening on {:?}", server.addresses());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    db.close()?;
    Ok(())
}

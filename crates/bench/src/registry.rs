//! The engines of a program, by name.

use std::sync::Arc;

use fulgurite::{FlushScheme, Options, Waiting};
use fulgurite_server::Dispatch;

use crate::child::with_causes;
use crate::command::parse::bytes;
use crate::engine::Engine;
use crate::fulgurite_engine::FulguriteEngine;
use crate::io::IoCounts;
use crate::server_engine::ServerEngine;

/// Engines beside Fulgurite, and Fulgurite with any options.
#[derive(Default)]
pub struct Registry {
    peers: Vec<Arc<dyn Engine>>,
    process_io: Option<fn() -> IoCounts>,
}

/// Fulgurite's name, before its options.
const FULGURITE: &str = "fulgurite";

/// The options after `fulgurite:`, joined by `+`.
pub const FULGURITE_OPTIONS: &str = "own-lsn, aggregated, combined (how commits share flushes), block, \
                                     spin-then-block (what committers do meanwhile), buffered (a log in the page \
                                     cache), checkpoint-log-bytes=SIZE (the log that makes a checkpoint due: 64MiB), \
                                     staging=COUNTxSIZE (the buffers of staged: 2x8MiB), no-gc \
                                     (without garbage collection); server (over sockets), with queue, filter, inline (where \
                                     commands run), memtables (single reads look at the memtables alone)";

impl Registry {
    /// These engines and Fulgurite. `process_io` counts the file calls of the process, for engines that do not count
    /// their own.
    pub fn new(peers: Vec<Box<dyn Engine>>, process_io: Option<fn() -> IoCounts>) -> Registry {
        Registry { peers: peers.into_iter().map(Arc::from).collect(), process_io }
    }

    /// The names of all engines, Fulgurite's without options first.
    pub fn names(&self) -> Vec<&str> {
        std::iter::once(FULGURITE).chain(self.peers.iter().map(|engine| engine.name())).collect()
    }

    /// Counts the file calls of the process.
    pub fn process_io(&self) -> Option<fn() -> IoCounts> {
        self.process_io
    }

    /// The engine of that name: `fulgurite`, `fulgurite:own-lsn+block`, or the name of a peer.
    /// `assume_power_safe_cache` is that of the [`Options`].
    ///
    /// # Errors
    /// A sentence that lists the names.
    pub fn find(&self, name: &str, assume_power_safe_cache: bool) -> Result<Arc<dyn Engine>, String> {
        if let Some(peer) = self.peers.iter().find(|engine| engine.name() == name) {
            return Ok(peer.clone());
        }
        if let Some(words) =
            name.strip_prefix("fulgurite:").filter(|words| words.split('+').any(|word| word == SERVER))
        {
            return Ok(Arc::new(server(name, words)?));
        }
        let options = Options { assume_power_safe_cache, ..Options::default() };
        let mut engine = FulguriteEngine::new(name, options);
        match (name.strip_prefix(FULGURITE), name.split_once(':')) {
            (Some(""), _) => {}
            (Some(_), Some((FULGURITE, words))) => set_options(&mut engine, words)?,
            _ => return Err(format!("there is no engine `{name}`: there are {}", self.names().join(", "))),
        }
        Ok(Arc::new(engine))
    }
}

/// Features that figures want of Fulgurite and that it lacks: by the option that asks for them.
const MISSING: [(&str, &str); 1] = [("lsm", "LSM tables")];

/// The word that asks for the server.
const SERVER: &str = "server";

/// The server of this name, which has words after that of the server.
fn server(name: &str, words: &str) -> Result<ServerEngine, String> {
    let mut engine =
        ServerEngine { name: name.into(), dispatch: Dispatch::default(), reads_memtables: false };
    for word in words.split('+').filter(|word| *word != SERVER) {
        match Dispatch::ALL.into_iter().find(|dispatch| dispatch.name() == word) {
            Some(dispatch) => engine.dispatch = dispatch,
            None if word == "memtables" => engine.reads_memtables = true,
            None => {
                return Err(format!("`{word}` is no option of the server: there are {FULGURITE_OPTIONS}"));
            }
        }
    }
    Ok(engine)
}

fn set_options(engine: &mut FulguriteEngine, words: &str) -> Result<(), String> {
    let options = &mut engine.options;
    for word in words.split('+') {
        if let Some((_, missing)) = MISSING.iter().find(|(asked, _)| *asked == word) {
            engine.missing = Some(missing);
            continue;
        }
        if let Some(size) = word.strip_prefix("checkpoint-log-bytes=") {
            options.checkpoint_log_bytes = bytes(size).map_err(|why| format!("`{word}`: {why}"))?;
            continue;
        }
        if let Some(buffers) = word.strip_prefix("staging=") {
            engine.staging = staging(buffers).map_err(|why| format!("`{word}`: {why}"))?;
            continue;
        }
        let scheme = FlushScheme::ALL.into_iter().find(|scheme| scheme.name() == word);
        let waiting =
            [Waiting::Block, Waiting::SpinThenBlock].into_iter().find(|waiting| waiting.name() == word);
        match (scheme, waiting) {
            (Some(scheme), _) => options.research.flush_scheme = scheme,
            (_, Some(waiting)) => options.research.waiting = waiting,
            _ if word == "buffered" => options.direct_io = false,
            _ if word == "no-gc" => options.research.collect = false,
            _ => return Err(format!("`{word}` is no option of {FULGURITE}: there are {FULGURITE_OPTIONS}")),
        }
    }
    options.validate().map_err(|why| with_causes(&why))
}

/// Staging buffers: `2x8MiB`.
fn staging(text: &str) -> Result<(u32, u32), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(count, each)| Some((count.parse().ok()?, u32::try_from(bytes(each).ok()?).ok()?)));
    parsed.ok_or_else(|| "a number and a size are expected, as in 2x8MiB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_in_the_name() {
        let registry = Registry::default();
        for good in [
            "fulgurite",
            "fulgurite:own-lsn",
            "fulgurite:aggregated+block",
            "fulgurite:buffered",
            "fulgurite:no-gc",
            "fulgurite:server",
            "fulgurite:server+filter+memtables",
            "fulgurite:checkpoint-log-bytes=2MiB+block",
            "fulgurite:staging=1x1MiB",
        ] {
            assert_eq!(
                registry.find(good, false).map(|engine| engine.name().to_string()).as_deref(),
                Ok(good)
            );
        }
        for bad in [
            "fulgurit",
            "fulguritex",
            "fulgurite:",
            "fulgurite:fast",
            "fulgurite:queue",
            "fulgurite:server+fast",
            "fulgurite:staging=2",
            "fulgurite:staging=2x8MB",
            "fulgurite:checkpoint-log-bytes=2",
            "fulgurite:checkpoint-log-bytes=2MB",
            "rocksdb",
            "",
        ] {
            assert!(registry.find(bad, false).is_err(), "{bad}");
        }
        let refused = |name| registry.find(name, false).map(|_| ()).unwrap_err();
        let error = refused("fulgurite:checkpoint-log-bytes=2");
        assert!(error.contains("checkpoint_log_bytes is 2, allowed is 1048576 to"), "{error}");
        let about = registry.find("fulgurite:checkpoint-log-bytes=2MiB", false).map(|engine| engine.about());
        assert!(about.as_ref().is_ok_and(|about| about.ends_with("after 2 MiB of log")), "{about:?}");
        let error = refused("rocksdb");
        assert_eq!(error, "there is no engine `rocksdb`: there are fulgurite");
    }
}

//! The bytes to load: read, and decompressed if need be, on a thread of its own.

mod lines;

#[cfg(test)]
pub(crate) use lines::ESCAPED_BYTES_MAX;
pub(crate) use lines::{Lines, Step};

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use fulgurite::env::Env;

use crate::failure::Failure;
use crate::{interrupt, io as files};

const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait for the parser.
const CHUNKS_AHEAD: usize = 8;
/// How long to wait for input before reporting that there is none at the moment.
const IDLE: Duration = Duration::from_millis(100);
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What comes next from a [`Source`].
pub(crate) enum Event {
    /// Some bytes, at least one.
    Data(Vec<u8>),
    /// No input for a while.
    Idle,
    /// A signal asked to end.
    Interrupted,
    /// The end of the input.
    End,
}

/// A file or standard input, as decompressed bytes.
pub(crate) struct Source {
    /// An empty chunk is the end.
    chunks: Receiver<io::Result<Vec<u8>>>,
    consumed: Arc<AtomicU64>,
    name: String,
    size: Option<u64>,
    ended: bool,
}

impl Source {
    /// Opens the file `path`, or standard input if that is missing or `-`, and begins to read.
    pub fn open(env: &dyn Env, path: Option<&Path>) -> Result<Source, Failure> {
        let input = files::open_input(path)?;
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        let consumed = Arc::new(AtomicU64::new(0));
        let counted = Counted { reader: input.reader, consumed: consumed.clone() };
        let whole_chunks = input.size.is_some();
        let body = move || pump(counted, whole_chunks, &sender);
        // The thread ends by itself at the end of the input, or with the process if there is no end.
        let thread = env.spawn("fulgurite-input", Box::new(body));
        thread.map_err(|error| Failure::new(format!("starting the thread that reads the input: {error}")))?;
        Ok(Source { chunks, consumed, name: input.name, size: input.size, ended: false })
    }

    /// The input's name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of the input file, compressed if it is; `None` if the input is no file.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// How many bytes of the input file were read, compressed if it is; the count keeps growing.
    pub fn consumed(&self) -> Arc<AtomicU64> {
        self.consumed.clone()
    }

    /// Waits for the next event.
    pub fn next(&mut self) -> Result<Event, Failure> {
        if interrupt::asked() {
            return Ok(Event::Interrupted);
        }
        if self.ended {
            return Ok(Event::End);
        }
        match self.chunks.recv_timeout(IDLE) {
            Ok(Ok(chunk)) if chunk.is_empty() => {
                self.ended = true;
                Ok(Event::End)
            }
            Ok(Ok(chunk)) => Ok(Event::Data(chunk)),
            Ok(Err(error)) => Err(Failure::file("reading", &self.name, &error)),
            Err(RecvTimeoutError::Timeout) => Ok(Event::Idle),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::new(format!("reading {}: the thread that reads it has died", self.name)))
            }
        }
    }
}

/// Counts the bytes that are read.
struct Counted {
    reader: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Sends all chunks, then an empty one; or an error. Ends early if the receiver is gone.
fn pump(reader: Counted, whole_chunks: bool, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let last = match open_decoder(reader).and_then(|mut reader| send_all(&mut *reader, whole_chunks, sender))
    {
        Ok(()) => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    // The receiver is gone if the load has failed or was interrupted; the load has reported that itself.
    let _ = sender.send(last);
}

/// Detects compressed input by its first bytes.
fn open_decoder(reader: Counted) -> io::Result<Box<dyn Read>> {
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, reader);
    let mut head = [0; GZIP_MAGIC.len()];
    let mut filled = 0;
    // A pipe may deliver the first two bytes one by one.
    while filled < head.len() && head[..filled] == GZIP_MAGIC[..filled] {
        match reader.read(&mut head[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    let rest = io::Cursor::new(head).take(filled as u64).chain(reader);
    Ok(match head == GZIP_MAGIC && filled == head.len() {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(CHUNK_BYTES, rest))),
        false => Box::new(rest),
    })
}

fn send_all(
    reader: &mut dyn Read,
    whole_chunks: bool,
    sender: &SyncSender<io::Result<Vec<u8>>>,
) -> io::Result<()> {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut filled = 0;
        loop {
            match reader.read(&mut chunk[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if !whole_chunks || filled == chunk.len() {
                break;
            }
        }
        chunk.truncate(filled);
        if filled == 0 || sender.send(Ok(chunk)).is_err() {
            return Ok(());
        }
    }
}

/// A source for parsers that pull bytes; a signal is an error that [`SourceReader::interrupted`] distinguishes.
pub(crate) struct SourceReader {
    source: Source,
    chunk: Vec<u8>,
    at: usize,
    interrupted: bool,
    failure: Option<Failure>,
}

impl SourceReader {
    pub fn new(source: Source) -> SourceReader {
        SourceReader { source, chunk: Vec::new(), at: 0, interrupted: false, failure: None }
    }

    /// Whether the last error was a signal.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// The failure that caused the last error.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }
}

impl Read for SourceReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let read = available.len().min(buf.len());
        buf[..read].copy_from_slice(&available[..read]);
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for SourceReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.chunk.len() {
            match self.source.next() {
                Ok(Event::Data(chunk)) => (self.chunk, self.at) = (chunk, 0),
                Ok(Event::Idle) => {}
                Ok(Event::End) => break,
                Ok(Event::Interrupted) => {
                    self.interrupted = true;
                    return Err(io::Error::other("a signal asked to end"));
                }
                Err(failure) => {
                    self.failure = Some(failure);
                    return Err(io::Error::other("reading failed"));
                }
            }
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

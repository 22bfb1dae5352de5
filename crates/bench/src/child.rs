//! A run in a process of its own: its memory, its processor time and its writes are those of one engine, and an engine
//! that dies does not harm other runs.
//!
//! The parent starts its own program with some arguments, which lead it to [`serve`], and writes a [`Job`] to its
//! standard input: one line of JSON. The child replies with lines of JSON, [`Message`]s. It ends its run early when its
//! standard input ends, and at once if its parent is gone.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use fulgurite::env::Env;
use serde::{Deserialize, Serialize};

use crate::measurement::{Measurement, Stage, Watcher};
use crate::plan::{Configuration, DataPoint};
use crate::registry::Registry;
use crate::run::Run;
use crate::{Error, Result};

/// One run, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The engine and its level.
    pub configuration: Configuration,
    /// The workload and its load.
    pub data_point: DataPoint,
    /// The operator's word about the device's cache: see [`Registry::find`].
    pub assume_power_safe_cache: bool,
    /// An empty directory for the store.
    pub dir: PathBuf,
}

/// A line of the child's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Stage(Stage),
    Run(Option<Box<Run>>),
    Failed(String),
    Refused(String),
}

/// How often a child that was asked to end checks whether its parent still runs.
const ORPHAN_POLL: Duration = Duration::from_millis(100);

/// The interval at which a child reports its stage.
const STAGE_EVERY_NS: u64 = 100_000_000;
/// How often a parent checks whether to continue while its child is silent.
const LOOK: Duration = Duration::from_millis(100);
/// A child whose run makes no progress for this long hangs. The longest silent steps are checking a store and closing
/// it.
const STANDSTILL_NS_MAX: u64 = 300_000_000_000;
/// A child that was asked to end has this long to do so.
const ENDING_NS_MAX: u64 = 30_000_000_000;

/// Where runs happen.
#[derive(Clone, Debug)]
pub enum Process {
    /// In this process: for tests, and for programs that have nothing else to do.
    Here,
    /// In a child: this program with these arguments.
    Child(PathBuf, Vec<String>),
}

impl Process {
    /// Does a job.
    ///
    /// # Errors
    /// The error of the run; [`Error::Died`] if the child dies.
    pub fn run(
        &self,
        env: &Arc<dyn Env>,
        registry: &Registry,
        job: &Job,
        watcher: Watcher<'_>,
    ) -> Result<Option<Run>> {
        match self {
            Process::Here => job.run(env, registry, watcher),
            Process::Child(program, args) => {
                let child =
                    Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
                let what = format!("starting {} for a run", program.display());
                Parent { env, child: child.map_err(Error::io(what))? }.run(job, watcher)
            }
        }
    }
}

impl Job {
    fn run(&self, env: &Arc<dyn Env>, registry: &Registry, watcher: Watcher<'_>) -> Result<Option<Run>> {
        let engine = registry.find(&self.configuration.engine, self.assume_power_safe_cache);
        let engine = engine.map_err(|why| Error::engine("looking for the engine", why))?;
        let workload = self.data_point.workload.build();
        let process_io = registry.process_io();
        Measurement { env, job: self, workload: &*workload, engine: &*engine, process_io }.run(watcher)
    }
}

/// A child that is waited for, or killed, on drop.
struct Parent<'a> {
    env: &'a Arc<dyn Env>,
    child: Child,
}

impl Parent<'_> {
    fn run(mut self, job: &Job, watcher: Watcher<'_>) -> Result<Option<Run>> {
        let mut stdin = self.child.stdin.take();
        let messages = self.listen()?;
        if let Some(stdin) = &mut stdin {
            send_job(stdin, job)?;
        }
        let clock = self.env.clock();
        let mut stage = Stage::Filling(0.0);
        let mut changed_ns = clock.monotonic_ns();
        let mut asked_ns = None;
        loop {
            match messages.recv_timeout(LOOK) {
                Ok(Message::Run(run)) => return Ok(run.map(|run| *run)),
                Ok(Message::Failed(what)) => return Err(Error::Remote(what)),
                Ok(Message::Refused(why)) => return Err(Error::Refused(why)),
                Ok(Message::Stage(now)) if now != stage => (stage, changed_ns) = (now, clock.monotonic_ns()),
                Ok(Message::Stage(_)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.died(job),
            }
            let now_ns = clock.monotonic_ns();
            if !watcher(stage) && asked_ns.is_none() {
                drop(stdin.take());
                asked_ns = Some(now_ns);
            }
            if asked_ns.is_some_and(|asked_ns| now_ns - asked_ns > ENDING_NS_MAX) {
                return Ok(None);
            }
            if now_ns - changed_ns > STANDSTILL_NS_MAX {
                let seconds = STANDSTILL_NS_MAX / 1_000_000_000;
                return Err(Error::engine(
                    "running",
                    format!("it hung: it made no progress for {seconds} s"),
                ));
            }
        }
    }

    /// The messages of the child, from a thread that ends with the child.
    fn listen(&mut self) -> Result<Receiver<Message>> {
        let stdout = self.child.stdout.take().expect("it was asked for");
        let (sender, messages) = channel();
        let listen = move || {
            for message in messages_of(stdout) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        };
        let started = self.env.spawn("bench-listener", Box::new(listen));
        started.map_err(Error::io("starting a thread"))?;
        Ok(messages)
    }

    fn died(mut self, job: &Job) -> Result<Option<Run>> {
        let status = self.child.wait().map_err(Error::io("waiting for the process of a run"))?;
        Err(Error::engine(
            "running",
            format!("the process of {} ended without a result: {status}", job.configuration.engine),
        ))
    }
}

/// The messages in the child's output. Libraries print to standard output, too: other lines are skipped.
fn messages_of(stdout: ChildStdout) -> impl Iterator<Item = Message> {
    let lines = BufReader::new(stdout).split(b'\n').map_while(std::result::Result::ok);
    lines.filter_map(|line| serde_json::from_slice(&line).ok())
}

impl Drop for Parent<'_> {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The child has sent all its messages. Its shutdown does not matter, and a JVM may take its time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send_job(stdin: &mut ChildStdin, job: &Job) -> Result<()> {
    let line = serde_json::to_string(job).expect("a job can be written as JSON") + "\n";
    stdin.write_all(line.as_bytes()).map_err(Error::io("telling the process of a run what to do"))
}

/// The body of a child: does the job on standard input and reports on standard output.
///
/// # Errors
/// If standard input has no job, or the parent no longer reads. The error of a run goes to the parent.
pub fn serve(env: &Arc<dyn Env>, registry: &Registry) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(Error::io("reading a job"))?;
    let job: Job = serde_json::from_str(&line).map_err(|error| Error::engine("reading a job", error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let (parent, theirs) = (parent_id(), env.clone());
    let watch = move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        stopping.store(true, Ordering::Relaxed);
        while parent_id() == parent {
            theirs.clock().sleep(ORPHAN_POLL);
        }
        // The parent is gone, and does not wait for this run; an engine that hangs would keep the process forever.
        std::process::exit(1);
    };
    env.spawn("bench-parent", Box::new(watch)).map_err(Error::io("starting a thread"))?;
    let mut sent_ns = 0;
    let mut gone = false;
    let ran = job.run(env, registry, &mut |stage| {
        let now_ns = env.clock().monotonic_ns();
        if now_ns - sent_ns >= STAGE_EVERY_NS {
            sent_ns = now_ns;
            gone = gone || send(&Message::Stage(stage)).is_err();
        }
        !gone && !stop.load(Ordering::Relaxed)
    });
    send(&match ran {
        Ok(run) => Message::Run(run.map(Box::new)),
        Err(Error::Refused(why)) => Message::Refused(why),
        Err(error) => Message::Failed(with_causes(&error)),
    })
}

fn send(message: &Message) -> Result<()> {
    let line = serde_json::to_string(message).expect("a message can be written as JSON") + "\n";
    let mut stdout = std::io::stdout().lock();
    let sent = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
    sent.map_err(Error::io("reporting to the parent process"))
}

/// An error and what caused it, in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

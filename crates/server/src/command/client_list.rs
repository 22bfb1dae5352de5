//! `CLIENT LIST` and `CLIENT INFO`: a line for each connection.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::Missing;
use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::clients::Client;
use crate::context::Context;
use crate::stop::{ErrorReply, Result, Stop};

/// Types of clients, as Redis names them. All are normal ones here so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientType {
    Normal,
    Master,
    Replica,
    PubSub,
}

impl ClientType {
    pub fn parse(name: &[u8]) -> Result<ClientType> {
        match &*name.to_ascii_lowercase() {
            b"normal" => Ok(ClientType::Normal),
            b"master" => Ok(ClientType::Master),
            b"slave" | b"replica" => Ok(ClientType::Replica),
            b"pubsub" => Ok(ClientType::PubSub),
            _ => {
                let name = String::from_utf8_lossy(name);
                let message = format!("Unknown client type '{name}'");
                Err(Stop::Reply(ErrorReply { code: "ERR", message: message.into() }))
            }
        }
    }
}

/// Shows the session that runs the command: others were shown at the end of their turns.
fn show_own(context: &Context<'_>) {
    let client = &context.session.client;
    client.show(context.session);
    client.active_ms.store(context.shared.monotonic_ms(), Relaxed);
}

pub(super) fn info(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    show_own(context);
    let mut text = Vec::new();
    describe(&context.session.client, context.shared.monotonic_ms(), &mut text);
    context.reply().verbatim(*b"txt", &text);
    Ok(())
}

/// `CLIENT LIST [TYPE type | ID id [id ...]]`
pub(super) fn list(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (mut ids, mut kind) = (None, ClientType::Normal);
    match args.len() {
        2 => {}
        4 if args.is(2, "type") => kind = ClientType::parse(&args[3])?,
        4.. if args.is(2, "id") => {
            let numbers = args.from(3).iter().map(|id| parse_i64(id));
            let numbers: Option<BTreeSet<i64>> = numbers.collect();
            ids = Some(numbers.ok_or(ErrorReply::new("ERR", "Invalid client ID"))?);
        }
        _ => return Err(ErrorReply::SYNTAX.into()),
    }
    if !context.runner.may_wait() {
        // There may be thousands.
        return Err(Stop::Blocked(Missing::Latch));
    }
    show_own(context);
    let now_ms = context.shared.monotonic_ms();
    let mut text = Vec::new();
    for client in context.shared.clients.all() {
        let id = client.origin.id as i64;
        if kind == ClientType::Normal && ids.as_ref().is_none_or(|ids| ids.contains(&id)) {
            describe(&client, now_ms, &mut text);
        }
    }
    context.reply().verbatim(*b"txt", &text);
    Ok(())
}

/// Appends a connection's line, with the fields of Redis. Those that mean nothing here are 0.
fn describe(client: &Client, now_ms: u64, text: &mut Vec<u8>) {
    let origin = &client.origin;
    let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1_000;
    let (input, unsent) = (client.input_bytes.load(Relaxed), client.unsent_bytes.load(Relaxed));
    let (queued, queued_bytes) = (client.queued.load(Relaxed), client.queued_bytes.load(Relaxed));
    let names = client.names();
    let line = write!(
        text,
        "id={} addr={} laddr={} fd={}",
        origin.id, origin.address, origin.local, origin.descriptor
    );
    line.expect("memory takes it");
    text.extend_from_slice(b" name=");
    text.extend_from_slice(&names.name);
    let state = write!(
        text,
        " age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} watch={} qbuf={input} qbuf-free=0 argv-mem=0 \
         multi-mem={queued_bytes} rbs=0 rbp=0 obl=0 oll={} omem={unsent} tot-mem={} events={} cmd={} user=default redir=-1 \
         resp={}",
        seconds(origin.created_ms),
        seconds(client.active_ms.load(Relaxed)),
        match (client.is_killed(), queued > 0, client.is_kept.load(Relaxed)) {
            (true, ..) => "A",
            (_, true, true) => "xe",
            (_, true, false) => "x",
            (_, false, true) => "e",
            (_, false, false) => "N",
        },
        client.database.load(Relaxed),
        queued as i64 - 1,
        client.watched.load(Relaxed),
        u8::from(unsent > 0),
        client.buffer_bytes() + size_of::<Client>(),
        if unsent > 0 { "rw" } else { "r" },
        client.command.load(),
        if client.is_resp3.load(Relaxed) { 3 } else { 2 },
    );
    state.expect("memory takes it");
    for (field, value) in [(" lib-name=", &names.library), (" lib-ver=", &names.library_version)] {
        text.extend_from_slice(field.as_bytes());
        text.extend_from_slice(value);
    }
    text.push(b'\n');
}

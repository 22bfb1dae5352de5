//! The connection itself.

use std::time::Duration;

use fulgurite::Durability;
use fulgurite_resp::{Protocol, parse_i64};

use crate::args::Args;
use crate::context::Context;
use crate::stop::{ErrorReply, Result};

pub(super) fn ping(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    match args.get(1) {
        _ if args.len() > 2 => {
            return context.fail("ERR", "wrong number of arguments for 'ping' command".into());
        }
        Some(message) => context.reply().bulk(message),
        None => context.reply().simple(b"PONG"),
    }
    Ok(())
}

pub(super) fn echo(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    context.reply().bulk(&args[1]);
    Ok(())
}

pub(super) fn quit(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    context.session.has_quit = true;
    context.ok()
}

pub(super) fn reset(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let shared = context.shared;
    context.session.reset(!shared.settings.has_password(), shared.durability());
    context.reply().simple(b"RESET");
    Ok(())
}

/// Whether a user has this password. Without a configured one the default user has any.
fn is_password(context: &Context<'_>, user: &[u8], given: &[u8]) -> bool {
    context.shared.settings.is_password(given) && user == b"default"
}

const NO_PASSWORD: ErrorReply = ErrorReply::new(
    "ERR",
    "AUTH <password> called without any password configured for the default user. Are you sure your configuration is \
     correct?",
);

const WRONG_PASSWORD: ErrorReply =
    ErrorReply::new("WRONGPASS", "invalid username-password pair or user is disabled.");

pub(super) fn auth(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (user, password) = match args.len() {
        2 if !context.shared.settings.has_password() => return Err(NO_PASSWORD.into()),
        2 => (&b"default"[..], &args[1]),
        3 => (&args[1], &args[2]),
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    if !is_password(context, user, password) {
        return Err(WRONG_PASSWORD.into());
    }
    context.session.is_authenticated = true;
    context.ok()
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`: changes nothing if any of it is wrong.
pub(super) fn hello(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let mut protocol = context.session.protocol;
    if let Some(version) = args.get(1) {
        let version = parse_i64(version)
            .ok_or(ErrorReply::new("ERR", "Protocol version is not an integer or out of range"))?;
        protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(ErrorReply::new("NOPROTO", "unsupported protocol version").into()),
        };
    }
    let mut is_authenticated = context.session.is_authenticated || !context.shared.settings.has_password();
    let (mut name, mut index) = (None, 2);
    while index < args.len() {
        if args.is(index, "auth") && index + 2 < args.len() {
            if !is_password(context, &args[index + 1], &args[index + 2]) {
                return Err(WRONG_PASSWORD.into());
            }
            (is_authenticated, index) = (true, index + 3);
        } else if args.is(index, "setname") && index + 1 < args.len() {
            name = Some(check_name(&args[index + 1])?.to_vec());
            index += 2;
        } else {
            let option = String::from_utf8_lossy(&args[index]);
            return context.fail("ERR", format!("Syntax error in HELLO option '{option}'"));
        }
    }
    if !is_authenticated {
        return Err(ErrorReply::new(
            "NOAUTH",
            "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        )
        .into());
    }
    let session = &mut *context.session;
    (session.protocol, session.is_authenticated) = (protocol, true);
    if let Some(name) = name {
        session.client.change_names(|names| names.name = name);
    }
    let id = session.client.origin.id as i64;
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    let mut reply = context.reply();
    reply.map(7);
    let text = [("server", "redis"), ("version", super::server::REDIS_VERSION)];
    for (key, value) in text {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (key, value) in [("proto", version), ("id", id)] {
        reply.bulk(key.as_bytes());
        reply.integer(value);
    }
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// A name of a client, or of its library: without spaces and unprintable characters, which would break `CLIENT LIST`.
pub(super) fn check_name(name: &[u8]) -> Result<&[u8]> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(name);
    }
    Err(ErrorReply::new("ERR", "Client names cannot contain spaces, newlines or special characters.").into())
}

/// `DURABILITY [sync | staged | async ms | none]`: the level of the connection's commits; without an argument its name.
pub(super) fn durability(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let level = match args.len() {
        1 => {
            let level = match context.session.durability {
                Durability::Async { interval } => format!("async {}", interval.as_millis()),
                Durability::None => "none".into(),
                Durability::Staged => "staged".into(),
                _ => "sync".into(),
            };
            context.reply().bulk(level.as_bytes());
            return Ok(());
        }
        2 if args.is(1, "sync") => Durability::Sync,
        2 if args.is(1, "none") => Durability::None,
        2 if args.is(1, "staged") => Durability::Staged,
        3 if args.is(1, "async") => {
            let ms = parse_i64(&args[2]).and_then(|ms| u64::try_from(ms).ok());
            Durability::Async { interval: Duration::from_millis(ms.ok_or(ErrorReply::NOT_AN_INTEGER)?) }
        }
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    // Fails here, and not with the first write.
    context.model().tables.heads.with_durability(level)?;
    context.session.durability = level;
    context.ok()
}

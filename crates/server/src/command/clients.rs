//! `CLIENT`: what clients are connected, and how this one is set up.

use std::sync::atomic::Ordering::Relaxed;

use fulgurite_resp::parse_i64;

use super::client_kill::kill;
use super::client_list::{info, list};
use super::connection::check_name;
use super::persistence::parse_timeout;
use super::{Subcommand, help, run_subcommand};
use crate::args::Args;
use crate::context::Context;
use crate::session::Replies;
use crate::stop::{ErrorReply, Result, Stop};

pub(super) static SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "client|id", arity: 2, handler: id },
    Subcommand { name: "client|info", arity: 2, handler: info },
    Subcommand { name: "client|list", arity: -2, handler: list },
    Subcommand { name: "client|kill", arity: -3, handler: kill },
    Subcommand { name: "client|pause", arity: -3, handler: pause },
    Subcommand { name: "client|unpause", arity: 2, handler: unpause },
    Subcommand { name: "client|unblock", arity: -3, handler: unblock },
    Subcommand { name: "client|getname", arity: 2, handler: getname },
    Subcommand { name: "client|setname", arity: 3, handler: setname },
    Subcommand { name: "client|setinfo", arity: 4, handler: setinfo },
    Subcommand { name: "client|reply", arity: 3, handler: reply },
    Subcommand { name: "client|no-evict", arity: 3, handler: no_evict },
    Subcommand { name: "client|no-touch", arity: 3, handler: switch },
    Subcommand { name: "client|getredir", arity: 2, handler: getredir },
    Subcommand { name: "client|help", arity: 2, handler: client_help },
];

pub(super) fn client(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    run_subcommand(context, "client", args)
}

fn client_help(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    const LINES: [&str; 32] = [
        "GETNAME",
        "    Return the name of the connection.",
        "GETREDIR",
        "    Return -1: there is no tracking.",
        "ID",
        "    Return the number of the connection.",
        "INFO",
        "    Return a line about the connection.",
        "KILL <ip:port>",
        "    Close the connection from this address.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Close connections: ID, TYPE, USER, ADDR, LADDR, SKIPME (yes|no).",
        "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB) | ID <id> [<id> ...]]",
        "    Return a line about each connection.",
        "NO-EVICT (ON|OFF)",
        "    Do not close the connection if the buffers of all take too much memory, or do.",
        "NO-TOUCH (ON|OFF)",
        "    Change nothing.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Have all commands, or those that write, wait for <timeout> milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Have no replies sent to the connection, or not the next one.",
        "SETINFO (LIB-NAME|LIB-VER) <value>",
        "    Set the name or the version of the client's library.",
        "SETNAME <name>",
        "    Set the name of the connection.",
        "UNBLOCK <id> [TIMEOUT|ERROR]",
        "    Return 0: no connection is blocked.",
        "UNPAUSE",
        "    End the pause.",
        "DURABILITY is a command of its own:",
        "    it sets the durability level of the connection's commits.",
    ];
    help(context, "CLIENT", &LINES)
}

fn id(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let id = context.session.client.origin.id as i64;
    context.reply().integer(id);
    Ok(())
}

fn getname(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let name = context.session.client.names().name;
    if name.is_empty() {
        context.reply().null();
    } else {
        context.reply().bulk(&name);
    }
    Ok(())
}

fn setname(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let name = check_name(&args[2])?.to_vec();
    context.session.client.change_names(|names| names.name = name);
    context.ok()
}

fn setinfo(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let value = &args[3];
    if !value.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        let option = String::from_utf8_lossy(&args[2]).to_lowercase();
        return context
            .fail("ERR", format!("{option} cannot contain spaces, newlines or special characters."));
    }
    let client = &context.session.client;
    if args.is(2, "lib-name") {
        client.change_names(|names| names.library = value.to_vec());
    } else if args.is(2, "lib-ver") {
        client.change_names(|names| names.library_version = value.to_vec());
    } else {
        let option = String::from_utf8_lossy(&args[2]).into_owned();
        return context.fail("ERR", format!("Unrecognized option '{option}'"));
    }
    context.ok()
}

fn reply(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if args.is(2, "on") {
        context.session.replies = Replies::On;
        return context.ok();
    }
    if context.session.replies == Replies::Off && args.is(2, "skip") {
        return Ok(());
    }
    context.session.replies = if args.is(2, "off") {
        Replies::Off
    } else if args.is(2, "skip") {
        Replies::SkipNext
    } else {
        return Err(ErrorReply::SYNTAX.into());
    };
    Ok(())
}

fn no_evict(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    switch(context, args)?;
    context.session.client.is_kept.store(args.is(2, "on"), Relaxed);
    Ok(())
}

/// An option that changes nothing here: no access is recorded.
fn switch(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if args.is(2, "on") || args.is(2, "off") { context.ok() } else { Err(ErrorReply::SYNTAX.into()) }
}

fn getredir(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    context.reply().integer(-1);
    Ok(())
}

/// The error of a subcommand with too many arguments that its arity allows.
fn too_many(name: &str) -> Stop {
    let message = format!("unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP.");
    Stop::Reply(ErrorReply { code: "ERR", message: message.into() })
}

/// `CLIENT PAUSE timeout [WRITE | ALL]`. No write is acknowledged after its reply until the pause is over, but those whose commits were
/// numbered before.
fn pause(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if args.len() > 4 {
        return Err(too_many(&String::from_utf8_lossy(&args[1])));
    }
    let of_all = match args.len() {
        3 => true,
        _ if args.is(3, "all") => true,
        _ if args.is(3, "write") => false,
        _ => return Err(ErrorReply::new("ERR", "CLIENT PAUSE mode must be WRITE or ALL").into()),
    };
    let timeout_ms = parse_timeout(&args[2])?;
    if !context.runner.may_take_long() {
        // It waits for each command that writes.
        return Err(Stop::Large);
    }
    let now_ms = context.shared.monotonic_ms();
    context.shared.pause.begin(now_ms.saturating_add(timeout_ms), of_all, now_ms);
    if !context.is_in_exec() {
        // A transaction has some of these locks itself.
        context.shared.locks.pass();
        drop(context.shared.model.keyspaces.lock());
    }
    // Reads that begin after the reply see all those writes.
    context.needs = context.needs.max(context.shared.db.visible_csn());
    context.ok()
}

fn unpause(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    context.shared.pause.end();
    context.shared.wake_all();
    context.ok()
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`: no command blocks.
fn unblock(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    match args.len() {
        3 => {}
        4 if args.is(3, "timeout") || args.is(3, "error") => {}
        4 => {
            let message = "CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Err(ErrorReply::new("ERR", message).into());
        }
        _ => return Err(too_many(&String::from_utf8_lossy(&args[1]))),
    }
    parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    context.reply().integer(0);
    Ok(())
}

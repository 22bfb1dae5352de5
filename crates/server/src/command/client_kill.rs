//! `CLIENT KILL`: has connections closed, whichever I/O threads they belong to.

use fulgurite::Missing;
use fulgurite_resp::parse_i64;

use super::client_list::ClientType;
use crate::args::Args;
use crate::clients::Client;
use crate::context::Context;
use crate::io::Message;
use crate::stop::{ErrorReply, Result, Stop};

const BAD_ID: ErrorReply = ErrorReply::new("ERR", "client-id should be greater than 0");
const NO_CLIENT: ErrorReply = ErrorReply::new("ERR", "No such client");

/// Which connections are meant: those that match all filters that were given.
#[derive(Debug, Default)]
struct Filters<'a> {
    id: Option<u64>,
    kind: Option<ClientType>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    skips_own: bool,
}

impl<'a> Filters<'a> {
    /// Of `CLIENT KILL ip:port`, which may mean the own connection.
    fn of_address(address: &'a [u8]) -> Filters<'a> {
        Filters { address: Some(address), ..Filters::default() }
    }

    /// Of pairs of an option and a value.
    fn parse(options: &[&'a [u8]]) -> Result<Filters<'a>> {
        let mut filters = Filters { skips_own: true, ..Filters::default() };
        for pair in options.chunks(2) {
            let &[option, value] = pair else { return Err(ErrorReply::SYNTAX.into()) };
            match &*option.to_ascii_lowercase() {
                b"id" => {
                    let id = parse_i64(value).filter(|&id| id > 0).ok_or(BAD_ID)?;
                    filters.id = Some(id as u64);
                }
                b"type" => filters.kind = Some(ClientType::parse(value)?),
                b"addr" => filters.address = Some(value),
                b"laddr" => filters.local = Some(value),
                b"user" if value == b"default" => {}
                b"user" => {
                    let message = format!("No such user '{}'", String::from_utf8_lossy(value));
                    return Err(Stop::Reply(ErrorReply { code: "ERR", message: message.into() }));
                }
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filters.skips_own = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filters.skips_own = false,
                _ => return Err(ErrorReply::SYNTAX.into()),
            }
        }
        Ok(filters)
    }

    fn match_client(&self, client: &Client, own: u64) -> bool {
        let origin = &client.origin;
        let is_address = |wanted: Option<&[u8]>, address: std::net::SocketAddr| {
            wanted.is_none_or(|wanted| wanted == address.to_string().as_bytes())
        };
        self.id.is_none_or(|id| id == origin.id)
            && self.kind.is_none_or(|kind| kind == ClientType::Normal)
            && !(self.skips_own && origin.id == own)
            && is_address(self.address, origin.address)
            && is_address(self.local, origin.local)
    }
}

/// `CLIENT KILL ip:port` or `CLIENT KILL option value [option value ...]`. When its reply arrives no command of the connections that it
/// names begins any more; one that a worker runs ends, without a reply.
pub(super) fn kill(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let is_old_form = args.len() == 3;
    let filters = if is_old_form { Filters::of_address(&args[2]) } else { Filters::parse(args.from(2))? };
    if !context.runner.may_wait() {
        // There may be thousands.
        return Err(Stop::Blocked(Missing::Latch));
    }
    context.check_runs_once()?;
    let shared = context.shared;
    let own = context.session.client.origin.id;
    let mut killed = 0;
    for client in shared.clients.all() {
        let origin = client.origin;
        if client.is_killed() || !filters.match_client(&client, own) {
            continue;
        }
        killed += 1;
        if origin.id == own {
            // Once it has the reply.
            context.session.has_quit = true;
            continue;
        }
        client.kill();
        shared.inboxes[origin.thread].send(Message::Kill { token: origin.token, id: origin.id });
    }
    match killed {
        0 if is_old_form => Err(NO_CLIENT.into()),
        _ if is_old_form => context.ok(),
        killed => {
            context.reply().integer(killed);
            Ok(())
        }
    }
}

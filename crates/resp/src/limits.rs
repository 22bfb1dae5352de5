//! Limits of requests and replies, as Redis has them.

/// Most bytes before the line end of an inline command, of an argument count or of an argument length: 64 KiB.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Most arguments of a command before the connection is authenticated.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Most bytes of an argument before the connection is authenticated.
pub const UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Most levels of aggregates in a reply that [`crate::parse_reply`] reads.
pub const REPLY_DEPTH_MAX: usize = 64;

/// Limits of a connection's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments of a command, its name included. The default is 1,048,576; Redis 7 allows 2,147,483,647.
    pub arguments_max: usize,
    /// Most bytes of an argument, `proto-max-bulk-len` of Redis. The default is 512 MiB.
    pub argument_bytes_max: usize,
    /// An argument of more bytes is handed on in pieces while it arrives, so that the input buffer need not hold it.
    /// The default is 64 KiB. Leave it alone unless the server stores values of another size without copying.
    pub pieces_from_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { arguments_max: 1 << 20, argument_bytes_max: 512 << 20, pieces_from_bytes: 64 << 10 }
    }
}

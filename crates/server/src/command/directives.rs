//! The directives of redis.conf that this server knows.

use super::directive::{Directive, Effect, Use, Values};

const INT_MAX: i64 = i32::MAX as i64;
const MIB: u64 = 1 << 20;
const BYTES_MAX: u64 = i64::MAX as u64;

const fn row(name: &'static str, values: Values, usage: Use, default: &'static str) -> Directive {
    Directive { name, alias: "", values, usage, default }
}

/// One with an older name.
const fn renamed(
    name: &'static str,
    alias: &'static str,
    values: Values,
    default: &'static str,
) -> Directive {
    Directive { name, alias, values, usage: Use::Keeps, default }
}

/// A number that is kept.
const fn number(name: &'static str, min: i64, max: i64, default: &'static str) -> Directive {
    row(name, Values::Number(min, max), Use::Keeps, default)
}

/// A switch that is kept.
const fn switch(name: &'static str, default: &'static str) -> Directive {
    row(name, Values::YesOrNo, Use::Keeps, default)
}

/// A size that is kept.
const fn bytes(name: &'static str, default: &'static str) -> Directive {
    row(name, Values::Bytes(0, BYTES_MAX), Use::Keeps, default)
}

/// One whose value says what this server does, and does not change.
const fn fixed(name: &'static str, values: Values, value: &'static str) -> Directive {
    row(name, values, Use::Fixed, value)
}

const FSYNC: Values = Values::OneOf(&["everysec", "always", "no"]);
const POLICY: Values = Values::OneOf(&[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
]);
const LOG_LEVEL: Values = Values::OneOf(&["debug", "verbose", "notice", "warning"]);
const SANITIZE: Values = Values::OneOf(&["no", "yes", "clients"]);
const COUNT: Values = Values::Number(0, i64::MAX);
const SIZE: Values = Values::Bytes(0, BYTES_MAX);

/// All of them, sorted by name.
pub(super) static DIRECTIVES: &[Directive] = &[
    number("acllog-max-len", 0, i64::MAX, "128"),
    number("active-expire-effort", 1, 10, "1"),
    fixed("activedefrag", Values::YesOrNo, "no"),
    switch("activerehashing", "yes"),
    switch("aof-load-truncated", "yes"),
    switch("aof-rewrite-incremental-fsync", "yes"),
    switch("aof-use-rdb-preamble", "yes"),
    fixed("appendfsync", FSYNC, "always"),
    fixed("appendonly", Values::YesOrNo, "yes"),
    number("auto-aof-rewrite-percentage", 0, INT_MAX, "100"),
    bytes("auto-aof-rewrite-min-size", "67108864"),
    fixed("bind", Values::Any, ""),
    number("busy-reply-threshold", 0, i64::MAX, "5000"),
    row(
        "client-output-buffer-limit",
        Values::OutputLimits,
        Use::Takes(Effect::OutputLimits),
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    row(
        "client-query-buffer-limit",
        Values::Bytes(MIB, BYTES_MAX),
        Use::Takes(Effect::QueryBytesMax),
        "1073741824",
    ),
    fixed("cluster-enabled", Values::YesOrNo, "no"),
    switch("crash-log-enabled", "yes"),
    fixed("daemonize", Values::YesOrNo, "no"),
    fixed("databases", COUNT, "16"),
    fixed("dbfilename", Values::Any, ""),
    fixed("dir", Values::Any, ""),
    switch("dynamic-hz", "yes"),
    renamed("hash-max-listpack-entries", "hash-max-ziplist-entries", COUNT, "512"),
    renamed("hash-max-listpack-value", "hash-max-ziplist-value", SIZE, "64"),
    bytes("hll-sparse-max-bytes", "3000"),
    number("hz", 0, INT_MAX, "10"),
    fixed("io-threads", COUNT, "1"),
    number("latency-monitor-threshold", 0, i64::MAX, "0"),
    switch("latency-tracking", "yes"),
    switch("lazyfree-lazy-eviction", "no"),
    switch("lazyfree-lazy-expire", "no"),
    switch("lazyfree-lazy-server-del", "no"),
    switch("lazyfree-lazy-user-del", "no"),
    switch("lazyfree-lazy-user-flush", "no"),
    number("lfu-decay-time", 0, INT_MAX, "1"),
    number("lfu-log-factor", 0, INT_MAX, "10"),
    number("list-compress-depth", 0, INT_MAX, "0"),
    renamed(
        "list-max-listpack-size",
        "list-max-ziplist-size",
        Values::Number(i32::MIN as i64, INT_MAX),
        "-2",
    ),
    fixed("logfile", Values::Any, ""),
    row("loglevel", LOG_LEVEL, Use::Keeps, "notice"),
    number("lua-time-limit", 0, i64::MAX, "5000"),
    row("maxclients", Values::Number(1, u32::MAX as i64), Use::Takes(Effect::ClientsMax), "10000"),
    row("maxmemory", Values::Bytes(0, u64::MAX), Use::Takes(Effect::Memory), "0"),
    row("maxmemory-clients", Values::BytesOrPercent, Use::Takes(Effect::BufferBytesMax), "50%"),
    number("maxmemory-eviction-tenacity", 0, 100, "10"),
    fixed("maxmemory-policy", POLICY, "noeviction"),
    number("maxmemory-samples", 1, INT_MAX, "5"),
    fixed("min-replicas-to-write", COUNT, "0"),
    number("min-replicas-max-lag", 0, INT_MAX, "10"),
    switch("no-appendfsync-on-rewrite", "no"),
    fixed("notify-keyspace-events", Values::Any, ""),
    fixed("port", COUNT, "6379"),
    fixed("protected-mode", Values::YesOrNo, "yes"),
    row(
        "proto-max-bulk-len",
        Values::Bytes(MIB, BYTES_MAX),
        Use::Takes(Effect::ArgumentBytesMax),
        "536870912",
    ),
    switch("rdb-save-incremental-fsync", "yes"),
    switch("rdbchecksum", "yes"),
    switch("rdbcompression", "yes"),
    bytes("repl-backlog-size", "1048576"),
    number("repl-backlog-ttl", 0, i64::MAX, "3600"),
    switch("repl-diskless-sync", "yes"),
    number("repl-diskless-sync-delay", 0, INT_MAX, "5"),
    number("repl-ping-replica-period", 1, INT_MAX, "10"),
    number("repl-timeout", 1, INT_MAX, "60"),
    fixed("replicaof", Values::Any, ""),
    switch("replica-read-only", "yes"),
    switch("replica-serve-stale-data", "yes"),
    row("requirepass", Values::Any, Use::Takes(Effect::Password), ""),
    row("sanitize-dump-payload", SANITIZE, Use::Keeps, "no"),
    fixed("save", Values::Any, ""),
    number("set-max-intset-entries", 0, i64::MAX, "512"),
    number("set-max-listpack-entries", 0, i64::MAX, "128"),
    bytes("set-max-listpack-value", "64"),
    number("slowlog-log-slower-than", -1, i64::MAX, "10000"),
    number("slowlog-max-len", 0, i64::MAX, "128"),
    fixed("stop-writes-on-bgsave-error", Values::YesOrNo, "no"),
    bytes("stream-node-max-bytes", "4096"),
    number("stream-node-max-entries", 0, i64::MAX, "100"),
    fixed("supervised", Values::Any, "no"),
    row("tcp-keepalive", Values::Number(0, INT_MAX), Use::Takes(Effect::Keepalive), "300"),
    row("timeout", Values::Number(0, INT_MAX), Use::Takes(Effect::IdleMax), "0"),
    number("tracking-table-max-keys", 0, i64::MAX, "1000000"),
    fixed("unixsocket", Values::Any, ""),
    renamed("zset-max-listpack-entries", "zset-max-ziplist-entries", COUNT, "128"),
    renamed("zset-max-listpack-value", "zset-max-ziplist-value", SIZE, "64"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_a_default_that_it_takes() {
        let mut names: Vec<&str> =
            DIRECTIVES.iter().flat_map(|directive| [directive.name, directive.alias]).collect();
        names.retain(|name| !name.is_empty());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for directive in DIRECTIVES {
            let Directive { name, values, default, .. } = directive;
            assert_eq!(values.parse(default, default).as_deref(), Ok(*default), "{name}");
            assert_eq!(*name, name.to_lowercase());
        }
    }
}

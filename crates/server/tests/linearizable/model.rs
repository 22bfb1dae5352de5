//! The commands of a history as one thread would run them. The first letter of a key is its type: `n`umber, `s`tring, `l`ist, `h`ash,
//! se`t`, sorted set (`z`).

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_resp::Reply;

/// A command: its name and its arguments.
pub type Command = Vec<String>;

/// All keys that exist.
pub type State = BTreeMap<String, Value>;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Text(String),
    List(Vec<String>),
    Hash(BTreeMap<String, String>),
    Set(BTreeSet<String>),
    Zset(BTreeMap<String, i64>),
}

impl Value {
    /// What a command on a key of this type begins with.
    fn empty(key: &str) -> Value {
        match key.as_bytes()[0] {
            b'n' | b's' => Value::Text(String::new()),
            b'l' => Value::List(Vec::new()),
            b'h' => Value::Hash(BTreeMap::new()),
            b't' => Value::Set(BTreeSet::new()),
            b'z' => Value::Zset(BTreeMap::new()),
            other => panic!("no type begins with {other}"),
        }
    }

    /// Whether its key does not exist.
    fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::List(all) => all.is_empty(),
            Value::Hash(all) => all.is_empty(),
            Value::Set(all) => all.is_empty(),
            Value::Zset(all) => all.is_empty(),
        }
    }
}

/// A command from its words.
pub fn command(words: &str) -> Command {
    words.split(' ').map(str::to_string).collect()
}

/// The keys of a command; `None` if it has all.
pub fn keys(command: &[String]) -> Option<Vec<&str>> {
    let keys = match &*command[0] {
        "FLUSHDB" => return None,
        "MGET" | "DEL" | "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => &command[1..],
        "MSET" => return Some(command[1..].iter().step_by(2).map(String::as_str).collect()),
        "SMOVE" | "LMOVE" | "RENAME" | "COPY" => &command[1..3],
        _ => &command[1..2],
    };
    Some(keys.iter().map(String::as_str).collect())
}

/// The command whose reply shows all of a key.
pub fn read_of(key: &str) -> Command {
    command(&match key.as_bytes()[0] {
        b'n' | b's' => format!("GET {key}"),
        b'l' => format!("LRANGE {key} 0 -1"),
        b'h' => format!("HGETALL {key}"),
        b't' => format!("SMEMBERS {key}"),
        _ => format!("ZRANGE {key} 0 -1 WITHSCORES"),
    })
}

/// The value that the reply to [`read_of`] shows; `None` if the key does not exist.
pub fn value_of(key: &str, reply: &Reply) -> Option<Value> {
    let texts = match reply {
        Reply::NullBulk => return None,
        Reply::Bulk(_) => return Some(Value::Text(text_of(reply))),
        Reply::Array(items) => items.iter().map(text_of).collect::<Vec<_>>(),
        other => panic!("{key}: {other:?}"),
    };
    let pairs = || texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    let value = match Value::empty(key) {
        Value::List(_) => Value::List(texts.clone()),
        Value::Hash(_) => Value::Hash(pairs().collect()),
        Value::Set(_) => Value::Set(texts.iter().cloned().collect()),
        _ => Value::Zset(pairs().map(|(member, score)| (member, score.parse().unwrap())).collect()),
    };
    (!value.is_empty()).then_some(value)
}

fn text_of(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(text) => String::from_utf8(text.clone()).unwrap(),
        other => panic!("{other:?} is no text"),
    }
}

/// The reply of a server, with what has no order sorted.
pub fn ordered(name: &str, reply: &Reply) -> Reply {
    let Reply::Array(items) = reply else { return reply.clone() };
    let width = match name {
        "SMEMBERS" => 1,
        "HGETALL" => 2,
        _ => return reply.clone(),
    };
    let mut entries: Vec<Vec<Reply>> = items.chunks(width).map(<[Reply]>::to_vec).collect();
    entries.sort_by_key(|entry| text_of(&entry[0]));
    Reply::Array(entries.concat())
}

fn integer(number: impl TryInto<i64>) -> Reply {
    Reply::Integer(number.try_into().ok().expect("a small number"))
}

fn bulk(text: Option<impl ToString>) -> Reply {
    text.map_or(Reply::NullBulk, |text| Reply::Bulk(text.to_string().into_bytes()))
}

fn array<T: ToString>(texts: impl IntoIterator<Item = T>) -> Reply {
    Reply::Array(texts.into_iter().map(|text| bulk(Some(text))).collect())
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// Runs a command.
pub fn run(state: &mut State, command: &[String]) -> Reply {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match words[..] {
        ["FLUSHDB"] => {
            state.clear();
            ok()
        }
        ["MGET", ref keys @ ..] => Reply::Array(keys.iter().map(|key| get(state, key)).collect()),
        ["MSET", ref pairs @ ..] => {
            pairs.chunks(2).for_each(|pair| set(state, pair[0], pair[1]));
            ok()
        }
        ["DEL", ref keys @ ..] => integer(keys.iter().filter(|key| state.remove(**key).is_some()).count()),
        ["RENAME", from, to] => match state.remove(from) {
            Some(value) => {
                state.insert(to.into(), value);
                ok()
            }
            None => Reply::Error(b"ERR no such key".to_vec()),
        },
        ["COPY", from, to, "REPLACE"] if from == to => {
            Reply::Error(b"ERR source and destination objects are the same".to_vec())
        }
        ["COPY", from, to, "REPLACE"] => match state.get(from).cloned() {
            Some(value) => {
                state.insert(to.into(), value);
                Reply::Integer(1)
            }
            None => Reply::Integer(0),
        },
        ["SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE", to, a, b] => {
            let [a, b] = [a, b].map(|key| match state.get(key) {
                Some(Value::Set(members)) => members.clone(),
                _ => BTreeSet::new(),
            });
            let result = match words[0] {
                "SINTERSTORE" => &a & &b,
                "SUNIONSTORE" => &a | &b,
                _ => &a - &b,
            };
            let count = result.len();
            put(state, to, Value::Set(result));
            integer(count)
        }
        ["SMOVE", from, to, member] => {
            let has_moved = change(state, from, |value| set_of(value).remove(member));
            if has_moved {
                change(state, to, |value| set_of(value).insert(member.into()));
            }
            integer(has_moved)
        }
        ["LMOVE", from, to, "LEFT", "RIGHT"] => {
            let moved = change(state, from, |value| pop(list_of(value), 0));
            if let Some(moved) = &moved {
                change(state, to, |value| list_of(value).push(moved.clone()));
            }
            bulk(moved)
        }
        _ => run_on_key(state, &words),
    }
}

fn put(state: &mut State, key: &str, value: Value) {
    if value.is_empty() {
        state.remove(key);
    } else {
        state.insert(key.into(), value);
    }
}

/// Changes the value of a key, which exists or not, before and after it.
fn change<T>(state: &mut State, key: &str, change: impl FnOnce(&mut Value) -> T) -> T {
    let mut value = state.remove(key).unwrap_or_else(|| Value::empty(key));
    let result = change(&mut value);
    put(state, key, value);
    result
}

fn list_of(value: &mut Value) -> &mut Vec<String> {
    match value {
        Value::List(all) => all,
        other => panic!("{other:?} is no list"),
    }
}

fn hash_of(value: &mut Value) -> &mut BTreeMap<String, String> {
    match value {
        Value::Hash(all) => all,
        other => panic!("{other:?} is no hash"),
    }
}

fn set_of(value: &mut Value) -> &mut BTreeSet<String> {
    match value {
        Value::Set(all) => all,
        other => panic!("{other:?} is no set"),
    }
}

fn zset_of(value: &mut Value) -> &mut BTreeMap<String, i64> {
    match value {
        Value::Zset(all) => all,
        other => panic!("{other:?} is no sorted set"),
    }
}

fn pop(list: &mut Vec<String>, at: usize) -> Option<String> {
    (at < list.len()).then(|| list.remove(at))
}

fn text<'a>(state: &'a State, key: &str) -> Option<&'a str> {
    match state.get(key) {
        Some(Value::Text(text)) => Some(text),
        Some(other) => panic!("{other:?} is no text"),
        None => None,
    }
}

fn get(state: &State, key: &str) -> Reply {
    bulk(text(state, key))
}

fn set(state: &mut State, key: &str, value: &str) {
    state.insert(key.into(), Value::Text(value.into()));
}

fn run_on_key(state: &mut State, words: &[&str]) -> Reply {
    let key = words[1];
    match key.as_bytes()[0] {
        b'n' | b's' => run_on_text(state, key, words),
        _ if !state.contains_key(key) && is_read(words[0]) => {
            // A read creates nothing, and shows an empty collection.
            let mut value = Value::empty(key);
            run_on_collection(&mut value, words)
        }
        _ => change(state, key, |value| run_on_collection(value, words)),
    }
}

/// Whether a command of this name changes nothing.
pub fn is_read(name: &str) -> bool {
    const READS: [&str; 16] = [
        "GET",
        "MGET",
        "STRLEN",
        "EXISTS",
        "LRANGE",
        "LLEN",
        "LINDEX",
        "HGET",
        "HGETALL",
        "HLEN",
        "SMEMBERS",
        "SCARD",
        "SISMEMBER",
        "ZSCORE",
        "ZCARD",
        "ZRANGE",
    ];
    READS.contains(&name)
}

fn run_on_text(state: &mut State, key: &str, words: &[&str]) -> Reply {
    let old = text(state, key).map(str::to_string);
    match words {
        ["GET", _] => bulk(old),
        ["EXISTS", _] => integer(old.is_some()),
        ["STRLEN", _] => integer(old.map_or(0, |old| old.len())),
        ["SET", _, value] => {
            set(state, key, value);
            ok()
        }
        ["SET", _, value, "NX"] if old.is_none() => {
            set(state, key, value);
            ok()
        }
        ["SET", _, _, "NX"] => Reply::NullBulk,
        ["SETNX", _, value] => {
            if old.is_none() {
                set(state, key, value);
            }
            integer(old.is_none())
        }
        ["GETSET", _, value] => {
            set(state, key, value);
            bulk(old)
        }
        ["GETDEL", _] => {
            state.remove(key);
            bulk(old)
        }
        ["APPEND", _, value] => {
            let new = old.unwrap_or_default() + value;
            set(state, key, &new);
            integer(new.len())
        }
        ["INCR" | "INCRBY" | "DECR", _, rest @ ..] => {
            let by = match rest {
                [by] => by.parse().unwrap(),
                _ if words[0] == "DECR" => -1,
                _ => 1,
            };
            let new: i64 = old.map_or(0, |old| old.parse::<i64>().unwrap()) + by;
            set(state, key, &new.to_string());
            Reply::Integer(new)
        }
        _ => panic!("{words:?} is not in the model"),
    }
}

fn run_on_collection(value: &mut Value, words: &[&str]) -> Reply {
    match words {
        ["EXISTS", _] => integer(!value.is_empty()),
        ["LPUSH", _, element] => {
            list_of(value).insert(0, element.to_string());
            integer(list_of(value).len())
        }
        ["RPUSH", _, element] => {
            list_of(value).push(element.to_string());
            integer(list_of(value).len())
        }
        ["LPOP", _] => bulk(pop(list_of(value), 0)),
        ["RPOP", _] => bulk(list_of(value).pop()),
        ["LLEN", _] => integer(list_of(value).len()),
        ["LINDEX", _, "0"] => bulk(list_of(value).first()),
        ["LRANGE", _, "0", "-1"] => array(list_of(value).iter()),
        ["LTRIM", _, "0", last] => {
            list_of(value).truncate(last.parse::<usize>().unwrap() + 1);
            ok()
        }
        ["HSET", _, field, new] => {
            integer(hash_of(value).insert(field.to_string(), new.to_string()).is_none())
        }
        ["HINCRBY", _, field, by] => {
            let count = hash_of(value).entry(field.to_string()).or_insert_with(|| "0".into());
            let new = count.parse::<i64>().unwrap() + by.parse::<i64>().unwrap();
            *count = new.to_string();
            Reply::Integer(new)
        }
        ["HDEL", _, field] => integer(hash_of(value).remove(*field).is_some()),
        ["HGET", _, field] => bulk(hash_of(value).get(*field)),
        ["HLEN", _] => integer(hash_of(value).len()),
        ["HGETALL", _] => array(hash_of(value).iter().flat_map(|(field, value)| [field, value])),
        ["SADD", _, member] => integer(set_of(value).insert(member.to_string())),
        ["SREM", _, member] => integer(set_of(value).remove(*member)),
        ["SISMEMBER", _, member] => integer(set_of(value).contains(*member)),
        ["SCARD", _] => integer(set_of(value).len()),
        ["SMEMBERS", _] => array(set_of(value).iter()),
        ["ZADD", _, score, member] => {
            integer(zset_of(value).insert(member.to_string(), score.parse().unwrap()).is_none())
        }
        ["ZINCRBY", _, by, member] => {
            let score = zset_of(value).entry(member.to_string()).or_default();
            *score += by.parse::<i64>().unwrap();
            bulk(Some(*score))
        }
        ["ZREM", _, member] => integer(zset_of(value).remove(*member).is_some()),
        ["ZSCORE", _, member] => bulk(zset_of(value).get(*member)),
        ["ZCARD", _] => integer(zset_of(value).len()),
        _ => panic!("{words:?} is not in the model"),
    }
}

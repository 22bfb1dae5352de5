//! One directive of redis.conf: how its value is read.

/// What values a directive takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// `yes` or `no`.
    YesOrNo,
    OneOf(&'static [&'static str]),
    /// Within these two, both included.
    Number(i64, i64),
    /// A number of bytes, with a unit or without one; within these two.
    Bytes(u64, u64),
    /// A number of bytes, or of percent.
    BytesOrPercent,
    Any,
    /// The limits of `client-output-buffer-limit`, by class.
    OutputLimits,
}

/// What `CONFIG SET` does with a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Changes it, which changes what the server does.
    Takes(Effect),
    /// Keeps its value, and reports it. It means nothing here.
    Keeps,
    /// Takes only the value that it has.
    Fixed,
}

/// What a directive changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    ClientsMax,
    IdleMax,
    Keepalive,
    ArgumentBytesMax,
    QueryBytesMax,
    OutputLimits,
    Password,
    Memory,
    BufferBytesMax,
}

/// A directive.
#[derive(Debug)]
pub(super) struct Directive {
    /// In lower case.
    pub name: &'static str,
    /// Its other name, by which it was once called; empty if there is none.
    pub alias: &'static str,
    pub values: Values,
    pub usage: Use,
    /// The value when the server starts, if that says nothing else.
    pub default: &'static str,
}

impl Values {
    /// The value as it is kept; the error is what Redis says of a bad one. `before` is the value that it replaces.
    pub fn parse(self, text: &str, before: &str) -> Result<String, String> {
        match self {
            Values::Any => Ok(text.into()),
            Values::YesOrNo => {
                let value = ["yes", "no"].into_iter().find(|value| value.eq_ignore_ascii_case(text));
                value.map(String::from).ok_or("argument must be 'yes' or 'no'".into())
            }
            Values::OneOf(all) => {
                let value = all.iter().find(|value| value.eq_ignore_ascii_case(text));
                value
                    .map(|value| value.to_string())
                    .ok_or_else(|| format!("argument(s) must be one of the following: {}", all.join(", ")))
            }
            Values::Number(min, max) => {
                let number = fulgurite_resp::parse_i64(text.as_bytes())
                    .ok_or("argument couldn't be parsed into an integer")?;
                within(number, min, max)
            }
            Values::Bytes(min, max) => {
                let bytes = parse_bytes(text).ok_or("argument must be a memory value")?;
                within(bytes, min, max)
            }
            Values::BytesOrPercent => match text.strip_suffix('%') {
                Some(percent) => {
                    let percent: u64 =
                        percent.parse().map_err(|_| "argument must be a memory or percent value")?;
                    if percent > 100 {
                        return Err("percentage argument must be less or equal to 100".into());
                    }
                    Ok(text.into())
                }
                None => {
                    let bytes = parse_bytes(text).ok_or("argument must be a memory or percent value")?;
                    Ok(bytes.to_string())
                }
            },
            Values::OutputLimits => parse_output_limits(text, before),
        }
    }
}

fn within<N: PartialOrd + std::fmt::Display>(number: N, min: N, max: N) -> Result<String, String> {
    if number < min || number > max {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(number.to_string())
}

/// A number of bytes with a unit: `k` is 1,000 bytes, `kb` 1,024. None is 0, as in Redis.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let number = if number.is_empty() { 0 } else { number.parse::<u64>().ok()? };
    number.checked_mul(unit)
}

/// The classes of clients, in the order in which their limits are shown, and the other name of one.
const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];
const REPLICA: &str = "replica";

/// Limits of some classes: for each its name, the hard and the soft limit in bytes, and for how many seconds the soft one may be
/// exceeded. Those of the others stay.
fn parse_output_limits(text: &str, before: &str) -> Result<String, String> {
    let mut limits: Vec<String> = before.split(' ').map(String::from).collect();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for limit in words.chunks_exact(4) {
        let name = if limit[0].eq_ignore_ascii_case(REPLICA) { "slave" } else { limit[0] };
        let class = CLASSES.iter().position(|class| class.eq_ignore_ascii_case(name));
        let class = class.ok_or("Invalid client class specified in buffer limit configuration.")?;
        let bad = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        for (index, word) in limit[1..3].iter().enumerate() {
            limits[class * 4 + 1 + index] = parse_bytes(word).ok_or(bad)?.to_string();
        }
        let seconds: i64 = limit[3].parse().map_err(|_| bad)?;
        limits[class * 4 + 3] = u64::try_from(seconds).map_err(|_| bad)?.to_string();
    }
    Ok(limits.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("", Some(0)),
            ("100", Some(100)),
            ("1b", Some(1)),
            ("2k", Some(2_000)),
            ("2kb", Some(2_048)),
            ("3MB", Some(3 << 20)),
            ("1Gb", Some(1 << 30)),
            ("5m", Some(5_000_000)),
            ("-1", None),
            ("1tb", None),
            ("x", None),
            ("99999999999gb", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }

    #[test]
    fn output_limits_are_changed_class_by_class() {
        let before = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let parse = |text| Values::OutputLimits.parse(text, before);
        assert_eq!(
            parse("Normal 1mb 2kb 3 replica 1 2 3").unwrap(),
            "normal 1048576 2048 3 slave 1 2 3 pubsub 33554432 8388608 60"
        );
        assert_eq!(parse("").unwrap(), before);
        for bad in ["normal 1 2", "master 1 2 3", "normal x 1 2", "normal 1 2 -3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

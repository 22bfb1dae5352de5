//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`, as Redis matches them: `*`, `?`, `[a-c]`, `[^a]`, and a backslash before a byte that means itself.

/// Whether a text matches a pattern.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where to go on if the text after the last star does not match: that star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    let (mut at, mut index) = (0, 0);
    while index < text.len() {
        match one(&pattern[at..], text[index]) {
            Some(_) if pattern[at] == b'*' => {
                star = Some((at, index));
                at += 1;
            }
            Some(len) => (at, index) = (at + len, index + 1),
            None => {
                let Some((star_at, star_index)) = star else { return false };
                star = Some((star_at, star_index + 1));
                (at, index) = (star_at + 1, star_index + 1);
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// The length of the pattern's first element, if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'*' | b'?', ..] => Some(1),
        [b'[', rest @ ..] => set(rest, byte).map(|len| len + 1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// The length of a set, without its first bracket, if a byte is in it.
fn set(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_negated = pattern.first() == Some(&b'^');
    let (mut at, mut is_in) = (usize::from(is_negated), false);
    loop {
        match &pattern[at..] {
            // A set that does not end takes the rest of the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                is_in |= (first.min(last)..=first.max(last)).contains(&&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= *literal == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("max*", "maxclients", true),
            ("MAX*", "maxclients", false),
            ("*ax*ts", "maxclients", true),
            ("*ax*tx", "maxclients", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("h\\?llo", "h?llo", true),
            ("h\\?llo", "hello", false),
            ("h[\\]]llo", "h]llo", true),
            ("[ab", "a", true),
            ("a*b*c", "a-b-b-c", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    /// A pattern of many stars takes time in proportion to both lengths, not exponential in the stars.
    #[test]
    fn many_stars_take_little_time() {
        let pattern = [b"a*".repeat(1_000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(10_000)));
    }
}

//! Identifiers of Rust code, without those in comments and strings.

/// An identifier where it is used.
#[derive(Debug, PartialEq, Eq)]
pub struct Identifier<'a> {
    pub name: &'a str,
    pub line: usize,
    /// Whether `::` follows: a module, or a type whose item is named.
    pub is_path: bool,
}

/// The identifiers and keywords of a source, from its beginning.
pub fn identifiers(text: &str) -> Vec<Identifier<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (token, after) = rest.split_at(token_len(rest));
        let is_identifier = token.chars().all(is_of_word) && !token.starts_with(|c: char| c.is_ascii_digit());
        if is_identifier {
            found.push(Identifier { name: token, line, is_path: after.starts_with("::") });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    found
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The bytes of the comment, literal, identifier or number that `code` begins with, or else of its first letter.
fn token_len(code: &str) -> usize {
    let first = code.chars().next().map_or(0, char::len_utf8);
    if code.starts_with("//") {
        return code.find('\n').unwrap_or(code.len());
    }
    if code.starts_with("/*") {
        return end_after(code, 2, "*/");
    }
    if let Some(len) = raw_string_len(code).or_else(|| string_len(code)).or_else(|| char_len(code)) {
        return len;
    }
    code.find(|letter| !is_of_word(letter)).unwrap_or(code.len()).max(first)
}

/// Where the first `end` from `start` on ends.
fn end_after(code: &str, start: usize, end: &str) -> usize {
    code[start..].find(end).map_or(code.len(), |at| start + at + end.len())
}

fn raw_string_len(code: &str) -> Option<usize> {
    let start = ["r", "br", "cr"].iter().find(|prefix| code.starts_with(**prefix))?.len();
    let hashes = code[start..].bytes().take_while(|byte| *byte == b'#').count();
    let quote = start + hashes;
    code[quote..].starts_with('"').then(|| end_after(code, quote + 1, &format!("\"{}", "#".repeat(hashes))))
}

fn string_len(code: &str) -> Option<usize> {
    let start = ["\"", "b\"", "c\""].iter().find(|prefix| code.starts_with(**prefix))?.len();
    let mut is_escaped = false;
    let end = code[start..].find(|letter| {
        let ends = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    });
    Some(end.map_or(code.len(), |end| start + end + 1))
}

/// `None` for a lifetime, too.
fn char_len(code: &str) -> Option<usize> {
    let start = ["'", "b'"].iter().find(|prefix| code.starts_with(**prefix))?.len();
    let mut letters = code[start..].chars();
    let first = letters.next()?;
    if first == '\\' {
        let escaped = letters.next()?;
        return Some(end_after(code, start + 1 + escaped.len_utf8(), "'"));
    }
    (letters.next() == Some('\'')).then_some(start + first.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_in_comments_and_strings_are_left_out() {
        let names = |code| identifiers(code).iter().map(|found| found.name).collect::<Vec<_>>();
        assert_eq!(names("let a = b; // c\nd /* e\nf */ g"), ["let", "a", "b", "d", "g"]);
        assert_eq!(names(r#"a("b \" c", b"d\\", 'e', '\'', b'"', f)"#), ["a", "f"]);
        assert_eq!(names("r#\"a \" b\"# r\"c\\\" br##\"d\"# e\"## r#gen"), ["r", "gen"]);
        assert_eq!(names("fn a<'b>(c: &'b str) -> 0x1f"), ["fn", "a", "b", "c", "b", "str"]);
    }

    #[test]
    fn identifiers_have_lines_and_paths() {
        let found = identifiers("\"a\nb\"\nstd::cell::Cell");
        let found: Vec<_> = found.iter().map(|found| (found.name, found.line, found.is_path)).collect();
        assert_eq!(found, [("std", 3, true), ("cell", 3, true), ("Cell", 3, false)]);
    }
}

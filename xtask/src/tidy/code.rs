//! Rust without its comments and literals, for rules about words in code.
//!
//! Invariant: the result has the lines of the text, each at its place.

/// The text with every comment, string and character blanked.
pub(super) fn only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest);
        let (taken, after) = rest.split_at(length.max(first.len_utf8()));
        if length == 0 {
            // A name is taken whole, so that the `r` at the end of `for` opens no raw string.
            let name = name_length(taken, rest);
            let (taken, after) = rest.split_at(name);
            code.push_str(taken);
            rest = after;
            continue;
        }
        code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    code
}

/// The length of the name at the start of `rest`, or that of its first character.
fn name_length(first: &str, rest: &str) -> usize {
    let name = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    name.max(first.len())
}

/// The length of the comment or literal at the start of `text`; 0 where there is none.
fn skipped(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    let literal = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = text.len() - literal.len();
    if prefix > 2 {
        return 0;
    }
    let hashes = literal.len() - literal.trim_start_matches('#').len();
    let is_raw = text[..prefix].contains('r');
    if is_raw && literal[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = &literal[hashes + 1..];
        let closed = body.find(&end).map_or(body.len(), |at| at + end.len());
        return prefix + hashes + 1 + closed;
    }
    if !is_raw && literal.starts_with('"') {
        return prefix + quoted(literal, '"');
    }
    if literal.starts_with('\'') && is_character(literal) {
        return prefix + quoted(literal, '\'');
    }
    0
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a literal that opens and closes with `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Tells `'a'` from the lifetime `'a`.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_code_and_lines() {
        assert_eq!(
            only("a // b\nc /* d\n/* e */ f */ g\n"),
            "a     \nc     \n             g\n"
        );
    }

    #[test]
    fn blanks_every_kind_of_literal() {
        for literal in [
            r#""x""#,
            r#""\"x""#,
            r##"r#"x"y"#"##,
            r#"b"x""#,
            r#"c"x""#,
            "'x'",
            r"'\''",
            "b'x'",
        ] {
            let text = format!("a({literal}) b");
            assert_eq!(
                only(&text),
                format!("a({}) b", " ".repeat(literal.len())),
                "{text}"
            );
        }
    }

    #[test]
    fn lifetimes_and_names_are_code() {
        for text in [
            "fn a<'x>(b: &'x str) -> &'x B",
            "for crab in r#mod",
            "'outer: loop {}",
        ] {
            assert_eq!(only(text), text);
        }
    }

    #[test]
    fn what_is_not_closed_ends_with_the_text() {
        for text in ["a \"b", "a /* b", "a r#\"b\"", "a '\\"] {
            assert_eq!(only(text).len(), text.len());
            assert!(only(text).starts_with("a "));
        }
    }
}

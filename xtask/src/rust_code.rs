//! Tells Rust code from the comments and literals in it, well enough to search for keywords.

/// The source with every comment, string and character literal blanked; lines stay where they are.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let after_word = code.chars().next_back().is_some_and(is_word_char);
        let opaque = opaque_len(rest, after_word);
        if opaque == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..opaque].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[opaque..];
        }
    }
    code
}

/// True for what words (identifiers, keywords, numbers) are made of.
pub(crate) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Bytes of the comment or literal that `rest` opens with; 0 when it opens with code.
fn opaque_len(rest: &str, after_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_len(rest);
    }
    if rest.starts_with('"') {
        return escaped_len(rest, '"');
    }
    if rest.starts_with('\'') {
        return char_len(rest);
    }
    if after_word { 0 } else { raw_string_len(rest) }
}

/// Block comments nest.
fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// A literal up to its closing quote, over escaped ones; to the end when it is not closed.
fn escaped_len(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// A character literal; 0 for a lifetime, which has no closing quote after one character.
fn char_len(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => escaped_len(rest, '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// `r"..."`, `r#"..."#` and the like with `b` or `c` in front; 0 for anything else, such as
/// `r#type`.
fn raw_string_len(rest: &str) -> usize {
    let Some(behind) = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix)) else {
        return 0;
    };
    let body = behind.trim_start_matches('#');
    if !body.starts_with('"') {
        return 0;
    }
    let closing = format!("\"{}", "#".repeat(behind.len() - body.len()));
    let opened = rest.len() - body.len() + 1;
    rest[opened..].find(&closing).map_or(rest.len(), |at| opened + at + closing.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        for (source, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("a /* b", "a     "),
            (r#"f("x\"y") + z"#, "f(      ) + z"),
            (r##"f(r#"x"y"#) + z"##, "f(        ) + z"),
            (r#"f(br"x\") + z"#, "f(      ) + z"),
            (r#"f(b"x") + z"#, "f(b   ) + z"),
            (r"f('x', '\'', 'é')", "f(   ,     ,    )"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("let r#type = var;", "let r#type = var;"),
            ("bar\"x\" y", "bar    y"),
            ("\"open", "     "),
        ] {
            // A blanked character of several bytes leaves one blank: compare by characters.
            let code = code_only(source);
            assert_eq!(code.trim_end(), expected.trim_end(), "{source}");
            assert_eq!(code.chars().count(), source.chars().count(), "{source}");
        }
    }

    #[test]
    fn lines_stay_where_they_are() {
        let source = "a\n\"b\nc\"\n/* d\n*/ e\n";
        assert_eq!(code_only(source), "a\n  \n  \n    \n   e\n");
    }
}

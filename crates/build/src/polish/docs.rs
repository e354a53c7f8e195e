//! Comments of a `.proto` file as documentation: rustdoc would take indented text, and fences
//! without a language, for Rust, and run it as a test.

use syn::visit_mut::VisitMut;
use syn::{Attribute, Expr, Lit, LitStr, Meta};

/// Makes text of what rustdoc would take for code.
pub(super) struct NotCode;

impl VisitMut for NotCode {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        let mut fence = Fence::default();
        for line in attributes.iter_mut().filter_map(doc) {
            *line = LitStr::new(&fence.line(&line.value()), line.span());
        }
    }
}

/// The text of a `///` line.
fn doc(attribute: &mut Attribute) -> Option<&mut LitStr> {
    match &mut attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &mut meta.value {
            Expr::Lit(value) => match &mut value.lit {
                Lit::Str(text) => Some(text),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The fence that the lines so far have opened: its character, and how many of them.
#[derive(Default)]
struct Fence {
    open: Option<(char, usize)>,
}

impl Fence {
    fn line(&mut self, line: &str) -> String {
        if let Some(open) = self.open {
            let is_closing = closes(line, open);
            self.open = Some(open).filter(|_| !is_closing);
            return line.to_owned();
        }
        // A tab is four blanks at most, which make code.
        let line = line.replace('\t', "    ");
        let text = line.trim_start_matches(' ');
        let indent = indent(&line, text);
        self.open = opened(text);
        match self.open {
            Some((_, count)) => format!("{indent}{}text", &text[..count]),
            None => format!("{indent}{text}"),
        }
    }
}

/// The fence that a line opens (CommonMark, section 4.5): "```x```" is code within text.
fn opened(text: &str) -> Option<(char, usize)> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let count = marks(text, mark);
    let is_within = mark == '`' && text[count..].contains('`');
    (count >= 3 && !is_within).then_some((mark, count))
}

/// True when a line closes a fence: with as many marks at least, and nothing behind them.
fn closes(line: &str, (mark, least): (char, usize)) -> bool {
    let text = line.trim_start_matches(' ');
    let count = marks(text, mark);
    // The blank after `///` and three more are no part of it.
    line.len() - text.len() <= 4 && count >= least && text[count..].trim().is_empty()
}

/// Number of these marks that a text begins with.
fn marks(text: &str, mark: char) -> usize {
    text.len() - text.trim_start_matches(mark).len()
}

/// The blanks of `line` before `text`, but for those that would make it code: the one after `///`
/// and three more are harmless (CommonMark, section 4.4).
fn indent<'a>(line: &'a str, text: &str) -> &'a str {
    &line[..(line.len() - text.len()).min(4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        let mut fence = Fence::default();
        lines.iter().map(|line| fence.line(line)).collect()
    }

    #[test]
    fn indented_text_is_no_code() {
        assert_eq!(lines(&[" Text", "", "      let x = ;"]), [" Text", "", "    let x = ;"]);
    }

    #[test]
    fn fences_hold_text_and_keep_its_indentation() {
        let code = [" ```", "         {", " ```", "         {"];
        assert_eq!(lines(&code), [" ```text", "         {", " ```", "    {"]);
        assert_eq!(lines(&[" ```rust", " ```"]), [" ```text", " ```"]);
    }

    #[test]
    fn a_fence_ends_with_the_marks_that_it_began_with() {
        let code = [" ````", " ```", " ~~~", " ````` ", "       x"];
        assert_eq!(lines(&code), [" ````text", " ```", " ~~~", " ````` ", "    x"]);
        let tildes = [" ~~~rust `a`", "       x", "       ~~~", " ~~~", "       x"];
        assert_eq!(lines(&tildes), [" ~~~text", "       x", "       ~~~", " ~~~", "    x"]);
        assert_eq!(lines(&[" ```x```", "       y"]), [" ```x```", "    y"]);
    }

    #[test]
    fn a_tab_makes_no_code() {
        assert_eq!(
            lines(&["", " \tlet x = ;", "\tlet y = ;"]),
            ["", "    let x = ;", "    let y = ;"]
        );
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        assert_eq!(lines(&[" - a", "   - b"]), [" - a", "   - b"]);
    }
}

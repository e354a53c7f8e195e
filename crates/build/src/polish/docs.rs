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

/// A fence that is open.
#[derive(Clone, Copy)]
struct Open {
    mark: char,
    count: usize,
    /// Quotes that it is in: a line with fewer `>` is behind it.
    quotes: usize,
    /// Column of the list item that it is in, or 0: a line that begins before is behind it.
    column: usize,
    /// Blanks that its first line has lost; the others lose as many.
    shift: usize,
}

/// The lines so far.
#[derive(Default)]
struct Fence {
    open: Option<Open>,
    /// Column where the text of the last list item begins, or 0 where there is none.
    item_column: usize,
}

impl Fence {
    fn line(&mut self, line: &str) -> String {
        if let Some(open) = self.open.filter(|open| open.holds(line)) {
            self.open = Some(open).filter(|open| !open.is_closed_by(line));
            let blanks = line.len() - line.trim_start_matches(' ').len();
            return line[open.shift.min(blanks)..].to_owned();
        }
        // A tab is four blanks at most, which make code.
        let line = line.replace('\t', "    ");
        let Start { head, quotes, is_item, text } = Start::of(&line);
        if is_item {
            self.item_column = head.len();
        } else if !text.is_empty() && head.len() < self.item_column {
            self.item_column = 0;
        }
        let shift = if is_item || quotes > 0 { 0 } else { line.len() - text.len() - head.len() };
        let column = self.item_column;
        let open = |(mark, count)| Open { mark, count, quotes, column, shift };
        self.open = opened(text).map(open);
        match self.open {
            Some(Open { count, .. }) => format!("{head}{}text", &text[..count]),
            None => format!("{head}{text}"),
        }
    }
}

impl Open {
    /// True when the line is in what the fence is in.
    fn holds(&self, line: &str) -> bool {
        let text = line.trim_start();
        match self.unquoted(line) {
            None => false,
            Some(_) if self.quotes > 0 => true,
            Some(_) => text.is_empty() || line.len() - text.len() >= self.column,
        }
    }

    /// True when the line ends the fence: with as many marks at least, and nothing behind them.
    fn is_closed_by(&self, line: &str) -> bool {
        let Some(line) = self.unquoted(line) else { return false };
        let text = line.trim_start_matches(' ');
        let count = marks(text, self.mark);
        let blanks_max = match self.quotes {
            0 => BLANKS_MAX.max(self.column + BLANKS_MAX - 1) + self.shift,
            _ => BLANKS_MAX,
        };
        let is_near = line.len() - text.len() <= blanks_max;
        is_near && count >= self.count && text[count..].trim().is_empty()
    }

    /// The line without the marks of the quotes that the fence is in, if it has them.
    fn unquoted<'a>(&self, line: &'a str) -> Option<&'a str> {
        (0..self.quotes).try_fold(line, |line, _| line.trim_start().strip_prefix('>'))
    }
}

/// Beginning of a line: the marks of quotes and list items, and the blanks before and behind them,
/// but for those that would make code of what follows.
struct Start<'a> {
    head: String,
    quotes: usize,
    is_item: bool,
    text: &'a str,
}

impl<'a> Start<'a> {
    fn of(line: &'a str) -> Self {
        let mut this = Self { head: String::new(), quotes: 0, is_item: false, text: line };
        loop {
            let text = this.text.trim_start_matches(' ');
            let blanks = this.text.len() - text.len();
            this.head.push_str(&this.text[..blanks.min(BLANKS_MAX)]);
            let (is_quote, item) = (text.starts_with('>'), item_mark(text));
            let mark = if is_quote { 1 } else { item };
            this.head.push_str(&text[..mark]);
            this.text = &text[mark..];
            if mark == 0 {
                return this;
            }
            this.quotes += usize::from(is_quote);
            this.is_item |= !is_quote;
        }
    }
}

/// Length of the mark of a list item that a text begins with (CommonMark, section 5.2), or 0.
fn item_mark(text: &str) -> usize {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let marks: &[char] = if digits == 0 { &['-', '+', '*'] } else { &['.', ')'] };
    match text[digits..].strip_prefix(marks) {
        Some(rest) if digits < 10 && (rest.is_empty() || rest.starts_with(' ')) => digits + 1,
        _ => 0,
    }
}

/// Blanks that make no code: the one after `///`, `>` or the mark of a list item, and three more
/// (CommonMark, section 4.4).
const BLANKS_MAX: usize = 4;

/// The fence that a line opens (CommonMark, section 4.5): "```x```" is code within text.
fn opened(text: &str) -> Option<(char, usize)> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let count = marks(text, mark);
    let is_within = mark == '`' && text[count..].contains('`');
    (count >= 3 && !is_within).then_some((mark, count))
}

/// Number of these marks that a text begins with.
fn marks(text: &str, mark: char) -> usize {
    text.len() - text.trim_start_matches(mark).len()
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
    fn a_fence_in_a_list_ends_where_it_does() {
        let code = [" - ```", "   { \"name\": 1 }", "   ```", "   and after it"];
        let expected = [" - ```text", "   { \"name\": 1 }", "   ```", "   and after it"];
        assert_eq!(lines(&code), expected);
        let code = [" 1. ```rust", "        GET", "    ```", "        x"];
        assert_eq!(lines(&code), [" 1. ```text", "        GET", "    ```", "    x"]);
        // It ends with its item, and what follows is no code.
        let open = [" - ```", "   x", "", " after", "        let x = ;"];
        assert_eq!(lines(&open), [" - ```text", "   x", "", " after", "    let x = ;"]);
        let deep = [" - a", "   - b", "     ```", "     x", "       y", "     ```", "       z"];
        let expected = [" - a", "   - b", "    ```text", "    x", "      y", "    ```", "    z"];
        assert_eq!(lines(&deep), expected);
    }

    #[test]
    fn a_fence_in_a_quote_ends_where_it_does() {
        let code = [" > ```", " >      GET /{name=a/*}", " > ```", " >      x"];
        assert_eq!(lines(&code), [" > ```text", " >      GET /{name=a/*}", " > ```", " >    x"]);
        let open = [" > ```", " > x", " after", "      let x = ;"];
        assert_eq!(lines(&open), [" > ```text", " > x", " after", "    let x = ;"]);
        let both = [" > - ~~~", " >   x", " >   ~~~"];
        assert_eq!(lines(&both), [" > - ~~~text", " >   x", " >   ~~~"]);
    }

    #[test]
    fn indented_text_of_quotes_and_lists_is_no_code() {
        assert_eq!(lines(&[" >     let x = ;"]), [" >    let x = ;"]);
        assert_eq!(lines(&[" -      let y = ;"]), [" -    let y = ;"]);
        assert_eq!(lines(&[" > 12)      let y = ;"]), [" > 12)    let y = ;"]);
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        assert_eq!(lines(&[" -x", " *y*", " 1.5", " - - -"]), [" -x", " *y*", " 1.5", " - - -"]);
        assert_eq!(lines(&[" - a", "   - b"]), [" - a", "   - b"]);
    }
}

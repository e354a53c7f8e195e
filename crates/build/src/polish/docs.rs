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

/// Code fence of the lines so far, open or not.
#[derive(Default)]
struct Fence {
    is_open: bool,
}

impl Fence {
    fn line(&mut self, line: &str) -> String {
        let text = line.trim_start_matches(' ');
        if text.starts_with("```") {
            self.is_open = !self.is_open;
            let indent = indent(line, text);
            return if self.is_open { format!("{indent}```text") } else { format!("{indent}```") };
        }
        if self.is_open { line.to_owned() } else { format!("{}{text}", indent(line, text)) }
    }
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
    fn other_lines_stay_as_they_are() {
        assert_eq!(lines(&[" - a", "   - b"]), [" - a", "   - b"]);
    }
}

//! Finds what must not be handed on: unfinished work, tests switched off, paths of one machine, and
//! `unsafe` where it does not belong.

use std::fmt;

use crate::rust_code::{code_only, is_word_char};

/// One leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the root.
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Description of what is wrong with it.
    pub(crate) what: &'static str,
    /// The line itself, without the blanks around it.
    pub(crate) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.what, self.text)
    }
}

/// The leftovers in one text file, in the order of its lines.
pub(crate) fn scan(path: &str, text: &str) -> Vec<Finding> {
    let is_rust = path.ends_with(".rs");
    let code = if is_rust { code_only(text) } else { String::new() };
    let mut code_lines = code.lines();
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let in_text = text_leftover(line);
        let in_code = code_leftover(path, code_lines.next().unwrap_or_default());
        findings.extend(in_text.into_iter().chain(in_code).map(|what| Finding {
            path: path.to_owned(),
            line: index + 1,
            what,
            text: line.trim().chars().take(TEXT_CHARS_MAX).collect(),
        }));
    }
    findings
}

/// Finds what is wrong in any file, comments included.
fn text_leftover(line: &str) -> Option<&'static str> {
    if MARKERS.iter().any(|marker| word_ends(line, marker).next().is_some()) {
        return Some("unfinished");
    }
    if MACROS.iter().any(|name| word_ends(line, name).any(|end| is_invocation(&line[end..]))) {
        return Some("unfinished");
    }
    if HOMES.iter().any(|home| has_path_from(line, home)) {
        return Some("path of one machine");
    }
    None
}

/// Finds what is wrong in a line of Rust code, without its comments and literals.
fn code_leftover(path: &str, code: &str) -> Option<&'static str> {
    if is_ignored_test(code) {
        return Some("test switched off");
    }
    if word_ends(code, "unsafe").next().is_some() && !is_ffi(path) {
        return Some("unsafe outside an ffi module");
    }
    None
}

/// Ends of each occurrence of `word` that is not part of a longer word.
fn word_ends<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(word).filter_map(move |(start, _)| {
        let end = start + word.len();
        let before = line[..start].chars().next_back().is_some_and(is_word_char);
        let after = line[end..].chars().next().is_some_and(is_word_char);
        (!before && !after).then_some(end)
    })
}

fn is_invocation(behind_name: &str) -> bool {
    let behind_mark = behind_name.strip_prefix('!').map(str::trim_start);
    behind_mark.is_some_and(|rest| rest.starts_with(['(', '[', '{']))
}

/// An absolute path that starts at `home`: not `example.com/home/` or `../home/`.
fn has_path_from(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| is_word_char(c) || matches!(c, '.' | '-' | '/' | '}' | '>'))
    })
}

/// `#[ignore]`, with a reason or under a `cfg_attr`.
fn is_ignored_test(code: &str) -> bool {
    word_ends(code, "ignore").any(|end| {
        let before = code[..end - "ignore".len()].trim_end();
        before.ends_with("#[") || (before.contains("#[cfg_attr(") && before.ends_with(','))
    })
}

/// The one place raw handles live, in `ffi.rs` or below a folder `ffi`.
fn is_ffi(path: &str) -> bool {
    path.split('/').any(|part| part == "ffi" || part == "ffi.rs")
}

// Spelled in two halves, so that this file does not find itself.
const MARKERS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
const MACROS: [&str; 2] = [concat!("to", "do"), concat!("unimple", "mented")];
const HOMES: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!(r"C:\Us", r"ers\"),
];

/// Enough of a line to recognise it; data files have longer ones.
const TEXT_CHARS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings of one line as `what`, in a file where `unsafe` is not allowed.
    fn found(line: &str) -> Vec<&'static str> {
        scan("src/a.rs", line).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn markers_are_found_as_whole_words_in_comments_too() {
        for marker in MARKERS {
            assert_eq!(found(&format!("// {marker}: later")), ["unfinished"]);
            assert_eq!(found(&format!("// {marker}S or MY_{marker}")), [""; 0]);
            assert_eq!(found(&format!("// {}", marker.to_lowercase())), [""; 0]);
        }
    }

    #[test]
    fn unfinished_macros_are_found_when_invoked() {
        for name in MACROS {
            assert_eq!(found(&format!("    {name}!()")), ["unfinished"]);
            assert_eq!(found(&format!("core::{name}! {{}}")), ["unfinished"]);
            assert_eq!(found(&format!("my_{name}!()")), [""; 0]);
            assert_eq!(found(&format!("{name}(x) != y")), [""; 0]);
        }
    }

    #[test]
    fn absolute_paths_below_a_home_are_found() {
        for home in HOMES {
            assert_eq!(found(&format!("let a = \"{home}x\";")), ["path of one machine"]);
            assert_eq!(found(&format!("see {home}")), ["path of one machine"]);
        }
        for home in &HOMES[..4] {
            assert_eq!(found(&format!("https://example.org{home}x")), [""; 0]);
            assert_eq!(found(&format!("..{home}x")), [""; 0]);
        }
    }

    #[test]
    fn ignored_tests_are_found_in_code_alone() {
        assert_eq!(found("#[ignore]"), ["test switched off"]);
        assert_eq!(found("#[ignore = \"slow\"]"), ["test switched off"]);
        assert_eq!(found("#[cfg_attr(windows, ignore)]"), ["test switched off"]);
        assert_eq!(found("// #[ignore] would hide it"), [""; 0]);
        assert_eq!(found("let x = ignore(y, ignore);"), [""; 0]);
    }

    #[test]
    fn unsafe_code_is_found_outside_ffi_alone() {
        let line = "let x = unsafe { *p };";
        assert_eq!(found(line), ["unsafe outside an ffi module"]);
        assert_eq!(scan("crates/a/src/ffi.rs", line), []);
        assert_eq!(scan("crates/a/src/ffi/device.rs", line), []);
        assert_eq!(scan("docs/a.md", line), []);
        assert_eq!(found("#![forbid(unsafe_code)] // no unsafe"), [""; 0]);
        assert_eq!(found("let x = \"unsafe\";"), [""; 0]);
    }

    #[test]
    fn a_finding_names_file_and_line() {
        let findings = scan("a/b.rs", "fn a() {}\n\n  #[ignore]\nfn b() {}\n");
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
        assert_eq!(finding.to_string(), "a/b.rs:3: test switched off: #[ignore]");
    }

    #[test]
    fn this_file_is_free_of_leftovers() {
        assert_eq!(scan("xtask/src/leftovers.rs", include_str!("leftovers.rs")), []);
    }
}

//! Licence expressions, and whether a list of allowed licences satisfies one.
//!
//! The grammar is that of SPDX (`WITH` binds closest, then `AND`, then `OR`) and, as crates.io has
//! packages older than it, `/` for `OR`. The reading matches cargo-deny's, which checks the same
//! list: `A WITH B` is satisfied by `"A WITH B"` in the list, not by `"A"`.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};

/// The licences that dependencies may be used under.
#[derive(Clone, Debug)]
pub(crate) struct Allowed(BTreeSet<String>);

impl Allowed {
    /// The list `licenses.allow` of a `deny.toml`.
    ///
    /// # Errors
    /// The text is not TOML, or the list is missing or holds something else than strings.
    pub(crate) fn from_deny_toml(text: &str) -> anyhow::Result<Self> {
        let config: toml::Table = text.parse().context("reading deny.toml")?;
        let list = config.get("licenses").and_then(|licenses| licenses.get("allow"));
        let list = list.and_then(toml::Value::as_array);
        let names = list.context("deny.toml has no list `licenses.allow`")?.iter();
        let names = names.map(|name| name.as_str().map(str::to_owned));
        let names = names.collect::<Option<_>>();
        Ok(Self(names.context("`licenses.allow` of deny.toml holds something else than strings")?))
    }

    /// True when some choice that the expression offers asks only for allowed licences.
    pub(crate) fn satisfies(&self, expression: &Expression) -> bool {
        match expression {
            Expression::Licence(name) => self.0.contains(name),
            Expression::All(parts) => parts.iter().all(|part| self.satisfies(part)),
            Expression::Any(parts) => parts.iter().any(|part| self.satisfies(part)),
        }
    }
}

/// A parsed licence expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// One licence, with its exception if it has one: `MIT`, `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
    /// All of these apply.
    All(Vec<Expression>),
    /// One of these may be chosen.
    Any(Vec<Expression>),
}

impl FromStr for Expression {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parser = Parser { words: words_of(text), next: 0, depth: 0 };
        let expression = parser.any()?;
        match parser.peek() {
            None => Ok(expression),
            Some(word) => bail!("`{word}` is not expected after a whole expression"),
        }
    }
}

/// Splits into names, operators and parentheses.
fn words_of(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let is_mark = |c: char| matches!(c, '(' | ')' | '/');
        let end = match rest.find(|c: char| c.is_whitespace() || is_mark(c)) {
            Some(0) => 1,
            Some(end) => end,
            None => rest.len(),
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

/// Recursive descent, one method per level of binding.
struct Parser<'a> {
    words: Vec<&'a str>,
    next: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> anyhow::Result<Expression> {
        let mut parts = vec![self.all()?];
        while self.take_operator("OR") || self.take_operator("/") {
            parts.push(self.all()?);
        }
        Ok(alone_or(parts, Expression::Any))
    }

    fn all(&mut self) -> anyhow::Result<Expression> {
        let mut parts = vec![self.unit()?];
        while self.take_operator("AND") {
            parts.push(self.unit()?);
        }
        Ok(alone_or(parts, Expression::All))
    }

    fn unit(&mut self) -> anyhow::Result<Expression> {
        if self.take_operator("(") {
            self.depth += 1;
            ensure!(self.depth <= DEPTH_MAX, "parentheses nest deeper than {DEPTH_MAX}");
            let inner = self.any()?;
            ensure!(self.take_operator(")"), "a parenthesis is not closed");
            self.depth -= 1;
            return Ok(inner);
        }
        let licence = self.name()?;
        if self.take_operator("WITH") {
            return Ok(Expression::Licence(format!("{licence} WITH {}", self.name()?)));
        }
        Ok(Expression::Licence(licence.to_owned()))
    }

    fn name(&mut self) -> anyhow::Result<&'a str> {
        match self.peek() {
            Some(word) if !is_operator(word) => {
                self.next += 1;
                Ok(word)
            }
            Some(word) => bail!("`{word}` stands where a licence is expected"),
            None => bail!("it ends where a licence is expected"),
        }
    }

    fn take_operator(&mut self, operator: &str) -> bool {
        let is_next = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(operator));
        self.next += usize::from(is_next);
        is_next
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }
}

fn is_operator(word: &str) -> bool {
    ["OR", "AND", "WITH", "/", "(", ")"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn alone_or(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            join(parts)
        }
    }
}

/// Far beyond any real expression, and shallow enough for any stack.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(names: &[&str]) -> Allowed {
        Allowed(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn is_satisfied(names: &[&str], expression: &str) -> bool {
        let parsed = expression.parse().expect("a well-formed expression");
        allowed(names).satisfies(&parsed)
    }

    #[test]
    fn expressions_are_satisfied_by_the_lists_that_cover_a_choice() {
        for (expression, names, expected) in [
            ("MIT", &["MIT"][..], true),
            ("MIT", &["Apache-2.0"], false),
            ("MIT OR Apache-2.0", &["Apache-2.0"], true),
            ("MIT/Apache-2.0", &["Apache-2.0"], true),
            ("Apache-2.0 / MIT", &["MIT"], true),
            ("MIT or Apache-2.0", &["Apache-2.0"], true),
            ("MIT AND Zlib", &["MIT"], false),
            ("MIT AND Zlib", &["MIT", "Zlib"], true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT"], false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT", "Unicode-3.0"], true),
            ("((MIT))", &["MIT"], true),
            ("GPL-2.0+", &["GPL-2.0"], false),
        ] {
            assert_eq!(is_satisfied(names, expression), expected, "{expression} by {names:?}");
        }
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(is_satisfied(&["MIT"], "MIT OR Zlib AND ISC"));
        assert!(is_satisfied(&["MIT"], "ISC AND Zlib OR MIT"));
        assert!(!is_satisfied(&["MIT", "ISC"], "(MIT OR Zlib) AND (GPL-3.0 OR BSL-1.0)"));
    }

    #[test]
    fn an_exception_is_part_of_the_licence_it_modifies() {
        let expression = "Apache-2.0 WITH LLVM-exception";
        assert!(!is_satisfied(&["Apache-2.0"], expression));
        assert!(is_satisfied(&[expression], expression));
        assert!(is_satisfied(&["MIT"], "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"));
    }

    #[test]
    fn malformed_expressions_are_refused() {
        let deep = "(".repeat(100_000);
        for text in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Zlib", "MIT WITH", "()", &deep] {
            assert!(text.parse::<Expression>().is_err(), "accepted {text:.20}");
        }
    }

    #[test]
    fn the_list_is_read_from_deny_toml() {
        let allowed = Allowed::from_deny_toml("[licenses]\nallow = [\"MIT\"] # why");
        let allowed = allowed.expect("well-formed");
        assert!(allowed.satisfies(&Expression::Licence("MIT".to_owned())));
        assert!(!allowed.satisfies(&Expression::Licence("Zlib".to_owned())));
    }

    #[test]
    fn a_deny_toml_without_a_list_of_names_is_refused() {
        for text in
            ["", "[licenses]", "[licenses]\nallow = [1]", "allow = [\"MIT\"", "licenses = 3"]
        {
            assert!(Allowed::from_deny_toml(text).is_err(), "accepted {text}");
        }
    }
}

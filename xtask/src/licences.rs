//! Licence expressions, and whether a list of allowed licences satisfies one.
//!
//! They are read as cargo-deny reads them, which checks the same list: `A WITH B` is satisfied by
//! `"A WITH B"` in the list, not by `"A"`. Packages may be older than the grammar of SPDX, so `/`
//! stands for `OR`.

use std::str::FromStr;

use anyhow::Context;
use spdx::{Licensee, ParseMode};

/// The licences that dependencies may be used under.
#[derive(Clone, Debug)]
pub(crate) struct Allowed(Vec<Licensee>);

impl Allowed {
    /// The list `licenses.allow` of a `deny.toml`.
    ///
    /// # Errors
    /// The text is not TOML, or the list is missing or holds something else than licences.
    pub(crate) fn from_deny_toml(text: &str) -> anyhow::Result<Self> {
        let config: toml::Table = text.parse().context("reading deny.toml")?;
        let list = config.get("licenses").and_then(|licenses| licenses.get("allow"));
        let list = list.and_then(toml::Value::as_array);
        let names = list.context("deny.toml has no list `licenses.allow`")?.iter();
        let licence = |name: &toml::Value| {
            let words = || format!("{name} in `licenses.allow` of deny.toml is not a licence");
            Licensee::parse(name.as_str().with_context(words)?).with_context(words)
        };
        Ok(Self(names.map(licence).collect::<anyhow::Result<_>>()?))
    }

    /// True when some choice that the expression offers asks only for allowed licences.
    pub(crate) fn satisfies(&self, expression: &Expression) -> bool {
        let is_allowed = |asked: &spdx::LicenseReq| self.0.iter().any(|one| one.satisfies(asked));
        expression.0.evaluate(is_allowed)
    }
}

/// A parsed licence expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression(spdx::Expression);

impl FromStr for Expression {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parsed = spdx::Expression::parse_mode(text, ParseMode::LAX);
        // It shows the text on lines of its own; a complaint is one line and has the text.
        Ok(Self(parsed.map_err(|error| anyhow::anyhow!("{}", error.reason))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_satisfied(names: &[&str], expression: &str) -> bool {
        let list = format!("licenses.allow = {names:?}");
        let allowed = Allowed::from_deny_toml(&list).expect("a list of licences");
        allowed.satisfies(&expression.parse().expect("a well-formed expression"))
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
        ] {
            assert_eq!(is_satisfied(names, expression), expected, "{expression} by {names:?}");
        }
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(is_satisfied(&["MIT"], "MIT OR Zlib AND ISC"));
        assert!(is_satisfied(&["MIT"], "ISC AND Zlib OR MIT"));
        assert!(!is_satisfied(&["MIT", "ISC"], "(MIT OR Zlib) AND (BSL-1.0 OR Zlib)"));
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
        for text in
            ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Zlib", "MIT WITH", "()", "Mine", &deep]
        {
            assert!(text.parse::<Expression>().is_err(), "accepted {text:.20}");
        }
    }

    #[test]
    fn a_deny_toml_without_a_list_of_licences_is_refused() {
        for text in [
            "",
            "[licenses]",
            "[licenses]\nallow = [1]",
            "[licenses]\nallow = [\"Mine\"]",
            "allow = [\"MIT\"",
            "licenses = 3",
        ] {
            assert!(Allowed::from_deny_toml(text).is_err(), "accepted {text}");
        }
    }
}

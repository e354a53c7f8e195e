//! One command of a lane: printed as a user would type it, run without a shell.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// A program, its arguments and what its environment has on top of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Step {
    /// `cargo` as found on the path, not the binary that started us: only the former, rustup's,
    /// understands `+toolchain`, and it is what a user repeating the line gets.
    pub(crate) fn cargo<A: Into<String>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self { program: "cargo".to_owned(), arguments: Vec::new(), environment: Vec::new() }
            .args(arguments)
    }

    /// Appends arguments.
    pub(crate) fn args<A: Into<String>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs to its end in `folder`, with our input and outputs; true when it succeeded.
    ///
    /// # Errors
    /// The program could not be started.
    pub(crate) fn run(&self, folder: &Path) -> anyhow::Result<bool> {
        let status = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .status()
            .with_context(|| format!("`{}` could not be started", self.program))?;
        Ok(status.success())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.program))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

/// The word as the common shells read it back: in double quotes unless it is plain.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "+-_./:=,@\\".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("\"{word}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_prints_as_it_would_be_typed() {
        let step = Step::cargo(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(step.to_string(), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn words_with_blanks_and_empty_words_are_quoted() {
        let step = Step::cargo(["run", "--data", "my data/x", ""]);
        assert_eq!(step.to_string(), "cargo run --data \"my data/x\" \"\"");
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let step = Step { program: "no-such-program-here".to_owned(), ..Step::cargo([""; 0]) };
        let error = step.run(Path::new(".")).expect_err("the program does not exist");
        assert!(format!("{error:#}").contains("no-such-program-here"));
    }
}

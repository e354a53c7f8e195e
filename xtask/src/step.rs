//! One command of a lane: printed as a user would type it, run without a shell.

mod limit;

pub(crate) use self::limit::kill;

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

/// The exit code that says that nothing failed, for nothing could run; test harnesses skip by it.
pub(crate) const CANNOT_RUN: u8 = 77;

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
        Self::new("cargo").args(arguments)
    }

    /// This program, as found on the path, without arguments.
    pub(crate) fn new(program: &str) -> Self {
        Self { program: program.to_owned(), arguments: Vec::new(), environment: Vec::new() }
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
        self.run_within(Duration::MAX, folder)
    }

    /// Like [`run`](Self::run), but nothing it has started goes on after `limit`.
    ///
    /// # Errors
    /// The program could not be started, or hung and was killed.
    pub(crate) fn run_within(&self, limit: Duration, folder: &Path) -> anyhow::Result<bool> {
        let mut child = self.command(folder).spawn().with_context(|| self.not_started())?;
        Ok(limit::wait(&mut child, limit)?.success())
    }

    /// The same command, which leaves the processors to others that want them; `None` where the
    /// system has no program for that.
    pub(crate) fn yielding(&self) -> Option<Self> {
        cfg!(unix).then(|| {
            let Self { program, arguments, environment } = self.clone();
            let nice = Self::new("nice").args(["-n", "19", program.as_str()]).args(arguments);
            Self { environment, ..nice }
        })
    }

    /// Like [`run_within`](Self::run_within), with no input, and outputs that nobody reads.
    ///
    /// # Errors
    /// The program could not be started, or hung and was killed.
    pub(crate) fn run_unheard(&self, limit: Duration, folder: &Path) -> anyhow::Result<bool> {
        let mut command = self.command(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| self.not_started())?;
        Ok(limit::wait(&mut child, limit)?.success())
    }

    /// Like [`run_within`](Self::run_within), with no input, and all that it prints in a file.
    ///
    /// # Errors
    /// The program could not be started, or hung and was killed.
    pub(crate) fn run_into(
        &self,
        file: &File,
        limit: Duration,
        folder: &Path,
    ) -> anyhow::Result<bool> {
        let mut command = self.command(folder);
        let output = || file.try_clone().context("sharing the file of its output");
        command.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
        let mut child = command.spawn().with_context(|| self.not_started())?;
        Ok(limit::wait(&mut child, limit)?.success())
    }

    /// Takes the place of this process where the system can do that, so that an interrupt reaches
    /// only the program, which can then end in order.
    ///
    /// # Errors
    /// The program could not be started.
    pub(crate) fn take_over(&self, folder: &Path) -> anyhow::Result<ExitCode> {
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt as _;
            Err(self.command(folder).exec()).with_context(|| self.not_started())
        }
        #[cfg(not(unix))]
        {
            let status = self.command(folder).status().with_context(|| self.not_started())?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
        }
    }

    /// Like [`run_within`](Self::run_within), with no input, and gives its standard output; it
    /// complains to ours.
    ///
    /// # Errors
    /// The program could not be started, did not succeed, or hung and was killed.
    pub(crate) fn output_within(&self, limit: Duration, folder: &Path) -> anyhow::Result<String> {
        let mut command = self.command(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| self.not_started())?;
        let mut printed = child.stdout.take().expect("it is piped");
        let reader = std::thread::spawn(move || std::io::read_to_string(&mut printed));
        ensure!(limit::wait(&mut child, limit)?.success(), "`{self}` failed");
        let printed = reader.join().expect("it does not panic");
        printed.with_context(|| format!("reading what `{self}` printed"))
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(folder);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn not_started(&self) -> String {
        format!("`{}` could not be started", self.program)
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

    #[cfg(unix)]
    #[test]
    fn one_that_yields_is_the_same_command() {
        let step = Step::cargo(["build", "--release"]).env("A", "b");
        let yielding = step.yielding().expect("this system knows nice");
        assert_eq!(yielding.to_string(), "A=b nice -n 19 cargo build --release");
        let said = Step::new("sh").args(["-c", "echo unheard; exit 3"]);
        let outcome = said.run_unheard(Duration::MAX, Path::new(".")).expect("there is a shell");
        assert!(!outcome);
    }

    #[cfg(unix)]
    #[test]
    fn what_it_prints_is_its_output_unless_it_fails_or_hangs() {
        let output = |script: &str, limit| {
            Step::new("sh").args(["-c", script]).output_within(limit, Path::new("."))
        };
        // More than a pipe holds.
        let long = output("yes | head -c 300000; echo heard >&2", Duration::MAX);
        assert_eq!(long.expect("it succeeds").len(), 300_000);
        let failed = output("echo no; exit 3", Duration::MAX).expect_err("it fails");
        assert!(failed.to_string().ends_with("failed"), "{failed}");
        let hung = output("exec sleep 600", Duration::from_millis(50)).expect_err("it hangs");
        assert!(hung.to_string().starts_with("it hung"), "{hung}");
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

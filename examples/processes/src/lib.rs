//! Members of a cluster as processes of their own on this machine: started, told of each other,
//! stopped.
//!
//! ```text
//!   parent                          child
//!   Member::spawn ────────────────▶ starts to listen
//!   line("an address") ◀─────────── prints where
//!   tell(cluster) ────────────────▶ Parent::cluster
//!   line("ready") ◀──────────────── has connected, prints so
//!   stop, or the end of the parent ─▶ Parent::wait_for_end
//! ```
//! A child runs until its standard input ends: so it also ends when its parent does, however that
//! happens.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Ends the cluster on a child's standard input.
const END_OF_CLUSTER: &str = "# end of cluster";

/// How long a child may take to stop before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// A child process. Dropping it kills it.
#[derive(Debug)]
pub struct Member {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Member {
    /// Starts one.
    ///
    /// # Errors
    /// When the system does not.
    ///
    /// # Panics
    /// Never: its input and output are piped.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| {
            format!("cannot start {}", command.as_std().get_program().display())
        })?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    /// The next line it prints, which is to be `what`.
    ///
    /// # Errors
    /// When it ends without one: then it has failed, and said why on its standard error.
    pub async fn line(&mut self, what: &str) -> Result<String> {
        match self.output.next_line().await? {
            Some(line) => Ok(line),
            None => {
                bail!("a process ended before it printed {what}: {}", self.child.wait().await?)
            }
        }
    }

    /// Tells it the cluster.
    ///
    /// # Errors
    /// When it does not read any more.
    pub async fn tell(&mut self, cluster: &str) -> Result<()> {
        let text = format!("{cluster}{END_OF_CLUSTER}\n");
        Ok(self.input.write_all(text.as_bytes()).await?)
    }

    /// The process, to be waited for, signalled or killed.
    pub fn process(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Stops it in good order, or kills it after five seconds.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn stop(self) -> Result<()> {
        let Self { mut child, input, output } = self;
        drop(input);
        let stopped = tokio::time::timeout(STOP_WITHIN, child.wait()).await;
        drop(output);
        if stopped.is_err() {
            child.kill().await?;
        }
        Ok(())
    }
}

/// The other side, in a child: what its parent says on the standard input.
#[derive(Debug)]
pub struct Parent(Lines<BufReader<Stdin>>);

impl Parent {
    /// The text of the cluster. `None` when the parent has gone before it was said.
    ///
    /// # Errors
    /// When the standard input cannot be read.
    pub async fn cluster() -> Result<Option<(String, Self)>> {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        let mut text = String::new();
        while let Some(line) = input.next_line().await? {
            if line == END_OF_CLUSTER {
                return Ok(Some((text, Self(input))));
            }
            text = text + &line + "\n";
        }
        Ok(None)
    }

    /// Resolves when the parent wants the child to stop, or is gone.
    ///
    /// # Errors
    /// When the standard input cannot be read.
    pub async fn wait_for_end(mut self) -> Result<()> {
        while self.0.next_line().await?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let error = Member::spawn(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }

    #[tokio::test]
    async fn a_process_that_says_nothing_is_an_error() {
        // Any program that ends without being asked for anything.
        let mut member = Member::spawn(Command::new("cargo").arg("--explain-nothing")).unwrap();
        let error = member.line("an address").await.unwrap_err().to_string();
        assert!(error.starts_with("a process ended before it printed an address"), "{error}");
        member.stop().await.unwrap();
    }
}

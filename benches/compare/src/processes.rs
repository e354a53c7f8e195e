//! Servers as processes of their own on this machine: this program, started again with `serve`.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::authority::{Authority, Certificate};
use crate::flavour::Flavour;
use crate::meter::Usage;
use crate::system::System;

/// How long a process may say nothing when it was asked, and how much longer than its time a
/// measurement may take, to connect and to let the last operations end.
pub(crate) const STALLED: Duration = Duration::from_secs(60);

/// Servers to start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program.
    pub program: PathBuf,
    /// The system that the servers speak.
    pub system: System,
    /// The runtimes, of which servers take theirs.
    pub flavour: Flavour,
    /// How much later every frame leaves, where the system can do that.
    pub delay: Duration,
}

/// Running servers. Dropping them ends them.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
    authority: Option<Authority>,
}

impl Servers {
    /// Starts `count` servers, each of which knows those after it.
    ///
    /// # Errors
    /// When a process cannot be started, or ends before it listens.
    pub fn start(setup: &Setup, count: usize) -> Result<Self> {
        let authority = setup.system.has_certificates().then(Authority::create).transpose()?;
        let start = |_| {
            let certificate = authority.as_ref().map(Authority::issue).transpose()?;
            Server::spawn_at(setup, certificate.as_ref(), "127.0.0.1:0")
        };
        let servers = (0..count).map(start).collect::<Result<_>>()?;
        let mut servers = Self { servers, authority };
        let addresses = servers.addresses();
        // From the last on, so that everybody who is dialled listens and nobody is dialled from
        // both ends.
        if setup.system.joins_peers() {
            for (index, server) in servers.servers.iter_mut().enumerate().rev() {
                server.ask(&format!("peers {}", addresses[index + 1..].join(" ")), "joined")?;
            }
        }
        Ok(servers)
    }

    /// Addresses at which the servers listen.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address.clone()).collect()
    }

    /// A certificate that they trust, if they have certificates.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn certificate(&self) -> Result<Option<Certificate>> {
        self.authority.as_ref().map(Authority::issue).transpose()
    }

    /// From now on they count what they spend.
    ///
    /// # Errors
    /// When one has ended.
    pub fn begin(&mut self) -> Result<()> {
        self.servers.iter_mut().try_for_each(|server| server.ask("begin", "begun").map(|_| ()))
    }

    /// Ends the count. Returns the resources that the servers spent together since it began.
    ///
    /// # Errors
    /// When one has ended.
    pub fn end(&mut self) -> Result<Usage> {
        let mut usage = Usage::default();
        for server in &mut self.servers {
            let spent = server.ask("end", "spent")?;
            let (cpu, allocations) = spent.split_once(' ').context("two numbers")?;
            let cpu = Duration::from_nanos(cpu.parse()?);
            usage = usage + Usage { cpu, allocations: allocations.parse()? };
        }
        Ok(usage)
    }
}

/// One process that serves. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: Lines,
    address: String,
}

impl Server {
    /// Starts one that listens there, if its system can be told.
    pub(crate) fn spawn_at(
        setup: &Setup,
        certificate: Option<&Certificate>,
        listen: &str,
    ) -> Result<Self> {
        let mut command = Command::new(&setup.program);
        command.args(["serve", setup.system.name(), setup.flavour.name()]);
        command.args(["--delay-us", &setup.delay.as_micros().to_string(), "--listen", listen]);
        if let Some(certificate) = certificate {
            let (name, value) = certificate.variable();
            command.env(name, value);
        }
        Self::start(command)
    }

    /// Starts what says `listening ADDRESS` first.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a server process")?;
        let input = child.stdin.take().expect("it is a pipe");
        let output = Lines::of(child.stdout.take().expect("it is a pipe"));
        let mut server = Self { child, input, output, address: String::new() };
        server.address = server.output.hear("listening", STALLED)?;
        Ok(server)
    }

    /// Its process, as the system names it.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Address at which it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a line and returns what follows `answer` in the one that comes back.
    pub(crate) fn ask(&mut self, line: &str, answer: &str) -> Result<String> {
        writeln!(self.input, "{line}").context("the server has ended")?;
        self.output.hear(answer, STALLED)
    }
}

/// Lines of a process, read by a thread of their own: a pipe cannot be waited at for some time.
#[derive(Debug)]
struct Lines(mpsc::Receiver<String>);

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The rest of the next line, which begins with this word.
    fn hear(&self, word: &str, patience: Duration) -> Result<String> {
        let line = match self.0.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => bail!("the server has ended"),
            Err(RecvTimeoutError::Timeout) => bail!("the server does not say {word}"),
        };
        match line.strip_prefix(word) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => bail!("the server says {line:?} instead of {word}"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It keeps nothing that would need a good end. Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a process that ends with its input, by
/// [`end_with_input`](crate::control::end_with_input), and so with this one. Gives what it printed.
///
/// # Errors
/// When it cannot be started, or fails.
pub(crate) fn output_of(mut command: Command) -> Result<String> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let input = child.stdin.take();
    let output = child.wait_with_output()?;
    drop(input);
    ensure!(output.status.success(), "its process failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_silent_or_says_something_else_is_an_error() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let lines = Lines::of(reader);
        let heard = |patience| lines.hear("begun", patience).map_err(|error| error.to_string());
        assert_eq!(heard(Duration::ZERO), Err("the server does not say begun".to_owned()));
        writeln!(writer, "begun  at once \nended").unwrap();
        assert_eq!(heard(STALLED).as_deref(), Ok("at once"));
        assert!(heard(STALLED).unwrap_err().contains("instead of begun"));
        drop(writer);
        assert_eq!(heard(STALLED), Err("the server has ended".to_owned()));
    }
}

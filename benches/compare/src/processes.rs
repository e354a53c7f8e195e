//! Servers as processes of their own on this machine: this program, started again with `serve`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::authority::{self, Authority};
use crate::flavour::Flavour;
use crate::meter::Usage;
use crate::system::System;

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
        let folder = authority.as_ref().map(Authority::folder);
        let servers = (0..count).map(|_| Server::spawn(setup, folder)).collect::<Result<_>>()?;
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

    /// The folder of the authority that they trust, if they have certificates.
    pub fn authority(&self) -> Option<&Path> {
        self.authority.as_ref().map(Authority::folder)
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
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn spawn(setup: &Setup, authority: Option<&Path>) -> Result<Self> {
        Self::spawn_at(setup, authority, "127.0.0.1:0")
    }

    /// Starts one that listens there, if its system can be told.
    pub(crate) fn spawn_at(setup: &Setup, authority: Option<&Path>, listen: &str) -> Result<Self> {
        let mut command = Command::new(&setup.program);
        command.args(["serve", setup.system.name(), setup.flavour.name()]);
        command.args(["--delay-us", &setup.delay.as_micros().to_string(), "--listen", listen]);
        if let Some(folder) = authority {
            command.env(authority::VARIABLE, folder);
        }
        Self::start(command)
    }

    /// Starts what says `listening ADDRESS` first.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a server process")?;
        let input = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut server = Self { child, input, output, address: String::new() };
        server.address = server.hear("listening")?;
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
        self.hear(answer)
    }

    fn hear(&mut self, word: &str) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end().strip_prefix(word) {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None if line.is_empty() => bail!("the server has ended"),
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

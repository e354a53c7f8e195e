//! Members of a cluster as processes of their own on this machine: started, told of each other,
//! killed, paused, started again, stopped.
//!
//! ```text
//!   parent                             child
//!   Member::spawn ───────────────────▶ starts to listen
//!   line("an address") ◀────────────── prints where
//!   tell(cluster) ───────────────────▶ Parent::cluster
//!   line("ready") ◀─────────────────── has connected, prints so
//!   kill, pause, resume, terminate ──▶ SIGKILL, SIGSTOP, SIGCONT, SIGTERM
//!   stop, or the end of the parent ──▶ Parent::wait_for_end
//! ```
//! A [`Group`] does the first half of that for all members at once. A node that reads a cluster
//! file needs no `tell`: its addresses are of [`Ports`]. One that dials others by [`Link`]s can be
//! cut off from them.
//!
//! No child is left behind. Dropping a [`Member`] kills it, paused or not; and one that waits for
//! its [`Parent`] also ends when that is killed itself. Signals go to the child alone, and only
//! while it has not been waited for, so that its number cannot be another process's by then.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::process::{ExitStatus, Stdio};
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::net::TcpSocket;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

mod link;
#[cfg(test)]
mod tests;

pub use self::link::{Link, Passage};

/// Ends the cluster on a child's standard input.
const END_OF_CLUSTER: &str = "# end of cluster";

/// Longest time that [`Member::stop`] waits before it kills.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Reason why a process could not be run as wanted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The system does not start the program.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// It ended and was not to: it said why on its standard error.
    #[error("a process ended before it printed {awaited}: {status}")]
    Ended {
        /// The line that was awaited.
        awaited: String,
        /// Its end.
        status: ExitStatus,
    },
    /// It has not printed the line in time.
    #[error("a process has not printed {awaited} within {within:?}")]
    Late {
        /// The line that was awaited.
        awaited: String,
        /// The limit.
        within: Duration,
    },
    /// It does not run, so there is nothing to signal.
    #[error("the process has ended")]
    NotRunning,
    /// The system does not let it be read, told, signalled or waited for.
    #[error("cannot {what}")]
    Io {
        /// The attempt.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl ProcessError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// A child process. Dropping it kills it.
///
/// Its output is a pipe: a process that prints more than its parent reads will wait.
#[derive(Debug)]
pub struct Member {
    command: Command,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Member {
    /// Starts one. Its standard error is this process's, unless the command says otherwise.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub fn spawn(mut command: Command) -> Result<Self, ProcessError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let (child, input, output) = start(&mut command)?;
        Ok(Self { command, child, input, output })
    }

    /// The next line it prints, which is to be `what`. Waits as long as it takes.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] when it ends without one.
    ///
    /// # Cancel safety
    /// Dropped, it has taken no part of a line.
    pub async fn line(&mut self, what: &str) -> Result<String, ProcessError> {
        let line = self.output.next_line().await.map_err(ProcessError::io("read a process"))?;
        match line {
            Some(line) => Ok(line),
            None => {
                let (awaited, status) = (what.to_owned(), self.wait().await?);
                Err(ProcessError::Ended { awaited, status })
            }
        }
    }

    /// The next line, as [`line`](Self::line) has it, if it comes `within` this time.
    ///
    /// # Errors
    /// Those of [`line`](Self::line); [`ProcessError::Late`].
    ///
    /// # Cancel safety
    /// Dropped, it has taken no part of a line.
    pub async fn line_within(
        &mut self,
        what: &str,
        within: Duration,
    ) -> Result<String, ProcessError> {
        let printed = timeout(within, self.line(what)).await;
        printed.unwrap_or_else(|_| Err(late(what, within)))
    }

    /// Tells it the cluster.
    ///
    /// # Errors
    /// [`ProcessError::Io`] when it does not read any more.
    pub async fn tell(&mut self, cluster: &str) -> Result<(), ProcessError> {
        let text = format!("{cluster}{END_OF_CLUSTER}\n");
        let told = self.input.write_all(text.as_bytes()).await;
        told.map_err(ProcessError::io("tell a process the cluster"))
    }

    /// Number of the process. `None` once it has ended and was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The end of it, as soon as it has come.
    ///
    /// # Errors
    /// [`ProcessError::Io`].
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ProcessError> {
        self.child.try_wait().map_err(ProcessError::io("look after a process"))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`ProcessError::Io`].
    pub async fn wait(&mut self) -> Result<ExitStatus, ProcessError> {
        self.child.wait().await.map_err(ProcessError::io("wait for a process"))
    }

    /// Kills it, paused or not, and waits for its end. One that has ended stays so.
    ///
    /// # Errors
    /// [`ProcessError::Io`].
    pub async fn kill(&mut self) -> Result<(), ProcessError> {
        if self.ended()?.is_none() {
            self.child.start_kill().map_err(ProcessError::io("kill a process"))?;
            self.wait().await?;
        }
        Ok(())
    }

    /// Starts it again by the same command. Kills it first if it runs.
    ///
    /// # Errors
    /// [`ProcessError::Start`], [`ProcessError::Io`].
    pub async fn restart(&mut self) -> Result<(), ProcessError> {
        self.kill().await?;
        (self.child, self.input, self.output) = start(&mut self.command)?;
        Ok(())
    }

    /// Lets it rest until [`resume`](Self::resume), without its knowing (SIGSTOP).
    ///
    /// # Errors
    /// [`ProcessError::NotRunning`], [`ProcessError::Io`].
    #[cfg(unix)]
    pub fn pause(&mut self) -> Result<(), ProcessError> {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// [`ProcessError::NotRunning`], [`ProcessError::Io`].
    #[cfg(unix)]
    pub fn resume(&mut self) -> Result<(), ProcessError> {
        self.signal(rustix::process::Signal::CONT)
    }

    /// Asks it to end in good order (SIGTERM), and waits for as long; then kills it. The end tells
    /// which it was.
    ///
    /// # Errors
    /// [`ProcessError::NotRunning`], [`ProcessError::Io`].
    #[cfg(unix)]
    pub async fn terminate(&mut self, within: Duration) -> Result<ExitStatus, ProcessError> {
        self.signal(rustix::process::Signal::TERM)?;
        if timeout(within, self.wait()).await.is_err() {
            self.kill().await?;
        }
        self.wait().await
    }

    #[cfg(unix)]
    fn signal(&mut self, signal: rustix::process::Signal) -> Result<(), ProcessError> {
        // Has it ended, this takes note of it: then it has no number any more.
        self.ended()?;
        let id = self.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        let id = id.ok_or(ProcessError::NotRunning)?;
        let sent = rustix::process::kill_process(id, signal);
        sent.map_err(|error| ProcessError::io("signal a process")(error.into()))
    }

    /// Stops it by the end of its input, as its [`Parent`] tells it; after five seconds kills it.
    ///
    /// # Errors
    /// [`ProcessError::Io`].
    pub async fn stop(self) -> Result<(), ProcessError> {
        let Self { mut child, input, output, .. } = self;
        drop(input);
        let stopped = timeout(STOP_WITHIN, child.wait()).await;
        drop(output);
        if stopped.is_err() {
            child.kill().await.map_err(ProcessError::io("kill a process"))?;
        }
        Ok(())
    }
}

type Started = (Child, ChildStdin, Lines<BufReader<ChildStdout>>);

fn start(command: &mut Command) -> Result<Started, ProcessError> {
    let mut child = command.spawn().map_err(|source| {
        let program = command.as_std().get_program().display().to_string();
        ProcessError::Start { program, source }
    })?;
    let input = child.stdin.take().expect("it is piped");
    let output = child.stdout.take().expect("it is piped");
    Ok((child, input, BufReader::new(output).lines()))
}

fn late(awaited: &str, within: Duration) -> ProcessError {
    ProcessError::Late { awaited: awaited.to_owned(), within }
}

/// Members that know each other. Dropping it kills all.
#[derive(Debug)]
pub struct Group(Vec<Member>);

impl Group {
    /// Starts all, and takes the address that each prints `within` this time.
    ///
    /// # Errors
    /// [`ProcessError`], as soon as one has ended or the time has; those that had started are
    /// killed.
    pub async fn spawn(
        commands: impl IntoIterator<Item = Command>,
        within: Duration,
    ) -> Result<(Self, Vec<String>), ProcessError> {
        let members = commands.into_iter().map(Member::spawn);
        let mut group = Self(members.collect::<Result<_, _>>()?);
        let printed = timeout(within, group.lines("an address")).await;
        let addresses = printed.unwrap_or_else(|_| Err(late("an address", within)))?;
        Ok((group, addresses))
    }

    /// Tells all the cluster, and waits `within` this time until each has printed that it is ready.
    ///
    /// # Errors
    /// [`ProcessError`], as soon as one has ended or the time has.
    pub async fn tell(&mut self, cluster: &str, within: Duration) -> Result<(), ProcessError> {
        let told = async {
            for member in &mut self.0 {
                match member.tell(cluster).await {
                    // It has ended, and its line says how.
                    Err(ProcessError::Io { source, .. })
                        if source.kind() == io::ErrorKind::BrokenPipe => {}
                    told => told?,
                }
            }
            self.lines("ready").await.map(drop)
        };
        timeout(within, told).await.unwrap_or_else(|_| Err(late("ready", within)))
    }

    /// The next line of each. The first member that ends is the error, wherever it stands: others
    /// may wait for it.
    async fn lines(&mut self, what: &str) -> Result<Vec<String>, ProcessError> {
        let mut awaited: Vec<_> =
            self.0.iter_mut().map(|member| Box::pin(member.line(what))).collect();
        let mut lines: Vec<Option<String>> = vec![None; awaited.len()];
        poll_fn(|cx| {
            for (line, awaited) in lines.iter_mut().zip(&mut awaited) {
                if line.is_none()
                    && let Poll::Ready(printed) = awaited.as_mut().poll(cx)
                {
                    *line = Some(printed?);
                }
            }
            let is_whole = lines.iter().all(Option::is_some);
            if is_whole { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await?;
        drop(awaited);
        Ok(lines.into_iter().flatten().collect())
    }

    /// The members, in the order of their commands.
    pub fn members(&mut self) -> &mut [Member] {
        &mut self.0
    }

    /// Stops all, each in good order.
    ///
    /// # Errors
    /// [`ProcessError::Io`].
    pub async fn stop(self) -> Result<(), ProcessError> {
        for member in self.0 {
            member.stop().await?;
        }
        Ok(())
    }
}

/// Ports of this machine for a cluster file, which has to name them before a node starts; each is
/// another.
///
/// On Linux nobody else is given them while this lives, and nodes can listen there, again and
/// again: a socket that is bound with `SO_REUSEADDR`, and does not listen, keeps a port from those
/// that the system chooses, and lets another bind it that asks for it by number and is as kind.
/// Elsewhere they were free when they were asked for. Ports of UDP and of RDMA, for
/// `quic://` and `rdma://`, are not kept.
#[derive(Debug)]
pub struct Ports {
    ports: Vec<u16>,
    _kept: Vec<TcpSocket>,
}

impl Ports {
    /// So many ports.
    ///
    /// # Errors
    /// The system's, when it has no more.
    pub fn reserve(count: usize) -> io::Result<Self> {
        Self::reserve_at(Ipv4Addr::LOCALHOST.into(), count)
    }

    /// So many ports of another address of this machine.
    ///
    /// # Errors
    /// The system's, when it has no more, or does not have the address.
    pub fn reserve_at(host: IpAddr, count: usize) -> io::Result<Self> {
        let socket = || {
            let socket = if host.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(cfg!(target_os = "linux"))?;
            socket.bind((host, 0).into())?;
            Ok(socket)
        };
        // All are kept until the last is known, so that they differ.
        let mut kept = (0..count).map(|_| socket()).collect::<io::Result<Vec<_>>>()?;
        let ports = kept.iter().map(|socket| Ok(socket.local_addr()?.port()));
        let ports = ports.collect::<io::Result<Vec<_>>>()?;
        if !cfg!(target_os = "linux") {
            kept.clear();
        }
        Ok(Self { ports, _kept: kept })
    }
}

impl Deref for Ports {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.ports
    }
}

/// Ports of the loopback that were free a moment ago, for one who cannot keep [`Ports`].
///
/// # Errors
/// The system's, when it has no more.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    Ok(Ports::reserve(count)?.to_vec())
}

/// The other side, in a child: what its parent says on the standard input.
#[derive(Debug)]
pub struct Parent(Lines<BufReader<Stdin>>);

impl Parent {
    /// A parent that says nothing but the end.
    pub fn silent() -> Self {
        Self(BufReader::new(tokio::io::stdin()).lines())
    }

    /// The text of the cluster. `None` when the parent has gone before it was said.
    ///
    /// # Errors
    /// When the standard input cannot be read.
    pub async fn cluster() -> io::Result<Option<(String, Self)>> {
        let mut parent = Self::silent();
        let mut text = String::new();
        while let Some(line) = parent.0.next_line().await? {
            if line == END_OF_CLUSTER {
                return Ok(Some((text, parent)));
            }
            text = text + &line + "\n";
        }
        Ok(None)
    }

    /// Resolves when the parent wants the child to stop, or is gone.
    ///
    /// # Errors
    /// When the standard input cannot be read.
    pub async fn wait_for_end(mut self) -> io::Result<()> {
        while self.0.next_line().await?.is_some() {}
        Ok(())
    }
}

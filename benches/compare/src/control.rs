//! The child's end of the pipe to the process that started it: how a server says where it listens,
//! and is told the others, asked what it spends, and stopped.
//!
//! One line each. The child writes `listening ADDRESS` first. Then it reads `peers ADDRESS..`,
//! answered with `joined`; `begin`, answered with `begun`; and `end`, answered with
//! `spent NANOSECONDS ALLOCATIONS` since `begin`. It ends with its input, and so with its parent,
//! too.

use std::io::{self, BufRead as _, Write as _};
use std::thread;

use anyhow::{Context as _, Result};
use tokio::sync::{mpsc, oneshot};

use crate::meter::Meter;

/// The pipe as a server uses it.
#[derive(Debug)]
pub struct Control {
    listen: String,
    peers: mpsc::UnboundedReceiver<Vec<String>>,
}

/// Resolves when the server is to stop.
#[derive(Debug)]
pub struct Ended(oneshot::Receiver<()>);

impl Ended {
    /// Waits for it.
    pub async fn wait(self) {
        // The reader says so by letting go of the other end.
        let _ = self.0.await;
    }
}

impl Control {
    /// Reads commands on a thread of its own. The server is to listen at `listen`, if it can be
    /// told.
    pub fn start(listen: String) -> (Self, Ended) {
        let (tell_peers, peers) = mpsc::unbounded_channel();
        let (ended, wait) = oneshot::channel();
        thread::spawn(move || {
            read(&tell_peers);
            drop(ended);
        });
        (Self { listen, peers }, Ended(wait))
    }

    /// Address at which the server is to listen.
    pub fn listen(&self) -> &str {
        &self.listen
    }

    /// Says where the server listens.
    ///
    /// # Errors
    /// When nobody reads it.
    pub fn listening(&self, address: &str) -> Result<()> {
        say(&format!("listening {address}"))
    }

    /// The next list of servers to know; waits for ever once there are no more.
    pub async fn peers(&mut self) -> Vec<String> {
        match self.peers.recv().await {
            Some(peers) => peers,
            None => std::future::pending().await,
        }
    }

    /// Says that it knows them.
    ///
    /// # Errors
    /// When nobody reads it.
    pub fn joined(&self) -> Result<()> {
        say("joined")
    }
}

fn read(peers: &mpsc::UnboundedSender<Vec<String>>) {
    let mut meter = None;
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let mut words = line.split_whitespace();
        let answered = match words.next() {
            Some("peers") => {
                // A server that has none to know does not listen for them.
                let _ = peers.send(words.map(str::to_owned).collect());
                Ok(())
            }
            Some("begin") => {
                meter = Some(Meter::start());
                say("begun")
            }
            Some("end") => {
                let usage = meter.take().map(Meter::stop).unwrap_or_default();
                say(&format!("spent {} {}", usage.cpu.as_nanos(), usage.allocations))
            }
            _ => return,
        };
        if answered.is_err() {
            return;
        }
    }
}

/// Ends this process with its input, and so with its parent, whatever it does meanwhile.
pub(crate) fn end_with_input() {
    thread::spawn(|| {
        // What it may say is nothing to this process.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        eprintln!("compare: the parent has ended");
        std::process::exit(1);
    });
}

/// Writes a line to the parent.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("the parent does not listen")
}

//! One endpoint in a process of its own that says what it holds: the other end of what `scale`,
//! `settle` and `attack` measure.
//!
//! It writes `listening ADDRESS` first. Then it reads lines: `next ADDRESS`, answered with
//! `joined`, is where it sends what goes on along a chain; `state` is answered with `state` and a
//! line of JSON. It ends with its input.

mod host;
mod state;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke::transport::TcpTransport;
use convoke::{Endpoint, EndpointBuilder, Limits};

pub use host::serve;
pub(crate) use host::{BODY_BYTES, ECHO, FAIL, HOPS, NEVER};
pub(crate) use state::Remote;
pub(crate) use state::until;
pub use state::{Held, HeldByBoth, PerOne, resident_bytes_of};

/// Room of an endpoint beside the default limits.
#[derive(Clone, Copy, Debug, Args)]
pub struct Room {
    /// Connections, calls or tasks at once.
    count: usize,
    /// Deadline of calls, in seconds.
    deadline_s: u64,
}

impl Room {
    /// The default limits, keep-alive timeout included: a third of 30 s.
    pub const DEFAULT: Self = Self { count: 0, deadline_s: 30 };

    pub(crate) fn new(count: usize, deadline_s: u64) -> Self {
        Self { count, deadline_s }
    }

    /// Longer than a call and what is remembered of it may last.
    pub(crate) fn longest(self) -> Duration {
        Duration::from_secs(self.deadline_s + self.deadline_s.div_ceil(3) + 30)
    }

    /// An endpoint with room for all of it, and else the default limits.
    pub(crate) fn endpoint(self) -> EndpointBuilder {
        // Besides them, the small calls.
        let room = self.count + 64;
        let deadline = Duration::from_secs(self.deadline_s);
        let mut limits = Limits::default();
        // One address may have half of what is shared, or two thirds of running tasks.
        limits.calls_max = limits.calls_max.max(room);
        limits.tasks_max = limits.tasks_max.max(2 * room);
        // Of a cancelled call a mark is remembered, and its task; and the small calls until then.
        limits.remembered_max = limits.remembered_max.max(8 * room);
        limits.deadline_default = deadline;
        limits.deadline_max = limits.deadline_max.max(deadline);
        limits.keep_alive_timeout = deadline / 3;
        Endpoint::builder().limits(limits)
    }

    pub(crate) fn transport(self) -> Result<TcpTransport> {
        let connections_max = (2 * (self.count + 64)).max(4_096);
        Ok(TcpTransport::builder().connections_max(connections_max).build()?)
    }
}

/// One such process: started by the others.
#[derive(Clone, Debug, Args)]
pub struct Host {
    /// The number of its node.
    node: u64,
    /// Address to listen at.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    #[command(flatten)]
    room: Room,
}

impl Host {
    /// At a port that the system chooses.
    pub(crate) fn new(node: u64, room: Room) -> Self {
        Self { node, listen: "127.0.0.1:0".into(), room }
    }

    /// At an address where another has listened.
    pub(crate) fn at(self, listen: &str) -> Self {
        Self { listen: listen.into(), ..self }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["host", "--listen", &self.listen, &self.node.to_string()]);
        command.args([self.room.count.to_string(), self.room.deadline_s.to_string()]);
        command
    }
}

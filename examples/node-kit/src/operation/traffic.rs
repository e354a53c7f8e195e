//! Frames of a node by peer, for a program that compares both ends of connections.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use convoke::{Endpoint, NodeId};
use thiserror::Error;

/// Frames of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Those that were handed to the network.
    pub sent: u64,
    /// Those that have come.
    pub received: u64,
}

/// Frames of a node so far. As text it is a table, the answer of a
/// [`Listener`](super::Listener) for `/traffic`:
///
/// ```text
/// peer sent received
/// 2 4012 3990
/// 3 4007 3986
/// ended 120 118
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Of open connections, by the node at the other end.
    pub open: BTreeMap<NodeId, Frames>,
    /// Of all connections that have ended.
    pub ended: Frames,
}

/// Text that is no table of traffic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{line:?} is no line of a table of traffic, such as `2 4012 3990` or `ended 120 118`")]
pub struct NotTraffic {
    /// The first line that cannot be read, or nothing where the last one is missing.
    pub line: String,
}

impl Traffic {
    /// The traffic of an endpoint. A connection that ends meanwhile may be in it twice.
    pub fn of(endpoint: &Endpoint) -> Self {
        let mut open: BTreeMap<_, Frames> = BTreeMap::new();
        for connection in endpoint.connections() {
            let frames = open.entry(connection.peer).or_default();
            frames.sent += connection.counters.frames_sent;
            frames.received += connection.counters.frames_received;
        }
        let ended = endpoint.ended();
        let ended = Frames { sent: ended.frames_sent, received: ended.frames_received };
        Self { open, ended }
    }

    /// All frames, of open connections and of those that have ended.
    pub fn sum(&self) -> Frames {
        self.open.values().fold(self.ended, |sum, frames| Frames {
            sent: sum.sent.saturating_add(frames.sent),
            received: sum.received.saturating_add(frames.received),
        })
    }
}

const HEAD: &str = "peer sent received";
const ENDED: &str = "ended";

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (peer, Frames { sent, received }) in &self.open {
            writeln!(f, "{} {sent} {received}", peer.get())?;
        }
        writeln!(f, "{ENDED} {} {}", self.ended.sent, self.ended.received)
    }
}

impl FromStr for Traffic {
    type Err = NotTraffic;

    fn from_str(text: &str) -> Result<Self, NotTraffic> {
        let refused = |line: &str| NotTraffic { line: line.to_owned() };
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        if head != HEAD {
            return Err(refused(head));
        }
        let mut open = BTreeMap::new();
        for line in lines {
            let (of, frames) = row(line).ok_or_else(|| refused(line))?;
            if of == ENDED {
                return Ok(Self { open, ended: frames });
            }
            open.insert(of.parse().map_err(|_| refused(line))?, frames);
        }
        Err(refused(""))
    }
}

/// A row by whose it is.
fn row(line: &str) -> Option<(&str, Frames)> {
    let (of, frames) = line.split_once(' ')?;
    let (sent, received) = frames.split_once(' ')?;
    Some((of, Frames { sent: sent.parse().ok()?, received: received.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic() -> Traffic {
        let open = [(2, 4012, 3990), (u64::MAX, u64::MAX, 0)];
        let row = |(peer, sent, received)| (NodeId::new(peer), Frames { sent, received });
        let open = open.map(row);
        Traffic { open: BTreeMap::from(open), ended: Frames { sent: 120, received: 118 } }
    }

    #[test]
    fn traffic_is_read_as_it_was_written() {
        for traffic in [traffic(), Traffic::default()] {
            assert_eq!(traffic.to_string().parse(), Ok(traffic));
        }
    }

    #[test]
    fn a_table_that_is_cut_or_is_none_is_refused_by_its_line() {
        let text = traffic().to_string();
        let cut = text.lines().take(2).collect::<Vec<_>>().join("\n");
        for (text, line) in [
            ("", ""),
            ("no such page\n", "no such page"),
            (&cut, ""),
            ("peer sent received\n0 1 1\nended 1 1\n", "0 1 1"),
            ("peer sent received\n2 1\nended 1 1\n", "2 1"),
            ("peer sent received\nended 1 -1\n", "ended 1 -1"),
        ] {
            let refused = text.parse::<Traffic>().unwrap_err();
            assert_eq!(refused.line, line, "{text:?}");
        }
    }
}

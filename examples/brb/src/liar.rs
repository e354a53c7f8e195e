//! A member that lies: as a source it sends two values, as a member it votes both ways.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use convoke::cast::{Announce, CastBody, CastPort, Digest};
use convoke::quorum::Configuration;
use convoke::quorum::echo::digest_of;
use convoke::{Endpoint, NodeId};

use crate::node::space;
use crate::protocol::{ECHO, READY, SEND};

/// Tells the first half of the others one value and the rest another, as its broadcast `sequence`,
/// and votes for both.
///
/// # Errors
/// When the endpoint takes part already.
pub fn send_two_values(
    endpoint: &Endpoint,
    members: &Configuration,
    sequence: u64,
    values: [&'static str; 2],
) -> Result<()> {
    let port = port(endpoint, endpoint.node(), members, sequence)?;
    let others: Vec<NodeId> = members.nodes().filter(|node| *node != endpoint.node()).collect();
    let (one, two) = others.split_at(others.len().div_ceil(2));
    let me = members.index_of(endpoint.node()).unwrap_or(u16::MAX);
    for (to, value) in [(one, values[0]), (two, values[1])] {
        let digest = digest_of(value.as_bytes());
        port.send(to.iter().copied(), body(me, SEND, digest, Bytes::from_static(value.as_bytes())));
        for phase in [ECHO, READY] {
            port.send(to.iter().copied(), body(me, phase, digest, Bytes::new()));
        }
    }
    Ok(())
}

/// Votes for the value and against it in the broadcast of another.
///
/// # Errors
/// When the endpoint takes part already.
pub fn vote_both_ways(
    endpoint: &Endpoint,
    source: NodeId,
    members: &Configuration,
    sequence: u64,
    value: &str,
) -> Result<()> {
    let port = port(endpoint, source, members, sequence)?;
    let me = members.index_of(endpoint.node()).unwrap_or(u16::MAX);
    for digest in [digest_of(b"something else"), digest_of(value.as_bytes())] {
        let others = members.nodes().filter(|node| *node != endpoint.node());
        port.send(others, body(me, ECHO, digest, Bytes::new()));
    }
    Ok(())
}

/// The liar has no round: it casts what it likes.
fn port(
    endpoint: &Endpoint,
    source: NodeId,
    members: &Configuration,
    sequence: u64,
) -> Result<CastPort> {
    let announce = Announce { senders_min: usize::MAX, source: None };
    let space = endpoint.cast_space(space(members).id(), 1, announce, None)?;
    Ok(space.open(source.get(), sequence, Duration::from_secs(10))?)
}

fn body(sender: u16, phase: u16, digest: Digest, payload: Bytes) -> CastBody {
    CastBody { phase, sender, epoch: 0, digest, payload }
}

//! A server forgets what is settled, however many calls of the initiator stay open beside it.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_proto::id::{CallId, Incarnation, NodeId, NodeLife};
use convoke_proto::node::Node;
use convoke_proto::time::Timestamp;

use crate::network::Network;
use crate::oracle::Oracle;
use crate::scenario::Scenario;

use super::{Invariant, Observation};

/// Longest pause between two questions that told little: 5 ms, doubled eight times.
const ASK_PAUSE_MAX: Duration = Duration::from_millis(1_280);

/// A call by its origin, who sent it, if the origin is connected, and its number.
type Name = (NodeLife, NodeLife, bool, u64);

/// I30 of `settlement.md`.
#[derive(Debug)]
pub(super) struct Remembered {
    /// Time in which a server learns what is settled, where one answer has room for all that is
    /// not, and connections hold.
    lag: Option<Duration>,
    /// Servers that a call passes at most between one that is connected to its initiator and
    /// another: each asks the one before it.
    hops: u32,
    /// Finished tasks of one sender for which no server asks.
    ask_min: usize,
    /// Pairs of a server and who sent it requests: what one of them is not worth a question for
    /// keeps what is below it at the others.
    pairs: usize,
    /// Calls that each core of a server remembers though they are settled, with the time when that
    /// was first seen.
    settled: BTreeMap<(NodeId, Incarnation), BTreeMap<Name, Timestamp>>,
    looks: BTreeMap<(NodeId, Incarnation), u64>,
}

impl Remembered {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let (limits, conditions) = (&scenario.limits, &scenario.conditions);
        let network = Network::new(conditions.clone(), scenario.servers, 0);
        let is_plain = scenario.is_fault_free()
            && !scenario.has_tiny_limits
            && scenario.liars.is_empty()
            && limits.exceptions_max >= scenario.workload.calls;
        let lag = limits.worry_min
            + limits.worry_max * 2
            + ASK_PAUSE_MAX
            + network.latency_max(64 << 10) * 4;
        Self {
            lag: is_plain.then_some(lag),
            hops: u32::try_from(scenario.shape.depth_max).unwrap_or(u32::MAX),
            ask_min: limits.ask_min,
            pairs: scenario.servers * scenario.servers,
            settled: BTreeMap::new(),
            looks: BTreeMap::new(),
        }
    }

    fn check(&mut self, node: &Node, lag: Duration, oracle: &Oracle) -> Result<(), String> {
        let mut settled = BTreeMap::new();
        let before = self.settled.remove(&core_name(node)).unwrap_or_default();
        for (origin, sender, seq) in node.visits().remembered() {
            let call = oracle.calls.get(&CallId { origin: origin.life, seq });
            if call.is_some_and(|call| call.settled_at.is_some()) {
                let is_connected = node.links().to_life(origin).is_some();
                let name = (origin, sender, is_connected, seq);
                settled.insert(name, before.get(&name).copied().unwrap_or(oracle.now));
            }
        }
        let mut stale = BTreeMap::<(NodeLife, NodeLife, bool), usize>::new();
        for ((origin, sender, is_connected, _), since) in &settled {
            let hops = if *is_connected { 1 } else { self.hops };
            if *since + lag * hops < oracle.now {
                *stale.entry((*origin, *sender, *is_connected)).or_default() += 1;
            }
        }
        self.settled.insert(core_name(node), settled);
        let most = |is_connected: bool| match is_connected {
            true => self.ask_min,
            false => self.ask_min * self.pairs,
        };
        match stale.into_iter().find(|((.., connected), count)| *count > most(*connected)) {
            None => Ok(()),
            Some(((origin, sender, is_connected), count)) => Err(format!(
                "{} remembers {count} calls of {origin:?}, connected: {is_connected}, sent by \
                 {sender:?}, that have been settled for long, and asks for more than {}",
                node.identity().node,
                self.ask_min
            )),
        }
    }
}

/// A core by its node and its own calls' origin.
fn core_name(node: &Node) -> (NodeId, Incarnation) {
    (node.identity().node, node.initiator().origin())
}

impl Invariant for Remembered {
    fn name(&self) -> &'static str {
        "I30: a server forgets what is settled"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let (Observation::Node { node, .. }, Some(lag)) = (seen, self.lag) else { return Ok(()) };
        let looks = self.looks.entry(core_name(node)).or_default();
        *looks += 1;
        // What is kept too long stays, so not every look need find it.
        if looks.is_multiple_of(8) { self.check(node, lag, oracle) } else { Ok(()) }
    }
}

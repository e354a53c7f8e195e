//! Dials: who is to be dialled, what waits until that is over, and the pause after one that failed.

use std::time::Duration;

use crate::Outbound;
use crate::id::NodeId;
use crate::time::Timestamp;
use crate::wire::{Frame, Message};

use super::Links;

impl Links {
    /// Nodes without an address can be dialled from now on.
    pub(crate) fn resolve_by_name(&mut self) {
        self.has_resolver = true;
    }

    /// True when a node that is [`Way::Dead`](super::Way::Dead) can be dialled by its name alone.
    pub(crate) fn is_resolvable(&self, now: Timestamp, node: NodeId) -> bool {
        let neighbour = self.neighbours.get(&node);
        self.has_resolver
            && !self.is_over
            && neighbour.is_none_or(|neighbour| now >= neighbour.resolved_until)
    }

    /// True while a node is dialled because this one wants to reach it: a request or a cast waits
    /// for it, or was to follow.
    pub fn is_called(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| {
            let mut waiting = neighbour.waiting.iter();
            neighbour.is_own_doing || waiting.any(|(_, one)| is_own_doing(&one.frame))
        })
    }

    /// The resolver is asked for a node that is dialled. Only then does the failure of the dial
    /// keep it from being asked again for a while.
    pub(crate) fn note_resolved(&mut self, node: NodeId) {
        if let Some(neighbour) = self.neighbours.get_mut(&node) {
            neighbour.is_resolved = neighbour.is_dialling;
        }
    }

    /// Nobody is dialled from now on. Returns those that are: their dials are to be taken for
    /// failed.
    pub(crate) fn stop_dialling(&mut self) -> Vec<NodeId> {
        self.is_over = true;
        self.dials.clear();
        let dialled = self.neighbours.iter().filter(|(_, neighbour)| neighbour.is_dialling);
        dialled.map(|(node, _)| *node).collect()
    }

    /// Asks for a dial unless one is under way.
    pub(crate) fn dial(&mut self, node: NodeId) {
        let neighbour = self.neighbour(node);
        if !neighbour.is_dialling {
            neighbour.is_dialling = true;
            self.dials.push_back(node);
        }
    }

    /// The same of a dial that nothing waits for, and that this node wants.
    pub(crate) fn dial_ahead(&mut self, node: NodeId) {
        self.dial(node);
        self.neighbour(node).is_own_doing = true;
    }

    /// Keeps a frame until the dial ends, and asks for it. Gives it back when too much waits
    /// already; a question, when an eighth of what may. Where nothing does, one waits however large
    /// it is: no bound of what waits is one of messages.
    pub(crate) fn wait(&mut self, now: Timestamp, outbound: Outbound) -> Option<Outbound> {
        let to = outbound.to;
        let size = outbound.frame.waiting_len();
        self.dial(to);
        // Questions come again and again, and must not keep requests out.
        let part = if matches!(outbound.frame.message, Message::Probe(_)) { 8 } else { 1 };
        let fits = |waiting, max| waiting + size <= max / part || (waiting == 0 && max > 0);
        let has_room = fits(self.waiting_bytes, self.waiting_bytes_max);
        let queue_bytes_max = self.queue_bytes_max;
        let neighbour = self.neighbour(to);
        if !has_room || !fits(neighbour.waiting_bytes, queue_bytes_max) {
            return Some(outbound);
        }
        neighbour.waiting_bytes += size;
        neighbour.waiting.push_back((now, outbound));
        self.waiting_bytes += size;
        None
    }

    /// True while frames wait for a dial.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_bytes > 0
    }

    /// Frames that wait for a dial, each with the time at which it began to.
    pub(super) fn take_waiting(&mut self, node: NodeId) -> Vec<(Timestamp, Outbound)> {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return Vec::new() };
        self.waiting_bytes -= std::mem::take(&mut neighbour.waiting_bytes);
        std::mem::take(&mut neighbour.waiting).into()
    }

    pub(crate) fn has_dials(&self) -> bool {
        !self.dials.is_empty()
    }

    /// A node to dial.
    pub(crate) fn poll_dial(&mut self) -> Option<NodeId> {
        self.dials.pop_front()
    }

    /// True when `node` is being dialled, and so nothing has left for it yet.
    pub fn is_dialling(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|n| n.up.is_empty() && n.is_dialling)
    }

    /// A dial that was asked for failed. Returns what has waited for it.
    pub(crate) fn handle_dial_failed(
        &mut self,
        now: Timestamp,
        node: NodeId,
    ) -> Vec<(Timestamp, Outbound)> {
        self.clock = self.clock.max(now);
        let jitter = self.next_random();
        let (backoff_min, backoff_max) = (self.backoff_min, self.backoff_max);
        let neighbour = self.neighbour(node);
        (neighbour.is_dialling, neighbour.is_own_doing) = (false, false);
        let ceiling = backoff_min * 2_u32.saturating_pow(neighbour.failures.min(16));
        let ceiling = ceiling.min(backoff_max);
        neighbour.failures = neighbour.failures.saturating_add(1);
        neighbour.backoff_until = now + full_jitter(ceiling, jitter);
        if std::mem::take(&mut neighbour.is_resolved) {
            neighbour.resolved_until = neighbour.backoff_until;
        }
        let waited = self.take_waiting(node);
        self.forget_idle(node);
        waited
    }

    /// Keeps why a dial failed, for whoever asks why a node cannot be reached.
    pub(crate) fn note_dial_error(&mut self, node: NodeId, text: &str) {
        text.clone_into(&mut self.neighbour(node).last_error);
    }

    /// Reason why a node cannot be reached, for people.
    pub fn why_unreachable(&self, node: NodeId) -> &str {
        match self.neighbours.get(&node) {
            _ if self.is_over => {
                "the endpoint that was to send the request has been shut down, or its runtime is \
                 gone: ask by another"
            }
            Some(neighbour) if neighbour.is_dialling => {
                "it is being dialled, and as much waits for that as dial_queue_bytes_max and \
                 dial_bytes_total_max allow"
            }
            Some(neighbour) if !neighbour.last_error.is_empty() => &neighbour.last_error,
            _ => "none of its addresses is known here",
        }
    }

    /// xorshift64*: jitter needs no better, and the seed is the driver's.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// True for a frame that this node itself has decided to send. Others cause other frames, so no
/// stranger's word asks the resolver.
pub(crate) fn is_own_doing(frame: &Frame) -> bool {
    matches!(frame.message, Message::Request(_) | Message::Cast(_))
}

/// A time between a tenth of `ceiling` and `ceiling`.
fn full_jitter(ceiling: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
    let least = nanos / 10;
    Duration::from_nanos(least + random % (nanos - least).max(1))
}

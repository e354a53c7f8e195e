//! The flows to one site: several connections of one transport, because a network may cap each.
//! (ShallowForest, section 6.4: 20 to 30 between each two sites of a public cloud)

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::id::{Incarnation, LinkNonce};
use convoke_core::time::Timestamp;
use convoke_core::transport::{Appended, Connection, Lane, NotWritable};

/// Open connections to one site. A frame goes whole over one of them, so that frames of one site
/// may pass each other.
#[derive(Debug, Default)]
pub(super) struct Flows {
    open: Vec<Flow>,
    /// The next to try, so that all are used.
    next: usize,
    /// Lifetime of the flow that ended last.
    lived: Option<Duration>,
}

#[derive(Debug)]
struct Flow {
    connection: Arc<dyn Connection>,
    opened_at: Timestamp,
    /// Bytes that it has handed to the network, as far as they were asked for.
    sent: u64,
    /// Frames that it was given.
    given: u64,
    /// The site has said over it that it has the same list of sites.
    is_joined: bool,
    /// The last frame filled its buffer.
    is_full: bool,
}

/// A frame that was appended.
#[derive(Debug)]
pub(super) struct Taken {
    /// To be flushed.
    pub(super) connection: Arc<dyn Connection>,
    /// It has filled the connection's buffer: somebody has to wait until there is room again.
    pub(super) has_filled: bool,
}

impl Flows {
    pub(super) fn open(&mut self, now: Timestamp, connection: Arc<dyn Connection>) {
        let given = connection.counters().frames_sent;
        let (sent, is_joined, is_full) = (0, false, false);
        self.open.push(Flow { connection, opened_at: now, sent, given, is_joined, is_full });
    }

    /// The site has the same list of sites, as it says over this flow: from now on it is used. True
    /// when it was not.
    pub(super) fn join(&mut self, nonce: LinkNonce) -> bool {
        let flow = self.open.iter_mut().find(|flow| flow.connection.link().nonce == nonce);
        flow.is_some_and(|flow| !std::mem::replace(&mut flow.is_joined, true))
    }

    /// Closes the flow of this nonce. True when it was in use.
    pub(super) fn close(&mut self, now: Timestamp, nonce: LinkNonce) -> bool {
        let index = self.open.iter().position(|flow| flow.connection.link().nonce == nonce);
        let Some(index) = index else { return false };
        let flow = self.open.remove(index);
        self.lived = Some(now.since(flow.opened_at));
        flow.is_joined
    }

    /// Bytes that were handed to the network since this was asked last.
    pub(super) fn take_sent(&mut self) -> u64 {
        let sent = |flow: &mut Flow| {
            let now = flow.connection.counters().bytes_sent;
            now.saturating_sub(std::mem::replace(&mut flow.sent, now))
        };
        self.open.iter_mut().map(sent).sum()
    }

    /// Takes the lifetime of the flow that ended last, if one has since this was asked last.
    pub(super) fn take_lived(&mut self) -> Option<Duration> {
        self.lived.take()
    }

    /// Takes out those of other lives of the site.
    pub(super) fn close_others(&mut self, life: Incarnation) -> Vec<Arc<dyn Connection>> {
        let is_other = |flow: &mut Flow| flow.connection.link().peer.incarnation != life;
        self.open.extract_if(.., is_other).map(|flow| flow.connection).collect()
    }

    /// A flow has room again.
    pub(super) fn set_writable(&mut self, nonce: LinkNonce) {
        let flow = self.open.iter_mut().find(|flow| flow.connection.link().nonce == nonce);
        if let Some(flow) = flow {
            flow.is_full = false;
        }
    }

    /// True for the nonce of one of them.
    pub(super) fn has(&self, nonce: LinkNonce) -> bool {
        self.open.iter().any(|flow| flow.connection.link().nonce == nonce)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Number of those that are used.
    pub(super) fn joined(&self) -> usize {
        self.open.iter().filter(|flow| flow.is_joined).count()
    }

    /// True when a flow has room for data.
    pub(super) fn is_writable(&self) -> bool {
        self.open.iter().any(|flow| flow.is_joined && !flow.is_full)
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<dyn Connection>> {
        self.open.iter().map(|flow| &flow.connection)
    }

    /// Appends a frame to the flow with the fewest that wait there, of those with as many the next
    /// in turn: one that the network lets send less gets less, and no frame is far behind those
    /// that came after it. On the control lane, to the next.
    ///
    /// # Errors
    /// [`NotWritable`] when none takes it.
    pub(super) fn append(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &Bytes,
    ) -> Result<Taken, NotWritable> {
        let mut refusal = NotWritable::Closed;
        let waiting = |flow: &Flow| if lane == Lane::Data { flow.waiting() } else { 0 };
        for index in turns(self.next, self.open.iter().map(waiting)) {
            let flow = &mut self.open[index];
            if !flow.is_joined {
                continue;
            }
            if flow.is_full && lane == Lane::Data {
                refusal = NotWritable::Full;
                continue;
            }
            match flow.connection.append_bytes(lane, head, body.clone()) {
                Ok(appended) => {
                    let has_filled = appended == Appended::Full && lane == Lane::Data;
                    flow.is_full |= has_filled;
                    flow.given += 1;
                    self.next = index + 1;
                    return Ok(Taken { connection: flow.connection.clone(), has_filled });
                }
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

impl Flow {
    /// Frames that it has not handed to the network yet.
    fn waiting(&self) -> u64 {
        self.given.saturating_sub(self.connection.counters().frames_sent)
    }
}

/// The order in which flows are tried, of each of which so many frames wait: fewest first, of
/// equals from `next` on.
fn turns(next: usize, waiting: impl ExactSizeIterator<Item = u64>) -> Vec<usize> {
    let count = waiting.len();
    let mut flows: Vec<(u64, usize)> = waiting.zip(0..).collect();
    flows.sort_unstable_by_key(|(waiting, index)| {
        (*waiting, (index + count - next % count) % count)
    });
    flows.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of four flows sends an eighth of what the others do.
    #[test]
    fn a_flow_that_the_network_lets_send_less_gets_less() {
        let (mut given, mut sent, mut next) = ([0_u64; 4], [0_u64; 4], 0);
        for step in 0..1_600_u64 {
            let first = turns(next, given.iter().zip(sent).map(|(given, sent)| given - sent))[0];
            given[first] += 1;
            next = first + 1;
            for (index, sent) in sent.iter_mut().enumerate() {
                let is_turn = step % 3 == 0 && (index > 0 || step % 24 == 0);
                *sent = given[index].min(*sent + u64::from(is_turn));
            }
            let waiting = given.iter().zip(sent).map(|(given, sent)| given - sent);
            let (least, most) = waiting.fold((u64::MAX, 0), |(a, b), it| (a.min(it), b.max(it)));
            assert!(most - least <= 2, "{given:?} {sent:?}");
        }
        assert!(given[0] * 3 < given[1], "{given:?}");
    }

    #[test]
    fn flows_with_as_many_frames_take_turns() {
        assert_eq!(turns(2, [0, 0, 0].into_iter()), [2, 0, 1]);
        assert_eq!(turns(3, [0, 0, 0].into_iter()), [0, 1, 2], "one was lost since");
        assert_eq!(turns(1, [1, 1, 0].into_iter()), [2, 1, 0]);
        assert!(turns(1, [].into_iter()).is_empty());
    }
}

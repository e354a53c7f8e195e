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
        let (sent, is_joined, is_full) = (0, false, false);
        self.open.push(Flow { connection, opened_at: now, sent, is_joined, is_full });
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

    /// Appends a frame to the next flow that has room; on the control lane, to any.
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
        for step in 0..self.open.len() {
            let index = (self.next + step) % self.open.len();
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
                    self.next = index + 1;
                    return Ok(Taken { connection: flow.connection.clone(), has_filled });
                }
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

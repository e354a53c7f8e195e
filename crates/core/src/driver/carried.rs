//! Casts whose values travel beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::NodeId;
use convoke_proto::mailbox::MailKey;
use convoke_proto::task::TaskFailure;
use convoke_proto::wire::{Cast, Frame, Message};
use convoke_transport::parts::Mutex;
use smallvec::SmallVec;

use crate::carrier::{Carried, REFERENCE_BYTES_MAX};
use crate::transport::{Link, PeerName};

use super::Driver;

/// Number of casts of each peer that wait for their values.
#[derive(Debug, Default)]
pub(super) struct CarriedCasts(Mutex<BTreeMap<PeerName, usize>>);

/// Most casts of one peer that wait for their values, under whichever names it casts. One more is
/// dropped, as a cast is that finds no room in its mailbox.
const WAITING_MAX: usize = 256;

impl CarriedCasts {
    fn enter(&self, from: &PeerName) -> bool {
        let mut counts = self.0.lock();
        let waiting = counts.entry(from.clone()).or_default();
        let has_room = *waiting < WAITING_MAX;
        *waiting += usize::from(has_room);
        has_room
    }

    fn leave(&self, from: &PeerName) {
        let mut counts = self.0.lock();
        if let Some(waiting) = counts.get_mut(from) {
            *waiting -= 1;
            if *waiting == 0 {
                counts.remove(from);
            }
        }
    }
}

/// While it lives, a cast of a peer waits for its value.
struct Waiting {
    driver: Arc<Driver>,
    from: PeerName,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.driver.carried.leave(&self.from);
    }
}

impl Driver {
    /// Sends a cast to each of these nodes; a large value by the carrier to those that it takes it
    /// for. Returns the turn in which it does.
    pub(crate) fn send_casts(
        self: &Arc<Self>,
        key: MailKey,
        mut to: SmallVec<[NodeId; 8]>,
        cast: Cast,
    ) -> u64 {
        let Some(Carried { reference, nodes }) = self.offer_value(&to, &cast.payload) else {
            return self.with_node(key.origin(), |node, now| node.send_casts(now, key, to, cast));
        };
        to.retain(|node| !nodes.contains(node));
        let beside = Cast { is_carried: true, payload: reference, ..cast.clone() };
        self.with_node(key.origin(), |node, now| {
            let turn = node.send_casts(now, key, nodes, beside);
            node.send_casts(now, key, to, cast);
            turn
        })
    }

    fn offer_value(&self, to: &[NodeId], value: &Bytes) -> Option<Carried> {
        let others: Vec<NodeId> =
            to.iter().copied().filter(|node| *node != self.identity.node).collect();
        self.offer(&others, value)
    }

    /// Hands a cast to its mailbox once its value is here. One that the mailbox would not keep has
    /// nothing brought: its value may cost a call to its sender.
    pub(super) fn bring_cast(self: Arc<Self>, link: &Link, frame: Frame) {
        let call = frame.header.call;
        let Message::Cast(cast) = frame.message else { return };
        // A relayed one is a fault elsewhere; here it is nobody's.
        if cast.payload.len() > REFERENCE_BYTES_MAX || frame.relayed.is_some() {
            return;
        }
        let (from, name) = (link.peer.node, link.peer_name());
        if !self.ask_node(call.origin, |node| node.would_keep_cast(from, call, &cast)) {
            return;
        }
        if !self.carried.enter(&name) {
            self.ask_node(call.origin, |node| node.mailboxes_mut().note_over_limit());
            return;
        }
        let budget = Duration::from_micros(cast.budget_us).min(self.deadline_max);
        let (driver, start) = (self.clone(), self.now());
        let waiting = Waiting { driver: self.clone(), from: name };
        self.runtime.spawn(async move {
            let value = driver.bring(from, cast.payload.clone(), budget, || Ok(()));
            let value = tokio::time::timeout(budget, value).await;
            drop(waiting);
            match value {
                Ok(Ok(payload)) => {
                    return driver.with_node(call.origin, |node, now| {
                        let spent_us =
                            u64::try_from(now.since(start).as_micros()).unwrap_or(u64::MAX);
                        let budget_us = cast.budget_us.saturating_sub(spent_us);
                        let cast = Cast { is_carried: false, payload, budget_us, ..cast };
                        node.handle_cast(now, from, call, cast);
                    });
                }
                Ok(Err(TaskFailure { text, .. })) => {
                    tracing::debug!(%from, text, "the value of a cast did not come")
                }
                Err(_) => tracing::debug!(%from, "the value of a cast did not come in its time"),
            }
            driver.ask_node(call.origin, |node| node.mailboxes_mut().note_missing());
        });
    }
}

#[cfg(test)]
mod tests {
    use convoke_proto::id::{CallId, Incarnation, LinkNonce, Path, TaskKey};
    use convoke_proto::link::Hello;
    use convoke_proto::wire::{About, Digest, Header};

    use super::*;
    use crate::Endpoint;
    use crate::carrier::{BodyCarrier, CarryError};
    use crate::transport::BoxFuture;

    /// Panics when it is asked for a value, or says that it is none of its own.
    #[derive(Debug)]
    enum Broken {
        Panics,
        Refuses,
    }

    impl BodyCarrier for Broken {
        fn body_bytes_min(&self) -> usize {
            0
        }

        fn offer(&self, _: &[NodeId], _: &Bytes) -> Option<Carried> {
            None
        }

        fn body(&self, from: NodeId, _: Bytes) -> BoxFuture<Result<Bytes, CarryError>> {
            match self {
                Self::Panics => panic!("on purpose"),
                Self::Refuses => {
                    let message = "no reference of mine".to_owned();
                    Box::pin(async move { Err(CarryError::Invalid { from, message }) })
                }
            }
        }

        fn held(&self, _: NodeId, _: &Bytes) -> Option<Bytes> {
            None
        }
    }

    /// A member has cast what its carrier, the same as here, has brought or not.
    async fn cast_beside(endpoint: &Endpoint, carrier: Broken) {
        let (driver, node) = (endpoint.driver(), NodeId::new(2));
        driver.set_carrier(Arc::new(carrier));
        let origin = driver.identity.incarnation;
        let peer = Hello {
            node,
            incarnation: Incarnation(1 << 8),
            advertised: Vec::new(),
            frame_bytes_max: 1 << 20,
        };
        let (nonce, scheme) = (LinkNonce(1), "test");
        let link = Link { peer, nonce, is_dialler: false, scheme, principal: None, remote: None };
        let cast = Cast {
            about: About::Tag { view: 0 },
            phase: 0,
            sender: 0,
            epoch: 0,
            budget_us: 1_000_000,
            digest: Digest::ZERO,
            is_carried: true,
            payload: Bytes::from_static(b"reference"),
        };
        let header = Header {
            call: CallId { origin, seq: 1 },
            task: TaskKey { path: Path::root(), hop: 0 },
        };
        let message = Message::Cast(cast);
        driver.clone().bring_cast(&link, Frame { header, relayed: None, key: None, message });
        let waiting = || driver.carried.0.lock().values().sum::<usize>();
        assert_eq!(waiting(), 1);
        // On this thread alone: others have their turn, and the carrier is asked.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting(), 0);
    }

    #[tokio::test]
    async fn a_carrier_that_panics_uses_up_no_place() {
        let endpoint = Endpoint::builder().start().await.expect("nothing to bind");
        cast_beside(&endpoint, Broken::Panics).await;
    }

    #[tokio::test]
    async fn a_cast_without_its_value_is_counted() {
        let endpoint = Endpoint::builder().start().await.expect("nothing to bind");
        cast_beside(&endpoint, Broken::Refuses).await;
        assert_eq!(endpoint.casts_dropped().missing, 1);
    }
}

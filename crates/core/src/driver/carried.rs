//! Casts whose values travel beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::NodeId;
use convoke_proto::mailbox::MailKey;
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

impl Driver {
    /// Sends a cast to each of these nodes; a large value by the carrier to those that it takes it
    /// for.
    pub(crate) fn send_casts(
        self: &Arc<Self>,
        key: MailKey,
        mut to: SmallVec<[NodeId; 8]>,
        cast: Cast,
    ) {
        let Some(Carried { reference, nodes }) = self.offer_value(&to, &cast.payload) else {
            return self.with_node(key.origin(), |node, now| node.send_casts(now, key, to, cast));
        };
        to.retain(|node| !nodes.contains(node));
        let beside = Cast { is_carried: true, payload: reference, ..cast.clone() };
        self.with_node(key.origin(), |node, now| {
            node.send_casts(now, key, nodes, beside);
            node.send_casts(now, key, to, cast);
        });
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
        self.runtime.spawn(async move {
            let value = driver.bring(from, cast.payload.clone(), budget);
            let value = tokio::time::timeout(budget, value).await;
            driver.carried.leave(&name);
            match value {
                Ok(Ok(payload)) => driver.with_node(call.origin, |node, now| {
                    let spent_us = u64::try_from(now.since(start).as_micros()).unwrap_or(u64::MAX);
                    let budget_us = cast.budget_us.saturating_sub(spent_us);
                    let cast = Cast { is_carried: false, payload, budget_us, ..cast };
                    node.handle_cast(now, from, call, cast);
                }),
                Ok(Err(status)) => {
                    tracing::debug!(%from, %status, "the value of a cast did not come")
                }
                Err(_) => tracing::debug!(%from, "the value of a cast did not come in its time"),
            }
        });
    }
}

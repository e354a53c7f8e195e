//! Sink of the transports: connections that open, bring frames and close.

use std::sync::Arc;

use convoke_proto::wire::Glance;

use crate::transport::{CloseReason, Connection, Hello, Link, Order, Received, Sink};

use super::batch::Intake;
use super::ending::SUBSCRIBER;
use super::proof::Unwanted;
use super::{Driver, FlushScope};

impl Sink for Driver {
    fn hello(&self) -> Hello {
        Hello {
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            advertised: self.advertised.lock().clone(),
            frame_bytes_max: self.frame_bytes_max,
        }
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        let link = connection.link().clone();
        let driver = self.as_arc();
        let is_trusted = self.transports.iter().any(|one| one.trusts_node(link.peer.node));
        // Before the node sends anything over it; what is refused sends nothing.
        self.packing.announce(connection.as_ref());
        if let Err(unwanted) = driver.attach(&connection, is_trusted) {
            self.refuse(&link, unwanted);
            return Err(unwanted.to_string());
        }
        self.telemetry.on_open(&link);
        driver.peer_changed(link.peer.node);
        driver.drain_doubles(link.peer.node);
        SUBSCRIBER.call(|| {
            tracing::debug!(peer = %link.peer.node, scheme = link.scheme, "connection open");
        });
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let _scope = FlushScope::enter();
        let driver = self.as_arc();
        let mut intake = Intake::new(self, from.as_ref(), frames);
        let taken = driver.take_batch(&mut intake);
        let link = intake.link();
        let Intake { count, carried, words, .. } = intake;
        self.telemetry.on_batch(count);
        driver.hear(link, &words);
        if !carried.is_empty() {
            carried.into_iter().for_each(|frame| driver.clone().bring_cast(from.link(), frame));
        }
        taken
    }

    /// The protocol relies on order within a call, and its handlers on that of requests to ordered
    /// methods.
    fn order(&self, head: &[u8]) -> Order {
        let Ok(glance) = Glance::of(head) else { return Order::Lane };
        let method = glance.method.and_then(|method| self.methods.get(method));
        if method.is_some_and(|method| method.order_by.is_some()) {
            return Order::Lane;
        }
        // Calls that happen to share a number keep an order they do not need.
        Order::Group(glance.call.origin.0 ^ glance.call.seq)
    }

    /// All frames of a call, in whichever method's order its request is.
    fn group(&self, head: &[u8]) -> u64 {
        Glance::of(head).map_or(0, |glance| glance.call.origin.0 ^ glance.call.seq)
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        let (peer, nonce) = (link.peer.node, link.nonce);
        self.packing.forget(peer, nonce);
        let mut closed = None;
        self.as_arc().with_each(|core, now, _| {
            if core.index == 0 {
                self.partings.lock().end((peer, nonce));
            }
            if let Some((id, attached)) = core.connections_mut().remove(peer, nonce) {
                core.node.handle_link_down(now, id);
                closed.get_or_insert(attached.connection);
            }
        });
        self.peer_changed(peer);
        if let Some(connection) = closed {
            self.telemetry.on_closed(connection.as_ref(), &reason);
        }
        if let Some(left_out) = self.logged.closed.pass() {
            SUBSCRIBER.call(|| {
                tracing::info!(%peer, nonce = nonce.0, %reason, left_out, "connection closed");
            });
        }
    }

    fn on_crash(&self) {
        self.as_arc().close();
    }
}

impl Driver {
    fn refuse(&self, link: &Link, unwanted: Unwanted) {
        let (peer, scheme, reason) = (link.peer.node, link.scheme, unwanted.name());
        match unwanted {
            Unwanted::ShuttingDown => {
                SUBSCRIBER.call(|| {
                    tracing::debug!(%peer, scheme, reason, "connection refused");
                });
            }
            _ => {
                if let Some(left_out) = self.logged.refused.pass() {
                    SUBSCRIBER.call(|| {
                        tracing::warn!(
                            %peer, scheme, reason, left_out,
                            "connection refused: {unwanted}"
                        );
                    });
                }
            }
        }
        self.telemetry.on_refused(link, reason);
    }
}

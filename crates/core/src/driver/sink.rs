//! What transports tell the endpoint: connections that open, bring frames and close.

use std::sync::Arc;

use crate::transport::{CloseReason, Connection, Hello, Link, Order, Received, Sink};
use crate::wire::{Frame, Glance};

use super::{Attached, Driver, FlushScope};

impl Sink for Driver {
    fn hello(&self) -> Hello {
        Hello {
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            advertised: self.state.lock().advertised.clone(),
            frame_bytes_max: self.frame_bytes_max,
        }
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        let link = connection.link().clone();
        if link.peer.node == self.identity.node {
            return Err(format!("{} is this node's own name", link.peer.node));
        }
        tracing::debug!(peer = %link.peer.node, scheme = link.scheme, "connection open");
        let opened = connection.clone();
        {
            let mut state = self.state.lock();
            if state.is_closing {
                return Err("the endpoint is shutting down".to_owned());
            }
            state.connections.insert((link.peer.node, link.nonce), Attached::new(connection));
        }
        self.telemetry.on_open(&link);
        self.packing.announce(opened.as_ref());
        let driver = self.as_arc();
        driver.with_node(|node, now| node.handle_link_up(now, &link));
        driver.peer_changed(link.peer.node);
        driver.drain_doubles(link.peer.node);
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let _scope = FlushScope::enter();
        let (peer, link) = (from.link().peer.node, from.link().nonce);
        let mut count = 0;
        let taken = self.as_arc().with_node(|node, now| {
            for received in frames {
                count += 1;
                if self.packing.take(peer, link, &received.bytes)? {
                    continue;
                }
                let frame = Frame::decode(&received.bytes).map_err(|error| error.to_string())?;
                node.handle_frame(now, peer, link, frame).map_err(|fault| fault.to_string())?;
            }
            Ok(())
        });
        self.telemetry.on_batch(count);
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

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        let (peer, nonce) = (link.peer.node, link.nonce);
        tracing::debug!(%peer, %reason, "connection closed");
        let closed = self.state.lock().connections.remove(&(peer, nonce));
        self.packing.forget(peer, nonce);
        if let Some(closed) = closed {
            self.telemetry.on_closed(closed.connection.as_ref(), &reason);
        }
        self.as_arc().with_node(|node, now| node.handle_link_down(now, peer, nonce));
        self.peer_changed(peer);
    }
}

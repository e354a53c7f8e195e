//! Listeners of an endpoint, and its close.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use convoke_proto::id::NodeId;
use convoke_transport::parts::{Mutex, wake_all};

use crate::transport::{Address, CloseReason, Listener};

use super::Driver;
use super::reconnect::KeepConnected;

/// Listeners of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Doors {
    listeners: Mutex<Vec<Box<dyn Listener>>>,
    /// Set when all listen.
    addresses: OnceLock<Vec<Address>>,
    /// Connections that are kept up with the endpoint.
    kept: Mutex<BTreeMap<NodeId, KeepConnected>>,
}

impl Driver {
    /// Accepts by `listener` until the endpoint stops listening.
    pub(crate) fn keep_listener(&self, listener: Box<dyn Listener>) {
        self.doors.listeners.lock().push(listener);
    }

    /// Says, once, where it listens.
    pub(crate) fn listens_at(&self, addresses: Vec<Address>) {
        self.doors.addresses.set(addresses).expect("it starts once");
    }

    /// Keeps a connection up until the endpoint closes or the node is forgotten.
    pub(super) fn keep_connection(&self, node: NodeId, kept: KeepConnected) {
        self.doors.kept.lock().insert(node, kept);
    }

    /// Closes the connections to a node and forgets its addresses.
    pub(crate) fn forget(self: &Arc<Self>, node: NodeId) {
        drop(self.doors.kept.lock().remove(&node));
        self.with_each_node(|core, now| core.forget(now, node));
    }

    /// Addresses at which it listens.
    pub(crate) fn addresses(&self) -> &[Address] {
        self.doors.addresses.get().map_or(&[], Vec::as_slice)
    }

    /// Accepts no connection any more.
    pub(crate) fn stop_listening(&self) {
        for listener in self.doors.listeners.lock().drain(..) {
            listener.close();
        }
    }

    /// Stops all that runs, here and elsewhere for the calls of this node, which end with that, and
    /// closes every connection. Calls that are made from now on fail.
    pub(crate) fn close(self: &Arc<Self>) {
        self.stop_listening();
        self.doors.kept.lock().clear();
        self.begin_closing();
        // Those dialled until now are among the connections that end below.
        self.admission.lock().is_closed = true;
        self.stop_all();
        let mut readers = Vec::new();
        self.with_each(|core, now, _| {
            core.node.end_calls(now);
            readers.extend(std::mem::take(&mut core.mail_wakers).into_values());
        });
        wake_all(readers);
        self.peers.close();
        for connection in self.connections() {
            connection.close(CloseReason::Local);
        }
        self.full.close();
    }
}

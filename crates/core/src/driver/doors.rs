//! Listeners of an endpoint, and its close.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_proto::time::Timestamp;
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
    /// Those that some of its users keep up together.
    shared: Mutex<BTreeMap<NodeId, Shared>>,
}

/// A connection that some keep up together.
#[derive(Debug)]
struct Shared {
    kept: Weak<KeepConnected>,
    /// When it is dialled first, and true once that has begun.
    dials_at: Timestamp,
    has_begun: Arc<AtomicBool>,
}

/// Least time between the first dials of those that are kept up one after the other: who wants it
/// up may come and go a thousand times a second.
const DIAL_PAUSE: Duration = Duration::from_secs(1);

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

    /// Keeps a connection up while any of those lives that were given this for it: nobody is
    /// dialled several times for several who want it. `None` where one is kept up anyway.
    pub(crate) fn keep_connected_for_some(&self, node: NodeId) -> Option<Arc<KeepConnected>> {
        if self.doors.kept.lock().contains_key(&node) {
            return None;
        }
        let (now, mut shared) = (self.now(), self.doors.shared.lock());
        let last = shared.get(&node);
        let kept = last.and_then(|last| last.kept.upgrade()).filter(|kept| !kept.is_over());
        if kept.is_some() {
            return kept;
        }
        let due = last.map_or(now, |last| match last.has_begun.load(Ordering::Relaxed) {
            true => last.dials_at + DIAL_PAUSE,
            false => last.dials_at,
        });
        let (dials_at, has_begun) = (now.max(due), Arc::default());
        shared.retain(|_, it| it.kept.strong_count() > 0 || now < it.dials_at + DIAL_PAUSE);
        let pause = dials_at.since(now);
        let kept = Arc::new(self.keep_connected_after(node, pause, Arc::clone(&has_begun)));
        shared.insert(node, Shared { kept: Arc::downgrade(&kept), dials_at, has_begun });
        Some(kept)
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

//! Connections that have no room for what can wait, as all cores of an endpoint see them, and waits
//! for room.
//!
//! One task waits at a connection that an append has left full. Once there is room it tells the
//! cores, whose replies then go on, and whoever else waits: callers, writers of items, handlers
//! with branches to open. Those wait for that task and not at the connection, which keeps a waker
//! until it has room: a connection that stays full would keep all who have long given up.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use convoke_proto::id::NodeId;
use convoke_proto::parting::LinkName;
use convoke_transport::parts::{Mutex, WAKER};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::transport::{Connection, Lane};

use super::{Driver, FlushScope};

/// Connections whose last append left no room, until the task that waits at each has seen some.
/// There is none most of the time, and to see that takes no lock.
#[derive(Debug, Default)]
pub(super) struct FullConnections {
    has_some: AtomicBool,
    /// By peer and name: tells those who wait for room.
    told: Mutex<BTreeMap<LinkName, Arc<Notify>>>,
}

impl FullConnections {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    /// An append has left a connection full. True when no task waits there yet.
    pub(super) fn insert(&self, connection: &dyn Connection) -> bool {
        let mut told = self.told.lock();
        let mut is_new = false;
        told.entry(name(connection)).or_insert_with(|| {
            is_new = true;
            Arc::default()
        });
        self.has_some.store(true, Ordering::Release);
        is_new
    }

    /// A wait for room at a connection; `None` when it has some.
    pub(super) fn wait(&self, connection: &dyn Connection) -> Option<OwnedNotified> {
        let told = self.told.lock();
        let notify = told.get(&name(connection))?;
        (!has_room(connection)).then(|| notify.clone().notified_owned())
    }

    /// Tells those who wait at a connection that it has room, and forgets it. False while it has
    /// none: what is appended meanwhile is seen either here or by [`Self::insert`].
    fn release(&self, connection: &dyn Connection) -> bool {
        let mut told = self.told.lock();
        if !has_room(connection) {
            return false;
        }
        let notify = told.remove(&name(connection));
        self.has_some.store(!told.is_empty(), Ordering::Release);
        drop(told);
        tell(&notify);
        true
    }

    /// Tells those who wait at a connection that they need not, for its peer takes no requests.
    pub(super) fn tell(&self, link: LinkName) {
        if !self.is_empty() {
            let notify = self.told.lock().get(&link).cloned();
            tell(&notify);
        }
    }

    /// Tells everybody, for all connections are closed: the tasks may have ended with the runtime.
    pub(super) fn close(&self) {
        let told = {
            let mut told = self.told.lock();
            self.has_some.store(false, Ordering::Release);
            mem::take(&mut *told)
        };
        tell(told.values());
    }
}

/// Wakes whoever waits.
pub(super) fn tell<'a>(told: impl IntoIterator<Item = &'a Arc<Notify>>) {
    for notify in told {
        WAKER.call(|| notify.notify_waiters());
    }
}

fn name(connection: &dyn Connection) -> LinkName {
    let link = connection.link();
    (link.peer.node, link.nonce)
}

fn has_room(connection: &dyn Connection) -> bool {
    connection.poll_writable(Lane::Data, &mut Context::from_waker(Waker::noop())).is_ready()
}

/// A wait for room at any of some full connections, or at none. Dropped it leaves nothing there.
#[derive(Debug, Default)]
pub(crate) struct RoomWait(Vec<Pin<Box<OwnedNotified>>>);

impl RoomWait {
    /// Ready when it waits at none, and once one of them has had room: then at none any more. To be
    /// called without the lock of a core, for a waker that is replaced may call back.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        if !self.0.iter_mut().any(|told| told.as_mut().poll(cx).is_ready()) {
            return Poll::Pending;
        }
        self.0.clear();
        Poll::Ready(())
    }

    /// True when it waits at none.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits at this one, too, from when it is polled.
    pub(super) fn add(&mut self, told: OwnedNotified) {
        self.0.push(Box::pin(told));
    }
}

/// A clone has nobody who waits yet.
impl Clone for RoomWait {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Driver {
    /// True while the connection to a node has no room for requests.
    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        !self.full.is_empty() && self.cores.lock_any().full_at(node).is_some()
    }

    /// Ready while the connection to one of these nodes has room for requests, or one has none.
    pub(crate) fn poll_room(
        &self,
        nodes: &[NodeId],
        wait: &mut RoomWait,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            ready!(wait.poll(cx));
            if nodes.is_empty() || self.full.is_empty() {
                return Poll::Ready(());
            }
            let core = self.cores.lock_any();
            for node in nodes {
                match core.full_at(*node) {
                    Some(told) => wait.add(told),
                    None => {
                        *wait = RoomWait::default(); // Nobody has polled it.
                        return Poll::Ready(());
                    }
                }
            }
        }
    }

    /// Waits at a connection that is full until it has room, and says so.
    pub(super) fn await_room(&self, connection: Arc<dyn Connection>) {
        let (driver, full) = (self.me.clone(), self.full.clone());
        self.runtime.spawn(async move {
            loop {
                poll_fn(|cx| connection.poll_writable(Lane::Data, cx)).await;
                if full.release(connection.as_ref()) {
                    break;
                }
            }
            let Some(driver) = driver.upgrade() else { return };
            let scope = FlushScope::enter();
            let (node, nonce) = name(connection.as_ref());
            driver.with_each(|core, now, _| {
                if let Some(id) = core.connections().id(node, nonce) {
                    core.node.handle_room(now, id);
                }
            });
            driver.end_scope(scope);
        });
    }
}

//! The cores of an endpoint, each behind a lock of its own.
//!
//! One core has all that is known of a call ([`convoke_proto::cores`]), so whoever brings input for
//! a call takes the lock of that core alone. Connections and configuration concern all cores, which
//! are told one after the other. Nobody holds two at once. With a core only the lock of a
//! connection's buffer is taken, that of the ledger, of the full connections, or of the partings,
//! beneath it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use convoke_proto::cores::{Place, Routes};
use convoke_proto::id::{CallId, Incarnation, LinkId, NodeId};
use convoke_proto::ledger::Ledger;
use convoke_proto::mailbox::MailReader;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_transport::parts::Mutex;
use tokio::sync::futures::OwnedNotified;

use super::Node;
use super::connections::Connections;
use super::parked::Parked;
use super::spare::Spare;
use super::stopper::Stopper;
use super::waiting::WaitingParts;

/// Everything that a core's lock is for. Cores share nothing, and nobody locks two at once.
#[derive(Debug)]
pub(super) struct Core {
    /// Its place among the others.
    pub(super) index: usize,
    pub(super) node: Node,
    pub(super) parked: Parked,
    /// Parts of tasks that wait.
    pub(super) parts: BTreeMap<TaskRef, WaitingParts>,
    /// Callers that wait for room for an item of a streamed request.
    pub(super) item_wakers: BTreeMap<CallId, Waker>,
    pub(super) mail_wakers: BTreeMap<MailReader, Waker>,
    pub(super) stoppers: BTreeMap<TaskRef, Arc<Stopper>>,
    /// Left by the handlers of the last batch to those of the next.
    pub(super) spare: Spare,
    pub(super) armed: Timestamp,
    pub(super) is_closing: bool,
    /// It makes no calls any more, and no handler runs on.
    pub(super) is_closed: bool,
}

/// All cores, by their number.
#[derive(Debug)]
pub(super) struct Cores {
    pub(super) routes: Routes,
    cores: Box<[Padded]>,
    ledger: Mutex<Ledger>,
    /// That of the ledger.
    version: AtomicU64,
}

/// A core in cache lines of its own: what one writes is not in the way of another.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Core>);

/// A core that this thread has locked.
pub(super) struct Locked<'a>(MutexGuard<'a, Core>);

thread_local! {
    /// Locked by this thread, counted in debug builds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

impl Cores {
    /// Takes as many as there are routes.
    ///
    /// # Errors
    /// The error of `core`, which makes them.
    pub(super) fn new<E>(
        routes: Routes,
        mut core: impl FnMut(usize, Place) -> Result<Core, E>,
    ) -> Result<Self, E> {
        let places = routes.places().enumerate();
        let cores: Result<Vec<Core>, E> = places.map(|(index, place)| core(index, place)).collect();
        let cores = cores?.into_iter().map(|core| Padded(Mutex::new(core))).collect();
        Ok(Self { routes, cores, ledger: Mutex::default(), version: AtomicU64::new(0) })
    }

    /// Locks a core.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Locked<'_> {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() + 1);
            assert_eq!(HELD.get(), 1, "a thread locks one core at a time");
        }
        Locked(self.cores[index].0.lock())
    }

    /// Locks the core of what has this origin.
    #[inline]
    pub(super) fn lock_of(&self, origin: Incarnation) -> Locked<'_> {
        self.lock(self.routes.of(origin))
    }

    /// Locks the core that is asked for what all know.
    pub(super) fn lock_any(&self) -> Locked<'_> {
        self.lock(0)
    }

    /// Locks each in turn: the last one is to be let go before the next is taken.
    pub(super) fn each(&self) -> impl Iterator<Item = Locked<'_>> {
        (0..self.cores.len()).map(|index| self.lock(index))
    }

    /// The first that is so.
    pub(super) fn find(&self, is_so: impl Fn(&Core) -> bool) -> Option<usize> {
        self.each().position(|core| is_so(&core))
    }

    /// The sum over all.
    pub(super) fn total(&self, count: impl Fn(&Core) -> usize) -> usize {
        self.each().map(|core| count(&core)).sum()
    }

    /// Has a core hear what others have taken, before it is given anything of a connection or, by
    /// [`LinkId::LOCAL`], of this node itself.
    #[inline]
    pub(super) fn hear(&self, core: &mut Core, link: LinkId) {
        let version = self.version.load(Ordering::Acquire);
        if version != 0 && core.node.heard_at(link).is_some_and(|heard| heard != version) {
            core.node.hear(link, &self.ledger.lock());
        }
    }

    /// Has a core tell what it has taken.
    #[inline]
    pub(super) fn tell(&self, core: &mut Core) {
        if core.node.has_to_tell() {
            let mut ledger = self.ledger.lock();
            core.node.tell(&mut ledger);
            self.version.store(ledger.version(), Ordering::Release);
        }
    }
}

impl Core {
    pub(super) fn new(index: usize, node: Node) -> Self {
        Self {
            index,
            node,
            parked: Parked::default(),
            parts: BTreeMap::new(),
            item_wakers: BTreeMap::new(),
            mail_wakers: BTreeMap::new(),
            stoppers: BTreeMap::new(),
            spare: Spare::default(),
            armed: Timestamp::MAX,
            is_closing: false,
            is_closed: false,
        }
    }

    /// A wait for the connection to a node to have room for requests; `None` when it has some,
    /// takes none any more, and while there is none.
    pub(super) fn full_at(&self, node: NodeId) -> Option<OwnedNotified> {
        if self.node.outbox().full.is_empty() {
            return None;
        }
        let links = self.node.links();
        self.full_link(links.current(node).filter(|link| !links.is_leaving(*link))?)
    }

    /// The same for a connection.
    pub(super) fn full_link(&self, link: LinkId) -> Option<OwnedNotified> {
        let full = &self.node.outbox().full;
        if full.is_empty() {
            return None;
        }
        full.wait(self.connections().get(link)?.connection.as_ref())
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.node.outbox().connections
    }

    pub(super) fn connections_mut(&mut self) -> &mut Connections {
        &mut self.node.outbox_mut().connections
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() - 1);
        }
    }
}

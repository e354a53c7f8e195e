//! Hooks: a test sees the frames between nodes as they arrive, and decides what becomes of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{CallId, LinkNonce, MethodId, NodeId};
use convoke_proto::wire::{Frame, Glance, WireError};
use convoke_transport::Lane;
use parking_lot::Mutex;

use super::network::Network;
use super::topology::Nodes;

/// A frame that arrives, before its receiver gets it.
#[derive(Debug)]
pub struct SimFrame<'a> {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) lane: Lane,
    pub(super) connection: LinkNonce,
    pub(super) bytes: &'a Bytes,
}

impl SimFrame<'_> {
    /// Node that sent it.
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// Node that it is for.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Lane of the connection that it takes.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Name that both ends have for its connection.
    pub fn connection(&self) -> LinkNonce {
        self.connection
    }

    /// Its bytes, as the endpoints have them.
    pub fn bytes(&self) -> &Bytes {
        self.bytes
    }

    /// All of it. Payloads of requests and replies are the encoded messages.
    ///
    /// # Errors
    /// [`WireError`] for what is no frame of the call protocol: overlays and transports have frames
    /// of their own.
    pub fn decode(&self) -> Result<Frame, WireError> {
        Frame::decode(self.bytes.clone())
    }

    /// The word for its message: `REQUEST`, `REPLY`, `MANIFEST`, `FAIL`, `CANCEL`, `PROBE`,
    /// `STATUS`, `LINK_DOWN`, `CREDIT`, `CAST`, `ASK`, `SETTLED` or `ITEM`. Empty for what is no
    /// frame of the call protocol.
    pub fn name(&self) -> &'static str {
        self.decode().map_or("", |frame| frame.message.name())
    }

    /// The call that it is about. `None` for what is no frame of the call protocol; a frame about
    /// no one call has [`CallId::LEAST`].
    pub fn call(&self) -> Option<CallId> {
        Glance::of(self.bytes).ok().map(|glance| glance.call)
    }

    /// Of a request: the method that it asks for, [`MethodId::of`] its full name.
    pub fn method(&self) -> Option<MethodId> {
        Glance::of(self.bytes).ok().and_then(|glance| glance.method)
    }

    /// True for a request of the method with this full name, such as `shop.Stock/Reserve`.
    pub fn is_request_of(&self, full_name: &str) -> bool {
        self.method() == Some(MethodId::of(full_name))
    }
}

/// Decision of a hook about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes on.
    Pass,
    /// It is gone, though no transport may lose a frame and keep the connection.
    Drop,
    /// It waits until [`Hook::release`], or until the hook is removed; what comes behind it passes
    /// by.
    Hold,
    /// It waits for so long; what comes behind it passes by.
    HoldFor(Duration),
    /// It goes on twice, one right after the other.
    Duplicate,
    /// These bytes go on in its place. More than the receiver takes in a frame are a fault of the
    /// sender, and end the connection.
    Replace(Bytes),
}

/// A hook of a [`SimNetwork`](super::SimNetwork). Dropped, it sees nothing more, and what it held
/// goes on.
#[must_use = "dropped, the hook is removed"]
pub struct Hook {
    network: Arc<Network>,
    id: HookId,
}

/// Hooks are asked in the order of these. 0 is before all.
pub(crate) type HookId = u64;

type Decide = dyn FnMut(&SimFrame<'_>) -> Action + Send;

pub(crate) struct Registered {
    between: Option<Nodes>,
    decide: Mutex<Box<Decide>>,
}

/// All hooks of a network.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    registered: BTreeMap<HookId, Arc<Registered>>,
    last: HookId,
}

impl Hook {
    pub(super) fn add(
        network: &Arc<Network>,
        between: Option<Nodes>,
        decide: impl FnMut(&SimFrame<'_>) -> Action + Send + 'static,
    ) -> Self {
        let registered = Registered { between, decide: Mutex::new(Box::new(decide)) };
        let mut topology = network.topology.lock();
        topology.hooks.last += 1;
        let id = topology.hooks.last;
        topology.hooks.registered.insert(id, Arc::new(registered));
        drop(topology);
        Self { network: Arc::clone(network), id }
    }

    /// Lets all frames that it holds go on, [for a time](Action::HoldFor) or without one: now, in
    /// the order in which they came, to hooks that were added later and to their receivers. How
    /// many there were.
    pub fn release(&self) -> usize {
        let wires = self.network.topology.lock().wires(|_| true);
        wires.into_iter().map(|wire| wire.let_go(self.id)).sum()
    }

    /// Frames that it holds at the moment.
    pub fn held(&self) -> usize {
        let wires = self.network.topology.lock().wires(|_| true);
        wires.into_iter().map(|wire| wire.held_by(self.id)).sum()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let removed = self.network.topology.lock().hooks.registered.remove(&self.id);
        // What a test gave to it may do anything when dropped, so under no lock.
        drop(removed);
        self.release();
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("between", &self.between).finish_non_exhaustive()
    }
}

impl Hooks {
    pub(crate) fn has(&self, id: HookId) -> bool {
        self.registered.contains_key(&id)
    }

    /// The first hook behind `passed` that sees frames between these.
    fn next(&self, passed: HookId, from: NodeId, to: NodeId) -> Option<(HookId, Arc<Registered>)> {
        let mut rest = self.registered.range(passed + 1..);
        let sees = |hook: &Registered| hook.between.is_none_or(|nodes| nodes.joins(from, to));
        let found = rest.find(|(_, hook)| sees(hook));
        found.map(|(id, hook)| (*id, Arc::clone(hook)))
    }
}

impl Registered {
    fn decide(&self, frame: &SimFrame<'_>) -> Action {
        (self.decide.lock())(frame)
    }
}

/// Asks the next hook about a frame that has `passed` some. `None` behind the last. No lock of the
/// network is held while a hook decides, so it may cut, crash and partition.
pub(crate) fn ask(
    network: &Network,
    passed: HookId,
    frame: &SimFrame<'_>,
) -> Option<(HookId, Action)> {
    let next = network.topology.lock().hooks.next(passed, frame.from, frame.to);
    next.map(|(id, hook)| (id, hook.decide(frame)))
}

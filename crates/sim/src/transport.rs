//! A network inside the process: the [`Transport`] contract with latency, loss, partitions and
//! crashes.
//!
//! Endpoints run on it as they do on TCP. Time is tokio's, so that under a paused clock
//! (`start_paused = true`, which needs tokio's feature `test-util`) minutes take no time, and how
//! long something took is exact: the number of one-way trips times the latency.
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use convoke_proto::id::{Incarnation, NodeId};
//! # use convoke_transport::*;
//! # use convoke_sim::transport::SimNetwork;
//! # #[derive(Debug)]
//! # struct Node(u64);
//! # impl Sink for Node {
//! #     fn hello(&self) -> Hello {
//! #         Hello {
//! #             node: NodeId::new(self.0),
//! #             incarnation: Incarnation(7),
//! #             advertised: Vec::new(),
//! #             frame_bytes_max: 1 << 20,
//! #         }
//! #     }
//! #     fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
//! #         Ok(())
//! #     }
//! #     fn on_batch(
//! #         &self,
//! #         _: &Arc<dyn Connection>,
//! #         frames: &mut dyn Iterator<Item = Received>,
//! #     ) -> Result<(), String> {
//! #         frames.for_each(drop);
//! #         Ok(())
//! #     }
//! #     fn on_closed(&self, _: &Link, _: CloseReason) {}
//! # }
//! # let mut runtime = tokio::runtime::Builder::new_current_thread();
//! # runtime.enable_time().start_paused(true).build()?.block_on(async {
//! let network = SimNetwork::new(42);
//! let (n1, n2) = (NodeId::new(1), NodeId::new(2));
//! network.latency(n1, n2, Duration::from_millis(10));
//! network.latency(n2, n1, Duration::from_millis(20));
//!
//! let transport = network.transport();
//! let listener = transport.listen(&"sim://two".parse()?, Arc::new(Node(2))).await?;
//! let start = tokio::time::Instant::now();
//! let connection = transport.dial(&listener.local_address(), None, Arc::new(Node(1))).await?;
//! assert_eq!(start.elapsed(), Duration::from_millis(30)); // a hello there, a hello back
//! connection.append_copy(Lane::Data, &[], b"one")?;
//! connection.flush();
//! assert_eq!(network.traffic(n1, n2).frames(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it is like
//! - **Nodes** are named by their hello. Any text is an address: `sim://name`. `sim://name:0`
//!   becomes `sim://name:1`, `sim://name:2`, ..., whichever is free.
//! - **Credit** is that of the TCP transport's defaults: windows of 64 KiB and 1 MiB, soft bounds
//!   of 512 KiB and 1 MiB, hard ones of 1 MiB and 16 MiB for the control and the data lane. It
//!   comes back at once when the sink has taken a batch: the way back costs no latency and no
//!   frame.
//! - **A frame costs** its bytes and 16 more, in windows, bandwidth and counters.
//! - **Capacity** may be that of a way ([`Conditions::bandwidth`]), and that of a node: one uplink
//!   and one downlink for all its connections, see [`SimNetwork::uplink`]. A frame passes each as a
//!   whole.
//! - **Loss, cuts and crashes** end connections; single frames are never lost, but by a hook.
//!
//! # Hooks
//! A [`Hook`] sees the frames between two nodes, or all, and lets each pass, drops it, holds it,
//! doubles it or puts other bytes in its place:
//!
//! ```
//! # use convoke_proto::id::NodeId;
//! # use convoke_sim::transport::*;
//! # let network = SimNetwork::new(42);
//! let mut is_first = true;
//! let hook = network.hook(NodeId::new(1), NodeId::new(2), move |frame| {
//!     let is_meant = frame.to() == NodeId::new(1) && frame.name() == "REPLY";
//!     if is_meant && std::mem::take(&mut is_first) { Action::Drop } else { Action::Pass }
//! });
//! // ... the first reply of node 2 never arrives ...
//! drop(hook); // from here on everything passes
//! ```
//! - It is asked when a frame **arrives**, behind latency, loss, bandwidth and partitions, in the
//!   order of arrival: control first, each lane in order. What a cut or a crash of the receiver has
//!   lost it never sees. Several hooks are asked in the order in which they were added.
//! - What it does **not hold** keeps its lane's order. A held frame is passed by others; let go, it
//!   arrives at once, or after the partition that there is by then.
//! - A **held frame keeps its part** of the connection's window, so what a hook can hold is
//!   bounded, and who holds a whole window holds up the lane.
//! - When its **connection ends**, by whatever way, a held frame is gone with it. The ends learn of
//!   the connection's end, and of nothing else.
//! - To the ends a frame that was **dropped** looks sent. No transport may do that: what an
//!   endpoint makes of it is what it makes of a peer that lies.
//! - [`SimNetwork::traffic`] counts what was sent, whatever hooks do to it.
//! - The **function** runs in the task that delivers to the receiver, one frame at a time. It may
//!   cut, crash and partition, and must not wait. A frame at which it ends the connection for the
//!   receiver does not arrive any more, whatever it answers.
//!
//! # Determinism
//! On a current-thread runtime with a paused clock everything happens in the same order in every
//! run with the same seed and program. tokio's timers have steps of one millisecond, rounded up, so
//! finer times are to be dilated: one simulated microsecond is one tokio millisecond, see
//! [`dilate`]. Start the runtime paused rather than pausing it later: then its clock stands on a
//! whole step.

mod carrier;
mod connection;
mod delivery;
mod dial;
mod hook;
mod network;
mod pipe;
mod topology;
pub(crate) mod waiters;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_transport::{Address, DialFuture, ListenFuture, Sink, Transport, own_address};
use tokio::time::Instant;

use self::network::Network;
use self::topology::{Nodes, Topology};

pub use self::hook::{Action, Hook, SimFrame};
pub use self::topology::{Conditions, Timing, Traffic};

/// The only scheme of a simulated network.
pub(crate) const SCHEME: &str = "sim";

/// A network inside the process. Cheap to clone; clones are the same network.
///
/// Frames count with 16 bytes each for what a header would be.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    network: Arc<Network>,
}

/// The tokio time that stands for `simulated`: a thousand times as long, so that a simulated
/// microsecond is one step of tokio's timers.
pub fn dilate(simulated: Duration) -> Duration {
    simulated.saturating_mul(1_000)
}

impl SimNetwork {
    /// A network without latency or faults. `seed` decides what is drawn: loss, jitter, and the
    /// names of connections.
    pub fn new(seed: u64) -> Self {
        Self { network: Arc::new(Network::new(seed)) }
    }

    /// Transport by which endpoints use it. All transports of a network are alike.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(SimTransport { network: Arc::clone(&self.network) })
    }

    /// Sets how long a frame takes from one node to another; of tokio's clock. What is on its way
    /// keeps its time.
    pub fn latency(&self, from: NodeId, to: NodeId, latency: Duration) {
        self.topology(|topology| topology.conditions_mut((from, to)).latency = latency);
    }

    /// Sets how long a frame takes where nothing else was set. Default zero.
    pub fn default_latency(&self, latency: Duration) {
        self.topology(|topology| topology.everywhere.latency = latency);
    }

    /// Sets everything about the way from one node to another.
    pub fn conditions(&self, from: NodeId, to: NodeId, conditions: Conditions) {
        self.topology(|topology| *topology.conditions_mut((from, to)) = conditions);
    }

    /// Sets everything about every way for which nothing else was set.
    pub fn default_conditions(&self, conditions: Conditions) {
        self.topology(|topology| topology.everywhere = conditions);
    }

    /// Sets what a node can send in all, in kbit/s: data frames to all its peers share it, each
    /// pair of nodes alike while it has something to send, and go one after the other. Default
    /// `None`, no limit.
    ///
    /// Control frames take none of it. Once any uplink or downlink of a network was set, data
    /// frames go through its [hose](crate::hose) for good; what a pair's own bandwidth adds comes
    /// behind the uplink.
    pub fn uplink(&self, node: NodeId, kbit_per_s: impl Into<Option<u64>>) {
        let capacity = kbit_per_s.into();
        self.topology(|topology| topology.carrier_mut().uplink(node, capacity));
    }

    /// Sets what a node can receive in all, in kbit/s, as [`SimNetwork::uplink`] does for sending.
    pub fn downlink(&self, node: NodeId, kbit_per_s: impl Into<Option<u64>>) {
        let capacity = kbit_per_s.into();
        self.topology(|topology| topology.carrier_mut().downlink(node, capacity));
    }

    /// Sets the timeouts, from the next use on.
    pub fn timing(&self, timing: Timing) {
        self.topology(|topology| topology.timing = timing);
    }

    /// Ends all connections between two nodes at once, at both ends; what is on its way is lost.
    /// New ones can be dialled at once. Answers how many there were.
    pub fn cut(&self, a: NodeId, b: NodeId) -> usize {
        let wires = self.topology(|topology| topology.wires(|nodes| nodes.joins(a, b)));
        let open = wires.into_iter().filter(|wire| wire.sever("the connection was cut"));
        open.count()
    }

    /// Lets nothing arrive from one node at another, silently, until [`heal`](Self::heal). What is
    /// sent meanwhile is kept, within the window. An end that hears nothing for the [keep-alive
    /// timeout](Timing::keep_alive_timeout) closes; dials wait, and time out.
    pub fn partition(&self, from: NodeId, to: NodeId) {
        let now = Instant::now();
        let wires = self.topology(|topology| topology.hold((from, to), now));
        wires.iter().for_each(|wire| wire.hold((from, to), now));
    }

    /// Ends a partition, one way. What was kept arrives one latency later.
    pub fn heal(&self, from: NodeId, to: NodeId) {
        let wires = self.topology(|topology| topology.release((from, to)));
        let now = Instant::now();
        wires.iter().for_each(|wire| wire.release((from, to), now));
        self.network.healed.notify_waiters();
    }

    /// Ends all partitions.
    pub fn heal_all(&self) {
        let held = self.topology(|topology| topology.held_pairs());
        held.into_iter().for_each(|(from, to)| self.heal(from, to));
    }

    /// Kills the life of a node that has listened or begun to dial: its connections end, its
    /// listeners are gone, and this incarnation can neither listen nor dial any more. Peers get
    /// what it had sent, and then hear that the connection is gone; its own sink hears so at once.
    /// An endpoint is closed: its handlers are dropped where they wait, its calls end, and it
    /// answers nobody, itself neither. What the program has spawned besides is its own to stop.
    /// The same node may come back with another incarnation.
    pub fn crash(&self, node: NodeId) {
        self.end_lives(node, false);
    }

    /// Kills the life of a node as [`crash`](Self::crash) does, and tells nobody, as when its host
    /// loses its power: peers get what it had sent, and close once they have heard nothing for the
    /// [keep-alive timeout](Timing::keep_alive_timeout). A dial of where it listened times out,
    /// rather than being refused, if it begins before somebody listens there again.
    pub fn crash_silently(&self, node: NodeId) {
        self.end_lives(node, true);
    }

    fn end_lives(&self, node: NodeId, is_silent: bool) {
        let (wires, sinks) = self.topology(|topology| topology.crash(node, is_silent));
        wires.iter().for_each(|wire| wire.crash(node, is_silent));
        sinks.iter().for_each(|sink| sink.on_crash());
    }

    /// Lets `decide` see every frame between two nodes, both ways, from now on and until the
    /// [`Hook`] is dropped: see [hooks](self#hooks).
    pub fn hook(
        &self,
        a: NodeId,
        b: NodeId,
        decide: impl FnMut(&SimFrame<'_>) -> Action + Send + 'static,
    ) -> Hook {
        Hook::add(&self.network, Some(Nodes([a, b])), decide)
    }

    /// Lets `decide` see every frame between any two nodes, as [`SimNetwork::hook`] does.
    pub fn hook_all(&self, decide: impl FnMut(&SimFrame<'_>) -> Action + Send + 'static) -> Hook {
        Hook::add(&self.network, None, decide)
    }

    /// Traffic from one node to another so far. Exact: the frames that were appended, and
    /// have had credit.
    pub fn traffic(&self, from: NodeId, to: NodeId) -> Traffic {
        self.topology(|topology| topology.traffic((from, to)))
    }

    /// Traffic in all.
    pub fn total_traffic(&self) -> Traffic {
        self.topology(|topology| topology.total())
    }

    fn topology<T>(&self, act: impl FnOnce(&mut Topology) -> T) -> T {
        act(&mut self.network.topology.lock())
    }
}

#[derive(Debug)]
struct SimTransport {
    network: Arc<Network>,
}

impl Transport for SimTransport {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        let (network, address) = (Arc::clone(&self.network), own_address(self.schemes(), address));
        Box::pin(async move { dial::listen(&network, &address?, sink) })
    }

    /// # Cancel safety
    /// A future dropped before it is ready leaves no connection behind.
    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        let (network, address) = (Arc::clone(&self.network), own_address(self.schemes(), address));
        Box::pin(async move { dial::dial(network, address?, expected, sink).await })
    }
}

//! Two nodes on a simulated network.

use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::{LinkNonce, NodeId};
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::Recorder;
use convoke_transport::{Connection, DialError, Lane, Listener};

/// Node 1, which dialled, and node 2.
pub(crate) struct Pair {
    pub(crate) a: Arc<Recorder>,
    pub(crate) b: Arc<Recorder>,
    pub(crate) to_b: Arc<dyn Connection>,
    pub(crate) to_a: Arc<dyn Connection>,
    pub(crate) listener: Box<dyn Listener>,
}

impl Pair {
    pub(crate) fn nonce(&self) -> LinkNonce {
        self.to_b.link().nonce
    }

    /// Asserts that both sinks were told everything in turn.
    pub(crate) fn check(&self) {
        self.a.check();
        self.b.check();
    }
}

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn node(number: u64) -> NodeId {
    NodeId::new(number)
}

pub(crate) async fn connect(network: &SimNetwork) -> Pair {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = listen(network, &b).await;
    let to_b = dial(network, &*listener, &a).await.expect("node 2 listens");
    let to_a = b.opened(0).await;
    Pair { a, b, to_b, to_a, listener }
}

pub(crate) async fn listen(network: &SimNetwork, sink: &Arc<Recorder>) -> Box<dyn Listener> {
    let address = "sim://node:0".parse().expect("it is an address");
    let listening = network.transport().listen(&address, Arc::clone(sink) as _).await;
    listening.expect("there is always a free port")
}

pub(crate) async fn dial(
    network: &SimNetwork,
    listener: &dyn Listener,
    sink: &Arc<Recorder>,
) -> Result<Arc<dyn Connection>, DialError> {
    let address = listener.local_address();
    network.transport().dial(&address, None, Arc::clone(sink) as _).await
}

pub(crate) fn send(connection: &Arc<dyn Connection>, lane: Lane, frame: &[u8]) {
    connection.append_copy(lane, &[], frame).expect("the lane has room");
    connection.flush();
}

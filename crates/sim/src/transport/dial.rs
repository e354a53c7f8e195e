//! Listening, and opening a connection: a hello there, a hello back.

use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_transport::{
    Address, CloseReason, Connection, DialError, DialLimit, Hello, ListenError, Listener, Sink,
};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::SCHEME;
use super::connection::SimConnection;
use super::delivery;
use super::network::Network;
use super::topology::{Listening, Pair};
use super::wire::{Side, Wire};
use crate::clock::after;

#[derive(Debug)]
struct SimListener {
    network: Arc<Network>,
    name: String,
    listening: Arc<Listening>,
}

/// Accepts connections at `address` for `sink`.
pub(crate) fn listen(
    network: &Arc<Network>,
    address: &Address,
    sink: Arc<dyn Sink>,
) -> Result<Box<dyn Listener>, ListenError> {
    let hello = sink.hello();
    let mut topology = network.topology.lock();
    let failed =
        |message: &str| ListenError::Bind { address: address.clone(), message: message.to_owned() };
    if topology.has_crashed(&hello, &sink) {
        return Err(failed("this life of the node has crashed"));
    }
    let name = topology.free_name(address.rest());
    let name = name.ok_or_else(|| failed("somebody listens there already"))?;
    if local_address(&name).is_none() {
        return Err(failed("the name is too long with its port"));
    }
    let listening = Arc::new(Listening { hello, sink });
    topology.unanswered.remove(&name);
    topology.listeners.insert(name.clone(), Arc::clone(&listening));
    Ok(Box::new(SimListener { network: Arc::clone(network), name, listening }))
}

fn local_address(name: &str) -> Option<Address> {
    format!("{SCHEME}://{name}").parse().ok()
}

impl Listener for SimListener {
    fn local_address(&self) -> Address {
        local_address(&self.name).expect("it was checked before listening")
    }

    fn close(&self) {
        let mut topology = self.network.topology.lock();
        let current = topology.listeners.get(&self.name);
        // After a crash another life may listen here.
        if current.is_some_and(|current| Arc::ptr_eq(current, &self.listening)) {
            topology.listeners.remove(&self.name);
        }
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens a connection to `address`, with `on_open` called at both ends.
pub(crate) async fn dial(
    network: Arc<Network>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    let timeout = network.topology.lock().timing.dial_timeout;
    let deadline = after(Instant::now(), timeout);
    Dial { network, address, timeout, deadline }.run(expected, sink).await
}

struct Dial {
    network: Arc<Network>,
    address: Address,
    timeout: Duration,
    deadline: Instant,
}

impl Dial {
    async fn run(
        self,
        expected: Option<NodeId>,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let mine = sink.hello();
        let found = self.listening(&mine, &sink).await?.hello.node;
        self.travel((mine.node, found)).await?;
        // It may have closed, or crashed and come back, while the hello was on its way.
        let listening = self.listening(&mine, &sink).await?;
        if let Some(expected) = expected
            && expected != listening.hello.node
        {
            self.travel((found, mine.node)).await?;
            let (address, found) = (self.address, listening.hello.node);
            return Err(DialError::WrongNode { address, expected, found });
        }
        let opening = match self.accept(mine.clone(), &listening) {
            Ok(opening) => opening,
            Err(text) => {
                self.travel((found, mine.node)).await?;
                return Err(self.refused(text));
            }
        };
        self.travel((found, mine.node)).await?;
        self.open(opening, sink)
    }

    /// The listening end's part.
    fn accept(&self, dialler: Hello, listening: &Listening) -> Result<Opening, String> {
        // Asked again, since what a node says of itself may have changed since it began to listen.
        let wire = Wire::open(&self.network, dialler, listening.sink.hello());
        let end = SimConnection { wire: Arc::clone(&wire), side: Side::Listener };
        let end = Arc::new(end);
        listening.sink.on_open(Arc::clone(&end) as _)?;
        delivery::start(end, Arc::clone(&listening.sink));
        Ok(Opening { wire: Some(wire) })
    }

    /// The dialling end's part.
    fn open(
        &self,
        mut opening: Opening,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let wire = opening.wire.as_ref().expect("it is taken below only");
        if wire.is_closed(Side::Dialler) {
            return Err(self.unreachable("the connection was cut before it was open"));
        }
        let end = Arc::new(SimConnection { wire: Arc::clone(wire), side: Side::Dialler });
        if let Err(text) = sink.on_open(Arc::clone(&end) as _) {
            end.close(CloseReason::Fault(text.clone()));
            return Err(self.refused(text));
        }
        opening.wire = None;
        delivery::start(Arc::clone(&end), sink);
        Ok(end)
    }

    /// Asks who listens there. Nobody answers where a node has crashed in silence.
    async fn listening(
        &self,
        mine: &Hello,
        sink: &Arc<dyn Sink>,
    ) -> Result<Arc<Listening>, DialError> {
        let is_answered = {
            let mut topology = self.network.topology.lock();
            if topology.has_crashed(mine, sink) {
                return Err(self.unreachable("this life of the node has crashed"));
            }
            let name = self.address.rest();
            if let Some(listening) = topology.listeners.get(name) {
                return Ok(Arc::clone(listening));
            }
            !topology.unanswered.contains(name)
        };
        if is_answered {
            return Err(self.unreachable("nobody listens there"));
        }
        sleep_until(self.deadline).await;
        Err(self.timed_out())
    }

    /// Takes as long as a frame; longer during a partition.
    async fn travel(&self, pair: Pair) -> Result<(), DialError> {
        let travelled = timeout_at(self.deadline, async {
            while self.is_held_until_healed(pair).await {}
            let latency = self.network.topology.lock().conditions(pair).latency;
            if !latency.is_zero() {
                sleep(latency).await;
            }
            while self.is_held_until_healed(pair).await {}
        });
        travelled.await.map_err(|_| self.timed_out())
    }

    async fn is_held_until_healed(&self, pair: Pair) -> bool {
        let healed = self.network.healed.notified();
        let is_held = self.network.topology.lock().is_held(pair);
        if is_held {
            healed.await;
        }
        is_held
    }

    fn timed_out(&self) -> DialError {
        DialLimit::Connect(self.timeout).passed(&self.address)
    }

    fn unreachable(&self, message: &str) -> DialError {
        DialError::Unreachable { address: self.address.clone(), message: message.to_owned() }
    }

    fn refused(&self, message: String) -> DialError {
        DialError::Handshake { address: self.address.clone(), message }
    }
}

/// Open at the listening end only. Dropped, it closes there too.
struct Opening {
    wire: Option<Arc<Wire>>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(wire) = &self.wire {
            wire.close(Side::Dialler, CloseReason::Fault("the dial was given up".into()));
        }
    }
}

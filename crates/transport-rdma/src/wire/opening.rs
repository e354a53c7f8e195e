//! Opening of a connection: dialled or accepted, until both ends have introduced themselves.
//!
//! The private data of the request and of the reply are the hellos. The dialler introduces itself
//! as soon as it is accepted; the other end does so when its sink has taken the connection, or
//! closes with the reason. So a dial ends with both ends open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::id::{LinkNonce, NodeId};
use convoke_transport::parts::{Heartbeat, Seat, SendShare};
use convoke_transport::{
    Address, CloseReason, Connection, DialError, Hello, Link as PeerLink, PeerName, Remote, Sink,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Phase, State, Wire};
use crate::engine::Engine;
use crate::hello::{self, Greeting, HelloError};
use crate::link::{Link, LinkConfig};
use crate::provider::{Provider, Tag, VerbsError};
use convoke_transport::sockets;

/// Role of a wire to the outside.
#[derive(Debug)]
pub(crate) enum Role {
    Dialling(Dialling),
    Accepting(Accepting),
    Open(Arc<Open>),
    /// Nobody is to be told.
    Over,
}

/// Sink of the frames of an open connection, and the connection that it is told they come from.
#[derive(Debug)]
pub(crate) struct Open {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) handle: Arc<dyn Connection>,
}

/// Outcome of a dial.
pub(crate) type Dialled = Result<Arc<dyn Connection>, DialError>;

/// A dial under way.
#[derive(Debug)]
pub(crate) struct Dialling {
    pub(crate) address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
    hello: Hello,
    done: oneshot::Sender<Dialled>,
}

/// A connection that was requested of a listener.
#[derive(Debug)]
pub(crate) struct Accepting {
    sink: Arc<dyn Sink>,
    theirs: Greeting,
    /// Until it is open, or over.
    handshake: Seat,
    seat: Seat,
}

impl Accepting {
    /// A request of a peer that has said hello, and its seats.
    pub(crate) fn new(sink: Arc<dyn Sink>, theirs: Greeting, handshake: Seat, seat: Seat) -> Self {
        Self { sink, theirs, handshake, seat }
    }

    /// The seat of its handshake, and the one that it keeps for as long as it is open.
    pub(super) fn into_seats(self) -> [Seat; 2] {
        [self.handshake, self.seat]
    }
}

impl Role {
    pub(super) fn sink(&self) -> Option<Arc<dyn Sink>> {
        match self {
            Self::Dialling(Dialling { sink, .. }) | Self::Accepting(Accepting { sink, .. }) => {
                Some(Arc::clone(sink))
            }
            Self::Open(open) => Some(Arc::clone(&open.sink)),
            Self::Over => None,
        }
    }
}

impl Dialling {
    pub(crate) fn new(
        address: Address,
        expected: Option<NodeId>,
        sink: Arc<dyn Sink>,
    ) -> (Self, oneshot::Receiver<Dialled>) {
        let (done, dialled) = oneshot::channel();
        let hello = sink.hello();
        (Self { address, expected, sink, hello, done }, dialled)
    }

    /// True when whoever dialled no longer waits.
    pub(super) fn is_given_up(&self) -> bool {
        self.done.is_closed()
    }

    pub(super) fn finish(self, dialled: Dialled) -> Result<(), Dialled> {
        self.done.send(dialled)
    }

    /// Says why there is no connection: `error`, or what follows from how it ended.
    pub(super) fn fail(self, error: Option<DialError>, reason: &CloseReason) {
        let address = self.address.clone();
        let error = error.unwrap_or_else(|| match reason {
            CloseReason::Network(message) => {
                DialError::Unreachable { address, message: message.clone() }
            }
            other => DialError::Handshake { address, message: other.to_string() },
        });
        tracing::debug!(address = %self.address, %error, "dial failed");
        // Whoever dialled may have given up.
        let _ = self.done.send(Err(error));
    }
}

impl<P: Provider> Wire<P> {
    /// A wire for a dial, which [`begin`](Self::begin) starts.
    pub(crate) fn dialling(
        engine: &Arc<Engine<P>>,
        tag: Tag,
        dialling: Dialling,
    ) -> Result<Arc<Self>, VerbsError> {
        let hello = dialling.hello.clone();
        Self::new(engine, tag, Role::Dialling(dialling), hello)
    }

    /// Starts to dial, unless the device was lost meanwhile.
    pub(crate) fn begin(&self, target: SocketAddr) {
        let mut state = self.lock();
        if state.phase != Phase::Connecting {
            return;
        }
        state.remote = Some(target);
        let (config, provider) = (self.engine.config(), self.engine.provider());
        let memory = state.memory.as_ref().expect("a new wire has its memory");
        let timeout = config.common.dial_timeout;
        match provider.dial(self.tag, target, timeout, config.queue_pair(), memory) {
            Ok(queue_pair) => state.queue_pair = Some(queue_pair),
            Err(error) => self.fail(&mut state, CloseReason::Network(error.to_string())),
        }
    }

    /// A wire for a request, which [`accept`](Self::accept) accepts.
    pub(crate) fn accepting(
        engine: &Arc<Engine<P>>,
        tag: Tag,
        accepting: Accepting,
        hello: Hello,
    ) -> Result<Arc<Self>, VerbsError> {
        Self::new(engine, tag, Role::Accepting(accepting), hello)
    }

    /// Accepts the request, with all receives posted.
    pub(crate) fn accept(&self, request: P::Request, local: SocketAddr, peer: SocketAddr) {
        let mut state = self.lock_unwatched();
        (state.local, state.remote) = (Some(local), Some(peer));
        state.deadline = Some(Instant::now() + self.engine.config().common.handshake_timeout);
        if let Err(error) = self.try_accept(&mut state, request) {
            self.fail(&mut state, CloseReason::Network(error.to_string()));
        }
        self.plan_look(&mut state);
    }

    fn try_accept(&self, state: &mut State<P>, request: P::Request) -> Result<(), VerbsError> {
        let Role::Accepting(Accepting { theirs, .. }) = &state.role else { return Ok(()) };
        let link = Link::new(&self.link_config(&state.mine, theirs), self.share(state, theirs));
        state.keep_alive_interval = self.keep_alive_interval(theirs);
        let (config, provider) = (self.engine.config(), self.engine.provider());
        let memory = state.memory.as_ref().expect("a new wire has its memory");
        let queue_pair = provider.prepare(self.tag, request, config.queue_pair(), memory)?;
        state.outgoing.set_inline_bytes_max(provider.inline_bytes_max(&queue_pair));
        state.link = Some(link);
        state.queue_pair = Some(queue_pair);
        self.post_receives(state);
        let queue_pair = state.queue_pair.as_ref().expect("it was made above");
        provider.accept(queue_pair, &state.mine.encode())
    }

    /// The queue pair of a dial exists: posts its receives and asks to connect.
    pub(crate) fn handle_resolved(&self, local: SocketAddr) {
        let mut state = self.lock_unwatched();
        let State { phase: Phase::Connecting, queue_pair: Some(queue_pair), .. } = &*state else {
            return;
        };
        let (config, provider) = (self.engine.config(), self.engine.provider());
        let inline_bytes_max = provider.inline_bytes_max(queue_pair);
        // The link that keeps the account of them needs the other end's hello, which comes with the
        // reply.
        let slots: Vec<u32> = (0..config.receive_slots()).collect();
        let posted = provider.post_receives(queue_pair, &slots);
        let receives = posted.as_ref().map_or_else(|refused| refused.posted, |()| slots.len());
        let begun = posted
            .map_err(|refused| refused.error)
            .and_then(|()| provider.connect(queue_pair, &state.mine.encode()));
        state.receives = receives;
        state.local = Some(local);
        state.outgoing.set_inline_bytes_max(inline_bytes_max);
        if let Err(error) = begun {
            self.fail(&mut state, CloseReason::Network(error.to_string()));
        }
    }

    /// Both ends are connected.
    pub(crate) fn handle_established(&self, private_data: &[u8]) {
        let mut state = self.lock_unwatched();
        if state.phase != Phase::Connecting {
            return;
        }
        if let Err(error) = self.begin_as_dialler(&mut state, private_data) {
            state.dial_error = Some(error);
            return self.fail(&mut state, CloseReason::Local);
        }
        state.phase = Phase::Connected;
        // Not sooner: a peer may take its time for the handshake, and is not silent meanwhile.
        state.heartbeat = Some(self.heartbeat(state.keep_alive_interval));
        self.pump(&mut state);
        self.plan_look(&mut state);
    }

    /// Interval of the keep-alive with a peer that said this.
    fn keep_alive_interval(&self, theirs: &Greeting) -> Duration {
        self.engine.config().common.keep_alive_interval.min(theirs.keep_alive_timeout / 3)
    }

    /// Keep-alive that begins now, and when to look at it first.
    fn heartbeat(&self, interval: Duration) -> (Heartbeat, Instant) {
        let now = Instant::now();
        let timeout = self.engine.config().common.keep_alive_timeout;
        let heartbeat = Heartbeat::new(interval, timeout, now);
        (heartbeat, now + heartbeat.period())
    }

    /// The other end said no, or nobody is there.
    pub(crate) fn handle_rejected(&self, is_by_listener: bool, private_data: &[u8]) {
        let mut state = self.lock_unwatched();
        let Role::Dialling(dialling) = &state.role else { return };
        let address = dialling.address.clone();
        state.dial_error = Some(if !is_by_listener {
            DialError::Unreachable { address, message: "nobody listens there".into() }
        } else {
            let message = match Greeting::decode(private_data) {
                Err(HelloError::NotConvoke) => "it refused without saying why".to_owned(),
                Err(error) => error.to_string(),
                Ok(_) => "it refused with a hello".to_owned(),
            };
            DialError::Handshake { address, message }
        });
        self.fail(&mut state, CloseReason::Local);
    }

    /// The other end cannot be reached.
    pub(crate) fn handle_unreachable(&self, error: &VerbsError) {
        let mut state = self.lock_unwatched();
        self.fail(&mut state, CloseReason::Network(error.to_string()));
    }

    fn begin_as_dialler(&self, state: &mut State<P>, private_data: &[u8]) -> Result<(), DialError> {
        let Role::Dialling(dialling) = &state.role else { return Ok(()) };
        let address = || dialling.address.clone();
        let theirs = Greeting::decode(private_data).map_err(|error| DialError::Handshake {
            address: address(),
            message: error.to_string(),
        })?;
        if let Some(expected) = dialling.expected.filter(|expected| *expected != theirs.node) {
            return Err(DialError::WrongNode { address: address(), expected, found: theirs.node });
        }
        let share = self.share(state, &theirs);
        let mut link = Link::new(&self.link_config(&state.mine, &theirs), share);
        // Posted before, in the order in which the link counts them.
        link.poll_post(&mut Vec::new());
        link.introduce(&state.addresses());
        state.link = Some(link);
        state.keep_alive_interval = self.keep_alive_interval(&theirs);
        state.theirs = Some(theirs);
        Ok(())
    }

    /// Share of the connection in the room to send.
    fn share(&self, state: &State<P>, theirs: &Greeting) -> SendShare {
        let remote = state.remote.map(Remote::from);
        self.engine.admission().share(PeerName::of(theirs.node, None, remote.as_ref()))
    }

    fn link_config(&self, mine: &Greeting, theirs: &Greeting) -> LinkConfig {
        let config = self.engine.config();
        let mut peer = theirs.terms;
        // This end's own send slots are no larger.
        peer.slot_bytes = peer.slot_bytes.min(mine.terms.slot_bytes);
        LinkConfig {
            own: mine.terms,
            peer,
            send_queue_depth: config.send_queue_depth(),
            send: config.common.send_limits(mine.terms.frame_bytes_max, peer.frame_bytes_max),
            defects: config.defects,
        }
    }
}

impl<P: Provider> State<P> {
    /// Addresses that the peer is told to dial.
    pub(super) fn addresses(&self) -> Vec<Address> {
        match self.local {
            Some(local) => sockets::advertised(&self.advertised, local.ip()),
            None => self.advertised.clone(),
        }
    }

    /// The connection as the sink sees it.
    pub(super) fn peer_link(&self, advertised: Vec<Address>) -> Option<PeerLink> {
        let (theirs, is_dialler) = match &self.role {
            Role::Dialling(_) => (self.theirs.as_ref()?, true),
            Role::Accepting(accepting) => (&accepting.theirs, false),
            Role::Open(_) | Role::Over => return None,
        };
        let (dialler, acceptor) =
            if is_dialler { (&self.mine, theirs) } else { (theirs, &self.mine) };
        Some(PeerLink {
            peer: Hello {
                node: theirs.node,
                incarnation: theirs.incarnation,
                advertised,
                frame_bytes_max: theirs.terms.frame_bytes_max,
            },
            nonce: LinkNonce::of(dialler.random, acceptor.random),
            is_dialler,
            scheme: crate::SCHEME,
            principal: None,
            remote: self.remote.map(Into::into),
        })
    }
}

/// Refusal for a peer that asks for a connection with a hello that does not do.
pub(crate) fn refusal_of(error: &HelloError) -> Vec<u8> {
    error.refusal_text().map(|text| hello::refusal(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use convoke_transport::conformance::Recorder;

    use super::*;
    use crate::config::{Config, PollMode};
    use crate::provider::simulated::Fabric;

    #[tokio::test(start_paused = true)]
    async fn a_dial_whose_receives_are_refused_ends_at_once() {
        let poll_mode = Some(PollMode::Adaptive { spin: Duration::ZERO });
        let config = Config { poll_mode, ..Config::default() };
        let engine = Engine::new(Fabric::new().device(), config);
        let address: Address = "rdma://127.0.0.1:9".parse().unwrap();
        let (dialling, dialled) = Dialling::new(address, None, Arc::new(Recorder::new(1)));
        let wire = engine.add_wire(|tag| Wire::dialling(&engine, tag, dialling)).unwrap();
        wire.begin("127.0.0.1:9".parse().unwrap());
        {
            let state = wire.state.lock();
            let queue_pair = state.queue_pair.as_ref().unwrap();
            engine.provider().post_receives(queue_pair, &[3]).unwrap();
        }
        let begun = Instant::now();
        let error = dialled.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("slot 3 is in use"), "{error}");
        assert_eq!(begun.elapsed(), Duration::ZERO, "nothing was waited for");
    }
}

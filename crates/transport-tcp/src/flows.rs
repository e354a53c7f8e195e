//! Handshake of a connection of several sockets, which are its flows.
//!
//! ```text
//!  dialler                                          the other end
//!  flow 0: hello, I can have 4      ─────────────▶
//!                                   ◀─────────────  hello, let it be 3: number, secret
//!  flow 1: hello, number, secret    ─────────────▶
//!  flow 2: hello, number, secret    ─────────────▶  all are here: on_open
//!                                   ◀─────────────  hello over flow 1, and over flow 2
//!  on_open
//! ```
//!
//! The first flow has the connection's name and its seat, and waits for the others as long as a
//! handshake may take, or until it ends itself; its place among the handshakes is free for them.
//! Who joins must know the secret, and be the same node in the same life, with the same principal
//! where certificates prove it; so must who answers.

mod joining;

use std::io;
use std::sync::Arc;

use convoke_transport::parts::{
    Admission, FlowHello, Flows, Greeting, Lifetime, PREFIX_BYTES_MAX, RefusedHere, Seat, random,
};
use convoke_transport::sockets::send_promptly;
use convoke_transport::{Address, CloseReason, Connection, Principal, Sink};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::connection::TcpConnection;
use crate::fresh::Fresh;
use crate::handshake::{self, HandshakeError};
use crate::reader;
use crate::socket::Socket;

pub(crate) use joining::{Joiner, Joining, UNKNOWN};

/// Flows that a dialler can have, if several.
pub(crate) fn offered(config: &Config, stream: &Socket) -> Option<FlowHello> {
    let count = config.flows;
    let has_several = count > 1 && !stream.is_within_host();
    has_several.then_some(FlowHello { count, index: 0, connection: 0, secret: 0 })
}

/// The answer to a dialler, if they are several.
pub(crate) fn agreed(config: &Config, stream: &Socket, theirs: &Greeting) -> Option<FlowHello> {
    let (ours, theirs) = (offered(config, stream)?, theirs.flow?);
    let count = ours.count.min(theirs.count);
    let secret = (u128::from(random()) << 64) | u128::from(random());
    Some(FlowHello { count, index: 0, connection: random(), secret })
}

/// The first flow after the hellos, and the connection that it begins.
pub(crate) struct First<'a> {
    pub(crate) config: &'a Config,
    pub(crate) admission: &'a Admission,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) mine: Greeting,
    pub(crate) theirs: Greeting,
    pub(crate) principal: Option<Principal>,
}

/// Reason why a first flow is of no use any more: nothing may come over it before the others are
/// there, so what comes is its end.
async fn ended_early(first: &mut Socket) -> HandshakeError {
    match first.read(&mut [0]).await {
        Ok(0) => HandshakeError::Network(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => HandshakeError::Flow("it said more before the others were there"),
        Err(error) => error.into(),
    }
}

impl First<'_> {
    /// The dialler's part, after the answer over the first flow.
    pub(crate) async fn dial_others(
        self,
        stream: Socket,
        flow: FlowHello,
        address: &Address,
    ) -> Result<Arc<dyn Connection>, HandshakeError> {
        if flow.count > self.config.flows {
            return Err(HandshakeError::Flow("it wants more of them than it was offered"));
        }
        let at = stream.peer_addr()?;
        // Dropped with this future, it leaves none behind.
        let mut others = JoinSet::new();
        for index in 1..flow.count {
            let greeting =
                Greeting { flow: Some(FlowHello { index, ..flow }), ..self.mine.clone() };
            let (security, address) = (self.config.security.clone(), address.clone());
            others.spawn(async move {
                let stream = TcpStream::connect(at).await?;
                send_promptly(&stream)?;
                let mut stream = stream.dialled(&security, &address).await?;
                stream.write_all(&greeting.encode()).await?;
                let theirs = handshake::read_greeting(&mut stream).await?;
                let principal = stream.verify_peer(theirs.hello.node)?;
                let joiner = Joiner { stream, theirs, principal, place: None };
                Ok::<_, HandshakeError>((index, joiner))
            });
        }
        let mut joined: Vec<_> = (0..flow.count).map(|_| None).collect();
        joined[0] = Some(stream);
        while let Some(other) = others.join_next().await {
            let other = other.map_err(|_| HandshakeError::Flow("its task panicked"))?;
            let (index, joiner) = other?;
            self.check(&joiner)?;
            joined[usize::from(index)] = Some(joiner.stream);
        }
        let streams: Vec<_> = joined.into_iter().flatten().collect();
        match self.open(&streams, true, None) {
            Ok(lifetime) => {
                let handle = Arc::clone(lifetime.handle());
                self.start(lifetime, streams);
                Ok(handle)
            }
            Err(RefusedHere(text)) => {
                for stream in streams {
                    let grace = self.config.common.close_grace;
                    tokio::spawn(handshake::say_goodbye(stream, text.clone(), grace));
                }
                Err(HandshakeError::RefusedHere(text))
            }
        }
    }

    /// The other part, before the answer over the first flow.
    pub(crate) async fn accept_others(
        mut self,
        mut stream: Socket,
        flow: FlowHello,
        joining: &Joining,
        seat: Seat,
    ) -> Result<(), HandshakeError> {
        let mut expected = joining.expect(flow);
        self.mine.flow = Some(flow);
        stream.write_all(&self.mine.encode()).await?;
        let mut joined: Vec<_> = (0..flow.count).map(|_| None).collect();
        joined[0] = Some(stream);
        while joined.iter().any(Option::is_none) {
            let first = joined[0].as_mut().expect("it was first");
            let (index, joiner) = tokio::select! {
                joiner = expected.next() => joiner,
                error = ended_early(first) => return Err(error),
            };
            let place = &mut joined[usize::from(index)];
            match self.check(&joiner) {
                Ok(()) if place.is_none() => *place = Some(joiner.stream),
                Ok(()) => self.refuse(joiner.stream, joiner.place, "it is there already"),
                Err(error) => self.refuse(joiner.stream, joiner.place, &error.to_string()),
            }
        }
        drop(expected);
        let mut streams: Vec<_> = joined.into_iter().flatten().collect();
        let lifetime = match self.open(&streams, false, Some(seat)) {
            Ok(lifetime) => lifetime,
            Err(RefusedHere(text)) => {
                streams.into_iter().for_each(|stream| self.refuse(stream, None, &text));
                return Err(HandshakeError::RefusedHere(text));
            }
        };
        for stream in &mut streams[1..] {
            if let Err(error) = stream.write_all(&self.mine.encode()).await {
                lifetime.end(CloseReason::Network(error.to_string()));
                return Ok(());
            }
        }
        self.start(lifetime, streams);
        Ok(())
    }

    /// Checks that a flow has the same other end as the first.
    fn check(&self, joiner: &Joiner) -> Result<(), HandshakeError> {
        let (hello, first) = (&joiner.theirs.hello, &self.theirs.hello);
        if (hello.node, hello.incarnation) != (first.node, first.incarnation) {
            return Err(HandshakeError::Flow("another node, or another life of it, is there"));
        }
        if joiner.principal != self.principal {
            return Err(HandshakeError::Flow("another principal is there"));
        }
        Ok(())
    }

    /// Refuses one flow, while the others go on. It keeps its place until it is gone.
    fn refuse(&self, stream: Socket, place: Option<Seat>, text: &str) {
        let (text, config) = (text.to_owned(), self.config.clone());
        tokio::spawn(async move {
            handshake::refuse(stream, &text, &config).await;
            drop(place);
        });
    }

    fn open(
        &self,
        streams: &[Socket],
        is_dialler: bool,
        seat: Option<Seat>,
    ) -> Result<Lifetime<Flows<TcpConnection>>, RefusedHere> {
        let (first, count) = (&streams[0], streams.len());
        let proof = (self.principal.clone(), first.remote());
        let opening = handshake::opening(first, (&self.mine, &self.theirs), is_dialler, proof);
        let link = opening.link();
        let limits = self.config.limits_of_flow((&self.mine, &self.theirs), count);
        let shares = self.admission.flow_shares(link.peer_name(), count);
        let flow = |share| TcpConnection::new(link.clone(), &limits, share);
        let flows = shares.map(flow).collect();
        let limits = self.config.limits(&self.mine, &self.theirs);
        let frame_bytes_max = limits.send.frame_bytes_max;
        let flows = Flows::new(link.clone(), Arc::clone(&self.sink), frame_bytes_max, flows);
        opening.show(flows, &self.sink, seat)
    }

    fn start(&self, lifetime: Lifetime<Flows<TcpConnection>>, streams: Vec<Socket>) {
        let frame_bytes_max = self.mine.hello.frame_bytes_max.saturating_add(PREFIX_BYTES_MAX);
        for ((lifetime, inlet), stream) in Flows::into_flows(lifetime).into_iter().zip(streams) {
            let (mine, theirs) = (&self.mine, &self.theirs);
            let terms = handshake::terms_of(self.config, mine, theirs, frame_bytes_max);
            reader::start(lifetime, inlet, stream, terms);
        }
    }
}

//! Connections within one process, in real time: the addresses `mem://name`.
//!
//! For tests, and for several endpoints in one program. Names are those of the process; one that
//! ends in `:0` gets a number in place of the 0. No peer of another process is told of them.
//!
//! Each end is a [`Pipe`], from which the reader of the other takes a message when its sink has
//! taken the last: so the queue of the sender is all that is held, within the bounds of any
//! transport.

#![expect(clippy::disallowed_methods, reason = "a transport reads the clock for its connections")]

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use convoke_transport::parts::{
    Admission, Greeting, Inbound, Life, Lifetime, Lost, Messages, Mutex, Opening, Pipe,
    PipeConnection, QueueLimits, RefusedHere, Settings, SettingsError, keep_alive,
    keep_alive_interval, random, read_messages,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::{
    Address, Connection, DialError, DialFuture, DialLimit, ListenError, ListenFuture, Listener,
    PeerName, Sink, Transport, own_address,
};
use crate::id::NodeId;

/// The scheme of its addresses.
const SCHEME: &str = "mem";
/// A frame above this is cut, and a control frame can go in between.
const CHUNK_BYTES: u32 = 64 << 10;
/// Bytes of a message, about.
const MESSAGE_BYTES: usize = 128 << 10;

/// Everybody who listens in this process, by name.
static LISTENING: LazyLock<Mutex<BTreeMap<Address, Arc<Listening>>>> =
    LazyLock::new(Mutex::default);
/// Numbers that were given in place of a 0.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Makes connections within this process. Cheap to clone; clones share the limit on accepted
/// connections and on what all connections have to send.
///
/// Its futures, and the connections they make, run on the tokio runtime they are polled on.
#[derive(Clone, Debug)]
pub struct MemTransport {
    common: Arc<Settings>,
    admission: Arc<Admission>,
}

/// Sets up a [`MemTransport`]; made by [`MemTransport::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build"]
pub struct MemTransportBuilder {
    config: Config,
}

#[derive(Clone, Debug, Default)]
struct Config {
    common: Settings,
}

impl MemTransportBuilder {
    convoke_transport::setters! {
        handshake_timeout, frame_bytes_max, send_buffer_bytes_soft, send_buffer_bytes_hard,
        control_reserve_bytes, send_bytes_total_max, keep_alive_interval, keep_alive_timeout,
        connections_max, close_grace,
    }

    /// Checks the relations and makes the transport.
    ///
    /// # Errors
    /// [`SettingsError`] says which settings do not go together.
    pub fn build(self) -> Result<MemTransport, SettingsError> {
        self.config.common.check("in-process", &[])?;
        Ok(MemTransport::from_settings(self.config.common))
    }
}

impl MemTransport {
    /// With the defaults of all transports.
    pub fn new() -> Self {
        Self::from_settings(Settings::default())
    }

    /// For other settings than the defaults.
    pub fn builder() -> MemTransportBuilder {
        MemTransportBuilder::default()
    }

    fn from_settings(common: Settings) -> Self {
        let admission = Arc::new(common.admission());
        Self { common: Arc::new(common), admission }
    }

    /// Greeting of an end. The whole process is local to it.
    fn greeting(&self, sink: &dyn Sink) -> Greeting {
        let (local, grants) = (IpAddr::from(Ipv4Addr::LOCALHOST), (CHUNK_BYTES, [u32::MAX; 2]));
        let mut greeting = Greeting::of(sink, &self.common, local, random(), grants);
        let names = sink.hello().advertised.into_iter();
        greeting.hello.advertised.extend(names.filter(|address| address.scheme() == SCHEME));
        greeting
    }

    fn limits(&self, mine: &Greeting, theirs: &Greeting) -> QueueLimits {
        QueueLimits {
            send: self.common.send_limits(mine.hello.frame_bytes_max, theirs.hello.frame_bytes_max),
            chunk_bytes_max: CHUNK_BYTES as usize,
            windows: None,
            batch_bytes: MESSAGE_BYTES,
        }
    }

    /// One end of a connection, which neither sends nor receives yet.
    fn end(&self, opening: &Opening<'_>, pipe: &Arc<Pipe>) -> PipeConnection {
        let link = opening.link();
        let share = self.admission.share(link.peer_name());
        PipeConnection::new(
            link,
            Arc::clone(pipe),
            &self.limits(opening.mine, opening.theirs),
            share,
        )
    }

    /// Carries frames from now on: those of `incoming` go to the sink.
    fn start(
        &self,
        mut lifetime: Lifetime<PipeConnection>,
        mut incoming: Incoming,
        opening: &Opening<'_>,
    ) -> Arc<dyn Connection> {
        let handle = Arc::clone(lifetime.handle());
        let connection = Arc::clone(lifetime.connection());
        let interval = keep_alive_interval(&self.common, opening.theirs);
        let alive = tokio::spawn(async move { keep_alive(&*connection, interval).await });
        lifetime.accompany(alive.abort_handle());
        let (mine, windows) = (opening.mine, None);
        let inbound = Inbound::new(mine.hello.frame_bytes_max, mine.chunk_bytes_max, windows);
        let life = Life::new(lifetime, self.common.life_terms(), Instant::now());
        tokio::spawn(async move { read_messages(life, inbound, &mut incoming).await });
        handle
    }
}

impl Default for MemTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for MemTransport {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        let (transport, address) = (self.clone(), own_address(self.schemes(), address));
        Box::pin(async move {
            let address = address?;
            let local = numbered(&address);
            let runtime = Handle::current();
            let listening = Arc::new(Listening { transport, sink, runtime });
            let mut names = LISTENING.lock();
            if names.contains_key(&local) {
                let message = "another endpoint of this process listens there".into();
                return Err(ListenError::Bind { address, message });
            }
            names.insert(local.clone(), Arc::clone(&listening));
            Ok(Box::new(MemListener { local, listening }) as Box<dyn Listener>)
        })
    }

    /// # Cancel safety
    /// A future dropped before it is ready leaves no connection behind.
    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        let (transport, address) = (self.clone(), own_address(self.schemes(), address));
        Box::pin(async move { dial(transport, address?, expected, sink).await })
    }
}

/// The address, with a number of its own in place of a port 0.
fn numbered(address: &Address) -> Address {
    let Some(name) = address.as_str().strip_suffix(":0") else { return address.clone() };
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    format!("{name}:{number}").parse().unwrap_or_else(|_| address.clone())
}

/// Somebody who listens.
struct Listening {
    transport: MemTransport,
    sink: Arc<dyn Sink>,
    /// Runs the connections that it accepts.
    runtime: Handle,
}

/// Accepts until it is closed or dropped.
struct MemListener {
    local: Address,
    listening: Arc<Listening>,
}

impl Listener for MemListener {
    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        let mut names = LISTENING.lock();
        let is_own =
            names.get(&self.local).is_some_and(|there| Arc::ptr_eq(there, &self.listening));
        if is_own {
            names.remove(&self.local);
        }
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for MemListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemListener").field(&self.local).finish()
    }
}

async fn dial(
    transport: MemTransport,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    let listening = LISTENING.lock().get(&address).cloned();
    let Some(listening) = listening else {
        let message = "nobody in this process listens there".into();
        return Err(DialError::Unreachable { address, message });
    };
    let mine = transport.greeting(&*sink);
    let theirs = listening.transport.greeting(&*listening.sink);
    let found = theirs.hello.node;
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(DialError::WrongNode { address, expected, found });
    }
    let opening = opening(&mine, &theirs, true);
    let pipe = Pipe::new(None);
    let own = transport.end(&opening, &pipe);
    let mut given_up = GivenUp { pipe: Some(Arc::clone(&pipe)) };
    let (told, accepted) = oneshot::channel();
    let offer = Offer { mine: theirs.clone(), theirs: mine.clone(), pipe };
    let runtime = listening.runtime.clone();
    runtime.spawn(async move {
        // The other end may have given up.
        let _ = told.send(accept(&listening, offer));
    });
    let within = transport.common.handshake_timeout;
    let accepted = timeout(within, accepted).await;
    let refused = |message: String| DialError::Handshake { address: address.clone(), message };
    let pipe = match accepted {
        Ok(Ok(Ok(pipe))) => pipe,
        Ok(Ok(Err(text))) => return Err(refused(format!("it refused: {text}"))),
        Ok(Err(_)) => {
            let message = "the runtime of who listens there has ended".into();
            return Err(DialError::Unreachable { address, message });
        }
        Err(_) => return Err(DialLimit::Handshake(within).passed(&address)),
    };
    // Told by the connection itself from here on.
    given_up.pipe = None;
    let opened = opening.show(own, &sink, None);
    let lifetime =
        opened.map_err(|RefusedHere(text)| refused(format!("this endpoint refused it: {text}")))?;
    Ok(transport.start(lifetime, Incoming(pipe), &opening))
}

fn opening<'a>(mine: &'a Greeting, theirs: &'a Greeting, is_dialler: bool) -> Opening<'a> {
    Opening { mine, theirs, is_dialler, scheme: SCHEME, principal: None, remote: None }
}

/// A dial, as the accepting end sees it.
struct Offer {
    mine: Greeting,
    theirs: Greeting,
    /// Messages of the dialler.
    pipe: Arc<Pipe>,
}

/// The accepting end, on the runtime of who listens. Answers what it sends, or why it does not want
/// the connection.
fn accept(listening: &Listening, offer: Offer) -> Result<Arc<Pipe>, String> {
    let Listening { transport, sink, .. } = listening;
    let Offer { mine, theirs, pipe } = offer;
    let opening = opening(&mine, &theirs, false);
    let seat = transport.admission.accept(PeerName::of(theirs.hello.node, None, None))?;
    let sent = Pipe::new(None);
    let opened = opening.show(transport.end(&opening, &sent), sink, Some(seat));
    let lifetime = opened.map_err(|RefusedHere(text)| text)?;
    transport.start(lifetime, Incoming(pipe), &opening);
    Ok(sent)
}

/// A dial that comes to nothing, or is dropped, tells the other end, which may have opened already.
struct GivenUp {
    pipe: Option<Arc<Pipe>>,
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.refuse("the dial was given up");
        }
    }
}

/// Messages of the other end; dropped, it tells that end that nobody takes them any more.
struct Incoming(Arc<Pipe>);

impl Messages for Incoming {
    async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        let parts = poll_fn(|cx| self.0.poll_message(cx)).await;
        Ok(parts.map(|parts| match &parts[..] {
            [only] => only.clone(),
            several => several.concat().into(),
        }))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.0.on_gone("the other end is gone");
    }
}

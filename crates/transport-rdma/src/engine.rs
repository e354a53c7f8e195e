//! The progress engine of one device: everything that moves without a caller.
//!
//! ```text
//!            ┌──────────────────────── task: run ─────────────────────────┐
//!  provider ─▶ completions ─▶ wires ─▶ deliver to sinks, post, send        │
//!            │  events ─▶ dial, accept, disconnect                         │
//!            │  nothing? spin a little, then arm, poll once more, sleep    │
//!            └────────────────────────────────────────────────────────────┘
//!  task: minder   deadlines, keep-alive, and a relief when a sink blocks
//! ```
//!
//! The engine runs while its device has a listener or a connection, on the runtime that first
//! listened or dialled. Appending threads post by themselves, under the lock of their connection;
//! they wake the engine only for what no completion will bring about.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use convoke_transport::parts::{Admission, Refusals, random};
use convoke_transport::{CloseReason, Hello, PeerName, Remote, Sink};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::config::Config;
use crate::hello::{self, Greeting};
use crate::provider::{Completion, Event, Provider, Tag, VerbsError};
use crate::wire::{Accepting, Wire, guarded, refusal_of};

mod looks;
mod minder;
mod run;
mod table;

use looks::Looks;
use table::{Entry, Table};

/// The engine of one device.
#[derive(Debug)]
pub(crate) struct Engine<P: Provider> {
    provider: P,
    config: Config,
    admission: Admission,
    table: Mutex<Table<P>>,
    running: Mutex<Running>,
    /// Term of the task that is the engine: the number of the last one started, or one more once it
    /// has ended.
    term: AtomicU64,
    poller: Mutex<Poller<P>>,
    /// Wires to look at though no completion says so.
    requests: Mutex<Vec<Tag>>,
    has_requests: AtomicBool,
    /// Wakes the engine.
    signal: Notify,
    /// When the minder looks at which wire. Locked last of all.
    looks: Mutex<Looks>,
    minder_signal: Notify,
    /// True while the minder sleeps until it is told, and does not watch over deliveries.
    is_minder_resting: AtomicBool,
    /// Counts the deliveries begun and ended: odd while one is under way.
    deliveries: AtomicU64,
    refusals: Refusals,
}

/// Running state of the engine. Its term changes under the same lock.
#[derive(Debug, Default)]
struct Running {
    is_running: bool,
    minder: Option<AbortHandle>,
}

/// Things that whoever polls needs; one at a time does.
#[derive(Debug)]
struct Poller<P: Provider> {
    completions: Vec<Completion>,
    /// Scratch for the requests that are taken.
    requests: Vec<Tag>,
    /// Wires with something to deliver.
    ready: std::collections::VecDeque<Arc<Wire<P>>>,
    /// When the device last had something.
    heard_at: Instant,
}

impl<P: Provider> Engine<P> {
    pub(crate) fn new(provider: P, config: Config) -> Arc<Self> {
        let admission = config.common.admission();
        Arc::new(Self {
            provider,
            config,
            admission,
            table: Mutex::new(Table::new()),
            running: Mutex::default(),
            term: AtomicU64::new(0),
            poller: Mutex::new(Poller {
                completions: Vec::new(),
                requests: Vec::new(),
                ready: std::collections::VecDeque::new(),
                heard_at: Instant::now(),
            }),
            requests: Mutex::default(),
            has_requests: AtomicBool::new(false),
            signal: Notify::new(),
            looks: Mutex::default(),
            minder_signal: Notify::new(),
            is_minder_resting: AtomicBool::new(false),
            deliveries: AtomicU64::new(0),
            refusals: Refusals::new(),
        })
    }

    pub(crate) fn provider(&self) -> &P {
        &self.provider
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Bounds of all connections together.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Greeting that this end gives one peer.
    pub(crate) fn greeting(&self, hello: &Hello) -> Greeting {
        Greeting {
            node: hello.node,
            incarnation: hello.incarnation,
            random: random(),
            terms: self.config.terms(hello.frame_bytes_max),
            keep_alive_timeout: self.config.common.keep_alive_timeout,
        }
    }

    /// The engine looks at a wire soon, even if nothing completes.
    pub(crate) fn request(&self, tag: Tag) {
        self.requests.lock().push(tag);
        self.has_requests.store(true, Ordering::Release);
        self.signal.notify_one();
    }

    /// Listens for a sink until [`close_listener`](Self::close_listener); answers the listener's
    /// tag and where it is.
    pub(crate) fn listen(
        self: &Arc<Self>,
        address: SocketAddr,
        sink: Arc<dyn Sink>,
    ) -> Result<(Tag, SocketAddr), VerbsError> {
        let entry = Entry::Listener { sink, open: None };
        let tag = self.table.lock().insert(entry, usize::MAX)?;
        let listening = self.listen_as(tag, address);
        let local = listening.inspect_err(|_| self.close_listener(tag))?;
        Ok((tag, local))
    }

    fn listen_as(
        self: &Arc<Self>,
        tag: Tag,
        address: SocketAddr,
    ) -> Result<SocketAddr, VerbsError> {
        let backlog = self.config.common.listen_backlog;
        let (listener, local) = self.provider.listen(tag, address, backlog)?;
        let opened = self.table.lock().open(tag, listener);
        opened.map_err(|(_closed, error)| error)?;
        if self.start() { Ok(local) } else { Err(VerbsError::NoRuntime) }
    }

    /// Listens no more. To be called once: the tag may then be another's.
    pub(crate) fn close_listener(&self, tag: Tag) {
        let listener = self.table.lock().close(tag);
        // No request of it comes from here on, and its tag is still its own.
        drop(listener);
        self.remove(tag);
    }

    /// Adds a wire that is made with its tag.
    pub(crate) fn add_wire(
        self: &Arc<Self>,
        make: impl FnOnce(Tag) -> Result<Arc<Wire<P>>, VerbsError>,
    ) -> Result<Arc<Wire<P>>, VerbsError> {
        let tag = self.table.lock().insert(Entry::Reserved, self.config.common.connections_max)?;
        match make(tag) {
            Ok(wire) => {
                self.table.lock().set(tag, Entry::Wire(Arc::clone(&wire)));
                if self.start() {
                    return Ok(wire);
                }
                self.remove(tag);
                Err(VerbsError::NoRuntime)
            }
            Err(error) => {
                self.remove(tag);
                Err(error)
            }
        }
    }

    /// Forgets a wire or a listener.
    pub(crate) fn remove(&self, tag: Tag) {
        let removed = self.table.lock().remove(tag);
        drop(removed);
        // With the last one the engine ends.
        self.signal.notify_one();
    }

    /// Forgets a wire, unless that was done before: its tag may be another's since.
    pub(crate) fn remove_wire(&self, wire: &Wire<P>) {
        let removed = self.table.lock().remove_wire(wire);
        drop(removed);
        self.signal.notify_one();
    }

    fn wire(&self, tag: Tag) -> Option<Arc<Wire<P>>> {
        self.table.lock().wire(tag)
    }

    fn wires(&self) -> Vec<Arc<Wire<P>>> {
        self.table.lock().wires().cloned().collect()
    }

    /// Everything of the device is over. Nobody listens at it: those who dial fall back at once.
    fn lose(&self, error: &VerbsError) {
        let (wires, listeners) = {
            let mut table = self.table.lock();
            if table.lost.is_some() {
                return;
            }
            table.lost = Some(error.clone());
            (table.wires().cloned().collect::<Vec<_>>(), table.close_all())
        };
        drop(listeners);
        tracing::warn!(device = %self.provider.limits().name, %error, "device lost");
        for wire in wires {
            wire.abort(CloseReason::Network(error.to_string()));
        }
    }

    fn handle_event(self: &Arc<Self>, event: Event<P>) {
        match event {
            Event::Request { listener, request, local, private_data, peer } => {
                if let Err(error) =
                    self.handle_request(listener, request, (local, peer), &private_data)
                {
                    self.refusals.note(&peer, &error);
                }
            }
            Event::Resolved { tag, local } => self.with(tag, |wire| wire.handle_resolved(local)),
            Event::Established { tag, private_data } => {
                self.with(tag, |wire| wire.handle_established(&private_data));
            }
            Event::Rejected { tag, is_by_listener, private_data } => {
                self.with(tag, |wire| wire.handle_rejected(is_by_listener, &private_data));
            }
            Event::Unreachable { tag, error } => {
                self.with(tag, |wire| wire.handle_unreachable(&error));
            }
            Event::Disconnected { tag } => {
                let reason = "it was closed without a goodbye";
                self.with(tag, |wire| wire.end(CloseReason::Network(reason.into())));
            }
            Event::Failed { tag, error } => {
                self.with(tag, |wire| wire.end(CloseReason::Network(error.to_string())));
            }
            Event::DeviceLost { error } => self.lose(&error),
        }
    }

    fn with(&self, tag: Tag, handle: impl FnOnce(&Arc<Wire<P>>)) {
        if let Some(wire) = self.wire(tag) {
            handle(&wire);
            self.request(tag);
        }
    }

    fn handle_request(
        self: &Arc<Self>,
        listener: Tag,
        request: P::Request,
        (local, peer): (SocketAddr, SocketAddr),
        private_data: &[u8],
    ) -> Result<(), String> {
        let Some(sink) = self.table.lock().sink(listener) else { return Ok(()) };
        let theirs = match Greeting::decode(private_data) {
            Ok(theirs) => theirs,
            Err(error) => {
                self.provider.reject(request, &refusal_of(&error));
                return Err(error.to_string());
            }
        };
        match self.admit(sink, theirs, peer) {
            Ok(wire) => {
                wire.accept(request, local, peer);
                self.request(wire.tag());
                Ok(())
            }
            Err(text) => {
                self.provider.reject(request, &hello::refusal(&text));
                Err(text)
            }
        }
    }

    /// A wire for a peer that asks from there, if it has its seats and the sink says hello.
    fn admit(
        self: &Arc<Self>,
        sink: Arc<dyn Sink>,
        theirs: Greeting,
        peer: SocketAddr,
    ) -> Result<Arc<Wire<P>>, String> {
        let from = Remote::from(peer);
        let handshake = self.admission.begin(&from)?;
        let seat = self.admission.accept(PeerName::of(theirs.node, None, Some(&from)))?;
        let hello = guarded(|| sink.hello()).map_err(|_| "its sink panicked")?;
        let accepting = Accepting::new(sink, theirs, handshake, seat);
        self.add_wire(|tag| Wire::accepting(self, tag, accepting, hello))
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;

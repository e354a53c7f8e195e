//! A sink that remembers everything and can be made slow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::id::{Incarnation, LinkNonce, NodeId};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::PATIENCE;
use crate::{Address, CloseReason, Connection, Hello, Lane, Link, Order, Received, Sink};

/// A [`Sink`] for tests: remembers what it is told, in order, per connection.
///
/// It panics in [`Recorder::check`] if the transport told it something out of turn: a batch before
/// `on_open` or after `on_closed`, an empty batch, a second `on_closed`.
#[derive(Debug)]
pub struct Recorder {
    hello: Mutex<Hello>,
    order: fn(&[u8]) -> Order,
    refusal: Option<String>,
    greeting: Option<Bytes>,
    /// Frames that are a fault of the call protocol.
    fault: Option<Bytes>,
    gate: Gate,
    state: Mutex<State>,
    changed: Notify,
}

/// Record of one connection, made by a [`Recorder`].
#[derive(Clone, Debug)]
pub struct Seen {
    /// The connection.
    pub connection: Arc<dyn Connection>,
    /// All frames, in order over both lanes.
    pub frames: Vec<(Lane, Bytes)>,
    /// Its end, once it has ended.
    pub closed: Option<CloseReason>,
}

#[derive(Debug, Default)]
struct State {
    seen: BTreeMap<LinkNonce, Seen>,
    order: Vec<LinkNonce>,
    violations: Vec<String>,
}

/// While shut, [`Sink::on_batch`] of its recorder blocks: a sink that does not take.
#[derive(Debug, Default)]
pub struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Makes the sink slow.
    pub fn shut(&self) {
        *self.is_shut.lock() = true;
    }

    /// Lets everything through.
    pub fn open(&self) {
        *self.is_shut.lock() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut is_shut = self.is_shut.lock();
        if *is_shut {
            tokio::task::block_in_place(|| {
                let waited = self.opened.wait_while_for(&mut is_shut, |is_shut| *is_shut, PATIENCE);
                assert!(!waited.timed_out(), "the test left its gate shut");
            });
        }
    }
}

impl Recorder {
    /// A node of this number that takes frames of up to 1 MiB.
    pub fn new(node: u64) -> Self {
        Self {
            hello: Mutex::new(Hello {
                node: NodeId::new(node),
                incarnation: Incarnation(node << 32 | 7),
                advertised: Vec::new(),
                frame_bytes_max: 1 << 20,
            }),
            order: |_| Order::Lane,
            refusal: None,
            greeting: None,
            fault: None,
            gate: Gate::default(),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Says that it can be dialled here.
    #[must_use]
    pub fn advertising(self, addresses: Vec<Address>) -> Self {
        self.say(|hello| hello.advertised = addresses);
        self
    }

    /// Takes frames of up to so many bytes.
    #[must_use]
    pub fn taking(self, frame_bytes_max: u32) -> Self {
        self.say(|hello| hello.frame_bytes_max = frame_bytes_max);
        self
    }

    /// Keeps frames in the order that this says of their heads; in that of the lane, at first.
    #[must_use]
    pub fn ordering(mut self, order: fn(&[u8]) -> Order) -> Self {
        self.order = order;
        self
    }

    /// Answers every `on_open` with this text.
    #[must_use]
    pub fn refusing(mut self, text: &str) -> Self {
        self.refusal = Some(text.to_owned());
        self
    }

    /// Appends and flushes this frame on the data lane within `on_open`.
    #[must_use]
    pub fn greeting(mut self, frame: &'static [u8]) -> Self {
        self.greeting = Some(Bytes::from_static(frame));
        self
    }

    /// Takes this frame for a fault, and its bytes for the text that says so.
    #[must_use]
    pub fn choking_on(mut self, frame: &'static [u8]) -> Self {
        self.fault = Some(Bytes::from_static(frame));
        self
    }

    /// Changes its hello: another life, or a lie. Connections that are open know the earlier one.
    pub fn say(&self, change: impl FnOnce(&mut Hello)) {
        change(&mut self.hello.lock());
    }

    /// Its gate, open at first.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Record of a connection; `None` before its `on_open`.
    pub fn seen(&self, nonce: LinkNonce) -> Option<Seen> {
        self.state.lock().seen.get(&nonce).cloned()
    }

    /// Number of connections opened.
    pub fn opened_count(&self) -> usize {
        self.state.lock().order.len()
    }

    /// Number of frames that came over a connection.
    pub fn frame_count(&self, nonce: LinkNonce) -> usize {
        self.state.lock().seen.get(&nonce).map_or(0, |seen| seen.frames.len())
    }

    /// Waits for the `index`-th connection to be opened.
    pub async fn opened(&self, index: usize) -> Arc<dyn Connection> {
        self.until("a connection opens", |state| {
            state.order.get(index).map(|nonce| Arc::clone(&state.seen[nonce].connection))
        })
        .await
    }

    /// Waits until `count` frames came over a connection, and answers all that came.
    pub async fn frames(&self, nonce: LinkNonce, count: usize) -> Vec<(Lane, Bytes)> {
        self.until("frames arrive", |state| {
            let seen = state.seen.get(&nonce)?;
            (seen.frames.len() >= count).then(|| seen.frames.clone())
        })
        .await
    }

    /// Waits until a connection ended, and answers how.
    pub async fn closed(&self, nonce: LinkNonce) -> CloseReason {
        self.until("a connection ends", |state| state.seen.get(&nonce)?.closed.clone()).await
    }

    /// Asserts that the transport told everything in turn.
    pub fn check(&self) {
        let state = self.state.lock();
        assert!(
            state.violations.is_empty(),
            "the transport broke its word: {:?}",
            state.violations
        );
    }

    async fn until<T>(&self, what: &str, mut find: impl FnMut(&State) -> Option<T>) -> T {
        let found = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = find(&self.state.lock()) {
                    return found;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain until {what}: {:?}", self.state.lock().violations),
        }
    }

    fn note(&self, link: &Link, what: &str, act: impl FnOnce(&mut Seen) -> bool) {
        let mut state = self.state.lock();
        let is_right = state.seen.get_mut(&link.nonce).is_some_and(act);
        if !is_right {
            let violation = format!("{what} out of turn on {:?}", link.nonce);
            state.violations.push(violation);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

impl Sink for Recorder {
    fn hello(&self) -> Hello {
        self.hello.lock().clone()
    }

    fn order(&self, head: &[u8]) -> Order {
        (self.order)(head)
    }

    /// That of its order; of those in the order of the lane any, so that they spread over the flows
    /// of a connection.
    fn group(&self, head: &[u8]) -> u64 {
        let mix = |group: u64, byte: &u8| group.wrapping_mul(31).wrapping_add(u64::from(*byte));
        match self.order(head) {
            Order::Group(group) => group,
            Order::Lane => head.iter().fold(0, mix),
        }
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if let Some(greeting) = &self.greeting {
            connection
                .append_bytes(Lane::Data, &[], greeting.clone())
                .expect("a connection that opens takes a frame");
            connection.flush();
        }
        let nonce = connection.link().nonce;
        let mut state = self.state.lock();
        state.order.push(nonce);
        let seen = Seen { connection, frames: Vec::new(), closed: None };
        if state.seen.insert(nonce, seen).is_some() {
            state.violations.push(format!("two connections are named {nonce:?}"));
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        self.gate.pass();
        let frames: Vec<_> = frames.map(|frame| (frame.lane, frame.bytes)).collect();
        let fault = frames.iter().find(|(_, bytes)| Some(bytes) == self.fault.as_ref());
        let fault = fault.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
        self.note(from.link(), "a batch", |seen| {
            let is_right = seen.closed.is_none() && !frames.is_empty();
            seen.frames.extend(frames);
            is_right
        });
        fault.map_or(Ok(()), Err)
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        self.note(link, "an end", |seen| seen.closed.replace(reason).is_none());
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, nonce) = (self.frames.len(), self.connection.link().nonce.0);
        match &self.closed {
            Some(reason) => write!(f, "{nonce:x}: {frames} frames, then: {reason}"),
            None => write!(f, "{nonce:x}: {frames} frames, open"),
        }
    }
}

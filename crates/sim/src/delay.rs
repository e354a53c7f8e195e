//! A delay for any transport: every frame takes longer by the same time.
//!
//! For measuring what a distance between nodes costs where there is none, such as between processes
//! on one machine. It is real time: for simulated time see [`crate::transport`].
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use convoke_sim::delay::DelayLine;
//! # use convoke_sim::transport::SimNetwork;
//! let network = SimNetwork::new(42);
//! let two_ms_away = DelayLine::wrap(network.transport(), Duration::from_millis(2));
//! assert_eq!(two_ms_away.schemes(), ["sim"]);
//! ```
//!
//! # How it works
//! A frame that is flushed waits in the line, and is handed to the inner connection when its time
//! has come, by one thread for all connections of the line. What is due at the same time is handed
//! over together, control first, with one flush per connection.
//!
//! - Only sending is delayed. With a line at both ends each direction is delayed once.
//! - Set-up is not: a dial takes as long as the inner transport takes.
//! - [`Connection::close`] is: behind the frames flushed before it. An end that the inner transport
//!   finds itself is not, and what is in the line then is lost.
//! - The line has its own bounds beside the inner ones: 512 KiB and 4 MiB soft for the control and
//!   the data lane, and one largest frame more, or twice that, hard.

mod connection;
mod queue;
mod timer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::{LinkNonce, NodeId};
use convoke_transport::{
    Address, CloseReason, Connection, DialFuture, Hello, Link, ListenFuture, Order, Received, Sink,
    Transport,
};
use parking_lot::Mutex;

use self::connection::DelayedConnection;
use self::timer::Timer;

/// A transport whose frames take longer. Made by [`DelayLine::wrap`].
#[derive(Debug)]
pub struct DelayLine {
    inner: Arc<dyn Transport>,
    one_way: Duration,
    timer: Arc<Timer>,
}

impl DelayLine {
    /// A transport that hands every frame to `inner` by `one_way` later than it was flushed: at the
    /// earliest, and usually less than 0.1 ms after. Zero hands it over within the flush.
    ///
    /// Its thread ends with the last handle to the transport and its connections.
    ///
    /// # Panics
    /// When the operating system starts no thread.
    pub fn wrap(inner: Arc<dyn Transport>, one_way: Duration) -> Arc<dyn Transport> {
        Arc::new(Self { inner, one_way, timer: Arc::new(Timer::start()) })
    }

    fn delayed(&self, sink: Arc<dyn Sink>) -> Arc<DelayedSink> {
        let (one_way, timer) = (self.one_way, Arc::clone(&self.timer));
        Arc::new(DelayedSink { inner: sink, one_way, timer, open: Mutex::default() })
    }
}

impl Transport for DelayLine {
    fn schemes(&self) -> &'static [&'static str] {
        self.inner.schemes()
    }

    fn proves_peers(&self) -> bool {
        self.inner.proves_peers()
    }

    fn trusts_node(&self, node: NodeId) -> bool {
        self.inner.trusts_node(node)
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.inner.nodes()
    }

    fn preference(&self) -> i8 {
        self.inner.preference()
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        self.inner.listen(address, self.delayed(sink))
    }

    /// # Cancel safety
    /// That of the inner transport.
    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        let sink = self.delayed(sink);
        let dialled = self.inner.dial(address, expected, Arc::clone(&sink) as _);
        Box::pin(async move { Ok(sink.find(dialled.await?)) })
    }
}

/// Shows the user's sink delayed connections in place of the inner ones.
#[derive(Debug)]
struct DelayedSink {
    inner: Arc<dyn Sink>,
    one_way: Duration,
    timer: Arc<Timer>,
    open: Mutex<BTreeMap<LinkNonce, Arc<DelayedConnection>>>,
}

impl DelayedSink {
    /// The delayed form of an open connection.
    fn find(&self, inner: Arc<dyn Connection>) -> Arc<dyn Connection> {
        let found = self.open.lock().get(&inner.link().nonce).cloned();
        found.unwrap_or_else(|| {
            // It has ended already. A fresh one without frames answers just that.
            let ended = DelayedConnection::new(inner, self.one_way, Arc::clone(&self.timer));
            ended.end();
            ended
        })
    }
}

impl Sink for DelayedSink {
    fn hello(&self) -> Hello {
        self.inner.hello()
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        let nonce = connection.link().nonce;
        let timer = Arc::clone(&self.timer);
        let delayed = DelayedConnection::new(connection, self.one_way, timer);
        self.open.lock().insert(nonce, Arc::clone(&delayed));
        let opened = self.inner.on_open(Arc::clone(&delayed) as _);
        if opened.is_err() {
            self.open.lock().remove(&nonce);
            delayed.end();
        }
        opened
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        self.inner.on_batch(&self.find(Arc::clone(from)), frames)
    }

    fn order(&self, head: &[u8]) -> Order {
        self.inner.order(head)
    }

    fn group(&self, head: &[u8]) -> u64 {
        self.inner.group(head)
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        let removed = self.open.lock().remove(&link.nonce);
        if let Some(delayed) = removed {
            delayed.end();
        }
        self.inner.on_closed(link, reason);
    }

    fn on_crash(&self) {
        self.inner.on_crash();
    }
}

#[cfg(test)]
mod tests;

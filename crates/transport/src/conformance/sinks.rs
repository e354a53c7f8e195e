//! Sinks with bugs, and sinks that look at their connection whenever they are called.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::frames::{flushed, pattern, send, writable};
use super::recorder::Recorder;
use super::{PATIENCE, Setup};
use crate::{CloseReason, Connection, Hello, Lane, Link, NotWritable, Received, Sink};

/// A [`Recorder`] that does something first, whatever is asked of it.
pub struct Hooked<F> {
    /// What is asked goes on to it.
    pub recorder: Recorder,
    first: F,
}

/// The connection, where one opens.
type Opened<'a> = Option<&'a Arc<dyn Connection>>;

impl<F> Hooked<F>
where
    F: Fn(&'static str, Opened<'_>) + Send + Sync + 'static,
{
    /// A sink of this node. `first` is told what is asked, one of `hello`, `open`, `batch` and
    /// `closed`, and the connection when it opens.
    pub fn new(node: u64, first: F) -> Arc<Self> {
        Arc::new(Self { recorder: Recorder::new(node), first })
    }
}

impl<F> fmt::Debug for Hooked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hooked").field(&self.recorder).finish()
    }
}

impl<F> Sink for Hooked<F>
where
    F: Fn(&'static str, Opened<'_>) + Send + Sync,
{
    fn hello(&self) -> Hello {
        (self.first)("hello", None);
        self.recorder.hello()
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        (self.first)("open", Some(&connection));
        self.recorder.on_open(connection)
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        (self.first)("batch", None);
        self.recorder.on_batch(from, frames)
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        (self.first)("closed", None);
        self.recorder.on_closed(link, reason);
    }
}

/// A sink that takes the first frame of a batch only.
#[derive(Debug)]
struct Careless(Recorder);

impl Sink for Careless {
    fn hello(&self) -> Hello {
        self.0.hello()
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        self.0.on_open(connection)
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        self.0.on_batch(from, &mut frames.take(1))
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        self.0.on_closed(link, reason);
    }
}

/// A sink that panics hears of the end of its connection, which ends for both; the next is
/// accepted.
pub async fn a_sink_that_panics_hears_the_end_and_harms_no_other(setup: Setup) {
    let b = Hooked::new(2, |asked, _| assert!(asked != "batch", "a sink panics on purpose"));
    let listening = setup.listening.listen(&setup.listen, Arc::clone(&b) as _);
    let listener = listening.await.expect("the address of the setup can be bound");
    for round in 0..2 {
        let a = Arc::new(Recorder::new(1));
        let to_b = setup.dial(&*listener, &a).await.expect("the other end listens");
        b.recorder.opened(round).await;
        send(&to_b, Lane::Data, &pattern(0, 100)).await;
        let nonce = to_b.link().nonce;
        a.closed(nonce).await;
        b.recorder.closed(nonce).await;
        assert_eq!(b.recorder.frame_count(nonce), 0);
        a.check();
    }
    b.recorder.check();
}

/// Frames that a sink leaves are dropped, and the sender does not wait for the room that they had.
pub async fn frames_a_sink_leaves_are_dropped_and_cost_no_credit(setup: Setup) {
    // More than a transport takes without credit by default, in batches of several frames.
    const COUNT: usize = 8_000;
    const FRAME_BYTES: usize = 500;
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Careless(Recorder::new(2))));
    let listening = setup.listening.listen(&setup.listen, Arc::clone(&b) as _);
    let listener = listening.await.expect("the address of the setup can be bound");
    let to_b = setup.dial(&*listener, &a).await.expect("the other end listens");
    let number = |bytes: &Bytes| usize::from_le_bytes(*bytes.first_chunk().expect("a number"));
    for number in 0..COUNT {
        let (head, rest) = (number.to_le_bytes(), [0; FRAME_BYTES - 8]);
        while let Err(error) = to_b.append_copy(Lane::Data, &head, &rest) {
            assert_eq!(error, NotWritable::Full);
            to_b.flush();
            writable(&to_b, Lane::Data).await;
        }
        if number % 16 == 0 {
            to_b.flush();
        }
    }
    flushed(&to_b).await;
    to_b.close(CloseReason::Local);
    let nonce = to_b.link().nonce;
    b.0.closed(nonce).await;
    a.closed(nonce).await;
    let frames = b.0.seen(nonce).expect("it was open").frames;
    assert!(!frames.is_empty() && frames.len() < COUNT, "{} of {COUNT}", frames.len());
    assert!(frames.is_sorted_by(|(_, one), (_, next)| number(one) < number(next)));
    b.0.check();
    a.check();
}

/// A sink that looks at its connection whatever is asked of it, as an endpoint takes the lock under
/// which it sends.
fn looking(node: u64) -> Arc<Hooked<impl Fn(&'static str, Opened<'_>) + Send + Sync>> {
    let opened: Mutex<Option<Arc<dyn Connection>>> = Mutex::default();
    Hooked::new(node, move |asked, connection| {
        let mut opened = opened.lock();
        if let Some(connection) = connection {
            *opened = Some(Arc::clone(connection));
        }
        if let Some(connection) = &*opened {
            connection.counters();
            // It may be over.
            let _ = connection.append_copy(Lane::Data, &[], &[1]);
            connection.flush();
        }
        if asked == "closed" {
            opened.take();
        }
    })
}

/// A sink may use its connection whenever it is called: no call holds a lock that it needs.
pub async fn a_sink_may_use_its_connection_whenever_it_is_called(setup: Setup) {
    let (a, b) = (looking(1), looking(2));
    let listening = setup.listening.listen(&setup.listen, Arc::clone(&b) as _);
    let listener = listening.await.expect("the address of the setup can be bound");
    let address = listener.local_address();
    let dialling = setup.dialling.dial(&address, None, Arc::clone(&a) as _);
    let dialled = tokio::time::timeout(PATIENCE, dialling).await.expect("nobody waits for a lock");
    let nonce = dialled.expect("both ends are willing").link().nonce;
    // Each frame is answered with another.
    a.recorder.frames(nonce, 10).await;
    let to_a = b.recorder.opened(0).await;
    to_a.close(CloseReason::Local);
    a.recorder.closed(nonce).await;
    b.recorder.closed(nonce).await;
    a.recorder.check();
    b.recorder.check();
}

/// Once a connection is closed and nobody holds it any more, nothing of it stays, its sink
/// included.
pub async fn nothing_of_a_closed_connection_stays(setup: Setup) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = setup.listen(&b).await;
    let to_b = setup.dial(&*listener, &a).await.expect("the other end listens");
    send(&to_b, Lane::Data, &pattern(0, 100)).await;
    to_b.close(CloseReason::Local);
    a.closed(to_b.link().nonce).await;
    let (connection, sink) = (Arc::downgrade(&to_b), Arc::downgrade(&a));
    drop((to_b, a));
    let gone = async {
        while connection.strong_count() + sink.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("its tasks have ended");
}

//! The line over a connection that writes down what it is handed, and when.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use convoke_proto::id::Incarnation;
use convoke_transport::{Appended, Buffer, Counters, Lane, NotWritable};
use parking_lot::Condvar;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// An inner connection: what happened to it, in order.
#[derive(Debug)]
struct Ledger {
    link: Link,
    state: Mutex<Entries>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Entries {
    handed: Vec<(Instant, Lane, Bytes)>,
    flushes: usize,
    closed: Option<(Instant, CloseReason)>,
    /// While set, the data lane takes nothing.
    is_full: bool,
    waiting: VecDeque<Waker>,
}

impl Ledger {
    fn new() -> Arc<Self> {
        let peer = Hello {
            node: NodeId::new(1),
            incarnation: Incarnation(1),
            advertised: Vec::new(),
            frame_bytes_max: 1 << 20,
        };
        let link = Link {
            peer,
            nonce: LinkNonce(1),
            is_dialler: true,
            scheme: "ledger",
            principal: None,
            remote: None,
        };
        Arc::new(Self { link, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits until `find` finds something.
    fn until<T>(&self, mut find: impl FnMut(&Entries) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = find(&state) {
                return found;
            }
            let waited = self.changed.wait_for(&mut state, PATIENCE);
            assert!(!waited.timed_out(), "waited in vain: {state:?}");
        }
    }

    fn handed(&self, count: usize) -> Vec<(Instant, Lane, Bytes)> {
        self.until(|state| (state.handed.len() >= count).then(|| state.handed.clone()))
    }

    fn set_full(&self, is_full: bool) {
        let mut state = self.state.lock();
        state.is_full = is_full;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Buffer for Entries {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        self.append_bytes(lane, head, Bytes::copy_from_slice(body))
    }

    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        if self.is_full && lane == Lane::Data {
            return Err(NotWritable::Full);
        }
        self.handed.push((Instant::now(), lane, [head, &body].concat().into()));
        Ok(Appended::Writable)
    }
}

impl Connection for Ledger {
    fn link(&self) -> &Link {
        &self.link
    }

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut *self.state.lock());
        self.changed.notify_all();
    }

    fn flush(&self) {
        self.state.lock().flushes += 1;
        self.changed.notify_all();
    }

    fn poll_flush(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_writable(&self, _: Lane, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if !state.is_full {
            return Poll::Ready(());
        }
        state.waiting.push_back(cx.waker().clone());
        Poll::Pending
    }

    fn close(&self, reason: CloseReason) {
        self.state.lock().closed.get_or_insert((Instant::now(), reason));
        self.changed.notify_all();
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn delayed(inner: &Arc<Ledger>, one_way: Duration) -> Arc<DelayedConnection> {
    DelayedConnection::new(Arc::clone(inner) as _, one_way, Arc::new(Timer::start()))
}

fn append(connection: &DelayedConnection, lane: Lane, text: &'static str) {
    connection.append_bytes(lane, &[], Bytes::from_static(text.as_bytes())).unwrap();
}

fn texts(handed: &[(Instant, Lane, Bytes)]) -> Vec<&str> {
    handed.iter().map(|(_, _, bytes)| std::str::from_utf8(bytes).unwrap()).collect()
}

#[test]
fn a_frame_is_handed_over_no_earlier_than_its_delay_and_in_order() {
    const COUNT: u32 = 100;
    let one_way = Duration::from_millis(2);
    let inner = Ledger::new();
    let connection = delayed(&inner, one_way);
    let mut late: Vec<Duration> = Vec::new();
    for number in 0..COUNT {
        let body = number.to_le_bytes();
        connection.append_copy(Lane::Data, &[], &body).unwrap();
        let flushed = Instant::now();
        connection.flush();
        let handed = inner.handed(number as usize + 1);
        let (at, _, bytes) = handed.last().unwrap();
        assert_eq!(bytes.as_ref(), body);
        assert!(*at >= flushed + one_way, "{:?} is too early", *at - flushed);
        late.push(*at - flushed - one_way);
    }
    late.sort();
    let (median, p95) = (late[late.len() / 2], late[late.len() * 95 / 100]);
    println!("handed over late by {median:?} (median), {p95:?} (95th percentile)");
}

#[test]
fn frames_flushed_together_are_handed_over_together_and_control_first() {
    let inner = Ledger::new();
    let connection = delayed(&inner, Duration::from_millis(5));
    append(&connection, Lane::Data, "first");
    append(&connection, Lane::Control, "urgent");
    append(&connection, Lane::Data, "second");
    connection.flush();
    append(&connection, Lane::Data, "not flushed");
    assert_eq!(texts(&inner.handed(3)), ["urgent", "first", "second"]);
    assert_eq!(inner.until(|state| (state.flushes > 0).then_some(state.flushes)), 1);
    assert_eq!(connection.counters().frames_sent, 3);
    connection.flush();
    assert_eq!(texts(&inner.handed(4))[3], "not flushed");
}

#[test]
fn without_a_delay_a_flush_hands_over_itself() {
    let inner = Ledger::new();
    let connection = delayed(&inner, Duration::ZERO);
    append(&connection, Lane::Data, "now");
    connection.flush();
    assert_eq!(texts(&inner.state.lock().handed), ["now"]);
}

#[tokio::test]
async fn a_flush_waits_until_the_frames_were_handed_over() {
    let inner = Ledger::new();
    let connection = delayed(&inner, Duration::from_millis(2));
    append(&connection, Lane::Data, "one");
    poll_fn(|cx| connection.poll_flush(cx)).await;
    assert_eq!(texts(&inner.state.lock().handed), ["one"]);
}

#[tokio::test]
async fn what_the_inner_connection_does_not_take_waits_within_a_bound() {
    let inner = Ledger::new();
    inner.set_full(true);
    let connection = delayed(&inner, Duration::from_millis(1));
    let frame = Bytes::from(vec![7; 1 << 20]);
    let (mut count, mut was_full) = (0, false);
    loop {
        match connection.append_bytes(Lane::Data, &[], frame.clone()) {
            Ok(appended) => was_full |= appended == Appended::Full,
            Err(refused) => break assert_eq!(refused, NotWritable::Full),
        }
        connection.flush();
        count += 1;
    }
    assert!(was_full);
    append(&connection, Lane::Control, "urgent");
    connection.flush();
    assert_eq!(texts(&inner.handed(1)), ["urgent"]);
    inner.set_full(false);
    poll_fn(|cx| connection.poll_writable(Lane::Data, cx)).await;
    poll_fn(|cx| connection.poll_flush(cx)).await;
    assert_eq!(inner.state.lock().handed.len(), count + 1);
}

#[test]
fn a_gentle_close_comes_behind_the_frames_before_it() {
    let inner = Ledger::new();
    let connection = delayed(&inner, Duration::from_millis(2));
    append(&connection, Lane::Data, "last words");
    let closed = Instant::now();
    connection.close(CloseReason::Local);
    let refused = connection.append_copy(Lane::Data, &[], &[]);
    assert_eq!(refused, Err(NotWritable::Closed));
    let (at, reason) = inner.until(|state| state.closed.clone());
    assert_eq!(reason, CloseReason::Local);
    assert!(at >= closed + Duration::from_millis(2));
    assert_eq!(texts(&inner.state.lock().handed), ["last words"]);
}

#[test]
fn a_hasty_close_drops_what_was_not_flushed_and_does_not_wait_for_the_rest() {
    let inner = Ledger::new();
    inner.set_full(true);
    let connection = delayed(&inner, Duration::from_millis(2));
    append(&connection, Lane::Data, "stuck");
    connection.flush();
    append(&connection, Lane::Control, "never flushed");
    connection.close(CloseReason::Fault("enough".into()));
    let (_, reason) = inner.until(|state| state.closed.clone());
    assert_eq!(reason, CloseReason::Fault("enough".into()));
    assert!(inner.state.lock().handed.is_empty());
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    let inner = Ledger::new();
    let timer = Arc::new(Timer::start());
    let watch = Arc::downgrade(&timer);
    let one_way = Duration::from_millis(2);
    let connection = DelayedConnection::new(Arc::clone(&inner) as _, one_way, timer);
    append(&connection, Lane::Data, "left behind");
    connection.flush();
    drop(connection);
    assert_eq!(texts(&inner.handed(1)), ["left behind"]);
    // Its last handle is with the thread itself, which drops it after the turn.
    let deadline = Instant::now() + PATIENCE;
    while watch.strong_count() > 0 {
        assert!(Instant::now() < deadline, "the thread still runs");
        std::thread::yield_now();
    }
}

/// A transport with an answer of its own to every question.
#[derive(Debug)]
struct Telling;

impl Transport for Telling {
    fn schemes(&self) -> &'static [&'static str] {
        &["telling"]
    }

    fn proves_peers(&self) -> bool {
        true
    }

    fn trusts_node(&self, node: NodeId) -> bool {
        node == NodeId::new(8)
    }

    fn nodes(&self) -> Vec<NodeId> {
        vec![NodeId::new(7)]
    }

    fn preference(&self) -> i8 {
        3
    }

    fn listen(&self, _: &Address, _: Arc<dyn Sink>) -> ListenFuture {
        unreachable!("nobody listens")
    }

    fn dial(&self, _: &Address, _: Option<NodeId>, _: Arc<dyn Sink>) -> DialFuture {
        unreachable!("nobody dials")
    }
}

#[test]
fn a_delayed_transport_answers_as_the_one_behind_the_line() {
    let line = DelayLine::wrap(Arc::new(Telling), Duration::from_millis(1));
    assert_eq!((line.schemes(), line.preference()), (&["telling"][..], 3));
    assert!(line.proves_peers() && line.trusts_node(NodeId::new(8)));
    assert_eq!(line.nodes(), [NodeId::new(7)]);
}

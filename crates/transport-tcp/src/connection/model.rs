//! The connection itself, run by loom in every order of events up to a bound: whoever flushes
//! writes for all, nobody writes beside another, and nothing that was appended and flushed stays
//! behind. A wake-up that is lost shows as a deadlock.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::DerefMut;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use convoke_transport::id::{Incarnation, LinkNonce, NodeId};
use convoke_transport::parts::{
    LaneLimits, SendLimits, SendPool, WORD_BYTES, Wakers, Words, put_goodbye,
};
use convoke_transport::{Appended, Hello, NotWritable};
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;
use crate::writer;

enum Loom {}

impl Platform for Loom {
    type Lock<T: Send> = loom::sync::Mutex<T>;
    type Signal = LoomSignal;
    type Half = LoomHalf;
}

impl<T: Send> Lock<T> for loom::sync::Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn lock(&self) -> impl DerefMut<Target = T> {
        self.lock().expect("nobody panics with the lock")
    }
}

/// Keeps one notification, as tokio's does.
struct LoomSignal(loom::sync::Mutex<(bool, Wakers)>);

impl Default for LoomSignal {
    fn default() -> Self {
        Self(Lock::new((false, Wakers::default())))
    }
}

impl Signal for LoomSignal {
    fn notify_one(&self) {
        let mut kept = Lock::lock(&self.0);
        kept.0 = true;
        let waiting = std::mem::take(&mut kept.1);
        drop(kept);
        waiting.wake();
    }
}

impl LoomSignal {
    async fn notified(&self) {
        poll_fn(|cx| {
            let mut kept = Lock::lock(&self.0);
            if std::mem::take(&mut kept.0) {
                return Poll::Ready(());
            }
            kept.1.register(cx);
            Poll::Pending
        })
        .await;
    }
}

/// Bytes that the peer got. Only `is_writing` is the scheduler's business.
#[derive(Default)]
struct Wire {
    is_writing: AtomicBool,
    bytes: std::sync::Mutex<Vec<u8>>,
    /// Number of times that the socket will still refuse.
    refusals: AtomicUsize,
}

impl Wire {
    /// The frames, which are of one byte, in order.
    fn frames(&self) -> Vec<u8> {
        let bytes = self.bytes.lock().unwrap();
        let (frames, rest) = bytes.as_chunks::<{ WORD_BYTES + 1 }>();
        assert!(rest.is_empty(), "half a frame: {bytes:?}");
        frames.iter().map(|frame| frame[WORD_BYTES]).collect()
    }
}

struct LoomHalf(Arc<Wire>);

impl Half for LoomHalf {
    async fn writable(&self) -> io::Result<()> {
        Ok(())
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(!self.0.is_writing.swap(true, Ordering::AcqRel), "two write at once");
        let refusals = self.0.refusals.load(Ordering::Relaxed);
        self.0.refusals.store(refusals.saturating_sub(1), Ordering::Relaxed);
        if refusals == 0 {
            self.0.bytes.lock().unwrap().extend_from_slice(bytes);
        }
        self.0.is_writing.store(false, Ordering::Release);
        if refusals > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(bytes.len()) }
    }

    fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.try_write(&bytes)
    }
}

struct Model {
    connection: Arc<TcpConnection<Loom>>,
    wire: Arc<Wire>,
}

impl Model {
    /// A connection whose socket will refuse so often.
    fn new(refusals: usize) -> Self {
        let peer = Hello {
            node: NodeId::new(2),
            incarnation: Incarnation(2),
            advertised: Vec::new(),
            frame_bytes_max: 100,
        };
        let (nonce, is_dialler) = (LinkNonce(1), true);
        let link = Link { peer, nonce, is_dialler, scheme: "tcp", principal: None, remote: None };
        let lane = LaneLimits { soft_bytes: 1_000, hard_bytes: 1_000 };
        let limits = QueueLimits {
            send: SendLimits { frame_bytes_max: 100, lanes: [lane; 2] },
            chunk_bytes_max: 100,
            windows: Some([1_000; 2]),
            batch_bytes: 1_000,
        };
        let share = SendPool::new(usize::MAX).open(link.peer_name());
        let connection = Arc::new(TcpConnection::new(link, &limits, share));
        let wire = Arc::new(Wire::default());
        connection.start(LoomHalf(wire.clone()));
        wire.refusals.store(refusals, Ordering::Relaxed);
        Self { connection, wire }
    }

    fn append(connection: &TcpConnection<Loom>, frame: u8) -> Result<Appended, NotWritable> {
        connection.append_copy(Lane::Data, &[], &[frame])
    }

    /// Somebody appends a frame and flushes.
    fn send(&self, frame: u8) -> thread::JoinHandle<Result<Appended, NotWritable>> {
        let connection = self.connection.clone();
        thread::spawn(move || {
            let appended = Self::append(&connection, frame);
            connection.flush();
            appended
        })
    }

    /// The writer task, for as many turns as the socket refuses: each is one handing over.
    fn writer(&self, turns: usize) -> thread::JoinHandle<()> {
        let connection = self.connection.clone();
        thread::spawn(move || {
            block_on(async {
                for _ in 0..turns {
                    connection.writer_signal.notified().await;
                    writer::write_handed(&connection).await;
                }
            });
        })
    }

    fn wait_until_flushed(&self) {
        block_on(poll_fn(|cx| self.connection.poll_flush(cx)));
    }

    fn sorted_frames(&self) -> Vec<u8> {
        let mut frames = self.wire.frames();
        frames.sort_unstable();
        frames
    }

    fn writes(&self) -> u64 {
        self.connection.counters().writes
    }
}

/// Every order with at most two switches where a thread could have gone on: defects of this kind
/// need one or two.
fn in_every_order(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

#[test]
fn who_is_alone_writes_once() {
    in_every_order(|| {
        let model = Model::new(0);
        model.send(1).join().unwrap().unwrap();
        assert_eq!((model.wire.frames(), model.writes()), (vec![1], 1));
    });
}

#[test]
fn when_all_have_flushed_everything_is_written() {
    in_every_order(|| {
        let model = Model::new(0);
        let others = [model.send(1), model.send(2)];
        Model::append(&model.connection, 3).unwrap();
        model.connection.flush();
        for other in others {
            other.join().unwrap().unwrap();
        }
        assert_eq!(model.sorted_frames(), [1, 2, 3]);
        assert!(model.writes() <= 3);
    });
}

#[test]
fn what_the_socket_refuses_the_writer_task_writes() {
    in_every_order(|| {
        let model = Model::new(1);
        let (writer, other) = (model.writer(1), model.send(1));
        Model::append(&model.connection, 2).unwrap();
        model.wait_until_flushed();
        other.join().unwrap().unwrap();
        writer.join().unwrap();
        model.wait_until_flushed();
        assert_eq!(model.sorted_frames(), [1, 2]);
    });
}

#[test]
fn who_stops_waiting_for_a_flush_takes_nothing_along() {
    in_every_order(|| {
        let model = Model::new(1);
        let writer = model.writer(1);
        Model::append(&model.connection, 1).unwrap();
        {
            let given_up = pin!(poll_fn(|cx| model.connection.poll_flush(cx)));
            let _ = given_up.poll(&mut Context::from_waker(Waker::noop()));
        }
        let other = model.send(2);
        model.wait_until_flushed();
        other.join().unwrap().unwrap();
        writer.join().unwrap();
        assert_eq!(model.sorted_frames(), [1, 2]);
    });
}

#[test]
fn a_close_sends_what_was_taken_and_then_its_goodbye_alone() {
    in_every_order(|| {
        let model = Model::new(0);
        let other = model.send(1);
        model.connection.close(CloseReason::Local);
        let taken = usize::from(other.join().unwrap().is_ok());
        assert!(model.connection.out.lock().unwrap().duty.is_gone(), "the direction is shut down");
        let mut goodbye = bytes::BytesMut::new();
        put_goodbye(&mut goodbye, Words::WITH_CREDIT, &CloseReason::Local.goodbye_text());
        let bytes = model.wire.bytes.lock().unwrap();
        assert_eq!(bytes.len(), taken * (WORD_BYTES + 1) + goodbye.len());
        assert!(bytes.ends_with(&goodbye));
    });
}

#[test]
fn an_end_wakes_who_waits_for_a_flush() {
    in_every_order(|| {
        let model = Model::new(1);
        Model::append(&model.connection, 1).unwrap();
        model.connection.flush();
        let connection = model.connection.clone();
        let other = thread::spawn(move || connection.end(CloseReason::Local));
        model.wait_until_flushed();
        other.join().unwrap();
        assert_eq!(model.wire.frames(), [] as [u8; 0]);
    });
}

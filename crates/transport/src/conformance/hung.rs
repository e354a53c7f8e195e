//! Processes that hang, though their system and their adapter go on, and processes that end.

use std::sync::Arc;

use bytes::Bytes;

use super::process::{Hung, Process};
use super::recorder::Recorder;
use super::{Setup, send};
use crate::{CloseReason, Connection, Lane, Listener};

/// Ends of the connections of a process that hangs, and of one that ends:
/// [`a_hung_process_is_noticed`] and [`a_process_that_ends_closes_its_connections`].
pub async fn processes(setup: impl Fn() -> Setup) {
    a_hung_process_is_noticed(&setup).await;
    a_process_that_ends_closes_its_connections(&setup).await;
}

/// An end whose process hangs, be it the one that dialled or the other, is noticed by the
/// keep-alive timeout, though its system and its adapter go on to answer. What was sent to it
/// meanwhile, and has waited for longer than the timeout, is not delivered when it goes on.
///
/// Not among those of [`all`](super::all): it takes three times the timeout, so the setup should
/// have a short one. Each setup must have transports of its own, which run where they first listen
/// or dial.
pub async fn a_hung_process_is_noticed(setup: impl Fn() -> Setup) {
    let dialler = Apart::connect(setup(), true).await.hang().await;
    let listener = Apart::connect(setup(), false).await.hang().await;
    // The time of a third is what makes old of what the first two have not read.
    let last = Apart::connect(setup(), true).await.hang().await;
    for late in [dialler, listener] {
        let (asleep, nonce) = late.goes_on().await;
        assert_eq!(asleep.frame_count(nonce), 1, "what has waited for too long is delivered");
    }
    last.goes_on().await;
}

/// An end whose process ends without closing its connections: both ends hear of it, its own before
/// the process is gone.
///
/// As for [`a_hung_process_is_noticed`], each setup must have transports of its own, with a short
/// timeout where nothing else tells the other end.
pub async fn a_process_that_ends_closes_its_connections(setup: impl Fn() -> Setup) {
    for is_dialler in [true, false] {
        let Apart { process, inside, outside, to_outside, to_inside, .. } =
            Apart::connect(setup(), is_dialler).await;
        let nonce = to_outside.link().nonce;
        drop(process);
        assert!(inside.seen(nonce).expect("it was open").closed.is_some(), "its sink hears it");
        let refused = to_outside.append_bytes(Lane::Data, &[], Bytes::new());
        assert_eq!(refused, Err(crate::NotWritable::Closed));
        assert_ne!(outside.closed(nonce).await, CloseReason::Local);
        drop(to_inside);
        inside.check();
        outside.check();
    }
}

/// Two connected ends, one of them in a process of its own, over which a frame went each way.
struct Apart {
    process: Process,
    inside: Arc<Recorder>,
    outside: Arc<Recorder>,
    /// The connection, held within the process.
    to_outside: Arc<dyn Connection>,
    to_inside: Arc<dyn Connection>,
    _listener: Arc<dyn Listener>,
}

impl Apart {
    async fn connect(setup: Setup, is_dialler: bool) -> Self {
        let process = Process::start();
        let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
        let (listening, sink) = (setup.clone(), Arc::clone(&b));
        let listen = async move { listening.listen(&sink).await };
        let listener = if is_dialler { listen.await } else { process.run(listen).await };
        let listener: Arc<dyn Listener> = Arc::from(listener);
        let (dialling, sink, at) = (setup, Arc::clone(&a), Arc::clone(&listener));
        let dial = async move { dialling.dial(&*at, &sink).await };
        let dialled = if is_dialler { process.run(dial).await } else { dial.await };
        let to_b = dialled.expect("the other end listens");
        let to_a = b.opened(0).await;
        for (from, to) in [(&to_b, &b), (&to_a, &a)] {
            send(from, Lane::Data, &Bytes::from_static(b"alive")).await;
            to.frames(to_b.link().nonce, 1).await;
        }
        let (inside, outside, to_outside, to_inside) =
            if is_dialler { (a, b, to_b, to_a) } else { (b, a, to_a, to_b) };
        Self { process, inside, outside, to_outside, to_inside, _listener: listener }
    }

    /// The process hangs, is sent a frame, and is given up by the other end.
    async fn hang(self) -> Asleep {
        let hung = self.process.hang().await;
        send(&self.to_inside, Lane::Data, &Bytes::from_static(b"late")).await;
        let nonce = self.to_inside.link().nonce;
        assert_eq!(self.outside.closed(nonce).await, CloseReason::KeepAlive);
        Asleep { hung, apart: self }
    }
}

/// A connection one end of which hangs still.
struct Asleep {
    /// Before the process, which ends only when it goes on.
    hung: Hung,
    apart: Apart,
}

impl Asleep {
    /// The process goes on, and hears of the end. Answers its sink and the connection.
    async fn goes_on(self) -> (Arc<Recorder>, convoke_proto::id::LinkNonce) {
        let Self { hung, apart } = self;
        drop(hung);
        let nonce = apart.to_inside.link().nonce;
        apart.inside.closed(nonce).await;
        apart.inside.check();
        apart.outside.check();
        (apart.inside, nonce)
    }
}

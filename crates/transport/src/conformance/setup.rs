//! Opening: who is there, who is not, who is not wanted.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use convoke_proto::id::NodeId;

use super::recorder::Recorder;
use super::{PATIENCE, Setup};
use crate::{
    Address, CloseReason, Connection, DialError, Lane, ListenError, Listener, NotWritable,
};

/// Two connected ends, made by [`Setup::connect`].
#[derive(Debug)]
pub struct Pair {
    /// The sink of the dialling end, node 1.
    pub a: Arc<Recorder>,
    /// The sink of the listening end, node 2.
    pub b: Arc<Recorder>,
    /// The connection, held by the dialling end.
    pub to_b: Arc<dyn Connection>,
    /// The connection, held by the listening end.
    pub to_a: Arc<dyn Connection>,
    /// Listener of the listening end.
    pub listener: Box<dyn Listener>,
}

impl Setup {
    /// Connects node 1 to node 2.
    pub async fn connect(&self) -> Pair {
        self.connect_as(Recorder::new(1), Recorder::new(2)).await
    }

    /// Connects `a` to `b`.
    pub async fn connect_as(&self, a: Recorder, b: Recorder) -> Pair {
        let (a, b) = (Arc::new(a), Arc::new(b));
        let listener = self.listen(&b).await;
        let to_b = self.dial(&*listener, &a).await.expect("the other end listens");
        let to_a = b.opened(0).await;
        Pair { a, b, to_b, to_a, listener }
    }

    /// Listens for `sink`.
    pub async fn listen(&self, sink: &Arc<Recorder>) -> Box<dyn Listener> {
        let listening = self.listening.listen(&self.listen, Arc::clone(sink) as _);
        let listening = tokio::time::timeout(PATIENCE, listening).await;
        listening.expect("listening ends").expect("the address of the setup can be bound")
    }

    /// Dials a listener for `sink`.
    ///
    /// # Errors
    /// Those of [`Transport::dial`](crate::Transport::dial).
    pub async fn dial(
        &self,
        listener: &dyn Listener,
        sink: &Arc<Recorder>,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let dialling = self.dialling.dial(&listener.local_address(), None, Arc::clone(sink) as _);
        tokio::time::timeout(PATIENCE, dialling).await.expect("a dial ends")
    }
}

impl Pair {
    /// Closes both ends, and asserts that each end was told everything in turn.
    pub async fn finish(self) {
        self.to_b.close(CloseReason::Local);
        self.to_a.close(CloseReason::Local);
        self.a.closed(self.to_b.link().nonce).await;
        self.b.closed(self.to_a.link().nonce).await;
        self.a.check();
        self.b.check();
    }
}

/// Both ends agree on who they are and on the name of the connection.
pub async fn hello_is_the_same_at_both_ends(setup: Setup) {
    let addresses = vec!["tcp://10.1.2.3:7000".parse().expect("it is an address")];
    let (a, b) = (Recorder::new(1).advertising(addresses), Recorder::new(2).taking(50_000));
    let pair = setup.connect_as(a, b).await;
    let (at_a, at_b) = (pair.to_b.link(), pair.to_a.link());
    assert_eq!(at_a.nonce, at_b.nonce);
    assert_eq!((at_a.is_dialler, at_b.is_dialler), (true, false));
    assert_eq!(at_a.scheme, setup.listen.scheme());
    assert_eq!(at_a.scheme, at_b.scheme);
    assert_eq!(at_a.peer, crate::Sink::hello(&*pair.b));
    assert_eq!(at_b.peer, crate::Sink::hello(&*pair.a));
    assert_eq!(pair.a.opened_count(), 1);
    pair.finish().await;
}

/// Dialling an address at which another node answers says which.
pub async fn another_node_than_expected_is_refused(setup: Setup) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = setup.listen(&b).await;
    let (address, expected) = (listener.local_address(), NodeId::new(3));
    let dialled = setup.dialling.dial(&address, Some(expected), Arc::clone(&a) as _).await;
    let found = NodeId::new(2);
    assert_eq!(dialled.err(), Some(DialError::WrongNode { address, expected, found }));
    assert_eq!(a.opened_count(), 0);
    assert_closed_if_opened(&b).await;

    let dialled =
        setup.dialling.dial(&listener.local_address(), Some(found), Arc::clone(&a) as _).await;
    let connection = dialled.expect("the expected node answers");
    connection.close(CloseReason::Local);
    a.closed(connection.link().nonce).await;
    a.check();
    b.check();
}

/// Dialling an address nobody listens on, or no longer, is `Unreachable`.
pub async fn nobody_listening_is_unreachable(setup: Setup) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = setup.listen(&b).await;
    listener.close();
    let dialled = setup.dial(&*listener, &a).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");
    assert_eq!(a.opened_count() + b.opened_count(), 0);
}

/// A listening end that does not want a connection says why.
pub async fn a_listener_refuses_by_its_sink(setup: Setup) {
    let (a, b) = (Recorder::new(1), Recorder::new(2).refusing("no more room here"));
    let (a, b) = (Arc::new(a), Arc::new(b));
    let listener = setup.listen(&b).await;
    let text = match setup.dial(&*listener, &a).await {
        Err(DialError::Handshake { message, .. }) => message,
        Err(other) => panic!("expected the refusal, not {other}"),
        // A transport whose dial does not wait for the other end's consent.
        Ok(connection) => a.closed(connection.link().nonce).await.to_string(),
    };
    assert!(text.contains("no more room here"), "{text}");
    assert_eq!(b.opened_count(), 0);
    a.check();
    b.check();
}

/// A dialling end that does not want the connection after all ends it for both.
pub async fn a_dialler_refuses_by_its_sink(setup: Setup) {
    let (a, b) = (Recorder::new(1).refusing("changed my mind"), Recorder::new(2));
    let (a, b) = (Arc::new(a), Arc::new(b));
    let listener = setup.listen(&b).await;
    match setup.dial(&*listener, &a).await {
        Err(DialError::Handshake { message, .. }) => {
            assert!(message.contains("changed my mind"), "{message}");
        }
        other => panic!("expected the refusal, not {other:?}"),
    }
    assert_closed_if_opened(&b).await;
    a.check();
    b.check();
}

/// Many dials to one listener all work, and every connection has its own name and frames.
pub async fn many_connections_at_once(setup: Setup) {
    const COUNT: u64 = 32;
    let b = Arc::new(Recorder::new(1_000));
    let listener: Arc<dyn Listener> = Arc::from(setup.listen(&b).await);
    let mut dials = tokio::task::JoinSet::new();
    for number in 1..=COUNT {
        let (setup, listener) = (setup.clone(), Arc::clone(&listener));
        dials.spawn(async move {
            let a = Arc::new(Recorder::new(number));
            let to_b = setup.dial(&*listener, &a).await.expect("the other end listens");
            let body = number.to_le_bytes();
            to_b.append_copy(Lane::Data, &[], &body).expect("a fresh connection takes a frame");
            to_b.flush();
            (a, to_b)
        });
    }
    let ends = dials.join_all().await;
    let nonces: BTreeSet<_> = ends.iter().map(|(_, to_b)| to_b.link().nonce).collect();
    assert_eq!(nonces.len(), ends.len());
    for (a, to_b) in &ends {
        let nonce = to_b.link().nonce;
        let number = crate::Sink::hello(&**a).node.get();
        let frames = b.frames(nonce, 1).await;
        assert_eq!(frames[0].1.as_ref(), number.to_le_bytes());
        let at_b = b.seen(nonce).expect("its frame was seen above").connection;
        assert_eq!(at_b.link().peer.node.get(), number);
        to_b.close(CloseReason::Local);
    }
    for (a, to_b) in &ends {
        a.closed(to_b.link().nonce).await;
        b.closed(to_b.link().nonce).await;
        a.check();
    }
    b.check();
}

/// Closing or dropping a listener stops accepting; what is open goes on.
pub async fn a_closed_listener_keeps_its_connections(setup: Setup) {
    let Pair { a, b, to_b, to_a, listener } = setup.connect().await;
    let address = listener.local_address();
    drop(listener);
    let again = setup.dialling.dial(&address, None, Arc::clone(&a) as _).await;
    assert!(again.is_err(), "{again:?}");
    to_b.append_bytes(Lane::Data, b"still ", bytes::Bytes::from_static(b"here"))
        .expect("the connection is open");
    to_b.flush();
    assert_eq!(b.frames(to_a.link().nonce, 1).await[0].1.as_ref(), b"still here");

    to_b.close(CloseReason::Local);
    a.closed(to_b.link().nonce).await;
    let refused = to_b.append_copy(Lane::Data, &[], &[1]);
    assert_eq!(refused, Err(NotWritable::Closed));
    b.closed(to_a.link().nonce).await;
    a.check();
    b.check();
}

/// A dial that is dropped, whenever that is, leaves no connection behind; the next one works.
pub async fn a_dial_that_is_dropped_leaves_nothing(setup: Setup) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = setup.listen(&b).await;
    let address = listener.local_address();
    for polls in 0..16 {
        let mut dial = setup.dialling.dial(&address, None, Arc::clone(&a) as _);
        for _ in 0..polls {
            let polled = poll_fn(|cx| Poll::Ready(dial.as_mut().poll(cx))).await;
            if let Poll::Ready(dialled) = polled {
                // It was faster: then the connection is the caller's.
                dialled.expect("the other end listens").close(CloseReason::Local);
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let last = setup.dial(&*listener, &a).await.expect("the other end still listens");
    last.close(CloseReason::Local);
    for sink in [&a, &b] {
        for index in 0..sink.opened_count() {
            sink.closed(sink.opened(index).await.link().nonce).await;
        }
        sink.check();
    }
}

/// An address of another scheme is refused.
pub async fn an_address_of_another_scheme_is_refused(setup: Setup) {
    let sink = Arc::new(Recorder::new(1));
    let address: Address = "other://127.0.0.1:0".parse().expect("it is an address");
    let listening = setup.listening.listen(&address, Arc::clone(&sink) as _).await;
    assert_eq!(listening.err(), Some(ListenError::NoTransport { address: address.clone() }));
    let dialled = setup.dialling.dial(&address, None, sink).await;
    assert_eq!(dialled.err(), Some(DialError::NoTransport { address }));
}

/// An address has one listener at a time, and a refused one takes nothing from it.
pub async fn an_address_has_one_listener(setup: Setup) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = setup.listen(&b).await;
    let address = listener.local_address();
    let second = setup.listening.listen(&address, Arc::clone(&b) as _).await;
    assert!(matches!(second, Err(ListenError::Bind { .. })), "{second:?}");
    let connection = setup.dial(&*listener, &a).await.expect("the first still listens");
    connection.close(CloseReason::Local);
    a.closed(connection.link().nonce).await;
    b.closed(connection.link().nonce).await;
    a.check();
    b.check();
}

/// The listening end may have opened before the dialling one refused; then it was closed again.
async fn assert_closed_if_opened(sink: &Recorder) {
    if sink.opened_count() > 0 {
        let connection = sink.opened(0).await;
        let reason = sink.closed(connection.link().nonce).await;
        assert!(matches!(reason, CloseReason::Peer(_)), "{reason:?}");
    }
}

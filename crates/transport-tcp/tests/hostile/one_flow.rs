//! One flow of a connection that stops, or is cut, on its way between two honest ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{PATIENCE, Recorder, send, writable};
use convoke_transport::{
    Address, CloseReason, Connection, Lane, Listener, NotWritable, Order, Transport,
};
use convoke_transport_tcp::TcpTransport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

const FLOWS: u8 = 3;
const GROUPS: u16 = 30;
const FRAME_BYTES: usize = 10_000;
/// Bytes that a flow has room for, in its queue and in the window of the other end.
const HELD_BYTES_MAX: usize = (6 << 20) + (1 << 20);

/// Two ends whose flows go through a relay.
struct Relayed {
    dialler: Arc<Recorder>,
    listening: Arc<Recorder>,
    /// The connection, held by the end that listens.
    to_dialler: Arc<dyn Connection>,
    to_listening: Arc<dyn Connection>,
    relay: Relay,
    _listener: Box<dyn Listener>,
}

/// Passes on what goes over each socket.
struct Relay {
    address: Address,
    accepting: AbortHandle,
    /// The flow whose bytes to the dialler stay where they are.
    held: watch::Sender<Option<usize>>,
    /// The flow that is cut.
    cut: watch::Sender<Option<usize>>,
}

impl Relay {
    async fn start(to: Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let at = listener.local_addr().expect("it is bound");
        let (held, is_held) = watch::channel(None);
        let (cut, is_cut) = watch::channel(None);
        let accepting = tokio::spawn(async move {
            let mut sockets = JoinSet::new();
            for flow in 0.. {
                let (near, _) = listener.accept().await.expect("it is dialled");
                let far = TcpStream::connect(to.rest()).await.expect("the node listens");
                let (is_held, mut is_cut) = (is_held.clone(), is_cut.clone());
                sockets.spawn(async move {
                    tokio::select! {
                        () = pass_on(flow, near, far, is_held) => {}
                        _ = is_cut.wait_for(|cut| *cut == Some(flow)) => {}
                    }
                });
            }
        });
        let address = format!("tcp://{at}").parse().expect("it is an address");
        Self { address, accepting: accepting.abort_handle(), held, cut }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes bytes on both ways until one of the ends closes.
async fn pass_on(
    flow: usize,
    near: TcpStream,
    far: TcpStream,
    mut is_held: watch::Receiver<Option<usize>>,
) {
    let ((mut from_near, mut to_near), (mut from_far, mut to_far)) =
        (near.into_split(), far.into_split());
    let there = async {
        // Whoever has closed is told by the other way.
        let _ = tokio::io::copy(&mut from_near, &mut to_far).await;
    };
    let back = async {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = from_far.read(&mut bytes).await.unwrap_or(0);
            is_held.wait_for(|held| *held != Some(flow)).await.expect("the relay is there");
            if count == 0 || to_near.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

impl Relayed {
    async fn new() -> Self {
        let transport = || {
            let builder = TcpTransport::builder().flows(FLOWS).send_buffer_bytes_hard(6 << 20);
            // What is held is held for as long as the test takes.
            let builder = builder.keep_alive_timeout(PATIENCE * 10);
            builder.close_grace(Duration::from_millis(100)).build().expect("it is legal")
        };
        let sink = |node| {
            let group = |frame: &[u8]| Order::Group(frame.first_chunk().map_or(0, number).into());
            Arc::new(Recorder::new(node).ordering(group))
        };
        let (dialler, listening) = (sink(1), sink(2));
        let any = "tcp://127.0.0.1:0".parse().expect("it is an address");
        let listener = transport().listen(&any, Arc::clone(&listening) as _).await;
        let listener = listener.expect("loopback can be bound");
        let relay = Relay::start(listener.local_address()).await;
        let dialled = transport().dial(&relay.address, None, Arc::clone(&dialler) as _).await;
        let to_listening = dialled.expect("the relay passes it on");
        let to_dialler = listening.opened(0).await;
        Self { dialler, listening, to_dialler, to_listening, relay, _listener: listener }
    }

    fn append(&self, group: u16) -> Result<(), NotWritable> {
        self.to_dialler.append_bytes(Lane::Data, &[], frame(group)).map(drop)
    }

    async fn ends(self) {
        let nonce = self.to_dialler.link().nonce;
        for sink in [&self.dialler, &self.listening] {
            let reason = sink.closed(nonce).await;
            assert!(!matches!(reason, CloseReason::Fault(_)), "{reason:?}");
            sink.check();
        }
    }
}

fn number(bytes: &[u8; 2]) -> u16 {
    u16::from_be_bytes(*bytes)
}

fn frame(group: u16) -> Bytes {
    [&group.to_be_bytes()[..], &[7; FRAME_BYTES - 2]].concat().into()
}

#[tokio::test]
async fn a_flow_that_is_never_read_holds_up_its_own_groups_alone() {
    for held in 0..usize::from(FLOWS) {
        let ends = Relayed::new().await;
        ends.relay.held.send_replace(Some(held));
        let mut taken = [0_usize; GROUPS as usize];
        // Until those of the flow that is held are full, and have been for a while.
        let mut full_rounds = 0;
        while full_rounds < 200 {
            let mut is_full = false;
            for group in 0..GROUPS {
                match ends.append(group) {
                    Ok(()) => taken[usize::from(group)] += 1,
                    Err(error) => {
                        assert_eq!(error, NotWritable::Full);
                        is_full = true;
                    }
                }
            }
            full_rounds += usize::from(is_full);
            ends.to_dialler.flush();
            let passing = (0..GROUPS).filter(|group| taken[usize::from(*group)] > 0).count();
            assert_eq!(passing, usize::from(GROUPS));
            tokio::task::yield_now().await;
        }
        let nonce = ends.to_dialler.link().nonce;
        let most = *taken.iter().max().expect("there are groups");
        let stopped: Vec<usize> = taken.iter().copied().filter(|count| count * 2 < most).collect();
        assert!((1..usize::from(GROUPS)).contains(&stopped.len()), "{taken:?}");
        let held_bytes = stopped.iter().sum::<usize>() * FRAME_BYTES;
        assert!(held_bytes < HELD_BYTES_MAX + (1 << 20), "{held_bytes} bytes: {taken:?}");
        // What was taken for the others is there, and nothing of a group is out of turn.
        let passed = taken.iter().sum::<usize>() - stopped.iter().sum::<usize>();
        ends.dialler.frames(nonce, passed).await;
        // Control takes the first flow, and the other way none that is held.
        send(&ends.to_listening, Lane::Data, &frame(0)).await;
        ends.listening.frames(nonce, 1).await;

        ends.relay.held.send_replace(None);
        let all = taken.iter().sum();
        assert_eq!(ends.dialler.frames(nonce, all).await.len(), all);
        ends.to_dialler.close(CloseReason::Local);
        ends.ends().await;
    }
}

#[tokio::test]
async fn a_flow_that_is_cut_under_load_wakes_whoever_waits_and_ends_the_connection() {
    for cut in 0..usize::from(FLOWS) {
        let ends = Relayed::new().await;
        ends.relay.held.send_replace(Some(cut));
        let mut senders = JoinSet::new();
        for group in 0..GROUPS {
            let connection = Arc::clone(&ends.to_dialler);
            senders.spawn(async move {
                loop {
                    match connection.append_bytes(Lane::Data, &[], frame(group)) {
                        Ok(_) => connection.flush(),
                        Err(NotWritable::Full) => writable(&connection, Lane::Data).await,
                        Err(error) => return error,
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        // Whoever appends to it finds it full.
        while !(0..GROUPS).any(|group| ends.append(group) == Err(NotWritable::Full)) {
            tokio::task::yield_now().await;
        }
        ends.relay.cut.send_replace(Some(cut));
        for error in senders.join_all().await {
            assert_eq!(error, NotWritable::Closed);
        }
        ends.ends().await;
    }
}

//! The whole transport over a real device, which `RDMA_VM_ADDR` names by an address. Where
//! `RDMA_VM` is set these tests fail without one; elsewhere they say that they are skipped.
#![cfg(target_os = "linux")]

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{self, Recorder, Setup, pattern, send};
use convoke_transport::{
    CloseReason, Connection, DialError, Hello, Lane, Link, Listener, Received, Sink,
};
use convoke_transport_rdma::provider::verbs::VerbsDevice;
use convoke_transport_rdma::{RdmaTransport, RdmaTransportBuilder};
use tokio::sync::Notify;

/// The address of the device to test, if there is one.
fn device_address() -> Option<IpAddr> {
    let address = std::env::var("RDMA_VM_ADDR").ok();
    let address = address.map(|text| text.parse().expect("RDMA_VM_ADDR is an address"));
    if address.is_none() {
        assert!(std::env::var_os("RDMA_VM").is_none(), "RDMA_VM without RDMA_VM_ADDR");
        eprintln!("SKIPPED: no RDMA_VM_ADDR, so there is no RDMA device to test");
    }
    address
}

/// Two ends, each with the device opened for itself.
fn setup(
    address: IpAddr,
    set: impl Fn(RdmaTransportBuilder<VerbsDevice>) -> RdmaTransportBuilder<VerbsDevice>,
) -> Setup {
    let [listening, dialling] = [(), ()].map(|()| {
        let device = VerbsDevice::of_address(address).expect("there is a device");
        Arc::new(set(RdmaTransport::builder(device)).build().expect("the settings are legal"))
    });
    let listen = format!("rdma://{address}:0").parse().expect("it is an address");
    Setup { listening, dialling, listen }
}

/// Number of times that the devices of this machine found no receive posted, or made a peer find
/// none.
fn receiver_not_ready_count() -> u64 {
    let devices = std::fs::read_dir("/sys/class/infiniband").expect("there is a device");
    let names = ["send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err"];
    let read = |path: std::path::PathBuf| {
        // Other devices than soft-RoCE may have other counters.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let of = |device: std::io::Result<std::fs::DirEntry>| {
        let counters = device.expect("it can be listed").path().join("ports/1/hw_counters");
        names.map(|name| read(counters.join(name))).into_iter().sum::<u64>()
    };
    devices.map(of).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rdma_keeps_the_promises_of_a_transport() {
    let Some(address) = device_address() else { return };
    let before = receiver_not_ready_count();
    // Without probes: their completions would get a connection going again that has stalled, and
    // hide it.
    let hour = Duration::from_secs(3_600);
    let one =
        setup(address, |builder| builder.keep_alive_interval(hour).keep_alive_timeout(3 * hour));
    conformance::all(|| one.clone()).await;
    assert_eq!(receiver_not_ready_count(), before);
}

/// Counts what comes, and forgets it.
#[derive(Debug)]
struct Counter {
    node: Recorder,
    expected: u64,
    count: AtomicU64,
    opened: parking_lot::Mutex<Option<Arc<dyn Connection>>>,
    done: Notify,
    closed: parking_lot::Mutex<Option<CloseReason>>,
    ended: Notify,
}

impl Counter {
    fn new(node: u64, expected: u64) -> Arc<Self> {
        Arc::new(Self {
            node: Recorder::new(node),
            expected,
            count: AtomicU64::new(0),
            opened: parking_lot::Mutex::default(),
            done: Notify::new(),
            closed: parking_lot::Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// Sends as many frames of `len` bytes as the other end expects.
    async fn send_all(&self, len: usize) {
        let to = self.opened.lock().clone().expect("it is open");
        let frame = vec![7; len];
        for _ in 0..self.expected {
            conformance::writable(&to, Lane::Data).await;
            to.append_copy(Lane::Data, &[], &frame).expect("it is writable");
            to.flush();
        }
    }
}

impl Sink for Counter {
    fn hello(&self) -> Hello {
        self.node.hello()
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        *self.opened.lock() = Some(connection);
        Ok(())
    }

    fn on_batch(
        &self,
        _: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let came = frames.map(|frame| u64::from(frame.bytes.iter().all(|byte| *byte == 7)));
        let came = came.sum();
        if self.count.fetch_add(came, Ordering::Relaxed) + came == self.expected {
            self.done.notify_one();
        }
        Ok(())
    }

    fn on_closed(&self, _: &Link, reason: CloseReason) {
        *self.closed.lock() = Some(reason);
        self.ended.notify_one();
    }
}

/// Both ends send so many frames at once, each a message of its own; answers how often a receiver
/// was not ready.
async fn saturate(address: IpAddr, slots: u16, count: u64) -> u64 {
    let before = receiver_not_ready_count();
    let setup = setup(address, |builder| builder.slots(slots).slot_bytes(1 << 10));
    let ends = [Counter::new(1, count), Counter::new(2, count)];
    let listener = setup.listening.listen(&setup.listen, ends[1].clone()).await;
    let listener = listener.expect("the port is free");
    let dialled = setup.dialling.dial(&listener.local_address(), None, ends[0].clone()).await;
    let connection = dialled.expect("it listens");
    // The listening end hears that it is open before anything comes, but maybe after the other end.
    while ends[1].opened.lock().is_none() {
        tokio::task::yield_now().await;
    }
    // Two do not fit a message of 1 KiB.
    let sending = ends.clone().map(|end| tokio::spawn(async move { end.send_all(520).await }));
    for (end, sending) in ends.iter().zip(sending) {
        sending.await.expect("sending ends");
        end.done.notified().await;
    }
    let counters = connection.counters();
    assert_eq!((counters.frames_sent, counters.frames_received), (count, count));
    connection.close(CloseReason::Local);
    for end in &ends {
        end.ended.notified().await;
    }
    assert_eq!(*ends[0].closed.lock(), Some(CloseReason::Local));
    assert!(matches!(*ends[1].closed.lock(), Some(CloseReason::Peer(_))), "{ends:?}");
    receiver_not_ready_count() - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_find_their_receives_with_any_number_of_slots() {
    let Some(address) = device_address() else { return };
    for slots in [1, 2, 8, 32] {
        assert_eq!(saturate(address, slots, 5_000).await, 0, "with {slots} slots");
    }
}

/// All of them where there are two processors, and so real races; a tenth where there is one, and a
/// twentieth where all is to be quick.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_receiver_is_not_ready_in_a_million_messages() {
    let Some(address) = device_address() else { return };
    let is_quick = std::env::var_os("RDMA_VM_QUICK").is_some();
    let has_one_processor =
        std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
    let count = match (is_quick, has_one_processor) {
        (true, _) => 25_000,
        (false, true) => 50_000,
        (false, false) => 500_000,
    };
    assert_eq!(saturate(address, 32, count).await, 0);
}

async fn connect(
    setup: &Setup,
    b: &Arc<Recorder>,
) -> (Box<dyn Listener>, [Arc<dyn Connection>; 2]) {
    let a = Arc::new(Recorder::new(1));
    let listener = setup.listen(b).await;
    let to_b = setup.dial(&*listener, &a).await.expect("it listens");
    let to_a = b.opened(0).await;
    (listener, [to_b, to_a])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_never_changes_and_outlives_everything() {
    let Some(address) = device_address() else { return };
    let setup = setup(address, |builder| builder);
    let b = Arc::new(Recorder::new(2));
    let (listener, [to_b, to_a]) = connect(&setup, &b).await;
    for number in 0..1_000 {
        send(&to_b, Lane::Data, &pattern(number, 4_000)).await;
    }
    let nonce = to_a.link().nonce;
    let frames: Vec<Bytes> =
        b.frames(nonce, 1_000).await.into_iter().map(|(_, frame)| frame).collect();
    to_b.close(CloseReason::Local);
    b.closed(nonce).await;
    drop((listener, to_a, to_b, b, setup));
    let checked = std::thread::spawn(move || {
        frames.iter().enumerate().all(|(number, frame)| *frame == pattern(number, 4_000))
    });
    assert!(checked.join().expect("nothing panics"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_lead_nowhere_say_so() {
    let Some(address) = device_address() else { return };
    let setup = setup(address, |builder| builder);
    let a = Arc::new(Recorder::new(1));
    let loopback = "rdma://127.0.0.1:7000".parse().expect("it is an address");
    match setup.dialling.dial(&loopback, None, a.clone()).await {
        Err(DialError::Unreachable { message, .. }) => assert!(!message.is_empty()),
        other => panic!("expected that it cannot be reached, not {other:?}"),
    }
    let error = setup.listening.listen(&loopback, a).await.expect_err("it is not of the device");
    assert!(error.to_string().contains("RDMA device"), "{error}");
}

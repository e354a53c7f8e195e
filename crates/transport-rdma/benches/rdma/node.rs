//! Two ends of a transport in one process, with sinks that answer at once.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use convoke_transport::id::Incarnation;
use convoke_transport::id::NodeId;
use convoke_transport::{
    Address, CloseReason, Connection, Counters, Hello, Lane, Link, Listener, Received, Sink,
    Transport,
};
use convoke_transport_rdma::provider::verbs::VerbsDevice;
use convoke_transport_rdma::{Defect, PollMode, RdmaTransport};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

/// Setup of the two ends, beside the defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) poll_mode: PollMode,
    pub(crate) slots: u16,
    pub(crate) slot_bytes: u32,
    pub(crate) defect: Option<Defect>,
    /// Each end has a thread and a runtime of its own; otherwise both share one.
    pub(crate) has_two_threads: bool,
}

impl Setup {
    /// Polls without a pause, with the defaults of the transport.
    pub(crate) const POLLED: Self = Self {
        poll_mode: PollMode::Busy,
        slots: 32,
        slot_bytes: 8 << 10,
        defect: None,
        has_two_threads: false,
    };

    /// Sleeps whenever there is nothing to do.
    pub(crate) const BY_EVENT: Self =
        Self { poll_mode: PollMode::Adaptive { spin: Duration::ZERO }, ..Self::POLLED };

    fn transport(&self) -> Arc<dyn Transport> {
        let device = VerbsDevice::of_address(device_address());
        let device = device.unwrap_or_else(|error| panic!("{error}"));
        let builder = RdmaTransport::builder(device).poll_mode(self.poll_mode);
        let builder = builder.slots(self.slots).slot_bytes(self.slot_bytes);
        let builder = match self.defect {
            Some(defect) => builder.defect(defect),
            None => builder,
        };
        Arc::new(builder.build().expect("the settings are legal"))
    }
}

/// A connection with both its ends.
#[derive(Debug)]
pub(crate) struct Pair {
    runtime: Arc<Runtime>,
    near: Arc<dyn Connection>,
    asker: Arc<Asker>,
    answerer: Arc<Answerer>,
    listener: Box<dyn Listener>,
    /// Drives the far end until it is told to stop.
    far_thread: Option<(Arc<Notify>, JoinHandle<()>)>,
}

impl Pair {
    /// Over the RDMA device.
    pub(crate) fn rdma(setup: &Setup) -> Self {
        let listen = format!("rdma://{}:0", device_address());
        let near = setup.transport();
        // A thread of its own needs an engine of its own; on one thread one engine serves both
        // ends.
        let far = if setup.has_two_threads { setup.transport() } else { Arc::clone(&near) };
        Self::over([near, far], &listen, setup.has_two_threads)
    }

    /// Over TCP in the same machine.
    pub(crate) fn tcp() -> Self {
        let transport = || Arc::new(convoke_transport_tcp::TcpTransport::new()) as _;
        Self::over([transport(), transport()], "tcp://127.0.0.1:0", false)
    }

    fn over(
        [dialling, listening]: [Arc<dyn Transport>; 2],
        listen: &str,
        has_two_threads: bool,
    ) -> Self {
        let (asker, answerer) = (Arc::new(Asker::default()), Arc::new(Answerer::default()));
        let listen: Address = listen.parse().expect("it is an address");
        let runtime = runtime();
        let far_runtime = if has_two_threads { self::runtime() } else { Arc::clone(&runtime) };
        // Whatever drives the far end runs where it listens.
        let listener = far_runtime.block_on(listening.listen(&listen, Arc::clone(&answerer) as _));
        let listener = listener.unwrap_or_else(|error| panic!("{error}"));
        let far_thread = has_two_threads.then(|| drive(far_runtime));
        let sink = Arc::clone(&asker) as _;
        let near = runtime.block_on(dialling.dial(&listener.local_address(), None, sink));
        let near = near.unwrap_or_else(|error| panic!("{error}"));
        Self { runtime, near, asker, answerer, listener, far_thread }
    }

    /// Round trips of messages of this size.
    pub(crate) fn ping_pong(&self, bytes: usize, count: usize) -> Vec<Duration> {
        let warm_up = count.div_ceil(16);
        self.asker.begin(bytes, warm_up + count);
        self.runtime.block_on(async {
            self.asker.ask(&self.near);
            self.near.flush();
            self.asker.done.notified().await;
        });
        self.asker.round.lock().times.split_off(warm_up)
    }

    /// One way, at most `window` messages sent and not received; the time of one message, burst by
    /// burst.
    pub(crate) fn stream(
        &self,
        bytes: usize,
        (window, burst): (u32, u32),
        bursts: usize,
    ) -> Vec<Duration> {
        self.answerer.is_silent.store(1, Ordering::Relaxed);
        let times = (0..=bursts).map(|_| {
            let before = self.answerer.received.load(Ordering::Relaxed);
            let start = Instant::now();
            self.runtime.block_on(self.send_burst(bytes, window, burst, before));
            start.elapsed() / burst
        });
        let times: Vec<_> = times.skip(1).collect();
        self.answerer.is_silent.store(0, Ordering::Relaxed);
        times
    }

    async fn send_burst(&self, bytes: usize, window: u32, burst: u32, before: u32) {
        let (mut sent, payload) = (0, payload(bytes));
        loop {
            let received = self.answerer.received.load(Ordering::Relaxed).wrapping_sub(before);
            if received == burst {
                return;
            }
            while sent < burst && sent - received < window {
                send(&self.near, &payload);
                sent += 1;
            }
            self.near.flush();
            tokio::task::yield_now().await;
        }
    }

    /// Messages that the far end has sent of its own, beside frames: credit.
    pub(crate) fn credit_messages(&self) -> u64 {
        let far = self.answerer.connection.lock();
        // The first of the transport's own messages introduces it.
        far.as_ref().map_or(0, |far| far.counters().transport_frames_sent.saturating_sub(1))
    }

    /// Counters of what this end has sent.
    pub(crate) fn counters(&self) -> Counters {
        self.near.counters()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.near.close(CloseReason::Local);
        self.runtime.block_on(self.asker.closed.notified());
        self.listener.close();
        if let Some((stop, thread)) = self.far_thread.take() {
            stop.notify_one();
            thread.join().expect("the far end does not panic");
        }
    }
}

fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Arc::new(runtime.expect("the system has what a runtime needs"))
}

/// Runs what is in a runtime on a thread of its own, until notified.
fn drive(runtime: Arc<Runtime>) -> (Arc<Notify>, JoinHandle<()>) {
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    (stop, std::thread::spawn(move || runtime.block_on(stopped.notified())))
}

/// Sends, and sends again when the answer comes.
#[derive(Debug, Default)]
struct Asker {
    round: Mutex<Round>,
    done: Notify,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Round {
    payload: Bytes,
    left: usize,
    asked: Option<Instant>,
    times: Vec<Duration>,
}

impl Asker {
    fn begin(&self, bytes: usize, count: usize) {
        let times = Vec::with_capacity(count);
        *self.round.lock() = Round { payload: payload(bytes), left: count, asked: None, times };
    }

    fn ask(&self, connection: &Arc<dyn Connection>) {
        self.round.lock().ask(connection);
    }

    fn on_answer(&self, connection: &Arc<dyn Connection>) {
        let mut round = self.round.lock();
        let Some(asked) = round.asked.take() else { return };
        round.times.push(asked.elapsed());
        round.left -= 1;
        if round.left == 0 {
            return self.done.notify_one();
        }
        round.ask(connection);
    }
}

impl Round {
    fn ask(&mut self, connection: &Arc<dyn Connection>) {
        self.asked = Some(Instant::now());
        send(connection, &self.payload);
    }
}

/// Sends back what comes, or counts it when it is told to be silent.
#[derive(Debug, Default)]
struct Answerer {
    is_silent: AtomicU32,
    received: AtomicU32,
    connection: Mutex<Option<Arc<dyn Connection>>>,
}

fn hello(node: u64) -> Hello {
    Hello {
        node: NodeId::new(node),
        incarnation: Incarnation(1),
        advertised: Vec::new(),
        frame_bytes_max: 4 << 20,
    }
}

impl Sink for Asker {
    fn hello(&self) -> Hello {
        hello(1)
    }

    fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        frames.for_each(|_| self.on_answer(from));
        from.flush();
        Ok(())
    }

    fn on_closed(&self, _: &Link, _: CloseReason) {
        self.closed.notify_one();
    }
}

impl Sink for Answerer {
    fn hello(&self) -> Hello {
        hello(2)
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        *self.connection.lock() = Some(connection);
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        if self.is_silent.load(Ordering::Relaxed) == 1 {
            let count = frames.count();
            self.received
                .fetch_add(u32::try_from(count).expect("a batch is small"), Ordering::Relaxed);
            return Ok(());
        }
        frames.for_each(|frame| send(from, &frame.bytes));
        from.flush();
        Ok(())
    }

    fn on_closed(&self, _: &Link, _: CloseReason) {}
}

/// Up to here a message is copied to where it is sent from, as an endpoint has it; larger ones are
/// handed over.
const COPY_BYTES_MAX: usize = 4 << 10;

/// Sends a message.
fn send(connection: &Arc<dyn Connection>, payload: &Bytes) {
    let appended = match payload.len() {
        ..=COPY_BYTES_MAX => connection.append_copy(Lane::Data, &[], payload),
        _ => connection.append_bytes(Lane::Data, &[], payload.clone()),
    };
    appended.expect("a connection has room for what is under way");
}

fn payload(bytes: usize) -> Bytes {
    vec![7; bytes].into()
}

/// The address of the device.
pub(crate) fn device_address() -> IpAddr {
    let address =
        std::env::var("RDMA_VM_ADDR").expect("RDMA_VM_ADDR is an address of an RDMA device");
    address.parse().expect("RDMA_VM_ADDR is an IP address")
}

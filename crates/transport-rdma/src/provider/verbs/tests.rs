//! On a real device, which `RDMA_VM_ADDR` names by an address: there these tests fail without one.
//! Elsewhere they say that they are skipped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::IpAddr;
use std::process::Command;
use std::task::Waker;

use super::*;
use crate::provider::{Data, WorkId, WorkStatus};

mod connecting;
mod ending;
mod limits;
mod traffic;

const SETTINGS: QueuePairSettings = QueuePairSettings {
    receives_max: 16,
    sends_max: 16,
    inline_bytes: 220,
    retry_count: 6,
    ack_timeout_exponent: 10,
};
const SLOT_BYTES: usize = 4_096;
const TIMEOUT: Duration = Duration::from_secs(5);

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

/// Runs a test on a device, in a runtime of one thread.
fn on_device<F: Future<Output = ()>>(test: impl FnOnce(VerbsDevice, IpAddr) -> F) {
    let Some(address) = device_address() else { return };
    let device = VerbsDevice::of_address(address).expect("there is a device");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test(device, address));
}

/// A device with what it has reported and nobody has asked for yet.
struct Driven {
    device: VerbsDevice,
    completions: VecDeque<Completion>,
    events: VecDeque<Event<VerbsDevice>>,
}

impl Driven {
    fn new(device: VerbsDevice) -> Self {
        Self { device, completions: VecDeque::new(), events: VecDeque::new() }
    }

    async fn event(&mut self) -> Event<VerbsDevice> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.wait().await;
        }
    }

    async fn completion(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.completions.pop_front() {
                return completion;
            }
            self.wait().await;
        }
    }

    /// Waits for something new as an engine does: polls, arms, polls again, sleeps.
    async fn wait(&mut self) {
        let before = (self.events.len(), self.completions.len());
        for is_last in [false, true] {
            self.events.extend(std::iter::from_fn(|| self.device.poll_event()));
            if self.events.len() > before.0 {
                return;
            }
            self.poll();
            if self.completions.len() > before.1 {
                return;
            }
            if !is_last {
                self.device.arm().unwrap();
            }
        }
        poll_fn(|cx| self.device.poll_ready(cx)).await.unwrap();
    }

    fn poll(&mut self) {
        let mut completions = Vec::new();
        self.device.poll_completions(64, &mut completions).unwrap();
        self.completions.extend(completions);
    }
}

struct End {
    queue_pair: VerbsQueuePair,
    slab: Arc<Slab>,
    tag: Tag,
}

impl End {
    fn send(&self, device: &VerbsDevice, text: &[u8]) -> Result<(), PostError> {
        let send = SendRequest { data: Data::Inline(text), is_signalled: true };
        device.post_sends(&self.queue_pair, &[send])
    }

    fn text(&self, completion: &Completion) -> Vec<u8> {
        assert_eq!(completion.status, WorkStatus::Success);
        self.slab.read(completion.id.index(), completion.bytes as usize).unwrap().to_vec()
    }
}

fn tag(number: u32) -> Tag {
    Tag::new(number).unwrap()
}

fn memory(device: &VerbsDevice, slots: u32) -> (Arc<Slab>, Arc<VerbsMemory>) {
    let slab = Slab::new(slots, SLOT_BYTES, Waker::noop().clone());
    let memory = Arc::new(device.register(&slab).unwrap());
    (slab, memory)
}

/// Connects two ends over one device; the receives of both are not posted yet.
async fn pair(driven: &mut Driven, address: IpAddr, tags: [u32; 2]) -> (End, End) {
    pair_with(driven, address, tags, SETTINGS).await
}

async fn pair_with(
    driven: &mut Driven,
    address: IpAddr,
    tags: [u32; 2],
    settings: QueuePairSettings,
) -> (End, End) {
    let device = driven.device.clone();
    let (listener, at) = device.listen(tag(9_999), SocketAddr::new(address, 0), 8).unwrap();
    assert!(at.port() != 0 && at.ip() == address, "{at}");
    let (slab, near_memory) = memory(&device, 32);
    let near = device.dial(tag(tags[0]), at, TIMEOUT, settings, &near_memory).unwrap();
    let near = End { queue_pair: near, slab, tag: tag(tags[0]) };
    let Event::Resolved { tag: resolved, local } = driven.event().await else { panic!() };
    assert_eq!((resolved, local.ip()), (near.tag, address));
    device.connect(&near.queue_pair, b"hello").unwrap();
    let Event::Request { listener: of, request, peer, local, private_data } = driven.event().await
    else {
        panic!()
    };
    assert_eq!((of, peer.ip(), local), (tag(9_999), address, at));
    assert_eq!(&private_data[..5], b"hello");
    assert_eq!(private_data.len(), 56);
    let (slab, far_memory) = memory(&device, 32);
    let far = device.prepare(tag(tags[1]), request, settings, &far_memory).unwrap();
    let far = End { queue_pair: far, slab, tag: tag(tags[1]) };
    device.accept(&far.queue_pair, b"welcome").unwrap();
    for _ in 0..2 {
        let Event::Established { tag, private_data } = driven.event().await else { panic!() };
        if tag == near.tag {
            assert_eq!(&private_data[..7], b"welcome");
        } else {
            assert_eq!((tag, private_data), (far.tag, vec![]));
        }
    }
    drop(listener);
    (near, far)
}

/// A counter of the device.
fn counter(name: &str) -> u64 {
    let devices = std::fs::read_dir("/sys/class/infiniband").unwrap();
    let counters = devices.map(|device| {
        let path = device.unwrap().path().join("ports/1/hw_counters").join(name);
        std::fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap()
    });
    counters.sum()
}

/// Resources on all devices, as the system counts them.
fn resources() -> String {
    let shown = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    assert!(shown.status.success());
    String::from_utf8(shown.stdout).unwrap()
}

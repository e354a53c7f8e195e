use std::task::{Wake, Waker};

use super::*;
use crate::provider::{Data, WorkId, WorkStatus};

/// A device with one queue pair and its slab.
struct Node {
    device: SimDevice,
    slab: Arc<Slab>,
    queue_pair: SimQueuePair,
}

const TAG: u32 = 5;
const SETTINGS: QueuePairSettings = QueuePairSettings {
    receives_max: 4,
    sends_max: 4,
    inline_bytes: 16,
    retry_count: 6,
    ack_timeout_exponent: 14,
};

fn tag(number: u32) -> Tag {
    Tag::new(number).unwrap()
}

fn memory(device: &SimDevice, slot_bytes: usize) -> (Arc<Slab>, Arc<SimMemory>) {
    let slab = Slab::new(8, slot_bytes, Waker::noop().clone());
    let memory = device.register(&slab).unwrap();
    (slab, Arc::new(memory))
}

fn listening(fabric: &Fabric) -> (SimDevice, SimListener, SocketAddr) {
    let device = fabric.device();
    let (listener, address) =
        device.listen(tag(1), "127.0.0.1:0".parse().unwrap(), 8).expect("the port is free");
    (device, listener, address)
}

/// Two connected ends: the dialling one first.
fn connected(fabric: &Fabric) -> [Node; 2] {
    connected_with(fabric, 64)
}

/// The same, with slots of so many bytes at the accepting end.
fn connected_with(fabric: &Fabric, slot_bytes: usize) -> [Node; 2] {
    let (acceptor, _listener, address) = listening(fabric);
    let dialler = fabric.device();
    let (slab, registered) = memory(&dialler, 64);
    let wait = Duration::from_secs(1);
    let queue_pair = dialler.dial(tag(TAG), address, wait, SETTINGS, &registered).unwrap();
    let a = Node { device: dialler, slab, queue_pair };
    assert!(matches!(a.device.poll_event(), Some(Event::Resolved { .. })));
    a.device.connect(&a.queue_pair, b"hello").unwrap();
    let Some(Event::Request { listener, request, private_data, .. }) = acceptor.poll_event() else {
        panic!("a request arrives");
    };
    assert_eq!((listener, &private_data[..6], private_data.len()), (tag(1), &b"hello\0"[..], 56));
    let (slab, registered) = memory(&acceptor, slot_bytes);
    let queue_pair = acceptor.prepare(tag(TAG), request, SETTINGS, &registered).unwrap();
    let b = Node { device: acceptor, slab, queue_pair };
    b.device.accept(&b.queue_pair, b"welcome").unwrap();
    assert!(b.device.poll_event().is_none(), "the other end has not heard of it yet");
    let Some(Event::Established { private_data, .. }) = a.device.poll_event() else {
        panic!("it is accepted");
    };
    assert_eq!((&private_data[..8], private_data.len()), (&b"welcome\0"[..], 196));
    assert!(matches!(b.device.poll_event(), Some(Event::Established { .. })));
    [a, b]
}

impl Node {
    fn send(&self, slot: u32, text: &[u8], is_signalled: bool) -> Result<(), PostError> {
        self.slab.edit(slot).expect("the slot is free")[..text.len()].copy_from_slice(text);
        let data = Data::Slot { slot, bytes: u32::try_from(text.len()).unwrap() };
        self.device.post_sends(&self.queue_pair, &[SendRequest { data, is_signalled }])
    }

    fn poll(&self) -> Vec<(WorkId, WorkStatus, u32)> {
        let mut completions = Vec::new();
        self.device.poll_completions(16, &mut completions).unwrap();
        completions.into_iter().map(|c| (c.id, c.status, c.bytes)).collect()
    }

    fn statuses(&self) -> Vec<WorkStatus> {
        self.poll().into_iter().map(|(_, status, _)| status).collect()
    }
}

#[test]
fn a_message_arrives_in_the_first_posted_slot() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    b.device.post_receives(&b.queue_pair, &[6, 2]).unwrap();
    a.send(0, b"one", false).unwrap();
    let send = SendRequest { data: Data::Inline(b"two"), is_signalled: true };
    a.device.post_sends(&a.queue_pair, &[send]).unwrap();
    assert_eq!(a.poll(), [(WorkId::send(tag(TAG), 1), WorkStatus::Success, 0)], "the second");
    let received = |slot| (WorkId::receive(tag(TAG), slot), WorkStatus::Success, 3);
    assert_eq!(b.poll(), [received(6), received(2)]);
    assert_eq!(&*b.slab.read(6, 3).unwrap(), b"one");
    assert_eq!(&*b.slab.read(2, 3).unwrap(), b"two");
    assert!(a.slab.end_send(0));
    let counters = fabric.counters();
    assert_eq!((counters.delivered, counters.violations, counters.queue_pairs), (2, 0, 2));
}

#[test]
fn without_a_receive_the_send_fails_at_once_and_the_rest_is_flushed() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    a.device.post_receives(&a.queue_pair, &[7]).unwrap();
    a.send(0, b"x", false).unwrap();
    assert_eq!(a.statuses(), [WorkStatus::ReceiverNotReady, WorkStatus::Flushed]);
    a.send(1, b"y", false).unwrap();
    a.device.post_receives(&a.queue_pair, &[6]).unwrap();
    assert_eq!(a.statuses(), [WorkStatus::Flushed, WorkStatus::Flushed]);
    assert_eq!(fabric.counters().receiver_not_ready, 1);
    assert!(b.device.poll_event().is_none(), "the peer hears nothing until we disconnect");
    a.device.disconnect(&a.queue_pair);
    assert!(matches!(b.device.poll_event(), Some(Event::Disconnected { .. })));
}

#[test]
fn one_send_too_many_is_refused_until_a_completion_was_polled() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    b.device.post_receives(&b.queue_pair, &[0, 1, 2, 3]).unwrap();
    let refused = b.device.post_receives(&b.queue_pair, &[4]).unwrap_err();
    assert_eq!(refused.error, VerbsError::QueueFull("receive"));
    for slot in 0..4 {
        a.send(slot, b"x", slot == 3).unwrap();
    }
    let refused = a.send(4, b"x", true).unwrap_err();
    assert_eq!((refused.posted, refused.error), (0, VerbsError::QueueFull("send")));
    assert_eq!(a.statuses(), [WorkStatus::Success]);
    assert_eq!(b.poll().len(), 4);
    assert!(b.slab.recycle(0));
    b.device.post_receives(&b.queue_pair, &[0]).unwrap();
    a.send(4, b"x", true).unwrap();
    assert_eq!(a.statuses(), [WorkStatus::Success]);
    assert_eq!(fabric.counters().overflows, 2);
}

#[test]
fn a_message_longer_than_the_slot_fails_both_ends() {
    let fabric = Fabric::new();
    let [a, b] = connected_with(&fabric, 8);
    b.device.post_receives(&b.queue_pair, &[0, 1]).unwrap();
    a.send(0, b"12345678", false).unwrap();
    a.send(1, b"123456789", false).unwrap();
    assert!(matches!(a.statuses()[..], [WorkStatus::Failed(_)]));
    assert!(matches!(b.statuses()[..], [WorkStatus::Success, WorkStatus::Failed(_)]));
    let data = Data::Slot { slot: 2, bytes: 65 };
    let send = SendRequest { data, is_signalled: true };
    let refused = a.device.post_sends(&a.queue_pair, &[send]).unwrap_err();
    assert_eq!(refused.error, VerbsError::SlotInUse(2), "it is longer than our own");
}

#[test]
fn a_killed_peer_is_told_and_flushes_nothing_until_we_disconnect() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    a.device.post_receives(&a.queue_pair, &[7]).unwrap();
    b.device.kill();
    assert!(matches!(a.device.poll_event(), Some(Event::Disconnected { .. })));
    a.send(0, b"x", true).unwrap();
    assert_eq!(a.poll(), []);
    a.device.disconnect(&a.queue_pair);
    assert_eq!(a.statuses(), [WorkStatus::Flushed, WorkStatus::Flushed]);
    assert_eq!(b.poll(), [], "a dead process polls nothing");
}

#[test]
fn a_peer_that_is_cut_off_is_silent_until_we_disconnect() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    b.device.cut_off();
    let probe = SendRequest { data: Data::Probe, is_signalled: true };
    a.device.post_sends(&a.queue_pair, &[probe]).unwrap();
    assert_eq!((a.poll(), a.device.poll_event().is_none()), (vec![], true));
    a.device.disconnect(&a.queue_pair);
    assert_eq!(a.poll(), [(WorkId::send(tag(TAG), 0), WorkStatus::Flushed, 0)]);
}

#[test]
fn a_lost_device_says_so_once_and_works_no_more() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    a.device.lose();
    a.device.lose();
    assert!(matches!(a.device.poll_event(), Some(Event::DeviceLost { .. })));
    assert!(a.device.poll_event().is_none() && b.device.poll_event().is_none());
    assert!(matches!(a.send(0, b"x", true).unwrap_err().error, VerbsError::DeviceLost(_)));
    let polled = a.device.poll_completions(16, &mut Vec::new());
    assert!(matches!(polled, Err(VerbsError::DeviceLost(_))));
    assert!(a.device.arm().is_err());
}

#[test]
fn refusals_say_whether_somebody_listens() {
    let fabric = Fabric::new();
    let (acceptor, listener, address) = listening(&fabric);
    let dialler = fabric.device();
    let wait = Duration::from_secs(1);
    let dial = || {
        let (_slab, registered) = memory(&dialler, 64);
        let queue_pair = dialler.dial(tag(TAG), address, wait, SETTINGS, &registered).unwrap();
        assert!(matches!(dialler.poll_event(), Some(Event::Resolved { .. })));
        dialler.connect(&queue_pair, &[]).unwrap();
        queue_pair
    };
    let rejected = || match dialler.poll_event() {
        Some(Event::Rejected { is_by_listener, private_data, .. }) => {
            (is_by_listener, private_data)
        }
        other => panic!("expected a reject, not {other:?}"),
    };
    let first = dial();
    let Some(Event::Request { request, .. }) = acceptor.poll_event() else { panic!("it asks") };
    acceptor.reject(request, b"no");
    assert_eq!(rejected(), (true, b"no".to_vec()));
    let second = dial();
    drop(acceptor.poll_event());
    assert_eq!(rejected(), (true, vec![]), "a dropped request is a rejected one");
    let third = dial();
    drop(listener);
    assert!(acceptor.poll_event().is_none());
    assert_eq!(rejected(), (false, vec![]));
    let fourth = dial();
    assert_eq!(rejected(), (false, vec![]));
    let too_long = dialler.connect(&fourth, &[0; 57]);
    assert!(too_long.is_err());
    drop([first, second, third, fourth]);
    assert_eq!(fabric.counters().queue_pairs, 0);
}

#[test]
fn limits_of_the_device_are_errors_that_say_what_to_do() {
    let fabric = Fabric::new();
    let settings = DeviceSettings {
        completions_max: 12,
        registered_bytes_max: 600,
        ..DeviceSettings::default()
    };
    let device = fabric.device_with(settings);
    let (slab, registered) = memory(&device, 64);
    let error = device.register(&slab).unwrap_err().to_string();
    assert!(error.contains("600") && error.contains("512") && error.contains("ulimit"), "{error}");
    let (address, wait) = ("127.0.0.1:9".parse().unwrap(), Duration::from_secs(1));
    let one = device.dial(tag(1), address, wait, SETTINGS, &registered).unwrap();
    let small = Slab::new(1, 64, Waker::noop().clone());
    let other = Arc::new(device.register(&small).unwrap());
    for _ in 0..2 {
        let error = device.dial(tag(2), address, wait, SETTINGS, &other).unwrap_err();
        assert!(matches!(error, VerbsError::Exhausted { what: "queue pairs", .. }), "{error}");
    }
    drop((one, registered, other));
    assert_eq!(fabric.counters().registered_bytes, 0);
}

#[test]
fn a_slab_takes_one_queue_pair_at_a_time() {
    let device = Fabric::new().device();
    let (address, wait) = ("127.0.0.1:9".parse().unwrap(), Duration::from_secs(1));
    let (slab, registered) = memory(&device, 64);
    let again = Arc::new(device.register(&slab).unwrap());
    let first = device.dial(tag(1), address, wait, SETTINGS, &registered).unwrap();
    let error = device.dial(tag(2), address, wait, SETTINGS, &again).unwrap_err();
    assert!(error.to_string().contains("another queue pair"), "{error}");
    drop(first);
    device.dial(tag(2), address, wait, SETTINGS, &again).unwrap();
}

#[test]
fn more_inline_bytes_than_the_device_can_send_become_fewer() {
    let settings = DeviceSettings { inline_bytes_max: 101, ..DeviceSettings::default() };
    let device = Fabric::new().device_with(settings);
    let (address, wait) = ("127.0.0.1:9".parse().unwrap(), Duration::from_secs(1));
    for (wished, granted) in [(101, 101), (220, 55), (101, 55), (10, 10)] {
        let (_slab, registered) = memory(&device, 64);
        let settings = QueuePairSettings { inline_bytes: wished, ..SETTINGS };
        let made = device.dial(tag(TAG), address, wait, settings, &registered).unwrap();
        assert_eq!(device.inline_bytes_max(&made), granted, "of {wished}");
    }
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_completion_before_arming_wakes_nobody() {
    let fabric = Fabric::new();
    let [a, b] = connected(&fabric);
    b.device.post_receives(&b.queue_pair, &[0, 1]).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    assert!(b.device.poll_ready(&mut cx).is_pending());
    a.send(0, b"x", true).unwrap();
    b.device.arm().unwrap();
    assert!(b.device.poll_ready(&mut cx).is_pending());
    assert_eq!(woken.0.load(std::sync::atomic::Ordering::SeqCst), 0);
    a.send(1, b"y", true).unwrap();
    assert_eq!(woken.0.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert!(b.device.poll_ready(&mut cx).is_ready());
    assert!(b.device.poll_ready(&mut cx).is_pending());
    assert_eq!(b.poll().len(), 2);
}

#[test]
fn a_seed_reorders_queue_pairs_and_never_one_of_them() {
    let order = |seed| {
        let fabric = Fabric::seeded(seed);
        let pairs: Vec<_> = (0..4).map(|_| connected(&fabric)).collect();
        for [a, b] in &pairs {
            b.device.post_receives(&b.queue_pair, &[0, 1, 2, 3]).unwrap();
            (0..4).for_each(|slot| a.send(slot, &[u8::try_from(slot).unwrap()], false).unwrap());
        }
        let mut arrived = Vec::new();
        while arrived.len() < 16 {
            for (number, [_, b]) in pairs.iter().enumerate() {
                arrived.extend(b.poll().into_iter().map(|(id, ..)| (number, id.index())));
            }
        }
        arrived
    };
    let arrived = order(7);
    assert_eq!(arrived, order(7));
    assert!((8..12).any(|seed| order(seed) != arrived));
    for number in 0..4 {
        let of_one: Vec<_> = arrived.iter().filter(|(of, _)| *of == number).collect();
        assert_eq!(of_one, [0, 1, 2, 3].map(|slot| (number, slot)).iter().collect::<Vec<_>>());
    }
}

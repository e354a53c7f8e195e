use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::hello::SLOT_COUNT_MAX;

/// One end, its receives and what the application holds.
struct End {
    engine: CreditEngine,
    posted: u32,
    held: u32,
    inbox: VecDeque<Header>,
    data_sent: u64,
    credit_sent: u64,
}

struct Pair {
    ends: [End; 2],
    limits: [Limits; 2],
}

fn limits(slot_count: u16, control_slot_count: u8) -> Limits {
    Limits::of(&Terms { slot_count, control_slot_count, slot_bytes: 1024, frame_bytes_max: 1 })
}

impl Pair {
    /// After `data` and `ctl` messages each way.
    fn new(limits: [Limits; 2], data: u32, ctl: u8) -> Self {
        let end = |own: Limits, peer: Limits| End {
            engine: CreditEngine::starting_at(own, peer, data, ctl),
            posted: own.slot_count + u32::from(own.control_slot_count),
            held: 0,
            inbox: VecDeque::new(),
            data_sent: 0,
            credit_sent: 0,
        };
        let [one, two] = limits;
        Self { ends: [end(one, two), end(two, one)], limits }
    }

    /// Sends data if it may, else credit if that is needed. True when anything went out.
    fn send(&mut self, at: usize, purpose: Option<Purpose>) -> bool {
        let end = &mut self.ends[at];
        let header = if purpose.is_some_and(|purpose| end.engine.may_send(purpose)) {
            end.data_sent += 1;
            end.engine.send(Kind::Frames)
        } else if end.engine.wants_credit_message() {
            end.credit_sent += 1;
            end.engine.send(Kind::Credit)
        } else {
            return false;
        };
        self.ends[1 - at].inbox.push_back(header);
        true
    }

    /// Takes a message; its slot is held, or posted again.
    fn receive(&mut self, at: usize, is_held: bool) -> bool {
        let end = &mut self.ends[at];
        let Some(header) = end.inbox.pop_front() else { return false };
        end.posted = end.posted.checked_sub(1).expect("receiver not ready");
        end.engine.handle_message(&header).expect("both are honest");
        match header.kind.is_data() {
            false => end.repost(0, 1),
            true if is_held => end.held += 1,
            true => end.repost(1, 0),
        }
        true
    }

    fn give_back(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.held > 0 {
            end.held -= 1;
            end.repost(1, 0);
        }
    }

    /// Every slot is somewhere, exactly once.
    fn check(&self) {
        for at in 0..2 {
            let (receiver, sender) = (&self.ends[at], &self.ends[1 - at]);
            let limits = self.limits[at];
            let (outgoing, incoming) = (&sender.engine.outgoing, &receiver.engine.incoming);
            let count = |is_data| {
                let of_kind = |header: &&Header| header.kind.is_data() == is_data;
                u8::try_from(receiver.inbox.iter().filter(of_kind).count()).unwrap()
            };
            let in_flight = u32::from(count(true));
            let on_the_way = incoming.announced.wrapping_sub(outgoing.window);
            let data =
                outgoing.left() + on_the_way + in_flight + receiver.held + incoming.unannounced();
            assert_eq!(data, limits.slot_count, "data slots are conserved");

            let acks_on_the_way = incoming.ctl_ack_sent.wrapping_sub(outgoing.ctl_acked);
            let acks_owed = incoming.ctl_received.wrapping_sub(incoming.ctl_ack_sent);
            let unacked = count(false) + acks_on_the_way + acks_owed;
            assert_eq!(outgoing.ctl_unacked(), unacked, "control slots are conserved");
            assert!(unacked <= limits.control_slot_count);

            let total = limits.slot_count + u32::from(limits.control_slot_count);
            assert_eq!(receiver.posted, total - receiver.held);
            assert!(
                receiver.posted as usize >= receiver.inbox.len(),
                "a receive for every message"
            );
        }
    }
}

impl End {
    fn repost(&mut self, data: u32, control: u8) {
        self.posted += 1;
        self.engine.on_posted(data, control);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Send(usize, Option<Purpose>),
    Receive(usize, bool),
    GiveBack(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let purpose = prop_oneof![
        1 => Just(None),
        4 => Just(Some(Purpose::Data)),
        1 => Just(Some(Purpose::Urgent)),
    ];
    prop_oneof![
        3 => (0..2_usize, purpose).prop_map(|(at, purpose)| Op::Send(at, purpose)),
        3 => (0..2_usize, any::<bool>()).prop_map(|(at, is_held)| Op::Receive(at, is_held)),
        1 => (0..2_usize).prop_map(Op::GiveBack),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (1..20_u16, 1..4_u8).prop_map(|(n, r)| limits(n, r))
}

proptest! {
    #[test]
    fn every_slot_is_accounted_for_at_every_step_and_across_the_wraps(
        one in any_limits(),
        two in any_limits(),
        before_wrap in 0..40_u8,
        is_of_window: bool,
        ops in prop::collection::vec(op(), 0..400),
    ) {
        let wrap = if is_of_window { u16::MAX.into() } else { u32::MAX };
        let (data, ctl) = (wrap - u32::from(before_wrap), u8::MAX - before_wrap / 8);
        let mut pair = Pair::new([one, two], data, ctl);
        for op in ops {
            match op {
                Op::Send(at, purpose) => { pair.send(at, purpose); }
                Op::Receive(at, is_held) => { pair.receive(at, is_held); }
                Op::GiveBack(at) => pair.give_back(at),
            }
            pair.check();
        }
        // Whatever was held, once it is back both can send as much as they like.
        for at in 0..2 {
            while pair.ends[at].held > 0 {
                pair.give_back(at);
            }
        }
        let before = [0, 1].map(|at| pair.ends[at].data_sent);
        for _ in 0..200 {
            for at in 0..2 {
                pair.send(at, Some(Purpose::Data));
                while pair.receive(1 - at, false) {}
            }
            pair.check();
        }
        for (end, before) in pair.ends.iter().zip(before) {
            let sent = end.data_sent - before;
            prop_assert!(sent >= 50, "only {} got out", sent);
        }
    }

    /// A peer that says anything gets nothing it does not have, and what is believed stays in
    /// bounds.
    #[test]
    fn a_hostile_header_is_a_fault_or_within_bounds(
        own in any_limits(),
        peer in any_limits(),
        start: u32,
        headers in prop::collection::vec(
            (prop_oneof![0..24_u16, any::<u16>()], 0..6_u8, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let mut engine = CreditEngine::starting_at(own, peer, start, 0);
        for (window, ctl_ack, is_data, does_send) in headers {
            let kind = if is_data { Kind::Frames } else { Kind::Credit };
            let before = engine.clone();
            let header = Header { window: low(start).wrapping_add(window), ctl_ack, kind };
            match engine.handle_message(&header) {
                Ok(()) if is_data => engine.on_posted(1, 0),
                Ok(()) => engine.on_posted(0, 1),
                Err(_) => prop_assert_eq!(&engine, &before, "a fault changes nothing"),
            }
            prop_assert!(engine.outgoing.left() <= peer.slot_count);
            prop_assert!(engine.outgoing.left() >= before.outgoing.left(), "it only grows");
            prop_assert!(engine.outgoing.ctl_unacked() <= peer.control_slot_count);
            prop_assert!(engine.incoming.left() <= own.slot_count);
            if does_send && engine.may_send(Purpose::Data) {
                engine.send(Kind::Frames);
            } else if does_send && engine.wants_credit_message() {
                engine.send(Kind::Credit);
            }
        }
    }
}

fn engine() -> CreditEngine {
    CreditEngine::new(limits(2, 1), limits(2, 1))
}

#[test]
fn each_lie_has_a_fault() {
    let judge = |header: Header| engine().handle_message(&header);
    let data = Header { window: 2, ctl_ack: 0, kind: Kind::Frames };
    assert_eq!(judge(data), Ok(()));
    let announced = Fault::WindowTooFar { announced: 3, slot_count: 2 };
    assert_eq!(judge(Header { window: 3, ..data }), Err(announced));
    assert_eq!(judge(Header { ctl_ack: 1, ..data }), Err(Fault::AckExcess));
    assert_eq!(judge(Header { kind: Kind::Credit, ..data }), Err(Fault::NoCredit));
    assert_eq!(judge(Header { window: 1, ..data }), Ok(()), "an older window says nothing");
}

#[test]
fn more_messages_than_slots_are_a_fault() {
    let mut engine = engine();
    let data = Header { window: 2, ctl_ack: 0, kind: Kind::Frames };
    assert_eq!(engine.handle_message(&data), Ok(()));
    assert_eq!(engine.handle_message(&data), Ok(()));
    assert_eq!(engine.handle_message(&data), Err(Fault::DataOverrun));

    engine.send(Kind::Frames);
    engine.send(Kind::Frames);
    let credit = |window| Header { window, ctl_ack: 0, kind: Kind::Credit };
    assert_eq!(engine.handle_message(&credit(3)), Ok(()));
    assert_eq!(engine.handle_message(&credit(4)), Err(Fault::ControlOverrun));
}

#[test]
fn as_many_slots_as_there_can_be_are_announced_at_once() {
    let most = limits(SLOT_COUNT_MAX, 1);
    for start in [0, u32::from(u16::MAX) - 5, 1 << 15, u32::MAX - 5] {
        let mut sender = CreditEngine::starting_at(most, most, start, 0);
        let mut receiver = sender.clone();
        while sender.may_send(Purpose::Urgent) {
            let header = sender.send(Kind::Frames);
            receiver.handle_message(&header).unwrap();
            receiver.on_posted(1, 0);
        }
        assert!(receiver.wants_credit_message());
        let header = receiver.send(Kind::Credit);
        sender.handle_message(&header).unwrap();
        assert_eq!(sender.outgoing.left(), u32::from(SLOT_COUNT_MAX));
    }
}

#[test]
fn nothing_is_sent_before_the_control_slot_is_posted_again() {
    let mut engine = engine();
    engine.send(Kind::Frames);
    let credit = Header { window: 3, ctl_ack: 0, kind: Kind::Credit };
    engine.handle_message(&credit).unwrap();
    assert!(!engine.may_send(Purpose::Urgent));
    engine.on_posted(0, 1);
    assert!(engine.may_send(Purpose::Urgent));
    assert_eq!(engine.send(Kind::Frames).ctl_ack, 1);
}

#[test]
fn data_leaves_the_reserve_to_urgent_messages() {
    let mut engine = CreditEngine::new(limits(8, 1), limits(8, 1));
    while engine.may_send(Purpose::Data) {
        engine.send(Kind::Frames);
    }
    assert_eq!(engine.outgoing.left(), 2);
    assert!(engine.may_send(Purpose::Urgent));
    assert_eq!(limits(3, 1).reserve, 0);
    assert_eq!(limits(4, 1).reserve, 1);
    assert_eq!(limits(1000, 1).reserve, 2);
}

#[test]
fn a_one_way_stream_costs_few_credit_messages() {
    for n in [1, 2, 3, 4, 8, 32, 128] {
        // However many messages the receiver takes before it looks what to send.
        for burst in [1, 2, 3, 16] {
            let mut pair = Pair::new([limits(n, 2); 2], 0, 0);
            while pair.ends[0].data_sent < 20_000 {
                while pair.send(0, Some(Purpose::Data)) {}
                for _ in 0..burst {
                    pair.receive(1, false);
                }
                pair.send(1, None);
                while pair.receive(0, false) {}
            }
            let share = pair.ends[1].credit_sent as f64 / pair.ends[0].data_sent as f64;
            assert!(share <= 2.5 / f64::from(n), "N = {n}, burst {burst}: {share}");
            assert_eq!(pair.ends[0].credit_sent, 0);
        }
    }
}

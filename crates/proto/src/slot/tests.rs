//! A call that begins flat ends as one that begins full.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::call::{CallEvent, CallOptions, LinkView};
use crate::id::{CallId, MethodId, Path};
use crate::initiator::{Initiator, SlotPoll};
use crate::key;
use crate::limits::Limits;
use crate::wire::{
    Cause, Entry, Executed, Fail, Frame, Header, Manifest, Message, Outcome, ReplyKind,
};

pub(super) const ORIGIN: Incarnation = Incarnation(77);
pub(super) const LINK: LinkNonce = LinkNonce(5);

pub(super) fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Every node is connected, by one connection.
pub(super) struct Connected;

impl LinkView for Connected {
    fn current(&self, _: NodeId) -> Option<LinkNonce> {
        Some(LINK)
    }
    fn is_dead(&self, _: NodeId, _: LinkNonce) -> bool {
        false
    }
    fn is_dialling(&self, _: NodeId) -> bool {
        false
    }
    fn lost_at(&self, _: NodeId) -> Option<Timestamp> {
        None
    }
    fn is_reachable(&self, _: NodeId) -> bool {
        true
    }
    fn life(&self, _: NodeId) -> Option<(Incarnation, Timestamp)> {
        None
    }
}

/// What happens to a call.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Frame { from: u64, via: u64, path: Vec<u32>, hop: u32, message: Message },
    Pass(u64),
    PeerDown(u64),
    Cancel,
}

fn reply() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        4 => Just(ReplyKind::Message),
        1 => Just(ReplyKind::Item { seq: 0, is_last: true }),
    ];
    (0..2_u32, kind, prop::bool::weighted(0.7), 0..20_000_usize).prop_map(
        |(index, kind, is_final, len)| {
            let payload = Bytes::from(vec![7; if len < 19_000 { len % 50 } else { len }]);
            let reply = Reply { index, kind, is_final, ..Reply::sole(payload) };
            Message::Reply(reply)
        },
    )
}

fn entry(children: u32, replies: u32) -> Entry {
    let task = key(Path::from_indices(&[0]).unwrap(), 0);
    Entry { task, children, replies, outcome: Outcome::Finished, holders: Vec::new() }
}

fn message() -> impl Strategy<Value = Message> {
    let manifest = (0..2_u32, 0..2_u32)
        .prop_map(|(c, m)| Message::Manifest(Manifest { entries: vec![entry(c, m)] }));
    let fail = any::<bool>().prop_map(|aborts_children| {
        Message::Fail(Fail {
            cause: Cause::Application,
            executed: Executed::Yes,
            code: 3,
            node: None,
            text: "no".to_owned(),
            entry: None,
            aborts_children,
            inherited: Vec::new(),
            details: Bytes::new(),
        })
    });
    prop_oneof![6 => reply(), 1 => manifest, 1 => fail]
}

pub(super) fn input() -> impl Strategy<Value = Input> {
    let path = prop_oneof![6 => Just(vec![0]), 1 => Just(vec![1]), 1 => Just(vec![0, 0])];
    input_about(path)
}

/// Inputs about tasks of these paths.
pub(super) fn input_about(path: impl Strategy<Value = Vec<u32>>) -> impl Strategy<Value = Input> {
    let hop = prop_oneof![4 => Just(0_u32), 1 => 1..3_u32];
    let frame = (2..5_u64, prop::bool::weighted(0.1), path, hop, message()).prop_map(
        |(from, is_relayed, path, hop, message)| {
            let via = if is_relayed { 4 } else { from };
            Input::Frame { from, via, path, hop, message }
        },
    );
    prop_oneof![
        8 => frame,
        2 => (1..120_u64).prop_map(Input::Pass),
        1 => (2..4_u64).prop_map(Input::PeerDown),
        1 => Just(Input::Cancel),
    ]
}

struct Twin {
    initiator: Initiator,
    call: CallId,
    is_flat: bool,
    told: Vec<String>,
}

impl Twin {
    fn new(is_flat: bool) -> Self {
        let limits = Limits::default();
        let mut initiator = Initiator::new(ORIGIN, &limits);
        let (now, to) = (Timestamp::from_nanos(1), node(2));
        let deadline = now + Duration::from_secs(1);
        let call = if is_flat {
            let errand = Errand {
                to,
                link: LINK,
                life: Some(Incarnation(9)),
                opened_at: now,
                deadline,
                waker: None,
                answer: None,
            };
            let frame = initiator.open_slot(errand, MethodId(1), Vec::new(), Bytes::new());
            frame.unwrap().header.call
        } else {
            let call = initiator.open(now, deadline, CallOptions::default()).unwrap();
            let path =
                initiator.branch(now, call, to, MethodId(1), Vec::new(), Bytes::new()).unwrap();
            initiator.handle_sent(call, &path, LINK, Some(Incarnation(9)));
            initiator.seal(now, call);
            call
        };
        while initiator.poll_outbound().is_some() {}
        Self { initiator, call, is_flat, told: Vec::new() }
    }

    /// The frames that follow from an input, as texts.
    fn apply(&mut self, now: Timestamp, input: &Input) -> Vec<String> {
        match input.clone() {
            Input::Frame { from, via, path, hop, message } => {
                let task = key(Path::from_indices(&path).unwrap(), hop);
                let frame = Frame::new(Header { call: self.call, task }, message);
                let by = Arrival { via: node(via), from: node(from), link: LINK };
                self.initiator.handle_frame(now, by, frame, &Connected);
            }
            Input::Pass(_) => self.initiator.handle_timeout(now, &Connected),
            Input::PeerDown(peer) => self.initiator.handle_peer_down(now, node(peer), &Connected),
            Input::Cancel => self.initiator.cancel(now, self.call),
        }
        self.listen();
        let out = std::iter::from_fn(|| self.initiator.poll_outbound());
        out.map(|outbound| format!("{outbound:?}")).collect()
    }

    fn listen(&mut self) {
        if self.is_flat {
            match self.initiator.poll_slot(self.call) {
                SlotPoll::Pending => return,
                SlotPoll::Answered { from, payload } => {
                    self.told.push(format!("{from} {payload:?}"));
                    self.told.push("Complete".to_owned());
                    self.is_flat = false;
                }
                SlotPoll::Grown => self.is_flat = false,
            }
        }
        while let Some(event) = self.initiator.poll_event(self.call) {
            self.told.push(match event {
                CallEvent::Reply(d) | CallEvent::Late(d) => format!("{} {:?}", d.from, d.payload),
                CallEvent::Failure(failure) => failure.to_string(),
                CallEvent::Ended(end) => format!("{end:?}"),
                CallEvent::Sent(_) | CallEvent::Silent(_) => unreachable!("nobody asked"),
            });
        }
    }
}

proptest! {
    #[test]
    fn a_flat_call_is_told_and_says_what_a_full_one_does(inputs in vec(input(), 1..12)) {
        let (mut flat, mut full) = (Twin::new(true), Twin::new(false));
        let mut now = Timestamp::from_nanos(1);
        for input in inputs {
            if let Input::Pass(millis) = input {
                now = now + Duration::from_millis(millis);
            }
            prop_assert_eq!(flat.apply(now, &input), full.apply(now, &input));
            prop_assert_eq!(&flat.told, &full.told);
            if flat.is_flat {
                prop_assert_eq!(flat.initiator.poll_timeout(), full.initiator.poll_timeout());
            }
        }
    }
}

fn errand(at: u64) -> Errand {
    Errand {
        to: node(2),
        link: LINK,
        life: None,
        opened_at: Timestamp::from_nanos(at),
        deadline: Timestamp::MAX,
        waker: None,
        answer: None,
    }
}

#[test]
fn the_ring_is_as_long_as_its_oldest_call_is_behind() {
    let mut slots = Slots::new(Duration::from_nanos(100));
    slots.open(4, errand(1));
    slots.open(7, errand(2));
    slots.open(8, errand(3));
    assert_eq!((slots.oldest(), slots.len()), (Some(4), 3));
    assert!(slots.get(5).is_none() && slots.get(3).is_none() && slots.get(9).is_none());
    assert!(slots.remove(7).is_some() && slots.remove(7).is_none());
    assert_eq!(slots.oldest(), Some(4));
    assert!(slots.remove(4).is_some());
    assert_eq!((slots.oldest(), slots.len()), (Some(8), 1));
    assert!(slots.remove(8).is_some());
    assert_eq!((slots.oldest(), slots.next_timeout()), (None, None));
}

#[test]
fn the_oldest_is_due_first() {
    let mut slots = Slots::new(Duration::from_nanos(100));
    slots.open(1, errand(10));
    slots.open(2, errand(20));
    assert_eq!(slots.next_due(Timestamp::from_nanos(109)), None);
    assert_eq!(slots.next_due(Timestamp::from_nanos(110)), Some(1));
    slots.remove(1);
    assert_eq!(slots.next_timeout(), Some(Timestamp::from_nanos(120)));
}

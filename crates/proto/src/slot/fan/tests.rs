//! A call of several branches that begins flat ends as one that begins full.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::tests::{Connected, Input, LINK, ORIGIN, input_about, node};
use super::*;
use crate::call::{CallEvent, CallOptions, root_path};
use crate::id::{CallId, MethodId, Path};
use crate::initiator::Initiator;
use crate::key;
use crate::limits::Limits;
use crate::wire::{Frame, Header};

const LIFE: Option<Incarnation> = Some(Incarnation(9));

/// What happens to a call, and what its caller does.
#[derive(Clone, Debug)]
enum Step {
    Input(Input),
    Read,
    WakeAfter(usize),
    Decide { cancels_late: bool },
    Detach,
}

fn step() -> impl Strategy<Value = Step> {
    let path = prop_oneof![12 => (0..3_u32).prop_map(|i| vec![i]), 1 => Just(vec![0, 0])];
    prop_oneof![
        12 => input_about(path).prop_map(Step::Input),
        4 => Just(Step::Read),
        1 => (1..4_usize).prop_map(Step::WakeAfter),
        1 => any::<bool>().prop_map(|cancels_late| Step::Decide { cancels_late }),
        1 => Just(Step::Detach),
    ]
}

struct Twin {
    initiator: Initiator,
    call: CallId,
    is_held: bool,
}

impl Twin {
    /// A call of three branches, to the nodes 2 to 4.
    fn new(is_flat: bool, tells_silent: bool) -> Self {
        let options = CallOptions { tells_silent, ..CallOptions::default() };
        let mut initiator = Initiator::new(ORIGIN, &Limits::default());
        let now = Timestamp::from_nanos(1);
        let deadline = now + Duration::from_secs(1);
        let call = if is_flat {
            let leg = |to| Leg { to, link: Some(LINK), life: LIFE, is_answered: false };
            let fan = Fan::new(now, deadline, options, (2..5).map(node).map(leg));
            initiator.open_fan(fan).unwrap().call
        } else {
            let call = initiator.open(now, deadline, options).unwrap();
            for to in (2..5).map(node) {
                let (method, payload) = (MethodId(1), Bytes::new());
                let path = initiator.branch(now, call, to, method, Vec::new(), payload).unwrap();
                initiator.handle_sent(call, &path, LINK, LIFE);
            }
            initiator.seal(now, call);
            call
        };
        while initiator.poll_outbound().is_some() {}
        Self { initiator, call, is_held: true }
    }

    /// What is told to the caller, and the frames that follow, as texts.
    fn apply(&mut self, now: Timestamp, step: &Step) -> Vec<String> {
        let mut seen = Vec::new();
        match step.clone() {
            Step::Input(Input::Frame { from, via, path, hop, message }) => {
                let task = key(Path::from_indices(&path).unwrap(), hop);
                let frame = Frame::new(Header { call: self.call, task }, message);
                let by = Arrival { via: node(via), from: node(from), link: LINK };
                self.initiator.handle_frame(now, by, frame, &Connected);
            }
            Step::Input(Input::Pass(_)) => self.initiator.handle_timeout(now, &Connected),
            Step::Input(Input::PeerDown(peer)) => {
                self.initiator.handle_peer_down(now, node(peer), &Connected);
            }
            Step::Input(Input::Cancel) => self.initiator.cancel(now, self.call),
            Step::Read if self.is_held => {
                seen.extend(self.initiator.poll_event(self.call).map(|event| tell(&event)));
            }
            Step::WakeAfter(count) if self.is_held => self.initiator.wake_after(self.call, count),
            Step::Decide { cancels_late } if self.is_held => {
                self.initiator.decide(now, self.call, cancels_late);
                self.is_held = false;
            }
            Step::Detach if self.is_held => {
                self.initiator.detach(now, self.call);
                self.is_held = false;
            }
            _ => {}
        }
        let out = std::iter::from_fn(|| self.initiator.poll_outbound());
        seen.extend(out.map(|outbound| format!("{outbound:?}")));
        seen
    }
}

fn tell(event: &CallEvent) -> String {
    match event {
        CallEvent::Reply(d) | CallEvent::Late(d) => format!("{d:?}"),
        CallEvent::Failure(failure) => failure.to_string(),
        CallEvent::Sent(path) | CallEvent::Silent(path) => format!("{path} in silence"),
        CallEvent::Ended(end) => format!("{end:?}"),
    }
}

proptest! {
    #[test]
    fn a_flat_call_is_told_and_says_what_a_full_one_does(
        steps in vec(step(), 1..20),
        tells_silent in any::<bool>(),
    ) {
        let (mut flat, mut full) = (Twin::new(true, tells_silent), Twin::new(false, tells_silent));
        let mut now = Timestamp::from_nanos(1);
        for step in steps {
            if let Step::Input(Input::Pass(millis)) = step {
                now = now + Duration::from_millis(millis);
            }
            prop_assert_eq!(flat.apply(now, &step), full.apply(now, &step));
            let [flat, full] = [&flat.initiator, &full.initiator];
            prop_assert_eq!(flat.floor(), full.floor());
            prop_assert_eq!(flat.call_count(), full.call_count());
            prop_assert_eq!(flat.open_count(), full.open_count());
            prop_assert_eq!(flat.unsettled_count(), full.unsettled_count());
        }
    }

    #[test]
    fn a_reader_is_called_once_for_as_many_replies_as_it_waits_for(count in 1..4_usize) {
        let mut initiator = Twin::new(true, false);
        initiator.initiator.wake_after(initiator.call, count);
        initiator.initiator.park(initiator.call, Waker::noop());
        for index in 0..3_u32 {
            let by = node(u64::from(index) + 2);
            let header = Header { call: initiator.call, task: key(root_path(index), 0) };
            let reply = crate::wire::Message::Reply(Reply::sole(Bytes::new()));
            let arrival = Arrival { via: by, from: by, link: LINK };
            let now = Timestamp::from_nanos(2);
            initiator.initiator.handle_frame(now, arrival, Frame::new(header, reply), &Connected);
            let woken = initiator.initiator.take_woken().count();
            prop_assert_eq!(woken, usize::from(index as usize + 1 == count));
        }
    }
}

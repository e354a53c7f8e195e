//! A call that begins flat ends as one that begins full.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::call::{CallEvent, LinkView, RootBranch, RootRequest};
use crate::encoded::Encoded;
use crate::id::{CallId, LinkNonce, MethodId, Path};
use crate::initiator::Initiator;
use crate::key;
use crate::key::Key;
use crate::limits::Limits;
use crate::link::PeerName;
use crate::metadata;
use crate::share::Shares;
use crate::wire::{Cause, Entry, Executed, Fail, Frame, Header, Manifest, Message, Outcome};

const ORIGIN: Incarnation = Incarnation::of_random(77 << 8);
const SECRET: Secret = Secret::new(3, 4);
/// The connection that every request left by, and another.
const LINK: LinkId = LinkId { index: 5, generation: 1 };
const OTHER_LINK: LinkId = LinkId { index: 6, generation: 0 };
const NONCE: LinkNonce = LinkNonce(5);
const LIFE: Option<Incarnation> = Some(Incarnation::of_random(9 << 8));
const BUDGET: Duration = Duration::from_secs(1);

fn node(number: u64) -> NodeId {
    NodeId::new(number)
}

/// Every node is connected, by one connection.
struct Connected;

impl LinkView for Connected {
    fn current(&self, _: NodeId) -> Option<LinkId> {
        Some(LINK)
    }
    fn is_up(&self, _: LinkId) -> bool {
        true
    }
    fn nonce(&self, _: LinkId) -> Option<LinkNonce> {
        Some(NONCE)
    }
    fn sole_since(&self, _: LinkId) -> Option<Timestamp> {
        Some(Timestamp::ZERO)
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
    fn is_reachable(&self, _: Timestamp, _: NodeId) -> bool {
        true
    }
    fn life(&self, _: NodeId) -> Option<(Incarnation, Timestamp)> {
        None
    }
}

/// Arrival of a frame from one node, by way of another.
fn arrival(from: u64, via: u64, link: LinkId, key: Option<Key>) -> Arrival {
    let peer = Shares::new(&Limits::default(), 1).connect(PeerName::Node(node(via)));
    let life = Incarnation::of_random(via << 8);
    Arrival { via: node(via), life, from: node(from), link, peer, key }
}

/// The right of a frame to be heard.
#[derive(Clone, Copy, Debug)]
enum Shown {
    /// It comes over the connection of the request.
    Nothing,
    /// It comes over another connection.
    NothingElsewhere,
    /// It comes over another connection, with the key of this branch.
    Key,
    /// The key of another one.
    OtherKey,
}

/// Inputs that a call gets.
#[derive(Clone, Debug)]
enum Input {
    Frame { from: u64, via: u64, path: Vec<u32>, hop: u32, shown: Shown, message: Message },
    Pass(u64),
    PeerDown(u64),
    Cancel,
}

fn reply() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        4 => Just(ReplyKind::Message),
        1 => Just(ReplyKind::Item { seq: 0, is_last: true }),
    ];
    let metadata = prop::bool::weighted(0.1);
    (0..2_u32, kind, prop::bool::weighted(0.7), 0..20_000_usize, metadata).prop_map(
        |(index, kind, is_final, len, has_metadata)| {
            let payload = Bytes::from(vec![7; if len < 19_000 { len % 50 } else { len }]);
            let mut extensions = Vec::new();
            if has_metadata {
                metadata::push(&mut extensions, "k", b"v").unwrap();
            }
            let reply = Reply { index, kind, is_final, extensions, ..Reply::sole(payload) };
            Message::Reply(reply)
        },
    )
}

fn entry(children: u32, replies: u32) -> Entry {
    let task = key(Path::from_indices(&[0]).unwrap(), 0);
    Entry { task, children, replies, outcome: Outcome::Finished, holders: Vec::new() }
}

fn message() -> impl Strategy<Value = Message> {
    let manifest = (0..2_u32, 0..2_u32).prop_map(|(c, m)| {
        Message::Manifest(Manifest { own: Some(entry(c, m)), inherited: Vec::new() })
    });
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
            extensions: Vec::new(),
            details: Bytes::new(),
        })
    });
    prop_oneof![6 => reply(), 1 => manifest, 1 => fail]
}

/// Inputs about tasks of these paths.
fn input_about(path: impl Strategy<Value = Vec<u32>>) -> impl Strategy<Value = Input> {
    let hop = prop_oneof![4 => Just(0_u32), 1 => 1..3_u32];
    let shown = prop_oneof![
        4 => Just(Shown::Nothing),
        1 => Just(Shown::NothingElsewhere),
        4 => Just(Shown::Key),
        1 => Just(Shown::OtherKey),
    ];
    let frame = (2..5_u64, prop::bool::weighted(0.1), (path, hop), shown, message()).prop_map(
        |(from, is_relayed, (path, hop), shown, message)| {
            let via = if is_relayed { 4 } else { from };
            Input::Frame { from, via, path, hop, shown, message }
        },
    );
    prop_oneof![
        8 => frame,
        2 => (1..120_u64).prop_map(Input::Pass),
        1 => (2..4_u64).prop_map(Input::PeerDown),
        1 => Just(Input::Cancel),
    ]
}

/// Inputs that a call gets, and acts of its caller.
#[derive(Clone, Debug)]
enum Step {
    Input(Input),
    /// Reads all that is there, and lets the call go at its end.
    Read,
    WakeAfter(usize),
    Decide {
        cancels_late: bool,
    },
    Detach,
}

/// Steps of a call of so many branches.
fn step(branches: u32) -> impl Strategy<Value = Step> {
    let path = prop_oneof![
        12 => (0..branches).prop_map(|index| vec![index]),
        1 => Just(vec![branches]),
        1 => Just(vec![0, 0]),
    ];
    prop_oneof![
        12 => input_about(path).prop_map(Step::Input),
        4 => Just(Step::Read),
        1 => (1..4_usize).prop_map(Step::WakeAfter),
        1 => any::<bool>().prop_map(|cancels_late| Step::Decide { cancels_late }),
        1 => Just(Step::Detach),
    ]
}

/// A call: of how many branches, how much time each has in 100 ms, and what is asked for.
#[derive(Clone, Debug)]
struct Plan {
    budgets: Vec<Option<u64>>,
    tells_silent: bool,
    wake_after: u32,
}

fn plan_and_steps() -> impl Strategy<Value = (Plan, Vec<Step>)> {
    let budgets = vec(prop::option::weighted(0.2, 1..12_u64), 1..4);
    (budgets, any::<bool>(), 0..4_u32).prop_flat_map(|(budgets, tells_silent, wake_after)| {
        let steps = vec(step(u32::try_from(budgets.len()).unwrap()), 1..20);
        (Just(Plan { budgets, tells_silent, wake_after }), steps)
    })
}

struct Twin {
    initiator: Initiator,
    call: CallId,
    is_held: bool,
}

impl Twin {
    /// A call to the nodes from 2 on.
    fn new(is_flat: bool, plan: &Plan) -> Self {
        let Plan { tells_silent, wake_after, .. } = *plan;
        let options = CallOptions { tells_silent, wake_after, ..CallOptions::default() };
        let mut initiator = Initiator::new(ORIGIN, SECRET, &Limits::default());
        let now = Timestamp::from_nanos(1);
        let branches = (2..).map(node).zip(&plan.budgets).map(|(to, budget)| RootBranch {
            to,
            request: RootRequest {
                method: MethodId(1),
                extensions: Vec::new(),
                payload: Encoded::default(),
                budget: budget
                    .map(|budget| Duration::from_millis(100) * u32::try_from(budget).unwrap()),
            },
        });
        let branches: Vec<RootBranch> = branches.collect();
        let call = initiator.begin(branches.len()).unwrap();
        if is_flat {
            let way = |index| {
                let RootBranch { to, request } = branches.get(index as usize)?;
                Some((*to, LINK, LIFE, now + request.budget_of(BUDGET)))
            };
            let times = (now, now + BUDGET);
            assert!(initiator.open_flat(call, times, options, branches.len(), way));
        } else {
            initiator.open_full(call, now, now + BUDGET, options, &branches);
            for index in (0..).take(branches.len()) {
                initiator.handle_sent(call, &root_path(index), LINK, LIFE);
            }
        }
        Self { initiator, call, is_held: true }
    }

    /// Events for the caller, and the frames that follow, as texts.
    fn apply(&mut self, now: Timestamp, step: &Step) -> Vec<String> {
        let mut seen = Vec::new();
        match step.clone() {
            Step::Input(Input::Frame { from, via, path, hop, shown, message }) => {
                let task = key(Path::from_indices(&path).unwrap(), hop);
                let of_branch = SECRET.branch(self.call, &task.path);
                let (link, shown) = match shown {
                    Shown::Nothing => (LINK, None),
                    Shown::NothingElsewhere => (OTHER_LINK, None),
                    Shown::Key => (OTHER_LINK, of_branch),
                    Shown::OtherKey => (LINK, of_branch.map(|key| key.child(7))),
                };
                let frame = Frame::new(Header { call: self.call, task }, message);
                let by = arrival(from, via, link, shown);
                let counts = self.initiator.handle_frame(now, by, &mut frame.clone(), &Connected);
                // Of a call that has gone nothing is looked at.
                seen.push(format!("counts: {}", counts || !self.is_held));
            }
            Step::Input(Input::Pass(_)) => self.initiator.handle_timeout(now, &Connected),
            Step::Input(Input::PeerDown(peer)) => {
                self.initiator.handle_link_down(now, (node(peer), LINK), &Connected);
            }
            Step::Input(Input::Cancel) => self.initiator.cancel(now, self.call),
            Step::Read if self.is_held => seen.extend(self.read(now)),
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
        let out = out.filter(|outbound| outbound.link != Some(LinkId::NONE)); // It goes nowhere.
        seen.extend(out.map(|outbound| format!("{outbound:?}")));
        seen
    }

    fn read(&mut self, now: Timestamp) -> Vec<String> {
        let (mut seen, mut ahead) = (Vec::new(), VecDeque::new());
        while let Some((event, last)) = self.initiator.poll_last(self.call, &mut ahead) {
            seen.push(event);
            seen.extend(ahead.drain(..).map(CallEvent::Reply));
            seen.extend(last.map(CallEvent::Ended));
        }
        if matches!(seen.last(), Some(CallEvent::Ended(_))) {
            self.initiator.detach(now, self.call);
            self.is_held = false;
        }
        seen.into_iter().map(|event| format!("{event:?}")).collect()
    }
}

proptest! {
    #[test]
    fn a_flat_call_is_told_and_says_what_a_full_one_does((plan, steps) in plan_and_steps()) {
        let (mut flat, mut full) = (Twin::new(true, &plan), Twin::new(false, &plan));
        let (opened_at, mut now) = (Timestamp::from_nanos(1), Timestamp::from_nanos(1));
        for step in steps {
            if let Step::Input(Input::Pass(millis)) = step {
                now = now + Duration::from_millis(millis);
            }
            prop_assert_eq!(flat.apply(now, &step), full.apply(now, &step));
            prop_assert_eq!(flat.initiator.end(flat.call), full.initiator.end(full.call));
            let [flat, full] = [&flat.initiator, &full.initiator];
            // A decided call that is flat winds where it is.
            let kept = |initiator: &Initiator| initiator.call_count() + initiator.winding_count();
            prop_assert_eq!(kept(flat), kept(full));
            prop_assert_eq!(flat.open_count(), full.open_count());
            prop_assert_eq!(flat.unsettled_count(), full.unsettled_count());
            // One that is flat and settled holds the floor until it is read, but no longer than it
            // stays flat.
            let may_lag = now.since(opened_at) < Limits::default().worry_min;
            prop_assert!(flat.floor() == full.floor() || (may_lag && flat.floor() < full.floor()));
        }
    }

    #[test]
    fn a_reader_is_called_once_for_as_many_replies_as_it_waits_for(
        count in 1..4_usize,
        is_flat in any::<bool>(),
        is_told_later in any::<bool>(),
    ) {
        let wake_after = if is_told_later { 0 } else { u32::try_from(count).unwrap() };
        let Twin { mut initiator, call, .. } =
            Twin::new(is_flat, &Plan { budgets: vec![None; 3], tells_silent: false, wake_after });
        if is_told_later {
            initiator.wake_after(call, count);
        }
        for index in 0..3_u32 {
            let peer = u64::from(index) + 2;
            let header = Header { call, task: key(root_path(index), 0) };
            let reply = Message::Reply(Reply::sole(Bytes::new()));
                        let now = Timestamp::from_nanos(2);
            let by = arrival(peer, peer, LINK, None);
            initiator.handle_frame(now, by, &mut Frame::new(header, reply), &Connected);
            let is_due = index as usize + 1 >= count;
            prop_assert_eq!(initiator.poll_ready(), is_due.then_some(call));
        }
    }
}

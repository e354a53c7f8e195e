//! Owners of payloads that call back as these are dropped: whoever has the node locked has a core
//! drop none, wherever they go. Those that go nowhere are handed to its outbox.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::super::*;
use super::mesh::{branch, id, millis, root_branch};
use super::strangers::{KEY, cancel, frame, request};
use crate::call::{CallEvent, CallOptions};
use crate::id::LinkNonce;
use crate::link::Hello;
use crate::outbox::{Destination, Hand, Room};
use crate::task::{Branch, NextItem, SendError, TaskFailure};
use crate::wire::{Cause, Credit, Credited, Executed, ReplyRoute};

thread_local! {
    /// A node is at work, as under its lock.
    static IS_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Payloads that were dropped, under the lock and without it.
#[derive(Debug, Default)]
struct Dropped {
    locked: AtomicUsize,
    free: AtomicUsize,
}

struct Owner {
    bytes: Vec<u8>,
    dropped: Arc<Dropped>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Dropped { locked, free } = &*self.dropped;
        let count = if IS_LOCKED.get() { locked } else { free };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps payloads until the lock is free.
#[derive(Debug, Default)]
struct Keeps(Vec<Bytes>);

impl Outbox for Keeps {
    fn send_each(&mut self, _: Timestamp, _: Destination, mut frames: impl FnMut(Hand<'_>)) {
        frames(&mut |_, payload| {
            self.0.push(payload.into_bytes());
            Ok(Room::Some)
        });
    }

    fn let_go(&mut self, payload: Bytes) {
        self.0.push(payload);
    }
}

/// Node 1, with a connection to node 2.
struct One {
    node: Node<Keeps>,
    link: LinkId,
    now: Timestamp,
    dropped: Arc<Dropped>,
    made: usize,
}

impl One {
    fn new() -> Self {
        let now = Timestamp::from_nanos(1);
        let life = |node: u64| Incarnation::of_random(node << 8);
        let identity = Identity { node: id(1), incarnation: life(1) };
        let (secret, limits) = ((Secret::new(1, 1), 1), Limits::default());
        let node = Node::with_outbox(Keeps::default(), identity, Place::SOLE, secret, &limits, now);
        let mut node = node.expect("the limits are usable");
        let (advertised, frame_bytes_max) = (Vec::new(), 1 << 20);
        let peer = Hello { node: id(2), incarnation: life(2), advertised, frame_bytes_max };
        let (nonce, scheme) = (LinkNonce(9), "test");
        let link = Link { peer, nonce, is_dialler: false, scheme, principal: None, remote: None };
        let link = node.handle_link_up(now, &link, |_, _| ());
        Self { node, link, now, dropped: Arc::default(), made: 0 }
    }

    fn payload(&mut self, len: usize) -> Bytes {
        self.made += 1;
        Bytes::from_owner(Owner { bytes: vec![7; len], dropped: self.dropped.clone() })
    }

    fn branch(&mut self, to: u64, len: usize) -> Branch {
        Branch { payload: self.payload(len).into(), ..branch(to) }
    }

    /// One input, under the lock.
    fn with<T>(&mut self, act: impl FnOnce(&mut Node<Keeps>, Timestamp) -> T) -> T {
        IS_LOCKED.set(true);
        let result = act(&mut self.node, self.now);
        self.node.flush(self.now);
        let spent = std::mem::take(&mut self.node.outbox_mut().0);
        IS_LOCKED.set(false);
        drop(spent);
        result
    }

    fn come(&mut self, frame: Frame) {
        let link = self.link;
        self.with(|node, now| node.handle_bytes(now, link, frame.to_bytes())).expect("it counts");
    }

    /// The task that has started last.
    fn start(&mut self) -> Start {
        let mut starts = Vec::new();
        self.with(|node, _| node.take_starts(&mut starts));
        starts.pop().expect("a task has started")
    }

    /// A call of node 2, and its task here.
    fn asked(&mut self) -> (CallId, TaskRef) {
        let call = CallId { origin: Incarnation::of_random(2 << 8), seq: 1 };
        self.come(frame(call, "/0", request(KEY, ReplyRoute::Sender, 0)));
        (call, self.start().task)
    }

    /// A call of this node to itself, and its task.
    fn own(&mut self, options: CallOptions, len: usize) -> (CallId, Start) {
        let mut root = root_branch(1);
        root.request.payload = self.payload(len).into();
        let branches = &mut vec![root];
        let mut opening = Opening { budget: None, options, branches };
        let call = self.with(|node, now| node.open(now, &mut opening)).expect("there is room");
        (call, self.start())
    }

    fn drop_all(&mut self, call: CallId) {
        let mut ahead = VecDeque::new();
        while let Some(news) = self.with(|node, _| node.poll_last(call, &mut ahead)) {
            drop((news, std::mem::take(&mut ahead)));
        }
    }

    /// All that were made are dropped, none under the lock.
    fn check(self, what: &str) {
        let Dropped { locked, free } = &*self.dropped;
        let counts = (locked.load(Ordering::Relaxed), free.load(Ordering::Relaxed));
        assert_eq!(counts, (0, self.made), "{what}: under the lock, without it");
    }
}

/// Sizes of messages: copied where they wait, within what may be sent at once, waiting for credit,
/// with a last part that is of their memory, or a copy.
const SIZES: [usize; 4] = [100, 10 << 10, 200 << 10, 300 << 10];

#[test]
fn a_refused_output_of_a_task_is_let_go() {
    for len in SIZES {
        // Nobody knows where node 5 is.
        let mut one = One::new();
        let (call, task) = one.asked();
        let branch = one.branch(5, len);
        let refused = one.with(|node, now| node.delegate(now, &task, branch));
        assert_eq!(refused, Err(SendError::NodeDead));
        let branch = one.branch(5, len);
        one.with(|node, now| node.tail(now, &task, branch)).expect("it fails at the initiator");
        // The task has ended.
        let (branch, last, reply) = (one.branch(2, len), one.branch(2, len), one.payload(len));
        let refused = one.with(|node, now| node.delegate(now, &task, branch));
        assert_eq!(refused, Err(SendError::Ended));
        let refused = one.with(|node, now| node.tail(now, &task, last));
        assert_eq!(refused, Err(SendError::Ended));
        let refused = one.with(|node, now| node.reply(now, &task, reply));
        assert_eq!(refused, Err(SendError::Ended));
        let answer = one.payload(len);
        let refused = one.with(|node, now| node.answer(now, &task, answer));
        assert_eq!(refused, Err(SendError::Ended));
        let items = [one.payload(len), one.payload(len)];
        let refused = one.with(|node, now| node.stream_items(now, &task, 0, items));
        assert_eq!(refused, Err(SendError::Ended));
        let failure = TaskFailure {
            details: one.payload(len),
            ..TaskFailure::new(Cause::Application, Executed::Yes, "")
        };
        one.with(|node, now| node.fail(now, &task, failure));
        assert!(one.node.visits().remembers_call(NodeLife { node: id(2), life: call.origin }, 1));
        one.check("of a task that has ended");
    }
}

#[test]
fn an_output_beyond_a_bound_of_its_task_is_let_go() {
    let mut one = One::new();
    let (_, task) = one.asked();
    let too_large = Limits::default().message_bytes_max + 1;
    let reply = one.payload(too_large);
    one.with(|node, now| node.reply(now, &task, reply)).expect_err("it is too large");
    let answer = one.payload(too_large);
    one.with(|node, now| node.answer(now, &task, answer)).expect_err("it is too large");
    let stream = one.with(|node, now| node.stream(now, &task)).expect("the task runs");
    let items = [one.payload(10), one.payload(too_large), one.payload(10)];
    one.with(|node, now| node.stream_items(now, &task, stream, items)).expect_err("the second");
    one.with(|node, now| node.finish(now, &task));
    one.check("too large");
}

#[test]
fn replies_that_wait_are_let_go_as_their_task_is_stopped() {
    for len in SIZES {
        let mut one = One::new();
        let (call, task) = one.asked();
        for _ in 0..3 {
            let reply = one.payload(len);
            one.with(|node, now| node.reply(now, &task, reply)).expect("the task runs");
        }
        let stream = one.with(|node, now| node.stream(now, &task)).expect("the task runs");
        for _ in 0..3 {
            let item = [one.payload(len)];
            let sent = one.with(|node, now| node.stream_items(now, &task, stream, item));
            sent.expect("the task runs");
        }
        let branch = one.branch(2, len);
        one.with(|node, now| node.delegate(now, &task, branch)).expect("it is connected");
        one.come(Frame { key: Some(KEY), ..frame(call, "/0", cancel()) });
        assert_eq!(one.node.visits().running_count(), 0, "it is stopped");
        one.check("cancelled");
    }
}

#[test]
fn a_reply_is_let_go_that_nobody_takes_or_that_has_left_in_parts() {
    for (len, limit) in [(300 << 10, Credit::NO_MORE), (3 << 20, 3 << 20)] {
        let mut one = One::new();
        let (call, task) = one.asked();
        let reply = one.payload(len);
        one.with(|node, now| node.answer(now, &task, reply)).expect("the task runs");
        let credit = Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: limit });
        one.come(Frame { key: Some(KEY), ..frame(call, "/0", credit) });
        assert_eq!(one.node.visits().running_count(), 0, "nothing waits");
        one.check("after its credit");
    }
}

#[test]
fn an_unread_reply_of_a_call_to_itself_is_let_go_with_the_call() {
    let full = CallOptions { tells_sent: true, ..CallOptions::default() };
    for options in [CallOptions::default(), full] {
        for len in SIZES {
            for is_decided in [false, true] {
                let mut one = One::new();
                let (call, start) = one.own(options, len);
                let reply = one.payload(len);
                let answer = |node: &mut Node<Keeps>, now| node.answer(now, &start.task, reply);
                one.with(answer).expect("the task runs");
                match is_decided {
                    true => one.with(|node, now| node.decide_call(now, call, false)),
                    false => one.with(|node, now| node.detach_call(now, call)),
                }
                drop(start);
                one.check("unread");
            }
        }
    }
}

#[test]
fn a_late_reply_of_a_call_to_itself_is_let_go() {
    for len in SIZES {
        let mut one = One::new();
        let (call, start) = one.own(CallOptions::default(), len);
        one.with(|node, now| node.decide_call(now, call, false));
        let reply = one.payload(len);
        let answer = |node: &mut Node<Keeps>, now| node.answer(now, &start.task, reply);
        one.with(answer).expect("the task runs");
        drop(start);
        one.check("late");
    }
}

#[test]
fn a_request_of_a_node_to_itself_is_let_go_where_it_is_refused() {
    let mut one = One::new();
    one.with(|node, now| node.begin_shutdown(now));
    let mut root = root_branch(1);
    root.request.payload = one.payload(100).into();
    let (options, branches) = (CallOptions::default(), &mut vec![root]);
    let mut opening = Opening { budget: None, options, branches };
    let call = one.with(|node, now| node.open(now, &mut opening)).expect("there is room");
    let news = one.with(|node, _| node.poll_last(call, &mut VecDeque::new()));
    assert!(matches!(news, Some((CallEvent::Failure(_), None))), "{news:?}");
    one.drop_all(call);
    one.check("refused");
}

#[test]
fn items_are_let_go_that_nobody_takes_or_reads() {
    let streamed = CallOptions { sends_items: true, ..CallOptions::default() };
    for len in SIZES {
        // Read, then left by the handler, or by the end of its task.
        for drops in [true, false] {
            let mut one = One::new();
            let (call, start) = one.own(streamed, 10);
            for _ in 0..4 {
                let item = one.payload(len);
                one.with(|node, now| node.send_item(now, call, item)).expect("they are taken");
            }
            let next = one.with(|node, now| node.next_item(now, &start.task, None));
            assert!(matches!(next, Ok(Some(NextItem::Item(_)))), "{next:?}");
            drop(next);
            if drops {
                one.with(|node, now| node.drop_items(now, &start.task));
            }
            one.with(|node, now| node.finish(now, &start.task));
            let item = one.payload(len);
            one.with(|node, now| node.send_item(now, call, item)).expect_err("nobody reads it");
            one.with(|node, now| node.detach_call(now, call));
            drop(start);
            one.check("items to itself");
        }
        // Without credit of the other node.
        let mut one = One::new();
        let branches = &mut vec![root_branch(2)];
        let mut opening = Opening { budget: None, options: streamed, branches };
        let call = one.with(|node, now| node.open(now, &mut opening)).expect("there is room");
        for _ in 0..4 {
            let item = one.payload(len);
            one.with(|node, now| node.send_item(now, call, item)).expect("they are taken");
        }
        one.with(|node, now| node.abandon_items(now, call));
        one.check("items that wait");
    }
}

#[test]
fn a_reply_without_a_way_is_let_go() {
    for len in [100, 10 << 10] {
        let mut one = One::new();
        let (_, task) = one.asked();
        let link = one.link;
        one.with(|node, now| node.handle_link_down(now, link));
        let reply = one.payload(len);
        one.with(|node, now| node.answer(now, &task, reply)).expect("the task runs");
        one.now = one.now + millis(60_000);
        one.with(|node, now| node.handle_timeout(now));
        one.check("without a way");
    }
}

//! Streamed requests: items in order, credit both ends agree on, and every way they can end early.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;
use super::mesh::{Mesh, branch, id, millis, root_branch};
use crate::call::CallOptions;
use crate::initiator::OpenError;
use crate::share::Pool;
use crate::task::{ItemsFailure, NextItem, SendError};
use crate::wire::{
    Credit, Credited, Executed, Extension, Header, Item, ItemKind, Part, ReplyRoute, Request,
};

const STREAMED: CallOptions = CallOptions {
    is_flat: false,
    tells_silent: false,
    tells_sent: false,
    traces: false,
    never_dials: false,
    sends_items: true,
    ignores_hearsay: false,
    wake_after: 0,
};

/// A call of node 1 whose streamed request has come to node `at`.
fn streaming_to(at: u64, count: u64, limits: &Limits) -> (Mesh, CallId) {
    let mut mesh = Mesh::connected_with(count, limits);
    let call = mesh.call(1, &[at], STREAMED);
    mesh.deliver_all();
    (mesh, call)
}

fn streaming() -> (Mesh, CallId) {
    streaming_to(2, 3, &Limits::default())
}

impl Mesh {
    fn send(&mut self, call: CallId, item: impl Into<Bytes>) -> Result<(), SendError> {
        let now = self.now;
        self.with(1, |node| node.send_item(now, call, item.into()))
    }

    fn finish_items(&mut self, call: CallId) {
        let now = self.now;
        self.with(1, |node| node.finish_items(now, call));
    }

    fn is_writable(&mut self, call: CallId) -> Result<bool, SendError> {
        self.with(1, |node| node.poll_items_writable(call))
    }

    fn next_item(&mut self) -> Result<Option<NextItem>, ItemsFailure> {
        let (now, (at, task)) = (self.now, self.task("/0"));
        self.with(at, |node| node.next_item(now, &task, None))
    }

    /// As a handler reads that takes what it is handed with an item.
    fn read_ahead(
        &mut self,
        ahead: &mut VecDeque<Bytes>,
    ) -> Result<Option<NextItem>, ItemsFailure> {
        if let Some(item) = ahead.pop_front() {
            return Ok(Some(NextItem::Item(item)));
        }
        let (now, (at, task)) = (self.now, self.task("/0"));
        self.with(at, |node| node.next_item(now, &task, Some(ahead)))
    }

    fn expect_item(&mut self, item: &[u8]) {
        assert_eq!(self.next_item(), Ok(Some(NextItem::Item(Bytes::copy_from_slice(item)))));
    }

    /// Sends items of this size for as long as one can leave, and says how many.
    fn send_all(&mut self, call: CallId, size: usize) -> usize {
        let mut count = 0;
        while self.is_writable(call) == Ok(true) {
            self.send(call, vec![7; size]).unwrap();
            count += 1;
        }
        count
    }

    /// A frame of this node about the task at /0 comes to another over their connection.
    fn lie(&mut self, (from, to): (u64, u64), call: CallId, message: Message) {
        let link = self.link_between(to, from);
        let header = Header { call, task: crate::key("/0".parse().unwrap(), 0) };
        assert_eq!(self.take((to, link), Frame::new(header, message)), Ok(()));
    }

    fn items_paid(&self, at: u64) -> usize {
        self.nodes[&at].links().shares().used(Pool::Items)
    }
}

fn item(seq: u64, payload: &'static [u8]) -> Item {
    let kind = ItemKind::Item { seq, is_last: false };
    Item { kind, part: None, payload: Bytes::from_static(payload) }
}

#[test]
fn items_come_in_order_and_end() {
    let (mut mesh, call) = streaming();
    assert!(mesh.starts[0].1.has_items && mesh.starts[0].1.extensions.is_empty());
    assert_eq!(mesh.next_item(), Ok(None));
    mesh.send(call, "one").unwrap();
    mesh.send(call, "").unwrap();
    mesh.finish_items(call);
    assert_eq!(mesh.on_wire(), ["1-2 ITEM", "1-2 ITEM", "1-2 ITEM"]);
    mesh.deliver_all();
    assert_eq!(mesh.readable, [2], "the reader waited, and is told once");
    mesh.expect_item(b"one");
    mesh.expect_item(b"");
    for _ in 0..2 {
        assert_eq!(mesh.next_item(), Ok(Some(NextItem::End)));
    }
    assert_eq!(mesh.send(call, "more"), Err(SendError::Ended));
    mesh.answer("/0", b"two items");
    assert_eq!(mesh.on_wire(), ["2-1 REPLY"], "items that are over cost nothing at the end");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
    assert!(mesh.writable.is_empty());
}

/// As of replies.
#[test]
fn items_above_the_largest_frame_leave_in_several() {
    for unscheduled_bytes in [16 << 10, 200_000] {
        let limits = Limits { unscheduled_bytes, ..Limits::default() };
        let (mut mesh, call) = streaming_to(2, 2, &limits);
        let link = mesh.nodes[&1].links().current(id(2)).unwrap();
        mesh.with(1, |node| node.outbox_mut().frame_bytes_max.insert(link, 32 << 10));
        for len in [100_000, 10, 300_000] {
            mesh.send(call, vec![7; len]).unwrap();
            mesh.deliver_all();
            mesh.expect_item(&vec![7; len]);
            mesh.deliver_all();
        }
        mesh.finish_items(call);
        mesh.deliver_all();
        assert_eq!(mesh.next_item(), Ok(Some(NextItem::End)));
    }
}

#[test]
fn a_request_to_the_node_itself_is_streamed_without_a_frame() {
    let (mut mesh, call) = streaming_to(1, 1, &Limits::default());
    mesh.send(call, "one").unwrap();
    mesh.finish_items(call);
    mesh.expect_item(b"one");
    assert_eq!(mesh.next_item(), Ok(Some(NextItem::End)));
    mesh.answer("/0", b"");
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

/// A handler that reads nothing stops its caller after what nobody need grant, one that reads lets
/// it go on, and no more than a window is ever unread.
#[test]
fn the_writer_waits_for_the_reader() {
    let (mut mesh, call) = streaming();
    assert_eq!(mesh.send_all(call, 1_000), 17, "16 KiB, and the rest of an item");
    mesh.deliver_all();
    assert_eq!(mesh.writable, [1], "what is unread so far leaves most of the window");
    let unread = 17 + mesh.send_all(call, 1_000);
    mesh.deliver_all();
    assert_eq!(mesh.send_all(call, 1_000), 0);
    let window = (256 << 10) / 1_000;
    assert!((window..=window + 1).contains(&unread), "{unread}");
    mesh.writable.clear();
    for _ in 0..unread / 2 + 2 {
        assert!(matches!(mesh.next_item(), Ok(Some(NextItem::Item(_)))));
    }
    assert_eq!(mesh.on_wire(), ["2-1 CREDIT"], "one for half a window");
    mesh.deliver_all();
    assert_eq!(mesh.writable, [1]);
    assert!(mesh.send_all(call, 1_000) > unread / 3);
}

#[test]
fn an_item_larger_than_the_window_is_granted_whole() {
    let (mut mesh, call) = streaming();
    let large: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    mesh.send(call, large.clone()).unwrap();
    mesh.finish_items(call);
    mesh.deliver_all();
    mesh.expect_item(&large);
    assert_eq!(mesh.next_item(), Ok(Some(NextItem::End)));
    let limit = Limits::default().message_bytes_max;
    let (mut mesh, call) = streaming();
    let refused = SendError::TooLarge { size: limit + 1, limit };
    assert_eq!(mesh.send(call, vec![0; limit + 1]), Err(refused));
    assert_eq!(mesh.send(call, "smaller"), Ok(()), "the next one fits");
}

/// Items that have credit wait while their connection has no room, and go on with it, the oldest
/// call first; what is given up meanwhile leaves nothing behind.
#[test]
fn granted_items_wait_for_room_in_their_connection() {
    let mut mesh = Mesh::connected(2);
    let link = mesh.nodes[&1].links().current(id(2)).unwrap();
    let calls = [(); 4].map(|()| mesh.call(1, &[2], STREAMED));
    mesh.deliver_all();
    mesh.with(1, |node| _ = node.outbox_mut().full.insert(link));
    for call in calls {
        mesh.send(call, vec![7; 600_000]).unwrap();
        mesh.finish_items(call);
    }
    assert_eq!(mesh.on_wire(), ["1-2 ITEM"], "what finds room takes the last of it");
    mesh.deliver_all();
    let now = mesh.now;
    mesh.with(1, |node| node.abandon_items(now, calls[1]));
    mesh.deliver_all();
    let mut parts = 0;
    while mesh.nodes[&1].initiator().has_granted() {
        mesh.with(1, |node| node.handle_room(now, link));
        let sent = mesh.on_wire();
        assert!(sent.len() <= 1, "room for a frame at a time: {sent:?}");
        parts += sent.len();
        mesh.deliver_all();
    }
    assert!((9..=15).contains(&parts), "16 KiB, the rest by 256 KiB, the end: {parts}");
    for call in calls {
        let started = mesh.starts.iter().find(|(_, start)| start.task.call == call).unwrap();
        let task = started.1.task.clone();
        let next = mesh.with(2, |node| node.next_item(now, &task, None));
        match call == calls[1] {
            true => assert_eq!(next, Err(ItemsFailure::Ended)),
            false => {
                assert!(matches!(next, Ok(Some(NextItem::Item(item))) if item.len() == 600_000))
            }
        }
    }
}

/// A writer that waits behind an item is told once that has left.
#[test]
fn a_writer_waits_while_its_last_item_waits_for_room() {
    let (mut mesh, call) = streaming();
    let link = mesh.nodes[&1].links().current(id(2)).unwrap();
    mesh.send(call, vec![7; 40_000]).unwrap();
    mesh.with(1, |node| _ = node.outbox_mut().full.insert(link));
    assert_eq!(mesh.is_writable(call), Ok(false));
    mesh.send(call, "late").unwrap();
    mesh.deliver_all();
    assert!(mesh.writable.is_empty() && mesh.nodes[&1].initiator().has_granted());
    let now = mesh.now;
    mesh.with(1, |node| {
        node.outbox_mut().full.clear();
        node.handle_room(now, link);
    });
    mesh.deliver_all();
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Ok(true), 1));
    assert!(matches!(mesh.next_item(), Ok(Some(NextItem::Item(item))) if item.len() == 40_000));
    mesh.expect_item(b"late");
    // A connection that has ended keeps nothing waiting.
    mesh.with(1, |node| _ = node.outbox_mut().full.insert(link));
    for _ in 0..2 {
        mesh.send(call, vec![7; 600_000]).unwrap();
    }
    mesh.deliver_all();
    assert!(mesh.nodes[&1].initiator().has_granted());
    let link = mesh.link_between(1, 2);
    mesh.disconnect(1, link);
    assert!(!mesh.nodes[&1].initiator().has_granted());
}

#[test]
fn items_wait_until_the_node_was_dialled() {
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], STREAMED);
    assert_eq!(mesh.is_writable(call), Ok(false));
    mesh.send(call, "early").unwrap();
    assert!(mesh.wire.is_empty());
    mesh.connect(1, 2);
    assert_eq!(mesh.on_wire(), ["1-2 REQUEST", "1-2 ITEM"]);
    assert_eq!(mesh.writable, [1]);
    mesh.deliver_all();
    mesh.expect_item(b"early");
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], STREAMED);
    assert_eq!(mesh.is_writable(call), Ok(false));
    let now = mesh.now;
    mesh.with(1, |node| node.handle_dial_failed(now, id(2)));
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Err(SendError::Ended), 1));
}

/// Every way a task can end before its items do.
#[test]
fn a_writer_is_told_when_the_task_reads_no_more() {
    type End = fn(&mut Mesh);
    let ends: [(&str, End, &[&str]); 5] = [
        ("it answers", |mesh| mesh.answer("/0", b""), &["2-1 CREDIT", "2-1 REPLY"]),
        ("it drops them", drop_items, &["2-1 CREDIT"]),
        ("it goes on elsewhere", tail, &["2-3 REQUEST", "2-1 CREDIT"]),
        (
            "it waits for branches",
            |mesh| {
                mesh.delegate("/0", &[3]);
                mesh.wire.clear();
                mesh.finish("/0");
            },
            &["2-1 CREDIT", "2-1 MANIFEST"],
        ),
        ("its time is over", |mesh| mesh.pass(Duration::from_secs(10)), &["2-1 CREDIT"]),
    ];
    for (what, end, frames) in ends {
        let (mut mesh, call) = streaming();
        mesh.send_all(call, 1_000);
        mesh.wire.clear();
        assert_eq!(mesh.is_writable(call), Ok(false), "{what}");
        end(&mut mesh);
        let mut sent = mesh.on_wire();
        sent.retain(|frame| frame.starts_with("2-"));
        for frame in frames {
            assert!(sent.iter().any(|one| one == frame), "{what}: {sent:?}");
        }
        mesh.wire.retain(|(_, sent)| sent.to == id(1) && sent.frame.message.name() == "CREDIT");
        mesh.deliver_all();
        assert_eq!(mesh.is_writable(call), Err(SendError::Ended), "{what}");
        assert_eq!((mesh.writable.len(), mesh.items_paid(2)), (1, 0), "{what}");
    }
}

/// It has credit, and its connection no room.
#[test]
fn a_writer_that_does_not_send_is_told_when_the_time_is_over() {
    let (mut mesh, call) = streaming();
    assert_eq!(mesh.is_writable(call), Ok(true));
    mesh.pass(Duration::from_secs(10));
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Err(SendError::Ended), 1));
}

fn drop_items(mesh: &mut Mesh) {
    let (now, (at, task)) = (mesh.now, mesh.task("/0"));
    mesh.with(at, |node| node.drop_items(now, &task));
}

fn tail(mesh: &mut Mesh) {
    let (now, (at, task)) = (mesh.now, mesh.task("/0"));
    mesh.with(at, |node| {
        node.delegate(now, &task, branch(3)).unwrap();
        node.finish(now, &task);
    });
}

/// A reply that comes first, the credit being lost or late, says the same.
#[test]
fn the_word_of_the_task_ends_the_items() {
    let (mut mesh, call) = streaming();
    mesh.send_all(call, 1_000);
    assert_eq!(mesh.is_writable(call), Ok(false));
    mesh.answer("/0", b"");
    mesh.hold_back("CREDIT");
    mesh.deliver_all();
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Err(SendError::Ended), 1));
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

#[test]
fn a_call_that_is_given_up_ends_its_items_at_both_ends() {
    let (mut mesh, call) = streaming();
    mesh.send_all(call, 1_000);
    assert_eq!(mesh.is_writable(call), Ok(false));
    let now = mesh.now;
    mesh.with(1, |node| node.cancel_call(now, call));
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Err(SendError::Ended), 1));
    mesh.deliver_all();
    assert_eq!((mesh.stops.len(), mesh.items_paid(2)), (1, 0));
    assert_eq!(mesh.next_item(), Err(ItemsFailure::Ended), "a part is not taken for all");
    // Let go at once, nothing of it is left to say so later.
    let (mut mesh, call) = streaming();
    mesh.send_all(call, 1_000);
    assert_eq!(mesh.is_writable(call), Ok(false));
    mesh.with(1, |node| node.detach_call(now, call));
    mesh.deliver_all();
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Err(SendError::Ended), 1));
}

/// A branch that runs on after a decision goes on taking items.
#[test]
fn a_decided_call_still_sends_items() {
    let (mut mesh, call) = streaming();
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, false));
    assert_eq!(mesh.send(call, "more"), Ok(()));
    mesh.finish_items(call);
    mesh.deliver_all();
    mesh.expect_item(b"more");
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.nodes[&1].initiator().call_count(), 0);
}

/// A part is not taken for all, though nobody waits for what the task makes of it. Once it reads no
/// more, or has all, it runs on.
#[test]
fn items_that_end_unfinished_cancel_a_decided_call_while_they_are_read() {
    let stops_when = |before: fn(&mut Mesh, CallId)| {
        let (mut mesh, call) = streaming();
        let now = mesh.now;
        mesh.send(call, "part").unwrap();
        mesh.with(1, |node| node.decide_call(now, call, false));
        before(&mut mesh, call);
        mesh.deliver_all();
        mesh.with(1, |node| node.abandon_items(now, call));
        mesh.deliver_all();
        let left = mesh.nodes[&1].initiator().unsettled_count();
        (mesh.stops.len(), left)
    };
    assert_eq!(stops_when(|_, _| ()), (1, 0));
    assert_eq!(stops_when(|mesh, _| drop_items(mesh)), (0, 1));
    assert_eq!(stops_when(|mesh, call| mesh.finish_items(call)), (0, 1));
}

#[test]
fn a_lost_connection_ends_the_items_at_both_ends_and_the_call_goes_on() {
    let (mut mesh, call) = streaming();
    mesh.send(call, "one").unwrap();
    mesh.deliver_all();
    mesh.send_all(call, 1_000);
    assert_eq!(mesh.is_writable(call), Ok(false));
    let link = mesh.link_between(1, 2);
    mesh.connect(1, 2);
    for at in [1, 2] {
        mesh.disconnect(at, link);
    }
    assert_eq!((mesh.is_writable(call), mesh.writable.len()), (Err(SendError::Lost), 1));
    assert_eq!(mesh.send(call, "again"), Err(SendError::Lost), "nothing goes another way");
    mesh.expect_item(b"one");
    assert_eq!(mesh.next_item(), Err(ItemsFailure::Lost));
    mesh.answer("/0", b"so far one");
    mesh.deliver_all();
    mesh.pass(millis(100));
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
    assert_eq!(mesh.items_paid(2), 0);
}

#[test]
fn a_caller_that_breaks_the_rules_loses_its_own_items_alone() {
    let total = (Limits::default().message_bytes_max + 1) as u64;
    let large = Item { part: Some(Part { offset: 0, total }), ..item(0, b"x") };
    let late = Item { part: Some(Part { offset: 9, total: 20 }), ..item(0, b"x") };
    let end = |count| Item { kind: ItemKind::End { count }, part: None, payload: Bytes::new() };
    let unscheduled = Bytes::from(vec![0; 16 << 10]);
    let lies = [
        ("a gap", vec![item(1, b"x")], ItemsFailure::Malformed),
        ("a piece out of order", vec![late], ItemsFailure::Malformed),
        ("an early end", vec![end(3)], ItemsFailure::Malformed),
        ("too large", vec![large], ItemsFailure::TooLarge { size: total, limit: total - 1 }),
        (
            "more than granted",
            vec![Item { payload: unscheduled, ..item(0, b"") }, item(1, b"x"), item(2, b"y")],
            ItemsFailure::Overrun,
        ),
    ];
    // Without room nothing is granted beyond the first 16 KiB.
    let limits = Limits { waiting_item_bytes_max: 0, ..Limits::default() };
    for (what, items, failure) in lies {
        let (mut mesh, call) = streaming_to(2, 2, &limits);
        mesh.call(1, &[2], STREAMED);
        mesh.deliver_all();
        for item in items {
            mesh.lie((1, 2), call, Message::Item(item));
        }
        let task = mesh.starts[0].1.task.clone();
        let now = mesh.now;
        let read = |mesh: &mut Mesh| mesh.with(2, |node| node.next_item(now, &task, None));
        while matches!(read(&mut mesh), Ok(Some(NextItem::Item(_)))) {}
        assert_eq!(read(&mut mesh), Err(failure), "{what}");
        mesh.wire.retain(|(_, sent)| sent.frame.message.name() == "CREDIT");
        mesh.deliver_all();
        assert_eq!(mesh.is_writable(call), Err(SendError::Ended), "{what}");
        assert_eq!(mesh.next_item(), Ok(None), "{what}: the other call goes on");
        assert_eq!((mesh.items_paid(2), mesh.resets.len()), (0, 0), "{what}");
    }
}

#[test]
fn what_others_say_of_the_items_changes_nothing() {
    let (mut mesh, call) = streaming();
    for _ in 0..1_000 {
        mesh.lie((3, 2), call, Message::Item(item(0, b"forged")));
        // Of nothing, and of a task that is not streamed.
        mesh.lie((2, 3), call, Message::Item(item(0, b"nobody asked")));
    }
    assert_eq!(mesh.next_item(), Ok(None));
    assert_eq!(mesh.send_all(call, 1_000), 17);
    for limit_bytes in [1 << 30, Credit::NO_MORE] {
        let credit = Credit { of: Credited::Items, limit_bytes };
        mesh.lie((3, 1), call, Message::Credit(credit));
    }
    assert_eq!(mesh.is_writable(call), Ok(false));
    assert_eq!(mesh.ignored, [(1, Ignored::SpeaksForOther)]);
}

#[test]
fn small_items_are_handed_out_together_and_large_ones_alone() {
    let (mut mesh, call) = streaming();
    let mut ahead = VecDeque::new();
    for (size, count, together) in [(10, 50, 33), (100, 50, 33), (1_000, 10, 5), (5_000, 3, 1)] {
        for _ in 0..count {
            mesh.send(call, vec![7; size]).unwrap();
            mesh.deliver_all();
        }
        assert!(matches!(mesh.read_ahead(&mut ahead), Ok(Some(NextItem::Item(_)))));
        assert_eq!(ahead.len() + 1, together, "of {size} bytes");
        while mesh.read_ahead(&mut ahead) != Ok(None) {}
        mesh.deliver_all();
    }
}

/// A peer that has its share goes on in small steps; only what can never fit fails.
#[test]
fn without_room_the_window_stays_small() {
    let limits = Limits { waiting_item_bytes_max: 0, ..Limits::default() };
    let (mut mesh, call) = streaming_to(2, 2, &limits);
    let mut sent = 0;
    for _ in 0..50 {
        sent += mesh.send_all(call, 1_000);
        mesh.deliver_all();
        assert!(matches!(mesh.next_item(), Ok(Some(NextItem::Item(_)))));
        mesh.deliver_all();
    }
    assert!((50..=50 + 17).contains(&sent), "{sent}");
    assert_eq!(mesh.items_paid(2), 0);
    while matches!(mesh.next_item(), Ok(Some(NextItem::Item(_)))) {
        mesh.deliver_all();
    }
    mesh.send(call, vec![0; 40_000]).unwrap();
    mesh.deliver_all();
    while matches!(mesh.next_item(), Ok(Some(NextItem::Item(_)))) {
        mesh.deliver_all();
    }
    assert_eq!(mesh.next_item(), Err(ItemsFailure::NoRoom));
    assert_eq!(mesh.is_writable(call), Err(SendError::Ended));
}

#[test]
fn empty_items_are_bounded_by_number() {
    let limits = Limits { waiting_item_bytes_max: 100_000, ..Limits::default() };
    let (mut mesh, call) = streaming_to(2, 2, &limits);
    for _ in 0..20 {
        mesh.send_all(call, 0);
        mesh.deliver_all();
    }
    let mut count = 0;
    let end = loop {
        match mesh.next_item() {
            Ok(Some(NextItem::Item(_))) => count += 1,
            end => break end,
        }
    };
    assert_eq!(end, Err(ItemsFailure::NoRoom));
    assert!((500..3_000).contains(&count), "{count}");
    assert_eq!(mesh.items_paid(2), 0);
}

#[test]
fn one_root_branch_alone_takes_items() {
    let mut mesh = Mesh::connected(3);
    let (now, branches) = (mesh.now, &mut vec![root_branch(2), root_branch(3)]);
    let mut opening = Opening { budget: None, options: STREAMED, branches };
    let opened = mesh.with(1, |node| node.open(now, &mut opening));
    assert_eq!(opened, Err(OpenError::ItemsToMany { count: 2 }));
    // A task that passes the mark on by itself is refused.
    let (mut mesh, call) = streaming();
    let request = Request {
        key: mesh.key_of(call, "/0").child(0),
        budget_us: 1_000_000,
        outlasted_us: 0,
        floor: call.seq,
        method: super::mesh::METHOD,
        reply_route: ReplyRoute::Node { node: id(1), addresses: Vec::new() },
        inherited: Vec::new(),
        extensions: vec![Extension::items()],
        payload: Bytes::new(),
    };
    let header = Header { call, task: crate::key("/0/0".parse().unwrap(), 0) };
    let link = mesh.link_between(3, 2);
    mesh.take((3, link), Frame::new(header, Message::Request(request))).unwrap();
    assert_eq!(mesh.on_wire(), ["3-1 FAIL"]);
    let (_, answer) = mesh.wire.pop_back().unwrap();
    let Message::Fail(fail) = answer.frame.message else { panic!("{answer:?}") };
    assert_eq!((fail.cause, fail.executed), (crate::wire::Cause::BadRequest, Executed::No));
}

/// One step of the two ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    Read,
    Deliver,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 0..2_000_usize, 1 => 0..100_000_usize];
    prop_oneof![3 => size.prop_map(Step::Send), 2 => Just(Step::Read), 4 => Just(Step::Deliver)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However the ends take turns and whatever room there is: all that was sent is read, in order;
    /// at most a window is unread; nothing is left.
    #[test]
    fn all_items_arrive_once_and_in_order(
        steps in proptest::collection::vec(step(), 1..200),
        room in prop_oneof![Just(0_usize), Just(100_000), Just(512 << 20)],
    ) {
        let limits = Limits { waiting_item_bytes_max: room, ..Limits::default() };
        let (mut mesh, call) = streaming_to(2, 2, &limits);
        let (mut sent, mut read) = (VecDeque::new(), 0_u64);
        let (mut unread, mut ahead) = (0, VecDeque::new());
        let mut failed = None;
        for (n, step) in (0_u8..=255).cycle().zip(steps) {
            match step {
                Step::Send(size) if mesh.is_writable(call) == Ok(true) => {
                    let item = Bytes::from(vec![n; size]);
                    mesh.send(call, item.clone()).unwrap();
                    sent.push_back(item);
                }
                Step::Deliver if !mesh.wire.is_empty() => mesh.deliver(0),
                Step::Send(_) | Step::Deliver => {}
                Step::Read => match mesh.read_ahead(&mut ahead) {
                    Ok(Some(NextItem::Item(item))) => {
                        prop_assert_eq!(Some(item), sent.pop_front());
                        read += 1;
                    }
                    Ok(None) => {}
                    Ok(Some(NextItem::End)) => prop_assert!(false, "nobody ended it"),
                    Err(failure) => failed = Some(failure),
                },
            }
            unread = unread.max(mesh.items_paid(2));
        }
        mesh.finish_items(call);
        while failed.is_none() {
            mesh.deliver_all();
            match mesh.read_ahead(&mut ahead) {
                Ok(Some(NextItem::Item(item))) => prop_assert_eq!(Some(item), sent.pop_front()),
                Ok(Some(NextItem::End)) => break,
                Ok(None) => prop_assert!(false, "stuck after {read} items, {} left", sent.len()),
                Err(failure) => failed = Some(failure),
            }
        }
        // Only what needs more than there is fails.
        prop_assert!(failed.is_none_or(|why| why == ItemsFailure::NoRoom && room < 512 << 20));
        prop_assert!(failed.is_some() || sent.is_empty());
        prop_assert!(unread <= (256 << 10) + 100_000 + 200 * 64, "{unread}");
        mesh.answer("/0", b"");
        mesh.deliver_all();
        prop_assert_eq!(mesh.items_paid(2), 0);
        prop_assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
    }
}

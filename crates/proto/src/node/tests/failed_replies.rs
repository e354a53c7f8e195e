//! Replies of branches that fail half-way: they make room, and no more of them is taken.

use bytes::Bytes;

use super::super::*;
use super::flow::{cut_stream, is_reply_lost};
use super::mesh::{Mesh, millis};
use super::strangers::{closing, fail, keyed, send};
use crate::call::{CallEvent, CallOptions};
use crate::task::{SendError, TaskFailure};
use crate::wire::{Cause, Entry, Executed, Manifest, Part, Reply, ReplyKind};

/// Room for one large reply at a time.
fn limits() -> Limits {
    Limits { reply_bytes_max: 2 << 20, message_bytes_max: 1 << 20, ..Limits::default() }
}

/// A task sends a large reply, of which the first part comes and the rest is granted.
fn begin(mesh: &mut Mesh, path: &str) {
    let ((at, task), now) = (mesh.task(path), mesh.now);
    mesh.with(at, |node| node.reply(now, &task, Bytes::from(vec![7; 1 << 20])).unwrap());
    mesh.with(at, |node| node.handle_yield(now, &task));
    mesh.deliver_all_but("CREDIT");
}

/// Has branch `/1` of a call send a large reply behind one of `first`, which fails by `end`.
fn expect_room_after(first: &str, end: impl Fn(&mut Mesh, CallId)) {
    let mut mesh = Mesh::connected_with(9, &limits());
    let call = mesh.call(1, &[2, 3, 4, 5, 6, 7, 8], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[9]);
    mesh.deliver_all();
    begin(&mut mesh, first);
    mesh.hold_back("CREDIT");
    begin(&mut mesh, "/1");
    assert_eq!(mesh.on_wire(), [""; 0], "there is room for one alone");
    end(&mut mesh, call);
    mesh.deliver_all();
    let told = mesh.told(1, call);
    assert!(told.contains(&"reply /1".to_owned()), "{told:?}");
    assert_eq!(mesh.nodes[&1].call(call).map(|call| call.committed()), Some(0));
}

#[test]
fn a_branch_that_fails_gives_back_what_it_was_granted() {
    expect_room_after("/0", |mesh, _| {
        let link = mesh.link_between(1, 2);
        for at in [2, 1] {
            mesh.disconnect(at, link);
        }
        mesh.pass(Limits::default().grace);
    });
    expect_room_after("/0", |mesh, call| {
        let key = mesh.key_of(call, "/0");
        send(mesh, 2, 1, keyed(call, "/0", key, fail(None, Executed::Yes))).unwrap();
    });
}

#[test]
fn a_branch_that_is_given_up_gives_back_what_it_was_granted() {
    expect_room_after("/0/0", |mesh, _| {
        let ((_, task), now) = (mesh.task("/0"), mesh.now);
        let mut failure = TaskFailure::new(Cause::Application, Executed::Yes, "no");
        failure.aborts_children = true;
        mesh.with(2, |node| node.fail(now, &task, failure));
    });
}

/// The report that the connection to a child has ended leaves at once, and as an answer to a
/// question. It said that the task had failed, as which its branch ended: without its reply, and
/// with the cause alone.
#[test]
fn a_task_that_loses_a_child_fails_behind_its_replies_and_in_its_own_words() {
    for is_asked in [false, true] {
        let mut mesh = Mesh::connected_with(3, &limits());
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        mesh.delegate("/0", &[3]);
        mesh.deliver_all();
        begin(&mut mesh, "/0");
        let ((_, task), now) = (mesh.task("/0"), mesh.now);
        let mut failure = TaskFailure::new(Cause::Application, Executed::No, "no leader");
        failure.code = 7;
        mesh.with(2, |node| node.fail(now, &task, failure));
        let credit = mesh.hold_back("CREDIT");
        let link = mesh.link_between(2, 3);
        [2, 3].iter().for_each(|at| mesh.disconnect(*at, link));
        if is_asked {
            assert_eq!(mesh.hold_back("LINK_DOWN").len(), 1, "the first is lost");
            mesh.pass(millis(50));
        }
        mesh.deliver_all_but("CREDIT");
        assert!(mesh.told(1, call).is_empty(), "the branch goes on, asked: {is_asked}");
        mesh.wire.extend(credit);
        mesh.deliver_all();
        mesh.answer("/0/0", b"");
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert_eq!(told.len(), 4, "asked: {is_asked}, {told:?}");
        assert_eq!(told[0], "reply /0");
        assert!(told[1].contains("no leader") && told[1].contains("did not run"), "{told:?}");
        assert_eq!(told[2..], ["reply /0/0", "Partial"]);
    }
}

/// The word that a task has ended and opened so many branches.
fn ended(path: &str, children: u32, replies: u32) -> Message {
    let entry = Entry { children, replies, ..closing(path) };
    Message::Manifest(Manifest { own: Some(entry), inherited: Vec::new() })
}

/// A reply that is not whole: the first byte of a message, or an item of a stream.
fn unfinished(index: u32, item: Option<u64>) -> Message {
    let first = Some(Part { offset: 0, total: 100 });
    let (kind, part) = match item {
        Some(seq) => (ReplyKind::Item { seq, is_last: false }, None),
        None => (ReplyKind::Message, first),
    };
    let payload = Bytes::from_static(b"x");
    Message::Reply(Reply { index, kind, part, is_final: false, ..Reply::sole(payload) })
}

/// It waits for what hangs below it, so nothing that it says fails it.
#[test]
fn a_branch_that_has_ended_begins_no_reply_that_it_did_not_declare() {
    let (mut mesh, call) = Mesh::calling(2, &[2]);
    let key = mesh.key_of(call, "/0");
    send(&mut mesh, 2, 1, keyed(call, "/0", key, ended("/0", 1, 0))).unwrap();
    for index in 0..1_000 {
        send(&mut mesh, 2, 1, keyed(call, "/0", key, unfinished(index, None))).unwrap();
        assert_eq!(mesh.nodes[&1].call(call).map(|call| call.committed()), Some(0));
    }
    assert_eq!(mesh.hold_back("CREDIT").len(), 1_000, "its task is told that nobody reads it");
}

/// A call of roots `/0` to `/6` whose branch `/0` has failed, and names `/0/0` at node 9 late.
fn naming_late() -> (Mesh, CallId) {
    let mut mesh = Mesh::connected_with(9, &limits());
    let call = mesh.call(1, &[2, 3, 4, 5, 6, 7, 8], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[9]);
    mesh.deliver_all();
    let key = mesh.key_of(call, "/0");
    send(&mut mesh, 9, 1, keyed(call, "/0", key, fail(None, Executed::Yes))).unwrap();
    send(&mut mesh, 9, 1, keyed(call, "/0", key, ended("/0", 1, 0))).unwrap();
    (mesh, call)
}

/// It is not waited for, so nothing that ends it would give back what it was granted.
#[test]
fn a_branch_that_is_only_named_begins_no_large_reply_after_its_word() {
    let (mut mesh, call) = naming_late();
    let key = mesh.key_of(call, "/0").child(0);
    send(&mut mesh, 9, 1, keyed(call, "/0/0", key, ended("/0/0", 0, 1))).unwrap();
    begin(&mut mesh, "/0/0");
    assert_eq!(mesh.nodes[&1].call(call).map(|call| call.committed()), Some(0));
    mesh.hold_back("CREDIT");
    begin(&mut mesh, "/1");
    mesh.deliver_all();
    let told = mesh.told(1, call);
    assert!(told.contains(&"reply /1".to_owned()), "{told:?}");
}

#[test]
fn a_branch_that_is_only_named_is_waited_for_once_its_reply_begins() {
    let (mut mesh, call) = naming_late();
    begin(&mut mesh, "/0/0");
    mesh.deliver_all();
    let told = mesh.told(1, call);
    assert!(told.contains(&"reply /0/0".to_owned()), "{told:?}");
}

/// It began a stream before it said that it has none.
#[test]
fn a_gap_of_a_branch_that_owes_nothing_gives_back_what_it_was_granted() {
    let (mut mesh, call, task, stream) = cut_stream(&[2, 3], (3, 2));
    let (key, now) = (mesh.key_of(call, "/0"), mesh.now);
    let items = [Bytes::from_static(b"later")];
    mesh.with(2, |node| node.stream_items(now, &task, stream, items).unwrap());
    mesh.with(2, |node| node.handle_yield(now, &task));
    mesh.deliver_all();
    send(&mut mesh, 2, 1, keyed(call, "/0", key, ended("/0", 1, 0))).unwrap();
    mesh.events(1, call);
    let committed = |mesh: &Mesh| mesh.nodes[&1].call(call).map(|call| call.committed());
    assert_ne!(committed(&mesh), Some(0));
    mesh.hold_back("CREDIT");
    mesh.pass(Limits::default().grace);
    assert_eq!(committed(&mesh), Some(0));
    assert_eq!(mesh.hold_back("CREDIT").len(), 1, "its task is told that nobody reads it");
}

/// It was told so once, but that was lost with its connection.
#[test]
fn a_task_whose_branch_has_failed_is_told_again_that_nobody_reads_its_stream() {
    let (mut mesh, call, task, stream) = cut_stream(&[2, 3], (3, 2));
    let give = |mesh: &mut Mesh| {
        let now = mesh.now;
        let items = [Bytes::from_static(b"one")];
        let given = mesh.with(2, |node| node.stream_items(now, &task, stream, items));
        mesh.with(2, |node| node.handle_yield(now, &task));
        given
    };
    give(&mut mesh).unwrap();
    mesh.deliver_all();
    mesh.pass(Limits::default().grace);
    assert_eq!(mesh.hold_back("CREDIT").len(), 1);
    let replies = |mesh: &mut Mesh| {
        let told = mesh.events(1, call);
        told.iter().filter(|event| matches!(event, CallEvent::Reply(_))).count()
    };
    assert_eq!(replies(&mut mesh), 3);
    let second = mesh.link_between(1, 2);
    for at in [2, 1] {
        mesh.disconnect(at, second);
    }
    mesh.connect(1, 2);
    give(&mut mesh).unwrap();
    mesh.deliver_all();
    assert_eq!(give(&mut mesh), Err(SendError::Ended));
    assert_eq!(replies(&mut mesh), 0, "it is not read from where it was lost");
}

/// Found by the simulation: what came after a reply had been given up was delivered from its
/// beginning again.
#[test]
fn a_reply_that_was_given_up_does_not_begin_again() {
    let (mut mesh, call) = Mesh::calling(2, &[2]);
    let key = mesh.key_of(call, "/0");
    let item = || {
        let kind = ReplyKind::Item { seq: 0, is_last: false };
        let item = Reply { kind, is_final: false, ..Reply::sole(Bytes::from_static(b"again")) };
        keyed(call, "/0", key, Message::Reply(item))
    };
    send(&mut mesh, 2, 1, item()).unwrap();
    assert_eq!(mesh.told(1, call), ["reply /0"]);
    for _ in 0..2 {
        send(&mut mesh, 2, 1, keyed(call, "/0", key, fail(None, Executed::Yes))).unwrap();
        send(&mut mesh, 2, 1, item()).unwrap();
        let told = mesh.told(1, call);
        assert!(!told.contains(&"reply /0".to_owned()), "{told:?}");
    }
}

/// One that says of many streams that it has sent what has not come is watched for one of them.
#[test]
fn a_branch_with_many_gaps_hides_none_of_another() {
    let (mut mesh, call, task, stream) = cut_stream(&[2, 3], (3, 2));
    let key = mesh.key_of(call, "/1");
    for index in 0..1_024 {
        let (kind, part) =
            (ReplyKind::Item { seq: 1, is_last: false }, Part { offset: 0, total: 9 });
        let mark =
            Reply { index, kind, part: Some(part), is_final: false, ..Reply::sole(Bytes::new()) };
        send(&mut mesh, 3, 1, keyed(call, "/1", key, Message::Reply(mark))).unwrap();
    }
    let now = mesh.now;
    let items = [Bytes::from_static(b"later")];
    mesh.with(2, |node| node.stream_items(now, &task, stream, items).unwrap());
    mesh.with(2, |node| node.handle_yield(now, &task));
    mesh.deliver_all();
    mesh.pass(millis(20));
    let told = mesh.events(1, call);
    assert!(told.iter().any(is_reply_lost), "{told:?}");
}

/// A stream that goes on by the connection that is left is waited for in its turn, and the next,
/// which lost items with the other, for the grace.
#[test]
fn a_gap_that_is_waited_for_longer_hides_none_of_the_same_branch() {
    let (mut mesh, call, task, stream) = cut_stream(&[2, 3], (3, 2));
    let key = mesh.key_of(call, "/0");
    mesh.pass(millis(1));
    for seq in [0, 2] {
        let item = unfinished(stream + 1, Some(seq));
        send(&mut mesh, 2, 1, keyed(call, "/0", key, item)).unwrap();
    }
    let now = mesh.now;
    let items = [Bytes::from_static(b"later")];
    mesh.with(2, |node| node.stream_items(now, &task, stream, items).unwrap());
    mesh.with(2, |node| node.handle_yield(now, &task));
    mesh.deliver_all();
    mesh.pass(Limits::default().grace);
    let told = mesh.events(1, call);
    assert!(told.iter().any(is_reply_lost), "{told:?}");
}

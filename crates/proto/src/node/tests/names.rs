//! Nodes that are known by name alone, and nodes that are forgotten.

use super::super::*;
use super::mesh::{Mesh, branch, cast, id, millis, open_one};
use super::strangers::{KEY, frame, in_the_name_of, request, send};
use crate::Outbound;
use crate::call::{CallEvent, CallOptions};
use crate::id::CallId;
use crate::limits::ReplyDial;
use crate::wire::{Cancel, CancelReason, Cause, Executed, Header, ReplyRoute};

/// Nodes 1 and 2, connected, of which 1 has a resolver.
fn resolving(limits: &Limits) -> Mesh {
    let mut mesh = Mesh::connected_with(2, limits);
    mesh.with(1, Node::resolve_by_name);
    mesh
}

#[test]
fn a_request_and_a_cast_dial_a_node_by_its_name_and_fail_within_the_pause() {
    let mut mesh = resolving(&Limits::default());
    let now = mesh.now;
    let call = mesh.with(1, |node| open_one(node, now, 9));
    mesh.with(1, |node| {
        node.send(now, Outbound::new(id(8), Header::without_call(), Message::Cast(cast(1, b"a"))));
    });
    assert_eq!(mesh.dials, [(1, 9), (1, 8)]);
    mesh.with(1, |node| {
        node.note_dial_error(id(9), "nobody has heard of it");
        node.note_resolved(id(9));
        node.handle_dial_failed(now, id(9));
    });
    let told = mesh.told(1, call).join(" ");
    assert!(told.contains("nobody has heard of it"), "{told}");
    mesh.with(1, |node| open_one(node, now, 9));
    assert_eq!(mesh.dials.len(), 2, "it is not dialled within the pause");
    mesh.pass(millis(50));
    let now = mesh.now;
    mesh.with(1, |node| open_one(node, now, 9));
    assert_eq!(mesh.dials.len(), 3);
}

#[test]
fn a_task_delegates_by_name_where_there_is_a_resolver() {
    let mut mesh = Mesh::connected(2);
    mesh.call(2, &[1], CallOptions::default());
    mesh.deliver_all();
    let (at, task) = mesh.task("/0");
    let now = mesh.now;
    let refused = mesh.with(at, |node| node.delegate(now, &task, branch(9)));
    assert!(refused.is_err());
    mesh.with(at, Node::resolve_by_name);
    mesh.with(at, |node| node.delegate(now, &task, branch(9))).expect("it can be dialled");
    mesh.finish("/0");
    assert_eq!(mesh.dials, [(1, 9)]);
}

#[test]
fn no_word_of_a_stranger_dials_by_name() {
    let limits = Limits { reply_dial: ReplyDial::Anybody, ..Limits::default() };
    let mut mesh = resolving(&limits);
    // A request in the name of a node that nobody knows: the reply is for that one.
    let call = CallId { origin: Incarnation::of_random(0x900), seq: 1 };
    let frame = frame(call, "/0/0", request(KEY, in_the_name_of(9), 1));
    assert_eq!(send(&mut mesh, 2, 1, frame), Ok(()));
    mesh.answer("/0/0", b"for node 9");
    let now = mesh.now;
    let cancel = Cancel { reason: CancelReason::Caller, budget_us: 1_000_000 };
    mesh.with(1, |node| {
        node.send(now, Outbound::new(id(8), Header::without_call(), Message::Cancel(cancel)));
    });
    mesh.pass(millis(1_000));
    assert_eq!(mesh.dials, []);
}

#[test]
fn where_others_say_that_a_node_is_and_whether_this_one_wants_it_is_told() {
    let limits = Limits { reply_dial: ReplyDial::Anybody, ..Limits::default() };
    let (mut mesh, at) = (resolving(&limits), vec!["test://9".parse().unwrap()]);
    let call = CallId { origin: Incarnation::of_random(0x900), seq: 1 };
    let route = ReplyRoute::Node { node: id(9), addresses: at.clone() };
    let frame = frame(call, "/0/0", request(KEY, route, 1));
    assert_eq!(send(&mut mesh, 2, 1, frame), Ok(()));
    mesh.answer("/0/0", b"for node 9");
    assert_eq!(mesh.dials, [(1, 9)], "for the reply");
    let now = mesh.now;
    mesh.with(1, |node| {
        assert_eq!((node.links().addresses(id(9)), node.links().heard(id(9))), (at.clone(), at));
        assert!(!node.links().is_called(id(9)), "a reply waits");
        open_one(node, now, 9);
        assert!(node.links().is_called(id(9)), "so does a request");
        node.handle_dial_failed(now, id(9));
        assert!(!node.links().is_called(id(9)), "nothing waits");
        let dialled = open_one(node, now, 9);
        assert!(node.links().is_called(id(9)), "the resolver was not asked, so it is no pause");
        node.cancel_call(now, dialled);
        node.note_resolved(id(9));
        node.handle_dial_failed(now, id(9));
        open_one(node, now, 9);
        assert!(!node.links().is_called(id(9)), "it was asked in vain");
        node.dial_all(now + millis(1_000), [id(9)]);
        assert!(node.links().is_called(id(9)), "nothing waits, but this node wants it");
        // The owner of the endpoint says the same.
        let configured = node.links().addresses(id(9));
        node.configure(id(9), configured);
        assert_eq!(node.links().heard(id(9)), []);
    });
}

#[test]
fn a_forgotten_node_is_disconnected_and_its_branches_fail() {
    let (mut mesh, call) = Mesh::calling(2, &[2]);
    let link = mesh.link_between(1, 2);
    let now = mesh.now;
    mesh.with(1, |node| {
        node.configure(id(2), vec!["test://2".parse().unwrap()]);
        node.forget(now, id(2));
        assert!(node.links().addresses(id(2)).is_empty());
    });
    assert_eq!(mesh.resets, [(1, link)]);
    mesh.pass(millis(100));
    let events = mesh.events(1, call);
    let failed = events.iter().any(|event| {
        matches!(event, CallEvent::Failure(failure)
            if failure.cause == Cause::NodeDown && failure.executed == Executed::Maybe)
    });
    assert!(failed, "{events:?}");
    mesh.with(1, |node| open_one(node, now, 2));
    assert_eq!(mesh.dials, [], "nobody knows where it is");
}

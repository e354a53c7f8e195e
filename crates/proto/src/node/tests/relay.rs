//! An initiator that only its first server knows: replies go back through the parents.

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, branch, id, millis};
use crate::call::{CallEvent, CallOptions};
use crate::id::CallId;

/// 1 is connected with 2 alone, which it has called; 2, 3 and 4 are connected with each other.
fn hidden_client() -> (Mesh, CallId) {
    let mut mesh = Mesh::new(4, &Limits::default());
    for (one, other) in [(1, 2), (2, 3), (2, 4), (3, 4)] {
        mesh.connect(one, other);
    }
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    (mesh, call)
}

#[test]
fn replies_come_back_hop_by_hop_and_say_that_they_were_relayed() {
    let (mut mesh, call) = hidden_client();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    mesh.deliver_all();
    mesh.delegate("/0/0", &[4]);
    mesh.finish("/0/0");
    mesh.deliver_all();
    mesh.answer("/0/0/0", b"far away");
    assert_eq!(mesh.on_wire(), ["4-3 REPLY"]);
    mesh.deliver_all();
    let events = mesh.events(1, call);
    let CallEvent::Reply(reply) = &events[0] else { panic!("{events:?}") };
    assert_eq!((reply.from, reply.is_authenticated), (id(4), false));
    assert_eq!(events.len(), 2);
}

/// Found by the simulation: what a parent's neighbour had relayed was taken for the way of the whole visit,
/// and lost where parent and child were at the same node.
#[test]
fn a_reply_finds_its_way_back_through_a_node_twice() {
    let (mut mesh, call) = hidden_client();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    mesh.deliver_all();
    mesh.delegate("/0/0", &[2]);
    mesh.finish("/0/0");
    mesh.deliver_all();
    mesh.delegate("/0/0/0", &[3]);
    mesh.finish("/0/0/0");
    mesh.deliver_all();
    mesh.answer("/0/0/0/0", b"to and fro");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0/0/0", "Complete"]);
}

#[test]
fn credit_goes_down_the_way_the_reply_came_up() {
    let (mut mesh, call) = hidden_client();
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(2, |node| {
        node.delegate(now, &task, branch(3)).unwrap();
        node.finish(now, &task);
    });
    mesh.deliver_all();
    mesh.delegate("/0", &[4]);
    mesh.finish("/0");
    mesh.deliver_all();
    let (at, task) = mesh.task("/0/0");
    assert_eq!(at, 4, "below a tail: 2 knows only 3");
    mesh.with(4, |node| {
        node.reply(now, &task, Bytes::from(vec![1; 100_000])).unwrap();
        node.finish(now, &task);
    });
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0", "Complete"]);
}

/// Found by the simulation: a node that the initiator cannot reach was taken for dead as soon as the
/// initiator worried.
#[test]
fn a_node_out_of_reach_is_asked_through_the_root() {
    let (mut mesh, call) = hidden_client();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    mesh.deliver_all();
    for _ in 0..10 {
        mesh.pass(millis(100));
        assert!(mesh.on_wire().iter().all(|line| line == "1-2 PROBE"), "{:?}", mesh.on_wire());
        mesh.deliver_all();
    }
    assert_eq!(mesh.end(1, call), None);
    mesh.answer("/0/0", b"slow");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0", "Complete"]);
}

/// Found by the simulation: when the budget was up, giving up the dial began another one at once, for ever.
#[test]
fn a_dial_of_the_initiator_is_tried_once() {
    let limits = Limits { reply_dial: crate::limits::ReplyDial::Anybody, ..Limits::default() };
    let mut mesh = Mesh::new(3, &limits);
    mesh.connect(1, 2);
    mesh.connect(2, 3);
    mesh.nodes.get_mut(&3).unwrap().configure(id(1), vec!["test://1".parse().unwrap()]);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    mesh.deliver_all();
    mesh.answer("/0/0", b"patience");
    assert_eq!(mesh.dials, [(3, 1)]);
    assert!(mesh.wire.is_empty());
    mesh.pass(Duration::from_secs(1));
    assert_eq!(mesh.dials.len(), 1);
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0", "Complete"]);
}

//! Calls that end by a predicate.

use std::collections::BTreeSet;

use super::super::*;
use super::mesh::Mesh;
use crate::call::{CallOptions, Decision, End, Predicate};
use crate::task::TaskFailure;
use crate::wire::{Cause, Executed};

/// Replies of `k` distinct authenticated nodes.
fn distinct(k: usize) -> Predicate {
    Box::new(move |tally| {
        let voices = tally.replies.iter().filter(|d| d.is_authenticated);
        let count = voices.map(|d| d.from).collect::<BTreeSet<_>>().len();
        let needed = k.saturating_sub(count) as u64;
        match tally.max_remaining {
            _ if needed == 0 => Decision::Done,
            Some(most) if most < needed => Decision::Impossible,
            _ => Decision::Continue,
        }
    })
}

fn options(k: usize) -> CallOptions {
    CallOptions { predicate: Some(distinct(k)), is_flat: true, ..CallOptions::default() }
}

fn fail(mesh: &mut Mesh, path: &str) {
    let (at, task) = mesh.task(path);
    let now = mesh.now;
    let failure = TaskFailure::new(Cause::Application, Executed::Yes, "no");
    mesh.with(at, |node| node.fail(now, &task, failure));
    mesh.deliver_all();
}

#[test]
fn a_quorum_is_decided_by_the_reply_that_makes_it() {
    let (mut mesh, call) = Mesh::calling_with(4, &[2, 3, 4], options(2));
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.end(1, call), None);
    mesh.answer("/2", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "reply /2", "Decided"]);
    assert!(mesh.stops.is_empty(), "a write must still reach the slow member");
}

#[test]
fn two_branches_at_one_node_are_one_voice() {
    let (mut mesh, call) = Mesh::calling_with(3, &[2, 2, 3], options(2));
    mesh.answer("/0", b"");
    mesh.answer("/1", b"");
    mesh.deliver_all();
    assert_eq!(mesh.end(1, call), None);
}

#[test]
fn a_quorum_is_impossible_with_the_failure_that_makes_it_so() {
    let (mut mesh, call) = Mesh::calling_with(4, &[2, 3, 4], options(2));
    fail(&mut mesh, "/0");
    assert_eq!(mesh.end(1, call), None);
    fail(&mut mesh, "/1");
    assert_eq!(mesh.end(1, call), Some(End::Impossible));
}

/// Found by the simulation: what can still come is known with the seal, but the predicate was not asked.
#[test]
fn a_seal_can_make_a_quorum_impossible() {
    let mut mesh = Mesh::connected(2);
    let now = mesh.now;
    let call = mesh.with(1, |node| node.open_call(now, None, options(2)).unwrap());
    mesh.with(1, |node| {
        let root = super::mesh::id(2);
        node.open_branch(now, call, root, super::mesh::METHOD, Vec::new(), Bytes::new()).unwrap();
    });
    assert_eq!(mesh.end(1, call), None);
    mesh.with(1, |node| node.seal_call(now, call));
    assert_eq!(mesh.end(1, call), Some(End::Impossible));
}

#[test]
fn late_replies_come_to_who_asked_for_them() {
    let (mut mesh, call) =
        Mesh::calling_with(3, &[2, 3], CallOptions { keeps_late: true, ..options(1) });
    mesh.answer("/0", b"");
    mesh.answer("/1", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Decided", "late /1"]);
}

#[test]
fn a_read_only_quorum_cancels_what_is_late() {
    let (mut mesh, _) =
        Mesh::calling_with(3, &[2, 3], CallOptions { cancels_late: true, ..options(1) });
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.stops.iter().map(|(at, ..)| *at).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_call_whose_caller_decides_runs_on_and_is_counted_to_its_end() {
    let mut mesh = Mesh::connected(3);
    let call = mesh.call(1, &[2, 3], CallOptions::default());
    mesh.deliver_all();
    mesh.answer("/0", b"");
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, false));
    mesh.deliver_all();
    assert!(mesh.stops.is_empty(), "the other one runs on");
    assert_eq!(mesh.nodes[&1].initiator().call_count(), 1, "and is counted");
    mesh.answer("/1", b"");
    mesh.deliver_all();
    let initiator = mesh.nodes[&1].initiator();
    assert_eq!((initiator.call_count(), initiator.unsettled_count()), (0, 0));

    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, true));
    mesh.deliver_all();
    assert_eq!(mesh.stops.len(), 1);
}

#[test]
fn an_initiator_that_asks_is_told_of_requests_that_left_and_of_branches_without_a_reply() {
    let options = CallOptions { tells_silent: true, tells_sent: true, ..CallOptions::default() };
    let mut mesh = Mesh::connected(4);
    let call = mesh.call(1, &[2, 3, 1], options);
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["sent /0", "sent /1"], "what is for itself goes nowhere");
    mesh.finish("/0");
    mesh.delegate("/1", &[4]);
    mesh.finish("/1");
    mesh.answer("/2", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /2", "silent /0"], "the second has moved on");
}

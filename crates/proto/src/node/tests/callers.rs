//! Calls whose callers have enough early, or want to know more.

use std::collections::BTreeSet;

use super::mesh::Mesh;
use crate::call::CallOptions;

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
fn a_node_that_leaves_stops_what_runs_for_calls_that_are_undecided() {
    for tells_silent in [false, true] {
        // The second kind of call never is flat.
        let options = CallOptions { tells_silent, ..CallOptions::default() };
        let mut mesh = Mesh::connected(4);
        let decided = mesh.call(1, &[2], options);
        let open = mesh.call(1, &[2, 3], options);
        mesh.deliver_all();
        mesh.delegate("/1", &[4]);
        mesh.deliver_all();
        let now = mesh.now;
        mesh.with(1, |node| node.decide_call(now, decided, false));
        mesh.with(1, |node| node.give_up_calls(now));
        assert_eq!(mesh.nodes[&1].initiator().open_count(), 1, "it does not end by this");
        mesh.deliver_all();
        let stopped: BTreeSet<_> =
            mesh.stops.iter().map(|(at, task, _)| (*at, task.call)).collect();
        assert_eq!(stopped, [2, 3, 4].map(|at| (at, open)).into(), "and not what is decided");
    }
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

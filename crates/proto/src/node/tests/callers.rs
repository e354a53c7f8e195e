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

/// A branch that streams says nothing more once all of it is here, whichever of its items and its
/// entry comes last; the caller is told where it asked for it.
#[test]
fn the_end_of_what_a_branch_streams_is_told() {
    for (is_last_marked, tells_silent) in [(true, true), (false, true), (true, false)] {
        let mut mesh = Mesh::connected(2);
        let options = CallOptions { tells_silent, ..CallOptions::default() };
        let call = mesh.call(1, &[2], options);
        mesh.deliver_all();
        let ((_, task), now) = (mesh.task("/0"), mesh.now);
        mesh.with(2, |node| {
            let stream = node.stream(now, &task).unwrap();
            let items = [&b"one"[..], b"two"].map(bytes::Bytes::from_static);
            node.stream_items(now, &task, stream, items).unwrap();
            if !is_last_marked {
                node.handle_yield(now, &task);
            }
            node.stream_end(now, &task, stream).unwrap();
            node.finish(now, &task);
        });
        mesh.deliver_all();
        let told = mesh.told(1, call);
        let silent = told.iter().filter(|told| *told == "silent /0").count();
        assert_eq!(silent, usize::from(tells_silent), "{told:?}");
        assert_eq!(told.last().map(String::as_str), Some("Complete"));
        assert!(told.iter().take(2).all(|told| told == "reply /0"), "{told:?}");
    }
}

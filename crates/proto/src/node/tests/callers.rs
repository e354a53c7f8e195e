//! Calls whose callers have enough early, or want to know more.

use std::collections::{BTreeSet, VecDeque};

use super::mesh::{Mesh, id, millis};
use crate::call::{CallEvent, CallOptions, End};
use crate::limits::Limits;
use crate::task::{SendError, TaskFailure};
use crate::wire::{Cause, Executed};

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

/// A driver takes one lock for them, and one less to let the call go.
#[test]
fn replies_that_are_there_are_handed_out_together_and_the_last_ones_with_the_end() {
    let mut mesh = Mesh::connected(5);
    let call = mesh.call(1, &[2, 3, 4, 5], CallOptions::default());
    mesh.deliver_all();
    let mut ahead = VecDeque::new();
    let mut read = |mesh: &mut Mesh, branches: &[&'static str]| {
        branches.iter().for_each(|branch| mesh.answer(branch, branch.as_bytes()));
        mesh.deliver_all();
        let (first, end) = mesh.with(1, |node| node.poll_last(call, &mut ahead)).expect("replies");
        let CallEvent::Reply(first) = first else { panic!("{first:?}") };
        let all = std::iter::once(first).chain(ahead.drain(..));
        let all: Vec<_> = all.map(|one| (one.path.to_string(), one.payload)).collect();
        let expected = branches.iter().map(|one| ((*one).to_owned(), (*one).to_owned().into()));
        assert_eq!(all, expected.collect::<Vec<_>>(), "in order of arrival");
        end
    };
    assert_eq!(read(&mut mesh, &["/2", "/0", "/3"]), None);
    assert_eq!(read(&mut mesh, &["/1"]), Some(End::Complete));
    assert_eq!(mesh.nodes[&1].initiator().call_count(), 0);
}

/// One member of five has failed and another never answers; those that do are a majority. Or they
/// say what does not count, and there can be none.
#[test]
fn who_was_told_a_failure_is_called_for_the_next_reply() {
    for has_reply_behind in [false, true] {
        let mut mesh = Mesh::connected(6);
        let options = CallOptions { wake_after: 3, ..CallOptions::default() };
        let call = mesh.call(1, &[2, 3, 4, 5, 6], options);
        mesh.deliver_all();
        let (now, (at, task)) = (mesh.now, mesh.task("/0"));
        let failure = TaskFailure::new(Cause::Application, Executed::Yes, "no");
        mesh.with(at, |node| node.fail(now, &task, failure));
        if has_reply_behind {
            mesh.answer("/1", b"");
        }
        mesh.deliver_all();
        let mut ahead = VecDeque::new();
        let first = mesh.with(1, |node| node.poll_last(call, &mut ahead));
        assert!(matches!(first, Some((CallEvent::Failure(_), None))), "{first:?}");
        assert_eq!(ahead.len(), usize::from(has_reply_behind));
        let ready = |mesh: &mut Mesh| mesh.nodes.get_mut(&1).and_then(|node| node.poll_ready());
        while ready(&mut mesh).is_some() {}
        mesh.answer("/2", b"");
        mesh.deliver_all();
        assert_eq!(ready(&mut mesh), Some(call));
    }
}

#[test]
fn a_node_that_leaves_stops_and_ends_the_calls_that_are_undecided() {
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
        mesh.answer("/0", b"");
        mesh.deliver_all();
        mesh.with(1, |node| node.end_calls(now));
        let left = "branch /1 at n3: it was cancelled: the endpoint that made the call has been \
                    shut down, or its runtime is gone: make it by another (it may have run)";
        assert_eq!(mesh.told(1, open), ["reply /0", left, "Partial"]);
        assert_eq!(mesh.nodes[&1].initiator().open_count(), 0);
        mesh.deliver_all();
        assert!(mesh.told(1, open).is_empty(), "an end is final");
        let stopped: BTreeSet<_> =
            mesh.stops.iter().map(|(at, task, _)| (*at, task.call)).collect();
        assert_eq!(stopped, [3, 4].map(|at| (at, open)).into(), "and not what is decided");
    }
}

#[test]
fn who_asks_nobody_is_called_at_once() {
    let mut mesh = Mesh::connected(1);
    let call = mesh.call(1, &[], CallOptions::default());
    assert_eq!(mesh.nodes.get_mut(&1).and_then(|node| node.poll_ready()), Some(call));
    assert_eq!(mesh.told(1, call), ["Complete"]);
}

/// As told of a branch whose request could not leave any more.
fn unsent(branch: &str) -> String {
    format!(
        "branch {branch}: no connection to the node could be made: the endpoint that was to send \
         the request has been shut down, or its runtime is gone: ask by another (it did not run)"
    )
}

#[test]
fn what_waits_for_a_dial_does_not_leave_once_the_calls_of_a_node_have_ended() {
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], CallOptions::default());
    let now = mesh.now;
    mesh.with(1, |node| node.end_calls(now));
    let told = [unsent("/0 at n2"), "Partial".into()];
    assert_eq!(mesh.told(1, call), told);
    let later = mesh.call(1, &[2], CallOptions::default());
    assert_eq!(mesh.told(1, later), told);
    assert_eq!(mesh.dials, [(1, 2)], "and nobody is dialled again");
    assert_eq!(mesh.nodes[&1].initiator().unsettled_count(), 0);
    mesh.connect(1, 2);
    assert_eq!(mesh.on_wire(), [""; 0]);
}

#[test]
fn who_writes_items_of_a_call_is_told_that_the_calls_of_its_node_have_ended() {
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], CallOptions { sends_items: true, ..CallOptions::default() });
    assert_eq!(mesh.with(1, |node| node.poll_items_writable(call)), Ok(false));
    let now = mesh.now;
    mesh.with(1, |node| node.end_calls(now));
    assert_eq!(mesh.writable, [1]);
    let writable = mesh.with(1, |node| node.poll_items_writable(call));
    assert_eq!(writable, Err(SendError::Ended));
}

#[test]
fn the_branch_of_a_task_that_waits_for_a_dial_is_reported_by_a_node_that_leaves() {
    let mut mesh = Mesh::new(3, &Limits::default());
    mesh.connect(1, 2);
    mesh.with(2, |node| node.configure(id(3), vec!["test://3".parse().unwrap()]));
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[3]);
    mesh.deliver_all();
    assert!(mesh.told(1, call).is_empty(), "node 3 is being dialled");
    let now = mesh.now;
    mesh.with(2, |node| node.end_calls(now));
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), [unsent("/0/0 at n3")]);
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

/// Others cause such calls, and must not have this node connect to where they say.
#[test]
fn a_call_that_never_dials_fails_where_no_connection_is_up() {
    let address = || vec!["test://2".parse().unwrap()];
    let options = CallOptions { never_dials: true, ..CallOptions::default() };
    let mut mesh = Mesh::dialling();
    mesh.nodes.get_mut(&1).unwrap().resolve_by_name();
    for unknown in [2, 3] {
        let call = mesh.call(1, &[unknown], options);
        let told = mesh.told(1, call);
        assert!(told[0].contains("(it did not run)"), "{told:?}");
    }
    assert_eq!(mesh.dials, []);
    mesh.call(1, &[2], CallOptions::default());
    assert_eq!(mesh.dials, [(1, 2)], "others do");
    // Neither when the connection is lost, however long its end is asked for, nor as it is let go.
    for (traces, lets_go) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut mesh = Mesh::connected(2);
        mesh.nodes.get_mut(&1).unwrap().resolve_by_name();
        mesh.nodes.get_mut(&1).unwrap().configure(id(2), address());
        let call = mesh.call(1, &[2], CallOptions { traces, ..options });
        mesh.deliver_all();
        let link = mesh.link_between(1, 2);
        [1, 2].into_iter().for_each(|at| mesh.disconnect(at, link));
        if lets_go {
            let now = mesh.now;
            mesh.with(1, |node| node.detach_call(now, call));
        }
        for _ in 0..2_500 {
            mesh.pass(millis(10));
        }
        assert_eq!(mesh.dials, []);
        assert_eq!(mesh.nodes[&1].initiator().unsettled_count(), 0);
    }
}

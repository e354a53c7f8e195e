//! Replies, streams, credits, deadlines, bounds.

use std::collections::VecDeque;

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, branch, cast, id, millis, root_branch};
use crate::call::{CallEvent, CallOptions, End};
use crate::mailbox::{CallName, MailKey};
use crate::share::Pool;
use crate::task::{SendError, TaskFailure};
use crate::wire::{Cause, Executed, Header, Part, Reply, ReplyKind};

#[test]
fn one_branch_and_one_reply_cost_two_frames() {
    let mut mesh = Mesh::connected(2);
    let call = mesh.call(1, &[2], CallOptions::default());
    assert_eq!(mesh.on_wire(), ["1-2 REQUEST"]);
    mesh.deliver_all();
    mesh.answer("/0", b"yes");
    assert_eq!(mesh.on_wire(), ["2-1 REPLY"]);
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

#[test]
fn a_reply_skips_the_hops_back() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(2, |node| {
        node.delegate(now, &task, branch(3)).unwrap();
        node.finish(now, &task);
    });
    assert_eq!(mesh.on_wire(), ["2-3 REQUEST"], "a tail costs no frame of its own");
    mesh.deliver_all();
    mesh.answer("/0", b"from 3");
    assert_eq!(mesh.on_wire(), ["3-1 REPLY"]);
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

#[test]
fn a_call_to_the_node_itself_sends_no_frame() {
    let mut mesh = Mesh::connected(2);
    let call = mesh.call(1, &[1], CallOptions::default());
    mesh.answer("/0", b"");
    assert!(mesh.wire.is_empty());
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

#[test]
fn a_refused_request_passes_on_what_it_carried() {
    let limits = Limits { tasks_max: 0, ..Limits::default() };
    let mut mesh = Mesh::connected(2);
    mesh.start(3, &limits);
    mesh.connect(1, 3);
    mesh.connect(2, 3);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(2, |node| {
        node.delegate(now, &task, branch(3)).unwrap();
        node.delegate(now, &task, branch(3)).unwrap();
        node.finish(now, &task);
    });
    mesh.deliver_all();
    let told = mesh.told(1, call);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("branch /0/0 at n3: the server has no room for another task"));
    assert_eq!(told[2], "Partial", "the entry of /0 came with the refusals");
}

#[test]
fn a_node_without_room_to_remember_refuses_and_keeps_nothing() {
    let limits = Limits { remembered_max: 0, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call).len(), 2);
    let visits = mesh.nodes[&2].visits();
    let kept = (visits.running_count(), visits.remembered_count(), visits.origin_count());
    assert_eq!(kept, (0, 0, 0));
}

/// Found by the simulation: tasks that ran were not counted until they had ended.
#[test]
fn running_tasks_have_their_place_in_memory_reserved() {
    // The initiator, what came from it, and two tasks: as much must stay free.
    let limits = Limits { remembered_max: 7, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    mesh.call(1, &[2, 2, 2], CallOptions::default());
    mesh.deliver_all();
    assert_eq!(mesh.starts.len(), 2);
    mesh.answer("/0", b"");
    mesh.answer("/1", b"");
    assert_eq!(mesh.nodes[&2].visits().remembered_count(), 2);
}

#[test]
fn casts_of_calls_that_never_come_are_bounded_and_forgotten() {
    let limits = Limits { cast_bytes_total_max: 10_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    mesh.with(2, |node| node.mailboxes_mut().know([id(1)]));
    let now = mesh.now;
    for seq in 0..100 {
        let origin = NodeLife { node: id(7), life: Incarnation::of_random(777 << 8) };
        let call = MailKey::Call(CallName { origin, seq });
        mesh.with(1, |node| node.send_casts(now, call, [id(2)], cast(0, b"")));
    }
    mesh.deliver_all();
    let (kept, held) =
        (mesh.nodes[&2].mailboxes().count(), mesh.nodes[&2].mailboxes().held_bytes());
    assert!((5..20).contains(&kept) && held <= 5_000, "{kept} {held}");
    assert_eq!(mesh.nodes[&2].mailboxes().dropped().over_limit, 100 - kept as u64);
    mesh.pass(Duration::from_secs(1));
    assert_eq!(mesh.nodes[&2].mailboxes().count(), 0);
    assert_eq!(mesh.nodes[&2].mailboxes().dropped().expired, kept as u64);
}

/// I22: the mailbox of a participant is there before its request.
#[test]
fn a_cast_before_the_request_waits_for_it() {
    let mut mesh = Mesh::connected(3);
    let call = mesh.call(1, &[2], CallOptions::default());
    let now = mesh.now;
    let origin = NodeLife { node: id(1), life: call.origin };
    let (key, cast) = (MailKey::Call(CallName { origin, seq: call.seq }), cast(1, b""));
    mesh.with(2, |node| node.mailboxes_mut().know([id(3)]));
    mesh.with(3, |node| node.send_casts(now, key, [id(2)], cast.clone()));
    let request = mesh.hold_back("REQUEST");
    mesh.deliver_all();
    mesh.wire.extend(request);
    mesh.deliver_all();
    assert_eq!(mesh.task("/0").0, 2);
    let mut taken = Vec::new();
    mesh.with(2, |node| {
        node.mailboxes_mut().join(key).unwrap();
        node.mailboxes_mut().take(key, &mut taken);
    });
    // It waits no longer.
    assert_eq!(taken, [(id(3), crate::wire::Cast { budget_us: 0, ..cast })]);
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

/// A task at node 2 of a call of node 1, and its stream, with a window of 16 KiB.
fn streaming(roots: &[u64]) -> (Mesh, CallId, TaskRef, u32) {
    let limits = Limits { stream_window_bytes: 16 << 10, ..Limits::default() };
    let mut mesh = Mesh::connected_with(3, &limits);
    let call = mesh.call(1, roots, CallOptions::default());
    mesh.deliver_all();
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    let stream = mesh.with(2, |node| node.stream(now, &task).unwrap());
    (mesh, call, task, stream)
}

/// Sends items of 1 KiB until there is no credit. How many.
fn fill(mesh: &mut Mesh, task: &TaskRef, stream: u32) -> usize {
    let (now, mut sent) = (mesh.now, 0);
    while mesh.with(2, |node| node.stream_credit(task, stream).unwrap() > 0) {
        let item = Bytes::from(vec![0; 1 << 10]);
        mesh.with(2, |node| node.stream_items(now, task, stream, [item]).unwrap());
        mesh.with(2, |node| node.handle_yield(now, task));
        sent += 1;
    }
    mesh.deliver_all();
    sent
}

#[test]
fn a_stream_flows_as_far_as_it_is_read() {
    let (mut mesh, call, task, stream) = streaming(&[2]);
    assert_eq!(fill(&mut mesh, &task, stream), 16, "16 KiB go unscheduled");
    assert_eq!(fill(&mut mesh, &task, stream), 0, "nobody has read");
    assert_eq!(mesh.events(1, call).len(), 16);
    mesh.deliver_all();
    assert!(fill(&mut mesh, &task, stream) >= 8, "topped up once half of the window is used");
}

/// Items handed out with another are granted anew at once; a large one is handed out alone, and a
/// failure stays behind what came before it.
#[test]
fn small_items_of_a_reply_are_handed_out_together_and_in_order() {
    let (mut mesh, call, task, stream) = streaming(&[2]);
    let now = mesh.now;
    for (round, (size, count, together)) in
        [(10, 50, 33), (100, 50, 33), (1_000, 10, 5), (5_000, 3, 1)].into_iter().enumerate()
    {
        for nth in 0..count {
            let item = Bytes::from(vec![nth; size]);
            mesh.with(2, |node| node.stream_items(now, &task, stream, [item]).unwrap());
        }
        mesh.with(2, |node| node.handle_yield(now, &task));
        mesh.deliver_all();
        let (mut ahead, mut read) = (VecDeque::new(), Vec::new());
        while let Some((CallEvent::Reply(first), None)) =
            mesh.with(1, |node| node.poll_last(call, &mut ahead))
        {
            let batch = 1 + ahead.len();
            assert!(!read.is_empty() || batch == together, "round {round}: {batch}");
            read.push(first.payload[0]);
            read.extend(ahead.drain(..).map(|next| next.payload[0]));
            mesh.deliver_all();
        }
        assert_eq!(read, (0..count).collect::<Vec<u8>>(), "round {round}");
    }
    let item = Bytes::from_static(b"last");
    mesh.with(2, |node| node.stream_items(now, &task, stream, [item]).unwrap());
    let failure = TaskFailure::new(Cause::Application, Executed::Yes, "no");
    mesh.with(2, |node| node.fail(now, &task, failure));
    mesh.deliver_all();
    let mut ahead = VecDeque::new();
    let mut next = || mesh.with(1, |node| node.poll_last(call, &mut ahead)).map(|(event, _)| event);
    assert!(matches!(next(), Some(CallEvent::Reply(last)) if last.payload == "last"));
    assert!(matches!(next(), Some(CallEvent::Failure(_))));
    assert!(matches!(next(), Some(CallEvent::Ended(End::Partial))));
}

/// Found by the simulation (relayed, seed 7500000054962): what was unread when the caller had
/// enough took the credit of what came later, and the task waited for it until its deadline.
#[test]
fn a_stream_flows_on_when_its_caller_has_enough_and_has_not_read_it() {
    let (mut mesh, call, task, stream) = streaming(&[2, 3]);
    assert_eq!(fill(&mut mesh, &task, stream), 16);
    mesh.answer("/1", b"");
    mesh.deliver_all();
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, false));
    mesh.deliver_all();
    assert!(fill(&mut mesh, &task, stream) >= 8, "it runs on");
    mesh.with(2, |node| node.finish(now, &task));
    mesh.deliver_all();
    assert_eq!(mesh.nodes[&2].visits().running_count(), 0);
    assert_eq!(mesh.nodes[&1].initiator().unsettled_count(), 0);
}

/// Found by the simulation (relayed, seed 7600000067656): a decided call was settled when all its
/// tasks had ended, and what they still had to send waited for credit until their deadline.
#[test]
fn a_decided_call_is_settled_when_its_tasks_have_sent_all() {
    let (mut mesh, call, task, stream) = streaming(&[2, 3]);
    mesh.answer("/1", b"");
    mesh.deliver_all();
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, false));
    for len in [12 << 10, 20 << 10, 20 << 10, 1] {
        let item = Bytes::from(vec![0; len]);
        mesh.with(2, |node| node.stream_items(now, &task, stream, [item]).unwrap());
    }
    mesh.with(2, |node| node.finish(now, &task));
    assert_eq!(mesh.nodes[&2].visits().running_count(), 1, "most waits for credit");
    mesh.deliver_all();
    assert_eq!(mesh.nodes[&2].visits().running_count(), 0);
    assert_eq!(mesh.nodes[&1].initiator().unsettled_count(), 0);
}

/// A reply that cannot be taken fails its branch, and with it goes all that had begun to come.
#[test]
fn a_task_one_of_whose_replies_is_too_large_does_not_wait_with_the_others() {
    let mut mesh = Mesh::new(2, &Limits::default());
    let (message_bytes_max, stream_window_bytes) = (50_000, 16 << 10);
    mesh.start(1, &Limits { message_bytes_max, stream_window_bytes, ..Limits::default() });
    mesh.connect_all();
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let ((_, task), now) = (mesh.task("/0"), mesh.now);
    for sizes in [vec![1 << 10; 40], vec![60_000]] {
        let items = sizes.iter().map(|size| Bytes::from(vec![0; *size]));
        mesh.with(2, |node| {
            let stream = node.stream(now, &task).unwrap();
            node.stream_items(now, &task, stream, items).unwrap();
        });
        mesh.deliver_all();
    }
    mesh.with(2, |node| node.finish(now, &task));
    mesh.deliver_all();
    let told = mesh.told(1, call);
    assert!(told[16].contains("60000 bytes is larger than its message_bytes_max"), "{told:?}");
    mesh.deliver_all();
    assert_eq!(mesh.nodes[&2].visits().running_count(), 0, "it waits for credit");
}

#[test]
fn a_branch_that_waited_for_a_dial_has_no_more_time_than_its_call() {
    let mut mesh = Mesh::dialling();
    mesh.call(1, &[2], CallOptions::default());
    assert_eq!(mesh.dials, [(1, 2)]);
    mesh.now = mesh.now + Duration::from_nanos(1_500);
    mesh.connect(1, 2);
    let Message::Request(request) = &mesh.wire[0].1.frame.message else { panic!("no request") };
    assert_eq!(request.budget_us, 10_000_000 - 2, "rounded towards less");
}

/// Found by the simulation: a server remembered the branch for longer than its call had time.
#[test]
fn a_branch_that_waited_beyond_its_own_time_has_waited_in_that_of_its_call() {
    let mut mesh = Mesh::dialling();
    let mut own = root_branch(2);
    own.request.budget = Some(millis(100));
    let (options, branches) = (CallOptions::default(), &mut vec![own]);
    let mut opening = Opening { budget: None, options, branches };
    let now = mesh.now;
    mesh.with(1, |node| node.open(now, &mut opening)).unwrap();
    mesh.now = mesh.now + millis(1_000);
    mesh.connect(1, 2);
    let Message::Request(request) = &mesh.wire[0].1.frame.message else { panic!("no request") };
    assert_eq!((request.budget_us, request.outlasted_us), (0, 9_000_000));
}

/// Found by the simulation: marks outlived their calls by the time that a dial had taken.
#[test]
fn a_cancel_that_waited_for_a_dial_has_waited_too() {
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], CallOptions::default());
    let now = mesh.now;
    mesh.with(1, |node| node.cancel_call(now, call));
    mesh.now = mesh.now + millis(100);
    mesh.connect(1, 2);
    let cancel = mesh.hold_back("CANCEL");
    let Message::Cancel(cancel) = &cancel[0].1.frame.message else { panic!("no cancel") };
    assert_eq!(cancel.budget_us, 9_900_000);
}

#[test]
fn a_failed_dial_fails_the_branch_as_not_run() {
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], CallOptions::default());
    let now = mesh.now;
    mesh.with(1, |node| node.handle_dial_failed(now, id(2)));
    let told = mesh.told(1, call);
    assert!(told[0].starts_with("branch /0 at n2: no connection to the node could be made"));
    assert!(told[0].ends_with("(it did not run)"), "{told:?}");
}

#[test]
fn a_deadline_ends_a_call_and_its_tasks() {
    let (mut mesh, call) = Mesh::calling(2, &[2]);
    for _ in 0..3 {
        mesh.pass(Duration::from_secs(4));
    }
    assert_eq!(
        mesh.told(1, call),
        ["branch /0 at n2: the deadline passed (it may have run)", "Partial"]
    );
    assert_eq!(mesh.stops.len(), 1);
}

/// A task at node 2, of a call of node 1, over the first of two connections, and its stream, of
/// which so many items of 1 KiB have come and so many are on their way when that ends.
pub(super) fn cut_stream(
    roots: &[u64],
    (came, on_the_way): (usize, usize),
) -> (Mesh, CallId, TaskRef, u32) {
    let (mut mesh, call, task, stream) = streaming(roots);
    let (now, first) = (mesh.now, mesh.link_between(1, 2));
    mesh.connect(1, 2);
    let give = |mesh: &mut Mesh, count: usize| {
        let items = vec![Bytes::from(vec![0; 1 << 10]); count];
        mesh.with(2, |node| node.stream_items(now, &task, stream, items).unwrap());
        mesh.with(2, |node| node.handle_yield(now, &task));
    };
    give(&mut mesh, came);
    mesh.deliver_all();
    give(&mut mesh, on_the_way);
    assert_eq!(mesh.wire.len(), on_the_way);
    for at in [2, 1] {
        mesh.disconnect(at, first);
    }
    (mesh, call, task, stream)
}

pub(super) fn is_reply_lost(event: &CallEvent) -> bool {
    matches!(event, CallEvent::Failure(failure) if failure.cause == Cause::ReplyLost)
}

/// An item that a stream has lost with a connection is missed as soon as more comes by another, or
/// its task is asked, also when all of its credit was on the way.
#[test]
fn a_stream_that_has_lost_items_with_a_connection_fails_after_the_grace() {
    for (came, on_the_way, later) in [(3, 2, 1), (3, 2, 0), (0, 2, 1), (0, 2, 0), (0, 16, 0)] {
        let (mut mesh, call, task, stream) = cut_stream(&[2], (came, on_the_way));
        let now = mesh.now;
        let items = vec![Bytes::from_static(b"later"); later];
        mesh.with(2, |node| node.stream_items(now, &task, stream, items).unwrap());
        mesh.with(2, |node| node.handle_yield(now, &task));
        mesh.deliver_all();
        for _ in 0..2 {
            mesh.pass(Limits::default().grace);
            mesh.deliver_all();
        }
        let told = mesh.events(1, call);
        let replies = told.iter().filter(|event| matches!(event, CallEvent::Reply(_))).count();
        assert_eq!((replies, told.len()), (came, came + 2), "{on_the_way} {later}: {told:?}");
        assert!(told.iter().any(is_reply_lost), "{told:?}");
        let more = [Bytes::from_static(b"more")];
        let sent = mesh.with(2, |node| node.stream_items(now, &task, stream, more));
        assert_eq!(sent, Err(SendError::Ended), "nobody reads them");
    }
}

#[test]
fn a_stream_that_has_lost_nothing_goes_on_by_another_connection() {
    for came in [0, 3] {
        let (mut mesh, call, task, stream) = cut_stream(&[2], (came, 0));
        for _ in 0..10 {
            mesh.pass(millis(100));
            mesh.deliver_all();
        }
        let now = mesh.now;
        let items = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        mesh.with(2, |node| node.stream_items(now, &task, stream, items).unwrap());
        mesh.with(2, |node| node.finish(now, &task));
        mesh.deliver_all();
        let mut expected = vec!["reply /0"; came + 2];
        expected.push("Complete");
        assert_eq!(mesh.told(1, call), expected);
    }
}

/// The first part of a reply that waits for credit was lost.
#[test]
fn a_large_reply_that_was_lost_with_a_connection_fails_after_the_grace() {
    let (mut mesh, call) = Mesh::calling(2, &[2]);
    let (now, first) = (mesh.now, mesh.link_between(1, 2));
    mesh.connect(1, 2);
    let (_, task) = mesh.task("/0");
    mesh.with(2, |node| node.answer(now, &task, Bytes::from(vec![7; 600_000])).unwrap());
    for at in [2, 1] {
        mesh.disconnect(at, first);
    }
    mesh.deliver_all();
    for _ in 0..2 {
        mesh.pass(Limits::default().grace);
        mesh.deliver_all();
    }
    let told = mesh.events(1, call);
    assert!(is_reply_lost(&told[0]) && told.len() == 2, "{told:?}");
    assert_eq!(mesh.nodes[&2].links().shares().used(Pool::Replies), 0, "it waits for nobody");
}

/// However many items a handler gives at once, the same frames leave, and the last one is held.
#[test]
fn items_that_are_given_together_leave_as_those_given_one_by_one() {
    let given = |together: usize| {
        let (mut mesh, _, task, stream) = streaming(&[2]);
        let now = mesh.now;
        let sizes = [10, 0, 3_000, 10, 8_000, 40, 20_000, 7, 7];
        let items: Vec<_> = sizes.map(|size| Bytes::from(vec![7; size])).to_vec();
        let mut left = Vec::new();
        for items in items.chunks(together) {
            let items = items.to_vec();
            left.push(mesh.with(2, |node| node.stream_items(now, &task, stream, items)).unwrap());
        }
        let on_wire = format!("{:#?}", mesh.wire);
        mesh.with(2, |node| node.finish(now, &task));
        let node = &mesh.nodes[&2];
        node.audit_shares().unwrap();
        let record = node.visits().snapshot(task.call, &task.task, task.key());
        (on_wire, format!("{:#?} {record}", mesh.wire), left.pop())
    };
    for together in [2, 3, 9] {
        assert_eq!(given(together), given(1), "{together} together");
    }
}

/// Replies that have credit wait while their connection has no room, and go on with it, the oldest
/// first; what is given up meanwhile leaves nothing behind.
#[test]
fn granted_replies_wait_for_room_in_their_connection() {
    let mut mesh = Mesh::connected(2);
    let link = mesh.nodes[&2].links().current(id(1)).unwrap();
    let large = Bytes::from(vec![7; 600_000]);
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(mesh.call(1, &[2], CallOptions::default()));
        mesh.deliver_all();
        let (_, task) = mesh.task("/0");
        let (now, large) = (mesh.now, large.clone());
        mesh.with(2, |node| {
            node.outbox_mut().full.insert(link);
            node.answer(now, &task, large).unwrap();
        });
        mesh.deliver_all();
    }
    assert!(mesh.nodes[&2].visits().has_granted());
    // One is given up.
    let (now, given_up) = (mesh.now, calls.remove(1));
    mesh.with(1, |node| node.cancel_call(now, given_up));
    mesh.deliver_all();
    // Room for a frame at a time.
    for _ in 0..100 {
        mesh.with(2, |node| node.handle_room(now, link));
        mesh.deliver_all();
    }
    assert!(!mesh.nodes[&2].visits().has_granted());
    for call in calls {
        let events = mesh.events(1, call);
        let replies = events.iter().filter(|event| matches!(event, CallEvent::Reply(_)));
        assert_eq!(replies.count(), 1);
    }
    assert_eq!(mesh.nodes[&2].links().shares().used(Pool::Replies), 0);
}

/// Replies and items that need no credit wait for room, too, and leave in the order in which they
/// were said, a failure at their end.
#[test]
fn small_replies_items_and_failures_wait_for_room() {
    let mut mesh = Mesh::connected(2);
    let link = mesh.nodes[&2].links().current(id(1)).unwrap();
    mesh.with(2, |node| _ = node.outbox_mut().full.insert(link));
    let calls = [(); 4].map(|()| {
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        call
    });
    let [filling, answered, several, failing] = calls.map(|call| {
        let start = mesh.starts.iter().find(|(_, start)| start.task.call == call);
        start.unwrap().1.task.clone()
    });
    let now = mesh.now;
    let small = || Bytes::from_static(b"small");
    mesh.with(2, |node| node.answer(now, &filling, small()).unwrap());
    assert_eq!(mesh.on_wire(), ["2-1 REPLY"], "what finds room takes the last of it");
    mesh.with(2, |node| {
        node.answer(now, &answered, small()).unwrap();
        node.reply(now, &several, small()).unwrap();
        let stream = node.stream(now, &several).unwrap();
        node.stream_items(now, &several, stream, [small(), small()]).unwrap();
        assert_eq!(node.stream_credit(&several, stream), Ok(0), "who has more waits with it");
        node.finish(now, &several);
        node.reply(now, &failing, small()).unwrap();
        let failure = TaskFailure::new(Cause::Application, Executed::Yes, "no");
        node.fail(now, &failing, failure);
        assert_eq!(node.visits.running_count(), 3, "they have not said all");
        assert_eq!(node.links().shares().used(Pool::Replies), 15, "of replies");
    });
    mesh.deliver_all();
    assert!(calls[1..].iter().all(|call| mesh.events(1, *call).is_empty()));
    mesh.with(2, |node| {
        node.outbox_mut().full.clear();
        node.handle_room(now, link);
    });
    let node = &mesh.nodes[&2];
    assert_eq!((node.visits.running_count(), node.links().shares().used(Pool::Replies)), (0, 0));
    mesh.deliver_all();
    assert_eq!(mesh.told(1, calls[1]), ["reply /0", "Complete"]);
    assert_eq!(mesh.told(1, calls[2]), ["reply /0", "reply /0", "reply /0", "Complete"]);
    let told = mesh.told(1, calls[3]);
    assert!(told[0] == "reply /0" && told[1].contains("no"), "{told:?}");
}

/// Replies that wait for room in a connection take another way once that has ended.
#[test]
fn granted_replies_do_not_wait_for_a_connection_that_has_ended() {
    let mut mesh = Mesh::connected(2);
    let link = mesh.nodes[&2].links().current(id(1)).unwrap();
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(2, |node| {
        node.outbox_mut().full.insert(link);
        node.answer(now, &task, Bytes::from(vec![7; 600_000])).unwrap();
    });
    mesh.deliver_all();
    assert!(mesh.nodes[&2].visits().has_granted());
    mesh.with(2, |node| node.handle_link_down(now, link));
    assert!(!mesh.nodes[&2].visits().has_granted(), "of {call:?}");
}

/// Replies that their initiator does not take, as one is larger than its limit, are not kept until
/// the deadline: their sender is told while the call is open, and by the next one once it is not.
#[test]
fn replies_that_are_not_taken_do_not_wait() {
    for is_open in [true, false] {
        let mut mesh = Mesh::new(0, &Limits::default());
        mesh.start(1, &Limits { message_bytes_max: 30_000, ..Limits::default() });
        mesh.start(2, &Limits::default());
        mesh.start(3, &Limits::default());
        mesh.connect_all();
        let roots: &[u64] = if is_open { &[2, 3] } else { &[2] };
        let call = mesh.call(1, roots, CallOptions::default());
        mesh.deliver_all();
        let ((_, task), now) = (mesh.task("/0"), mesh.now);
        let used = |mesh: &Mesh| {
            let node = &mesh.nodes[&2];
            (node.visits.running_count(), node.links().shares().used(Pool::Replies))
        };
        mesh.with(2, |node| {
            for _ in 0..2 {
                node.reply(now, &task, Bytes::from(vec![7; 100_000])).unwrap();
            }
            node.finish(now, &task);
        });
        assert_eq!(used(&mesh), (1, 200_000));
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert!(told[0].contains("larger than its message_bytes_max, 30000"), "{told:?}");
        assert_eq!(used(&mesh), if is_open { (0, 0) } else { (1, 100_000) });
        mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        mesh.answer("/0", b"");
        assert_eq!(used(&mesh), (0, 0));
    }
}

/// Items wait for room whatever else waits for their peer. Those of a hundred streams, each within
/// its credit, are more than a connection may queue, and a peer that reads was closed for it.
#[test]
fn items_wait_for_room_though_much_waits_for_their_peer() {
    let limits = Limits { waiting_reply_bytes_max: 800_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    ask_for_much(&mut mesh, 1).unwrap();
    mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all_but("CREDIT");
    let ((_, task), now) = (mesh.task("/0"), mesh.now);
    let link = mesh.nodes[&2].links().current(id(1)).unwrap();
    let item = || Bytes::from_static(b"item");
    mesh.with(2, |node| {
        node.outbox_mut().full.insert(link);
        let stream = node.stream(now, &task).unwrap();
        let credit = [(); 3].map(|()| node.stream_items(now, &task, stream, [item()]).unwrap());
        assert!(credit[1] > 0 && credit[2] == 0, "{credit:?}");
        node.outbox_mut().full.clear();
    });
    assert_eq!(mesh.on_wire(), ["2-1 REPLY"], "what finds room takes the last of it");
    mesh.with(2, |node| node.handle_room(now, link));
    assert_eq!(mesh.on_wire().len(), 2, "{:?}", mesh.on_wire());
}

/// The connection takes only short frames, for a transport was told so: neither a part of a reply,
/// nor what has credit for one frame, is lost.
#[test]
fn replies_above_the_largest_frame_leave_in_several() {
    for unscheduled_bytes in [16 << 10, 500 << 10] {
        let stream_window_bytes = 1 << 20;
        let limits = Limits { unscheduled_bytes, stream_window_bytes, ..Limits::default() };
        let mut mesh = Mesh::connected_with(2, &limits);
        let link = mesh.nodes[&2].links().current(id(1)).unwrap();
        mesh.with(2, |node| node.outbox_mut().frame_bytes_max.insert(link, 32 << 10));
        let call = mesh.call(1, &[2, 2], CallOptions::default());
        mesh.deliver_all();
        let now = mesh.now;
        let sizes = [300_000, 10, 200_000, 400_000];
        let of = |len: usize| Bytes::from_iter((0..=250_u8).cycle().take(len));
        let (_, sole) = mesh.task("/0");
        let (_, streaming) = mesh.task("/1");
        mesh.with(2, |node| {
            node.answer(now, &sole, of(sizes[0])).unwrap();
            node.reply_metadata(now, &streaming, "key", &[7; 10_000]).unwrap();
            let stream = node.stream(now, &streaming).unwrap();
            let items = sizes[1..].iter().map(|len| of(*len));
            node.stream_items(now, &streaming, stream, items).unwrap();
            node.finish(now, &streaming);
        });
        let mut came = Vec::new();
        while mesh.end(1, call).is_none() {
            assert!(!mesh.wire.is_empty(), "what has credit comes: {}", came.len());
            assert!(mesh.wire.iter().all(|(_, sent)| sent.frame.encoded_len() <= 32 << 10));
            mesh.deliver_all();
            came.extend(mesh.events(1, call).into_iter().filter_map(|event| match event {
                CallEvent::Reply(reply) => Some(reply.payload),
                _ => None,
            }));
        }
        assert_eq!(mesh.end(1, call), Some(End::Complete));
        came.sort_by_key(|message| sizes.iter().position(|size| *size == message.len()));
        assert_eq!(came, sizes.map(of));
    }
}

/// Limits that mean none have sums, too: of the replies of several branches, and of what a liar
/// announces behind them.
#[test]
fn limits_of_bytes_that_mean_none_are_finite() {
    let limits = Limits {
        message_bytes_max: usize::MAX,
        reply_bytes_max: u64::MAX,
        unscheduled_bytes: u64::MAX,
        stream_window_bytes: u64::MAX,
        ..Limits::default()
    };
    let mut mesh = Mesh::connected_with(3, &limits);
    let call = mesh.call(1, &[2, 3], CallOptions::default());
    mesh.deliver_all();
    let now = mesh.now;
    for path in ["/0", "/1"] {
        let (at, task) = mesh.task(path);
        mesh.with(at, |node| {
            let stream = node.stream(now, &task).unwrap();
            node.stream_items(now, &task, stream, [Bytes::from_static(b"item")]).unwrap();
            node.handle_yield(now, &task);
        });
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), [format!("reply {path}")]);
    }
    let header = Header { call, task: crate::key("/1".parse().unwrap(), 0) };
    let part = Some(Part { offset: 0, total: u64::MAX });
    let kind = ReplyKind::Item { seq: 1, is_last: false };
    let payload = Bytes::from_static(b"a part");
    let reply = Reply { is_final: false, kind, part, ..Reply::sole(payload) };
    let link = mesh.link_between(1, 3);
    let frame = Frame::new(header, Message::Reply(reply));
    assert_eq!(mesh.take((1, link), frame), Ok(()));
    let told = mesh.told(1, call);
    assert!(told[0].contains("larger than its message_bytes_max"), "{told:?}");
}

/// Node 2 answers a call with 100,000 bytes, which are not granted.
fn ask_for_much(mesh: &mut Mesh, by: u64) -> Result<(), SendError> {
    mesh.call(by, &[2], CallOptions::default());
    mesh.deliver_all();
    let ((_, task), now) = (mesh.task("/0"), mesh.now);
    let large = Bytes::from(vec![7; 100_000]);
    let answered = mesh.with(2, |node| node.answer(now, &task, large));
    mesh.deliver_all_but("CREDIT");
    mesh.hold_back("CREDIT");
    answered
}

/// Replies for a caller that has gone wait, as it may be back, but not at the cost of others of its
/// host.
#[test]
fn replies_for_who_has_gone_make_room_for_others_of_its_host() {
    let limits = Limits { waiting_reply_bytes_max: 400_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    let ask = |mesh: &mut Mesh| ask_for_much(mesh, 1);
    assert_eq!((ask(&mut mesh), ask(&mut mesh)), (Ok(()), Ok(())));
    assert_eq!(ask(&mut mesh), Err(SendError::TooMuchWaits), "it is there, and may grant them");
    let link = mesh.nodes[&2].links().current(id(1)).unwrap();
    mesh.now = mesh.now + millis(1_000);
    let now = mesh.now;
    mesh.with(2, |node| node.handle_link_down(now, link));
    let used = |mesh: &Mesh| mesh.nodes[&2].links().shares().used(Pool::Replies);
    assert_eq!(used(&mesh), 200_000, "it may be back");
    // Its next life.
    mesh.start(1, &limits);
    mesh.connect(1, 2);
    assert_eq!(ask(&mut mesh), Ok(()));
    assert_eq!(used(&mesh), 100_000);
}

/// A search takes long, so it is rare; it serves every host that has its share, so that none is put
/// off by another.
#[test]
fn a_search_for_replies_of_those_who_are_gone_serves_all_hosts() {
    let limits = Limits { waiting_reply_bytes_max: 1_000_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(3, &limits);
    for by in [1, 3] {
        while ask_for_much(&mut mesh, by).is_ok() {}
    }
    mesh.now = mesh.now + millis(1_000);
    for by in [1, 3] {
        let link = mesh.link_between(2, by);
        mesh.disconnect(2, link);
        mesh.start(by, &limits);
        mesh.connect(by, 2);
    }
    for by in [3, 1] {
        assert_eq!(ask_for_much(&mut mesh, by), Ok(()), "of node {by}");
    }
}

/// A CREDIT that is lost with its connection is said again once the task says that it runs.
#[test]
fn lost_credit_is_given_again() {
    let mut mesh = Mesh::connected(2);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    let large = Bytes::from(vec![7; 100_000]);
    mesh.with(2, |node| node.answer(now, &task, large.clone()).unwrap());
    mesh.deliver_all_but("CREDIT");
    assert_eq!(mesh.hold_back("CREDIT").len(), 1);
    for _ in 0..10 {
        mesh.now = mesh.now + millis(500);
        let now = mesh.now;
        mesh.with(1, |node| node.handle_timeout(now));
        mesh.deliver_all();
    }
    let reply = mesh.events(1, call).into_iter().find_map(|event| match event {
        CallEvent::Reply(reply) => Some(reply.payload.len()),
        _ => None,
    });
    assert_eq!(reply, Some(large.len()));
}

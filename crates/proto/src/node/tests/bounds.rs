//! Bounds on what one peer can make a node keep.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::*;
use super::mesh::{METHOD, Mesh, Sent, branch, cast, id, millis, open_one, root_branch};
use super::settlement::cancel_and_detach;
use super::strangers::{closing, fail, keyed, send};
use crate::call::{CallEvent, CallOptions, End};
use crate::id::{CallId, LinkNonce, Path, TaskKey};
use crate::key::Key;
use crate::link::Hello;
use crate::mailbox::{Announce, CallName, MailKey, Tag};
use crate::share::Pool;
use crate::task::{SendError, TaskFailure};
use crate::trace::{EVENTS_MAX, Traced};
use crate::wire::{
    Asked, Cancel, CancelReason, Cause, Entry, Executed, Extension, Fail, Header, LinkDown,
    Manifest, Outcome, Probe, Reply, ReplyKind, ReplyRoute, Request, Sealed, TASKS_MAX,
};

const NOW: Timestamp = Timestamp::ZERO;

/// The key of every root branch of others.
const KEY: Key = Key(7);

fn life(node: u64) -> Incarnation {
    Incarnation::of_random(node << 8)
}

fn node(name: u64, limits: &Limits) -> Node {
    let identity = Identity { node: id(name), incarnation: life(name) };
    Node::new(identity, Secret::new(name, 1), limits, 1, NOW).unwrap()
}

fn link(peer: u64, nonce: u64) -> Link {
    let peer = Hello {
        node: id(peer),
        incarnation: life(peer),
        advertised: Vec::new(),
        frame_bytes_max: 1 << 20,
    };
    let (nonce, scheme) = (LinkNonce(nonce), "test");
    Link { peer, nonce, is_dialler: false, scheme, principal: None, remote: None }
}

/// A connection of a peer is up.
fn up(node: &mut Node, peer: u64) -> LinkId {
    node.handle_link_up(NOW, &link(peer, peer + 10), |_, _| ())
}

fn task(indices: &[u32]) -> TaskKey {
    TaskKey { path: Path::from_indices(indices).unwrap(), hop: 0 }
}

fn header(origin: u64, seq: u64, task: TaskKey) -> Header {
    Header { call: CallId { origin: life(origin), seq }, task }
}

fn request() -> Message {
    Message::Request(Request {
        key: KEY,
        budget_us: 1_000_000,
        outlasted_us: 0,
        floor: 0,
        method: METHOD,
        reply_route: ReplyRoute::Sender,
        inherited: Vec::new(),
        extensions: Vec::new(),
        payload: Bytes::new(),
    })
}

fn take(node: &mut Node, link: LinkId, header: Header, message: Message) {
    node.handle_bytes(NOW, link, Frame::new(header, message).to_bytes()).unwrap();
    node.flush(NOW);
}

fn drain(node: &mut Node) -> (Vec<Transmit>, Vec<NodeEvent>) {
    let transmits = std::iter::from_fn(|| node.poll_transmit(NOW)).collect();
    (transmits, std::iter::from_fn(|| node.poll_event()).collect())
}

/// The task that a request starts.
fn start(node: &mut Node, link: LinkId, header: Header) -> TaskRef {
    take(node, link, header, request());
    drain(node);
    let mut starts = Vec::new();
    node.take_starts(&mut starts);
    match starts.as_slice() {
        [start] => start.task.clone(),
        other => panic!("{other:?}"),
    }
}

fn used(node: &Node, pool: Pool) -> usize {
    node.links().shares().used(pool)
}

#[test]
fn timers_of_settled_calls_are_swept_out() {
    let mut server = node(9, &Limits::default());
    let one = up(&mut server, 1);
    for seq in 1..=1_000 {
        let started = start(&mut server, one, header(1, seq, task(&[0])));
        server.finish(NOW, &started);
        drain(&mut server);
        assert!(server.visits().timer_count() <= 66, "call {seq}");
    }
    assert_eq!(server.visits().remembered_count(), 1);
}

#[test]
fn timers_of_ended_calls_are_swept_out() {
    let mut client = node(1, &Limits::default());
    let two = up(&mut client, 2);
    for _ in 0..1_000 {
        let call = open_one(&mut client, NOW, 2);
        let reply = Message::Reply(Reply::sole(Bytes::new()));
        take(&mut client, two, header(1, call.seq, task(&[0])), reply);
        client.detach_call(NOW, call);
        drain(&mut client);
        assert!(client.initiator().timer_count() <= 66, "call {}", call.seq);
    }
    assert_eq!(client.initiator().call_count(), 0);
}

#[test]
fn a_task_has_one_timer_at_most_until_it_is_gone() {
    let mut server = node(9, &Limits::default());
    let one = up(&mut server, 1);
    for index in 0..1_000 {
        take(&mut server, one, header(1, 1, task(&[index])), request());
    }
    assert_eq!(server.visits().running_count(), 1_000);
    server.handle_timeout(NOW + millis(50));
    assert!(server.visits().timer_count() <= 1_001, "{}", server.visits().timer_count());
    server.handle_timeout(NOW + Duration::from_secs(1));
    assert_eq!(server.visits().running_count(), 0);
    assert!(server.visits().timer_count() <= 1_001, "{}", server.visits().timer_count());
    server.handle_timeout(NOW + Duration::from_secs(11));
    assert_eq!(server.visits().remembered_count(), 0);
    assert!(server.visits().timer_count() <= 1, "that of who sent them");
    assert_eq!((used(&server, Pool::Records), used(&server, Pool::Running)), (0, 0));
}

/// A node 9 whose task of a call of node 1 has opened `count` branches at node 2, by the connection
/// that is returned; there is another one.
fn with_branches_at_two(count: u32) -> (Node, TaskRef, LinkId, LinkId) {
    let mut server = node(9, &Limits::default());
    let one = up(&mut server, 1);
    let both = [21, 22].map(|nonce| server.handle_link_up(NOW, &link(2, nonce), |_, _| ()));
    let parent = start(&mut server, one, header(1, 7, task(&[0])));
    for _ in 0..count {
        server.delegate(NOW, &parent, branch(2)).unwrap();
    }
    server.handle_yield(NOW, &parent);
    let (sent, _) = drain(&mut server);
    let used = sent.iter().map(|sent| sent.to).find(|to| to.to == id(2)).unwrap().link;
    let spare = both.into_iter().find(|link| *link != used).unwrap();
    (server, parent, used, spare)
}

fn reported(node: &mut Node) -> Vec<LinkDown> {
    let (sent, _) = drain(node);
    let report = |transmit: Transmit| match transmit.frame.message {
        Message::LinkDown(report) => report,
        other => panic!("{other:?} is no report"),
    };
    sent.into_iter().map(report).collect()
}

fn lost(node: u64, child: &[u32]) -> LinkDown {
    let children = vec![task(child)];
    LinkDown { node: id(node), children, own: None, inherited: Vec::new() }
}

#[test]
fn the_end_of_a_connection_is_reported_for_what_left_by_it() {
    let (mut server, _, used, spare) = with_branches_at_two(1);
    server.handle_link_down(NOW, spare);
    assert_eq!(reported(&mut server), []);
    server.handle_link_down(NOW, used);
    assert_eq!(reported(&mut server), [lost(2, &[0, 0])]);
}

#[test]
fn branches_that_left_by_two_connections_are_reported_apart() {
    let (mut server, parent, used, spare) = with_branches_at_two(1);
    server.handle_link_down(NOW, used);
    assert_eq!(reported(&mut server).len(), 1);
    server.delegate(NOW, &parent, branch(2)).unwrap();
    server.handle_yield(NOW, &parent);
    drain(&mut server);
    server.handle_link_down(NOW, spare);
    assert_eq!(reported(&mut server), [lost(2, &[0, 1])]);
}

#[test]
fn a_report_of_many_branches_is_sent_in_parts() {
    let (mut server, _, used, _) = with_branches_at_two(600);
    server.handle_link_down(NOW, used);
    let sizes: Vec<usize> = reported(&mut server).iter().map(|r| r.children.len()).collect();
    assert_eq!(sizes, [TASKS_MAX, TASKS_MAX, 600 - 2 * TASKS_MAX]);
}

#[test]
fn the_fences_of_one_peer_leave_room_for_the_tasks_of_others() {
    let limits = Limits { remembered_max: 16, ..Limits::default() };
    let mut server = node(9, &limits);
    let (three, one) = (up(&mut server, 3), up(&mut server, 1));
    let asked = |index| Asked { task: task(&[index]), key: KEY };
    let tasks = (0..100).map(asked).collect();
    let probe = Message::Probe(Probe { fence: true, budget_us: 1_000_000, tasks });
    take(&mut server, three, header(3, 1, task(&[])), probe);
    assert_eq!(server.visits().remembered_count(), 8);
    drain(&mut server);
    start(&mut server, one, header(1, 1, task(&[0])));
    server.handle_timeout(NOW + Duration::from_secs(1));
    server.handle_timeout(NOW + Duration::from_secs(11));
    assert_eq!(server.visits().remembered_count(), 0);
    assert_eq!(used(&server, Pool::Records), 0);
}

#[test]
fn the_marks_of_one_peer_are_bounded_and_its_tasks_are_stopped_all_the_same() {
    let limits = Limits { remembered_max: 100, ..Limits::default() };
    let mut server = node(9, &limits);
    let one = up(&mut server, 1);
    start(&mut server, one, header(1, 1, task(&[5_000])));
    let mut cancel = |at| {
        let cancel = Cancel { reason: CancelReason::Caller, budget_us: 1_000_000 };
        let header = header(1, 1, task(&[at]));
        let frame = Frame::keyed(header, KEY, Message::Cancel(cancel));
        server.handle_bytes(NOW, one, frame.to_bytes()).unwrap();
        (server.visits().remembered_count(), drain(&mut server).1)
    };
    for at in 0..2_000 {
        let (remembered, events) = cancel(at);
        assert!(remembered <= 47 && events.is_empty(), "{remembered} {events:?}");
    }
    let (remembered, events) = cancel(5_000);
    assert_eq!(remembered, 48, "the task itself");
    assert!(matches!(events[..], [NodeEvent::Task(VisitEvent::Stop { .. })]), "{events:?}");
}

/// Former members are as much strangers as any other.
#[test]
fn members_of_a_space_are_known_while_they_are_its_members() {
    let mut server = node(9, &Limits::default());
    let three = up(&mut server, 3);
    let of = |ids: &[u64]| -> BTreeSet<NodeId> { ids.iter().map(|of| id(*of)).collect() };
    let kept_and_strange = |server: &mut Node, seq: u64| {
        take(server, three, header(3, seq, task(&[])), Message::Cast(cast(0, &[])));
        let mailboxes = server.mailboxes();
        (mailboxes.count(), mailboxes.dropped().strangers)
    };
    let announce = Announce { senders_min: 1, source: None };
    let opened = server.mailboxes_mut().open_space(7, 1, announce, Some(of(&[3, 9])));
    assert_eq!((opened, kept_and_strange(&mut server, 1)), (Ok(()), (1, 0)));
    server.mailboxes_mut().change_members(7, of(&[4, 9]));
    assert_eq!(kept_and_strange(&mut server, 2), (1, 1));
    server.mailboxes_mut().hear_next(7, of(&[3]));
    assert_eq!(kept_and_strange(&mut server, 3), (2, 1), "it is to be one again");
    let tag = MailKey::Tag(Tag { space: 7, view: 0, sequence: 1 });
    server.mailboxes_mut().join(tag).unwrap();
    server.mailboxes_mut().close_space(7);
    assert_eq!(kept_and_strange(&mut server, 4), (4, 1), "it votes where a round goes on");
    server.close_mail(NOW, tag, true);
    assert_eq!(kept_and_strange(&mut server, 5), (3, 2));
}

#[test]
fn the_casts_of_all_calls_share_one_bound() {
    let limits = Limits { cast_bytes_total_max: 10_000, ..Limits::default() };
    let mut server = node(9, &limits);
    let three = up(&mut server, 3);
    let cast = || Message::Cast(cast(0, &[0; 100]));
    server.mailboxes_mut().know([id(4)]);
    take(&mut server, three, header(3, 1, task(&[])), cast());
    assert_eq!((server.mailboxes().count(), server.mailboxes().dropped().strangers), (0, 1));
    server.mailboxes_mut().know([id(3)]);
    (1..=20).for_each(|seq| take(&mut server, three, header(3, seq, task(&[])), cast()));
    let kept = server.mailboxes().count();
    assert!((5..15).contains(&kept) && server.mailboxes().held_bytes() <= 5_000, "{kept}");
    let origin = NodeLife { node: id(1), life: life(3) };
    let key = MailKey::Call(CallName { origin, seq: 1 });
    server.mailboxes_mut().join(key).unwrap();
    let mut taken = Vec::new();
    server.mailboxes_mut().take(key, &mut taken);
    assert_eq!(taken.len(), 1);
    take(&mut server, three, header(3, 21, task(&[])), cast());
    assert_eq!(server.mailboxes().count(), kept + 1, "what is taken makes room");
    server.handle_timeout(NOW + Duration::from_secs(1));
    assert_eq!(server.mailboxes().count(), 1, "the one that is read");
    assert_eq!(server.visits().origin_count(), 0, "a cast is no task");
}

#[test]
fn nodes_that_came_and_went_are_forgotten() {
    let mut server = node(9, &Limits::default());
    server.configure(id(50), vec!["test://50".parse().unwrap()]);
    let stays = up(&mut server, 51);
    for peer in 100..5_000 {
        let came = up(&mut server, peer);
        server.handle_link_down(NOW, came);
    }
    assert_eq!(server.links().known_count(), 1_024 + 2);
    assert!(server.links().is_configured(id(50)));
    assert!(server.links().is_up(stays));
}

#[test]
fn a_question_without_a_way_says_nothing_of_other_calls() {
    let (mut a, now) = (node(1, &Limits::default()), NOW);
    let (to_two, to_four) = (up(&mut a, 2), up(&mut a, 4));
    let (one, two) = (open_one(&mut a, now, 2), open_one(&mut a, now, 4));
    let outcome = Outcome::Finished;
    let holders = vec![Some(id(3))];
    let entry = Entry { task: task(&[0]), children: 1, replies: 1, outcome, holders };
    let own_entry = Some(Box::new(entry));
    let reply = Reply { is_final: false, own_entry, ..Reply::sole(Bytes::new()) };
    take(&mut a, to_four, header(1, two.seq, task(&[0])), Message::Reply(reply));
    let report = Message::LinkDown(lost(3, &[0, 0]));
    take(&mut a, to_two, header(1, one.seq, task(&[0])), report);
    a.handle_timeout(now + millis(21));
    let open = |call| a.call(call).unwrap().tree().open();
    assert_eq!((open(one), open(two)), (1, 1), "of call one the task at n2 is still open");
}

/// A peer that grants nothing keeps what it asked for waiting here: its share of that, and no more.
#[test]
fn replies_that_wait_for_credit_are_bounded_and_leave_room_when_they_have_left() {
    let limits = Limits { waiting_reply_bytes_max: 200_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(3, &limits);
    let reply = Bytes::from_static(&[7; 50_000]);
    let ask = |mesh: &mut Mesh, from: u64| {
        mesh.call(from, &[2], CallOptions::default());
        mesh.deliver_all();
        let (_, task) = mesh.task("/0");
        let (now, reply) = (mesh.now, reply.clone());
        mesh.with(2, |node| node.answer(now, &task, reply))
    };
    // What it is granted at once would leave at once.
    assert_eq!(ask(&mut mesh, 1), Ok(()));
    assert_eq!(ask(&mut mesh, 1), Ok(()));
    let mut mesh = Mesh::connected_with(3, &limits);
    let mut waiting = Vec::new();
    for _ in 0..2 {
        mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        let (_, task) = mesh.task("/0");
        let now = mesh.now;
        assert_eq!(mesh.with(2, |node| node.answer(now, &task, reply.clone())), Ok(()));
        mesh.deliver_all_but("CREDIT");
        waiting.extend(mesh.hold_back("CREDIT"));
    }
    let used = |mesh: &Mesh| mesh.nodes[&2].links().shares().used(Pool::Replies);
    assert_eq!((waiting.len(), used(&mesh)), (2, 100_000));
    assert_eq!(ask(&mut mesh, 1), Err(SendError::TooMuchWaits), "it has a half");
    assert_eq!(ask(&mut mesh, 3), Ok(()), "another peer has room");
    mesh.deliver_all();
    assert_eq!(used(&mesh), 100_000, "what was granted has left");
    mesh.wire.extend(waiting);
    mesh.deliver_all();
    assert_eq!(used(&mesh), 0);
    assert_eq!(ask(&mut mesh, 1), Ok(()));
}

/// Large requests that run take a peer's share of what there is for all; small ones go on.
#[test]
fn large_requests_that_run_are_bounded_for_each_peer() {
    let limits = Limits { running_request_bytes_max: 200_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(3, &limits);
    let ask = |mesh: &mut Mesh, from: u64, bytes: &'static [u8]| {
        let mut branch = root_branch(2);
        branch.request.payload = Bytes::from_static(bytes).into();
        let (now, branches) = (mesh.now, &mut vec![branch]);
        let mut opening = Opening { budget: None, options: CallOptions::default(), branches };
        let call = mesh.with(from, |node| node.open(now, &mut opening).unwrap());
        mesh.deliver_all();
        mesh.told(from, call)
    };
    const LARGE: &[u8] = &[7; 50_000];
    let used = |mesh: &Mesh| mesh.nodes[&2].links().shares().used(Pool::Requests);
    assert_eq!(ask(&mut mesh, 1, LARGE), [""; 0]);
    let (_, first) = mesh.task("/0");
    assert_eq!(ask(&mut mesh, 1, LARGE), [""; 0]);
    let told = ask(&mut mesh, 1, LARGE);
    assert!(told[0].contains("share of running_request_bytes_max"), "{told:?}");
    assert_eq!(used(&mesh), 100_000);
    assert_eq!(ask(&mut mesh, 3, LARGE), [""; 0], "another peer has room");
    assert_eq!(ask(&mut mesh, 1, &[7; 16 << 10]), [""; 0], "what needs no credit is small");
    let now = mesh.now;
    mesh.with(2, |node| node.answer(now, &first, Bytes::new()).unwrap());
    assert_eq!(used(&mesh), 100_000, "two of three");
    assert_eq!(ask(&mut mesh, 3, LARGE), [""; 0]);
    mesh.pass(Duration::from_secs(10));
    assert_eq!(used(&mesh), 0, "their time is over");
}

/// A message that came another way, or packed, counts as one that came in its request.
#[test]
fn messages_that_come_another_way_are_bounded_for_each_peer() {
    let limits = Limits {
        running_request_bytes_max: 240_000,
        message_bytes_max: 60_000,
        ..Limits::default()
    };
    let mut mesh = Mesh::connected_with(3, &limits);
    let ask = |mesh: &mut Mesh, from: u64| {
        mesh.call(from, &[2], CallOptions::default());
        mesh.deliver_all();
        mesh.task("/0").1
    };
    let used = |mesh: &Mesh| mesh.nodes[&2].links().shares().used(Pool::Requests);
    let asked: Vec<TaskRef> = (0..4).map(|_| ask(&mut mesh, 1)).collect();
    assert_eq!(used(&mesh), 0, "none of them is large");
    let reserve = |mesh: &mut Mesh, task: &TaskRef| mesh.with(2, |node| node.reserve_request(task));
    let resize = |mesh: &mut Mesh, task: &TaskRef, bytes| {
        mesh.with(2, |node| node.resize_request(task, bytes))
    };
    assert_eq!(reserve(&mut mesh, &asked[0]), Ok(()));
    assert_eq!(reserve(&mut mesh, &asked[1]), Ok(()));
    assert_eq!(used(&mesh), 120_000);
    for refused in [reserve(&mut mesh, &asked[2]), resize(&mut mesh, &asked[2], 17_000)] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.cause, refused.executed), (Cause::Overloaded, Executed::No));
        assert!(refused.text.contains("share of running_request_bytes_max"), "{}", refused.text);
    }
    assert_eq!(resize(&mut mesh, &asked[2], 16 << 10), Ok(()), "what needs no credit is small");
    let other = ask(&mut mesh, 3);
    assert_eq!(reserve(&mut mesh, &other), Ok(()), "another peer has room");
    // What is there is known, and is paid for in place of what was reserved.
    assert_eq!(resize(&mut mesh, &asked[0], 20_000), Ok(()));
    assert_eq!(resize(&mut mesh, &other, 5), Ok(()));
    assert_eq!(used(&mesh), 80_000);
    assert_eq!(resize(&mut mesh, &asked[3], 50_000), Ok(()));
    assert_eq!(used(&mesh), 130_000);
    let now = mesh.now;
    mesh.with(2, |node| node.answer(now, &asked[0], Bytes::new()).unwrap());
    assert_eq!(used(&mesh), 110_000);
    // Nobody would give back what one takes that is over.
    assert!(reserve(&mut mesh, &asked[0]).is_err());
    mesh.nodes[&2].audit_shares().unwrap();
    mesh.pass(Duration::from_secs(10));
    assert_eq!(used(&mesh), 0, "their time is over");
}

/// The largest message may be larger than what there is for all.
#[test]
fn a_reservation_takes_a_quarter_at_most() {
    let limits = Limits { running_request_bytes_max: 1 << 20, ..Limits::default() };
    let mut mesh = Mesh::connected_with(3, &limits);
    for (from, reserved) in [(1, 2), (3, 1)] {
        let may = (0..4).filter(|_| {
            mesh.call(from, &[2], CallOptions::default());
            mesh.deliver_all();
            let (_, task) = mesh.task("/0");
            mesh.with(2, |node| node.reserve_request(&task)).is_ok()
        });
        assert_eq!(may.count(), reserved, "of node {from}");
    }
}

/// However small the messages are: who asks for one keeps a call open meanwhile.
#[test]
fn a_reservation_counts_where_no_message_is_large() {
    let limits = Limits {
        running_request_bytes_max: 100_000,
        message_bytes_max: 1_000,
        ..Limits::default()
    };
    let mut mesh = Mesh::connected_with(2, &limits);
    let reserved = (0..10).filter(|_| {
        mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        let (_, task) = mesh.task("/0");
        mesh.with(2, |node| node.reserve_request(&task)).is_ok()
    });
    assert_eq!(reserved.count(), 4);
}

/// Every failure is told. What it says is bounded, for a call as a whole and for each root branch.
#[test]
fn words_of_failures_are_bounded_by_shares_of_root_branches() {
    let limits =
        Limits { message_bytes_max: 200_000, reply_bytes_max: 500_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    let call = mesh.call(1, &[2; 30], CallOptions::default());
    mesh.deliver_all();
    for root in 0..29 {
        let (_, task) = mesh.task(&format!("/{root}"));
        let failure = TaskFailure {
            details: Bytes::from(vec![7; 50_000]),
            ..TaskFailure::new(Cause::Application, Executed::Yes, "no")
        };
        let now = mesh.now;
        mesh.with(2, |node| node.fail(now, &task, failure));
        mesh.deliver_all();
    }
    let failures = mesh.nodes[&1].call(call).unwrap().failures();
    let (with, without): (Vec<_>, Vec<_>) = failures.iter().partition(|f| !f.text.is_empty());
    assert_eq!((with.len(), without.len()), (9, 20));
    assert!(with.iter().all(|failure| failure.details.len() == 50_000));
    assert!(without.iter().all(|f| f.details.is_empty() && f.cause == Cause::Application));
}

/// The branch that asks for too much may be over: the ones beside it go on all the same.
#[test]
fn a_failed_branch_that_claims_too_many_children_ends_nothing_beside_it() {
    let (mut mesh, call) = Mesh::calling(4, &[2, 3]);
    mesh.delegate("/0", &[3, 4]);
    let ((_, parent), now) = (mesh.task("/0"), mesh.now);
    mesh.with(2, |node| node.handle_yield(now, &parent));
    mesh.deliver_all();
    let liar = mesh.key_of(call, "/0/1");
    send(&mut mesh, 4, 1, keyed(call, "/0/1", liar, fail(None, Executed::Yes))).unwrap();
    let own = Some(Entry { children: u32::MAX, ..closing("/0/1") });
    let claim = Message::Manifest(Manifest { own, inherited: Vec::new() });
    send(&mut mesh, 4, 1, keyed(call, "/0/1", liar, claim)).unwrap();
    mesh.answer("/0/0", b"");
    mesh.answer("/1", b"");
    mesh.finish("/0");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call)[1..], ["reply /0/0", "reply /1", "Partial"]);
}

/// Whose branches ask for too much need not answer their CANCEL.
#[test]
fn a_call_whose_last_branch_outgrows_its_room_ends_at_once() {
    let limits = Limits { branches_max: 2, ..Limits::default() };
    for fails in [false, true] {
        let mut mesh = Mesh::connected_with(4, &limits);
        let call = mesh.call(1, &[2, 3], CallOptions::default());
        mesh.deliver_all();
        mesh.answer("/1", b"");
        mesh.delegate("/0", &[4]);
        mesh.deliver_all();
        let ((_, child), now) = (mesh.task("/0/0"), mesh.now);
        match fails {
            true => mesh.with(4, |node| {
                let failure = TaskFailure::new(Cause::Application, Executed::Yes, "no");
                node.fail(now, &child, failure);
            }),
            false => mesh.answer("/0/0", b""),
        }
        mesh.deliver_all_but("CANCEL");
        assert_eq!(mesh.end(1, call), Some(End::Partial), "fails: {fails}");
    }
}

/// Says of a call's branch `/1`, which node 3 holds, that it was handed on to `node` at the hop
/// behind `hop`, and that it is lost there.
fn hand_on(mesh: &mut Mesh, call: CallId, hop: u32, node: u64) {
    let at = |hop| TaskKey { hop, ..task(&[1]) };
    let (own, inherited) = (None, Vec::new());
    let report = LinkDown { node: id(node), children: vec![at(hop + 1)], own, inherited };
    let (header, key) = (Header { call, task: at(hop) }, mesh.key_of(call, "/1"));
    send(mesh, 3, 1, Frame::keyed(header, key, Message::LinkDown(report))).unwrap();
}

/// Each would have the node that it names remember a fence in the share of the initiator.
#[test]
fn a_branch_that_is_handed_on_and_on_uses_up_its_own_room() {
    let limits = Limits { branches_max: 1_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(4, &limits);
    let call = mesh.call(1, &[2, 3], CallOptions::default());
    mesh.deliver_all();
    let before = used(&mesh.nodes[&2], Pool::Records);
    (0..10_000).for_each(|hop| hand_on(&mut mesh, call, hop, 2));
    let asked = mesh.on_wire().iter().filter(|line| *line == "1-2 PROBE").count();
    mesh.deliver_all();
    let fences = used(&mesh.nodes[&2], Pool::Records) - before;
    assert!((400..=1_000).contains(&asked) && fences <= asked, "{asked} {fences}");
    mesh.answer("/0", b"");
    mesh.deliver_all();
    let told = mesh.told(1, call);
    assert!(told[0].contains("/1") && told[0].contains("outgrew a bound"), "{told:?}");
    assert_eq!(told[1..], ["reply /0", "Partial"]);
}

#[test]
fn a_branch_that_is_handed_on_to_many_nodes_enters_its_call_with_few() {
    let limits = Limits { branches_max: 100, ..Limits::default() };
    let mut mesh = Mesh::connected_with(3, &limits);
    let call = mesh.call(1, &[2, 3], CallOptions::default());
    mesh.deliver_all();
    for hop in 0..1_000 {
        hand_on(&mut mesh, call, hop, 1_000 + u64::from(hop));
    }
    let initiator = mesh.nodes[&1].initiator();
    let entered = (1_000..2_000).filter(|node| initiator.open_at(id(*node), None) > 0).count();
    assert!((40..=100).contains(&entered), "{entered}");
}

#[test]
fn nobody_is_asked_for_a_call_that_has_been_decided() {
    let (mut mesh, call) = Mesh::calling(3, &[2, 3]);
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, false));
    for hop in 0..10 {
        hand_on(&mut mesh, call, hop, 2);
    }
    assert_eq!(mesh.on_wire(), [""; 0]);
}

fn numbered(index: u32, kind: ReplyKind) -> Message {
    let is_item = kind != ReplyKind::Message;
    let payload = Bytes::from_static(if is_item { b"i" } else { b"" });
    Message::Reply(Reply { index, kind, is_final: false, ..Reply::sole(payload) })
}

/// Limits of a call that may hold so many small messages.
fn room_for_messages(count: u64) -> Limits {
    Limits {
        reply_bytes_max: 128 * count,
        message_bytes_max: 1_000,
        unscheduled_bytes: 1_000,
        stream_window_bytes: 1_000,
        ..Limits::default()
    }
}

/// Each index beyond a gap is kept until the gap is filled.
#[test]
fn gaps_in_the_indices_of_replies_use_up_a_share_of_the_call() {
    let limits = room_for_messages(1_000);
    for (roots, taken) in [(&[2, 3][..], 500..=501), (&[3], 1_000..=1_001)] {
        let mut mesh = Mesh::connected_with(3, &limits);
        let call = mesh.call(1, roots, CallOptions::default());
        mesh.deliver_all();
        let (mut read, path) = (0, format!("/{}", roots.len() - 1));
        let key = mesh.key_of(call, &path);
        for index in 1..10_000 {
            let message = numbered(2 * index, ReplyKind::Message);
            send(&mut mesh, 3, 1, keyed(call, &path, key, message)).unwrap();
            read += mesh.told(1, call).iter().filter(|line| line.starts_with("reply")).count();
        }
        assert!(taken.contains(&read), "{read}");
        mesh.deliver_all();
        let ended = mesh.end(1, call);
        assert_eq!(ended, (roots.len() == 1).then_some(End::Exhausted), "the other branch goes on");
    }
}

#[test]
fn replies_beside_an_open_stream_are_one_gap() {
    let mut mesh = Mesh::connected_with(2, &room_for_messages(10));
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let key = mesh.key_of(call, "/0");
    let item = numbered(0, ReplyKind::Item { seq: 0, is_last: false });
    send(&mut mesh, 2, 1, keyed(call, "/0", key, item)).unwrap();
    for index in 1..100 {
        let message = numbered(index, ReplyKind::Message);
        send(&mut mesh, 2, 1, keyed(call, "/0", key, message)).unwrap();
        mesh.told(1, call);
    }
    assert_eq!(mesh.end(1, call), None);
}

/// Branches that an ended call hears of later count as those that it ended with.
#[test]
fn calls_that_wind_have_so_many_branches_in_all() {
    let limits = Limits { winding_max: 10, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    let calls = [0; 3].map(|_| mesh.call(1, &[2], CallOptions::default()));
    mesh.deliver_all();
    let mut kept = Vec::new();
    for call in calls {
        cancel_and_detach(&mut mesh, call);
        assert_eq!(mesh.nodes[&1].initiator().settled_early_count(), 0, "it has one branch");
    }
    for call in calls {
        let outcome = Outcome::Failed(Cause::Cancelled);
        let own = Some(Entry { children: 30, outcome, ..closing("/0") });
        let manifest = Message::Manifest(Manifest { own, inherited: Vec::new() });
        let own = mesh.key_of(call, "/0");
        send(&mut mesh, 2, 1, keyed(call, "/0", own, manifest)).unwrap();
        let initiator = mesh.nodes[&1].initiator();
        kept.push((initiator.winding_count(), initiator.settled_early_count()));
    }
    assert_eq!(kept, [(3, 0), (2, 1), (1, 2)], "four times ten branches");
    assert!(mesh.nodes[&1].initiator().is_kept(calls[2]), "the last deadline");
}

#[test]
fn a_trace_keeps_its_first_events_and_none_of_copies() {
    let options = CallOptions { traces: true, ..CallOptions::default() };
    let (mut mesh, call) = Mesh::calling_with(2, &[2], options);
    let key = mesh.key_of(call, "/0");
    let traced = |mesh: &Mesh| mesh.nodes[&1].call(call).unwrap().trace().len();
    let before = traced(&mesh);
    for _ in 0..10 {
        let message = numbered(0, ReplyKind::Message);
        send(&mut mesh, 2, 1, keyed(call, "/0", key, message)).unwrap();
    }
    assert_eq!(traced(&mesh), before + 1);
    let most = u64::try_from(EVENTS_MAX).unwrap();
    for seq in 0..most + 10 {
        let item = numbered(1, ReplyKind::Item { seq, is_last: false });
        send(&mut mesh, 2, 1, keyed(call, "/0", key, item)).unwrap();
        mesh.told(1, call);
        mesh.wire.clear();
    }
    assert_eq!(traced(&mesh), EVENTS_MAX);
}

/// A failure is told at the time of its own news, by FAIL or by entry.
#[test]
fn a_failure_that_a_task_sends_is_traced_when_it_comes() {
    let outcome = Outcome::Failed(Cause::Application);
    let own = Some(Entry { outcome, ..closing("/0") });
    let by_entry = Message::Manifest(Manifest { own, inherited: Vec::new() });
    for word in [fail(None, Executed::Yes), by_entry] {
        let options = CallOptions { traces: true, ..CallOptions::default() };
        let (mut mesh, call) = Mesh::calling_with(2, &[2], options);
        mesh.pass(millis(500));
        mesh.wire.clear();
        let own = mesh.key_of(call, "/0");
        send(&mut mesh, 2, 1, keyed(call, "/0", own, word)).unwrap();
        let trace = mesh.nodes[&1].call(call).unwrap().trace();
        let failed = trace.iter().find(|event| matches!(event.what, Traced::Failed { .. }));
        assert_eq!(failed.map(|event| event.at), Some(mesh.now), "{trace:?}");
    }
}

/// The branches below a task that has failed may have lost their way: they are looked at after the
/// grace, whoever says that it has failed.
#[test]
fn what_is_below_a_failed_task_is_asked_for_after_the_grace() {
    let grace = Limits::default().grace;
    let entry = Entry { children: 1, holders: vec![Some(id(3))], ..closing("/0") };
    let failed = Entry { outcome: Outcome::Failed(Cause::Application), ..entry };
    let Message::Fail(by_fail) = fail(None, Executed::Yes) else { panic!("it makes one") };
    let by_fail = Message::Fail(Fail { entry: Some(Box::new(failed.clone())), ..by_fail });
    let by_entry = Message::Manifest(Manifest { own: Some(failed), inherited: Vec::new() });
    for word in [by_fail, by_entry] {
        let (mut mesh, call) = Mesh::calling(3, &[2]);
        mesh.pass(millis(10));
        let own = mesh.key_of(call, "/0");
        send(&mut mesh, 2, 1, keyed(call, "/0", own, word)).unwrap();
        mesh.pass(grace - millis(1));
        assert!(mesh.on_wire().is_empty(), "{:?}", mesh.on_wire());
        mesh.pass(millis(1));
        assert_eq!(mesh.on_wire(), ["1-3 PROBE"]);
    }
}

/// An entry of few bytes, which names the holder of each of 65,536 branches.
fn wide(seal: u64) -> Sealed {
    let (children, outcome) = (65_536, Outcome::Finished);
    let holders = vec![Some(id(3)); children as usize];
    Sealed { entry: Entry { task: task(&[]), children, replies: 0, outcome, holders }, seal }
}

fn request_with(inherited: Vec<Sealed>, extensions: Vec<Extension>) -> Message {
    let Message::Request(request) = request() else { unreachable!("it makes one") };
    Message::Request(Request { inherited, extensions, ..request })
}

#[test]
fn entries_that_a_task_is_given_to_pass_on_count_as_the_records_they_are_as_large_as() {
    let mut server = node(9, &Limits::default());
    let link = up(&mut server, 1);
    let used = |server: &Node| server.links().shares().used(Pool::Records);
    let taken = |server: &mut Node, seq, inherited| {
        let before = used(server);
        let message = request_with(inherited, Vec::new());
        take(server, link, header(1, seq, task(&[0])), message);
        used(server) - before
    };
    taken(&mut server, 1, Vec::new()); // with its origin and its ring
    assert_eq!(taken(&mut server, 2, Vec::new()), 1);
    assert_eq!(taken(&mut server, 3, vec![closing_of(&[])]), 1, "as a chain has it");
    assert_eq!(taken(&mut server, 4, vec![wide(1)]), 2_049);
    let mut starts = Vec::new();
    server.take_starts(&mut starts);
    starts.iter().for_each(|start| server.finish(NOW, &start.task));
    server.audit_shares().unwrap();
    // As settled as all before it.
    let Message::Request(last) = request() else { unreachable!("it makes one") };
    take(&mut server, link, header(1, 5, task(&[0])), Message::Request(last));
    server.audit_shares().unwrap();
    assert_eq!(used(&server), 3, "its own, that of the origin and that of the ring");
}

fn closing_of(indices: &[u32]) -> Sealed {
    let (task, outcome) = (task(indices), Outcome::Finished);
    Sealed::new(Entry { task, children: 1, replies: 0, outcome, holders: Vec::new() }, KEY)
}

#[test]
fn an_answer_to_a_probe_passes_on_so_many_entries_and_no_more() {
    let mut server = node(9, &Limits::default());
    let link = up(&mut server, 1);
    let call = |child: u32| header(1, 1, task(&[child]));
    for child in 0..8 {
        // The first is of all of them.
        let inherited = vec![closing_of(&[]), wide(u64::from(child))];
        take(&mut server, link, call(child), request_with(inherited, Vec::new()));
    }
    drain(&mut server);
    // Of each twice.
    let tasks = (0..16).map(|n| Asked { task: task(&[n / 2]), key: KEY }).collect();
    let probe = Probe { fence: false, budget_us: 1_000_000, tasks };
    take(&mut server, link, header(1, 1, task(&[])), Message::Probe(probe));
    let (sent, _) = drain(&mut server);
    let [Transmit { frame: Frame { message: Message::Status(status), .. }, .. }] = &sent[..] else {
        panic!("{:?}", sent.iter().map(|sent| sent.frame.message.name()).collect::<Vec<_>>());
    };
    let seals: Vec<u64> = status.inherited.iter().map(|entry| entry.seal).collect();
    assert_eq!(seals, [closing_of(&[]).seal, 0]);
}

#[test]
fn extensions_of_requests_count_with_their_messages() {
    let mut server = node(9, &Limits::default());
    let link = up(&mut server, 1);
    let used = |server: &Node| server.links().shares().used(Pool::Requests);
    let one = Extension { tag: 99, value: Bytes::new() };
    let few = request_with(Vec::new(), vec![one.clone(); 10]);
    take(&mut server, link, header(1, 1, task(&[0])), few);
    assert_eq!(used(&server), 0, "as small messages have it");
    let many = request_with(Vec::new(), vec![one.clone(); 20_000]);
    take(&mut server, link, header(1, 2, task(&[0])), many);
    assert_eq!(used(&server), 20_000 * 64);
    drain(&mut server);
    let too_many = request_with(Vec::new(), vec![one; 100_000]);
    take(&mut server, link, header(1, 3, task(&[0])), too_many);
    let (sent, _) = drain(&mut server);
    let [Transmit { frame: Frame { message: Message::Fail(fail), .. }, .. }] = &sent[..] else {
        panic!("it fails at once");
    };
    assert_eq!((fail.cause, fail.executed), (Cause::BadRequest, Executed::No));
    let mut starts = Vec::new();
    server.take_starts(&mut starts);
    assert_eq!(starts.len(), 2);
    // As when the message has been unpacked.
    server.resize_request(&starts[0].task, 1_000).unwrap();
    assert_eq!(used(&server), 20_000 * 64);
    server.resize_request(&starts[1].task, 100_000).unwrap();
    assert_eq!(used(&server), 20_000 * 64 + 100_000);
    starts.iter().for_each(|start| server.finish(NOW, &start.task));
    assert_eq!(used(&server), 0);
    server.audit_shares().unwrap();
}

#[test]
fn a_failure_of_a_task_that_is_stopped_does_not_wait_behind_its_replies() {
    let mut mesh = Mesh::connected_with(2, &Limits::default());
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    let (now, (_, task)) = (mesh.now, mesh.task("/0"));
    let large = Bytes::from_static(&[7; 200_000]);
    mesh.with(2, |node| node.reply(now, &task, large)).unwrap();
    let failure = TaskFailure::new(Cause::ShuttingDown, Executed::Maybe, "");
    mesh.with(2, |node| node.abort(now, &task, failure));
    mesh.deliver_all_but("CREDIT");
    let failures = mesh.events(1, call).into_iter().filter_map(|event| match event {
        CallEvent::Failure(failure) => Some((failure.cause, failure.executed)),
        _ => None,
    });
    assert_eq!(failures.collect::<Vec<_>>(), [(Cause::ShuttingDown, Executed::Maybe)]);
}

/// Leaves of the requests that are on their way the last one alone.
fn keep_last_request(mesh: &mut Mesh) {
    let is_request = |sent: &Sent| sent.frame.message.name() == "REQUEST";
    let last = mesh.wire.iter().rposition(|(_, sent)| is_request(sent)).unwrap();
    let mut index = 0;
    mesh.wire.retain(|(_, sent)| {
        index += 1;
        !is_request(sent) || index - 1 == last
    });
}

/// Tasks of many branches each are within all limits of their nodes, and no frame about several of
/// them is a fault.
#[test]
fn no_frame_names_more_holders_than_its_receiver_takes() {
    let limits = Limits { branches_max: 200_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(4, &limits);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    for (path, count) in [("/0", 40_000), ("/0/39999", 30_000)] {
        let ((at, task), now) = (mesh.task(path), mesh.now);
        mesh.with(at, |node| {
            for _ in 0..count {
                node.delegate(now, &task, branch(at + 1)).unwrap();
            }
            node.finish(now, &task);
        });
        keep_last_request(&mut mesh);
        mesh.deliver_all(); // A request that is refused by its receiver is a fault.
    }
    assert_eq!(mesh.task("/0/39999/29999").0, 4);
    let (_, task) = mesh.task("/0/39999");
    let asked = Asked { task: task.task.clone(), key: task.key };
    let probe = Probe { fence: false, budget_us: 1_000_000, tasks: vec![asked.clone(), asked] };
    let header = Header { call, task: task.task };
    let link = mesh.link_between(3, 1);
    mesh.take((3, link), Frame::new(header, Message::Probe(probe))).unwrap();
    assert_eq!(mesh.on_wire(), ["3-1 STATUS"]);
    mesh.deliver_all();
    let link = mesh.link_between(3, 4);
    mesh.disconnect(3, link);
    assert!(mesh.on_wire().contains(&"3-1 LINK_DOWN".to_owned()), "{:?}", mesh.on_wire());
    mesh.deliver_all();
    assert_eq!(mesh.end(1, call), None, "it waits for the branches that were dropped here");
}

//! What one peer can make a node keep is bounded.

use bytes::Bytes;

use super::super::*;
use super::mesh::{METHOD, branch, cast, id, millis, open_one};
use crate::id::{CallId, Path, TaskKey};
use crate::link::Hello;
use crate::mailbox::MailKey;
use crate::wire::{
    Cancel, CancelReason, Entry, Header, LinkDown, Outcome, Probe, Reply, ReplyRoute, Request,
    TASKS_MAX,
};

const NOW: Timestamp = Timestamp::ZERO;

fn node(name: u64, limits: &Limits) -> Node {
    let identity = Identity { node: id(name), incarnation: Incarnation(name) };
    Node::new(identity, limits, 1, NOW).unwrap()
}

fn link(peer: u64, nonce: u64) -> Link {
    let peer = Hello {
        node: id(peer),
        incarnation: Incarnation(peer),
        advertised: Vec::new(),
        frame_bytes_max: 1 << 20,
    };
    Link { peer, nonce: LinkNonce(nonce), is_dialler: false, scheme: "test", principal: None }
}

fn task(indices: &[u32]) -> TaskKey {
    TaskKey { path: Path::from_indices(indices).unwrap(), hop: 0 }
}

fn header(origin: u64, seq: u64, task: TaskKey) -> Header {
    Header { call: CallId { origin: Incarnation(origin), seq }, task }
}

fn request() -> Message {
    Message::Request(Request {
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

/// A frame of a peer, by the connection whose number is ten more than the peer's.
fn take(node: &mut Node, from: u64, header: Header, message: Message) {
    let frame = Frame::new(header, message);
    node.handle_frame(NOW, id(from), LinkNonce(from + 10), frame).unwrap();
}

fn drain(node: &mut Node) -> (Vec<Transmit>, Vec<NodeEvent>) {
    let transmits = std::iter::from_fn(|| node.poll_transmit(NOW)).collect();
    (transmits, std::iter::from_fn(|| node.poll_event()).collect())
}

#[test]
fn timers_of_settled_calls_are_swept_out() {
    let mut server = node(9, &Limits::default());
    server.handle_link_up(NOW, &link(1, 11));
    for seq in 1..=1_000 {
        let header = header(1, seq, task(&[0]));
        let started = TaskRef { call: header.call, task: header.task.clone() };
        take(&mut server, 1, header, request());
        server.finish(NOW, &started);
        drain(&mut server);
        assert!(server.participant().timer_count() <= 66, "call {seq}");
    }
    assert_eq!(server.participant().visit_count(), 1);
}

#[test]
fn timers_of_ended_calls_are_swept_out() {
    let mut client = node(1, &Limits::default());
    client.handle_link_up(NOW, &link(2, 12));
    for _ in 0..1_000 {
        let call = open_one(&mut client, NOW, 2);
        let reply = Message::Reply(Reply::sole(Bytes::new()));
        take(&mut client, 2, header(1, call.seq, task(&[0])), reply);
        client.detach_call(NOW, call);
        drain(&mut client);
        assert!(client.initiator().timer_count() <= 66, "call {}", call.seq);
    }
    assert_eq!(client.initiator().call_count(), 0);
}

#[test]
fn all_tasks_of_a_call_share_one_timer() {
    let mut server = node(9, &Limits::default());
    server.handle_link_up(NOW, &link(1, 11));
    for index in 0..1_000 {
        take(&mut server, 1, header(1, 1, task(&[index])), request());
    }
    assert_eq!(server.participant().timer_count(), 1);
    assert_eq!(server.participant().running_count(), 1_000);
    server.handle_timeout(NOW + Duration::from_secs(1));
    assert_eq!(server.participant().running_count(), 0);
    assert_eq!(server.participant().timer_count(), 1);
}

/// A node 9 whose task of a call of node 1 has opened `count` branches at node 2, by the connection that
/// is returned; there is another one.
fn with_branches_at_two(count: u32) -> (Node, LinkNonce, LinkNonce) {
    let mut server = node(9, &Limits::default());
    server.handle_link_up(NOW, &link(1, 11));
    server.handle_link_up(NOW, &link(2, 21));
    server.handle_link_up(NOW, &link(2, 22));
    let parent = TaskRef { call: header(1, 7, task(&[0])).call, task: task(&[0]) };
    take(&mut server, 1, header(1, 7, task(&[0])), request());
    for _ in 0..count {
        server.delegate(NOW, &parent, branch(2)).unwrap();
    }
    server.handle_yield(NOW, &parent);
    let (sent, _) = drain(&mut server);
    let used = sent.iter().find(|transmit| transmit.to == id(2)).unwrap().link;
    let spare = if used == LinkNonce(21) { LinkNonce(22) } else { LinkNonce(21) };
    (server, used, spare)
}

fn reported(node: &mut Node) -> Vec<LinkDown> {
    let (sent, _) = drain(node);
    let report = |transmit: Transmit| match transmit.frame.message {
        Message::LinkDown(report) => report,
        other => panic!("{other:?} is no report"),
    };
    sent.into_iter().map(report).collect()
}

#[test]
fn the_end_of_a_connection_is_reported_for_what_left_by_it() {
    let (mut server, used, spare) = with_branches_at_two(1);
    server.handle_link_down(NOW, id(2), spare);
    assert_eq!(reported(&mut server), []);
    server.handle_link_down(NOW, id(2), used);
    let report = LinkDown { node: id(2), children: vec![task(&[0, 0])], entries: Vec::new() };
    assert_eq!(reported(&mut server), [report]);
}

#[test]
fn branches_that_left_by_two_connections_are_reported_apart() {
    let (mut server, used, spare) = with_branches_at_two(1);
    server.handle_link_down(NOW, id(2), used);
    assert_eq!(reported(&mut server).len(), 1);
    let parent = TaskRef { call: header(1, 7, task(&[0])).call, task: task(&[0]) };
    server.delegate(NOW, &parent, branch(2)).unwrap();
    server.handle_yield(NOW, &parent);
    drain(&mut server);
    server.handle_link_down(NOW, id(2), spare);
    let reports = reported(&mut server);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].children, [task(&[0, 1])]);
}

#[test]
fn a_report_of_many_branches_is_sent_in_parts() {
    let (mut server, used, _) = with_branches_at_two(600);
    server.handle_link_down(NOW, id(2), used);
    let sizes: Vec<usize> = reported(&mut server).iter().map(|r| r.children.len()).collect();
    assert_eq!(sizes, [TASKS_MAX, TASKS_MAX, 600 - 2 * TASKS_MAX]);
}

#[test]
fn the_fences_of_one_peer_leave_room_for_the_tasks_of_others() {
    let limits = Limits { remembered_max: 16, ..Limits::default() };
    let mut server = node(9, &limits);
    server.handle_link_up(NOW, &link(3, 13));
    server.handle_link_up(NOW, &link(1, 11));
    let tasks = (0..100).map(|index| task(&[index])).collect();
    let probe = Message::Probe(Probe { fence: true, budget_us: 1_000_000, tasks });
    take(&mut server, 3, header(3, 1, task(&[])), probe);
    assert_eq!(server.participant().remembered_count(), 4);
    drain(&mut server);
    take(&mut server, 1, header(1, 1, task(&[0])), request());
    assert!(matches!(drain(&mut server).1[..], [NodeEvent::Task(ParticipantEvent::Start(_))]));
    server.handle_timeout(NOW + Duration::from_secs(1));
    server.handle_timeout(NOW + Duration::from_secs(11));
    assert_eq!(server.participant().remembered_count(), 0);
}

#[test]
fn the_marks_of_one_call_are_bounded_and_its_tasks_are_stopped_all_the_same() {
    let mut server = node(9, &Limits::default());
    server.handle_link_up(NOW, &link(1, 11));
    take(&mut server, 1, header(1, 1, task(&[5_000])), request());
    drain(&mut server);
    let cancel = || Message::Cancel(Cancel { reason: CancelReason::Caller, budget_us: 1_000_000 });
    (0..2_000).for_each(|at| take(&mut server, 1, header(1, 1, task(&[at])), cancel()));
    assert_eq!(server.participant().remembered_count(), 1_024);
    take(&mut server, 1, header(1, 1, task(&[5_000])), cancel());
    assert!(matches!(drain(&mut server).1[..], [NodeEvent::Task(ParticipantEvent::Stop { .. })]));
}

#[test]
fn the_casts_of_all_calls_share_one_bound() {
    let limits = Limits { cast_bytes_total_max: 10 * (100 + 128), ..Limits::default() };
    let mut server = node(9, &limits);
    server.handle_link_up(NOW, &link(3, 13));
    let cast = || Message::Cast(cast(0, &[0; 100]));
    (1..=20).for_each(|seq| take(&mut server, 3, header(3, seq, task(&[])), cast()));
    assert_eq!(server.mailboxes().count(), 10);
    let key = MailKey::Call(CallId { origin: Incarnation(3), seq: 1 });
    server.mailboxes_mut().join(key).unwrap();
    let mut taken = Vec::new();
    server.mailboxes_mut().take(key, &mut taken);
    assert_eq!(taken.len(), 1);
    take(&mut server, 3, header(3, 21, task(&[])), cast());
    assert_eq!(server.mailboxes().count(), 11, "what is taken makes room");
    server.handle_timeout(NOW + Duration::from_secs(1));
    assert_eq!(server.mailboxes().count(), 1, "the one that is read");
    assert_eq!(server.participant().visit_count(), 0, "a cast is no task");
}

#[test]
fn nodes_that_came_and_went_are_forgotten() {
    let mut server = node(9, &Limits::default());
    server.configure(id(50), vec!["test://50".parse().unwrap()]);
    server.handle_link_up(NOW, &link(51, 61));
    for peer in 100..5_000 {
        server.handle_link_up(NOW, &link(peer, peer + 10));
        server.handle_link_down(NOW, id(peer), LinkNonce(peer + 10));
    }
    assert_eq!(server.links().known_count(), 1_024 + 2);
    assert!(server.links().is_configured(id(50)));
    assert!(server.links().is_up(id(51), LinkNonce(61)));
}

#[test]
fn a_question_without_a_way_says_nothing_of_other_calls() {
    let (mut a, now) = (node(1, &Limits::default()), NOW);
    a.handle_link_up(now, &link(2, 12));
    a.handle_link_up(now, &link(4, 14));
    let (one, two) = (open_one(&mut a, now, 2), open_one(&mut a, now, 4));
    let outcome = Outcome::Finished;
    let holders = vec![Some(id(3))];
    let entry = Entry { task: task(&[0]), children: 1, replies: 1, outcome, holders };
    let own_entry = Some(Box::new(entry));
    let reply = Reply { is_final: false, own_entry, ..Reply::sole(Bytes::new()) };
    take(&mut a, 4, header(1, two.seq, task(&[0])), Message::Reply(reply));
    let report = LinkDown { node: id(3), children: vec![task(&[0, 0])], entries: Vec::new() };
    take(&mut a, 2, header(1, one.seq, task(&[0])), Message::LinkDown(report));
    a.handle_timeout(now + millis(21));
    let open = |call| a.call(call).unwrap().tree().open();
    assert_eq!((open(one), open(two)), (1, 1), "of call one the task at n2 is still open");
}

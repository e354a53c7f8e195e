//! Nodes that speak of calls and tasks in which they have no part.

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, id, millis};
use crate::call::{CallEvent, CallOptions};
use crate::id::{CallId, MethodId, TaskKey};
use crate::link::Hello;
use crate::wire::{
    Cancel, CancelReason, Cause, Credit, Entry, Executed, Fail, Header, Manifest, Outcome, Probe,
    Reply, ReplyRoute, Request, Status, TaskStatus,
};

fn key(path: &str) -> TaskKey {
    TaskKey { path: path.parse().unwrap(), hop: 0 }
}

fn frame(call: CallId, path: &str, message: Message) -> Frame {
    Frame::new(Header { call, task: key(path) }, message)
}

/// A frame from node `from` to node `to`, as it came by a connection of theirs.
fn send(mesh: &mut Mesh, from: u64, to: u64, frame: Frame) -> Result<(), Fault> {
    let link = mesh.nodes[&to].links().up().find(|(peer, _)| *peer == id(from)).unwrap().1;
    let now = mesh.now;
    mesh.with(to, |node| node.handle_frame(now, id(from), link, frame))
}

fn request(reply_route: ReplyRoute, floor: u64) -> Message {
    Message::Request(Request {
        budget_us: 1_000_000,
        outlasted_us: 0,
        floor,
        method: MethodId(7),
        reply_route,
        inherited: Vec::new(),
        extensions: Vec::new(),
        payload: Bytes::new(),
    })
}

fn in_the_name_of(node: u64) -> ReplyRoute {
    ReplyRoute::Node { node: id(node), addresses: Vec::new() }
}

fn closing(path: &str) -> Entry {
    let outcome = Outcome::Finished;
    Entry { task: key(path), children: 0, replies: 0, outcome, holders: Vec::new() }
}

fn from_outside(mesh: &Mesh, seq: u64) -> CallId {
    CallId { origin: mesh.nodes[&1].identity().incarnation, seq }
}

#[test]
fn a_reply_in_the_name_of_another_branch_does_not_suppress_the_real_one() {
    let options = CallOptions { is_flat: true, ..CallOptions::default() };
    let (mut mesh, call) = Mesh::calling_with(3, &[2, 3], options);
    let forged = Message::Reply(Reply::sole(Bytes::from_static(b"forged")));
    let mut relayed = frame(call, "/0", forged.clone());
    relayed.relayed_from = Some(id(2));
    send(&mut mesh, 3, 1, frame(call, "/0", forged)).unwrap();
    send(&mut mesh, 3, 1, relayed).unwrap();
    mesh.answer("/0", b"real");
    mesh.answer("/1", b"own");
    mesh.deliver_all();
    let events = mesh.events(1, call);
    let CallEvent::Reply(reply) = &events[0] else { panic!("{events:?}") };
    assert_eq!((reply.from, &reply.payload[..], events.len()), (id(2), &b"real"[..], 3));
}

#[test]
fn an_entry_closes_only_branches_above_the_task_that_brings_it() {
    let (mut mesh, call) = Mesh::calling(3, &[2, 3]);
    let manifest = || Message::Manifest(Manifest { entries: vec![closing("/0")] });
    for path in ["/7", "/1", "/1/4", "/0"] {
        send(&mut mesh, 3, 1, frame(call, path, manifest())).unwrap();
    }
    let tasks = vec![(key("/0"), TaskStatus::Running)];
    let status = Message::Status(Status { tasks, inherited: vec![closing("/0")] });
    send(&mut mesh, 3, 1, frame(call, "/1", status)).unwrap();
    assert_eq!(mesh.nodes[&1].call(call).unwrap().tree().open(), 2, "/0 and /1, and no other");
}

#[test]
fn who_did_not_send_a_request_cannot_say_that_it_never_left() {
    let (mut mesh, call) = Mesh::calling(3, &[2, 3]);
    let fail = Message::Fail(Fail {
        cause: Cause::Unreachable,
        executed: Executed::No,
        code: 0,
        node: Some(id(2)),
        text: String::new(),
        entry: None,
        aborts_children: false,
        inherited: Vec::new(),
        details: Bytes::new(),
    });
    send(&mut mesh, 3, 1, frame(call, "/0", fail.clone())).unwrap();
    assert!(mesh.events(1, call).is_empty(), "root requests are sent by the initiator itself");
    send(&mut mesh, 3, 1, frame(call, "/0/0", fail)).unwrap();
    let told = mesh.told(1, call);
    assert!(told[0].ends_with("(it may have run)"), "not proven: {told:?}");
}

#[test]
fn only_the_initiator_opens_root_branches() {
    let mut mesh = Mesh::connected(3);
    let call = from_outside(&mesh, 7);
    let forged = frame(call, "/0", request(in_the_name_of(1), 0));
    assert_eq!(send(&mut mesh, 3, 2, forged), Err(Fault::NotInitiator));
    send(&mut mesh, 1, 2, frame(call, "/0", request(ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 1);
}

#[test]
fn only_the_initiator_declares_its_calls_settled() {
    let mut mesh = Mesh::connected(3);
    for path in ["/5/0", "/5/1"] {
        let last = from_outside(&mesh, u64::MAX);
        send(&mut mesh, 3, 2, frame(last, path, request(in_the_name_of(1), 0))).unwrap();
    }
    mesh.starts.clear();
    let call = from_outside(&mesh, 7);
    send(&mut mesh, 1, 2, frame(call, "/0", request(ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 1);
}

#[test]
fn a_cancel_stops_only_tasks_that_its_sender_may_cancel() {
    let (mut mesh, call) = Mesh::calling(4, &[2]);
    mesh.delegate("/0", &[3]);
    mesh.deliver_all();
    let cancel = || Message::Cancel(Cancel { reason: CancelReason::Caller, budget_us: 1_000 });
    for (from, to) in [(4, 2), (4, 3), (3, 2)] {
        send(&mut mesh, from, to, frame(call, "/", cancel())).unwrap();
    }
    assert!(mesh.stops.is_empty());
    mesh.delegate("/0", &[4]);
    mesh.deliver_all();
    assert_eq!(mesh.task("/0/1").0, 4);
    send(&mut mesh, 2, 3, frame(call, "/0/0", cancel())).unwrap();
    send(&mut mesh, 1, 2, frame(call, "/0", cancel())).unwrap();
    mesh.deliver_all();
    let mut stopped: Vec<u64> = mesh.stops.iter().map(|(at, ..)| *at).collect();
    stopped.sort_unstable();
    assert_eq!(stopped, [2, 3, 4]);
}

#[test]
fn a_relayed_probe_does_not_fence() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let probe = Probe { fence: true, budget_us: 1_000_000, tasks: vec![key("/1")] };
    let mut relayed = frame(call, "/1", Message::Probe(probe));
    relayed.relayed_from = Some(id(2));
    send(&mut mesh, 3, 2, relayed).unwrap();
    send(&mut mesh, 1, 2, frame(call, "/1", request(ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 2);
}

#[test]
fn a_relayed_credit_is_taken_from_who_sent_the_request() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(2, |node| {
        node.reply(now, &task, Bytes::from(vec![1; 100_000])).unwrap();
        node.finish(now, &task);
    });
    let sent = mesh.wire.len();
    let credit = Message::Credit(Credit { index: 0, limit_bytes: 1 << 20 });
    let mut relayed = frame(call, "/0", credit);
    relayed.relayed_from = Some(id(2));
    send(&mut mesh, 3, 2, relayed.clone()).unwrap();
    assert_eq!(mesh.wire.len(), sent, "{:?}", mesh.on_wire());
    send(&mut mesh, 1, 2, relayed).unwrap();
    assert!(mesh.wire.len() > sent);
}

#[test]
fn nobody_makes_a_node_relay_for_a_call_in_which_it_has_no_part() {
    let (mut mesh, call) = Mesh::calling(4, &[2]);
    mesh.delegate("/0", &[3]);
    mesh.deliver_all();
    let mut up = frame(call, "/0/0", Message::Reply(Reply::sole(Bytes::new())));
    up.relayed_from = Some(id(3));
    let credit = Message::Credit(Credit { index: 0, limit_bytes: 1 });
    let mut down = frame(call, "/0/0", credit);
    down.relayed_from = Some(id(3));
    send(&mut mesh, 4, 2, up.clone()).unwrap();
    send(&mut mesh, 4, 2, down.clone()).unwrap();
    assert!(mesh.wire.is_empty(), "{:?}", mesh.on_wire());
    send(&mut mesh, 3, 2, up).unwrap();
    send(&mut mesh, 1, 2, down).unwrap();
    assert_eq!(mesh.on_wire(), ["2-1 REPLY", "2-3 CREDIT"]);
}

#[test]
fn a_third_party_does_not_change_where_a_node_is_dialled() {
    let mut mesh = Mesh::new(2, &Limits::default());
    mesh.connect(1, 2);
    let peer = Hello {
        node: id(9),
        incarnation: Incarnation(900),
        advertised: vec!["test://good".parse().unwrap()],
        frame_bytes_max: 1 << 20,
    };
    let link =
        Link { peer, nonce: LinkNonce(99), is_dialler: false, scheme: "test", principal: None };
    let now = mesh.now + millis(1);
    mesh.with(2, |node| node.handle_link_up(now, &link));
    let addresses = vec!["test://evil".parse().unwrap()];
    let call = CallId { origin: Incarnation(900), seq: 1 };
    let route = ReplyRoute::Node { node: id(9), addresses };
    send(&mut mesh, 1, 2, frame(call, "/0/0", request(route, 0))).unwrap();
    let good = "test://good".parse().unwrap();
    assert_eq!(mesh.nodes[&2].links().addresses(id(9)), [good]);
}

#[test]
fn an_advertised_address_does_not_stand_for_the_node_that_was_configured_there() {
    let mut mesh = Mesh::new(1, &Limits::default());
    let bank: Address = "test://bank".parse().unwrap();
    let peer = Hello {
        node: id(66),
        incarnation: Incarnation(6600),
        advertised: vec![bank.clone()],
        frame_bytes_max: 1 << 20,
    };
    let link =
        Link { peer, nonce: LinkNonce(99), is_dialler: false, scheme: "test", principal: None };
    let now = mesh.now;
    mesh.with(1, |node| node.handle_link_up(now, &link));
    assert_eq!(mesh.nodes[&1].links().connected_at(&bank), None);
    mesh.nodes.get_mut(&1).unwrap().configure(id(66), vec![bank.clone()]);
    assert_eq!(mesh.nodes[&1].links().connected_at(&bank), Some(id(66)));
}

/// A node may say that another's calls are settled only for what it asked for itself: who delegates for it
/// does not repeat that, for whoever hears it next would take it for an honest parent's word.
#[test]
fn a_floor_that_is_not_the_initiators_is_not_passed_on() {
    for is_initiators in [false, true] {
        let mut mesh = Mesh::connected(4);
        let call = from_outside(&mesh, 1 << 40);
        let (from, path, route) = match is_initiators {
            false => (3, "/0/0", in_the_name_of(1)),
            true => (1, "/0", ReplyRoute::Sender),
        };
        send(&mut mesh, from, 2, frame(call, path, request(route, 5))).unwrap();
        let now = mesh.now;
        let task = crate::participant::TaskRef { call, task: key(path) };
        mesh.with(2, |node| {
            node.delegate(now, &task, super::mesh::branch(4)).unwrap();
            node.finish(now, &task);
        });
        let Some((2, Transmit { frame, .. })) = mesh.wire.pop_front() else { panic!("no request") };
        let Message::Request(request) = frame.message else { panic!("{frame:?}") };
        assert_eq!(request.floor, if is_initiators { 5 } else { call.seq });
    }
}

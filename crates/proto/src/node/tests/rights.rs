//! Rights to speak of a task (the table of `admission.rs`): what does not count changes nothing,
//! whoever says it, whenever, and whatever it shows.

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, id};
use super::strangers::{
    cancel, fail, frame, in_the_name_of, key, keyed, manifest, relayed, request, send,
};
use crate::call::{CallOptions, End};
use crate::id::CallId;
use crate::key::Key;
use crate::wire::{
    Ask, Asked, Credit, Credited, Executed, Item, ItemKind, LinkDown, Probe, Reply, ReplyRoute,
    Settled, Statement, Status, TaskStatus,
};

/// Statements that a node makes upward of a task, but for STATUS.
fn statements(path: &str) -> Vec<Message> {
    let children = vec![key(&format!("{path}/0"))];
    vec![
        Message::Reply(Reply::sole(Bytes::from_static(b"forged"))),
        manifest(path),
        fail(None, Executed::No),
        fail(Some(2), Executed::No),
        Message::LinkDown(LinkDown { node: id(4), children, own: None, inherited: Vec::new() }),
    ]
}

fn status(path: &str, of: Key) -> Message {
    let asked = Asked { task: key(path), key: of };
    Message::Status(Status { tasks: vec![(asked, TaskStatus::Fenced)], inherited: Vec::new() })
}

/// The state of a node's own calls.
fn calls(mesh: &Mesh) -> String {
    format!("{:?}", mesh.nodes[&1].initiator())
}

/// Sends everything that must not count about the calls of node 1: from a node that was not asked
/// and from one that was, as its own word and as another's.
fn forge(mesh: &mut Mesh, call: CallId) {
    let of = |mesh: &Mesh, path| mesh.key_of(call, path);
    let (none, zero, one) = (None, of(mesh, "/0"), of(mesh, "/1"));
    let below = of(mesh, "/0/0");
    let wrong = [
        // Of a root branch: no key, that of another, of its child.
        ("/0", vec![none, Some(one), Some(below), Some(Key(0))]),
        // Of its child: also that of another child. The parent's key is the one that matters least.
        ("/0/0", vec![none, Some(one), Some(zero), Some(zero.child(1))]),
        // Of what does not exist.
        ("/2", vec![none, Some(zero)]),
        ("/", vec![none, Some(zero)]),
    ];
    for (path, keys) in wrong {
        for (speaker, shown) in [3, 4].into_iter().flat_map(|by| keys.iter().map(move |k| (by, *k)))
        {
            let status = shown.map(|key| status(path, key));
            for message in statements(path).into_iter().chain(status) {
                let is_status = matches!(message, Message::Status(_));
                let key = shown.filter(|_| !is_status);
                let plain = Frame { key, ..frame(call, path, message) };
                for forged in [plain.clone(), relayed(2, plain)] {
                    let (before, ignored) = (calls(mesh), mesh.nodes[&1].ignored().total());
                    let what = format!("{} of {path} by {speaker}", forged.message.name());
                    send(mesh, speaker, 1, forged).unwrap();
                    assert!(calls(mesh) == before, "{what} changes something");
                    let is_kept = mesh.nodes[&1].initiator().is_kept(call);
                    let counted = mesh.nodes[&1].ignored().total() - ignored;
                    assert_eq!(counted, u64::from(is_kept), "{what}");
                }
            }
        }
    }
}

/// Flat, as most calls are, and full.
fn both_kinds() -> [CallOptions; 2] {
    let plain = CallOptions::default();
    [plain, CallOptions { traces: true, ..plain }]
}

#[test]
fn who_has_no_right_to_speak_changes_nothing_before_the_true_frames() {
    for options in both_kinds() {
        let (mut mesh, call) = Mesh::calling_with(4, &[2, 3], options);
        forge(&mut mesh, call);
        assert_eq!(mesh.nodes[&1].call(call).is_some(), options.traces, "a flat call stays flat");
        mesh.answer("/0", b"");
        mesh.answer("/1", b"");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), ["reply /0", "reply /1", "Complete"]);
    }
}

#[test]
fn who_has_no_right_to_speak_changes_nothing_between_the_true_frames() {
    for options in both_kinds() {
        let (mut mesh, call) = Mesh::calling_with(4, &[2, 3], options);
        mesh.answer("/1", b"");
        mesh.deliver_all();
        while mesh.nodes.get_mut(&1).unwrap().poll_ready().is_some() {}
        assert_eq!(mesh.told(1, call), ["reply /1"]);
        forge(&mut mesh, call);
        mesh.delegate("/0", &[4]);
        mesh.finish("/0");
        mesh.deliver_all();
        // That /0/0 is at node 4 is known now, so its word would be heard.
        let (_, task) = mesh.task("/0/0");
        let now = mesh.now;
        mesh.with(4, |node| node.reply(now, &task, Bytes::new()).unwrap());
        mesh.with(4, |node| node.handle_yield(now, &task));
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), ["reply /0/0"]);
        while mesh.nodes.get_mut(&1).unwrap().poll_ready().is_some() {}
        forge(&mut mesh, call);
        mesh.finish("/0/0");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), ["Complete"]);
    }
}

/// Replies that were not read yet are not announced again.
#[test]
fn who_has_no_right_to_speak_wakes_nobody() {
    for options in both_kinds() {
        let (mut mesh, call) = Mesh::calling_with(4, &[2, 3], options);
        mesh.answer("/1", b"");
        mesh.deliver_all();
        forge(&mut mesh, call);
        assert_eq!(mesh.told(1, call), ["reply /1"]);
    }
}

#[test]
fn who_has_no_right_to_speak_changes_nothing_after_the_true_frames() {
    for options in both_kinds() {
        let (mut mesh, call) = Mesh::calling_with(4, &[2, 3], options);
        mesh.answer("/0", b"");
        mesh.answer("/1", b"");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), ["reply /0", "reply /1", "Complete"]);
        while mesh.nodes.get_mut(&1).unwrap().poll_ready().is_some() {}
        forge(&mut mesh, call);
        let now = mesh.now;
        mesh.with(1, |node| node.detach_call(now, call));
        forge(&mut mesh, call);
        assert_eq!(mesh.nodes[&1].initiator().unsettled_count(), 0);
    }
}

#[test]
fn who_shows_the_key_is_heard_whoever_it_is() {
    for (options, speaker) in both_kinds().into_iter().flat_map(|o| [(o, 2), (o, 3), (o, 4)]) {
        for (path, is_relayed) in [("/0", false), ("/0", true), ("/0/0", false), ("/0/0", true)] {
            for message in statements(path) {
                let (mut mesh, call) = Mesh::calling_with(4, &[2, 3], options);
                let (before, of) = (calls(&mesh), mesh.key_of(call, path));
                let what = format!("{} of {path} by {speaker}", message.name());
                let keyed = keyed(call, path, of, message);
                let way = |frame| if is_relayed { relayed(2, frame) } else { frame };
                send(&mut mesh, speaker, 1, way(keyed)).unwrap();
                assert_eq!(mesh.nodes[&1].ignored().total(), 0, "{what}");
                assert!(calls(&mesh) != before, "{what}");
            }
        }
    }
}

#[test]
fn a_root_branch_needs_no_key_over_the_connection_of_its_request_and_no_other() {
    for options in both_kinds() {
        for message in statements("/0") {
            let mut mesh = Mesh::connected(2);
            mesh.connect(1, 2);
            let call = mesh.call(1, &[2], options);
            let took = mesh.wire[0].1.link;
            mesh.deliver_all();
            let links = mesh.nodes[&1].links();
            let names = links.up().map(|(_, link)| links.nonce(link).unwrap());
            let other = names.into_iter().find(|link| *link != took).unwrap();
            let before = calls(&mesh);
            mesh.take((1, other), frame(call, "/0", message.clone())).unwrap();
            assert!(calls(&mesh) == before, "{}", message.name());
            mesh.take((1, took), frame(call, "/0", message.clone())).unwrap();
            assert!(calls(&mesh) != before, "{}", message.name());
            assert_eq!(mesh.nodes[&1].ignored().total(), 1);
        }
    }
}

/// A tail goes on under the same key, at another hop.
#[test]
fn a_later_hop_of_a_root_branch_needs_the_key() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let mut reply = frame(call, "/0", Message::Reply(Reply::sole(Bytes::new())));
    reply.header.task.hop = 1;
    send(&mut mesh, 2, 1, reply.clone()).unwrap();
    assert_eq!((mesh.nodes[&1].ignored().total(), mesh.end(1, call)), (1, None));
    reply.key = Some(mesh.key_of(call, "/0"));
    send(&mut mesh, 3, 1, reply).unwrap();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
}

/// The state of a node's tasks.
fn tasks(mesh: &Mesh, at: u64) -> String {
    format!("{:?}", mesh.nodes[&at].visits())
}

fn credit() -> Message {
    Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 1 << 20 })
}

fn probe(fence: bool, path: &str, of: Key) -> Message {
    let tasks = vec![Asked { task: key(path), key: of }];
    Message::Probe(Probe { fence, budget_us: 1_000_000, tasks })
}

/// Orders that must not bind the task /0 of a call at node 2.
fn order(mesh: &mut Mesh, call: CallId) {
    let [own, other] = ["/0", "/1"].map(|path| mesh.key_of(call, path));
    for by in [1, 3, 4] {
        for message in [cancel(), credit()] {
            let (before, ignored) = (tasks(mesh, 2), mesh.nodes[&2].ignored().orders_other);
            send(mesh, by, 2, frame(call, "/0", message)).unwrap();
            assert!(tasks(mesh, 2) == before, "without a key, by {by}");
            assert_eq!(mesh.nodes[&2].ignored().orders_other, ignored + 1);
        }
        for wrong in [other, own.child(0), Key(0)] {
            let before = tasks(mesh, 2);
            send(mesh, by, 2, keyed(call, "/0", wrong, credit())).unwrap();
            send(mesh, by, 2, frame(call, "/", probe(false, "/0", wrong))).unwrap();
            assert!(tasks(mesh, 2) == before, "with another key, by {by}");
            // These leave something for a request that shows the same key.
            send(mesh, by, 2, keyed(call, "/0", wrong, cancel())).unwrap();
            send(mesh, by, 2, frame(call, "/", probe(true, "/0", wrong))).unwrap();
        }
    }
    mesh.wire.clear();
    assert!(mesh.stops.is_empty());
}

#[test]
fn who_has_no_right_to_give_orders_changes_no_task() {
    for moment in ["before", "while it runs", "after"] {
        let mut mesh = Mesh::connected(4);
        let call = mesh.call(1, &[2], CallOptions::default());
        let request = mesh.hold_back("REQUEST");
        if moment == "before" {
            order(&mut mesh, call);
        }
        mesh.wire.extend(request);
        mesh.deliver_all();
        assert_eq!(mesh.starts.len(), 1, "{moment}");
        if moment == "while it runs" {
            order(&mut mesh, call);
        }
        let (_, task) = mesh.task("/0");
        assert!(mesh.nodes[&2].is_running(&task), "{moment}");
        mesh.answer("/0", b"");
        if moment == "after" {
            let reply = mesh.hold_back("REPLY");
            order(&mut mesh, call);
            mesh.wire.extend(reply);
        }
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), ["reply /0", "Complete"], "{moment}");
    }
}

#[test]
fn a_task_obeys_whoever_shows_its_key() {
    for by in [1, 3, 4] {
        let (mut mesh, call) = Mesh::calling(4, &[2]);
        let own = mesh.key_of(call, "/0");
        send(&mut mesh, by, 2, frame(call, "/", probe(true, "/0", own))).unwrap();
        let Message::Status(status) = &mesh.wire[0].1.frame.message else { panic!("no status") };
        assert_eq!(status.tasks[0].1, TaskStatus::Running);
        send(&mut mesh, by, 2, keyed(call, "/0", own, cancel())).unwrap();
        assert_eq!(mesh.stops.len(), 1, "by {by}");
    }
}

#[test]
fn a_probe_with_the_wrong_key_learns_nothing() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let own = mesh.key_of(call, "/0");
    send(&mut mesh, 3, 2, frame(call, "/", probe(false, "/0", own.child(0)))).unwrap();
    let Message::Status(status) = &mesh.wire[0].1.frame.message else { panic!("no status") };
    assert_eq!(status.tasks[0].1, TaskStatus::Unknown);
    assert_eq!(mesh.wire[0].1.to, id(3), "to who asked");
}

#[test]
fn what_goes_straight_to_its_receiver_is_not_relayed() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let cast = Message::Cast(super::mesh::cast(0, b""));
    let item = Item { kind: ItemKind::End { count: 0 }, part: None, payload: Bytes::new() };
    let ask = Message::Ask(Ask { origins: vec![(call.origin, 0)] });
    let nothing =
        Statement { origin: call.origin, from: 0, to: 0, exceptions: Vec::new(), open: Vec::new() };
    let settled = Message::Settled(Settled { statements: vec![nothing] });
    let routes = [ReplyRoute::Sender, in_the_name_of(1)];
    let requests = routes.map(|route| request(Key(1), route, 0));
    for message in [cancel(), cast, Message::Item(item), ask, settled].into_iter().chain(requests) {
        let frame = relayed(3, frame(call, "/0/0", message));
        assert_eq!(send(&mut mesh, 1, 2, frame), Err(Fault::Misrouted));
    }
}

/// Its frames are ignored at the price of a comparison; who sends nothing else is disconnected.
#[test]
fn a_connection_that_brings_only_orders_that_do_not_count_is_closed() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let link = mesh.link_between(2, 3);
    for _ in 0..10_000 {
        mesh.take((2, link), frame(call, "/0", cancel())).unwrap();
    }
    assert!(mesh.resets.is_empty());
    assert_eq!(mesh.ignored, [(2, Ignored::OrdersOther)], "said once");
    mesh.take((2, link), frame(call, "/0", cancel())).unwrap();
    assert_eq!(mesh.resets, [(2, link)]);
    mesh.take((2, link), frame(call, "/0", cancel())).unwrap();
    assert_eq!(mesh.nodes[&2].ignored().total(), 10_001, "what it still brings is not looked at");
}

/// A node that asks a server in the name of another has it speak to that other without right; that
/// is not the server's doing, and does not cost it the connection.
#[test]
fn a_server_is_not_disconnected_for_what_strangers_have_it_say() {
    let mut mesh = Mesh::connected(3);
    let served = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    for forged in 1..=10_001 {
        let asked = request(Key(forged), in_the_name_of(1), 0);
        send(&mut mesh, 3, 2, frame(served, "/0/0", asked)).unwrap();
        let (_, task) = mesh.task("/0/0");
        let now = mesh.now;
        mesh.with(2, |node| node.answer(now, &task, Bytes::new())).unwrap();
        mesh.deliver_all_but("ASK");
        mesh.starts.pop();
    }
    let ignored = mesh.nodes[&1].ignored().speaks_for_other;
    assert!(ignored > 10_000, "{ignored}");
    assert!(mesh.resets.is_empty());
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.end(1, served), Some(End::Complete));
}

//! Nodes that speak of calls and tasks in which they have no part.

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, branch, id, millis};
use super::settlement::{cancel_and_detach, pass, unsettled};
use crate::call::{CallEvent, CallOptions, End};
use crate::id::{CallId, LinkNonce, MethodId, TaskKey};
use crate::key::Key;
use crate::link::Hello;
use crate::mailbox::{MailKey, Tag};
use crate::wire::{
    Asked, Cancel, CancelReason, Cause, Credit, Credited, Entry, Executed, Fail, Header, Manifest,
    Outcome, Probe, Relayed, Reply, ReplyPath, ReplyRoute, Request, Rung, Sealed, Status,
    TaskStatus,
};

/// The key of every root branch of a call that node 1 did not open itself.
pub(super) const KEY: Key = Key(7);

pub(super) fn key(path: &str) -> TaskKey {
    TaskKey { path: path.parse().unwrap(), hop: 0 }
}

pub(super) fn frame(call: CallId, path: &str, message: Message) -> Frame {
    Frame::new(Header { call, task: key(path) }, message)
}

pub(super) fn keyed(call: CallId, path: &str, key: Key, message: Message) -> Frame {
    Frame { key: Some(key), ..frame(call, path, message) }
}

/// As [`keyed`], but for what names the keys of its tasks itself.
fn of_task(call: CallId, path: &str, key: Key, message: Message) -> Frame {
    match message {
        Message::Probe(_) | Message::Status(_) => frame(call, path, message),
        _ => keyed(call, path, key, message),
    }
}

pub(super) fn relayed(from: u64, frame: Frame) -> Frame {
    Frame { relayed: Some(Relayed { node: id(from), at: Rung::of(&frame.header.task) }), ..frame }
}

/// A frame from node `from` to node `to`, as it came by a connection of theirs.
pub(super) fn send(mesh: &mut Mesh, from: u64, to: u64, frame: Frame) -> Result<(), Fault> {
    let link = mesh.link_between(to, from);
    mesh.take((to, link), frame)
}

pub(super) fn request(key: Key, reply_route: ReplyRoute, floor: u64) -> Message {
    Message::Request(Request {
        key,
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

pub(super) fn in_the_name_of(node: u64) -> ReplyRoute {
    ReplyRoute::Node { node: id(node), addresses: Vec::new() }
}

pub(super) fn closing(path: &str) -> Entry {
    let outcome = Outcome::Finished;
    Entry { task: key(path), children: 0, replies: 0, outcome, holders: Vec::new() }
}

pub(super) fn manifest(path: &str) -> Message {
    Message::Manifest(Manifest { own: Some(closing(path)), inherited: Vec::new() })
}

pub(super) fn cancel() -> Message {
    Message::Cancel(Cancel { reason: CancelReason::Caller, budget_us: 1_000_000 })
}

pub(super) fn fail(node: Option<u64>, executed: Executed) -> Message {
    Message::Fail(Fail {
        cause: Cause::Unreachable,
        executed,
        code: 0,
        node: node.map(id),
        text: String::new(),
        entry: None,
        aborts_children: false,
        inherited: Vec::new(),
        extensions: Vec::new(),
        details: Bytes::new(),
    })
}

pub(super) fn from_outside(mesh: &Mesh, seq: u64) -> CallId {
    CallId { origin: mesh.nodes[&1].identity().incarnation, seq }
}

fn link(peer: Hello) -> Link {
    let (nonce, scheme) = (LinkNonce(99), "test");
    Link { peer, nonce, is_dialler: false, scheme, principal: None, remote: None }
}

#[test]
fn a_reply_in_the_name_of_another_branch_does_not_suppress_the_real_one() {
    let options = CallOptions { is_flat: true, ..CallOptions::default() };
    let (mut mesh, call) = Mesh::calling_with(3, &[2, 3], options);
    let forged = || frame(call, "/0", Message::Reply(Reply::sole(Bytes::from_static(b"forged"))));
    send(&mut mesh, 3, 1, forged()).unwrap();
    send(&mut mesh, 3, 1, relayed(2, forged())).unwrap();
    assert_eq!(mesh.nodes[&1].ignored().speaks_for_other, 2);
    mesh.answer("/0", b"real");
    mesh.answer("/1", b"own");
    mesh.deliver_all();
    let events = mesh.events(1, call);
    let CallEvent::Reply(reply) = &events[0] else { panic!("{events:?}") };
    assert_eq!((reply.from, &reply.payload[..], events.len()), (id(2), &b"real"[..], 3));
}

/// Words that end a branch, or its reply, which its task has not said.
fn lies(of: Key) -> Vec<(&'static str, Message)> {
    let entry = |outcome| Entry { outcome, ..closing("/0/0") };
    let ended = |outcome| Manifest { own: Some(entry(outcome)), inherited: Vec::new() };
    let reply = Reply::sole(Bytes::from_static(b"a lie"));
    let own_entry = Some(Box::new(Entry { replies: 1, ..closing("/0/0") }));
    let answered = |state| {
        let tasks = vec![(Asked { task: key("/0/0"), key: of }, state)];
        Message::Status(Status { tasks, inherited: Vec::new() })
    };
    let (entry, replies_by) =
        (Box::new(entry(Outcome::Failed(Cause::Panicked))), ReplyPath::Nowhere);
    vec![
        ("a failure", fail(None, Executed::No)),
        ("a failed end", Message::Manifest(ended(Outcome::Failed(Cause::Application)))),
        ("an end without a reply", Message::Manifest(ended(Outcome::Finished))),
        ("the only reply", Message::Reply(reply.clone())),
        ("the last reply", Message::Reply(Reply { is_final: false, own_entry, ..reply })),
        ("an answer", answered(TaskStatus::Closed { entry, replies_by })),
        ("an answer that nothing is known", answered(TaskStatus::Forgotten)),
    ]
}

/// Node 2 has opened a branch at each of these nodes, has said so and has ended. With the key of
/// the first branch.
fn with_leaves(options: CallOptions, leaves: &[u64]) -> (Mesh, CallId, Key) {
    let (mut mesh, call) = Mesh::calling_with(3, &[2], options);
    let now = mesh.now;
    let (_, task) = mesh.task("/0");
    mesh.with(2, |node| {
        for leaf in leaves {
            node.delegate(now, &task, super::mesh::branch(*leaf)).unwrap();
        }
        node.finish(now, &task);
    });
    mesh.deliver_all();
    let holders: Vec<_> = leaves.iter().map(|leaf| Some(id(*leaf))).collect();
    let children = u32::try_from(leaves.len()).unwrap();
    let own = Some(Entry { children, holders, ..closing("/0") });
    let of_its_own = Message::Manifest(Manifest { own, inherited: Vec::new() });
    let parent = mesh.key_of(call, "/0");
    send(&mut mesh, 2, 1, keyed(call, "/0", parent, of_its_own)).unwrap();
    (mesh, call, parent.child(0))
}

/// A parent that says of its child that it was not reached, though it was; or that passes on what
/// its child has not said, straight or as what a task below the child carries.
#[test]
fn the_word_of_a_parent_ends_no_branch_where_it_is_not_believed() {
    let mut cases = vec![("its own word", None)];
    cases.extend((0..lies(KEY).len()).map(|lie| (lies(KEY)[lie].0, Some(lie))));
    for ignores_hearsay in [false, true] {
        for (name, lie) in &cases {
            let options = CallOptions { ignores_hearsay, ..CallOptions::default() };
            let (mut mesh, call, child) = with_leaves(options, &[3, 2]);
            let lie = match lie {
                None => keyed(call, "/0/0", child, fail(Some(3), Executed::No)),
                Some(lie) => {
                    relayed(3, of_task(call, "/0/0", child, lies(child).swap_remove(*lie).1))
                }
            };
            send(&mut mesh, 2, 1, lie).unwrap();
            mesh.answer("/0/1", b"its own");
            mesh.deliver_all();
            mesh.answer("/0/0", b"it lives");
            mesh.deliver_all();
            let events = mesh.events(1, call);
            let is_true = |event: &&CallEvent| match event {
                CallEvent::Reply(reply) => &reply.payload[..] != b"a lie",
                _ => false,
            };
            let replies = events.iter().filter(is_true).count();
            let expected = if ignores_hearsay { 2 } else { 1 };
            assert_eq!(replies, expected, "{name}: {events:?}");
            let is_whole = events.last() == Some(&CallEvent::Ended(End::Complete));
            assert!(is_whole || !ignores_hearsay, "{name}: {events:?}");
        }
    }
}

/// The opener of a branch can seal what is said of it, and bring that as a task below it.
#[test]
fn an_end_that_a_task_below_carries_is_that_of_its_own_task_at_a_root_alone() {
    for (path, below, ends) in [("/0", "/0/0", true), ("/0/0", "/0/0/0", false)] {
        let options = CallOptions { ignores_hearsay: true, ..CallOptions::default() };
        let (mut mesh, call) = Mesh::calling_with(3, &[2], options);
        let own = mesh.key_of(call, path);
        let entry =
            Entry { children: 1, outcome: Outcome::Failed(Cause::Application), ..closing(path) };
        let inherited = vec![Sealed::new(entry, own)];
        let carried = Message::Manifest(Manifest { own: None, inherited });
        send(&mut mesh, 2, 1, keyed(call, below, own.child(0), carried)).unwrap();
        assert_eq!(mesh.told(1, call).len(), usize::from(ends), "{path}");
    }
}

/// A word that does not end a branch before the end of its call settles it all the same.
#[test]
fn a_call_that_believes_nobody_is_settled_by_what_is_passed_on() {
    for lie in 0..3 {
        for is_decided in [false, true] {
            let options = CallOptions { ignores_hearsay: true, ..CallOptions::default() };
            let (mut mesh, call, child) = with_leaves(options, &[3, 2]);
            mesh.answer("/0/1", b"its own");
            mesh.deliver_all();
            let word = lies(child).swap_remove(lie).1;
            send(&mut mesh, 2, 1, relayed(3, keyed(call, "/0/0", child, word))).unwrap();
            assert_eq!(unsettled(&mesh), (1, 0));
            let now = mesh.now;
            match is_decided {
                true => mesh.with(1, |node| node.decide_call(now, call, false)),
                false => cancel_and_detach(&mut mesh, call),
            }
            assert_eq!(unsettled(&mesh), (0, 0), "{}", lies(child)[lie].0);
        }
    }
}

/// A parent that passes on that its child has ended without a reply, though it has said nothing;
/// and a child that says so itself, at once or when it is asked.
#[test]
fn a_silent_branch_names_a_node_that_has_said_so_where_no_other_is_believed() {
    for (ignores_hearsay, is_relayed, is_asked) in [
        (false, false, false),
        (false, true, false),
        (true, false, false),
        (true, true, false),
        (false, false, true),
        (true, false, true),
        (true, true, true),
    ] {
        let options = CallOptions { ignores_hearsay, tells_silent: true, ..CallOptions::default() };
        let (mut mesh, call, child) = with_leaves(options, &[3]);
        let word = match is_asked {
            false => manifest("/0/0"),
            true => {
                let (entry, replies_by) = (Box::new(closing("/0/0")), ReplyPath::Nowhere);
                let asked = Asked { task: key("/0/0"), key: child };
                let tasks = vec![(asked, TaskStatus::Closed { entry, replies_by })];
                Message::Status(Status { tasks, inherited: Vec::new() })
            }
        };
        let word = of_task(call, "/0/0", child, word);
        match is_relayed {
            false => send(&mut mesh, 3, 1, word).unwrap(),
            true => send(&mut mesh, 2, 1, relayed(3, word)).unwrap(),
        }
        let silent = mesh.events(1, call).into_iter().find_map(|event| match event {
            CallEvent::Silent { path, node } => Some((path.to_string(), node)),
            _ => None,
        });
        let counts = !is_relayed || !ignores_hearsay;
        assert_eq!(silent, counts.then(|| ("/0/0".into(), Some(id(3)))));
    }
}

#[test]
fn an_entry_closes_only_branches_above_the_task_that_brings_it() {
    let (mut mesh, call) = Mesh::calling(3, &[2, 3]);
    let own_key = mesh.key_of(call, "/1");
    let sealed = Sealed::new(closing("/0"), mesh.key_of(call, "/0"));
    for inherited in [Vec::new(), vec![sealed.clone()]] {
        let manifest = Manifest { own: Some(closing("/0")), inherited };
        let manifest = Message::Manifest(manifest);
        for path in ["/7", "/1", "/1/4", "/0"] {
            send(&mut mesh, 3, 1, frame(call, path, manifest.clone())).unwrap();
        }
        send(&mut mesh, 3, 1, keyed(call, "/1/4", own_key.child(4), manifest)).unwrap();
    }
    let asked = Asked { task: key("/1"), key: own_key };
    let tasks = vec![(asked, TaskStatus::Running)];
    let status = Message::Status(Status { tasks, inherited: vec![sealed] });
    send(&mut mesh, 3, 1, frame(call, "/1", status)).unwrap();
    assert_eq!(mesh.nodes[&1].call(call).unwrap().tree().open(), 2, "/0 and /1, and no other");
}

#[test]
fn a_carried_entry_counts_only_with_the_seal_of_its_branch() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let (parent, child) = (mesh.key_of(call, "/0"), mesh.key_of(call, "/0/0"));
    let entry = Entry { children: 1, holders: vec![Some(id(3))], ..closing("/0") };
    let lie = Entry { children: 0, holders: Vec::new(), ..entry.clone() };
    let carry = |inherited| Message::Manifest(Manifest { own: None, inherited });
    let by_the_child = Sealed::new(lie.clone(), child);
    let changed = Sealed { entry: lie, ..Sealed::new(entry.clone(), parent) };
    for forged in [by_the_child, changed] {
        send(&mut mesh, 3, 1, keyed(call, "/0/0", child, carry(vec![forged]))).unwrap();
        assert_eq!(mesh.end(1, call), None);
    }
    let sealed = Sealed::new(entry, parent);
    send(&mut mesh, 3, 1, frame(call, "/0/0", carry(vec![sealed.clone()]))).unwrap();
    assert_eq!(mesh.nodes[&1].call(call).unwrap().tree().open(), 1, "who brings it must count");
    send(&mut mesh, 3, 1, keyed(call, "/0/0", child, carry(vec![sealed]))).unwrap();
    send(&mut mesh, 3, 1, keyed(call, "/0/0", child, manifest("/0/0"))).unwrap();
    assert_eq!(mesh.told(1, call), ["Complete"]);
}

/// T3: who only has the key cannot know that the task did not run.
#[test]
fn who_did_not_send_a_request_cannot_say_that_it_never_left() {
    let never_left = || fail(Some(2), Executed::No);
    for (by, path, told) in [(3, "/0/0", "(it may have run)"), (2, "/0/0", "(it did not run)")] {
        let (mut mesh, call) = Mesh::calling(3, &[2, 3]);
        let key = mesh.key_of(call, path);
        send(&mut mesh, by, 1, frame(call, path, never_left())).unwrap();
        assert!(mesh.events(1, call).is_empty(), "it shows no key");
        send(&mut mesh, by, 1, keyed(call, path, key, never_left())).unwrap();
        let events = mesh.told(1, call);
        assert!(events[0].ends_with(told), "{events:?}");
    }
}

#[test]
fn only_who_holds_a_task_can_say_that_it_did_not_run() {
    for (by, told) in [(3, "(it may have run)"), (2, "(it did not run)")] {
        let (mut mesh, call) = Mesh::calling(3, &[2, 3]);
        let key = mesh.key_of(call, "/0");
        send(&mut mesh, by, 1, keyed(call, "/0", key, fail(None, Executed::No))).unwrap();
        let events = mesh.told(1, call);
        assert!(events[0].ends_with(told), "{events:?}");
    }
}

#[test]
fn only_the_initiator_opens_root_branches() {
    let mut mesh = Mesh::connected(3);
    let call = from_outside(&mesh, 7);
    let forged = frame(call, "/0", request(KEY, in_the_name_of(1), 0));
    assert_eq!(send(&mut mesh, 3, 2, forged), Err(Fault::NotInitiator));
    let foreign = frame(call, "/0", request(KEY, ReplyRoute::Sender, 0));
    assert_eq!(send(&mut mesh, 3, 2, foreign), Err(Fault::ForeignCall));
    send(&mut mesh, 1, 2, frame(call, "/0", request(KEY, ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 1);
}

#[test]
fn only_the_initiator_declares_its_calls_settled() {
    let mut mesh = Mesh::connected(3);
    for path in ["/5/0", "/5/1"] {
        let last = from_outside(&mesh, u64::MAX);
        send(&mut mesh, 3, 2, frame(last, path, request(KEY, in_the_name_of(1), 0))).unwrap();
    }
    mesh.starts.clear();
    let call = from_outside(&mesh, 7);
    send(&mut mesh, 1, 2, frame(call, "/0", request(KEY, ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 1);
}

/// Requests are not passed on, whoever the frame says it is from.
#[test]
fn a_request_that_says_to_be_passed_on_is_misrouted() {
    let mut mesh = Mesh::connected(3);
    let call = from_outside(&mesh, 7);
    for from in [1, 3] {
        let request = request(KEY, in_the_name_of(1), 0);
        let frame = relayed(from, frame(call, "/0/0", request));
        assert_eq!(send(&mut mesh, 3, 2, frame), Err(Fault::Misrouted), "from {from}");
    }
    assert!(mesh.starts.is_empty());
}

/// It is no proof that the task did not run, which *lost* says.
#[test]
fn a_branch_is_not_lost_by_the_word_of_one_that_was_not_asked() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let key = mesh.key_of(call, "/0");
    let entry = Entry { outcome: Outcome::Failed(Cause::Lost), ..closing("/0") };
    let word = Message::Manifest(Manifest { own: Some(entry), inherited: Vec::new() });
    send(&mut mesh, 3, 1, keyed(call, "/0", key, word)).unwrap();
    assert_eq!(
        mesh.told(1, call),
        ["branch /0 at n3: the connection to the node was lost (it may have run)", "Partial"]
    );
}

/// T5, T6: a request that comes before the true one takes nothing away from it.
#[test]
fn a_request_with_another_key_is_another_task() {
    let mut mesh = Mesh::connected(3);
    let call = from_outside(&mesh, 7);
    let key = mesh.key_of(call, "/0/0");
    for (from, key) in [(3, Key(1)), (3, key), (1, key), (1, key)] {
        let request = request(key, in_the_name_of(1), 0);
        send(&mut mesh, from, 2, frame(call, "/0/0", request)).unwrap();
    }
    let senders: Vec<u64> = mesh.starts.iter().map(|(_, start)| start.from.get()).collect();
    assert_eq!(senders, [3, 3, 1], "the last is a copy");
}

/// Found by the simulation (liars, seed 8610000583131): a peer that was sent a task sends it on as
/// the task and as its next hop, and the branches of both have the same name and key. One that had
/// to wait for its connection was taken for the other.
#[test]
fn branches_of_a_task_and_of_its_next_hop_are_told_apart() {
    let mut mesh = Mesh::new(4, &Limits::default());
    mesh.connect(1, 2);
    let call = from_outside(&mesh, 7);
    for (hop, to) in [(0, 3), (1, 4)] {
        let mut request = frame(call, "/0", request(KEY, ReplyRoute::Sender, 0));
        request.header.task.hop = hop;
        send(&mut mesh, 1, 2, request).unwrap();
        let (_, start) = mesh.starts.last().unwrap();
        let (task, now) = (start.task.clone(), mesh.now);
        mesh.with(2, |node| {
            node.configure(id(to), vec![format!("test://{to}").parse().unwrap()]);
            node.delegate(now, &task, branch(to)).unwrap();
            node.handle_yield(now, &task);
        });
    }
    mesh.connect(2, 4);
    assert_eq!(mesh.on_wire(), ["2-4 REQUEST"]);
    mesh.nodes[&2].audit_shares().unwrap();
    let link = mesh.link_between(2, 4);
    mesh.disconnect(2, link);
    assert_eq!(mesh.on_wire(), ["2-4 REQUEST", "2-1 LINK_DOWN"]);
}

/// Found by the simulation (liars, seed 8610001283391): a peer that knows the key of a task makes
/// the same one here, which has branches of the same names and keys. A branch of the one that had
/// to wait for its connection was taken for a branch of the other that was still held back.
#[test]
fn branches_of_a_task_that_two_peers_sent_are_told_apart() {
    let mut mesh = Mesh::new(5, &Limits::default());
    mesh.connect(3, 2);
    mesh.connect(4, 2);
    let call = from_outside(&mesh, 7);
    for (from, yields) in [(3, false), (4, true)] {
        let request = frame(call, "/0/0", request(KEY, in_the_name_of(1), 0));
        send(&mut mesh, from, 2, request).unwrap();
        let (_, start) = mesh.starts.last().unwrap();
        let (task, now) = (start.task.clone(), mesh.now);
        mesh.with(2, |node| {
            node.configure(id(5), vec!["test://5".parse().unwrap()]);
            node.delegate(now, &task, branch(5)).unwrap();
            if yields {
                node.handle_yield(now, &task);
            }
        });
    }
    mesh.connect(2, 5);
    assert_eq!(mesh.on_wire(), ["2-5 REQUEST"]);
    let mut cancel = frame(call, "/0/0", cancel());
    cancel.key = Some(KEY);
    send(&mut mesh, 3, 2, cancel).unwrap();
    mesh.nodes[&2].audit_shares().unwrap();
}

/// T7: the same life said by two nodes is two origins.
#[test]
fn a_life_that_another_node_says_is_its_own() {
    let mut mesh = Mesh::new(2, &Limits::default());
    mesh.connect(1, 2);
    let incarnation = mesh.life(1);
    let peer = Hello { node: id(9), incarnation, advertised: Vec::new(), frame_bytes_max: 1 << 20 };
    mesh.link_up(2, &link(peer));
    let far = from_outside(&mesh, 1_000);
    let squatter = frame(far, "/0", request(KEY, ReplyRoute::Sender, 0));
    mesh.take((2, LinkNonce(99)), squatter).unwrap();
    let call = from_outside(&mesh, 7);
    send(&mut mesh, 1, 2, frame(call, "/0", request(KEY, ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 2, "its floor is of no other's calls");
    mesh.answer("/0", b"");
    let to: Vec<u64> = mesh.wire.iter().map(|(_, sent)| sent.to.get()).collect();
    assert_eq!(to, [1]);
}

/// Connects node 9, which says that it lives the life of node 1, with node 2.
fn squat(mesh: &mut Mesh) {
    let incarnation = mesh.life(1);
    let peer = Hello { node: id(9), incarnation, advertised: Vec::new(), frame_bytes_max: 1 << 20 };
    mesh.link_up(2, &link(peer));
}

/// Node 9 has node 2 run a task of its call of this number, and says with its next that it is
/// settled.
fn settle_squatted(mesh: &mut Mesh, seq: u64) {
    for seq in [seq, seq + 1] {
        let call = from_outside(mesh, seq);
        let own = frame(call, "/0", request(Key(8), ReplyRoute::Sender, 0));
        mesh.take((2, LinkNonce(99)), own).unwrap();
        mesh.answer("/0", b"");
    }
    assert!(mesh.nodes[&2].visits().has_settled(id(9), from_outside(mesh, seq)));
    mesh.starts.clear();
    mesh.wire.clear();
}

/// T7: node 9 settles its calls, and none of node 1.
#[test]
fn what_one_node_settles_leaves_what_another_of_the_same_life_has_refused() {
    let fence = || fence("/0/0", KEY);
    for (by, refused, is_asked_by_both) in
        [(1, fence(), false), (1, fence(), true), (1, cancel(), false), (3, cancel(), false)]
    {
        let mut mesh = Mesh::connected(3);
        squat(&mut mesh);
        let call = from_outside(&mesh, 5);
        if is_asked_by_both {
            let of_the_squatter = of_task(call, "/0/0", KEY, fence());
            mesh.take((2, LinkNonce(99)), of_the_squatter).unwrap();
        }
        send(&mut mesh, by, 2, of_task(call, "/0/0", KEY, refused)).unwrap();
        settle_squatted(&mut mesh, 5);
        let late = frame(call, "/0/0", request(KEY, in_the_name_of(1), 0));
        send(&mut mesh, 3, 2, late).unwrap();
        assert!(mesh.starts.is_empty(), "by {by}");
        mesh.nodes[&2].audit_shares().unwrap();
    }
}

/// A fence is kept for as long as the one who asks last has asked for.
#[test]
fn a_fence_that_was_there_is_kept_for_as_long_as_its_initiator_asks() {
    let mut mesh = Mesh::connected(3);
    let call = from_outside(&mesh, 5);
    for (by, budget_us) in [(3, 0), (1, 30_000_000)] {
        let Message::Probe(probe) = fence("/0/0", KEY) else { panic!("a fence is a question") };
        let fence = Message::Probe(Probe { budget_us, ..probe });
        send(&mut mesh, by, 2, frame(call, "/", fence)).unwrap();
    }
    let time = Limits::default().keep_alive_timeout + millis(1_000);
    pass(&mut mesh, time);
    let late = frame(call, "/0/0", request(KEY, in_the_name_of(1), 0));
    send(&mut mesh, 3, 2, late).unwrap();
    assert!(mesh.starts.is_empty(), "it was fenced for longer");
    pass(&mut mesh, millis(30_000));
    assert_eq!(mesh.nodes[&2].visits().remembered_count(), 0);
}

/// A mark is of the call of its initiator, or of that of the task which was cancelled.
#[test]
fn what_a_node_settles_takes_its_refusals_along() {
    for (by, refused) in [(1, fence("/0/1", KEY)), (1, cancel()), (3, cancel())] {
        let mut mesh = Mesh::connected(3);
        let call = from_outside(&mesh, 5);
        let own = frame(call, "/0/0", request(KEY, in_the_name_of(1), 0));
        send(&mut mesh, 3, 2, own).unwrap();
        send(&mut mesh, by, 2, of_task(call, "/0/0", KEY, refused)).unwrap();
        mesh.finish("/0/0");
        let next = from_outside(&mesh, 6);
        send(&mut mesh, 1, 2, frame(next, "/0", request(KEY, ReplyRoute::Sender, 0))).unwrap();
        assert_eq!(mesh.nodes[&2].visits().remembered_count(), 0, "by {by}");
        mesh.nodes[&2].audit_shares().unwrap();
    }
}

/// A node that passes on a CANCEL or a PROBE does not say whose call it is. The settled calls of
/// the only node that has spoken say nothing of a call of which this one has sent nothing yet.
#[test]
fn what_another_of_the_same_life_has_settled_hides_no_word_of_a_parent() {
    let mut mesh = Mesh::connected(3);
    squat(&mut mesh);
    settle_squatted(&mut mesh, 5);
    let call = from_outside(&mesh, 5);
    let asked = vec![Asked { task: key("/0/1"), key: KEY }];
    let probe = Message::Probe(Probe { fence: false, budget_us: 1_000_000, tasks: asked });
    send(&mut mesh, 3, 2, frame(call, "/0/1", probe)).unwrap();
    let Some((_, sent)) = mesh.wire.pop_front() else { panic!("no answer") };
    let Message::Status(status) = sent.frame.message else { panic!("{sent:?}") };
    assert_eq!(status.tasks[0].1, TaskStatus::Unknown);
    send(&mut mesh, 3, 2, keyed(call, "/0/0", KEY, cancel())).unwrap();
    let late = frame(call, "/0/0", request(KEY, in_the_name_of(1), 0));
    send(&mut mesh, 3, 2, late).unwrap();
    assert!(mesh.starts.is_empty(), "it overtook its request");
}

#[test]
fn a_cancel_stops_only_the_task_whose_key_it_shows() {
    let (mut mesh, call) = Mesh::calling(4, &[2]);
    mesh.delegate("/0", &[3]);
    mesh.deliver_all();
    for (from, to) in [(4, 2), (4, 3), (3, 2), (1, 2), (2, 3)] {
        for path in ["/", "/0", "/0/0"] {
            send(&mut mesh, from, to, frame(call, path, cancel())).unwrap();
        }
    }
    let [above, below] = ["/0", "/0/0"].map(|path| mesh.key_of(call, path));
    send(&mut mesh, 3, 2, keyed(call, "/0", below, cancel())).unwrap();
    send(&mut mesh, 2, 3, keyed(call, "/0/0", above, cancel())).unwrap();
    assert!(mesh.stops.is_empty());
    mesh.delegate("/0", &[4]);
    mesh.deliver_all();
    assert_eq!(mesh.task("/0/1").0, 4);
    send(&mut mesh, 2, 3, keyed(call, "/0/0", below, cancel())).unwrap();
    assert_eq!(mesh.stops.len(), 1);
    send(&mut mesh, 1, 2, keyed(call, "/0", above, cancel())).unwrap();
    mesh.deliver_all();
    let mut stopped: Vec<u64> = mesh.stops.iter().map(|(at, ..)| *at).collect();
    stopped.sort_unstable();
    assert_eq!(stopped, [2, 3, 4]);
}

pub(super) fn fence(path: &str, of: Key) -> Message {
    let tasks = vec![Asked { task: key(path), key: of }];
    Message::Probe(Probe { fence: true, budget_us: 1_000_000, tasks })
}

#[test]
fn a_fence_binds_only_the_task_whose_key_it_shows() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let key = mesh.key_of(call, "/1");
    send(&mut mesh, 3, 2, frame(call, "/", fence("/1", Key(1)))).unwrap();
    send(&mut mesh, 3, 2, frame(call, "/", fence("/1", key.child(0)))).unwrap();
    send(&mut mesh, 1, 2, frame(call, "/1", request(key, ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 2);
    let key = mesh.key_of(call, "/2");
    send(&mut mesh, 3, 2, frame(call, "/", fence("/2", key))).unwrap();
    send(&mut mesh, 1, 2, frame(call, "/2", request(key, ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 2);
}

#[test]
fn a_relayed_probe_does_not_fence() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    let key = mesh.key_of(call, "/1");
    send(&mut mesh, 3, 2, relayed(2, frame(call, "/1", fence("/1", key)))).unwrap();
    send(&mut mesh, 1, 2, frame(call, "/1", request(key, ReplyRoute::Sender, 0))).unwrap();
    assert_eq!(mesh.starts.len(), 2);
}

#[test]
fn credit_counts_with_the_key_of_its_task_whoever_brings_it() {
    let credit = || Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 1 << 20 });
    for (by, is_relayed) in [(1, false), (1, true), (3, false), (3, true)] {
        let (mut mesh, call) = Mesh::calling(3, &[2]);
        let (_, task) = mesh.task("/0");
        let now = mesh.now;
        mesh.with(2, |node| {
            node.reply(now, &task, Bytes::from(vec![1; 100_000])).unwrap();
            node.finish(now, &task);
        });
        let sent = mesh.wire.len();
        let way = |frame| if is_relayed { relayed(2, frame) } else { frame };
        let own = mesh.key_of(call, "/0");
        send(&mut mesh, by, 2, way(frame(call, "/0", credit()))).unwrap();
        send(&mut mesh, by, 2, way(keyed(call, "/0", own.child(0), credit()))).unwrap();
        assert_eq!(mesh.wire.len(), sent, "{:?}", mesh.on_wire());
        assert_eq!(mesh.nodes[&2].ignored().orders_other, 1, "who shows none");
        send(&mut mesh, by, 2, way(keyed(call, "/0", own, credit()))).unwrap();
        assert!(mesh.wire.len() > sent);
    }
}

#[test]
fn nobody_makes_a_node_relay_for_a_call_in_which_it_has_no_part() {
    let (mut mesh, call) = Mesh::calling(4, &[2]);
    mesh.delegate("/0", &[3]);
    mesh.deliver_all();
    let own = mesh.key_of(call, "/0/0");
    let reply = Message::Reply(Reply::sole(Bytes::new()));
    let credit = Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 1 });
    let up = |key| relayed(3, keyed(call, "/0/0", key, reply.clone()));
    let down = |key| relayed(3, keyed(call, "/0/0", key, credit.clone()));
    let bare = |message: &Message| relayed(3, frame(call, "/0/0", message.clone()));
    for forged in [bare(&reply), bare(&credit), up(Key(1)), up(own), down(Key(1))] {
        send(&mut mesh, 4, 2, forged).unwrap();
    }
    send(&mut mesh, 3, 2, up(Key(1))).unwrap();
    assert!(mesh.wire.is_empty(), "{:?}", mesh.on_wire());
    send(&mut mesh, 3, 2, up(own)).unwrap();
    let of_initiator = Some(Relayed { node: id(3), at: Rung::default() });
    send(&mut mesh, 1, 2, Frame { relayed: of_initiator, ..down(own) }).unwrap();
    assert_eq!(mesh.on_wire(), ["2-1 REPLY", "2-3 CREDIT"]);
}

/// Found by the simulation (liars, seed 7200000022467): the answer to a liar's question went to the
/// initiator, at which the task was, and was taken for one that it waited for.
#[test]
fn who_asks_for_a_task_is_answered() {
    let (mut mesh, call) = Mesh::calling(3, &[1]);
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(1, |node| {
        node.reply(now, &task, Bytes::new()).unwrap();
        node.handle_yield(now, &task);
    });
    let asked = vec![Asked { task: key("/0"), key: mesh.key_of(call, "/0") }];
    let probe = Probe { fence: false, budget_us: 1_000, tasks: asked };
    send(&mut mesh, 3, 1, frame(call, "/", Message::Probe(probe))).unwrap();
    assert_eq!(mesh.on_wire(), ["1-3 STATUS"]);
}

/// Found by the simulation (storm, seed 7000000168950): two nodes that a call visited more than
/// once sent a reply to and fro, for one of them had forgotten the highest of its tasks.
#[test]
fn what_is_relayed_only_goes_up_or_only_down() {
    let (mut mesh, call) = Mesh::calling(3, &[2]);
    for (path, to) in [("/0", 3), ("/0/0", 2), ("/0/0/0", 3)] {
        mesh.delegate(path, &[to]);
        mesh.deliver_all();
    }
    let path = "/0/0/0/0";
    let own = mesh.key_of(call, path);
    let by = |levels, to, message: Message| {
        let relayed = Some(Relayed { node: id(to), at: Rung { levels, hop: 0 } });
        Frame { relayed, ..keyed(call, path, own, message) }
    };
    let reply = || Message::Reply(Reply::sole(Bytes::new()));
    let credit = || Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 1 });
    // Node 2 has sent node 3 the branches of 2 and of 4 levels, and got that of 3.
    let mut passed_on = |frame| {
        send(&mut mesh, 3, 2, frame).unwrap();
        std::mem::take(&mut mesh.wire).len()
    };
    let up = [0, 1, 2, 3, 4, 5].map(|levels| passed_on(by(levels, 3, reply())));
    assert_eq!(up, [0, 0, 1, 0, 1, 0]);
    let down = [0, 1, 2, 3, 4, 5].map(|levels| passed_on(by(levels, 4, credit())));
    assert_eq!(down, [0, 0, 0, 1, 0, 0]);
    // For none of those who hold the branches: it comes to the lowest, and goes no further.
    for levels in 0..5 {
        send(&mut mesh, 2, 3, by(levels, 4, credit())).unwrap();
        for _ in 0..4 {
            (0..mesh.wire.len()).for_each(|_| mesh.deliver(0));
        }
        assert!(mesh.wire.is_empty(), "{:?}", mesh.on_wire());
    }
}

#[test]
fn a_third_party_does_not_change_where_a_node_is_dialled() {
    let mut mesh = Mesh::new(2, &Limits::default());
    mesh.connect(1, 2);
    let incarnation = Incarnation::of_random(900 << 8);
    let advertised = vec!["test://good".parse().unwrap()];
    let peer = Hello { node: id(9), incarnation, advertised, frame_bytes_max: 1 << 20 };
    mesh.now = mesh.now + millis(1);
    mesh.link_up(2, &link(peer));
    let addresses = vec!["test://evil".parse().unwrap()];
    let call = CallId { origin: incarnation, seq: 1 };
    let route = ReplyRoute::Node { node: id(9), addresses };
    send(&mut mesh, 1, 2, frame(call, "/0/0", request(KEY, route, 0))).unwrap();
    let good = "test://good".parse().unwrap();
    assert_eq!(mesh.nodes[&2].links().addresses(id(9)), [good]);
}

#[test]
fn an_advertised_address_does_not_stand_for_the_node_that_was_configured_there() {
    let mut mesh = Mesh::new(1, &Limits::default());
    let bank: Address = "test://bank".parse().unwrap();
    let incarnation = Incarnation::of_random(6600 << 8);
    let advertised = vec![bank.clone()];
    let peer = Hello { node: id(66), incarnation, advertised, frame_bytes_max: 1 << 20 };
    mesh.link_up(1, &link(peer));
    assert_eq!(mesh.nodes[&1].links().connected_at(&bank), None);
    mesh.nodes.get_mut(&1).unwrap().configure(id(66), vec![bank.clone()]);
    assert_eq!(mesh.nodes[&1].links().connected_at(&bank), Some(id(66)));
}

/// Only the initiator says with a request what is settled.
#[test]
fn a_request_that_is_passed_on_settles_nothing() {
    for (from, path) in [(3, "/0/0"), (1, "/0")] {
        let mut mesh = Mesh::connected(4);
        let call = from_outside(&mesh, 100);
        let route = if from == 1 { ReplyRoute::Sender } else { in_the_name_of(1) };
        send(&mut mesh, from, 2, frame(call, path, request(KEY, route, 0))).unwrap();
        let (_, task) = mesh.task(path);
        let now = mesh.now;
        mesh.with(2, |node| {
            node.delegate(now, &task, super::mesh::branch(4)).unwrap();
            node.finish(now, &task);
        });
        let Some((2, sent)) = mesh.wire.pop_front() else { panic!("no request") };
        let Message::Request(request) = sent.frame.message else { panic!("{sent:?}") };
        assert_eq!(request.floor, 100, "of the calls below 0");
    }
}

/// Seed 4711 of the simulated liars: the record of such a task was never forgotten.
#[test]
fn a_request_of_call_number_zero_is_a_fault() {
    let mut mesh = Mesh::connected(3);
    let call = CallId { origin: mesh.life(3), seq: 0 };
    let message = request(Key(1), ReplyRoute::Sender, 0);
    assert_eq!(send(&mut mesh, 3, 2, frame(call, "/0", message)), Err(Fault::NoCall));
    assert_eq!((mesh.starts.len(), mesh.nodes[&2].visits().remembered_count()), (0, 0));
}

/// Connections of clients come and go all the time: they concern no round. Those of members do.
#[test]
fn connections_of_strangers_wake_no_reader_of_casts() {
    let mut mesh = Mesh::connected(2);
    let tag = MailKey::Tag(Tag { space: 7, view: 0, sequence: 1 });
    mesh.with(1, |node| {
        node.mailboxes_mut().know([id(1), id(2)]);
        node.mailboxes_mut().join(tag).unwrap();
    });
    let changes = |mesh: &mut Mesh| mesh.with(1, |node| node.mailboxes().changes(tag));
    let before = changes(&mut mesh);
    mesh.start(9, &Limits::default());
    mesh.connect(9, 1);
    let now = mesh.now;
    let lose = |mesh: &mut Mesh, node: u64| {
        let link = mesh.nodes[&1].links().current(id(node)).unwrap();
        mesh.with(1, |node| node.handle_link_down(now, link));
    };
    lose(&mut mesh, 9);
    assert_eq!(changes(&mut mesh), before);
    lose(&mut mesh, 2);
    assert!(changes(&mut mesh) > before);
}

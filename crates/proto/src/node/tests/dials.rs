//! Dials: of nodes that no address leads to, and of initiators.

use bytes::Bytes;

use super::super::*;
use super::cut_off::open_and_end;
use super::mesh::{Mesh, branch, id, millis};
use super::relay::{hidden_client, kill, send_on};
use super::strangers::{KEY, frame, in_the_name_of, request, send};
use crate::call::CallOptions;
use crate::id::CallId;
use crate::wire::Request;

/// The initiator has an address of a node that is good for others alone: what runs there is asked
/// for through the root, as if it had none. Its branch failed as if a connection had been lost.
#[test]
fn what_runs_where_no_dial_leads_is_asked_for_through_the_root() {
    for is_tail in [false, true] {
        let (mut mesh, call) = hidden_client();
        mesh.nodes.get_mut(&1).unwrap().configure(id(3), vec!["test://away".parse().unwrap()]);
        let path = if is_tail { "/0" } else { "/0/0" };
        if is_tail {
            send_on(&mut mesh, "/0", 3);
        } else {
            mesh.delegate("/0", &[3]);
            mesh.finish("/0");
        }
        mesh.deliver_all();
        let (mut dials, mut asked) = (0, 0);
        for _ in 0..20 {
            mesh.pass(millis(100));
            for (node, to) in std::mem::take(&mut mesh.dials) {
                let now = mesh.now;
                mesh.with(node, |node| node.handle_dial_failed(now, id(to)));
                dials += 1;
            }
            asked += usize::from(mesh.on_wire().contains(&"1-2 PROBE".to_owned()));
            mesh.deliver_all();
            assert_eq!(mesh.end(1, call), None, "it runs");
        }
        assert!(
            dials > 0 && asked > 0,
            "a dial is tried first: {dials} dials, asked {asked} times"
        );
        mesh.answer(path, b"there all the time");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), [format!("reply {path}"), "Complete".to_owned()]);
    }
}

/// A dial that fails says nothing of a reply that is on its way: no connection has ended that it
/// may have been lost with.
#[test]
fn a_dial_that_fails_loses_no_reply_of_a_task_that_has_ended() {
    let (mut mesh, call) = hidden_client();
    mesh.nodes.get_mut(&1).unwrap().configure(id(3), vec!["test://away".parse().unwrap()]);
    open_and_end(&mut mesh, "/0", 3);
    let ((_, task), now) = (mesh.task("/0/0"), mesh.now);
    mesh.with(3, |node| {
        node.reply(now, &task, Bytes::from_static(b"slow")).unwrap();
        node.delegate(now, &task, branch(4)).unwrap();
        node.finish(now, &task);
    });
    let slow = mesh.hold_back("REPLY");
    assert_eq!(slow.len(), 1);
    mesh.deliver_all();
    mesh.answer("/0/0/0", b"fast, with the word that the one above has ended");
    mesh.deliver_all();
    mesh.pass(millis(100));
    assert_eq!(mesh.dials, [(1, 3)]);
    let now = mesh.now;
    mesh.with(1, |node| node.handle_dial_failed(now, id(3)));
    assert_eq!(mesh.on_wire(), ["1-2 PROBE"], "it is asked for through the root");
    let asked = mesh.hold_back("PROBE");
    mesh.pass(millis(30));
    assert_eq!(mesh.told(1, call), ["reply /0/0/0"], "and may answer yet");
    mesh.wire.extend(slow.into_iter().chain(asked));
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0", "Complete"]);
}

/// A node that no dial reaches, and the root neither, has failed.
#[test]
fn what_ran_where_nobody_leads_any_more_fails() {
    let (mut mesh, call) = hidden_client();
    mesh.nodes.get_mut(&1).unwrap().configure(id(3), vec!["test://away".parse().unwrap()]);
    send_on(&mut mesh, "/0", 3);
    mesh.deliver_all();
    for (at, to) in [(2, 3), (4, 3)] {
        let link = mesh.link_between(at, to);
        mesh.disconnect(at, link);
    }
    for _ in 0..50 {
        mesh.deliver_all();
        mesh.pass(millis(100));
        for (node, to) in std::mem::take(&mut mesh.dials) {
            let now = mesh.now;
            mesh.with(node, |node| node.handle_dial_failed(now, id(to)));
        }
    }
    let told = mesh.told(1, call);
    assert!(told[0].contains("/0") && told[0].contains("may have run"), "{told:?}");
    assert!(mesh.end(1, call).is_some() && !format!("{told:?}").contains("deadline"), "{told:?}");
}

/// The same where the root is away, too, and each dial takes longer than the pause after the one
/// before: the straight way and that through the root were tried in turn, to the deadline.
#[test]
fn what_ran_where_neither_it_nor_the_root_can_be_dialled_fails_before_the_deadline() {
    let (mut mesh, call) = hidden_client();
    for to in [2, 3] {
        let away = vec![format!("test://{to}").parse().unwrap()];
        mesh.nodes.get_mut(&1).unwrap().configure(id(to), away);
    }
    open_and_end(&mut mesh, "/0", 3);
    kill(&mut mesh, 2);
    kill(&mut mesh, 3);
    let mut under_way = Vec::new();
    for _ in 0..80 {
        mesh.deliver_all();
        mesh.pass(millis(100));
        let now = mesh.now;
        under_way.extend(std::mem::take(&mut mesh.dials).into_iter().map(|dial| (now, dial)));
        let (over, rest) =
            under_way.into_iter().partition(|(at, _)| now.since(*at) >= millis(3_000));
        under_way = rest;
        let over: Vec<(Timestamp, (u64, u64))> = over;
        for (_, (node, to)) in over.into_iter().filter(|(_, (node, _))| *node == 1) {
            mesh.with(node, |node| node.handle_dial_failed(now, id(to)));
        }
    }
    let told = mesh.told(1, call);
    assert!(mesh.end(1, call).is_some() && !format!("{told:?}").contains("deadline"), "{told:?}");
}

/// A reply that is lost with its node, to which neither the initiator nor the root finds a way, and
/// each dial takes longer than the pause after the one before: it was waited for to the deadline.
#[test]
fn a_reply_that_nobody_leads_to_any_more_is_lost_before_the_deadline() {
    let (mut mesh, call) = hidden_client();
    for at in [1, 2] {
        let away = vec!["test://away".parse().unwrap()];
        mesh.nodes.get_mut(&at).unwrap().configure(id(3), away);
    }
    open_and_end(&mut mesh, "/0", 3);
    let ((_, task), now) = (mesh.task("/0/0"), mesh.now);
    mesh.with(3, |node| {
        node.reply(now, &task, Bytes::from_static(b"lost")).unwrap();
        node.delegate(now, &task, branch(4)).unwrap();
        node.finish(now, &task);
    });
    assert_eq!(mesh.hold_back("REPLY").len(), 1);
    mesh.deliver_all();
    mesh.answer("/0/0/0", b"with the word that the one above has ended");
    mesh.deliver_all();
    for at in [2, 4] {
        let link = mesh.link_between(at, 3);
        [at, 3].into_iter().for_each(|end| mesh.disconnect(end, link));
    }
    mesh.hold_back("LINK_DOWN");
    let mut under_way = Vec::new();
    for _ in 0..90 {
        mesh.deliver_all();
        mesh.pass(millis(100));
        let now = mesh.now;
        under_way.extend(std::mem::take(&mut mesh.dials).into_iter().map(|dial| (now, dial)));
        let (over, rest): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|(at, _)| now.since(*at) >= millis(3_000));
        under_way = rest;
        for (_, (node, to)) in over {
            mesh.with(node, |node| node.handle_dial_failed(now, id(to)));
        }
    }
    let told = mesh.told(1, call);
    assert!(told[1].ends_with("the task ran but its reply was lost"), "{told:?}");
}

/// Found by the simulation: when the budget was up, giving up the dial began another one at once,
/// for ever.
#[test]
fn a_dial_of_the_initiator_is_tried_once() {
    let limits = Limits { reply_dial: crate::limits::ReplyDial::Anybody, ..Limits::default() };
    let mut mesh = Mesh::new(3, &limits);
    mesh.connect(1, 2);
    mesh.connect(2, 3);
    mesh.nodes.get_mut(&3).unwrap().configure(id(1), vec!["test://1".parse().unwrap()]);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    mesh.deliver_all();
    mesh.answer("/0/0", b"patience");
    assert_eq!(mesh.dials, [(3, 1)]);
    assert!(mesh.wire.is_empty());
    mesh.pass(Duration::from_secs(1));
    assert_eq!(mesh.dials.len(), 1);
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0", "Complete"]);
}

/// A stranger names initiators that nobody reaches: what is for them all is bounded, too.
#[test]
fn what_waits_for_dials_of_many_initiators_is_bounded() {
    let limits = Limits { dial_bytes_total_max: 1_000, ..Limits::default() };
    let mut mesh = Mesh::connected_with(2, &limits);
    let mut relayed = Vec::new();
    for node in 10..14 {
        mesh.with(1, |core| core.configure(id(node), vec!["test://away".parse().unwrap()]));
        let call = CallId { origin: Incarnation::of_random(node << 8), seq: 1 };
        let frame = frame(call, "/0/0", request(KEY, in_the_name_of(node), 1));
        assert_eq!(send(&mut mesh, 2, 1, frame), Ok(()));
        mesh.answer("/0/0", &[7; 300]);
        relayed.push(mesh.wire.len());
    }
    assert_eq!(mesh.dials, [(1, 10), (1, 11), (1, 12), (1, 13)]);
    assert_eq!(relayed, [0, 0, 1, 2], "two wait, and the others go by the sender");
    mesh.pass(Duration::from_secs(1));
    assert_eq!(mesh.wire.len(), 4);
}

/// Each dial has a time of its own, a quarter of what its task has left.
#[test]
fn of_many_dials_the_one_with_the_least_time_is_given_up_first() {
    let mut mesh = Mesh::connected_with(2, &Limits::default());
    for (node, millis) in [(10, 800), (11, 200), (12, 400)] {
        mesh.with(1, |core| core.configure(id(node), vec!["test://away".parse().unwrap()]));
        let call = CallId { origin: Incarnation::of_random(node << 8), seq: 1 };
        let Message::Request(request) = request(KEY, in_the_name_of(node), 1) else {
            unreachable!("it makes one")
        };
        let request = Request { budget_us: millis * 1_000, ..request };
        assert_eq!(send(&mut mesh, 2, 1, frame(call, "/0/0", Message::Request(request))), Ok(()));
        mesh.answer("/0/0", b"late");
    }
    assert_eq!(mesh.dials, [(1, 10), (1, 11), (1, 12)]);
    let relayed = [49, 1, 50, 100].map(|millis| {
        mesh.pass(Duration::from_millis(millis));
        mesh.wire.len()
    });
    assert_eq!(relayed, [0, 1, 2, 3]);
}

//! Shares of peers in what a node keeps.

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, branch};
use super::settlement::{cancel_and_detach, detach, pass, remembered, shares, unsettled};
use super::strangers::{cancel, frame, key, keyed, request, send};
use crate::call::CallOptions;
use crate::id::CallId;
use crate::key::Key;
use crate::wire::{Asked, Probe, ReplyRoute};

/// Starts tasks of calls of a node at node 2 until one is refused. Returns how many were started.
fn fill(mesh: &mut Mesh, from: u64) -> usize {
    let before = mesh.starts.len();
    for seq in 1..1_000 {
        let call = CallId { origin: mesh.life(from), seq };
        let request = request(Key(7), ReplyRoute::Sender, seq - 1);
        send(mesh, from, 2, frame(call, "/0", request)).unwrap();
        mesh.wire.clear();
    }
    mesh.starts.len() - before
}

#[test]
fn one_greedy_peer_does_not_shut_out_another() {
    let limits = Limits { tasks_max: 90, ..Limits::default() };
    let mut mesh = Mesh::connected_with(4, &limits);
    assert_eq!([1, 3, 4].map(|from| fill(&mut mesh, from)), [60, 20, 7], "of two thirds each");
    assert_eq!(shares(&mesh, 2).1, 87);
    let limits = Limits { remembered_max: 200, ..Limits::default() };
    let mut mesh = Mesh::connected_with(4, &limits);
    assert_eq!([1, 3, 4].map(|from| fill(&mut mesh, from)), [98, 48, 23], "of half each");
    pass(&mut mesh, Duration::from_secs(12));
    assert_eq!((remembered(&mesh, 2), shares(&mesh, 2)), (0, (0, 0)));
}

/// Every way in which a record goes gives its place back.
#[test]
fn shares_are_given_back_however_a_record_goes() {
    let (mut mesh, call) = Mesh::calling(4, &[2, 3]);
    mesh.delegate("/0", &[3, 4]);
    mesh.finish("/0");
    mesh.deliver_all();
    mesh.answer("/0/0", b"");
    mesh.deliver_all();
    cancel_and_detach(&mut mesh, call);
    mesh.deliver_all();
    assert_eq!(unsettled(&mesh), (0, 0));
    let early = CallId { origin: mesh.life(1), seq: 50 };
    send(&mut mesh, 1, 2, keyed(early, "/0", Key(1), cancel())).unwrap();
    let asked = vec![Asked { task: key("/1"), key: Key(1) }];
    let fence = Probe { fence: true, budget_us: 1_000, tasks: asked };
    send(&mut mesh, 1, 2, frame(early, "/", Message::Probe(fence))).unwrap();
    assert!(remembered(&mesh, 2) >= 2);
    mesh.deliver_all();
    for (one, other) in [(1, 2), (2, 3), (2, 4)] {
        let link = mesh.link_between(one, other);
        mesh.disconnect(one, link);
        mesh.disconnect(other, link);
    }
    pass(&mut mesh, Duration::from_secs(24));
    for at in 1..=4 {
        assert_eq!(shares(&mesh, at), (0, 0), "at {at}");
        assert_eq!((remembered(&mesh, at), mesh.nodes[&at].visits().origin_count()), (0, 0));
    }
}

#[test]
fn a_node_shares_with_itself_as_with_others() {
    let mut mesh = Mesh::connected(2);
    let call = mesh.call(1, &[1], CallOptions::default());
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    mesh.with(1, |node| {
        node.delegate(now, &task, branch(1)).unwrap();
        node.reply(now, &task, Bytes::new()).unwrap();
        node.finish(now, &task);
    });
    assert_eq!(shares(&mesh, 1), (2 + 2, 1));
    mesh.answer("/0/0", b"");
    assert_eq!(mesh.told(1, call), ["reply /0", "reply /0/0", "Complete"]);
    detach(&mut mesh, call);
    pass(&mut mesh, Duration::from_secs(22));
    assert_eq!(shares(&mesh, 1), (0, 0));
}

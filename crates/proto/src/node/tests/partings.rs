//! Nodes that take no requests any more, and who hears so.

use bytes::Bytes;

use super::super::*;
use super::cut_off::open_and_end;
use super::mesh::{Mesh, Sent, branch};
use super::relay::hand_on;
use crate::call::CallOptions;
use crate::id::LinkNonce;
use crate::wire::Parting;

/// Failure of a branch at node 2 after it has said LEAVING, as its caller is told.
fn refused(path: &str) -> String {
    let text = "the node is shutting down: the node has said that it takes no new tasks";
    format!("branch {path} at n2: {text} (it did not run)")
}

/// A call of node 1 of which all has come, and what its caller is told.
fn ask(mesh: &mut Mesh, roots: &[u64]) -> Vec<String> {
    let call = mesh.call(1, roots, CallOptions::default());
    mesh.deliver_all();
    mesh.told(1, call)
}

/// Words about connections that are on their way, with their senders.
fn words(mesh: &Mesh) -> Vec<(u64, Parting)> {
    let word = |(from, sent): &(u64, Sent)| match sent.frame.message {
        Message::Parting(word) => Some((*from, word)),
        _ => None,
    };
    mesh.wire.iter().filter_map(word).collect()
}

/// A peer says a word about a connection.
fn say(mesh: &mut Mesh, at: u64, link: LinkNonce, word: Parting) {
    let frame = Frame::new(crate::wire::Header::without_call(), Message::Parting(word));
    mesh.take((at, link), frame).unwrap();
}

#[test]
fn a_node_that_stops_refuses_what_has_left_and_is_asked_nothing_more() {
    for cores in [1, 4] {
        let mut mesh = Mesh::with_cores(3, &Limits::default(), cores);
        mesh.connect_all();
        let calls = [(); 5].map(|()| mesh.call(1, &[2], CallOptions::default()));
        let under_way = mesh.hold_back("REQUEST");
        mesh.stop(2);
        let leaving = (2, Parting::Leaving);
        assert_eq!(words(&mesh), [leaving, leaving], "to each peer, once for all cores");
        mesh.deliver_all();
        assert!(!mesh.has_parted(2), "five requests are on their way");
        assert_eq!(ask(&mut mesh, &[2])[0], refused("/0"));
        mesh.wire.extend(under_way);
        mesh.deliver_all();
        assert!(mesh.has_parted(2) && mesh.starts.is_empty(), "all have come, and none has run");
        for call in calls {
            let told = mesh.told(1, call).remove(0);
            assert!(told.ends_with("the node takes no new tasks (it did not run)"), "{told}");
        }
        let elsewhere = mesh.call(1, &[3], CallOptions::default());
        mesh.deliver_all();
        mesh.answer("/0", b"");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, elsewhere), ["reply /0", "Complete"], "others are asked");
        let link = mesh.link_between(1, 2);
        mesh.disconnect(1, link);
        mesh.disconnect(2, link);
        mesh.start(2, &Limits::default());
        mesh.connect(1, 2);
        mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        assert_eq!(mesh.task("/0").0 % 100, 2, "its next life is asked again");
    }
}

#[test]
fn what_came_before_it_stops_runs_on_and_counts() {
    let (mut mesh, call) = Mesh::calling(2, &[2, 2]);
    mesh.stop(2);
    mesh.deliver_all();
    assert!(mesh.has_parted(2), "both have come");
    mesh.answer("/0", b"");
    mesh.answer("/1", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "reply /1", "Complete"]);
}

#[test]
fn branches_of_tasks_for_a_node_that_stops_fail_where_they_are_opened() {
    let (mut mesh, call) = Mesh::calling(4, &[3, 3]);
    mesh.stop(2);
    mesh.deliver_all();
    // One among others, a tail, and the last that a task opens.
    mesh.delegate("/0", &[2, 4]);
    mesh.delegate("/0", &[2]);
    mesh.finish("/0");
    let (now, (at, task)) = (mesh.now, mesh.task("/1"));
    mesh.with(at, |node| node.tail(now, &task, branch(2))).unwrap();
    assert!(!mesh.on_wire().contains(&"3-2 REQUEST".to_owned()), "{:?}", mesh.on_wire());
    mesh.deliver_all();
    mesh.answer("/0/1", b"");
    mesh.deliver_all();
    let mut told = mesh.told(1, call);
    told.sort();
    let [tail, one, last] = ["/1+1", "/0/0", "/0/2"].map(refused);
    assert_eq!(told, ["Partial", &one, &last, &tail, "reply /0/1"]);
    let asked = mesh.nodes[&2].visits().running_count();
    assert!(asked == 0 && mesh.has_parted(2));
}

#[test]
fn a_tail_behind_other_output_fails_as_its_own_branch() {
    let (mut mesh, call) = Mesh::calling(3, &[3]);
    mesh.stop(2);
    mesh.deliver_all();
    let (now, (at, task)) = (mesh.now, mesh.task("/0"));
    mesh.with(at, |node| {
        node.reply(now, &task, Bytes::from_static(b"one")).unwrap();
        node.tail(now, &task, branch(2)).unwrap();
    });
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", &refused("/0/0"), "Partial"]);
}

#[test]
fn two_nodes_that_stop_at_once_part() {
    let mut mesh = Mesh::connected(2);
    let calls = [(1, 2), (2, 1)].map(|(at, to)| (at, mesh.call(at, &[to], CallOptions::default())));
    mesh.stop(1);
    mesh.stop(2);
    mesh.deliver_all();
    assert!(mesh.has_parted(1) && mesh.has_parted(2));
    for (at, call) in calls {
        let told = mesh.told(at, call).remove(0);
        assert!(told.ends_with("the node takes no new tasks (it did not run)"), "{told}");
    }
}

/// A node that stops dials for what it still runs.
#[test]
fn a_connection_that_opens_while_a_node_stops_is_told_so_and_what_waited_for_it_is_refused() {
    let mut mesh = Mesh::dialling();
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.stop(2);
    let link = mesh.connect(1, 2);
    mesh.partings.get_mut(&2).unwrap().begin((NodeId::new(1), link));
    assert_eq!(words(&mesh), [(2, Parting::Leaving)]);
    mesh.deliver_all();
    assert!(mesh.has_parted(2));
    assert!(mesh.told(1, call)[0].ends_with("the node takes no new tasks (it did not run)"));
    assert_eq!(ask(&mut mesh, &[2])[0], refused("/0"));
}

/// The other goes on for what began on it, and each end says so by each.
#[test]
fn each_of_two_connections_is_left_and_counted_by_itself() {
    let mut mesh = Mesh::connected(2);
    mesh.call(1, &[2], CallOptions::default());
    mesh.connect(2, 1);
    mesh.call(1, &[2], CallOptions::default());
    let under_way = mesh.hold_back("REQUEST");
    mesh.stop(2);
    mesh.deliver_all_but("SENT");
    assert_eq!(words(&mesh).len(), 2, "{:?}", words(&mesh));
    mesh.wire.extend(under_way);
    mesh.deliver_all();
    assert!(mesh.has_parted(2));
}

#[test]
fn what_a_peer_says_of_itself_costs_nobody_else_and_is_kept_once() {
    let mut mesh = Mesh::connected(3);
    let (liar, other) = (mesh.link_between(1, 2), mesh.link_between(1, 3));
    // It goes on asking, and its requests are taken as before.
    for _ in 0..100 {
        say(&mut mesh, 1, liar, Parting::Leaving);
    }
    assert_eq!(words(&mesh), [(1, Parting::Sent(0))], "one answer");
    let call = mesh.call(2, &[1], CallOptions::default());
    mesh.deliver_all();
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(2, call), ["reply /0", "Complete"]);
    let call = mesh.call(1, &[3], CallOptions::default());
    mesh.deliver_all();
    mesh.answer("/0", b"");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0", "Complete"]);
    // It answers what nobody has asked, and then says less, more and less than it has sent.
    say(&mut mesh, 1, liar, Parting::Sent(7));
    mesh.stop(1);
    for sent in [9, 0, u64::MAX] {
        say(&mut mesh, 1, liar, Parting::Sent(sent));
    }
    say(&mut mesh, 1, other, Parting::Sent(0));
    assert!(!mesh.has_parted(1), "it has said that eight are on their way");
    mesh.partings.get_mut(&1).unwrap().end((NodeId::new(2), liar));
    assert!(mesh.has_parted(1), "its connection has ended, and nothing else is waited for");
}

#[test]
fn a_request_that_its_connection_does_not_take_does_not_count() {
    let (mut mesh, _) = Mesh::calling(3, &[2]);
    let (to_2, to_3) = (mesh.link_between(1, 2), mesh.link_between(2, 3));
    for (at, link) in [(1, to_2), (2, to_3)] {
        let end = mesh.end_of(at, link);
        mesh.with(at, |node| node.outbox_mut().frame_bytes_max.insert(end, 0));
    }
    mesh.call(1, &[2], CallOptions { tells_silent: true, ..CallOptions::default() });
    mesh.call(1, &[2], CallOptions::default());
    mesh.delegate("/0", &[3]);
    let (now, (at, task)) = (mesh.now, mesh.task("/0"));
    mesh.with(at, |node| node.tail(now, &task, branch(3))).unwrap();
    mesh.with(1, |node| node.outbox_mut().frame_bytes_max.clear());
    mesh.with(2, |node| node.outbox_mut().frame_bytes_max.clear());
    for (at, stops, sent) in [(1, 2, 1), (2, 3, 0)] {
        let end = mesh.end_of(at, mesh.link_between(at, stops));
        assert_eq!(mesh.with(at, |node| node.handle_leaving(now, end, 0)), sent);
    }
}

/// A node closes, behind all that it has said.
fn close(mesh: &mut Mesh, at: u64) {
    let now = mesh.now;
    mesh.with(at, |node| node.end_calls(now));
    mesh.deliver_all();
    for peer in 1..=4 {
        let Some(link) = mesh.find_link(at, peer) else { continue };
        [at, peer].into_iter().for_each(|end| mesh.disconnect(end, link));
    }
    mesh.deliver_all();
}

fn pass_two_seconds(mesh: &mut Mesh) {
    for _ in 0..20 {
        mesh.pass(Duration::from_millis(100));
        mesh.deliver_all();
    }
}

/// The closing node alone can say where a branch went that it has handed on, or that the task above
/// its branches has ended, before these say something themselves. Callers were told that it may
/// have run, a grace after the node had closed.
#[test]
fn a_node_that_closes_says_first_where_its_branches_went() {
    for (is_tail, path) in [(true, "/0"), (false, "/0/0")] {
        let (mut mesh, call) = Mesh::calling(3, &[2]);
        let ((at, task), now) = (mesh.task("/0"), mesh.now);
        mesh.with(at, |node| {
            for _ in 0..if is_tail { 1 } else { 2 } {
                node.delegate(now, &task, branch(3)).unwrap();
            }
            node.finish(now, &task);
        });
        mesh.deliver_all();
        assert!(mesh.told(1, call).is_empty(), "nobody has said anything of it");
        mesh.stop(2);
        mesh.deliver_all();
        assert!(mesh.has_parted(2));
        close(&mut mesh, 2);
        pass_two_seconds(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path} runs");
        mesh.answer(path, b"");
        if !is_tail {
            mesh.answer("/0/1", b"");
        }
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call).pop().as_deref(), Some("Complete"), "{path}");
    }
}

/// The same of tasks that the caller has not heard of itself.
#[test]
fn a_node_that_closes_in_the_middle_of_a_chain_says_first_where_that_went() {
    for (is_tail, path) in [(true, "/0"), (false, "/0/0/0")] {
        let (mut mesh, call) = Mesh::calling(4, &[2]);
        let hand_on = if is_tail { hand_on } else { open_and_end };
        hand_on(&mut mesh, "/0", 3);
        hand_on(&mut mesh, if is_tail { "/0" } else { "/0/0" }, 4);
        mesh.stop(3);
        mesh.deliver_all();
        close(&mut mesh, 3);
        pass_two_seconds(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path} runs");
        mesh.answer(path, b"");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), [format!("reply {path}"), "Complete".to_owned()]);
    }
}

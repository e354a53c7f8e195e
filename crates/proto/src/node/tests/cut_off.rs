//! Branches whose node the initiator has lost, and others may reach.

use super::super::*;
use super::mesh::{Mesh, branch, id, millis};
use super::relay::{hand_on, kill, say_more, worry};
use crate::call::CallOptions;
use crate::id::CallId;

/// Time passes, more than a few times the grace, while nobody can be dialled from node 1.
fn worry_where_dials_fail(mesh: &mut Mesh) {
    for _ in 0..20 {
        mesh.pass(millis(100));
        mesh.deliver_all();
        let now = mesh.now;
        let dials = std::mem::take(&mut mesh.dials);
        for (_, node) in dials.into_iter().filter(|(at, _)| *at == 1) {
            mesh.with(1, |core| core.handle_dial_failed(now, id(node)));
        }
        mesh.deliver_all();
    }
}

/// 1 is connected with 2, which it has called, and with 3, whose connection ends once 2 has handed
/// on to it. 2 dials 3 for that.
fn handed_on_to_who_has_left(hand_on: HandOn, is_known: bool) -> (Mesh, CallId) {
    handed_on_to_who_has_left_with(hand_on, is_known, CallOptions::default())
}

fn handed_on_to_who_has_left_with(
    hand_on: HandOn,
    is_known: bool,
    options: CallOptions,
) -> (Mesh, CallId) {
    let mut mesh = Mesh::new(3, &Limits::default());
    let to_3 = [2, 3].map(|to| mesh.connect(1, to))[1];
    let knowing = if is_known { &[1, 2][..] } else { &[2] };
    for at in knowing {
        let at_3 = vec!["test://3".parse().unwrap()];
        mesh.nodes.get_mut(at).unwrap().configure(id(3), at_3);
    }
    let call = mesh.call(1, &[2], options);
    mesh.deliver_all();
    hand_on(&mut mesh, "/0", 3);
    mesh.pass(millis(100));
    mesh.deliver_all();
    assert_eq!(mesh.dials, [(2, 3)]);
    [1, 3].into_iter().for_each(|at| mesh.disconnect(at, to_3));
    (mesh, call)
}

/// A task that opens a branch and ends.
pub(super) fn open_and_end(mesh: &mut Mesh, path: &str, to: u64) {
    mesh.delegate(path, &[to]);
    mesh.finish(path);
    mesh.deliver_all();
}

/// Has the task of a path ask a node further.
type HandOn = fn(&mut Mesh, &str, u64);

/// The branches of the tests below: by tail, and one among others.
const WAYS_ON: [(HandOn, &str); 2] = [(hand_on, "/0"), (open_and_end, "/0/0")];

/// Found by a black-box test: a node shut down and came back while another dialled it with a
/// request, and the caller, whose connection with it had ended, took the branch for lost.
#[test]
fn a_request_that_waits_for_a_dial_outlives_the_connection_of_its_initiator_with_its_node() {
    for ((hand_on, path), is_known) in WAYS_ON.into_iter().flat_map(|w| [(w, true), (w, false)]) {
        let (mut mesh, call) = handed_on_to_who_has_left(hand_on, is_known);
        worry_where_dials_fail(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}: its sender holds it");
        mesh.start(3, &Limits::default());
        mesh.connect(2, 3);
        mesh.deliver_all();
        worry_where_dials_fail(&mut mesh);
        mesh.answer(path, b"late");
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert_eq!(told, [format!("reply {path}"), "Complete".to_owned()], "{is_known}");
    }
}

#[test]
fn a_request_whose_dial_fails_did_not_run_though_its_node_had_left() {
    for ((hand_on, path), is_known) in WAYS_ON.into_iter().flat_map(|w| [(w, true), (w, false)]) {
        let (mut mesh, call) = handed_on_to_who_has_left(hand_on, is_known);
        worry_where_dials_fail(&mut mesh);
        let now = mesh.now;
        mesh.with(2, |node| node.handle_dial_failed(now, id(3)));
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert!(told[0].contains("no connection to the node could be made"), "{path}: {told:?}");
        assert!(told[0].ends_with("(it did not run)"), "{path}: {told:?}");
    }
}

/// Once its sender has lost it, too, a node that this one is cut off from is down a grace later.
#[test]
fn a_node_that_its_sender_has_lost_too_is_down_after_the_grace() {
    for (hand_on, path) in WAYS_ON {
        let (mut mesh, call) = Mesh::calling(3, &[2]);
        hand_on(&mut mesh, "/0", 3);
        mesh.pass(millis(100));
        mesh.deliver_all();
        for (at, is_over) in [(1, false), (2, true)] {
            let link = mesh.link_between(at, 3);
            [at, 3].into_iter().for_each(|at| mesh.disconnect(at, link));
            for _ in 0..2 {
                mesh.deliver_all();
                mesh.pass(Limits::default().grace);
            }
            mesh.deliver_all();
            assert_eq!(mesh.end(1, call).is_some(), is_over, "{path}");
        }
        let told = mesh.told(1, call);
        assert!(told[0].ends_with("(it may have run)"), "{path}: {told:?}");
    }
}

/// The same of a sender that is gone, or has come back without what it knew.
#[test]
fn a_node_that_nobody_can_be_asked_for_is_down_before_the_deadline() {
    for ((lost_first, lost_last), is_back) in [((3, 4), false), ((4, 3), false), ((3, 4), true)] {
        let (mut mesh, call) = Mesh::calling(4, &[2]);
        for (path, to) in [("/0", 3), ("/0/0", 4)] {
            open_and_end(&mut mesh, path, to);
        }
        kill(&mut mesh, lost_first);
        if is_back {
            mesh.start(3, &Limits::default());
            [1, 2, 4].into_iter().for_each(|to| _ = mesh.connect(to, 3));
        }
        worry(&mut mesh);
        kill(&mut mesh, lost_last);
        worry(&mut mesh);
        let told = mesh.told(1, call);
        assert_eq!(mesh.end(1, call), Some(crate::call::End::Partial), "{told:?}");
        assert!(!format!("{told:?}").contains("deadline"), "{told:?}");
    }
}

/// The same where the sender itself runs in a later life of its node, to which the initiator had a
/// connection that ended: what the sender says comes by another.
#[test]
fn a_sender_in_a_later_life_of_its_node_holds_its_request_as_any() {
    for (hand_on, path) in WAYS_ON {
        let mut mesh = Mesh::new(4, &Limits::default());
        let links = [(1, 2), (1, 3), (2, 3), (1, 4)].map(|(one, other)| mesh.connect(one, other));
        mesh.pass(millis(1));
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        for (link, ends) in [(links[1], [1, 3]), (links[2], [2, 3])] {
            ends.into_iter().for_each(|at| mesh.disconnect(at, link));
        }
        mesh.start(3, &Limits::default());
        [1, 2].into_iter().for_each(|at| _ = mesh.connect(at, 3));
        mesh.nodes.get_mut(&3).unwrap().configure(id(4), vec!["test://4".parse().unwrap()]);
        hand_on(&mut mesh, "/0", 3);
        hand_on(&mut mesh, path, 4);
        worry(&mut mesh);
        assert_eq!(mesh.dials, [(3, 4)]);
        mesh.start(4, &Limits::default());
        mesh.disconnect(1, links[3]);
        mesh.connect(1, 4);
        worry(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}: its sender holds it");
        mesh.connect(3, 4);
        mesh.deliver_all();
        let path = if path == "/0" { "/0" } else { "/0/0/0" };
        mesh.answer(path, b"late");
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert_eq!(told, [format!("reply {path}"), "Complete".to_owned()]);
    }
}

/// A call that has nobody dialled asks for its branches through others alone.
#[test]
fn a_call_that_never_dials_asks_the_sender_of_a_branch_though_its_node_has_an_address() {
    for (hand_on, path) in WAYS_ON {
        let options = CallOptions { never_dials: true, ..CallOptions::default() };
        let (mut mesh, call) = handed_on_to_who_has_left_with(hand_on, true, options);
        worry_where_dials_fail(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}: its sender holds it");
        assert!(mesh.dials.iter().all(|(at, _)| *at != 1), "{path}: {:?}", mesh.dials);
        mesh.start(3, &Limits::default());
        mesh.connect(2, 3);
        mesh.deliver_all();
        mesh.answer(path, b"late");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), [format!("reply {path}"), "Complete".to_owned()]);
    }
}

/// Both ends see the connection between two nodes end.
fn part(mesh: &mut Mesh, one: u64, other: u64) {
    let link = mesh.link_between(one, other);
    [one, other].into_iter().for_each(|at| mesh.disconnect(at, link));
    mesh.deliver_all();
}

/// Has the root lead nowhere.
type Loss = fn(&mut Mesh);

/// The path of a branch that the task at a path has handed on.
fn below(path: &str) -> &str {
    if path == "/0" { path } else { "/0/0/0" }
}

/// The root is not where the branch was sent from, and knows no way there, or is away: the sender,
/// which is connected, is asked itself. The branch failed as `NodeDown` a grace after its node had
/// left.
#[test]
fn a_sender_is_asked_for_its_branch_where_the_root_leads_nowhere() {
    let restarts = |mesh: &mut Mesh| {
        kill(mesh, 2);
        mesh.start(2, &Limits::default());
        [1, 3].into_iter().for_each(|to| _ = mesh.connect(to, 2));
    };
    let losses: [(&str, Loss); 3] = [
        ("it has started again", restarts),
        ("it is away", |mesh| kill(mesh, 2)),
        ("it has lost the sender", |mesh| part(mesh, 2, 3)),
    ];
    for ((what, lose), (hand_on, path)) in losses.into_iter().flat_map(|l| WAYS_ON.map(|w| (l, w)))
    {
        let mut mesh = Mesh::new(4, &Limits::default());
        let links = [(1, 2), (1, 3), (2, 3), (1, 4)].map(|(one, other)| mesh.connect(one, other));
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        mesh.nodes.get_mut(&3).unwrap().configure(id(4), vec!["test://4".parse().unwrap()]);
        hand_on(&mut mesh, "/0", 3);
        hand_on(&mut mesh, path, 4);
        mesh.pass(millis(100));
        mesh.deliver_all();
        assert_eq!(mesh.dials, [(3, 4)]);
        lose(&mut mesh);
        [1, 4].into_iter().for_each(|at| mesh.disconnect(at, links[3]));
        worry_where_dials_fail(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}, {what}: the sender holds it");
        mesh.start(4, &Limits::default());
        mesh.connect(3, 4);
        mesh.deliver_all();
        worry_where_dials_fail(&mut mesh);
        mesh.answer(below(path), b"late");
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert_eq!(told, [format!("reply {}", below(path)), "Complete".to_owned()], "{what}");
    }
}

/// There and back: the branch is sent to the node of the root again, of which the sender alone can
/// tell.
#[test]
fn a_branch_that_waits_for_a_dial_to_the_node_of_the_root_is_asked_for_through_its_sender() {
    for (hand_on, path) in WAYS_ON {
        let mut mesh = Mesh::new(3, &Limits::default());
        [(1, 2), (1, 3), (2, 3)].into_iter().for_each(|(a, b)| _ = mesh.connect(a, b));
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        mesh.nodes.get_mut(&3).unwrap().configure(id(2), vec!["test://2".parse().unwrap()]);
        hand_on(&mut mesh, "/0", 3);
        part(&mut mesh, 2, 3);
        hand_on(&mut mesh, path, 2);
        mesh.pass(millis(100));
        mesh.deliver_all();
        assert_eq!(mesh.dials, [(3, 2)]);
        part(&mut mesh, 1, 2);
        worry_where_dials_fail(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}: its sender holds it");
        mesh.start(2, &Limits::default());
        mesh.connect(3, 2);
        mesh.deliver_all();
        mesh.answer(below(path), b"late");
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert_eq!(told, [format!("reply {}", below(path)), "Complete".to_owned()]);
    }
}

/// The same where the branch runs there: the node has no way to its initiator but the way that the
/// question came by, and answers by that. Its reply has none, and the call need not wait for it.
#[test]
fn a_branch_back_at_the_node_of_the_root_says_through_its_sender_that_it_runs_and_has_ended() {
    for (hand_on, path) in WAYS_ON {
        let (mut mesh, call) = Mesh::calling(3, &[2]);
        hand_on(&mut mesh, "/0", 3);
        hand_on(&mut mesh, path, 2);
        mesh.pass(millis(100));
        mesh.deliver_all();
        part(&mut mesh, 1, 2);
        worry_where_dials_fail(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}: it runs");
        mesh.answer(below(path), b"lost");
        worry_where_dials_fail(&mut mesh);
        let told = mesh.told(1, call);
        assert!(told[0].ends_with("the task ran but its reply was lost"), "{path}: {told:?}");
        assert_eq!(told[1], "Partial");
    }
}

/// Nor has it one for what it has lost of its own branches, with a connection or for want of one:
/// that follows the answer. The call waited for its deadline.
#[test]
fn a_task_back_at_the_node_of_the_root_says_through_its_sender_what_it_has_lost() {
    for has_left in [true, false] {
        let (mut mesh, call) = Mesh::calling(4, &[2]);
        open_and_end(&mut mesh, "/0", 3);
        open_and_end(&mut mesh, "/0/0", 2);
        if !has_left {
            let away = vec!["test://away".parse().unwrap()];
            mesh.nodes.get_mut(&2).unwrap().configure(id(4), away);
            part(&mut mesh, 2, 4);
        }
        mesh.delegate("/0/0/0", &[4]);
        mesh.finish("/0/0/0");
        if !has_left {
            let now = mesh.now;
            mesh.with(2, |node| node.handle_dial_failed(now, id(4)));
        }
        let lost = ["REQUEST", "FAIL"].map(|name| mesh.hold_back(name).len());
        assert_eq!(lost, if has_left { [1, 0] } else { [0, 1] });
        mesh.pass(millis(100));
        if has_left {
            mesh.deliver_all();
            let link = mesh.link_between(2, 4);
            [2, 4].into_iter().for_each(|at| mesh.disconnect(at, link));
            assert_eq!(mesh.hold_back("LINK_DOWN").len(), 1);
        }
        part(&mut mesh, 1, 2);
        worry_where_dials_fail(&mut mesh);
        let told = mesh.told(1, call);
        assert_eq!(told.last().map(String::as_str), Some("Partial"), "{has_left}: {told:?}");
        assert!(!format!("{told:?}").contains("deadline"), "{told:?}");
    }
}

/// Its sender had lost the connection to the node, which said that it runs, and has another since.
#[test]
fn a_branch_that_said_that_it_runs_is_asked_for_through_who_had_lost_its_node() {
    for (hand_on, path) in WAYS_ON {
        let (mut mesh, call) = Mesh::calling(3, &[2]);
        hand_on(&mut mesh, "/0", 3);
        part(&mut mesh, 2, 3);
        mesh.connect(2, 3);
        part(&mut mesh, 1, 3);
        worry_where_dials_fail(&mut mesh);
        assert_eq!(mesh.told(1, call), Vec::<String>::new(), "{path}: its sender reaches it");
        mesh.answer(path, b"by others");
        mesh.deliver_all();
        assert_eq!(mesh.told(1, call), [format!("reply {path}"), "Complete".to_owned()]);
    }
}

/// The initiator knows of the first task of a branch alone, and the last has opened another, whose
/// node it has lost, too: its word counts for the way through the first.
#[test]
fn the_word_of_a_later_hop_that_it_has_lost_a_node_ends_the_way_through_an_earlier_one() {
    for has_met in [false, true] {
        let mut mesh = Mesh::new(4, &Limits::default());
        [(1, 2), (2, 3), (3, 4), (1, 4)].into_iter().for_each(|(a, b)| _ = mesh.connect(a, b));
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        hand_on(&mut mesh, "/0", 3);
        let ((at, task), now) = (mesh.task("/0"), mesh.now);
        mesh.with(at, |node| {
            for _ in 0..2 {
                node.delegate(now, &task, branch(4)).unwrap();
            }
            node.finish(now, &task);
        });
        mesh.deliver_all();
        say_more(&mut mesh, "/0/0");
        mesh.answer("/0/1", b"");
        mesh.deliver_all();
        let link = mesh.link_between(3, 4);
        [3, 4].into_iter().for_each(|at| mesh.disconnect(at, link));
        mesh.hold_back("LINK_DOWN");
        if has_met {
            mesh.connect(1, 3);
        }
        let link = mesh.link_between(1, 4);
        [1, 4].into_iter().for_each(|at| mesh.disconnect(at, link));
        let mut asked = 0;
        for _ in 0..60 {
            mesh.pass(millis(50));
            mesh.hold_back("LINK_DOWN");
            while !mesh.wire.is_empty() {
                asked += usize::from(mesh.on_wire()[0].ends_with("PROBE"));
                mesh.deliver(0);
                mesh.hold_back("LINK_DOWN");
                assert!(asked < 60, "met {has_met}: it is asked again and again");
            }
        }
        let told = mesh.told(1, call);
        assert!(told.iter().any(|line| line.contains("/0/0") && line.contains("may have run")));
        assert_eq!(told.last().map(String::as_str), Some("Partial"), "met {has_met}: {told:?}");
    }
}

/// Time passes until the initiator asks no more than once a second.
fn worry_long(mesh: &mut Mesh) {
    for _ in 0..30 {
        mesh.pass(millis(100));
        mesh.deliver_all();
    }
}

/// Both ends see the connection between two nodes end, and what the one says of that is lost.
fn part_unsaid(mesh: &mut Mesh, one: u64, other: u64) {
    let link = mesh.link_between(one, other);
    [one, other].into_iter().for_each(|at| mesh.disconnect(at, link));
    mesh.hold_back("LINK_DOWN");
    mesh.deliver_all();
}

/// The root dials the sender while that connects with the initiator and says that its branch runs:
/// that the root's dial fails then says nothing of it. It failed a grace later.
#[test]
fn a_late_word_by_the_root_says_nothing_of_a_branch_that_its_sender_reaches() {
    let mut mesh = Mesh::new(4, &Limits::default());
    [(1, 2), (2, 3), (3, 4), (1, 4)].into_iter().for_each(|(a, b)| _ = mesh.connect(a, b));
    mesh.nodes.get_mut(&2).unwrap().configure(id(3), vec!["test://3".parse().unwrap()]);
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    open_and_end(&mut mesh, "/0", 3);
    open_and_end(&mut mesh, "/0/0", 4);
    worry_long(&mut mesh);
    part_unsaid(&mut mesh, 2, 3);
    part_unsaid(&mut mesh, 1, 4);
    mesh.pass(Limits::default().grace);
    assert_eq!(mesh.on_wire(), ["1-2 PROBE"]);
    mesh.deliver_all();
    assert_eq!(mesh.dials, [(2, 3)]);
    mesh.connect(1, 3);
    let mut passed = 0;
    while !mesh.on_wire().contains(&"1-3 PROBE".to_owned()) {
        mesh.pass(millis(50));
        passed += 1;
        assert!(passed < 30, "its sender is asked");
    }
    mesh.deliver_all();
    let now = mesh.now;
    mesh.with(2, |node| node.handle_dial_failed(now, id(3)));
    assert_eq!(mesh.on_wire(), ["2-1 STATUS"]);
    mesh.deliver_all();
    mesh.pass(millis(30));
    assert_eq!(mesh.told(1, call), Vec::<String>::new(), "it runs");
    mesh.answer("/0/0/0", b"by its sender");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0/0", "Complete"]);
}

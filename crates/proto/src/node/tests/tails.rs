//! Tasks that end with a branch, in one act or in two.

use super::super::*;
use super::mesh::{Mesh, branch, encoded, id};
use super::strangers::{KEY, closing, frame, from_outside, in_the_name_of, request, send};
use crate::call::CallOptions;
use crate::encoded::Encoded;
use crate::id::PATH_LEVELS_MAX;
use crate::task::{Branch, SendError};
use crate::wire::{Executed, Extension, Sealed};

/// Node 1 calls 2, which knows of some others, and has not ended its task.
fn asked() -> Mesh {
    let mut mesh = Mesh::new(5, &Limits::default());
    mesh.connect(1, 2);
    mesh.connect(2, 3);
    mesh.connect(1, 3);
    // Node 4 can be dialled, and nobody has heard of 5.
    mesh.nodes.get_mut(&2).unwrap().configure(id(4), vec!["test://4".parse().unwrap()]);
    mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh
}

fn branch_to(to: u64) -> Branch {
    let payload = encoded(b"go on");
    Branch { payload, extensions: vec![Extension::epoch(7)], ..branch(to) }
}

/// All that can be seen of node 2 and of its task.
fn seen(mesh: &Mesh, task: &TaskRef) -> String {
    let node = &mesh.nodes[&2];
    let record = node.visits().snapshot(task.call, &task.task, task.key());
    node.audit_shares().unwrap();
    format!("{:#?} {record} {:?} {:?}", mesh.wire, mesh.dials, node.visits().running_count())
}

#[test]
fn a_tail_in_one_act_is_what_a_branch_and_the_end_are_in_two() {
    for (to, has_replied) in [(3, false), (2, false), (1, false), (4, false), (3, true), (4, true)]
    {
        let [one, two] = [true, false].map(|in_one| {
            let mut mesh = asked();
            let (_, task) = mesh.task("/0");
            let now = mesh.now;
            mesh.with(2, |node| {
                if has_replied {
                    node.reply(now, &task, Bytes::from_static(b"first")).unwrap();
                }
                if in_one {
                    node.tail(now, &task, branch_to(to)).unwrap();
                } else {
                    node.delegate(now, &task, branch_to(to)).unwrap();
                    node.finish(now, &task);
                }
            });
            let starts = mesh.starts.clone();
            (seen(&mesh, &task), starts)
        });
        assert_eq!(one, two, "to {to}, has replied: {has_replied}");
    }
}

#[test]
fn a_tail_to_who_has_become_unreachable_is_a_failure_at_the_initiator() {
    let mut mesh = asked();
    let (_, task) = mesh.task("/0");
    let now = mesh.now;
    let refused = mesh.with(2, |node| node.check_branch(now, &task, id(5), 0));
    assert_eq!(refused, Err(SendError::NodeDead));
    mesh.with(2, |node| node.tail(now, &task, branch_to(5))).unwrap();
    mesh.deliver_all();
    let told = mesh.told(1, task.call);
    assert!(matches!(&told[..], [one, end] if one.contains("n5") && end == "Partial"), "{told:?}");
    assert_eq!(mesh.nodes[&2].visits().running_count(), 0);
}

/// A task of node 2 as deep as a path is long, of a request with these entries to pass on.
fn deepest(inherited: Vec<Sealed>) -> (Mesh, TaskRef) {
    let mut mesh = asked();
    let path = "/0".repeat(PATH_LEVELS_MAX);
    let mut message = request(KEY, in_the_name_of(1), 0);
    if let Message::Request(request) = &mut message {
        request.inherited = inherited;
    }
    let call = from_outside(&mesh, 7);
    send(&mut mesh, 3, 2, frame(call, &path, message)).unwrap();
    let (_, task) = mesh.task(&path);
    (mesh, task)
}

/// A tail is no level, whether or not anything rides on it, and whether or not its node is
/// connected. It was refused, after it had been said that it could be, and its task failed.
#[test]
fn a_task_as_deep_as_a_path_is_long_tails_as_any_other() {
    let sealed = || vec![Sealed::new(closing("/0"), KEY)];
    for (inherited, has_metadata) in [(vec![], false), (sealed(), false), (vec![], true)] {
        for to in [3, 4, 5] {
            let (mut mesh, task) = deepest(inherited.clone());
            let now = mesh.now;
            mesh.with(2, |node| {
                if has_metadata {
                    node.reply_metadata(now, &task, "key", b"value").unwrap();
                }
                let checked = node.check_tail(now, &task, id(to), 0);
                assert_eq!(checked, if to == 5 { Err(SendError::NodeDead) } else { Ok(()) });
                node.tail(now, &task, branch_to(to)).unwrap();
            });
            if to == 4 {
                mesh.connect(2, 4);
            }
            let (_, sent) = mesh.wire.back().expect("something is said of its branch");
            let rides = match &sent.frame.message {
                Message::Request(request) if to != 5 => &request.inherited,
                Message::Fail(fail) if to == 5 => {
                    assert_eq!((fail.node, fail.executed), (Some(id(5)), Executed::No));
                    &fail.inherited
                }
                other => panic!("to {to}: {other:?}"),
            };
            assert_eq!((&sent.frame.header.task, rides), (&task.task.next_hop(), &inherited));
            let node = &mesh.nodes[&2];
            node.audit_shares().unwrap();
            assert_eq!(node.visits().running_count(), 1, "the first task of this test alone");
        }
    }
}

/// Entries that it was given to pass on ride on its reply, unless they are so many that they have
/// left already, and are kept for reports.
#[test]
fn an_answer_in_one_act_is_what_a_reply_and_the_end_are_in_two() {
    for given in [0, 1, 4, 5] {
        let [one, two] = [true, false].map(|in_one| {
            let (mut mesh, task) = deepest(vec![Sealed::new(closing("/0"), KEY); given]);
            let now = mesh.now;
            mesh.with(2, |node| {
                if in_one {
                    node.answer(now, &task, encoded(b"done")).unwrap();
                } else {
                    node.reply(now, &task, Bytes::from_static(b"done")).unwrap();
                    node.finish(now, &task);
                }
            });
            seen(&mesh, &task)
        });
        assert_eq!(one, two, "{given} entries");
    }
}

#[test]
fn a_task_as_deep_as_a_path_is_long_has_no_branch_beside_anything_else() {
    let (mut mesh, task) = deepest(Vec::new());
    let now = mesh.now;
    mesh.with(2, |node| {
        let checked = node.check_branch(now, &task, id(3), 0);
        assert_eq!(checked, Err(SendError::TooDeep), "of a task that has said nothing");
        let refused = node.delegate(now, &task, branch_to(3));
        assert_eq!(refused, Err(SendError::TooDeep));
        node.reply(now, &task, Bytes::from_static(b"first")).unwrap();
        assert_eq!(node.check_tail(now, &task, id(3), 0), Err(SendError::TooDeep));
        assert_eq!(node.tail(now, &task, branch_to(3)), Err(SendError::TooDeep));
        assert!(node.visits().is_running(&task), "it goes on");
    });
}

#[test]
fn a_task_that_is_over_or_a_message_that_is_too_large_tails_nowhere() {
    let mut mesh = asked();
    let (_, task) = mesh.task("/0");
    let (now, size) = (mesh.now, Limits::default().message_bytes_max + 1);
    let large = Branch { payload: Bytes::from(vec![0; size]).into(), ..branch_to(3) };
    let refused = mesh.with(2, |node| node.tail(now, &task, large));
    assert_eq!(refused, Err(SendError::TooLarge { size, limit: size - 1 }));
    mesh.with(2, |node| node.answer(now, &task, encoded(b""))).unwrap();
    let refused = mesh.with(2, |node| node.tail(now, &task, branch_to(3)));
    assert_eq!(refused, Err(SendError::Ended));
    mesh.deliver_all();
    assert_eq!(mesh.starts.len(), 1, "nobody was asked");
}

/// Whatever becomes of each: it leaves, over this connection or another, waits for room or credit,
/// or is refused.
#[test]
fn answers_given_together_are_what_they_are_one_by_one() {
    for is_full in [false, true] {
        let [together, apart] = [true, false].map(|is_together| {
            let mut mesh = Mesh::connected(3);
            let callers = [1, 1, 3, 1, 1, 1, 3, 2];
            for caller in callers {
                mesh.call(caller, &[2], CallOptions::default());
                mesh.deliver_all();
            }
            let mut tasks: Vec<_> =
                mesh.starts.iter().map(|(_, start)| start.task.clone()).collect();
            assert_eq!(tasks.len(), callers.len());
            tasks.insert(2, tasks[0].clone()); // It has answered by then.
            let size = |place: usize| if place == 4 { 600_000 } else { place };
            let mut replies: Vec<Encoded> =
                (0..tasks.len()).map(|place| encoded(&vec![7; size(place)])).collect();
            let now = mesh.now;
            let refused = mesh.with(2, |node| {
                if is_full {
                    let link = node.links().current(id(1)).unwrap();
                    node.outbox_mut().full.insert(link);
                }
                let answers = tasks.iter().zip(&mut replies);
                if is_together {
                    node.answer_each(now, answers)
                } else {
                    let one = |(task, reply): (_, &mut Encoded)| {
                        let said = node.answer(now, task, std::mem::take(reply));
                        Some((task, said.err()?))
                    };
                    answers.filter_map(one).collect()
                }
            });
            assert_eq!(refused, [(&tasks[0], SendError::Ended)]);
            let seen: Vec<_> = tasks.iter().map(|task| seen(&mesh, task)).collect();
            (mesh.on_wire(), seen, mesh.nodes[&2].links().full_count())
        });
        assert_eq!(together, apart, "without room: {is_full}");
        assert_eq!(together.2, usize::from(is_full));
    }
}

//! Tasks that end with a branch, in one act or in two.

use super::super::*;
use super::mesh::{Mesh, branch, encoded, id};
use crate::call::CallOptions;
use crate::task::{Branch, SendError};
use crate::wire::Extension;

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

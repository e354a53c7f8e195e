//! Failures: what they say is bounded, is paid for while it waits, and is told by any connection.

use bytes::Bytes;

use super::super::*;
use super::mesh::{Mesh, branch};
use crate::call::{CallEvent, CallOptions};
use crate::failure::Failure;
use crate::share::Pool;
use crate::task::{Branch, TaskFailure};
use crate::wire::{Cause, Executed};

/// A failure of a service that did not run, with so many bytes of details.
fn failing(details: usize) -> TaskFailure {
    TaskFailure {
        code: 14,
        details: Bytes::from(vec![7; details]),
        ..TaskFailure::new(Cause::Application, Executed::No, "try the leader")
    }
}

fn fail(mesh: &mut Mesh, (at, task): &(u64, TaskRef), failure: TaskFailure) {
    let now = mesh.now;
    mesh.with(*at, |node| node.fail(now, task, failure));
}

/// Failures that the caller has been told of, which all say the same but for their details.
fn details_told(mesh: &mut Mesh, call: CallId) -> Vec<usize> {
    let told = mesh.events(1, call).into_iter().filter_map(|event| match event {
        CallEvent::Failure(failure) => Some(failure),
        _ => None,
    });
    let details = |failure: Failure| {
        let Failure { cause, executed, code, text, details, .. } = failure;
        assert_eq!((cause, executed, code), (Cause::Application, Executed::No, 14));
        assert_eq!(text, "try the leader");
        details.len()
    };
    told.map(details).collect()
}

/// The initiator would not know that the task did not run.
#[test]
fn details_that_are_too_long_are_left_out_alone() {
    for (message_bytes_max, limit) in [(4 << 20, 64 << 10), (100_000, 25_000), (100, 64)] {
        let limits = Limits { message_bytes_max, ..Limits::default() };
        assert_eq!(limits.details_bytes_max(), limit);
        let mut mesh = Mesh::connected_with(2, &limits);
        for (given, told) in [(limit, limit), (limit + 1, 0), (20 << 20, 0)] {
            let call = mesh.call(1, &[2], CallOptions::default());
            mesh.deliver_all();
            let task = mesh.task("/0");
            fail(&mut mesh, &task, failing(given));
            mesh.deliver_all();
            assert_eq!(details_told(&mut mesh, call), [told], "{given} of {limit}");
        }
    }
}

/// A branch whose request its connection does not take fails with what that has said, also where
/// the task ends with it.
#[test]
fn a_branch_that_a_connection_does_not_take_says_why() {
    for is_tail in [true, false] {
        let mut mesh = Mesh::connected(3);
        let link = mesh.end_of(2, mesh.link_between(2, 3));
        mesh.with(2, |node| node.outbox_mut().frame_bytes_max.insert(link, 5_000));
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        let ((_, task), now) = (mesh.task("/0"), mesh.now);
        let large = Branch { payload: Bytes::from(vec![7; 10_000]).into(), ..branch(3) };
        mesh.with(2, |node| match is_tail {
            true => node.tail(now, &task, large).unwrap(),
            false => {
                node.delegate(now, &task, large).unwrap();
                node.finish(now, &task);
            }
        });
        mesh.deliver_all();
        let told = mesh.told(1, call);
        assert!(told[0].contains("are above 5000") && told[0].contains("n3"), "{told:?}");
    }
}

/// The connection to the initiator takes only short frames, for its node has lower limits.
#[test]
fn a_failure_that_a_connection_does_not_take_comes_without_details() {
    for (limit, has_metadata) in [(20_000, true), (5_000, false)] {
        let mut mesh = Mesh::connected(2);
        let link = mesh.end_of(2, mesh.link_between(2, 1));
        mesh.with(2, |node| node.outbox_mut().frame_bytes_max.insert(link, limit));
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        let (task, now) = (mesh.task("/0"), mesh.now);
        let add = |node: &mut Node| node.reply_metadata(now, &task.1, "why", &[7; 10_000]);
        mesh.with(2, add).unwrap();
        fail(&mut mesh, &task, failing(30_000));
        mesh.deliver_all();
        let call = mesh.events(1, call);
        let [CallEvent::Failure(failure), CallEvent::Ended(_)] = &call[..] else {
            panic!("{call:?}")
        };
        assert_eq!((failure.code, &*failure.text), (14, "try the leader"));
        assert_eq!((failure.executed, failure.details.len()), (Executed::No, 0));
        assert_eq!(failure.metadata().iter().count() > 0, has_metadata);
    }
}

/// It waits behind a reply that has no credit yet, in the share of who asked for it.
#[test]
fn a_failure_that_waits_is_paid_for_or_comes_without_details() {
    for (replying, told) in [(1, 50_000), (2, 0)] {
        let limits = Limits {
            waiting_reply_bytes_max: 200_000,
            message_bytes_max: 200_000,
            ..Limits::default()
        };
        let mut mesh = Mesh::connected_with(2, &limits);
        let used = |mesh: &Mesh| mesh.nodes[&2].links().shares().used(Pool::Replies);
        let (mut tasks, mut on_their_way) = (Vec::new(), Vec::new());
        for _ in 0..replying {
            let call = mesh.call(1, &[2], CallOptions::default());
            mesh.deliver_all();
            let (task, now) = (mesh.task("/0"), mesh.now);
            let reply = Bytes::from_static(&[7; 50_000]);
            mesh.with(2, |node| node.reply(now, &task.1, reply).unwrap());
            mesh.with(2, |node| node.handle_yield(now, &task.1));
            on_their_way.extend(mesh.hold_back("REPLY"));
            tasks.push((call, task));
        }
        assert_eq!(used(&mesh), 50_000 * replying);
        let (call, task) = &tasks[0];
        fail(&mut mesh, task, failing(50_000));
        assert_eq!(used(&mesh), 100_000, "its share, all the same");
        mesh.nodes[&2].audit_shares().unwrap();
        mesh.wire.extend(on_their_way);
        mesh.deliver_all();
        assert_eq!(details_told(&mut mesh, *call), [told]);
        assert_eq!(used(&mesh), 0);
        mesh.nodes[&2].audit_shares().unwrap();
    }
}

//! Large replies of calls whose callers have enough: nobody reads them, and they take no room.

use bytes::Bytes;

use super::super::*;
use super::grants::Random;
use super::mesh::{Mesh, Sent, millis};
use crate::call::{CallOptions, root_path};
use crate::id::CallId;
use crate::key;
use crate::task::SendError;
use crate::wire::{Credit, Header, Part, Reply, ReplyKind};

/// Members of a call of node 1: three answer at once, one begins and hangs, one is late.
const MEMBERS: [u64; 5] = [2, 3, 4, HUNG, LATE];
const HUNG: u64 = 5;
const LATE: u64 = 6;

const LARGE: usize = 1 << 20;

/// The room of a call is that of one large message.
fn limits() -> Limits {
    Limits {
        message_bytes_max: LARGE,
        reply_bytes_max: LARGE as u64,
        waiting_reply_bytes_max: 16 * LARGE,
        ..Limits::default()
    }
}

fn bytes(len: usize) -> Bytes {
    static BYTES: [u8; LARGE] = [7; LARGE];
    Bytes::from_static(&BYTES[..len])
}

fn answer_large(mesh: &mut Mesh, path: &str) -> Result<(), SendError> {
    let ((at, task), now) = (mesh.task(path), mesh.now);
    mesh.with(at, |node| node.answer(now, &task, bytes(LARGE)))
}

/// Delivers all but what the hung member sends, of which so many frames come. The others.
fn deliver_but_hung(mesh: &mut Mesh, mut frames: usize) -> Vec<(u64, Sent)> {
    let mut held = Vec::new();
    while let Some((from, sent)) = mesh.wire.front() {
        if *from != HUNG {
            mesh.deliver(0);
        } else if frames > 0 && matches!(sent.frame.message, Message::Reply(_)) {
            frames -= 1;
            mesh.deliver(0);
        } else {
            held.extend(mesh.wire.pop_front());
        }
    }
    held
}

fn decide(mesh: &mut Mesh, call: CallId) {
    let now = mesh.now;
    mesh.with(1, |node| node.decide_call(now, call, false));
}

/// A call that three members have answered, and another with so many parts of a large reply. What
/// that sends besides.
fn begun(mesh: &mut Mesh, parts: usize) -> (CallId, Vec<(u64, Sent)>) {
    let call = mesh.call(1, &MEMBERS, CallOptions::default());
    mesh.deliver_all();
    answer_large(mesh, "/3").unwrap();
    let held = deliver_but_hung(mesh, parts);
    ["/0", "/1", "/2"].into_iter().for_each(|path| mesh.answer(path, b""));
    mesh.deliver_all();
    (call, held)
}

fn committed(mesh: &Mesh, call: CallId) -> u64 {
    mesh.nodes[&1].call(call).map_or(0, |call| call.committed())
}

/// Bytes of replies that wait at a node.
fn waiting(mesh: &Mesh, at: u64) -> usize {
    let taken = mesh.nodes[&at].shares().filter(|taken| taken.pool == "waiting_reply_bytes_max");
    taken.map(|taken| taken.taken).sum()
}

fn running(mesh: &Mesh, at: u64) -> usize {
    mesh.nodes[&at].visits().running_count()
}

fn unsettled(mesh: &Mesh) -> usize {
    mesh.nodes[&1].initiator().unsettled_count()
}

/// The room of a decided call was kept by what the one had been granted. The reply of the other
/// waited for it until its deadline, and that of the ninth call was refused.
#[test]
fn a_member_that_hangs_keeps_no_other_from_its_late_reply() {
    let mut mesh = Mesh::connected_with(6, &limits());
    for nth in 0..20 {
        let (call, _) = begun(&mut mesh, 3);
        decide(&mut mesh, call);
        assert_eq!(answer_large(&mut mesh, "/4"), Ok(()), "of call {nth}");
        drop(deliver_but_hung(&mut mesh, 0));
        assert_eq!((waiting(&mesh, LATE), running(&mesh, LATE)), (0, 0), "of call {nth}");
        assert_eq!(committed(&mesh, call), 0, "of call {nth}");
    }
}

/// The parts that had come took memory until the keep-alive time after the deadline.
#[test]
fn parts_of_replies_are_dropped_with_the_decision() {
    for (parts, is_decided) in (0..4).flat_map(|parts| [(parts, true), (parts, false)]) {
        let mut mesh = Mesh::connected_with(6, &limits());
        let (call, held) = begun(&mut mesh, parts);
        assert_eq!(committed(&mesh, call) > 0, parts > 0);
        mesh.answer("/4", b"");
        mesh.deliver_all();
        if is_decided {
            decide(&mut mesh, call);
        } else {
            let now = mesh.now;
            mesh.with(1, |node| node.cancel_call(now, call));
            mesh.with(1, |node| node.detach_call(now, call));
        }
        assert_eq!((committed(&mesh, call), unsettled(&mesh)), (0, 1));
        // What still comes is counted all the same, and dropped.
        mesh.wire.extend(held);
        while !mesh.wire.is_empty() {
            mesh.deliver(0);
            assert_eq!(committed(&mesh, call), 0);
        }
        assert_eq!((unsettled(&mesh), running(&mesh, HUNG)), (0, 0), "{parts} {is_decided}");
    }
}

/// Members send messages and streams, whose frames come in any order and sometimes twice. At some
/// time the call is decided, and one member's frames come no more; at last they do.
#[test]
fn replies_of_decided_calls_come_to_their_ends_and_take_no_room() {
    for seed in 0..60 {
        let random = &mut Random(seed);
        let mut mesh = Mesh::connected_with(6, &limits());
        let call = mesh.call(1, &MEMBERS, CallOptions::default());
        mesh.deliver_all();
        for root in 0..MEMBERS.len() {
            begin(&mut mesh, root, random);
        }
        let decided_at = random.below(30);
        let (mut step, mut held) = (0, Vec::new());
        loop {
            if step == decided_at {
                decide(&mut mesh, call);
            }
            step += 1;
            if step > decided_at {
                assert_eq!(committed(&mesh, call), 0, "seed {seed} step {step}");
            } else {
                drop(mesh.events(1, call));
            }
            if mesh.wire.is_empty() {
                if step > decided_at && held.is_empty() {
                    break;
                }
                if step > decided_at {
                    let others = MEMBERS.into_iter().filter(|member| *member != HUNG);
                    others.for_each(|at| assert_eq!(running(&mesh, at), 0, "seed {seed} at {at}"));
                    mesh.wire.extend(held.drain(..));
                }
                continue;
            }
            let at = random.below(mesh.wire.len());
            if step > decided_at && step < 10_000 && mesh.wire[at].0 == HUNG {
                held.extend(mesh.wire.remove(at));
                step += if mesh.wire.is_empty() { 10_000 } else { 0 };
                continue;
            }
            if random.below(5) == 0 {
                let copy = mesh.wire[at].clone();
                mesh.wire.push_back(copy);
            }
            mesh.deliver(at);
        }
        assert!(MEMBERS.into_iter().all(|at| running(&mesh, at) == 0), "seed {seed}");
        assert_eq!(unsettled(&mesh), 0, "seed {seed}");
    }
}

/// A task sends a few replies, which are messages or streams, and returns.
fn begin(mesh: &mut Mesh, root: usize, random: &mut Random) {
    let ((at, task), now) = (mesh.task(&format!("/{root}")), mesh.now);
    let mut size = || 1 << random.below(21);
    let sizes: Vec<usize> = (0..4).map(|_| size()).collect();
    let stream_count = random.below(3);
    mesh.with(at, |node| {
        for size in &sizes[..2] {
            node.reply(now, &task, bytes(*size)).unwrap();
        }
        for _ in 0..stream_count {
            let stream = node.stream(now, &task).unwrap();
            let items = sizes.iter().map(|size| bytes(*size));
            node.stream_items(now, &task, stream, items).unwrap();
        }
        node.finish(now, &task);
    });
}

/// A CREDIT is lost with its connection, and nobody asks for the task of a decided call. There is
/// another connection, or one again.
#[test]
fn credit_of_a_decided_call_is_given_again_when_its_connection_ends() {
    let cases = [(false, "CREDIT"), (true, "CREDIT"), (true, "REPLY")];
    for ((is_stream, loses), is_alone) in cases.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let mut mesh = Mesh::connected_with(6, &limits());
        let first = mesh.link_between(1, LATE);
        if !is_alone {
            mesh.connect(1, LATE);
        }
        let call = mesh.call(1, &MEMBERS, CallOptions::default());
        mesh.deliver_all();
        ["/0", "/1", "/2"].into_iter().for_each(|path| mesh.answer(path, b""));
        mesh.deliver_all();
        decide(&mut mesh, call);
        let ((_, task), now) = (mesh.task("/4"), mesh.now);
        let items = || (0..1_000).map(|_| bytes(1 << 10));
        mesh.with(LATE, |node| match is_stream {
            true => {
                let stream = node.stream(now, &task).unwrap();
                node.stream_items(now, &task, stream, items()).unwrap();
            }
            false => node.reply(now, &task, bytes(LARGE)).unwrap(),
        });
        mesh.with(LATE, |node| node.finish(now, &task));
        // One frame comes, or all that has credit.
        match loses {
            "REPLY" => {
                mesh.deliver(0);
                mesh.deliver_all_but("REPLY");
            }
            _ => mesh.deliver_all_but("CREDIT"),
        }
        assert!(!mesh.hold_back(loses).is_empty());
        [LATE, 1].into_iter().for_each(|at| mesh.disconnect(at, first));
        if is_alone {
            mesh.connect(1, LATE);
        }
        mesh.deliver_all();
        assert_eq!(running(&mesh, LATE), 0, "{is_stream} {loses} {is_alone}");
        assert_eq!(waiting(&mesh, LATE), 0, "{is_stream} {loses} {is_alone}");
    }
}

/// Pieces count as read as they come, so that no window bounds those behind one that was lost.
#[test]
fn pieces_behind_one_that_was_lost_do_not_pile_up_in_a_decided_call() {
    let mut mesh = Mesh::connected_with(2, &limits());
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    decide(&mut mesh, call);
    let link = mesh.link_between(2, 1);
    let is_refused = (1..10_000).position(|seq| {
        let kind = ReplyKind::Item { seq, is_last: false };
        let sole = Reply::sole(Bytes::from_static(b"1"));
        let reply = Reply { kind, is_final: false, ..sole };
        let header = Header { call, task: key(root_path(0), 0) };
        mesh.take((1, link), Frame::new(header, Message::Reply(reply))).unwrap();
        let no_more = |sent: &Sent| {
            matches!(&sent.frame.message, Message::Credit(it) if it.limit_bytes == Credit::NO_MORE)
        };
        mesh.wire.drain(..).any(|(_, sent)| no_more(&sent))
    });
    assert_eq!(is_refused, Some(4_096));
    assert_eq!(mesh.nodes[&1].call(call).map_or(0, |call| call.begun_count()), 0);
}

/// Replies that take no room are bounded in number.
#[test]
fn a_decided_call_of_which_too_many_replies_begin_is_settled_early() {
    for roots in [&[2][..], &[2, 3]] {
        let mut mesh = Mesh::connected_with(3, &limits());
        let call = mesh.call(1, roots, CallOptions::default());
        mesh.deliver_all();
        decide(&mut mesh, call);
        let link = mesh.link_between(2, 1);
        let part = Some(Part { offset: 0, total: LARGE as u64 });
        let mut is_bounded = false;
        for index in (0..).take(2 * LARGE / 128) {
            let sole = Reply::sole(Bytes::from_static(b"begun"));
            let reply = Reply { index, part, is_final: false, ..sole };
            let header = Header { call, task: key(root_path(0), 0) };
            mesh.take((1, link), Frame::new(header, Message::Reply(reply))).unwrap();
            mesh.wire.clear();
            let begun = mesh.nodes[&1].call(call).map_or(0, |call| call.begun_count());
            assert!(begun <= LARGE / 128, "{begun}");
            is_bounded |= begun == 0;
        }
        assert!(is_bounded, "{roots:?}");
    }
}

/// Of a member that hangs for ever a decided call keeps no more than that it is not settled.
#[test]
fn a_decided_call_with_a_member_that_hangs_is_forgotten_in_time() {
    let mut mesh = Mesh::connected_with(6, &limits());
    let (call, _) = begun(&mut mesh, 1);
    decide(&mut mesh, call);
    let limits = limits();
    for secs in 1..=20 {
        mesh.pass(millis(1_000));
        drop(deliver_but_hung(&mut mesh, 0));
        let is_kept = millis(secs * 1_000) < limits.deadline_default + limits.keep_alive_timeout;
        assert_eq!((committed(&mesh, call), unsettled(&mesh)), (0, is_kept.into()), "{secs} s");
    }
}

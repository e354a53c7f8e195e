//! Servers that share no connection with the initiator forget, too (`settlement.md` S10).

use super::super::*;
use super::mesh::{Mesh, Sent, id, millis};
use super::settlement::{answer_to, detach, pass, remembered, settle, shares, statement};
use super::strangers::{frame, in_the_name_of, key, request, send};
use crate::call::CallOptions;
use crate::id::CallId;
use crate::key::Key;
use crate::wire::{Asked, NAMED_MAX, Probe, ReplyRoute, Statement, TaskStatus};

fn stubs(mesh: &Mesh, at: u64) -> usize {
    mesh.nodes[&at].visits().stub_count()
}

/// Nodes 2 and 3 have run tasks of call 1 of node 1, which only 2 is connected with: /0 at 2 and
/// /0/0 at 3. Node 3 has asked 2 what is settled; the question is still on its way.
fn chain() -> (Mesh, CallId, Frame, Vec<(u64, Sent)>) {
    let mut mesh = Mesh::new(4, &Limits { ask_min: 0, ..Limits::default() });
    for (one, other) in [(1, 2), (2, 3), (3, 4)] {
        mesh.connect(one, other);
    }
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    let request = mesh.hold_back("REQUEST");
    let copy = request[0].1.frame.clone();
    mesh.wire.extend(request);
    mesh.deliver_all();
    mesh.answer("/0/0", b"");
    let asks = mesh.hold_back("ASK");
    mesh.deliver_all();
    assert_eq!(mesh.told(1, call), ["reply /0/0", "Complete"]);
    detach(&mut mesh, call);
    assert_eq!((asks.len(), remembered(&mesh, 2), remembered(&mesh, 3)), (1, 1, 1));
    (mesh, call, copy, asks)
}

/// The next call goes the same way: its floor tells node 2 that the first is settled.
fn next_in_chain(mesh: &mut Mesh) -> CallId {
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[3]);
    mesh.finish("/0");
    mesh.deliver_all();
    call
}

#[test]
fn a_chain_without_connections_to_the_initiator_forgets_hop_by_hop() {
    let (mut mesh, _, copy, asks) = chain();
    next_in_chain(&mut mesh);
    assert_eq!((remembered(&mesh, 2), stubs(&mesh, 2)), (1, 0), "of the second call alone");
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (1, 0), "nobody has said a word");
    mesh.wire.extend(asks);
    mesh.deliver_all();
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (0, 1));
    let started = mesh.starts.len();
    send(&mut mesh, 2, 3, copy.clone()).unwrap();
    assert_eq!(mesh.starts.len(), started, "a stub refuses the copy");
    let Message::Request(request) = &copy.message else { panic!("{copy:?}") };
    let asked = Asked { task: copy.header.task.clone(), key: request.key };
    let probe = Probe { fence: true, budget_us: 1_000, tasks: vec![asked] };
    send(&mut mesh, 2, 3, frame(copy.header.call, "/", Message::Probe(probe))).unwrap();
    let (_, sent) = mesh.wire.pop_front().unwrap();
    let Message::Status(status) = sent.frame.message else { panic!("no status") };
    assert_eq!(status.tasks[0].1, TaskStatus::Forgotten);
    mesh.answer("/0/0", b"");
    mesh.deliver_all();
    pass(&mut mesh, Duration::from_secs(22));
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3), shares(&mesh, 3)), (0, 0, (0, 0)));
    assert_eq!(mesh.nodes[&3].visits().origin_count(), 0);
}

/// The question of each server of a chain was about what had come by then, and nothing ends any
/// more that would make it ask again.
#[test]
fn when_calls_stop_every_server_of_a_chain_forgets_what_is_worth_a_question() {
    let mut mesh = Mesh::new(6, &Limits::default());
    for node in 1..6 {
        mesh.connect(node, node + 1);
    }
    for _ in 0..200 {
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all_but("ASK");
        for (path, next) in [("/0", 3), ("/0/0", 4), ("/0/0/0", 5), ("/0/0/0/0", 6)] {
            mesh.delegate(path, &[next]);
            mesh.finish(path);
            mesh.deliver_all_but("ASK");
        }
        mesh.answer("/0/0/0/0/0", b"");
        mesh.deliver_all_but("ASK");
        detach(&mut mesh, call);
        mesh.pass(Duration::from_micros(200));
    }
    let all = |mesh: &Mesh| [2, 3, 4, 5, 6].map(|at| remembered(mesh, at));
    mesh.deliver_all();
    assert!(all(&mesh)[1..].iter().all(|count| *count > 64), "{:?}", all(&mesh));
    for _ in 0..100 {
        mesh.pass(millis(1));
        mesh.deliver_all();
    }
    assert!(all(&mesh).iter().all(|count| *count <= 64), "{:?}", all(&mesh));
    assert_eq!(stubs(&mesh, 2), 0, "it was told by the initiator");
    pass(&mut mesh, Duration::from_secs(22));
    assert_eq!((all(&mesh), shares(&mesh, 6)), ([0; 5], (0, 0)));
}

#[test]
fn a_stub_is_of_a_task_and_not_of_its_call() {
    let (mut mesh, _, copy, asks) = chain();
    next_in_chain(&mut mesh);
    mesh.wire.extend(asks);
    mesh.deliver_all();
    assert_eq!(stubs(&mesh, 3), 1);
    let started = mesh.starts.len();
    let mut other = copy.clone();
    other.header.task = key("/0/1");
    send(&mut mesh, 2, 3, other).unwrap();
    let mut with_another_key = copy;
    if let Message::Request(request) = &mut with_another_key.message {
        request.key = Key(1);
    }
    send(&mut mesh, 2, 3, with_another_key).unwrap();
    assert_eq!(mesh.starts.len(), started + 2);
}

/// A lie costs only the liar's own requests.
#[test]
fn the_word_of_a_node_that_sent_nothing_is_not_believed() {
    let (mut mesh, call, copy, _) = chain();
    let lie = statement(&mesh, call.seq, u64::MAX, Vec::new());
    settle(&mut mesh, 4, 3, lie.clone());
    let far = CallId { seq: 1 << 40, ..call };
    send(&mut mesh, 4, 3, frame(far, "/9/0", request(Key(1), in_the_name_of(1), 0))).unwrap();
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (1, 0));
    settle(&mut mesh, 2, 3, lie);
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (0, 1));
    let started = mesh.starts.len();
    send(&mut mesh, 2, 3, copy).unwrap();
    assert_eq!(mesh.starts.len(), started);
    next_in_chain(&mut mesh);
    assert_eq!(mesh.starts.len(), started + 2, "what is asked for later runs all the same");
}

/// Frames of different calls, lanes and connections pass one another: an answer is about what had
/// come when it was asked for.
#[test]
fn an_answer_is_not_about_requests_that_came_after_the_question() {
    let (mut mesh, _, copy, _) = chain();
    pass(&mut mesh, millis(1));
    let mut later = copy.clone();
    later.header.task = key("/0/1");
    send(&mut mesh, 2, 3, later).unwrap();
    mesh.answer("/0/1", b"");
    mesh.wire.clear();
    assert_eq!(remembered(&mesh, 3), 2);
    let all = statement(&mesh, copy.header.call.seq, u64::MAX, Vec::new());
    // As a copy of an answer of long ago (simulation: late copies, seed 7800000031131).
    let question = mesh.nodes[&3].visits().last_question();
    answer_to(&mut mesh, question - 1, (2, 3), all.clone());
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (2, 0));
    settle(&mut mesh, 2, 3, all.clone());
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (1, 1));
    settle(&mut mesh, 2, 3, all);
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (1, 1), "nobody has asked");
}

#[test]
fn a_node_deep_in_a_tree_asks_who_sent_the_requests() {
    let mut mesh = Mesh::new(3, &Limits::default());
    mesh.connect(1, 2);
    mesh.connect(2, 3);
    let one = CallId { origin: mesh.life(1), seq: 1 };
    // This one runs at 2 all the time, and holds its floor.
    send(&mut mesh, 1, 2, frame(one, "/0", request(Key(7), ReplyRoute::Sender, 0))).unwrap();
    for seq in 2..=66 {
        let call = CallId { seq, ..one };
        send(&mut mesh, 1, 2, frame(call, "/0", request(Key(7), ReplyRoute::Sender, seq - 1)))
            .unwrap();
        mesh.delegate("/0", &[3]);
        mesh.finish("/0");
        mesh.deliver_all_but("REPLY");
        mesh.answer("/0/0", b"");
        if seq <= 65 {
            mesh.wire.clear();
        }
    }
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (65, 0));
    assert!(mesh.on_wire().contains(&"3-2 ASK".to_owned()), "{:?}", mesh.on_wire());
    let all = statement(&mesh, 0, 67, vec![1]);
    settle(&mut mesh, 1, 2, all);
    assert_eq!(remembered(&mesh, 2), 0);
    let asks = mesh.hold_back("ASK");
    mesh.wire = asks.into();
    mesh.deliver(0);
    assert_eq!(mesh.on_wire(), ["2-3 SETTLED"]);
    mesh.deliver_all();
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (0, 65));
    assert_eq!(shares(&mesh, 3).0, 2 + 65_usize.div_ceil(4), "four count as one");
}

/// Calls that pass the same servers more than once: each of those waits for the word of the other.
#[test]
fn servers_that_a_call_passes_twice_forget_it() {
    let mut mesh = Mesh::new(4, &Limits::default());
    for (one, other) in [(1, 2), (2, 3), (3, 4)] {
        mesh.connect(one, other);
    }
    let way = [("/0", 3), ("/0/0", 4), ("/0/0/0", 3), ("/0/0/0/0", 4), ("/0/0/0/0/0", 3)];
    let last = "/0/0/0/0/0/0";
    for _ in 0..300 {
        let call = mesh.call(1, &[2], CallOptions::default());
        mesh.deliver_all();
        for (path, to) in way {
            mesh.delegate(path, &[to]);
            mesh.finish(path);
            mesh.deliver_all();
        }
        mesh.answer(last, b"");
        mesh.deliver_all();
        assert_eq!(mesh.end(1, call), Some(crate::call::End::Complete));
        detach(&mut mesh, call);
    }
    for _ in 0..200 {
        mesh.pass(millis(1));
        mesh.deliver_all();
    }
    // As many of each sender as are not worth a question, with up to two more below each.
    let all = [2, 3, 4].map(|at| remembered(&mesh, at));
    assert!(all.iter().all(|count| *count <= 3 * 64), "{all:?}");
}

/// Two servers that have sent each other branches of one call, neither above the other's, and below
/// each a branch that went back: whoever says of the whole call that it is not over waits for ever.
#[test]
fn servers_that_send_each_other_branches_of_a_call_forget_it() {
    let limits = Limits { ask_min: 0, ..Limits::default() };
    let mut mesh = Mesh::new(4, &limits);
    for (one, other) in [(1, 2), (2, 3), (2, 4), (3, 4)] {
        mesh.connect(one, other);
    }
    let call = mesh.call(1, &[2], CallOptions::default());
    mesh.deliver_all();
    mesh.delegate("/0", &[3, 4]);
    mesh.finish("/0");
    mesh.deliver_all();
    for (path, to) in [("/0/0", 4), ("/0/1", 3), ("/0/0/0", 3), ("/0/1/0", 4)] {
        // More than an answer may name: it names tasks, not their branches.
        mesh.delegate(path, &[to; NAMED_MAX + 1]);
        mesh.finish(path);
        mesh.deliver_all();
        (1..=NAMED_MAX).for_each(|index| mesh.answer(&format!("{path}/{index}"), b""));
    }
    for path in ["/0/0/0/0", "/0/1/0/0"] {
        mesh.answer(path, b"");
    }
    mesh.deliver_all();
    assert_eq!(mesh.end(1, call), Some(crate::call::End::Complete));
    detach(&mut mesh, call);
    for _ in 0..400 {
        mesh.pass(millis(5));
        mesh.deliver_all();
    }
    assert_eq!([2, 3, 4].map(|at| remembered(&mesh, at)), [0; 3]);
    assert!(stubs(&mesh, 3) > 0 && stubs(&mesh, 4) > 0, "nobody has told them of the initiator");
}

/// A neighbour says which tasks are not over only of those that sent requests here, and what came
/// since it was asked is not meant.
#[test]
fn branches_of_named_tasks_stay_and_all_others_of_the_call_go() {
    let (mut mesh, first, _, _) = chain();
    mesh.pass(millis(1));
    let call = CallId { seq: 7, ..first };
    let relayed = || ReplyRoute::Node { node: id(1), addresses: Vec::new() };
    for path in ["/0/0/3", "/0/1/3"] {
        send(&mut mesh, 2, 3, frame(call, path, request(Key(9), relayed(), 0))).unwrap();
        mesh.answer(path, b"");
    }
    assert_eq!(remembered(&mesh, 3), 3);
    let named =
        Statement { open: vec![(7, key("/0/1"))], ..statement(&mesh, 1, u64::MAX, vec![1, 7]) };
    settle(&mut mesh, 4, 3, named.clone());
    assert_eq!(remembered(&mesh, 3), 3, "nobody has asked node 4");
    settle(&mut mesh, 2, 3, named.clone());
    assert_eq!(remembered(&mesh, 3), 3, "they came after the question");
    mesh.wire.clear();
    mesh.pass(millis(500));
    assert!(!mesh.hold_back("ASK").is_empty());
    settle(&mut mesh, 2, 3, named);
    assert_eq!((remembered(&mesh, 3), stubs(&mesh, 3)), (2, 1));
    let left: Vec<_> = mesh.nodes[&3].visits().remembered().map(|(.., seq)| seq).collect();
    assert_eq!(left, [1, 7]);
}

/// The answer names as many tasks as it may, and what it has no room for is asked for next: an open
/// call of many tasks does not hide those that come after it.
#[test]
fn what_an_answer_has_no_room_for_is_asked_for_next() {
    let limits = Limits { ask_min: 0, ..Limits::default() };
    let mut mesh = Mesh::new(3, &limits);
    mesh.connect(1, 2);
    mesh.connect(2, 3);
    // Of each call 300 tasks at node 2, which have sent a branch each to node 3.
    let calls: Vec<CallId> = (0..3)
        .map(|_| {
            let call = mesh.call(1, &[2; 300], CallOptions::default());
            mesh.deliver_all();
            for root in 0..300 {
                mesh.delegate(&format!("/{root}"), &[3]);
            }
            mesh.deliver_all();
            call
        })
        .collect();
    mesh.pass(millis(1_000));
    let said = |mesh: &Mesh, from: u64| {
        let of = (calls[0].origin, from);
        mesh.nodes[&2].visits().statement(mesh.now, id(3), of, NAMED_MAX)
    };
    let mut from = 0;
    for (place, call) in calls.iter().enumerate() {
        let answer = said(&mesh, from);
        assert_eq!((answer.exceptions, answer.open.len()), (vec![call.seq], 300));
        assert_eq!(answer.to == u64::MAX, place == 2, "the last has room for all that is left");
        from = answer.to;
    }
}

//! Quorum calls over a simulated network in virtual time.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Cause, Code, Endpoint, Executed, NodeId, Status};
use convoke_quorum::{
    AckedBy, All, Byzantine, First, Grid, Majority, MemberError, MemberSet, QuorumError, QuorumExt,
    QuorumFunction, QuorumSystem, Replies, Retry, Threshold, Unsuitable, Verdict, Weighted,
    matching, newest_of,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::support::{
    self, ASK, Answer, Behaviour, Cluster, HOP, NOTE, READ, REPEAT, STREAM, node, nodes,
};

#[tokio::test(start_paused = true)]
async fn a_majority_is_there_after_one_round_trip_and_the_slow_member_still_gets_the_request() {
    let cluster = Cluster::start(3).await;
    cluster.network.latency(node(support::CLIENT), node(3), 50 * HOP);
    let start = Instant::now();
    let answers = cluster.all(ASK, 7).quorum(Majority).await.unwrap();
    let answers: Vec<_> = answers.iter().map(|(member, answer)| (*member, answer.number)).collect();
    assert_eq!((answers, start.elapsed()), (vec![(node(1), 7), (node(2), 7)], 2 * HOP));
    assert!(cluster.replica(3).asked().is_empty());
    cluster.settle().await;
    assert_eq!(cluster.replica(3).asked(), [7]);
    assert_eq!(cluster.replica(3).stopped(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_k_of_three_stopped_first_majority_and_all_succeed_as_they_should() {
    for stopped in 0..=3_u64 {
        let mut cluster = Cluster::start(3).await;
        (1..=stopped).for_each(|id| cluster.crash(id));
        tokio::time::sleep(10 * HOP).await;
        let first = cluster.all(ASK, 1).quorum(First).await;
        let majority = cluster.all(ASK, 2).quorum(Majority).await;
        let all = cluster.all(ASK, 3).quorum(All).await;
        assert_eq!(
            (first.is_ok(), majority.is_ok(), all.is_ok()),
            (stopped <= 2, stopped <= 1, stopped == 0)
        );
        for error in [first.err(), majority.err(), all.err()].into_iter().flatten() {
            assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
            let failed: Vec<_> = error.failed(|_| true).collect();
            assert_eq!(failed, nodes(1..=stopped), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn impossible_is_noticed_with_the_reply_that_makes_it_so() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::Refuse);
    cluster.will(2, Behaviour::Refuse);
    cluster.will(3, Behaviour::Hang);
    let start = Instant::now();
    let error = cluster.all(ASK, 7).quorum(Majority).await.unwrap_err();
    assert_eq!(start.elapsed(), 2 * HOP);
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    assert_eq!((&short.silent, short.failed.len()), (&nodes([3]), 2));
    assert_eq!(error.missing().collect::<Vec<_>>(), nodes([1, 2, 3]));
    assert!(
        error.to_string().contains("n1") && error.to_string().contains("it refuses"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_told_apart_and_names_who_was_late() {
    let cluster = Cluster::start(3).await;
    cluster.will(2, Behaviour::Hang);
    cluster.will(3, Behaviour::Hang);
    let start = Instant::now();
    let deadline = Duration::from_millis(500);
    let call = cluster.all(ASK, 7).deadline(deadline);
    let error = call.quorum(Majority).await.unwrap_err();
    assert_eq!(start.elapsed(), deadline);
    let QuorumError::Deadline(short) = &error else { panic!("{error}") };
    assert_eq!(short.replied, nodes([1]));
    let late = error.failed(|error| error.cause() == Some(Cause::Deadline));
    assert_eq!(late.collect::<Vec<_>>(), nodes([2, 3]));
    // What is asked next is asked of the others.
    let rest = cluster.members.without(error.missing());
    assert_eq!(rest.nodes().collect::<Vec<_>>(), nodes([1]));
}

#[tokio::test(start_paused = true)]
async fn members_that_end_without_a_reply_are_noticed_at_once() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::Silent);
    cluster.will(2, Behaviour::Silent);
    cluster.will(3, Behaviour::Hang);
    let start = Instant::now();
    let error = cluster.all(ASK, 7).quorum(Majority).await.unwrap_err();
    assert_eq!(start.elapsed(), 2 * HOP);
    let silent = error.failed(|error| *error == MemberError::Silent);
    assert_eq!(silent.collect::<Vec<_>>(), nodes([1, 2]));
}

#[tokio::test(start_paused = true)]
async fn rules_that_do_not_fit_are_refused_before_anything_is_sent() {
    let cluster = Cluster::start(4).await;
    let before = cluster.network.total_traffic().frames();
    let none = cluster.members.without(cluster.members.nodes());
    let unsuitable = |error: QuorumError| match error {
        QuorumError::Unsuitable(unsuitable) => unsuitable,
        error => panic!("{error}"),
    };
    let threshold = |count| cluster.all(ASK, 1).quorum(Threshold(count));
    assert_eq!(unsuitable(threshold(0).await.unwrap_err()), Unsuitable::ThresholdZero);
    let too_high = Unsuitable::ThresholdTooHigh { threshold: 5, available: 4 };
    assert_eq!(unsuitable(threshold(5).await.unwrap_err()), too_high);
    let faulty = cluster.all(ASK, 1).quorum(Byzantine { faulty: 2 }).await;
    assert!(matches!(unsuitable(faulty.unwrap_err()), Unsuitable::TooManyFaulty { .. }));
    let grid = cluster.all(ASK, 1).quorum(Grid { columns: 3 }).await;
    assert!(matches!(unsuitable(grid.unwrap_err()), Unsuitable::NoGrid { .. }));
    let newest = cluster.all(ASK, 1).quorum(newest_of(Threshold(5), |a: &Answer| a.number)).await;
    assert_eq!(unsuitable(newest.unwrap_err()), too_high);
    let same = cluster.all(ASK, 1).quorum(matching(0)).await;
    assert_eq!(unsuitable(same.unwrap_err()), Unsuitable::ThresholdZero);
    let invoke = || cluster.client.call(ASK, 1);
    let nobody = invoke().to_all(&none).quorum(First).await;
    assert_eq!(unsuitable(nobody.unwrap_err()), Unsuitable::NoMembers);
    let one = cluster.members.members()[0];
    let twice = invoke().to_all([one, one]).quorum(First).await;
    let duplicate = Unsuitable::DuplicateMember { node: node(1) };
    assert_eq!(unsuitable(twice.unwrap_err()), duplicate);
    let retried = cluster.all(ASK, 1).retry(Retry::times(1)).quorum(First).await;
    assert!(matches!(retried, Err(QuorumError::NotIdempotent { method }) if method == ASK.name()));
    let retried = cluster.all(ASK, 1).retry(Retry::times(1)).open();
    assert!(matches!(retried, Err(QuorumError::NotIdempotent { .. })));
    cluster.settle().await;
    assert_eq!(cluster.network.total_traffic().frames(), before);
}

#[tokio::test(start_paused = true)]
async fn every_system_gives_the_answer_it_should() {
    let cluster = Cluster::start(4).await;
    [5, 9, 9, 2].into_iter().zip(1..).for_each(|(n, id)| cluster.will(id, Behaviour::Say(n)));
    let ask = || cluster.all(ASK, 0);
    let newest = ask().quorum(newest_of(All, |answer: &Answer| answer.number)).await.unwrap();
    assert_eq!(newest.number, 9);
    let by_number = |a: &Answer, b: &Answer| a.number == b.number;
    let agreed = convoke_quorum::matching_by(2, by_number);
    assert_eq!(ask().quorum(agreed).await.unwrap().number, 9);
    let torn = convoke_quorum::matching_by(3, by_number);
    assert!(matches!(ask().quorum(torn).await, Err(QuorumError::Impossible(_))));
    let three = ask().quorum(Byzantine { faulty: 1 }).await.unwrap();
    assert_eq!(three.len(), 3);
    cluster.will(4, Behaviour::Hang);
    let heavy = Weighted::majority(nodes(1..=4).into_iter().zip([3, 1, 1, 1]));
    assert!(ask().quorum(heavy).await.is_ok());
    let heavy = Weighted::majority(nodes(1..=4).into_iter().zip([1, 1, 1, 4]));
    let call = ask().deadline(Duration::from_secs(1));
    assert!(matches!(call.quorum(heavy).await, Err(QuorumError::Deadline(_))));
    assert_eq!(ask().acked_by(Grid { columns: 2 }).await.unwrap().number, 5);
}

#[tokio::test(start_paused = true)]
async fn a_function_of_ones_own_sums_and_stops_at_what_it_asked_for() {
    let cluster = Cluster::start(3).await;
    [10, 20, 30].into_iter().zip(1..).for_each(|(n, id)| cluster.will(id, Behaviour::Say(n)));
    let sum = |replies: &Replies<Answer>| match replies.len() {
        3 => Verdict::Done(replies.iter().map(|(_, answer)| answer.number).sum::<u64>()),
        _ => Verdict::Continue,
    };
    assert_eq!(cluster.all(ASK, 0).quorum_by(sum).await.unwrap(), 60);
    let total = cluster.all(ASK, 0).quorum_by(|replies| match replies.reach(&Threshold(2)) {
        true => Verdict::Done(replies.len()),
        false => Verdict::Continue,
    });
    assert_eq!(total.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_gives_every_member_once_and_can_be_left_early() {
    let cluster = Cluster::start(4).await;
    cluster.will(2, Behaviour::Refuse);
    cluster.will(3, Behaviour::Twice);
    let call = cluster.all(ASK, 5).quorum_call().open().unwrap();
    let (replies, failed) = call.collect().await;
    let mut members: Vec<_> = replies.iter().map(|(member, _)| member.get()).collect();
    members.sort_unstable();
    assert_eq!(members, [1, 3, 4]);
    assert_eq!(failed.iter().map(|(member, _)| *member).collect::<Vec<_>>(), nodes([2]));
    assert_eq!(failed[0].1.failure().unwrap().executed, Executed::Yes);

    let mut call = cluster.all(ASK, 6).quorum_call().open().unwrap();
    let mut good = 0;
    while let Some((_, answer)) = call.next().await {
        good += u64::from(answer.is_ok());
        if good == 2 {
            break;
        }
    }
    assert_eq!((good, call.replied_count(), call.answered().len()), (2, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_open_call_is_decided_by_the_same_rules() {
    let cluster = Cluster::start(3).await;
    cluster.will(3, Behaviour::Refuse);
    let open = || cluster.all(ASK, 5).quorum_call().open().unwrap();
    assert_eq!(open().acked_by(First).await.unwrap().number, 5);
    assert_eq!(open().quorum(Majority).await.unwrap().len(), 2);
    assert!(matches!(open().acked_by(All).await, Err(QuorumError::Impossible(_))));
    assert!(open().quorum_by(|_| Verdict::Done(())).await.is_ok());
    let zero = open().quorum(Threshold(0)).await;
    assert!(matches!(zero, Err(QuorumError::Unsuitable(Unsuitable::ThresholdZero))));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_read_is_not_decided_on() {
    let cluster = Cluster::start(4).await;
    let open = async |read| {
        let mut call = cluster.all(ASK, 5).quorum_call().open().unwrap();
        for _ in 0..read {
            assert!(call.next().await.is_some_and(|(_, answer)| answer.is_ok()));
        }
        call
    };
    assert_eq!(open(1).await.quorum(Majority).await.unwrap().len(), 3);
    let error = open(2).await.quorum(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn late_replies_reach_the_callback_and_a_decision_cancels_nothing() {
    let cluster = Cluster::start(3).await;
    cluster.will(2, Behaviour::After(300));
    cluster.will(3, Behaviour::Refuse);
    let seen: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
    let heard = seen.clone();
    let call = cluster.all(ASK, 5).late(move |member, answer| {
        heard.lock().push((member.get(), answer.is_ok()));
    });
    call.quorum(First).await.unwrap();
    assert!(seen.lock().is_empty());
    cluster.settle().await;
    assert_eq!(*seen.lock(), [(3, false), (2, true)]);
    assert_eq!(cluster.client.load().calls, 0);
}

#[tokio::test(start_paused = true)]
async fn a_callback_for_late_replies_that_panics_cancels_nothing() {
    let cluster = Cluster::start(5).await;
    cluster.will(4, Behaviour::After(100));
    cluster.will(5, Behaviour::After(300));
    let call = |method| cluster.all(method, 5).late(|member, _| panic!("{member} is late"));
    call(ASK).quorum(Majority).await.unwrap();
    cluster.settle().await;
    assert_eq!([4, 5].map(|id| cluster.replica(id).stopped()), [0, 0]);
    assert_eq!(cluster.client.load().calls, 0);
    // Where that was asked for, it is still done.
    call(READ).cancel_late().quorum(Majority).await.unwrap();
    cluster.settle().await;
    assert_eq!([4, 5].map(|id| cluster.replica(id).stopped()), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn reads_may_be_cancelled_once_decided_writes_may_not() {
    let cluster = Cluster::start(3).await;
    cluster.will(3, Behaviour::Hang);
    let deadline = Duration::from_secs(5);
    let write = cluster.all(ASK, 1).deadline(deadline).cancel_late();
    let refused = write.quorum(Majority).await;
    assert!(matches!(refused, Err(QuorumError::NotReadOnly { method }) if method == ASK.name()));
    assert!(cluster.replica(1).asked().is_empty(), "nothing was sent");
    cluster.all(ASK, 1).deadline(deadline).quorum(Majority).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.replica(3).stopped(), 0);
    let read = cluster.all(READ, 1).deadline(deadline).cancel_late();
    read.quorum(Majority).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.replica(3).stopped(), 1);
}

#[tokio::test(start_paused = true)]
async fn exactly_those_who_answered_can_be_asked_again() {
    let cluster = Cluster::start(4).await;
    cluster.will(1, Behaviour::Hang);
    let members = cluster.members.with_epoch(3);
    let call = cluster.client.call(ASK, 1).to_all(&members);
    let decided = call.quorum(Threshold(3)).detailed().await.unwrap();
    assert_eq!(decided.answered.nodes().collect::<Vec<_>>(), nodes([2, 3, 4]));
    assert_eq!(decided.answered.epoch(), 3);
    let again = cluster.client.call(ASK, 2).to_all(&decided.answered);
    again.quorum(All).await.unwrap();
    assert_eq!(cluster.replica(1).asked(), [1]);
    assert_eq!(cluster.replica(4).asked(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn each_member_gets_its_own_argument_exactly_once() {
    for count in [1_u64, 3, 9] {
        let cluster = Cluster::start(count).await;
        for round in 0..50 {
            let request =
                |member: convoke_core::Peer| Some(NOTE.request(round + member.node().get()));
            let call = cluster.members.each(&cluster.client, request);
            if round % 2 == 0 {
                call.quorum(All).await.unwrap();
            } else {
                call.send().await.unwrap();
            }
        }
        cluster.settle().await;
        for id in 1..=count {
            let expected: Vec<u64> = (0..50).map(|round| round + id).collect();
            assert_eq!(cluster.replica(id).asked(), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn members_without_an_argument_are_not_asked_and_shrink_what_is_possible() {
    let cluster = Cluster::start(4).await;
    cluster.will(4, Behaviour::Refuse);
    let ask = || {
        let odd = |member: convoke_core::Peer| {
            (member.node().get() % 2 == 1 || member.node().get() == 4).then(|| ASK.request(1))
        };
        cluster.members.each(&cluster.client, odd)
    };
    ask().quorum(Threshold(2)).await.unwrap();
    let error = ask().quorum(Majority).await.unwrap_err();
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    assert_eq!((&short.skipped, error.missing().next()), (&nodes([2]), Some(node(4))));
    let asked = cluster.replica(1).asked().len();
    assert!(matches!(ask().quorum(All).await, Err(QuorumError::Impossible(_))));
    cluster.settle().await;
    assert_eq!(cluster.replica(1).asked().len(), asked, "it was hopeless before it was sent");
    let nobody = cluster.members.each(&cluster.client, |_| None::<convoke_core::Request<Answer>>);
    assert!(matches!(nobody.quorum(First).await, Err(QuorumError::Impossible(_))));
    assert!(cluster.replica(2).asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_member_is_asked_again_only_where_that_is_safe() {
    let mut cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::Stumble);
    cluster.crash(2);
    cluster.will(3, Behaviour::Refuse);
    tokio::time::sleep(10 * HOP).await;
    let call = cluster.all(REPEAT, 1).deadline(Duration::from_secs(2));
    let error = call.retry(Retry::times(3)).quorum(All).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
    let call = cluster.all(REPEAT, 2).deadline(Duration::from_secs(2));
    let call = call.retry(Retry::times(2).pause(Duration::from_millis(5)));
    let decided = call.quorum(First).detailed().await.unwrap();
    assert_eq!(decided.answered.nodes().collect::<Vec<_>>(), nodes([1]));
    cluster.settle().await;
    // The refusal is an answer, and is not asked for again.
    assert_eq!(cluster.replica(3).asked(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stumbles_is_asked_until_it_answers() {
    let cluster = Cluster::start(1).await;
    cluster.will(1, Behaviour::Stumble);
    let start = Instant::now();
    let call = cluster.all(REPEAT, 1).retry(Retry::times(1));
    assert_eq!(call.acked_by(First).await.unwrap().number, 1);
    assert_eq!(start.elapsed(), 4 * HOP + Duration::from_millis(20));
    assert_eq!(cluster.replica(1).asked(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_waits_to_be_asked_again_is_told_with_its_failure() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::Stumble);
    for id in 2..=3 {
        cluster.will(id, Behaviour::Refuse);
        cluster.network.latency(node(support::CLIENT), node(id), 5 * HOP);
    }
    let call = cluster.all(REPEAT, 1).retry(Retry::times(1).pause(Duration::from_secs(1)));
    let error = call.quorum(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
    let is_away = |error: &MemberError| {
        error.failure().is_some_and(|failure| failure.code == Code::Unavailable as u32)
    };
    assert_eq!(error.failed(is_away).collect::<Vec<_>>(), nodes([1]), "{error}");
    assert!(error.shortfall().unwrap().silent.is_empty(), "{error}");
    assert_eq!(cluster.replica(1).asked().len(), 1);
}

/// Its caller was busy while a pause before a retry passed, and the deadline with it.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_read_after_its_deadline_alone_has_missed_it() {
    let cluster = Cluster::start(2).await;
    (1..=2).for_each(|id| cluster.will(id, Behaviour::Stumble));
    let asked = || {
        let call = cluster.all(REPEAT, 1).deadline(Duration::from_secs(1));
        call.retry(Retry::times(1).pause(Duration::from_millis(100)))
    };
    let mut deciding = asked().quorum(All);
    assert!(tokio::time::timeout(5 * HOP, &mut deciding).await.is_err(), "it waits to ask again");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let error = deciding.await.unwrap_err();
    assert!(matches!(error, QuorumError::Deadline(_)), "{error}");
    assert_eq!(error.failed(|_| true).collect::<Vec<_>>(), nodes([1, 2]), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_hedged_call_asks_one_more_only_when_the_first_is_slow_or_fails() {
    let cluster = Cluster::start(3).await;
    let hedged = || cluster.all(READ, 1).hedge(1, Duration::from_millis(50));
    assert_eq!(hedged().acked_by(First).await.unwrap().node, 1);
    cluster.settle().await;
    assert!(cluster.replica(2).asked().is_empty());

    cluster.will(1, Behaviour::Hang);
    let start = Instant::now();
    assert_eq!(hedged().cancel_late().acked_by(First).await.unwrap().node, 2);
    assert_eq!(start.elapsed(), Duration::from_millis(50) + 2 * HOP);
    assert!(cluster.replica(3).asked().is_empty());
    tokio::time::sleep(2 * HOP).await;
    assert_eq!(cluster.replica(1).stopped(), 1, "the slow read is not wanted any more");

    cluster.will(1, Behaviour::Refuse);
    let start = Instant::now();
    assert_eq!(hedged().acked_by(First).await.unwrap().node, 2);
    assert_eq!(start.elapsed(), 4 * HOP);

    cluster.will(2, Behaviour::Refuse);
    cluster.will(3, Behaviour::Refuse);
    let error = hedged().quorum(First).await.unwrap_err();
    assert_eq!(error.failed(|_| true).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hedged_call_asks_one_more_at_once_when_an_answer_does_not_count() {
    let cluster = Cluster::start(3).await;
    let hedged = || cluster.all(READ, 1).hedge(1, Duration::from_secs(1));
    let start = Instant::now();
    let of_another = First.filter(|member, _: &Answer| member != node(1));
    assert_eq!(hedged().quorum(of_another).await.unwrap()[0].0, node(2));
    assert_eq!(start.elapsed(), 4 * HOP);
    cluster.settle().await;
    assert!(cluster.replica(3).asked().is_empty());

    cluster.will(1, Behaviour::Silent);
    cluster.will(2, Behaviour::HandOn);
    let start = Instant::now();
    assert_eq!(hedged().acked_by(First).await.unwrap().node, 3);
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hedged_call_that_is_decided_asks_nobody_else_whoever_hears_of_late_replies() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::After(60));
    let (late, mut late_replies) = tokio::sync::mpsc::unbounded_channel();
    let hedged = cluster.all(READ, 1).hedge(1, Duration::from_millis(50));
    let hedged = hedged.late(move |member, answer| {
        let _ = late.send((member, answer.is_ok()));
    });
    assert_eq!(hedged.acked_by(First).await.unwrap().node, 2);
    assert_eq!(late_replies.recv().await, Some((node(1), true)));
    assert_eq!(late_replies.recv().await, None, "all that were asked have answered");
    assert!(cluster.replica(3).asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_arrive_at_each_member_in_order_also_mixed_with_calls_to_one() {
    let cluster = Cluster::start(4).await;
    let mut open = Vec::new();
    for number in 0..100_u64 {
        if number % 2 == 0 {
            open.push(cluster.all(NOTE, number).quorum_call().open().unwrap());
        } else {
            for member in &cluster.members {
                let invocation = cluster.client.call(NOTE, number);
                open.push(invocation.to(member).quorum_call().open().unwrap());
            }
        }
    }
    for call in open {
        call.quorum(All).await.unwrap();
    }
    let expected: Vec<u64> = (0..100).collect();
    assert!((1..=4).all(|id| cluster.replica(id).asked() == expected));
}

#[tokio::test(start_paused = true)]
async fn equal_calls_of_two_clients_each_get_their_own_replies() {
    let cluster = Cluster::start(3).await;
    let other = support::endpoint(&cluster.network, 200).start().await.unwrap();
    cluster.members.introduce(&other).unwrap();
    let calls = |client: Endpoint| {
        let members = cluster.members.clone();
        (0..100_u64).map(move |number| {
            let call = client.call(ASK, number).to_all(&members);
            (number, call.acked_by(Majority))
        })
    };
    let started: Vec<_> = calls(cluster.client.clone())
        .chain(calls(other))
        .map(|(number, call)| tokio::spawn(async move { (number, call.await.unwrap().number) }))
        .collect();
    for task in started {
        let (asked, answered) = task.await.unwrap();
        assert_eq!(asked, answered);
    }
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_itself_is_a_member_under_the_same_rules() {
    let cluster = Cluster::start(3).await;
    let me = cluster.endpoint(1);
    let ask = |number| me.call(ASK, number).to_all(&cluster.members);
    let start = Instant::now();
    let all = ask(4).quorum(All).await.unwrap();
    assert_eq!((all[0].0, start.elapsed()), (node(1), 2 * HOP));
    assert_eq!(cluster.replica(1).asked(), [4]);
    cluster.will(1, Behaviour::Refuse);
    let error = ask(5).quorum(All).await.unwrap_err();
    assert_eq!(error.failed(|_| true).collect::<Vec<_>>(), nodes([1]));
}

#[tokio::test(start_paused = true)]
async fn streamed_replies_are_news_of_one_member_each() {
    let cluster = Cluster::start(3).await;
    let mut call = cluster.all(STREAM, 3).quorum_call().open().unwrap();
    let mut items = Vec::new();
    while let Some((member, answer)) = call.next().await {
        items.push((member.get(), answer.unwrap().number));
    }
    items.sort_unstable();
    let expected = (1..=3).flat_map(|id| (0..3).map(move |number| (id, number)));
    assert!(items.into_iter().eq(expected));
    // The latest of each member is what it says.
    let newest = cluster.all(STREAM, 3).quorum_by(|replies| {
        let is_there = replies.iter().filter(|(_, answer)| answer.number == 2).count() == 3;
        if is_there { Verdict::Done(replies.len()) } else { Verdict::Continue }
    });
    assert_eq!(newest.await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_handler_fails_with_what_a_quorum_call_of_its_own_failed_with() {
    let cluster = Cluster::start(3).await;
    (1..=2).for_each(|id| cluster.will(id, Behaviour::Refuse));
    cluster.will(3, Behaviour::Hang);
    let ask = || cluster.all(ASK, 1).deadline(Duration::from_millis(500));
    let status = Status::from(ask().quorum(Majority).await.unwrap_err());
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("0 of 3 members replied"), "{status}");
    (1..=2).for_each(|id| cluster.will(id, Behaviour::Hang));
    let status = Status::from(ask().quorum(Majority).await.unwrap_err());
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let status = Status::from(ask().quorum(Threshold(0)).await.unwrap_err());
    assert_eq!(status.code(), Code::Internal, "{status}");
    let status = Status::from(ask().retry(Retry::times(1)).send().await.unwrap_err());
    assert_eq!(status.code(), Code::Internal, "{status}");
}

#[tokio::test(start_paused = true)]
async fn every_way_to_decide_may_be_spawned() {
    let cluster = Cluster::start(3).await;
    let ask = || cluster.all(ASK, 5);
    let all = tokio::spawn(ask().quorum(Majority).detailed()).await.unwrap().unwrap();
    assert_eq!((all.value.len(), all.failed.len()), (2, 0));
    let number = |answer: &Answer| answer.number;
    let odd = matching(2).filter(|_, number| *number % 2 == 1).map(number);
    assert_eq!(tokio::spawn(ask().quorum(odd)).await.unwrap().unwrap(), 5);
    let acked = tokio::spawn(ask().acked_by(All).into_future());
    assert_eq!(acked.await.unwrap().unwrap().number, 5);
    let count = ask().quorum_by(|replies| match replies.remaining() {
        0 => Verdict::Done(replies.len()),
        _ => Verdict::Preliminary(replies.len()),
    });
    assert_eq!(tokio::spawn(count).await.unwrap().unwrap(), 3);
}

/// One of two members is enough.
struct Either(u64, u64);

impl QuorumSystem for Either {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        let is_there = members.iter().any(|member| [self.0, self.1].contains(&member.get()));
        if is_there { Ok(()) } else { Err(Unsuitable::NoMembers) }
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        present.iter().any(|index| [self.0, self.1].contains(&members[index].get()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_system_of_ones_own_is_a_rule_as_it_is() {
    let cluster = Cluster::start(4).await;
    cluster.will(3, Behaviour::After(100));
    cluster.will(4, Behaviour::Refuse);
    let start = Instant::now();
    let replies = cluster.all(ASK, 5).quorum(Either(3, 4)).await.unwrap();
    let members: Vec<_> = replies.into_iter().map(|(member, _)| member).collect();
    assert_eq!(members, nodes(1..=3));
    assert_eq!(start.elapsed(), 2 * HOP + Duration::from_millis(100));
    let newest = newest_of(&Either(1, 3), |answer: &Answer| answer.number);
    assert_eq!(cluster.all(ASK, 5).quorum(newest).await.unwrap().node, 1);
    let alone = cluster.all(ASK, 5).acked_by(Either(4, 9)).await.unwrap_err();
    assert!(matches!(alone, QuorumError::Impossible(_)), "{alone}");
    let nobody = cluster.all(ASK, 5).quorum(Either(8, 9)).await;
    assert!(matches!(nobody, Err(QuorumError::Unsuitable(Unsuitable::NoMembers))));
}

#[tokio::test(start_paused = true)]
async fn only_replies_that_pass_the_filter_count_and_the_others_are_named() {
    let cluster = Cluster::start(4).await;
    [7, 3, 8, 9].into_iter().zip(1..).for_each(|(n, id)| cluster.will(id, Behaviour::Say(n)));
    let at_least = |least| move |_: NodeId, answer: &Answer| answer.number >= least;
    let three = cluster.all(ASK, 0).quorum(Majority.filter(at_least(5))).detailed().await.unwrap();
    let numbers: Vec<_> = three.value.iter().map(|(_, answer)| answer.number).collect();
    assert_eq!(numbers, [7, 8, 9]);
    assert_eq!(three.answered.nodes().collect::<Vec<_>>(), nodes([1, 3, 4]));
    assert_eq!(three.failed, [(node(2), MemberError::Filtered)]);

    // The second that does not count makes it impossible, though the last may still say anything.
    cluster.will(4, Behaviour::Hang);
    let start = Instant::now();
    let error = cluster.all(ASK, 0).quorum(Majority.filter(at_least(8))).await.unwrap_err();
    assert_eq!(start.elapsed(), 2 * HOP);
    let filtered = error.failed(|error| *error == MemberError::Filtered);
    assert_eq!(filtered.collect::<Vec<_>>(), nodes([1, 2]));
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    assert_eq!((&short.replied, &short.silent), (&nodes([3]), &nodes([4])));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_filtered_out_may_be_made_up_for_by_a_later_one() {
    let cluster = Cluster::start(3).await;
    let call = cluster.all(STREAM, 4).quorum(All.filter(|_, item: &Answer| item.number == 2));
    let items = call.await.unwrap();
    assert!(items.iter().all(|(_, item)| item.number == 2) && items.len() == 3);
    let never = All.filter(|_, item: &Answer| item.number == 9);
    let error = cluster.all(STREAM, 4).quorum(never).await.unwrap_err();
    // The first stream that has ended without a good item makes it impossible.
    let filtered = error.failed(|error| *error == MemberError::Filtered).next();
    assert_eq!(filtered, Some(node(1)), "{error}");
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_decides_on_parts_of_the_replies() {
    let cluster = Cluster::start(4).await;
    [5, 9, 2, 9].into_iter().zip(1..).for_each(|(n, id)| cluster.will(id, Behaviour::Say(n)));
    let number = |answer: &Answer| answer.number;
    let ask = || cluster.all(ASK, 0);
    // No two answers are alike, for each says who gave it.
    let differing = ask().quorum(matching(2)).await.unwrap_err();
    assert!(matches!(differing, QuorumError::Impossible(_)), "{differing}");
    let said = "a quorum is not possible any more: no 2 of the replies are equal: 4 of 4 members";
    assert!(differing.to_string().starts_with(said), "{differing}");
    assert_eq!(ask().quorum(matching(2).map(number)).await.unwrap(), 9);
    let all = ask().quorum(All.map(number)).await.unwrap();
    assert_eq!(all.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [5, 9, 2, 9]);
    let twice = AckedBy(All).map(|number: &u64| number * 2).map(number);
    assert_eq!(ask().quorum(twice).await.unwrap(), 10);
    // Inside, a filter sees the part; outside, the reply.
    let large = Threshold(2).filter(|_, number| *number > 5).map(number);
    let large = large.filter(|member, _: &Answer| member != node(2));
    let error = ask().quorum(large).await.unwrap_err();
    assert_eq!(error.failed(|_| true).collect::<Vec<_>>(), nodes(1..=3));
    let [(member, answer)] = error.replies::<Answer>().unwrap() else { panic!("{error:?}") };
    assert_eq!((*member, answer.number), (node(4), 9));
}

#[tokio::test(start_paused = true)]
async fn an_error_has_the_replies_that_came() {
    let cluster = Cluster::start(4).await;
    cluster.will(2, Behaviour::After(50));
    (3..=4).for_each(|id| cluster.will(id, Behaviour::Hang));
    let call = cluster.all(ASK, 7).deadline(Duration::from_millis(500));
    let error = call.quorum(Majority).await.unwrap_err();
    let came = error.replies::<Answer>().unwrap();
    assert_eq!(came.iter().map(|(member, _)| *member).collect::<Vec<_>>(), nodes([1, 2]));
    assert!(error.replies::<u64>().is_none(), "the replies are of another type");
    let call = cluster.all(ASK, 7).deadline(Duration::from_millis(500));
    let error = call.quorum_by(|_| Verdict::<()>::Continue).await.unwrap_err();
    assert_eq!(error.replies::<Answer>().unwrap().len(), 2);
    let unsent = cluster.all(ASK, 7).quorum(Threshold(0)).await.unwrap_err();
    assert!(unsent.replies::<Answer>().is_none());
}

/// Counts how often what it holds is polled.
struct Polls<F>(std::pin::Pin<Box<F>>, u32);

impl<F: Future> Future for Polls<F> {
    type Output = (F::Output, u32);

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.1 += 1;
        let polls = self.1;
        self.0.as_mut().poll(cx).map(|output| (output, polls))
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_joined_in_one_task_do_not_wake_it_without_end() {
    let cluster = Cluster::start(3).await;
    (1..=3).for_each(|id| cluster.will(id, Behaviour::After(200)));
    let me = cluster.endpoint(1);
    let ask = |number| me.call(ASK, number).to_all(&cluster.members);
    let joined = async {
        tokio::join!(
            ask(1).quorum(Majority),
            ask(2).quorum(All),
            ask(3).deadline(HOP).quorum(Majority),
            me.call(ASK, 4).to(cluster.members.members()[1]),
        )
    };
    let ((one, two, three, four), polls) = Polls(Box::pin(joined), 0).await;
    assert!(one.is_ok() && two.is_ok() && three.is_err() && four.is_ok());
    // Eleven answers, and a few that came while one was looked at.
    assert!(polls < 40, "{polls}");
}

#[tokio::test(start_paused = true)]
async fn an_awaited_call_is_polled_as_it_is_opened_and_as_it_is_decided() {
    let cluster = Cluster::start(3).await;
    let call = async { cluster.all(ASK, 7).quorum(Majority).await };
    let (answers, polls) = Polls(Box::pin(call), 0).await;
    assert_eq!((answers.expect("all of them answer").len(), polls), (2, 2));
}

/// A rule that is put on a stream decides on what has failed by then, without further news.
#[tokio::test(start_paused = true)]
async fn a_rule_on_a_stream_that_has_failed_is_told_at_once() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::Refuse);
    cluster.will(2, Behaviour::Refuse);
    cluster.will(3, Behaviour::Hang);
    let mut call = cluster.all(ASK, 1).quorum_call().open().unwrap();
    for _ in 0..2 {
        let (who, answer) = call.next().await.expect("two fail");
        assert!(answer.is_err(), "{who}");
    }
    let begun = Instant::now();
    let error = call.quorum(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(1), "told after {:?}", begun.elapsed());
}

/// With an effect at a member that is told to be silent, the caller would be lied to.
#[tokio::test(start_paused = true)]
async fn a_hedged_call_that_has_failed_asks_nobody_more() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::Refuse);
    let call = cluster.all(ASK, 7).hedge(1, Duration::from_secs(3)).quorum(All);
    assert!(matches!(call.await, Err(QuorumError::Impossible(_))));
    cluster.settle().await;
    let asked = [1, 2, 3].map(|id| cluster.replica(id).asked().len());
    assert_eq!(asked, [1, 0, 0]);
}

/// Those whose turn would come at the deadline or later are asked where one fails before.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_slower_than_the_deadline_asks_the_next_when_one_fails() {
    let cases = [(Duration::from_secs(30), 1), (Duration::MAX, 1), (Duration::from_secs(4), 3)];
    for (every, bad) in cases {
        let cluster = Cluster::start(5).await;
        (1..=bad).for_each(|id| cluster.will(id, Behaviour::Refuse));
        let call = cluster.all(ASK, 7).deadline(Duration::from_secs(10)).hedge(1, every);
        let told = call.quorum(First).await;
        assert!(told.is_ok(), "every {every:?}: {told:?}");
    }
    // One that answers too little is no reason to wait for the turn of the next.
    let cluster = Cluster::start(3).await;
    let begun = Instant::now();
    let told = cluster.all(ASK, 7).hedge(1, Duration::MAX).quorum(Majority).await;
    assert!(told.is_ok() && begun.elapsed() < Duration::from_secs(1), "{told:?}");
}

/// Each that fails has another asked, also where the caller looks after two have.
#[tokio::test(start_paused = true)]
async fn two_that_fail_at_once_have_two_more_asked() {
    let cluster = Cluster::start(7).await;
    [1, 2].into_iter().for_each(|id| cluster.will(id, Behaviour::Refuse));
    cluster.will(5, Behaviour::Hang);
    let call = cluster.all(ASK, 7).hedge(5, Duration::MAX).open().unwrap();
    tokio::time::sleep(5 * HOP).await;
    let begun = Instant::now();
    let told = call.quorum(Majority).await;
    assert!(told.is_ok() && begun.elapsed() < Duration::from_secs(1), "{told:?}");
}

/// One has failed, what another says does not count, and the rest never answer.
#[tokio::test(start_paused = true)]
async fn a_hedged_member_that_asks_for_more_than_a_call_may_have_is_lost() {
    let mut limits = convoke_core::Limits::default();
    limits.branches_max = 1;
    let cluster = Cluster::start_with(3, limits).await;
    cluster.will(1, Behaviour::Ask(9));
    (2..=3).for_each(|id| cluster.will(id, Behaviour::Hang));
    let call = cluster.all(ASK, 1).hedge(1, HOP).deadline(Duration::from_secs(5));
    let begun = Instant::now();
    let error = call.quorum(All).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "after {:?}", begun.elapsed());
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    let failed: Vec<_> = short.failed.iter().map(|(node, error)| (*node, error.cause())).collect();
    assert_eq!(failed, [(node(1), Some(Cause::ResourceExhausted))], "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_and_a_reply_that_does_not_count_make_it_impossible_at_once() {
    let cluster = Cluster::start(4).await;
    cluster.will(1, Behaviour::Refuse);
    cluster.will(2, Behaviour::After(50));
    [3, 4].into_iter().for_each(|id| cluster.will(id, Behaviour::Hang));
    let begun = Instant::now();
    let of_others = Majority.filter(|member, _: &Answer| member != node(2));
    let told = cluster.all(ASK, 7).quorum(of_others).await;
    assert!(matches!(told, Err(QuorumError::Impossible(_))), "{told:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A member that streams may come to say what others say, until its stream has ended.
#[tokio::test(start_paused = true)]
async fn members_that_stream_may_still_agree_or_give_what_counts() {
    let cluster = Cluster::start(3).await;
    // They stream 0 and 1; each item takes the place of the one before.
    let agreed = matching(3).map(|answer: &Answer| match answer.number {
        0 => answer.node,
        number => 100 + number,
    });
    let told = cluster.all(STREAM, 2).quorum(agreed).await;
    assert_eq!(told.unwrap(), 101);
    let agreed = matching(3).map(|answer: &Answer| answer.node);
    let error = cluster.all(STREAM, 2).deadline(Duration::from_secs(8)).quorum(agreed).await;
    assert!(matches!(error, Err(QuorumError::Impossible(_))), "they have ended: {error:?}");

    cluster.will(3, Behaviour::Hang);
    let begun = Instant::now();
    let good = Majority.filter(|_, answer: &Answer| answer.number >= 100);
    let error = cluster.all(STREAM, 2).deadline(Duration::from_secs(8)).quorum(good).await;
    let error = error.expect_err("no item is good");
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(1), "told after {:?}", begun.elapsed());
    let filtered = error.failed(|error| matches!(error, MemberError::Filtered));
    assert_eq!(filtered.count(), 3);
}

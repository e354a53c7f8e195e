//! Verdicts over random histories, against what all their continuations could give.

use proptest::prelude::*;

use super::*;
use crate::error::MemberError;
use crate::replies::Heard;
use crate::roster::{Roster, Worth};
use crate::system::{All, Byzantine, Grid, Majority, Threshold, Weighted};

/// Fate of a member: it replies with a small number, or is lost.
type Fate = Option<u8>;

fn node(index: usize) -> NodeId {
    NodeId::new(index as u64 + 1)
}

fn replies(count: usize) -> Replies<u8> {
    Replies::new(Roster::new((0..count).map(node)).expect("distinct members"))
}

/// A reply of a member. Whether it counts.
fn say(replies: &mut Replies<u8>, index: usize, is_authenticated: bool, value: u8) -> bool {
    let member = replies.index_of(node(index)).filter(|_| is_authenticated);
    match replies.hear(member, false) {
        Worth::New(index) => {
            replies.store(Heard { index, is_first: true, is_item: false }, value);
            true
        }
        Worth::Again(index) => {
            replies.store(Heard { index, is_first: false, is_item: true }, value);
            true
        }
        Worth::Nothing => false,
    }
}

fn apply(replies: &mut Replies<u8>, index: usize, fate: Fate) {
    match fate {
        Some(value) => assert!(say(replies, index, true, value)),
        None => assert!(replies.lose(index, MemberError::Silent)),
    }
}

/// A rule whose answer is a small number.
type Function = Box<dyn QuorumFunction<u8, Output = u8>>;

fn functions_for(count: usize) -> Vec<fn(usize) -> Function> {
    let mut all: Vec<fn(usize) -> Function> = vec![
        |_| Box::new(AckedBy(First)),
        |_| Box::new(AckedBy(Majority)),
        |_| Box::new(AckedBy(All)),
        |n| Box::new(AckedBy(Threshold(n.div_ceil(2)))),
        |n| Box::new(AckedBy(Byzantine { faulty: (n - 1) / 3 })),
        |n| {
            let weights = (0..n).map(|i| (node(i), u32::try_from(i).unwrap() + 1));
            Box::new(AckedBy(Weighted::majority(weights)))
        },
        |n| Box::new(matching::<u8>(n / 2 + 1)),
        |_| Box::new(matching::<u8>(1)),
        |_| Box::new(newest_of(Majority, |value: &u8| *value)),
        |_| Box::new(AckedBy(Majority).filter(|_, value: &u8| *value > 0)),
        |n| Box::new(matching(n / 2 + 1).map(|value: &u8| value.min(&1) + 1)),
        |_| {
            let rule = newest_of(Majority, |value: &u8| *value).filter(|_, value| *value < 3);
            Box::new(rule.map(|value: &u8| value + 1).filter(|_, value: &u8| *value > 0))
        },
    ];
    if count.is_multiple_of(2) {
        all.push(|_| Box::new(AckedBy(Grid { columns: 2 })));
    }
    all
}

/// The verdict of a new rule at the end of a history, of which it was told as by a call, or at the
/// answer.
fn judge(make: fn(usize) -> Function, count: usize, history: &[(usize, Fate)]) -> Verdict<u8> {
    let (mut function, mut state) = (make(count), replies(count));
    let mut verdict = function.decide(&mut state);
    for (index, fate) in history {
        if matches!(verdict, Verdict::Done(_)) {
            break;
        }
        apply(&mut state, *index, *fate);
        verdict = function.decide(&mut state);
    }
    verdict
}

/// True when some completion of a history gets an answer.
fn can_be_done(make: fn(usize) -> Function, count: usize, history: &[(usize, Fate)]) -> bool {
    if matches!(judge(make, count, history), Verdict::Done(_)) {
        return true;
    }
    let next = (0..count).find(|index| history.iter().all(|(seen, _)| seen != index));
    next.is_some_and(|index| {
        // That all who are left reply alike with some value is the best that can happen to any rule
        // here.
        [Some(0), Some(1), Some(2)].into_iter().any(|fate| {
            let mut longer = history.to_vec();
            longer.push((index, fate));
            can_be_done(make, count, &longer)
        })
    })
}

fn history() -> impl Strategy<Value = (usize, Vec<(usize, Fate)>)> {
    (2_usize..6).prop_flat_map(|count| {
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        let fates = prop::collection::vec(prop::option::weighted(0.7, 0_u8..3), count);
        let events =
            (order, fates).prop_map(|(order, fates)| order.into_iter().zip(fates).collect());
        (Just(count), events)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn impossible_is_said_exactly_when_no_completion_could_be_done((count, events) in history()) {
        for make in functions_for(count) {
            for len in 0..=events.len() {
                let history = &events[..len];
                let verdict = judge(make, count, history);
                let is_hopeless = !can_be_done(make, count, history);
                prop_assert_eq!(verdict == Verdict::Impossible, is_hopeless, "{:?}", history);
            }
        }
    }

    #[test]
    fn a_verdict_never_reverts((count, events) in history()) {
        for make in functions_for(count) {
            let mut is_done = false;
            let mut is_impossible = false;
            for len in 0..=events.len() {
                match judge(make, count, &events[..len]) {
                    Verdict::Continue | Verdict::Preliminary(_) => {
                        prop_assert!(!is_done && !is_impossible);
                    }
                    Verdict::Done(_) => {
                        prop_assert!(!is_impossible);
                        is_done = true;
                    }
                    Verdict::Impossible => {
                        prop_assert!(!is_done);
                        is_impossible = true;
                    }
                }
            }
            prop_assert!(is_done || is_impossible, "everybody has been heard");
        }
    }

    #[test]
    fn whoever_says_it_as_often_as_it_likes_a_member_counts_once(
        said in prop::collection::vec((0_usize..6, any::<bool>(), any::<u8>()), 0..40),
    ) {
        // Five members; index 5 is a stranger.
        let mut state = replies(5);
        for (index, is_authenticated, value) in &said {
            let counts = say(&mut state, *index, *is_authenticated, *value);
            prop_assert_eq!(counts, *is_authenticated && *index < 5);
        }
        let mut distinct: Vec<usize> = said
            .iter()
            .filter(|(index, is_authenticated, _)| *is_authenticated && *index < 5)
            .map(|(index, ..)| *index)
            .collect();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(state.len(), distinct.len());
        prop_assert_eq!(state.iter().count(), distinct.len());
        prop_assert_eq!(state.remaining(), 5 - distinct.len());
    }
}

#[test]
fn skipped_members_are_no_success_and_shrink_what_is_possible() {
    let mut roster = Roster::new((0..4).map(node)).unwrap();
    roster.skip(0);
    roster.skip(1);
    let mut state: Replies<u8> = Replies::new(roster);
    assert_eq!((state.len(), state.remaining()), (0, 2));
    assert_eq!(Majority.decide(&mut state), Verdict::Impossible);
    assert!(!say(&mut state, 0, true, 1), "nobody asked it");
    assert!(say(&mut state, 2, true, 7));
    assert_eq!(Threshold(2).decide(&mut state), Verdict::Continue);
    assert!(state.lose(3, MemberError::Silent));
    assert_eq!(Threshold(2).decide(&mut state), Verdict::Impossible);
    let short = state.shortfall();
    assert_eq!((short.replied, short.skipped), (vec![node(2)], vec![node(0), node(1)]));
}

#[test]
fn a_member_that_failed_and_replies_after_all_counts() {
    let mut state = replies(3);
    assert!(state.lose(0, MemberError::Silent));
    assert!(say(&mut state, 0, true, 1));
    assert_eq!((state.len(), state.failed().count(), state.remaining()), (1, 0, 2));
    assert!(!state.lose(0, MemberError::Silent), "it has replied");
}

#[test]
fn answers_are_the_replies_they_should_be() {
    let mut state = replies(3);
    let said = [(2, 5), (0, 9), (1, 9)];
    said.into_iter().for_each(|(i, value)| assert!(say(&mut state, i, true, value)));
    assert_eq!(state.latest(), Some((node(1), &9)));
    let all = vec![(node(2), 5), (node(0), 9), (node(1), 9)];
    assert_eq!(matching::<u8>(2).decide(&mut state), Verdict::Done(9));
    let state = || {
        let mut state = replies(3);
        said.into_iter().for_each(|(i, value)| assert!(say(&mut state, i, true, value)));
        state
    };
    assert_eq!(newest_of(All, |value: &u8| *value).decide(&mut state()), Verdict::Done(9));
    assert_eq!(Majority.decide(&mut state()), Verdict::Done(all));
    assert_eq!(AckedBy(Majority).decide(&mut state()), Verdict::Done(5));
}

#[test]
fn an_item_that_is_filtered_out_takes_back_what_the_member_said_before() {
    let item = |state: &mut Replies<u8>, index, value| {
        let is_first = matches!(state.hear(Some(index), true), Worth::New(_));
        state.store(Heard { index, is_first, is_item: true }, value);
    };
    let even = |_: NodeId, value: &u8| value.is_multiple_of(2);
    let outside = |rule: Threshold| rule.map(|value: &u8| *value).filter(even);
    let inside = |rule: Threshold| rule.filter(even).map(|value: &u8| *value);
    type Rule = Box<dyn QuorumFunction<u8, Output = Vec<(NodeId, u8)>>>;
    let rules: [Rule; 3] = [
        Box::new(Threshold(2).filter(even)),
        Box::new(outside(Threshold(2))),
        Box::new(inside(Threshold(2))),
    ];
    for mut rule in rules {
        let mut state = replies(3);
        for value in [2, 3] {
            item(&mut state, 0, value);
            assert_eq!(rule.decide(&mut state), Verdict::Continue);
        }
        assert_eq!((state.len(), state.iter().count(), state.remaining()), (0, 0, 3));
        item(&mut state, 1, 6);
        assert_eq!(rule.decide(&mut state), Verdict::Continue);
        item(&mut state, 0, 4);
        assert_eq!(rule.decide(&mut state), Verdict::Done(vec![(node(1), 6), (node(0), 4)]));
        assert_eq!(state.failed().count(), 0);
    }
}

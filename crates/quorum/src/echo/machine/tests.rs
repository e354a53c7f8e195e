mod bracha;
mod hopeless;

use convoke_core::CastBody;
use proptest::prelude::*;

use super::super::plan::{Phase, Rule, byzantine_quorum};
use super::*;

const A: Digest = Digest([1; 32]);
const B: Digest = Digest([2; 32]);

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn members(count: u64) -> Configuration {
    Configuration::new((1..=count).map(node)).unwrap()
}

fn vote(phase: u16, digest: Digest) -> EchoVote {
    EchoVote { phase, digest }
}

/// Member 1 of so many, in majority phases.
fn majority(count: u64, phases: u16) -> EchoCore {
    let plan = EchoPlan::majority(usize::try_from(count).unwrap(), phases).unwrap();
    EchoCore::new(node(1), &members(count), plan).unwrap()
}

/// Echo by hand, ready on enough echoes or on enough that are.
fn bracha_plan(members: usize, faulty: usize) -> EchoPlan {
    let enough = byzantine_quorum(members, faulty);
    let ready = Rule::on(0, enough).or(Rule::on(1, faulty + 1));
    let phases = [Phase::new("echo", enough), Phase::new("ready", 2 * faulty + 1).cast_on(ready)];
    EchoPlan::new(members, phases).unwrap()
}

fn sent(core: &mut EchoCore) -> Vec<EchoVote> {
    std::iter::from_fn(|| core.poll_transmit()).collect()
}

#[test]
fn a_phase_ends_with_a_quorum_of_equal_votes_the_own_among_them() {
    let mut core = majority(4, 1);
    assert_eq!(core.cast(0, A), Ok(true));
    assert_eq!(sent(&mut core), [vote(0, A)]);
    assert_eq!(core.handle_vote(node(2), vote(0, A)), Ok(Heard::Counted));
    assert_eq!(core.handle_vote(node(2), vote(0, A)), Ok(Heard::Repeated));
    assert_eq!(core.handle_vote(node(3), vote(0, B)), Ok(Heard::Counted));
    assert_eq!((core.reached(0), core.needed(0, |_| false)), (None, 1));
    core.handle_vote(node(4), vote(0, A)).unwrap();
    assert_eq!(core.reached(0), Some(Reached { digest: A, count: 3 }));
    let voters: Vec<_> = core.votes(0).collect();
    assert_eq!(voters, [(node(1), A), (node(2), A), (node(3), B), (node(4), A)]);
    assert_eq!((core.outstanding(), core.silent(0).count()), (0, 0));
}

#[test]
fn nobody_votes_twice_not_even_this_node() {
    let mut core = majority(4, 1);
    assert_eq!(core.cast(0, A), Ok(true));
    assert_eq!(core.cast(0, A), Ok(false), "it is not sent again");
    let refused = CastRefused::AlreadyCast { phase: 0, digest: A };
    assert_eq!(core.cast(0, B), Err(refused));
    assert_eq!(core.cast(1, B), Err(CastRefused::UnknownPhase { phase: 1 }));
    assert_eq!(sent(&mut core).len(), 1);
    let own = core.handle_vote(node(1), vote(0, A));
    assert_eq!(
        own,
        Err(Refusal::NotMember { node: node(1) }),
        "the own vote comes from cast alone"
    );
}

#[test]
fn a_second_differing_vote_is_evidence_and_counts_for_nothing() {
    let mut core = majority(4, 1);
    let cast = |digest, payload: &'static [u8]| CastBody {
        phase: 0,
        sender: 1,
        epoch: 0,
        digest,
        payload: Bytes::from_static(payload),
    };
    assert_eq!(core.handle_cast(node(2), cast(A, b"a")), Ok(Heard::Counted));
    assert_eq!(core.handle_cast(node(2), cast(B, b"b")), Ok(Heard::Differs));
    assert_eq!(core.handle_cast(node(2), cast(Digest([3; 32]), b"c")), Ok(Heard::Differs));
    let [evidence] = core.evidence() else { panic!("{:?}", core.evidence()) };
    assert_eq!((evidence.node, evidence.phase), (node(2), 0));
    assert_eq!(evidence.first, Vote { digest: A, payload: Bytes::from_static(b"a") });
    assert_eq!(evidence.second, Vote { digest: B, payload: Bytes::from_static(b"b") });
    assert_eq!((core.tally.count(0, A), core.tally.count(0, B)), (1, 0));
    assert_eq!(core.payload(0, node(2)), Some(&Bytes::from_static(b"a")));
}

/// A liar could else make a round as large as all of its phases with the largest payload each.
#[test]
fn of_a_second_vote_no_more_is_kept_than_a_signature_takes() {
    let mut core = majority(4, 2);
    let max = Evidence::PAYLOAD_BYTES_MAX;
    for (phase, bytes) in [(0, max), (1, max + 1)] {
        for (digest, payload) in [(A, Bytes::new()), (B, vec![7; bytes].into())] {
            let cast = CastBody { phase, sender: 1, epoch: 0, digest, payload };
            core.handle_cast(node(2), cast).unwrap();
        }
    }
    let kept: Vec<usize> = core.evidence().iter().map(|of| of.second.payload.len()).collect();
    assert_eq!(kept, [max, 0]);
    assert!(core.evidence().iter().all(|of| of.second.digest == B));
}

#[test]
fn what_is_none_of_the_round_is_refused_counted_and_forgotten() {
    let members = members(4).with_epoch(7);
    let plan = EchoPlan::majority(4, 2).unwrap();
    let mut core = EchoCore::new(node(1), &members, plan).unwrap();
    let cast =
        |phase, sender, epoch| CastBody { phase, sender, epoch, digest: A, payload: Bytes::new() };
    let wrong_epoch = Refusal::WrongEpoch { node: node(2), epoch: 6 };
    assert_eq!(core.handle_cast(node(2), cast(0, 1, 6)), Err(wrong_epoch));
    let wrong_index = Refusal::WrongIndex { node: node(2), claimed: 2 };
    assert_eq!(core.handle_cast(node(2), cast(0, 2, 7)), Err(wrong_index));
    assert_eq!(core.handle_cast(node(9), cast(0, 1, 7)), Err(Refusal::NotMember { node: node(9) }));
    for phase in [2, u16::MAX] {
        let unknown = Refusal::UnknownPhase { phase };
        assert_eq!(core.handle_cast(node(2), cast(phase, 1, 7)), Err(unknown));
    }
    let refused = Refused { wrong_epoch: 1, wrong_index: 1, not_member: 1, unknown_phase: 2 };
    assert_eq!((core.refused(), core.tally.vote_count()), (refused, 0));
    assert_eq!(core.handle_cast(node(2), cast(0, 1, 7)), Ok(Heard::Counted));
}

#[test]
fn who_is_no_member_and_a_plan_for_others_make_no_round() {
    let plan = || EchoPlan::majority(4, 1).unwrap();
    let error = |me, count| EchoCore::new(node(me), &members(count), plan()).map(drop);
    assert_eq!(error(9, 4), Err(EchoError::NotMember { node: node(9) }));
    assert_eq!(error(1, 5), Err(EchoError::Members { plan: 4, members: 5 }));
}

#[test]
fn votes_for_a_later_phase_are_kept_and_run_nothing_early() {
    let mut core = majority(3, 2);
    for from in [2, 3] {
        core.handle_vote(node(from), vote(1, A)).unwrap();
    }
    assert_eq!(core.reached(1).map(|reached| reached.digest), Some(A));
    assert!(sent(&mut core).is_empty(), "this node has not begun");
    core.cast(0, A).unwrap();
    assert_eq!(sent(&mut core), [vote(0, A)], "phase 0 has no majority here");
    core.handle_vote(node(2), vote(0, A)).unwrap();
    assert_eq!(sent(&mut core), [vote(1, A)]);
}

#[test]
fn a_phase_can_be_entered_by_skipping_the_one_before() {
    let mut core = EchoCore::new(node(1), &members(4), bracha_plan(4, 1)).unwrap();
    assert_eq!(core.needed(1, |_| false), 2);
    core.handle_vote(node(2), vote(1, A)).unwrap();
    assert_eq!((sent(&mut core), core.needed(1, |_| false)), (vec![], 1));
    core.handle_vote(node(3), vote(1, A)).unwrap();
    assert_eq!(sent(&mut core), [vote(1, A)], "two are ready, of whom one is correct");
    assert_eq!(core.reached(1), Some(Reached { digest: A, count: 3 }));
    core.cast(0, B).unwrap();
    (2..5).for_each(|from| {
        core.handle_vote(node(from), vote(0, B)).ok();
    });
    assert_eq!(core.cast_in(1), Some(A), "once");
}

#[test]
fn a_member_can_be_listened_to_alone() {
    let echo = Phase::new("echo", 3).cast_on(Rule::heard(0, node(2)));
    let plan = EchoPlan::new(4, [Phase::new("send", 1), echo]).unwrap();
    let mut core = EchoCore::new(node(1), &members(4), plan).unwrap();
    core.handle_vote(node(3), vote(0, B)).unwrap();
    assert!(sent(&mut core).is_empty());
    core.handle_vote(node(2), vote(0, A)).unwrap();
    assert_eq!(sent(&mut core), [vote(1, A)]);
}

#[test]
fn a_quorum_is_impossible_when_too_many_are_down_or_the_votes_are_split() {
    let mut core = majority(4, 1);
    core.cast(0, A).unwrap();
    let down =
        |core: &EchoCore, nodes: &[u64]| !core.is_possible(0, |node| nodes.contains(&node.get()));
    assert!(!down(&core, &[2]) && down(&core, &[2, 3]));
    core.handle_vote(node(2), vote(0, A)).unwrap();
    assert!(!down(&core, &[2, 3]), "the vote of one who went down later counts");
    core.handle_vote(node(3), vote(0, B)).unwrap();
    assert!(!down(&core, &[]));
    core.handle_vote(node(4), vote(0, B)).unwrap();
    assert!(down(&core, &[]), "two and two");
    assert!(down(&core, &[]) && core.needed(0, |_| false) == 1);
}

#[test]
fn what_was_cast_in_an_earlier_life_is_cast_again_and_nothing_else() {
    let mut core = EchoCore::new(node(1), &members(4), bracha_plan(4, 1)).unwrap();
    core.restore(vote(1, A)).unwrap();
    assert_eq!(sent(&mut core), [vote(1, A)]);
    (2..4).for_each(|from| {
        core.handle_vote(node(from), vote(1, B)).ok();
    });
    assert!(sent(&mut core).is_empty());
    assert_eq!(core.tally.count(1, A), 1);
}

fn plans() -> impl Strategy<Value = EchoPlan> {
    prop_oneof![
        (3..8_usize, 1..4_u16).prop_map(|(n, p)| EchoPlan::majority(n, p).unwrap()),
        (4..8_usize).prop_map(|n| bracha_plan(n, (n - 1) / 3)),
    ]
}

/// A vote of anybody, member or not, in any phase, for one of a few digests.
fn votes(digests: u8) -> impl Strategy<Value = Vec<(u64, EchoVote)>> {
    let said = (1..10_u64, 0..4_u16, 1..=digests);
    let said = said.prop_map(|(from, phase, digest)| (from, vote(phase, Digest([digest; 32]))));
    prop::collection::vec(said, 0..60)
}

fn round(plan: &EchoPlan) -> EchoCore {
    let members = members(plan.members() as u64);
    EchoCore::new(node(1), &members, plan.clone()).unwrap()
}

/// All that can be seen of a round.
fn state(core: &mut EchoCore) -> impl PartialEq + std::fmt::Debug + use<> {
    let phases = 0..core.plan().phase_count();
    let of_phase = |phase| (core.reached(phase), core.votes(phase).collect::<Vec<_>>());
    let seen: Vec<_> = phases.map(of_phase).collect();
    let mut sent = sent(core);
    sent.sort_by_key(|vote| vote.phase);
    (seen, sent, core.outstanding())
}

proptest! {
    /// Votes are at most one a member, quorums stay, nothing is sent twice, and a quorum has its
    /// votes.
    #[test]
    fn invariants_hold_whatever_comes(
        plan in plans(),
        votes in votes(3),
        cast_at in 0..60_usize,
    ) {
        let (mut core, mut all_sent) = (round(&plan), Vec::new());
        let mut reached = vec![None; plan.phase_count().into()];
        for (at, (from, vote)) in votes.into_iter().enumerate() {
            if at == cast_at {
                core.cast(0, A).ok();
            }
            let heard = core.handle_vote(node(from), vote);
            let is_ours = (2..=plan.members() as u64).contains(&from)
                && vote.phase < plan.phase_count();
            prop_assert_eq!(heard.is_ok(), is_ours);
            all_sent.extend(sent(&mut core));
            for phase in 0..plan.phase_count() {
                prop_assert!(core.votes(phase).count() <= plan.members());
                let now = core.reached(phase);
                let before = &mut reached[usize::from(phase)];
                if let Some(before) = *before {
                    prop_assert_eq!(now.map(|now| now.digest), Some(before));
                }
                *before = now.map(|now| now.digest);
                let quorum = plan.phase(phase).unwrap().quorum();
                prop_assert!(now.is_none_or(|now| now.count >= quorum));
                prop_assert!(now.is_some() || core.count_max(phase) < quorum);
                let (needed, most) = (core.needed(phase, |_| false), core.count_max(phase));
                prop_assert!(now.is_some() || needed + most <= quorum.max(most + 1));
            }
        }
        let mut phases: Vec<u16> = all_sent.iter().map(|vote| vote.phase).collect();
        phases.sort_unstable();
        phases.dedup();
        prop_assert_eq!(phases.len(), all_sent.len(), "one vote a phase");
        for vote in all_sent {
            prop_assert_eq!(core.cast_in(vote.phase), Some(vote.digest));
        }
    }

    /// Correct members' votes give one state in whatever order and however often they come.
    #[test]
    fn order_and_copies_do_not_matter(
        plan in plans(),
        votes in votes(1),
        copies in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        seed in any::<u64>(),
    ) {
        let mut first = round(&plan);
        first.cast(0, A).unwrap();
        votes.iter().for_each(|(from, vote)| { first.handle_vote(node(*from), *vote).ok(); });

        let mut again = votes.clone();
        if !votes.is_empty() {
            again.extend(copies.iter().map(|copy| *copy.get(&votes)));
        }
        shuffle(&mut again, seed);
        let mut second = round(&plan);
        let cast_at = usize::try_from(seed % (again.len() as u64 + 1)).unwrap();
        for (at, (from, vote)) in again.into_iter().enumerate() {
            if at == cast_at {
                second.cast(0, A).unwrap();
            }
            second.handle_vote(node(from), vote).ok();
        }
        second.cast(0, A).unwrap();
        prop_assert_eq!(state(&mut first), state(&mut second));
    }

    /// Whoever has said two things in a phase is found out in any order, and nobody else.
    #[test]
    fn evidence_is_against_those_who_said_two_things(
        plan in plans(),
        votes in votes(3),
        seed in any::<u64>(),
    ) {
        let mut votes = votes;
        shuffle(&mut votes, seed);
        let mut core = round(&plan);
        votes.iter().for_each(|(from, vote)| { core.handle_vote(node(*from), *vote).ok(); });
        for member in 2..=plan.members() as u64 {
            for phase in 0..plan.phase_count() {
                let said = votes.iter().filter(|(from, vote)| (*from, vote.phase) == (member, phase));
                let said: std::collections::BTreeSet<Digest> =
                    said.map(|(_, vote)| vote.digest).collect();
                let found = core.evidence().iter().filter(|evidence| {
                    (evidence.node, evidence.phase) == (node(member), phase)
                });
                prop_assert_eq!(found.count(), usize::from(said.len() > 1));
            }
        }
    }
}

/// Fisher and Yates, by a xorshift.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut random = seed | 1;
    for at in (1..items.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        items.swap(at, usize::try_from(random % (at as u64 + 1)).unwrap());
    }
}

#[test]
fn a_split_vote_is_looked_at_as_soon_as_there_can_be_no_quorum() {
    let plan = EchoPlan::new(3, [Phase::new("all", 3)]).unwrap();
    let mut core = EchoCore::new(node(1), &members(3), plan).unwrap();
    core.cast(0, A).unwrap();
    assert_eq!(core.needed(0, |_| false), 1, "one more vote may make it impossible");
    core.handle_vote(node(2), vote(0, B)).unwrap();
    assert!(!core.is_possible(0, |_| false));
}

#[test]
fn a_plan_is_not_for_more_members_than_a_mailbox_hears() {
    let plan = |members| EchoPlan::majority(members, 1).map(drop);
    assert_eq!(plan(EchoPlan::MEMBERS_MAX), Ok(()));
    let members = EchoPlan::MEMBERS_MAX + 1;
    assert_eq!(plan(members), Err(crate::echo::PlanError::TooManyMembers { members }));
}

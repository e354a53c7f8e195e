//! A phase that is said to be hopeless never comes, whatever liars say to whom and in any order.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

use super::super::*;
use crate::echo::{Phase, Rule, byzantine_quorum};

const MEMBERS: u64 = 7;
const FAULTY: usize = 2;

fn plan() -> EchoPlan {
    let (n, f) = (7, FAULTY);
    let ready = Rule::on(0, byzantine_quorum(n, f)).or(Rule::on(1, f + 1));
    let echo = Phase::new("echo", byzantine_quorum(n, f));
    let phases = [echo, Phase::new("ready", 2 * f + 1).cast_on(ready)];
    EchoPlan::new(n, phases).expect("it is a plan").bearing(f)
}

fn value(of: u8) -> Digest {
    Digest([of; 32])
}

/// A vote of a liar: to whom, from whom, its phase and value.
type Lie = (u64, u64, u16, u8);

/// Echoes of the correct members, words of the liars, and the order in which votes arrive.
type Run = ([u8; 5], Vec<Lie>, Vec<Index>);

/// Members 6 and 7 lie: each of their votes is of any phase and value, to anybody. The others echo
/// any of three values, and what they say arrives in any order.
fn runs() -> impl Strategy<Value = Run> {
    let lie = (1..6_u64, 6..8_u64, 0..2_u16, 0..3_u8);
    let order = prop::collection::vec(any::<Index>(), 200);
    (prop::array::uniform5(0..3_u8), prop::collection::vec(lie, 0..30), order)
}

/// Runs it to its end. Fails if a phase comes to a member that has said that it cannot.
fn check((echoed, lies, order): &Run) -> Result<(), TestCaseError> {
    let nodes = (1..=MEMBERS).map(NodeId::new);
    let members = Configuration::new(nodes.clone()).expect("they differ");
    let correct: Vec<NodeId> = nodes.take(5).collect();
    let core = |node: &NodeId| EchoCore::new(*node, &members, plan()).expect("a member");
    let mut cores: Vec<EchoCore> = correct.iter().map(core).collect();
    let vote = |phase, of| EchoVote { phase, digest: value(of) };
    let lie = |(to, from, phase, of): (u64, u64, u16, u8)| {
        (NodeId::new(from), NodeId::new(to), vote(phase, of))
    };
    let mut wire: Vec<_> = lies.iter().copied().map(lie).collect();
    for (core, of) in cores.iter_mut().zip(*echoed) {
        core.cast(0, value(of)).expect("it is the first");
    }
    let (mut hopeless, mut order) = (vec![[false; 2]; 5], order.iter());
    loop {
        for (core, from) in cores.iter_mut().zip(&correct) {
            while let Some(vote) = core.poll_transmit() {
                let others = correct.iter().filter(|to| *to != from);
                wire.extend(others.map(|to| (*from, *to, vote)));
            }
        }
        for (core, hopeless) in cores.iter().zip(&mut hopeless) {
            for phase in [0, 1] {
                hopeless[usize::from(phase)] |= !core.is_possible(phase, |_| false);
            }
        }
        if wire.is_empty() {
            break;
        }
        let at = order.next().map_or(0, |index| index.index(wire.len()));
        let (from, to, vote) = wire.swap_remove(at);
        let core = correct.iter().position(|node| *node == to).expect("a correct one");
        cores[core].handle_vote(from, vote).expect("a member's");
    }
    for (core, hopeless) in cores.iter().zip(&hopeless) {
        for phase in [0, 1] {
            let has_come = core.reached(phase).is_some();
            prop_assert!(!(has_come && hopeless[usize::from(phase)]), "{}", phase);
        }
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn what_is_hopeless_never_comes(run in runs()) {
        check(&run)?;
    }
}

/// The same runs each time, so many that some show it.
#[test]
fn hope_that_forgets_what_liars_tell_others_is_found() {
    let config = ProptestConfig { max_shrink_iters: 0, ..config(20_000) };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    mutant::set(Some(Mutant::HopeWithoutLiars));
    let found = TestRunner::new_with_rng(config, rng).run(&runs(), |run| check(&run));
    mutant::set(None);
    assert!(matches!(found, Err(TestError::Fail(..))), "{found:?}");
}

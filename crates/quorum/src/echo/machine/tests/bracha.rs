//! Bracha's broadcast by the rules alone: what members of whom one lies can and cannot be made to
//! deliver.

use super::*;

const SEND: u16 = 0;
const ECHO: u16 = 1;
const READY: u16 = 2;

/// The faulty member.
const LIAR: u64 = 4;

fn plan(source: u64) -> EchoPlan {
    let (members, faulty) = (4, 1);
    let enough = byzantine_quorum(members, faulty);
    let phases = [
        Phase::new("send", 1),
        Phase::new("echo", enough).cast_on(Rule::heard(SEND, node(source))),
        Phase::new("ready", 2 * faulty + 1)
            .cast_on(Rule::on(ECHO, enough).or(Rule::on(READY, faulty + 1))),
    ];
    EchoPlan::new(members, phases).unwrap().bearing(faulty)
}

/// Three correct members, and what is on its way to them.
struct Run {
    correct: Vec<EchoCore>,
    /// Receiver, sender, vote.
    wire: Vec<(usize, u64, EchoVote)>,
}

impl Run {
    fn new(source: u64) -> Self {
        let members = members(4);
        let core = |me| EchoCore::new(node(me), &members, plan(source)).unwrap();
        Self { correct: (1..LIAR).map(core).collect(), wire: Vec::new() }
    }

    /// Puts what the correct have cast on the wire.
    fn collect(&mut self) {
        for at in 0..self.correct.len() {
            for vote in sent(&mut self.correct[at]) {
                let others = (0..self.correct.len()).filter(|to| *to != at);
                self.wire.extend(others.map(|to| (to, at as u64 + 1, vote)));
            }
        }
    }

    /// Delivers all, each time the one that `pick` names of so many.
    fn deliver(&mut self, mut pick: impl FnMut(usize) -> usize) {
        self.collect();
        while !self.wire.is_empty() {
            let at = pick(self.wire.len());
            let (to, from, vote) = self.wire.remove(at);
            self.correct[to].handle_vote(node(from), vote).ok();
            self.collect();
        }
    }

    fn delivered(&self) -> Vec<Option<Digest>> {
        let of = |core: &EchoCore| core.reached(READY).map(|reached| reached.digest);
        self.correct.iter().map(of).collect()
    }

    fn check(&self, what: &str) {
        let delivered = self.delivered();
        assert!(delivered.windows(2).all(|two| two[0] == two[1]), "{what}: {delivered:?}");
    }
}

/// The nth of all ways in which the liar can tell each of three members one of two things, or
/// nothing.
fn lies(mut number: usize) -> [Option<Digest>; 3] {
    [(); 3].map(|()| {
        let lie = [None, Some(A), Some(B)][number % 3];
        number /= 3;
        lie
    })
}

/// All 3^9 ways in which a lying source can treat three correct members, in three orders: nobody
/// delivers what another does not.
#[test]
fn no_lie_of_the_source_makes_correct_members_differ() {
    let mut delivered_any = 0;
    for number in 0..27 * 27 * 27 {
        let told = [(SEND, number), (ECHO, number / 27), (READY, number / 729)];
        for order in 0..3 {
            let mut run = Run::new(LIAR);
            for (phase, number) in told {
                for (to, digest) in lies(number % 27).into_iter().enumerate() {
                    let lie = digest.map(|digest| (to, LIAR, vote(phase, digest)));
                    run.wire.extend(lie);
                }
            }
            let mut random = number as u64 | 1;
            run.deliver(|len| match order {
                0 => 0,
                1 => len - 1,
                _ => {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    usize::try_from(random % len as u64).unwrap()
                }
            });
            run.check(&format!("lie {number} in order {order}"));
            delivered_any += usize::from(run.delivered()[0].is_some());
        }
    }
    assert!(delivered_any > 1_000, "the liar may also behave");
}

/// A lying source may have told others what it has not told a member that it is gone for.
#[test]
fn a_member_that_has_lost_the_source_may_deliver_what_others_have_heard() {
    let mut run = Run::new(LIAR);
    assert!(run.correct[0].is_possible(READY, |of| of == node(LIAR)));
    let told = [SEND, ECHO].into_iter().flat_map(|phase| [(1, phase), (2, phase)]);
    run.wire.extend(told.map(|(to, phase)| (to, LIAR, vote(phase, A))));
    run.deliver(|_| 0);
    assert_eq!(run.delivered(), [Some(A); 3]);
}

/// The last vote of a phase went to all but this member before its sender was gone.
#[test]
fn a_member_that_is_gone_may_have_been_heard_by_all_others() {
    let phases = [Phase::new("all", 4), Phase::new("next", 3).cast_on(Rule::on(0, 4))];
    let plan = |faulty| EchoPlan::new(4, phases.clone()).unwrap().bearing(faulty);
    let is_possible = |faulty, gone: &[u64]| {
        let mut core = EchoCore::new(node(1), &members(4), plan(faulty)).unwrap();
        core.cast(0, A).unwrap();
        for from in 2..4 {
            core.handle_vote(node(from), vote(0, A)).unwrap();
        }
        core.is_possible(1, |of| gone.contains(&of.get()))
    };
    assert!(is_possible(1, &[4]) && is_possible(0, &[]));
    assert!(!is_possible(0, &[4]), "who casts is heard by all or by none");
    assert!(!is_possible(1, &[2, 3, 4]), "they cast no more");
}

/// Where nobody lies, others have heard what this member has heard.
#[test]
fn a_source_that_is_gone_may_have_been_heard_if_it_has_sent() {
    let mut core = EchoCore::new(node(1), &members(4), plan(2).bearing(0)).unwrap();
    let is_possible = |core: &EchoCore| core.is_possible(ECHO, |of| of == node(2));
    assert!(!is_possible(&core));
    core.handle_vote(node(2), vote(SEND, A)).unwrap();
    assert!(is_possible(&core));
}

proptest! {
    /// Whatever another member says twice or out of order, what a correct source sends is delivered
    /// by all, and nothing else.
    #[test]
    fn what_a_correct_source_sends_is_delivered(
        lies in prop::collection::vec((0..3_usize, 0..4_u16, any::<bool>()), 0..40),
        seed in any::<u64>(),
    ) {
        let mut run = Run::new(1);
        run.correct[0].cast(SEND, A).unwrap();
        let lies = lies.into_iter().map(|(to, phase, is_a)| {
            (to, LIAR, vote(phase, if is_a { A } else { B }))
        });
        run.wire.extend(lies);
        let mut random = seed | 1;
        run.deliver(|len| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % len as u64).unwrap()
        });
        prop_assert_eq!(run.delivered(), [Some(A); 3]);
    }

    /// The same with orders that are drawn freely.
    #[test]
    fn no_order_makes_correct_members_differ(
        lies in prop::collection::vec((0..3_usize, 0..3_u16, any::<bool>()), 0..40),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 120),
    ) {
        let mut run = Run::new(LIAR);
        let lies = lies.into_iter().map(|(to, phase, is_a)| {
            (to, LIAR, vote(phase, if is_a { A } else { B }))
        });
        run.wire.extend(lies);
        let mut picks = picks.into_iter().cycle();
        run.deliver(|len| picks.next().map_or(0, |pick| pick.index(len)));
        run.check("a drawn order");
    }
}

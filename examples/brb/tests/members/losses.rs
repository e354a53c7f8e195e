//! Members that lose votes: links that break in the middle of decisions, a source that is not
//! heard, one that is away for long, an application that takes nothing. What was lost is said
//! again, and all deliver all.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use brb::broadcasts::{
    Broadcasts, Delivery, OWN_MAX, Output, REMEMBERED_MAX, Refused, UNTAKEN_MAX, WINDOW,
    votes_below,
};
use brb::mutant::{self, Mutant};
use brb::node::Member;
use brb::protocol::{ASK, ECHO, READY, SEND};
use bytes::Bytes;
use convoke::cast::{CastBody, Digest};
use convoke::quorum::Configuration;
use convoke::quorum::echo::digest_of;
use convoke::sim::random::Random;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use tokio::time::{Instant, sleep, timeout};

use crate::liar::start;

fn node(at: usize) -> NodeId {
    NodeId::new(at as u64 + 1)
}

fn place(node: NodeId) -> usize {
    usize::try_from(node.get() - 1).expect("small")
}

fn value(source: usize, sequence: u64) -> Bytes {
    format!("{sequence} of {source}").into()
}

/// Four members without a network: votes are lost as it is said.
struct World {
    random: Random,
    cores: Vec<Broadcasts>,
    wire: VecDeque<(usize, usize, (NodeId, u64), CastBody)>,
    /// Of a hundred votes so many are lost on their way.
    loss: u32,
    /// Reaches nobody, and nobody reaches it.
    away: Option<usize>,
    delivered: Vec<BTreeMap<(NodeId, u64), Bytes>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let members = Configuration::new((0..4).map(node)).expect("they differ");
        let core = |at| Broadcasts::new(node(at), &members, 1).expect("four bear one");
        Self {
            random: Random::new(seed),
            cores: (0..4).map(core).collect(),
            wire: VecDeque::new(),
            loss: 0,
            away: None,
            delivered: vec![BTreeMap::new(); 4],
        }
    }

    fn act(&mut self, at: usize) {
        while let Some(output) = self.cores[at].poll_output() {
            match output {
                Output::Cast(key, vote, payload) => {
                    let others = (0..4).filter(|to| *to != at).map(node).collect();
                    self.send(at, others, key, (vote.phase, vote.digest, payload));
                }
                Output::Again(to, key, vote, payload) => {
                    assert_eq!(payload.is_empty(), vote.phase != SEND);
                    self.send(at, to, key, (vote.phase, vote.digest, payload));
                }
                Output::Deliver(delivery) => {
                    let key = (delivery.source, delivery.sequence);
                    assert_eq!(delivery.value, value(place(key.0), key.1));
                    self.cores[at].handle_taken(&delivery);
                    let before = self.delivered[at].insert(key, delivery.value);
                    assert_eq!(before, None, "{key:?} is delivered twice at {at}");
                }
                Output::Pull(key, ..) => {
                    self.cores[at].handle_value(key, Some(value(place(key.0), key.1)));
                }
                Output::Keep(..) => {}
            }
        }
    }

    fn send(
        &mut self,
        from: usize,
        to: Vec<NodeId>,
        key: (NodeId, u64),
        (phase, digest, payload): (u16, Digest, Bytes),
    ) {
        let sender = u16::try_from(from).expect("small");
        for to in to.into_iter().map(place) {
            let is_cut = self.away.is_some_and(|away| away == from || away == to);
            if is_cut || self.random.chance(self.loss) {
                continue;
            }
            let body = CastBody { phase, sender, epoch: 0, digest, payload: payload.clone() };
            self.wire.push_back((from, to, key, body));
        }
    }

    fn broadcast(&mut self, source: usize, sequence: u64) -> Result<(), Refused> {
        self.cores[source].broadcast(sequence, value(source, sequence))?;
        self.act(source);
        Ok(())
    }

    /// Delivers all that is on its way, in any order.
    fn settle(&mut self) {
        while !self.wire.is_empty() {
            let at = self.random.draw() % self.wire.len() as u64;
            let mail = self.wire.swap_remove_back(usize::try_from(at).expect("small"));
            let (from, to, key, body) = mail.expect("it is not empty");
            self.cores[to].handle_cast(key, node(from), body);
            self.act(to);
        }
    }

    fn tick(&mut self) {
        for at in 0..4 {
            self.cores[at].handle_tick();
            self.act(at);
        }
        self.settle();
    }

    /// As when a connection is back at both ends.
    fn come_back(&mut self) {
        let away = self.away.take().expect("it was away");
        for at in (0..4).filter(|at| *at != away) {
            self.cores[at].repeat_to(node(away));
            self.act(at);
            self.cores[away].repeat_to(node(at));
            self.act(away);
        }
        self.settle();
    }
}

/// Votes are lost while all broadcast, without that anybody is told of it.
fn lose_some(seed: u64) {
    let mut world = World::new(seed);
    world.loss = 30;
    let mut next = [0; 4];
    for _ in 0..200 {
        for (source, next) in next.iter_mut().enumerate() {
            while *next < 40 && world.broadcast(source, *next).is_ok() {
                *next += 1;
            }
        }
        world.settle();
        world.tick();
    }
    world.loss = 0;
    (0..150).for_each(|_| world.tick());
    for (source, next) in next.into_iter().enumerate() {
        let broadcast: Vec<(NodeId, u64)> = (0..next).map(|at| (node(source), at)).collect();
        let is_delivered = |at: usize, key| world.delivered[at].contains_key(key);
        for at in 0..4 {
            assert!(broadcast.iter().all(|key| is_delivered(at, key)), "of {source} at {at}");
        }
        assert!(next > 10, "{next} of {source}");
    }
    assert!(world.cores.iter().all(|core| core.held() == (0, 0)));
}

/// One member is away while so many are broadcast, of which the last are the last of all.
fn be_away(count: u64) -> World {
    let mut world = World::new(count);
    world.away = Some(3);
    for sequence in 0..count {
        world.broadcast(0, sequence).expect("those before are delivered");
        world.settle();
    }
    assert_eq!(world.delivered[1].len() as u64, count);
    world.come_back();
    // It is told of the last window; what was before it asks for.
    (0..count / WINDOW * 3 + 3).for_each(|_| world.tick());
    world
}

fn catch_up() {
    for count in [1, WINDOW, WINDOW + 1, WINDOW * 5, REMEMBERED_MAX as u64] {
        let world = be_away(count);
        assert_eq!(world.delivered[3].len() as u64, count);
    }
}

fn found(run: impl FnOnce(), mutant: Mutant) -> bool {
    mutant::set(Some(mutant));
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    mutant::set(None);
    found.is_err()
}

#[test]
fn votes_that_are_lost_without_a_word_are_asked_for() {
    (0..20).for_each(lose_some);
}

#[test]
fn a_member_that_was_away_catches_up_with_all_that_others_remember() {
    catch_up();
}

#[test]
fn every_broken_rule_is_found() {
    assert!(found(|| (0..5).for_each(lose_some), Mutant::AsksNobody));
    for mutant in Mutant::OF_LOSSES {
        assert!(found(catch_up, mutant), "{mutant:?}");
    }
}

#[test]
fn a_member_that_was_away_for_longer_goes_on_where_it_is_told_to() {
    let count = REMEMBERED_MAX as u64 * 2;
    let mut world = be_away(count);
    assert!(world.delivered[3].is_empty());
    world.cores[3].skip_to(node(0), count - 5);
    world.broadcast(0, count).expect("those before are delivered");
    world.settle();
    (0..200).for_each(|_| world.tick());
    let delivered: Vec<u64> = world.delivered[3].keys().map(|key| key.1).collect();
    assert_eq!(delivered, [5, 4, 3, 2, 1, 0].map(|before| count - before));
}

/// A liar that broadcasts to three correct members, which say their votes to some of each other.
struct Lying {
    cores: Vec<Broadcasts>,
    delivered: Vec<BTreeMap<u64, Bytes>>,
}

const LIAR: usize = 3;

impl Lying {
    fn new() -> Self {
        let cores = (0..LIAR).map(Self::core).collect();
        Self { cores, delivered: vec![BTreeMap::new(); LIAR] }
    }

    fn core(at: usize) -> Broadcasts {
        let members = Configuration::new((0..4).map(node)).expect("they differ");
        Broadcasts::new(node(at), &members, 1).expect("four bear one")
    }

    fn hear(&mut self, at: usize, from: usize, sequence: u64, phase: u16, value: &Bytes) {
        let sender = u16::try_from(from).expect("small");
        let payload = if phase == SEND { value.clone() } else { Bytes::new() };
        let body = CastBody { phase, sender, epoch: 0, digest: digest_of(value), payload };
        self.cores[at].handle_cast((node(LIAR), sequence), node(from), body);
    }

    /// The liar broadcasts a value to these alone, and votes for it.
    fn broadcast(&mut self, among: &[usize], sequence: u64, value: &Bytes) {
        for at in among {
            for phase in [SEND, ECHO, READY] {
                self.hear(*at, LIAR, sequence, phase, value);
            }
        }
        self.settle(among, value);
    }

    /// Delivers to each of these what they say.
    fn settle(&mut self, among: &[usize], value: &Bytes) {
        let mut said = true;
        while std::mem::take(&mut said) {
            for at in among {
                while let Some(output) = self.cores[*at].poll_output() {
                    said = true;
                    match output {
                        Output::Cast((_, sequence), vote, _) => {
                            let others = among.iter().filter(|to| *to != at);
                            others.for_each(|to| self.hear(*to, *at, sequence, vote.phase, value));
                        }
                        Output::Deliver(delivery) => {
                            self.cores[*at].handle_taken(&delivery);
                            self.delivered[*at].insert(delivery.sequence, delivery.value);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// The second member loses its memory, having voted like the first one, of whose votes the
    /// third has heard little; and goes on from here. Then the liar sends another value. What the
    /// first and the third have delivered as that broadcast.
    fn forget(skip_to: u64) -> [Option<Bytes>; 2] {
        let (mut world, [one, other]) = (Self::new(), ["one", "other"].map(Bytes::from));
        for sequence in 0..VOTED {
            let among = if sequence <= HEARD { &[0, 1, 2][..] } else { &[0, 1] };
            world.broadcast(among, sequence, &one);
        }
        world.cores[1] = Self::core(1);
        world.cores[1].skip_to(node(LIAR), skip_to);
        for sequence in HEARD + 1..VOTED_AGAIN {
            world.hear(2, 0, sequence, READY, &one); // The first has said so.
            world.broadcast(&[2], sequence, &one);
        }
        world.broadcast(&[1, 2], VOTED_AGAIN, &other);
        [0, 2].map(|at| world.delivered[at].get(&VOTED_AGAIN).cloned())
    }
}

/// Broadcasts that two members have delivered, the last that the third has, and one between.
const VOTED: u64 = 130;
const HEARD: u64 = 10;
const VOTED_AGAIN: u64 = 100;

/// Of those who say how far they are, `f + 1` may be the one that is behind and the liar.
#[test]
fn a_member_that_has_forgotten_its_votes_learns_from_nobody_but_its_disk_where_to_go_on() {
    let one = Some(Bytes::from("one"));
    assert_eq!(Lying::forget(HEARD + 1 + WINDOW), [one.clone(), Some(Bytes::from("other"))]);
    assert_eq!(Lying::forget(votes_below(0, VOTED)), [one, None]);
}

/// However little the application takes.
#[test]
fn a_member_votes_on_nothing_above_what_its_application_has_kept() {
    for taken in [0, 1, 500] {
        let (mut world, value, mut highest) = (Lying::new(), Bytes::from("one"), 0);
        let mut left = taken;
        for sequence in 0..votes_below(0, taken) + 10 {
            for from in [3, 2, 0] {
                world.hear(1, from, sequence, SEND, &value);
                world.hear(1, from, sequence, READY, &value);
            }
            while let Some(output) = world.cores[1].poll_output() {
                match output {
                    Output::Cast((_, sequence), ..) => highest = highest.max(sequence),
                    Output::Deliver(delivery) if left > 0 => {
                        left -= 1;
                        world.cores[1].handle_taken(&delivery);
                    }
                    _ => {}
                }
            }
        }
        assert_eq!((left, highest), (0, votes_below(0, taken) - 1));
    }
}

#[test]
fn who_asks_is_answered_once_a_tick_and_without_values() {
    let mut world = World::new(1);
    world.away = Some(3);
    for sequence in 0..200 {
        world.broadcast(0, sequence).expect("those before are delivered");
        world.settle();
    }
    let ask = |key: (NodeId, u64), from: usize, core: &mut Broadcasts| {
        let sender = u16::try_from(from).expect("small");
        let (digest, payload) = (Digest::ZERO, Bytes::new());
        let body = CastBody { phase: ASK, sender, epoch: 0, digest, payload };
        core.handle_cast(key, node(from), body);
        std::iter::from_fn(|| core.poll_output()).count() as u64
    };
    let core = &mut world.cores[0];
    assert_eq!(ask((node(0), 7), 3, core), WINDOW);
    assert_eq!(ask((node(0), 7), 3, core), 0);
    assert_eq!(ask((node(1), u64::MAX), 3, core), 0);
    assert_eq!(ask((node(8), 0), 3, core), 0);
    assert_eq!(ask((node(0), 7), 8, core), 0);
    core.handle_tick();
    assert_eq!(ask((node(0), 190), 3, core), 10);
    assert_eq!(core.held(), (0, 0));
}

/// All four broadcast, and the links of one to two others break at some time in the middle of it.
async fn break_links(seed: u64, lonely: usize) {
    const COUNT: u64 = 40;
    let (mut random, network) = (Random::new(seed), SimNetwork::new(seed));
    let members = Configuration::new((0..4).map(node)).expect("they differ");
    let (endpoints, stores) = start(&network, &members).await;
    let mut correct = take_part(&endpoints, &members, &stores);
    let break_at = Instant::now() + Duration::from_micros(50_000 + random.draw() % 100_000);
    let others = (0..4).filter(|at| *at != lonely).skip(usize::from(random.chance(50))).take(2);
    let others: Vec<usize> = others.collect();
    let breaking = tokio::spawn({
        let network = network.clone();
        async move {
            tokio::time::sleep_until(break_at).await;
            for other in others.clone() {
                network.partition(node(lonely), node(other));
                network.partition(node(other), node(lonely));
                network.cut(node(lonely), node(other));
            }
            sleep(Duration::from_secs(1)).await;
            network.heal_all();
        }
    });
    let (mut next, mut delivered) = ([0; 4], vec![BTreeMap::new(); 4]);
    let end = Instant::now() + Duration::from_secs(60);
    while delivered.iter().any(|all| all.len() as u64 != 4 * COUNT) {
        let counts: Vec<usize> = delivered.iter().map(BTreeMap::len).collect();
        assert!(Instant::now() < end, "seed {seed}, without {lonely}: {counts:?}");
        for (source, member) in correct.iter_mut().enumerate() {
            if next[source] < COUNT
                && member.broadcast(next[source], value(source, next[source])).is_ok()
            {
                next[source] += 1;
            }
        }
        sleep(Duration::from_millis(5)).await;
        for (member, delivered) in correct.iter_mut().zip(&mut delivered) {
            while let Ok(delivery) = timeout(Duration::ZERO, member.next()).await {
                let Delivery { source, sequence, value: got, .. } = delivery.expect("it runs");
                assert_eq!(got, value(place(source), sequence));
                assert_eq!(delivered.insert((source, sequence), got), None);
            }
        }
    }
    breaking.await.expect("it breaks links");
}

fn take_part(
    endpoints: &[Endpoint],
    members: &Configuration,
    stores: &[convoke::quorum::echo::Payloads],
) -> Vec<Member> {
    let all = endpoints.iter().zip(stores);
    let member = |(endpoint, payloads)| Member::start(endpoint, members, 1, payloads);
    all.map(member).map(|member| member.expect("four bear one")).collect()
}

#[tokio::test(start_paused = true)]
async fn links_that_break_in_the_middle_of_a_decision_silence_nobody() {
    for seed in 0..8 {
        println!("seed {seed}");
        break_links(seed, usize::try_from(seed % 4).expect("small")).await;
    }
}

/// The application of the second member takes nothing, and its votes are needed: one is down.
async fn take_nothing() {
    let network = SimNetwork::new(3);
    let members = Configuration::new((0..4).map(node)).expect("they differ");
    let (mut endpoints, stores) = start(&network, &members).await;
    let mut correct = take_part(&endpoints[..3], &members, &stores);
    endpoints.pop().expect("there are four").shutdown(Duration::ZERO).await;
    // As many as it takes until deliveries wait for the application.
    let most = UNTAKEN_MAX as u64 + WINDOW;
    let broadcasts = (0..most).map(|at| (0, at)).chain((0..OWN_MAX * 2).map(|at| (2, at)));
    for (source, sequence) in broadcasts {
        let broadcast = correct[source].broadcast(sequence, value(source, sequence));
        broadcast.expect("those before are delivered");
        for at in [0, 2] {
            let next = timeout(Duration::from_secs(5), correct[at].next()).await;
            let next = next.expect("it is not held up").expect("the member runs");
            assert_eq!((place(next.source), next.sequence), (source, sequence));
        }
    }
    let mut taken = [0, 0, 0];
    for _ in 0..most + OWN_MAX * 2 {
        let next = timeout(Duration::from_secs(5), correct[1].next()).await;
        let next = next.expect("it waits for nobody").expect("the member runs");
        let source = place(next.source);
        assert_eq!((next.sequence, next.value), (taken[source], value(source, taken[source])));
        taken[source] += 1;
    }
    assert_eq!(taken, [most, 0, OWN_MAX * 2]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_waits_for_its_application_is_found() {
    mutant::set(Some(Mutant::WaitsForTaker));
    let ended = tokio::spawn(take_nothing()).await;
    mutant::set(None);
    assert!(ended.expect_err("nobody delivers").is_panic());
}

#[tokio::test(start_paused = true)]
async fn an_application_that_takes_nothing_keeps_nobody_from_voting() {
    take_nothing().await;
}

//! A hundred thousand broadcasts of three sources, beside a fourth member that does what it likes:
//! all are delivered everywhere, and what is held stays within bounds. A million of them:
//! `BROADCASTS=1000000 cargo test --release -p brb --test members forever -- --nocapture`.

use std::collections::VecDeque;

use brb::broadcasts::{Broadcasts, OWN_MAX, Output, WINDOW};
use brb::mutant::{self, Mutant};
use brb::protocol::{READY, SEND};
use bytes::Bytes;
use convoke::NodeId;
use convoke::cast::{CastBody, Digest};
use convoke::quorum::Configuration;
use convoke::quorum::echo::digest_of;

const LIAR: u64 = 4;

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("it is below a usize")
    }
}

type Mail = ((NodeId, u64), CastBody);

struct World {
    random: Random,
    /// Broadcasts of all sources together.
    broadcasts: u64,
    correct: Vec<Broadcasts>,
    /// From and to each member, in order.
    wire: Vec<VecDeque<Mail>>,
    on_the_way: usize,
    /// Next of each source, and those delivered of each at each.
    next: [u64; 3],
    delivered: [[u64; 3]; 3],
    of_liar: usize,
}

fn node(at: usize) -> NodeId {
    NodeId::new(at as u64 + 1)
}

fn value(source: usize, sequence: u64) -> Bytes {
    format!("{sequence} of {source}").into()
}

impl World {
    fn new(seed: u64, broadcasts: u64) -> Self {
        let members = Configuration::new((0..4).map(node)).expect("they differ");
        let core = |at| Broadcasts::new(node(at), &members, 1).expect("four bear one");
        Self {
            random: Random(seed),
            broadcasts,
            correct: (0..3).map(core).collect(),
            wire: vec![VecDeque::new(); 16],
            on_the_way: 0,
            next: [0; 3],
            delivered: [[0; 3]; 3],
            of_liar: 0,
        }
    }

    fn send(&mut self, from: usize, to: usize, key: (NodeId, u64), body: CastBody) {
        self.wire[from * 4 + to].push_back((key, body));
        self.on_the_way += 1;
    }

    /// Begins what a source may begin.
    fn begin(&mut self, source: usize) {
        while self.next.iter().sum::<u64>() < self.broadcasts {
            let (core, sequence) = (&mut self.correct[source], self.next[source]);
            if core.broadcast(sequence, value(source, sequence)).is_err() {
                break;
            }
            self.next[source] += 1;
        }
        self.act(source);
    }

    fn act(&mut self, at: usize) {
        while let Some(output) = self.correct[at].poll_output() {
            match output {
                Output::Cast(key, vote, payload) => {
                    let (sender, digest) = (u16::try_from(at).expect("small"), vote.digest);
                    let body = CastBody { phase: vote.phase, sender, epoch: 0, digest, payload };
                    for to in (0..4).filter(|to| *to != at) {
                        self.send(at, to, key, body.clone());
                    }
                }
                Output::Deliver(delivery) if delivery.source.get() == LIAR => {
                    self.of_liar += 1;
                    self.correct[at].handle_taken(&delivery);
                }
                Output::Deliver(delivery) => {
                    let source = usize::try_from(delivery.source.get() - 1).expect("small");
                    assert_eq!(delivery.value, value(source, delivery.sequence));
                    self.delivered[at][source] += 1;
                    self.correct[at].handle_taken(&delivery);
                    // Once more, lest one that comes late be enough for it to begin again.
                    let (digest, payload) = (digest_of(&delivery.value), Bytes::new());
                    let body = CastBody { phase: READY, sender: 3, epoch: 0, digest, payload };
                    self.send(3, at, (delivery.source, delivery.sequence), body);
                }
                // Correct sources are asked and give it; the liar never does.
                Output::Pull(key, ..) => {
                    let known = (key.0.get() != LIAR)
                        .then(|| value(usize::try_from(key.0.get() - 1).expect("small"), key.1));
                    if known.is_some() {
                        self.correct[at].handle_value(key, known);
                    }
                }
                // Nothing is lost, and no time passes.
                Output::Again(..) | Output::Keep(..) => {}
            }
        }
    }

    /// The liar says something to somebody: of its own broadcasts, of which none is for all, or of
    /// those of others.
    fn lie(&mut self) {
        let (source, to) = (self.random.below(4), self.random.below(3));
        let about = match source {
            3 => self.random.below(5_000) as u64,
            _ => self.next[source].saturating_sub(8) + self.random.below(200) as u64,
        };
        let lies =
            [Bytes::from_static(b"a lie"), Bytes::from_static(b"another"), value(source, about)];
        let payload = lies[self.random.below(3)].clone();
        let (phase, digest) =
            (u16::try_from(self.random.below(3)).expect("small"), digest_of(&payload));
        let digest = if self.random.below(10) == 0 { Digest::ZERO } else { digest };
        let payload = if phase == SEND { payload } else { Bytes::new() };
        let body = CastBody { phase, sender: 3, epoch: 0, digest, payload };
        self.send(3, to, (node(source), about), body);
    }

    fn deliver(&mut self) {
        let mut at = self.random.below(self.on_the_way);
        let link = self.wire.iter().position(|mail| match at.checked_sub(mail.len()) {
            Some(left) => {
                at = left;
                false
            }
            None => true,
        });
        let link = link.expect("as many are on the way");
        let (key, body) = self.wire[link].pop_front().expect("it is not empty");
        self.on_the_way -= 1;
        let (from, to) = (link / 4, link % 4);
        if to != 3 {
            self.correct[to].handle_cast(key, node(from), body);
            self.act(to);
            self.begin(to);
        }
    }
}

fn run(broadcasts: u64) {
    let mut world = World::new(7, broadcasts);
    (0..3).for_each(|source| world.begin(source));
    let mut most = (0, 0, 0);
    while world.on_the_way > 0 {
        world.deliver();
        if world.random.below(8) == 0 && world.next.iter().sum::<u64>() < broadcasts {
            world.lie();
        }
        for core in &world.correct {
            let (open, remembered) = core.held();
            most = (most.0.max(open), most.1.max(remembered), most.2.max(world.on_the_way));
        }
    }
    assert_eq!(world.next.iter().sum::<u64>(), broadcasts);
    for at in 0..3 {
        assert_eq!(world.delivered[at], world.next, "at {at}");
    }
    let window = usize::try_from(WINDOW).expect("small");
    assert!(most.0 <= 4 * window && most.1 <= 4 * window, "{most:?}");
    assert!(most.0 >= window, "the liar has filled its own share");
    let own = usize::try_from(OWN_MAX).expect("small");
    assert!(most.2 <= 3 * own * 30, "{most:?}");
    println!(
        "held at most {} under way and {} out of order, {} on the way",
        most.0, most.1, most.2
    );
}

#[test]
fn a_hundred_thousand_broadcasts_are_delivered_beside_a_liar_in_bounded_memory() {
    let asked = std::env::var("BROADCASTS").map(|count| count.parse().expect("a number"));
    run(asked.unwrap_or(100_000));
}

#[test]
fn every_broken_rule_is_found() {
    for mutant in Mutant::OF_SOURCES {
        mutant::set(Some(mutant));
        let found = std::panic::catch_unwind(|| run(10_000));
        mutant::set(None);
        assert!(found.is_err(), "{mutant:?}");
    }
}

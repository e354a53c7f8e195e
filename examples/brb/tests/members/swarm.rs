//! Many seeds of the protocol alone: liars that tell each member something else, or are two correct
//! members behind one name of which each half of the others sees one (*twins*), crashes that lose
//! all but what was written down, or that, too, of a member that counts as faulty, copies, any
//! order. Nothing that must never happen does after any
//! step, and when all that is on its way has arrived, what must happen has. Each rule of the
//! protocol is broken once, and found.

use std::collections::BTreeMap;

use brb::mutant::{self, Mutant};
use brb::protocol::{Broadcast, ECHO, READY, SEND, Step, plan};
use bytes::Bytes;
use convoke::NodeId;
use convoke::cast::{CastBody, Digest};
use convoke::quorum::Configuration;
use convoke::quorum::echo::{EchoCore, EchoVote, digest_of};
use convoke::sim::random::Random;

const VALUES: [&[u8]; 2] = [b"heron", b"crane"];

const SEEDS: u64 = 3_000;

fn below(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.draw() % count as u64).expect("it is below a small number")
}

/// A correct member, in its present life, or one of two twins.
struct Member {
    votes: EchoCore,
    broadcast: Broadcast,
    delivered: Vec<Bytes>,
    /// State that survives a crash: what it has said, and the value it said it of.
    disk: (Vec<EchoVote>, Option<Bytes>),
    is_down: bool,
}

/// On its way.
#[derive(Clone, Debug)]
enum Mail {
    Cast {
        to: NodeId,
        from: NodeId,
        body: CastBody,
    },
    /// Asks for a value, and whom else to ask if there is none.
    Pull {
        to: NodeId,
        from: NodeId,
        digest: Digest,
    },
    Value {
        to: NodeId,
        value: Bytes,
    },
}

struct Run {
    random: Random,
    members: Configuration,
    faulty: usize,
    source: NodeId,
    liars: Vec<NodeId>,
    correct: BTreeMap<NodeId, Member>,
    /// One of them that starts again without its disk, in the place of a liar.
    forgetful: Option<NodeId>,
    /// Liars that are two members each.
    twins: BTreeMap<(NodeId, usize), Member>,
    /// The half of each, which sees the second twin where its bit is set.
    halves: u64,
    wire: Vec<Mail>,
    crashes: usize,
    copies: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = [4, 7][below(&mut random, 2)];
        let faulty = (count - 1) / 3;
        let nodes: Vec<NodeId> = (1..=count as u64).map(NodeId::new).collect();
        let members = Configuration::new(nodes.clone()).expect("they differ");
        let mut liars: Vec<NodeId> =
            (0..faulty).map(|_| nodes[below(&mut random, count)]).collect();
        liars.dedup();
        let forgetful = if random.chance(25) { liars.pop() } else { None };
        let source = nodes[below(&mut random, count)];
        let honest = nodes.into_iter().filter(|node| !liars.contains(node));
        let correct = honest.map(|node| (node, Member::new(node, &members, faulty, source)));
        let correct = correct.collect();
        let twin = |liar: NodeId| {
            [0, 1].map(|at| ((liar, at), Member::new(liar, &members, faulty, source)))
        };
        let twins = match random.chance(50) {
            true => liars.iter().flat_map(|liar| twin(*liar)).collect(),
            false => BTreeMap::new(),
        };
        let (halves, wire, crashes, copies) = (random.draw(), Vec::new(), 0, 0);
        Self {
            random,
            members,
            faulty,
            source,
            liars,
            correct,
            forgetful,
            twins,
            halves,
            wire,
            crashes,
            copies,
        }
    }

    fn half(&self, node: NodeId) -> usize {
        usize::from(self.halves >> node.get() & 1 == 1)
    }

    /// The member that hears what this one says to another: of twins the one that belongs to its
    /// half.
    fn hearer(&self, to: NodeId, from: NodeId) -> (NodeId, usize) {
        (to, if self.liars.contains(&to) { self.half(from) } else { 0 })
    }

    fn is_source_correct(&self) -> bool {
        !self.liars.contains(&self.source) && self.forgetful != Some(self.source)
    }

    /// Those of whom something is promised.
    fn promised(&self) -> impl Iterator<Item = &Member> {
        let others = self.correct.iter().filter(|(node, _)| self.forgetful != Some(**node));
        others.map(|(_, member)| member)
    }

    fn begin(&mut self) {
        let value = Bytes::from_static(VALUES[0]);
        if let Some(source) = self.correct.get_mut(&self.source) {
            source.broadcast.handle_value(value.clone());
            source.votes.cast(SEND, digest_of(&value)).expect("it is the first");
            self.drive((self.source, 0));
        }
        // Twins of a source have another value each.
        for (at, value) in VALUES.into_iter().enumerate() {
            let Some(twin) = self.twins.get_mut(&(self.source, at)) else { continue };
            let value = Bytes::from_static(value);
            twin.votes.cast(SEND, digest_of(&value)).expect("it is the first");
            twin.broadcast.handle_value(value);
            self.drive((self.source, at));
        }
        let lies = if self.twins.is_empty() { 60 } else { 10 };
        for _ in 0..lies {
            self.lie();
        }
    }

    /// One lie of one liar to one member.
    fn lie(&mut self) {
        if self.liars.is_empty() {
            return;
        }
        let from = self.liars[below(&mut self.random, self.liars.len())];
        let to = self.members.members()[below(&mut self.random, self.members.len())].node();
        let value = VALUES[below(&mut self.random, 2)];
        // Its digest may be another's.
        let digest = digest_of(VALUES[below(&mut self.random, 2)]);
        let phase = [SEND, ECHO, READY, 7][below(&mut self.random, 4)];
        let payload = if phase == SEND { Bytes::from_static(value) } else { Bytes::new() };
        let sender = self.members.index_of(from).expect("a member");
        let body = CastBody { phase, sender, epoch: 0, digest, payload };
        self.wire.push(Mail::Cast { to, from, body });
    }

    /// Lets a member do all it must, and writes down what it says before it is said.
    fn drive(&mut self, who: (NodeId, usize)) {
        let (node, _) = who;
        let Some(member) = self.up(who) else { return };
        let mut pulls = Vec::new();
        while let Some(step) = member.broadcast.next(&member.votes) {
            match step {
                Step::Echo(digest) => {
                    member.disk.1 = member.broadcast.value().cloned();
                    member.votes.cast(ECHO, digest).expect("it has echoed nothing");
                }
                Step::Pull(digest, from) => pulls.push((digest, from)),
                Step::Deliver(value) => {
                    member.disk.1 = Some(value.clone());
                    member.delivered.push(value);
                }
            }
        }
        let mut said = Vec::new();
        while let Some(vote) = member.votes.poll_transmit() {
            if !member.disk.0.contains(&vote) {
                member.disk.0.push(vote);
            }
            said.push(vote);
        }
        let value = member.broadcast.value().cloned().unwrap_or_default();
        let index = member.votes.index();
        for vote in said {
            self.send(who, index, vote, &value);
        }
        for (digest, from) in pulls {
            let asked = from.into_iter().filter(|to| *to != node);
            self.wire.extend(asked.map(|to| Mail::Pull { to, from: node, digest }));
        }
    }

    fn send(&mut self, (from, at): (NodeId, usize), sender: u16, vote: EchoVote, value: &Bytes) {
        let EchoVote { phase, digest } = vote;
        let payload = if phase == SEND { value.clone() } else { Bytes::new() };
        let body = CastBody { phase, sender, epoch: 0, digest, payload };
        let sees = |to: &NodeId| !self.liars.contains(&from) || self.half(*to) == at;
        let others = self.members.nodes().filter(|to| *to != from && sees(to));
        let mail = others.map(|to| Mail::Cast { to, from, body: body.clone() });
        self.wire.extend(mail.collect::<Vec<_>>());
    }

    fn step(&mut self) {
        let at = below(&mut self.random, self.wire.len());
        let mail = if below(&mut self.random, 8) == 0 {
            self.copies += 1;
            self.wire[at].clone()
        } else {
            self.wire.swap_remove(at)
        };
        match mail {
            Mail::Cast { to, from, body } => {
                let who = self.hearer(to, from);
                let Some(member) = self.up(who) else { return };
                // A refusal is the liar's doing.
                let _ = member.votes.handle_cast(from, body);
                self.drive(who);
            }
            Mail::Pull { to, from, digest } => self.answer(to, from, digest),
            Mail::Value { to, value } => {
                let Some(member) = self.up((to, 0)) else { return };
                let wanted = member.votes.reached(READY).map(|reached| reached.digest);
                if wanted == Some(digest_of(&value)) && member.delivered.is_empty() {
                    member.broadcast.handle_value(value);
                    self.drive((to, 0));
                }
            }
        }
    }

    fn answer(&mut self, node: NodeId, to: NodeId, digest: Digest) {
        // Only liars answer with what was not asked for.
        let lie = self.liars.contains(&node).then(|| Bytes::from_static(b"lie"));
        let held = self.up((node, 0)).and_then(|member| member.broadcast.value());
        let value = held.filter(|value| digest_of(value) == digest).cloned().or(lie);
        self.wire.extend(value.map(|value| Mail::Value { to, value }));
    }

    fn up(&mut self, (node, at): (NodeId, usize)) -> Option<&mut Member> {
        let Self { correct, twins, .. } = self;
        let member = correct.get_mut(&node).or_else(|| twins.get_mut(&(node, at)));
        member.filter(|member| !member.is_down)
    }

    /// A correct member loses all but its disk.
    fn crash(&mut self) {
        let nodes: Vec<NodeId> = self.correct.keys().copied().collect();
        let any = nodes[below(&mut self.random, nodes.len())];
        let node = self.forgetful.unwrap_or(any);
        if let Some(member) = self.correct.get_mut(&node) {
            member.is_down = true;
            self.crashes += 1;
        }
    }

    /// All that are down start again from their disks, say again what they said, and are told again
    /// what the others said, as after a connection was made.
    fn restart(&mut self) {
        let down: Vec<NodeId> = self
            .correct
            .iter()
            .filter(|(_, member)| member.is_down)
            .map(|(node, _)| *node)
            .collect();
        for node in down {
            let Some(member) = self.correct.get_mut(&node) else { continue };
            if self.forgetful == Some(node) {
                (member.disk, member.delivered) = Default::default();
            }
            let disk = std::mem::take(&mut member.disk);
            // That it has delivered is on the disk as well.
            let delivered = std::mem::take(&mut member.delivered);
            *member = Member::new(node, &self.members, self.faulty, self.source);
            if let Some(value) = &disk.1 {
                member.broadcast.handle_value(value.clone());
            }
            for vote in &disk.0 {
                member.votes.restore(*vote).expect("it said one thing");
            }
            if !delivered.is_empty() {
                member.broadcast.note_delivered();
            }
            (member.disk, member.delivered) = (disk, delivered);
            self.drive((node, 0));
            self.repeat_to(node);
            // Whoever has forgotten what it said can now be made to say another thing.
            (0..30).for_each(|_| self.lie());
        }
    }

    fn repeat_to(&mut self, node: NodeId) {
        let mut mail = Vec::new();
        for (from, member) in self.correct.iter().filter(|(from, _)| **from != node) {
            for vote in &member.disk.0 {
                let EchoVote { phase, digest } = *vote;
                let value = member.disk.1.clone().unwrap_or_default();
                let payload = if phase == SEND { value } else { Bytes::new() };
                let sender = member.votes.index();
                let body = CastBody { phase, sender, epoch: 0, digest, payload };
                mail.push(Mail::Cast { to: node, from: *from, body });
            }
        }
        self.wire.extend(mail);
    }

    fn delivered(&self) -> Vec<&Bytes> {
        self.promised().flat_map(|member| &member.delivered).collect()
    }

    /// After every step.
    fn check_safety(&self, seed: u64) {
        let once = self.promised().all(|member| member.delivered.len() <= 1);
        assert!(once, "seed {seed}: delivered twice");
        let delivered = self.delivered();
        let agree = delivered.windows(2).all(|two| two[0] == two[1]);
        assert!(agree, "seed {seed}: consistency: {delivered:?}");
        if self.is_source_correct() {
            let sent = delivered.iter().all(|value| *value == VALUES[0]);
            assert!(sent, "seed {seed}: integrity: {delivered:?}");
        }
        let is_faulty = |node| self.liars.contains(&node) || self.forgetful == Some(node);
        let slandered = self
            .promised()
            .any(|member| member.votes.evidence().iter().any(|evidence| !is_faulty(evidence.node)));
        assert!(!slandered, "seed {seed}: evidence against a correct member");
    }

    /// When nothing is on its way.
    fn check_liveness(&self, seed: u64) {
        let (delivered, all) = (self.delivered().len(), self.promised().count());
        assert!(delivered == 0 || delivered == all, "seed {seed}: totality: {delivered} of {all}");
        if self.is_source_correct() {
            assert_eq!(delivered, all, "seed {seed}: validity");
        }
    }
}

impl Member {
    fn new(node: NodeId, members: &Configuration, faulty: usize, source: NodeId) -> Self {
        let plan = plan(members.len(), faulty).expect("there are 3f + 1");
        let votes = EchoCore::new(node, members, plan).expect("it is a member");
        let (broadcast, delivered, disk) = (Broadcast::of(source), Vec::new(), (Vec::new(), None));
        Self { votes, broadcast, delivered, disk, is_down: false }
    }
}

fn run(seed: u64) -> Run {
    let mut run = Run::new(seed);
    run.begin();
    let crash_at = below(&mut run.random, 200);
    let mut steps = 0;
    loop {
        while !run.wire.is_empty() {
            run.step();
            run.check_safety(seed);
            steps += 1;
            if steps == crash_at {
                run.crash();
            }
            if steps == crash_at + 30 {
                run.restart();
            }
        }
        if !run.correct.values().any(|member| member.is_down) {
            break;
        }
        run.restart();
    }
    run.check_liveness(seed);
    run
}

#[test]
fn correct_members_deliver_the_same_or_nothing() {
    let (mut by_liars, mut nothing, mut crashes, mut copies) = (0, 0, 0, 0);
    let mut caught = 0;
    for seed in 0..SEEDS {
        let run = run(seed);
        let is_delivered = !run.delivered().is_empty();
        by_liars += usize::from(!run.is_source_correct() && is_delivered);
        nothing += usize::from(!is_delivered);
        (crashes, copies) = (crashes + run.crashes, copies + run.copies);
        let evidence = run.promised().flat_map(|member| member.votes.evidence());
        caught += evidence.filter(|evidence| run.forgetful == Some(evidence.node)).count();
    }
    // The runs are worth something.
    assert!(by_liars > 50 && nothing > 50, "{by_liars} {nothing}");
    assert!(crashes > 500 && copies > 10_000, "{crashes} {copies}");
    assert!(caught > 0, "nobody said another thing than before its crash");
}

#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        let [one, two] = [run(seed), run(seed)];
        assert_eq!(one.delivered(), two.delivered());
        assert_eq!((one.crashes, one.copies), (two.crashes, two.copies));
    }
}

#[test]
fn every_broken_rule_is_found() {
    for mutant in Mutant::OF_PROTOCOL {
        mutant::set(Some(mutant));
        let found = (0..SEEDS).find(|seed| std::panic::catch_unwind(|| run(*seed)).is_err());
        mutant::set(None);
        println!("{mutant:?} is found by seed {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}

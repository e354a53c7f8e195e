//! Many seeds of rounds about calls and about tags: members that crash, come back with and without
//! what they had said, lie in every way that there is and flood, clients that lie, strangers, on
//! links that reorder.
//!
//! After each run correct members agree, whatever the others did; with at most `f` others they have
//! all decided, and on what was asked. They have evidence against liars alone, and keep nothing.

pub(crate) mod calls;
mod liars;
pub(crate) mod tags;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use convoke_core::{Digest, Limits, NodeId};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoPlan, EchoRound, Phase, Rule, TaggedCast, byzantine_quorum};

/// Decisions of correct members about each call or tag, and who has evidence against whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log {
    decisions: BTreeMap<(String, NodeId), Digest>,
    evidence: Vec<(NodeId, NodeId)>,
    refused: u64,
    forged: u64,
    failures: Vec<(String, NodeId, String)>,
    /// Times that a round was told that too many are away.
    told: u64,
    /// Properties that were seen broken during the run, and how.
    broken: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct SharedLog(Arc<Mutex<Log>>);

impl SharedLog {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().expect("nobody panics with it")
    }

    fn note_decision(&self, about: &str, node: NodeId, digest: Digest) {
        let mut log = self.lock();
        let before = log.decisions.insert((about.to_owned(), node), digest);
        if let Some(before) = before {
            log.broken.push(format!("once: {node} decides {before:?} and {digest:?} of {about}"));
        }
    }

    /// Too many are away; `has_cause` when votes may be split, so that it is told.
    fn note_told(&self, has_cause: bool) {
        let mut log = self.lock();
        log.told += 1;
        if !has_cause {
            log.broken.push("patience: those who are away may come back".to_owned());
        }
    }

    fn note_round(&self, node: NodeId, round: &EchoRound) {
        let mut log = self.lock();
        log.evidence.extend(round.evidence().iter().map(|evidence| (node, evidence.node)));
        for phase in 0..2 {
            let votes: Vec<Digest> = round.core().votes(phase).map(|(_, digest)| digest).collect();
            let equal = |one: &Digest| votes.iter().filter(|other| *other == one).count();
            let (most, counted) = (votes.iter().map(equal).max(), round.core().count_max(phase));
            if most.unwrap_or(0) != counted {
                log.broken.push(format!("counts: {counted} votes of {most:?} members at {node}"));
            }
        }
        let refused = round.refused();
        log.refused += u64::from(refused.unknown_phase) + u64::from(refused.wrong_index);
        log.forged += round.refused_by_cause().map(|(_, count)| count).sum::<u64>();
    }
}

impl Log {
    /// Decisions about each call or tag.
    fn by_subject(&self) -> BTreeMap<&str, Vec<(NodeId, Digest)>> {
        let mut all: BTreeMap<&str, Vec<(NodeId, Digest)>> = BTreeMap::new();
        for ((about, node), digest) in &self.decisions {
            all.entry(about).or_default().push((*node, *digest));
        }
        all
    }

    /// Holds whatever anybody does, but for agreement, which takes at most `f` liars.
    fn check_safety(&self, is_bearable: bool, is_liar: impl Fn(NodeId) -> bool, what: &str) {
        assert!(self.broken.is_empty(), "{}: {what}", self.broken.join(", "));
        let slandered = self.evidence.iter().find(|(_, against)| !is_liar(*against));
        assert_eq!(slandered, None, "slander: {what}");
        for (about, decisions) in self.by_subject() {
            let agree = decisions.windows(2).all(|two| two[0].1 == two[1].1);
            assert!(agree || !is_bearable, "agreement: {about}: {what}: {self:?}");
        }
    }
}

/// Echo, and ready on enough echoes or on one correct member that is.
fn bracha(members: &Configuration) -> EchoPlan {
    let (n, f) = (members.len(), (members.len() - 1) / 3);
    let ready = Rule::on(0, byzantine_quorum(n, f)).or(Rule::on(1, f + 1));
    let phases =
        [Phase::new("echo", byzantine_quorum(n, f)), Phase::new("ready", 2 * f + 1).cast_on(ready)];
    EchoPlan::new(n, phases).expect("it is a plan")
}

/// Stands for a signature of a member.
fn sign(me: NodeId, digest: Digest) -> Bytes {
    let signed = [&me.get().to_le_bytes()[..], &digest.0];
    signed.concat().into()
}

fn is_signed(cast: &TaggedCast) -> Result<(), &'static str> {
    match cast.body.payload == sign(cast.from, cast.body.digest) {
        true => Ok(()),
        false => Err("signature"),
    }
}

/// So little room for casts that a flood could fill it.
fn tight() -> Limits {
    let mut limits = Limits::default();
    (limits.cast_bytes_max, limits.cast_bytes_total_max) = (32 << 10, 64 << 10);
    limits
}

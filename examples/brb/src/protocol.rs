//! Next step of a member in one broadcast. No I/O, no clock.
//!
//! After Gabriel Bracha, *Asynchronous Byzantine Agreement Protocols*, 1987, with digests in place
//! of values in the votes.

use bytes::Bytes;
use convoke::NodeId;
use convoke::cast::Digest;
use convoke::quorum::echo::{
    EchoCore, EchoPlan, Phase, PlanError, Rule, byzantine_quorum, digest_of,
};

use crate::mutant::{self, Mutant};

/// The source's own: the value.
pub const SEND: u16 = 0;
/// Phase in which those vote who have the value.
pub const ECHO: u16 = 1;
/// Phase in which those vote who know that it is the only one.
pub const READY: u16 = 2;
/// In place of a phase: no vote, but a member that asks to be told again what was said about the
/// broadcasts of a source, from the one of its tag on.
pub const ASK: u16 = 3;

/// The phases for so many members, of whom so many may lie.
///
/// # Errors
/// [`PlanError::TooManyFaulty`] unless there are `3f + 1`.
pub fn plan(members: usize, faulty: usize) -> Result<EchoPlan, PlanError> {
    if members < 3 * faulty + 1 {
        return Err(PlanError::TooManyFaulty { members, faulty });
    }
    let enough = match mutant::is(Mutant::MajorityEchoes) {
        true => members / 2 + 1,
        false => byzantine_quorum(members, faulty),
    };
    let others = if mutant::is(Mutant::AmplifiesEarly) { faulty } else { faulty + 1 };
    let ready = match mutant::is(Mutant::NoAmplification) {
        true => Rule::on(ECHO, enough),
        false => Rule::on(ECHO, enough).or(Rule::on(READY, others)),
    };
    let all = if mutant::is(Mutant::DeliversEarly) { faulty + 1 } else { 2 * faulty + 1 };
    EchoPlan::new(
        members,
        [
            Phase::new("send", 1),
            Phase::new("echo", enough), // by hand: only who has the value echoes
            Phase::new("ready", all).cast_on(ready),
        ],
    )
}

/// Steps that a member must take in a broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Cast this in [`ECHO`].
    Echo(Digest),
    /// Get the value of this digest from one of these, most likely the first, and say so with
    /// [`Broadcast::handle_value`].
    Pull(Digest, Vec<NodeId>),
    /// The value is broadcast; nothing more is to be done.
    Deliver(Bytes),
}

/// One broadcast at one member, beside its votes.
#[derive(Clone, Debug)]
pub struct Broadcast {
    source: NodeId,
    value: Option<(Digest, Bytes)>,
    is_pulling: bool,
    is_delivered: bool,
}

impl Broadcast {
    /// Of this source, which may be the member itself.
    pub fn of(source: NodeId) -> Self {
        Self { source, value: None, is_pulling: false, is_delivered: false }
    }

    /// The value came, by a pull, or from the source's own hand.
    pub fn handle_value(&mut self, value: Bytes) {
        self.value = Some((digest_of(&value), value));
    }

    /// Nobody gave the value: it is to be asked for again, maybe of others.
    pub fn pull_again(&mut self) {
        self.is_pulling = false;
    }

    /// It was delivered in an earlier life of this member, which still votes.
    pub fn note_delivered(&mut self) {
        self.is_delivered = true;
    }

    /// The value, if it is here.
    pub fn value(&self) -> Option<&Bytes> {
        self.value.as_ref().map(|(_, value)| value)
    }

    /// The next step to take; to be asked again after each vote and each step.
    pub fn next(&mut self, votes: &EchoCore) -> Option<Step> {
        self.take_sent(votes);
        if self.is_delivered {
            return None;
        }
        if let Some(reached) = votes.reached(READY) {
            return self.next_when_ready(votes, reached.digest);
        }
        let has_echoed = votes.cast_in(ECHO).is_some();
        let sent = self.sent(votes)?;
        let (digest, _) = self.value.as_ref()?;
        (!has_echoed && *digest == sent).then_some(Step::Echo(sent))
    }

    /// Takes the value that came with the source's vote, if it is what it says. Otherwise the
    /// source lies, and nothing is echoed.
    fn take_sent(&mut self, votes: &EchoCore) {
        if self.value.is_some() {
            return;
        }
        let (sent, payload) = (self.sent(votes), votes.payload(SEND, self.source));
        let is_of = |(sent, value): &(Digest, Bytes)| {
            digest_of(value) == *sent || mutant::is(Mutant::SentUnchecked)
        };
        self.value = sent.zip(payload.cloned()).filter(is_of);
    }

    fn sent(&self, votes: &EchoCore) -> Option<Digest> {
        let mut sent = votes.votes(SEND);
        let is_source = |node| node == self.source || mutant::is(Mutant::AnybodySends);
        sent.find(|(node, _)| is_source(*node)).map(|(_, digest)| digest)
    }

    fn next_when_ready(&mut self, votes: &EchoCore, ready: Digest) -> Option<Step> {
        match &self.value {
            Some((digest, value)) if *digest == ready || mutant::is(Mutant::DeliversUnchecked) => {
                self.is_delivered = true;
                Some(Step::Deliver(value.clone()))
            }
            _ if self.is_pulling => None,
            _ => {
                self.is_pulling = true;
                Some(Step::Pull(ready, holders(votes, ready)))
            }
        }
    }
}

/// Members that most likely have the value: those who echoed it here, then all others, whose echoes
/// may be on their way. Each member begins with those that follow it: no liar is asked first by
/// all.
fn holders(votes: &EchoCore, digest: Digest) -> Vec<NodeId> {
    let mut nodes: Vec<_> = votes.members().nodes().collect();
    nodes.rotate_left(votes.index().into());
    let echoed = |node: &NodeId| votes.votes(ECHO).any(|vote| vote == (*node, digest));
    let (mut first, then): (Vec<_>, Vec<_>) = nodes.into_iter().partition(echoed);
    first.extend(then);
    first
}

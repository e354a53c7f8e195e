//! A round as a handler sees it: casts and quorums to await.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::Bytes;
use convoke_core::id::Incarnation;
use convoke_core::seam::EndpointSeam as _;
use convoke_core::{
    CastBody, CastPort, Context, Digest, KeepConnected, NodeId, OwedPlace, Reach, ReceivedCast,
};
use convoke_proto::mutant::{self, Mutant};
use tokio::runtime::Handle;

use crate::Configuration;

use super::error::{CastRefused, EchoError, QuorumNotReached};
use super::gate::{Gate, TaggedCast, Verifier};
use super::machine::{EchoCore, EchoVote, Reached};
use super::plan::EchoPlan;
use super::said::Said;
use super::tally::{Evidence, Refused};

/// A round of echo phases among the participants of a call, or about a tag.
///
/// Casts that came before are counted when it is joined. A round counts, and casts what its plan
/// makes of it, only while it is awaited; nothing is lost meanwhile, within the bounds of a mailbox
/// ([`Limits`](convoke_core::Limits)).
///
/// ```
/// # use convoke_core::{Context, Status};
/// # use convoke_quorum::{Configuration, echo::{EchoError, EchoPlan, EchoRound, digest_of}};
/// /// Echoes in two phases; the second begins by itself when the first has a majority.
/// async fn agree(context: &Context, members: &Configuration, value: &[u8]) -> Result<(), Status> {
///     let plan = EchoPlan::majority(members.len(), 2).map_err(EchoError::from)?;
///     let mut round = EchoRound::join(context, members, plan)?;
///     round.cast(0, digest_of(value), Vec::new())?;
///     round.quorum(0).await?;
///     round.quorum(1).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct EchoRound {
    core: EchoCore,
    port: CastPort,
    about: About,
    runtime: Handle,
    /// Looks at votes before they count.
    gate: Option<Box<Gate>>,
    /// Payloads of the votes of this node, by phase.
    payloads: Vec<(u16, Bytes)>,
    /// Votes of this node that have been sent: not those that are held.
    said: Said,
    /// Lives of the members, as they were first seen.
    lives: Vec<Option<Incarnation>>,
    /// Members that are down, when last looked.
    down: Vec<NodeId>,
    /// Members that may lack a vote: it could not be sent, or their connection broke after that.
    missed: Vec<NodeId>,
    /// Of a tag, what dials them until they are told.
    dialled: Vec<(NodeId, KeepConnected)>,
    /// After how many changes that was.
    seen: Option<u64>,
    /// This node was told of a later epoch by then.
    is_stale: bool,
    /// Votes of this node wait to be released.
    is_holding: bool,
    /// Payloads of votes that count are kept.
    keeps_payloads: bool,
    casts: Vec<ReceivedCast>,
}

/// Subject of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// A call, in which a member has no part any more once it is down: its initiator's life and its
    /// number.
    Call((u64, u64)),
    /// A tag, about which it may come back.
    Tag((u64, u64)),
}

impl EchoRound {
    /// Begins the round about the call of a handler. A call has one round at a node, which only a
    /// request of its initiator begins, or of those whom the plan names ([`EchoPlan::asked_by`]): a
    /// member that was asked in the call could otherwise have the others vote on something else.
    ///
    /// The members of the first round must be known to the endpoint before, or votes that come
    /// early are lost: by their addresses, or by
    /// [`Endpoint::hear_casts_of`](convoke_core::Endpoint::hear_casts_of).
    ///
    /// # Errors
    /// [`EchoError`] when this node is no member, the plan is not for these members, the call has
    /// or had a round here, or the request comes from somebody else.
    pub fn join(
        context: &Context,
        members: &Configuration,
        plan: EchoPlan,
    ) -> Result<Self, EchoError> {
        let is_named = plan.is_asked_by(context.parent());
        let core = EchoCore::new(context.node(), members, plan)?;
        context.endpoint().hear_casts_of(members.nodes());
        let port = match is_named {
            true => context.casts_for_parent()?,
            false => context.casts()?,
        };
        let call = context.task().call;
        let about = About::Call((call.origin.0, call.seq));
        Ok(Self::of(core, port, about, context.endpoint().runtime()))
    }

    pub(super) fn of(core: EchoCore, port: CastPort, about: About, runtime: &Handle) -> Self {
        let mut round = Self {
            core,
            port,
            about,
            runtime: runtime.clone(),
            gate: None,
            payloads: Vec::new(),
            said: Said::default(),
            lives: Vec::new(),
            down: Vec::new(),
            missed: Vec::new(),
            dialled: Vec::new(),
            seen: None,
            is_stale: false,
            is_holding: false,
            keeps_payloads: true,
            casts: Vec::new(),
        };
        if round.is_call() {
            let (reach, _) = round.port.reach(round.core.members().nodes());
            round.see_lives(&reach);
            // Else those whom this node never had anything to say to would count as down.
            let members = round.core.members().nodes().zip(reach);
            let down: Vec<NodeId> =
                members.filter(|(_, reach)| reach.is_down).map(|(node, _)| node).collect();
            if !down.is_empty() {
                round.port.dial(down);
            }
        }
        round
    }

    /// Has votes of others looked at before they count: at signatures, for example. Votes that came
    /// before the round was joined wait for it, too; those that it has counted, or that an earlier
    /// verifier looks at, stay counted. A space sets it for all of its rounds
    /// ([`EchoSpaceBuilder::verify`](super::EchoSpaceBuilder::verify)).
    #[must_use]
    pub fn verify(self, verifier: impl Verifier) -> Self {
        self.gated(Some(Arc::new(verifier)))
    }

    pub(super) fn gated(mut self, verifier: Option<Arc<dyn Verifier>>) -> Self {
        let Some(verifier) = verifier else { return self };
        match &mut self.gate {
            Some(gate) => gate.set_verifier(verifier),
            None => self.gate = Some(Box::new(Gate::new(verifier, &self.runtime))),
        }
        self
    }

    fn is_call(&self) -> bool {
        matches!(self.about, About::Call(_))
    }

    /// Votes in a phase: counts here, and leaves for all other members at once. What is cast by a
    /// rule ([`Phase::cast_on`](super::Phase::cast_on)) carries no payload.
    ///
    /// # Errors
    /// [`EchoError::Cast`] when there is no such phase, this node has cast another digest in it, or
    /// the payload is larger than others keep.
    pub fn cast(
        &mut self,
        phase: u16,
        digest: Digest,
        payload: impl Into<Bytes>,
    ) -> Result<(), EchoError> {
        let payload = payload.into();
        self.check_size(&payload)?;
        if self.core.cast(phase, digest)? {
            self.keep_payload(phase, payload);
        }
        self.transmit();
        Ok(())
    }

    /// Holds back what is cast from now on, also by a rule, until [`Self::release`] sends it: for
    /// who stores or signs a vote before it says it, or has something to send along, which it gives
    /// then. A held vote counts here all the same, so nothing is to be decided on a quorum
    /// meanwhile.
    pub fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Waits until this node has cast a vote that is held, and gives it. Votes of others are
    /// counted meanwhile. It does not tell that no quorum can come any more; [`Self::quorum`] does.
    ///
    /// # Errors
    /// [`EchoError::Stopped`] once the endpoint is shut down and all that had come is counted.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, no vote is lost.
    pub async fn held(&mut self) -> Result<EchoVote, EchoError> {
        poll_fn(|cx| {
            loop {
                if self.is_holding
                    && let Some(vote) = self.core.poll_transmit()
                {
                    return Poll::Ready(Ok(vote));
                }
                ready!(self.poll_some(cx))?;
            }
        })
        .await
    }

    /// Sends a vote that was held to all other members.
    ///
    /// # Errors
    /// [`EchoError::Cast`] when the payload is larger than others keep, or this node has not cast
    /// the vote in this round: nothing is sent, and one that is held may be released again.
    pub fn release(&mut self, vote: EchoVote, payload: impl Into<Bytes>) -> Result<(), EchoError> {
        let payload = payload.into();
        self.check_size(&payload)?;
        self.core.check_cast(vote)?;
        self.keep_payload(vote.phase, payload);
        self.send(vote);
        self.note_missed();
        Ok(())
    }

    fn check_size(&self, payload: &Bytes) -> Result<(), CastRefused> {
        CastRefused::check_size(payload, self.port.payload_bytes_max())
    }

    /// Casts again what this node had cast in an earlier life, with what it sent along, before
    /// anything else is: nobody may say another thing after a crash.
    ///
    /// # Errors
    /// As [`Self::cast`].
    pub fn restore(
        &mut self,
        votes: impl IntoIterator<Item = (EchoVote, Bytes)>,
    ) -> Result<(), EchoError> {
        for (vote, payload) in votes {
            self.check_size(&payload)?;
            self.core.restore(vote)?;
            self.keep_payload(vote.phase, payload);
        }
        self.transmit();
        Ok(())
    }

    /// The votes of its core have been restored, with which this was sent along.
    pub(super) fn with_payloads(
        mut self,
        votes: impl IntoIterator<Item = (EchoVote, Bytes)>,
    ) -> Self {
        for (vote, payload) in votes {
            self.keep_payload(vote.phase, payload);
        }
        self.transmit();
        self
    }

    fn keep_payload(&mut self, phase: u16, payload: Bytes) {
        self.payloads.retain(|(of, _)| *of != phase);
        if !payload.is_empty() {
            self.payloads.push((phase, payload));
        }
    }

    /// Members that may lack a vote: there was no connection to send it on, or no room, or the
    /// connection broke after that. While the round is awaited, the votes are sent again when
    /// connections change; see [`Self::repeat_to`]. About a tag these members are dialled until
    /// then.
    pub fn missed(&self) -> &[NodeId] {
        &self.missed
    }

    fn note_missed(&mut self) {
        for node in self.port.take_missed() {
            if let Some(index) = self.core.members().index_of(node) {
                self.said.note_unsent(index);
            }
            self.note_missed_at(node);
        }
    }

    fn note_missed_at(&mut self, node: NodeId) {
        if self.missed.contains(&node) {
            return;
        }
        self.missed.push(node);
        // In a call it counts as down. About a tag it may not have heard of it, and so have no
        // reason to dial.
        if !self.is_call() {
            self.dialled.push((node, self.port.keep_connected(node)));
        }
    }

    /// Sends the votes of this node again that it has sent, with what went along, to a member whose
    /// connection was broken. Those that it has are not counted again.
    pub fn repeat_to(&self, member: NodeId) {
        self.say_to(member, self.said.all());
    }

    fn say_to(&self, member: NodeId, votes: impl IntoIterator<Item = EchoVote>) {
        for vote in votes {
            self.port.send([member], self.body(vote));
        }
    }

    fn transmit(&mut self) {
        while (!self.is_holding || mutant::is(Mutant::HeldLeaves))
            && let Some(vote) = self.core.poll_transmit()
        {
            self.send(vote);
        }
        self.note_missed();
    }

    fn send(&mut self, vote: EchoVote) {
        let (members, me) = (self.core.members(), self.port.node());
        let body = self.body(vote);
        let turn = self.port.send(members.nodes().filter(|node| *node != me), body);
        self.said.note(vote, turn);
    }

    fn body(&self, vote: EchoVote) -> CastBody {
        let EchoVote { phase, digest } = vote;
        let payload = self.payloads.iter().find(|(of, _)| *of == phase);
        let payload = payload.map(|(_, payload)| payload.clone()).unwrap_or_default();
        let (sender, epoch) = (self.core.index(), self.core.members().epoch());
        CastBody { phase, sender, epoch, digest, payload }
    }

    /// Notes the lives of members that were not connected before.
    fn see_lives(&mut self, reach: &[Reach]) {
        self.lives.resize(reach.len(), None);
        for (life, reach) in self.lives.iter_mut().zip(reach) {
            *life = life.or(reach.life);
        }
    }

    /// Waits until a phase has a quorum, and counts in all phases meanwhile. Resolves at once if it
    /// has one.
    ///
    /// # Errors
    /// [`EchoError::QuorumNotReached`] as soon as it can have none: the votes are split so that
    /// those who are connected cannot mend it, or, in a call, members without a vote have no
    /// connection to this node. About a tag they may come back and vote where there is no split; a
    /// timeout is for callers that do not want to wait for that. Once members are back, the round
    /// may be awaited again. [`EchoError::StaleEpoch`] once this node was told of a later epoch, or
    /// too many others vote in one. [`EchoError::Cast`] when there is no such phase.
    /// [`EchoError::Stopped`] once the endpoint is shut down and all that had come is counted.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn quorum(&mut self, phase: u16) -> Result<Reached, EchoError> {
        poll_fn(|cx| self.poll_quorum(cx, phase)).await
    }

    /// Casts the digest, and waits for a quorum of it in every phase of the plan. Payloads of votes
    /// are dropped: nobody could look at them.
    pub(super) async fn agree(mut self, digest: Digest) -> Result<EchoOutcome, EchoError> {
        self.keeps_payloads = false;
        let outcome = self.quorums(digest).await;
        self.end();
        outcome
    }

    async fn quorums(&mut self, digest: Digest) -> Result<EchoOutcome, EchoError> {
        self.cast(0, digest, Bytes::new())?;
        let mut votes = 0;
        for phase in 0..self.core.plan().phase_count() {
            let reached = self.quorum(phase).await?;
            if reached.digest != digest {
                return Err(EchoError::OtherValue { phase, reached: reached.digest, own: digest });
            }
            votes = reached.count;
        }
        Ok(EchoOutcome { votes, evidence: self.evidence().to_vec() })
    }

    /// Ends, once its votes have left for members whose connections had no room for them: one that
    /// is slow may be told by nobody else.
    fn end(mut self) {
        self.note_missed();
        if self.missed.is_empty() {
            return;
        }
        let mut owed: Vec<OwedPlace> =
            self.reachable(&self.missed).filter_map(|node| self.port.owe(node)).collect();
        if owed.is_empty() {
            return;
        }
        let (runtime, time) = (self.runtime.clone(), self.port.remaining());
        runtime.spawn(async move {
            // What is said after the deadline of the call helps nobody.
            let _ = tokio::time::timeout(time, poll_fn(|cx| self.poll_said(cx, &mut owed))).await;
        });
    }

    /// Those of these members that are connected, or being dialled.
    fn reachable(&self, nodes: &[NodeId]) -> impl Iterator<Item = NodeId> {
        let (reach, _) = self.port.reach(nodes.iter().copied());
        nodes.iter().zip(reach).filter(|(_, reach)| !reach.is_down).map(|(node, _)| *node)
    }

    /// True while a vote is owed to a member that is connected, or being dialled. The places of
    /// members that have theirs are given back.
    fn is_owing(&mut self, owed: &mut Vec<OwedPlace>) -> bool {
        self.note_missed();
        owed.retain(|place| self.missed.contains(&place.member()));
        let members: Vec<NodeId> = owed.iter().map(OwedPlace::member).collect();
        self.reachable(&members).next().is_some()
    }

    /// Waits until nothing is owed any more, and counts meanwhile, so that nothing waits here.
    fn poll_said(&mut self, cx: &mut TaskContext<'_>, owed: &mut Vec<OwedPlace>) -> Poll<()> {
        loop {
            let waiting = self.port.poll_waiting(cx, 1);
            if waiting.is_ready {
                self.count_waiting(cx);
            } else if waiting.is_over || !self.is_owing(owed) {
                return Poll::Ready(());
            } else if self.seen == Some(waiting.changes) || !self.look_who_is_down() {
                return Poll::Pending;
            }
        }
    }

    /// Waits until `look` finds what it looks for, after each cast that counts. For conditions that
    /// a plan cannot express; [`Self::quorum`] wakes less often.
    ///
    /// # Errors
    /// [`EchoError::Stopped`] once the endpoint is shut down and all that had come is counted.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn until<T>(
        &mut self,
        mut look: impl FnMut(&EchoCore) -> Option<T>,
    ) -> Result<T, EchoError> {
        poll_fn(|cx| {
            loop {
                if let Some(found) = look(&self.core) {
                    return Poll::Ready(Ok(found));
                }
                ready!(self.poll_some(cx))?;
            }
        })
        .await
    }

    /// Counts what waits, once something does.
    fn poll_some(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), EchoError>> {
        loop {
            let waiting = self.port.poll_waiting(cx, 1);
            if !waiting.is_ready && !self.is_looking() {
                if waiting.is_over {
                    return Poll::Ready(Err(EchoError::Stopped));
                }
                if self.seen != Some(waiting.changes) && self.look_who_is_down() {
                    continue; // To be woken for what changes next.
                }
                return Poll::Pending;
            }
            if self.count_waiting(cx) {
                return Poll::Ready(Ok(()));
            }
            // Else all that waited was refused, and nothing wakes for what comes next.
            if self.is_looking() {
                return Poll::Pending;
            }
        }
    }

    fn poll_quorum(
        &mut self,
        cx: &mut TaskContext<'_>,
        phase: u16,
    ) -> Poll<Result<Reached, EchoError>> {
        loop {
            if self.is_looking() {
                self.count_waiting(cx);
            }
            if let Some(reached) = self.core.reached(phase) {
                return Poll::Ready(Ok(reached));
            }
            if self.is_stale {
                return Poll::Ready(Err(self.stale()));
            }
            // About a tag they may come back, but that does not help where the votes are split.
            let counts_down =
                self.is_call() || self.core.is_split() || mutant::is(Mutant::DownForGood);
            let is_down = |node: NodeId| counts_down && self.down.contains(&node);
            if !self.core.is_possible(phase, is_down) {
                // What waits below the number that would wake may be of those who are down by now.
                match self.count_waiting(cx) {
                    true => continue,
                    false if self.is_looking() => return Poll::Pending,
                    // Others may be back since that was seen.
                    false if self.look_who_is_down() => continue,
                    false if self.is_by_epoch(phase) => return Poll::Ready(Err(self.stale())),
                    false => return Poll::Ready(Err(self.not_reached(phase))),
                }
            }
            // About a tag, too: the next vote may split it.
            let needed = self.core.needed(phase, |node| self.down.contains(&node));
            let waiting = self.port.poll_waiting(cx, needed);
            if waiting.is_ready {
                if !self.count_waiting(cx) && self.is_looking() {
                    return Poll::Pending;
                }
            } else if waiting.is_over && !self.is_looking() {
                return Poll::Ready(Err(EchoError::Stopped));
            } else if self.seen != Some(waiting.changes) {
                self.look_who_is_down();
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Counts what waits; behind a gate, as far as that has looked at it. True when there was some.
    fn count_waiting(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let has_some = match self.gate.take() {
            None => self.count_all(),
            Some(mut gate) => {
                let has_some = self.count_good(&mut gate, cx);
                self.gate = Some(gate);
                has_some
            }
        };
        self.transmit();
        has_some
    }

    fn count_all(&mut self) -> bool {
        let mut casts = std::mem::take(&mut self.casts);
        self.port.take(&mut casts);
        let has_some = !casts.is_empty();
        for ReceivedCast { from, body } in casts.drain(..) {
            self.count(from, body);
        }
        self.casts = casts;
        has_some
    }

    fn count_good(&mut self, gate: &mut Gate, cx: &mut TaskContext<'_>) -> bool {
        let mut has_some = false;
        while let Poll::Ready(cast) = gate.poll_good(cx, |_| self.next_waiting()) {
            self.count(cast.from, cast.body);
            has_some = true;
        }
        has_some
    }

    fn count(&mut self, from: NodeId, mut body: CastBody) {
        if !self.keeps_payloads {
            body.payload = Bytes::new();
        }
        // What is refused is the sender's doing, and has been noted.
        let _ = self.core.handle_cast(from, body);
    }

    fn next_waiting(&mut self) -> Option<TaggedCast> {
        if self.casts.is_empty() {
            self.port.take(&mut self.casts);
            self.casts.reverse();
        }
        let ReceivedCast { from, body } = self.casts.pop()?;
        let (About::Call(tag) | About::Tag(tag)) = self.about;
        Some(TaggedCast { tag, initiator: self.port.initiator(), from, body })
    }

    /// True while votes are looked at.
    fn is_looking(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_busy())
    }

    /// Looks at the connections. True when anything has changed since it looked last.
    fn look_who_is_down(&mut self) -> bool {
        let (reach, changes) = self.port.watch(self.core.members().nodes());
        if self.seen == Some(changes) {
            return false;
        }
        self.seen = Some(changes);
        self.down.clear();
        let epoch = self.core.members().epoch();
        self.is_stale = epoch > 0 && self.port.epoch() > epoch;
        self.note_missed();
        self.say_what_was_lost(&reach);
        self.see_lives(&reach);
        for (at, (node, reach)) in self.core.members().nodes().zip(reach).enumerate() {
            let before = self.lives.get(at).copied().flatten();
            let is_another_life =
                self.is_call() && before.is_some() && reach.life.is_some() && reach.life != before;
            if reach.is_down || is_another_life {
                self.down.push(node);
            }
        }
        true
    }

    /// Says again what was on its way as a connection was lost, or could not be sent, to members
    /// that have a connection.
    fn say_what_was_lost(&mut self, reach: &[Reach]) {
        for (index, reach) in (0..).zip(reach) {
            let node = self.core.members().members()[usize::from(index)].node();
            let has_lost = self.said.has_lost(index, reach.lost_before);
            if reach.life.is_none() {
                if has_lost {
                    self.note_missed_at(node);
                }
                continue;
            }
            if !has_lost && !self.missed.contains(&node) {
                continue;
            }
            self.missed.retain(|missed| *missed != node);
            self.dialled.retain(|(dialled, _)| *dialled != node);
            if !mutant::is(Mutant::MissedForgotten) {
                let lacking = self.said.take_lacking(index, reach.lost_before);
                self.say_to(node, lacking);
            }
        }
    }

    /// True when too few are left because others have gone on to a later epoch, even if all who are
    /// down were not: what one liar says of its epoch is no reason.
    fn is_by_epoch(&self, phase: u16) -> bool {
        let later = self.core.later();
        self.core.silent(phase).any(|node| later.contains(&node))
            && !self.core.is_possible(phase, |_| false)
    }

    fn stale(&self) -> EchoError {
        let (epoch, later) = (self.core.members().epoch(), self.core.later().to_vec());
        EchoError::StaleEpoch { epoch, later }
    }

    fn not_reached(&self, phase: u16) -> EchoError {
        let Some(of) = self.core.plan().phase(phase) else {
            return CastRefused::UnknownPhase { phase }.into();
        };
        let is_missing = |node: &NodeId| self.down.contains(node);
        EchoError::QuorumNotReached(Box::new(QuorumNotReached {
            phase,
            name: of.name(),
            needed: of.quorum(),
            members: self.core.plan().members(),
            votes: self.core.count_max(phase),
            missing: self.core.silent(phase).filter(is_missing).collect(),
        }))
    }

    /// Members that have voted twice, so far.
    pub fn evidence(&self) -> &[Evidence] {
        self.core.evidence()
    }

    /// Number of casts that were none of this round, so far.
    pub fn refused(&self) -> Refused {
        self.core.refused()
    }

    /// Numbers of votes that the verifier refused so far, by its causes.
    pub fn refused_by_cause(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.gate.iter().flat_map(|gate| gate.refused())
    }

    /// The votes and what follows from them.
    pub fn core(&self) -> &EchoCore {
        &self.core
    }
}

/// Result of the echo phases of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EchoOutcome {
    /// Votes in the last phase when it had its quorum.
    pub votes: usize,
    /// Members that have voted twice.
    pub evidence: Vec<Evidence>,
}

/// Echoes in `phases` phases, one after the other, each of a majority of all members; then the
/// handler may reply. For crashes only: see [`EchoPlan::majority`].
///
/// ```
/// # use convoke_core::{Context, Status};
/// # use convoke_quorum::{Configuration, echo::{digest_of, echo_phases}};
/// # async fn handler(context: Context, members: Configuration, value: String)
/// # -> Result<(), Status> {
/// echo_phases(&context, &members, 1, digest_of(value.as_bytes())).await?;
/// # Ok(())
/// # }
/// ```
///
/// All that members have to agree on belongs into the digest. Where one call may ask for several
/// methods, that is the method, too: a client that asks one member for another method with the same
/// message is else taken for one that has told all the same.
///
/// A vote for which the connection to a member has no room is said again once there is, also after
/// this has resolved, until the deadline of the call.
///
/// # Errors
/// [`EchoError`]; [`EchoError::OtherValue`] when a majority has another digest than this node.
///
/// # Cancel safety
/// Dropped before it resolves, what this node has cast stands, and it casts nothing more.
pub async fn echo_phases(
    context: &Context,
    members: &Configuration,
    phases: u16,
    digest: Digest,
) -> Result<EchoOutcome, EchoError> {
    let plan = EchoPlan::majority(members.len(), phases)?;
    EchoRound::join(context, members, plan)?.agree(digest).await
}

//! The truth about an order, whatever its replicas believe, and the properties that must hold.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use convoke::NodeId;

use super::machine::TWICE;
use crate::core::{
    Batch, Changed, ClientId, Digest, Executed, Forgotten, Handover, Members, Message, NewView,
    Outcome, Phase, Plan, Record, Request, Sequence, View, Vote,
};
use crate::wire;

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two batches in one place.
    #[error("{node} executes {second:?} in place {sequence}, where {first:?} was executed before")]
    TwoBatches {
        /// The second replica.
        node: NodeId,
        /// The place.
        sequence: Sequence,
        /// The first batch.
        first: Digest,
        /// The second batch.
        second: Digest,
    },
    /// Two batches are prepared in one place of one view.
    #[error("{node} has {second:?} prepared in view {view}, place {sequence}; another {first:?}")]
    TwoPrepared {
        /// The second replica.
        node: NodeId,
        /// The view.
        view: View,
        /// The place.
        sequence: Sequence,
        /// The first batch.
        first: Digest,
        /// The second batch.
        second: Digest,
    },
    /// A replica that does not lie has voted twice.
    #[error("{node} contradicts itself: {first:?}, then {second:?}")]
    Contradiction {
        /// The replica.
        node: NodeId,
        /// Its first vote.
        first: Vote,
        /// Its second vote.
        second: Vote,
    },
    /// A replica that does not lie, and keeps its ledger, does not know what it has signed.
    #[error("{node} does not know of {forgotten}, which it has signed")]
    Forgets {
        /// The replica.
        node: NodeId,
        /// Its words.
        forgotten: Forgotten,
    },
    /// A vote above the upper watermark.
    #[error("{node} votes for place {sequence}, and the last open one is {last}")]
    AboveWatermark {
        /// The replica.
        node: NodeId,
        /// The place.
        sequence: Sequence,
        /// The upper watermark.
        last: Sequence,
    },
    /// A view that begins with something else than what follows from who wanted it.
    #[error("{node} begins view {view} with another plan than follows")]
    OtherPlan {
        /// The replica.
        node: NodeId,
        /// The view.
        view: View,
    },
    /// A view that begins without what was committed before.
    #[error("{node} begins view {view} without {digest:?} of place {sequence}, which is committed")]
    Lost {
        /// The replica.
        node: NodeId,
        /// The view.
        view: View,
        /// The place.
        sequence: Sequence,
        /// The batch.
        digest: Digest,
    },
    /// Two states behind one place.
    #[error("{node} claims another state behind place {sequence} than was claimed before")]
    TwoStates {
        /// The second replica.
        node: NodeId,
        /// The place.
        sequence: Sequence,
    },
    /// A request that was executed again, or twice with other results.
    #[error("{node} executes request {number} of {client:?} again, in place {sequence}")]
    Twice {
        /// The replica.
        node: NodeId,
        /// The place.
        sequence: Sequence,
        /// The client.
        client: ClientId,
        /// The request's number.
        number: u64,
    },
    /// Two changes of one epoch, or members that nobody has decided on.
    #[error("{node} begins or expects epoch {epoch} otherwise than was decided")]
    OtherMembers {
        /// The replica.
        node: NodeId,
        /// The epoch.
        epoch: u64,
    },
    /// A batch that is prepared behind the end of its epoch.
    #[error("{node} has a batch prepared in epoch {epoch}, place {sequence}, behind its end {end}")]
    BehindEnd {
        /// The replica.
        node: NodeId,
        /// The epoch.
        epoch: u64,
        /// The place.
        sequence: Sequence,
        /// The last place of the epoch.
        end: Sequence,
    },
    /// A request that its client never made.
    #[error("{node} executes request {number} of {client:?}, which made none of that number")]
    NotAsked {
        /// The replica.
        node: NodeId,
        /// The client.
        client: ClientId,
        /// The request's number.
        number: u64,
    },
    /// A client believes what no replica has executed that does not lie.
    #[error(
        "{client:?} takes {outcome:?} for the outcome of its request {number}, which it is not"
    )]
    NotExecuted {
        /// The client.
        client: ClientId,
        /// The request's number.
        number: u64,
        /// Its belief.
        outcome: Outcome,
    },
    /// Views that go on changing, though nothing is broken any more.
    #[error("views rise by {0} in seconds in which only liars are at fault")]
    Unstable(u64),
    /// No progress, though nothing is broken any more.
    #[error("requests are not executed after all has healed: {0}")]
    Stuck(String),
}

#[derive(Debug)]
pub(super) struct Truth {
    window: u64,
    executed: BTreeMap<Sequence, Digest>,
    prepared: BTreeMap<(View, Sequence), Digest>,
    /// In which epoch and view, and the batch: the views of each epoch begin at 0.
    committed: BTreeMap<Sequence, ((u64, View), Digest)>,
    votes: BTreeMap<(NodeId, Phase, View, Sequence), Vote>,
    states: BTreeMap<Sequence, Digest>,
    /// Batches that were kept somewhere.
    batches: BTreeMap<Digest, Batch>,
    /// Operations that clients wanted: a client that lies may want several by one number.
    asked: BTreeMap<(ClientId, u64), BTreeSet<Bytes>>,
    results: BTreeMap<(ClientId, u64), Bytes>,
    /// The client whose requests change the members.
    administrator: Option<ClientId>,
    /// Members of each epoch but the first, and the last place of the one before.
    changes: BTreeMap<u64, (Members, Sequence)>,
    /// The last place of each epoch in which something was prepared, and where.
    last: BTreeMap<u64, (Sequence, NodeId)>,
    /// Plans with which a view of an epoch has begun somewhere.
    plans: BTreeMap<(u64, View), Vec<Plan>>,
}

impl Truth {
    pub(super) fn new(window: u64, administrator: Option<ClientId>) -> Self {
        Self {
            window,
            executed: BTreeMap::new(),
            prepared: BTreeMap::new(),
            committed: BTreeMap::new(),
            votes: BTreeMap::new(),
            states: BTreeMap::new(),
            batches: BTreeMap::new(),
            asked: BTreeMap::new(),
            results: BTreeMap::new(),
            administrator,
            changes: BTreeMap::new(),
            last: BTreeMap::new(),
            plans: BTreeMap::new(),
        }
    }

    /// Count of views that have begun with one plan at some replicas and with another at others.
    pub(super) fn parted(&self) -> u64 {
        self.plans.values().filter(|plans| plans.len() > 1).count() as u64
    }

    /// A client has made a request.
    pub(super) fn asked(&mut self, client: ClientId, number: u64, operation: Bytes) {
        self.asked.entry((client, number)).or_default().insert(operation);
    }

    /// Words of a replica that does not lie leave it. All up to `low` is stable there.
    pub(super) fn said(
        &mut self,
        node: NodeId,
        message: &Message,
        low: Sequence,
    ) -> Result<(), Violation> {
        match message {
            Message::Propose(vote, _) | Message::Outline(vote, _) | Message::Vote(vote) => {
                self.voted(node, *vote, low)
            }
            Message::Checkpoint(claim) => {
                let first = *self.states.entry(claim.sequence).or_insert(claim.digest);
                let sequence = claim.sequence;
                let is_same = first == claim.digest;
                if is_same { Ok(()) } else { Err(Violation::TwoStates { node, sequence }) }
            }
            _ => Ok(()),
        }
    }

    fn voted(&mut self, node: NodeId, vote: Vote, low: Sequence) -> Result<(), Violation> {
        let last = low.plus(self.window);
        if vote.sequence > last {
            return Err(Violation::AboveWatermark { node, sequence: vote.sequence, last });
        }
        let key = (node, vote.phase, vote.view, vote.sequence);
        let first = *self.votes.entry(key).or_insert(vote);
        if first == vote {
            return Ok(());
        }
        Err(Violation::Contradiction { node, first, second: vote })
    }

    /// A replica that does not lie appends a record.
    pub(super) fn appended(
        &mut self,
        node: NodeId,
        record: &Record,
        plan: &Plan,
        epoch: u64,
    ) -> Result<(), Violation> {
        match record {
            Record::Prepared(proof) => {
                self.prepared_in(node, epoch, proof.sequence)?;
                let (view, sequence, second) = (proof.view, proof.sequence, proof.digest);
                let first = *self.prepared.entry((view, sequence)).or_insert(second);
                if first != second {
                    return Err(Violation::TwoPrepared { node, view, sequence, first, second });
                }
            }
            Record::Committed(vote) => {
                let committed = ((epoch, vote.view), vote.digest);
                self.committed.entry(vote.sequence).or_insert(committed);
            }
            Record::Entered(signed) => self.entered(node, (epoch, &signed.body), plan)?,
            Record::Batch(batch) => {
                self.batches.insert(batch.digest(), batch.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn prepared_in(
        &mut self,
        node: NodeId,
        epoch: u64,
        sequence: Sequence,
    ) -> Result<(), Violation> {
        let last = self.last.entry(epoch).or_insert((sequence, node));
        *last = (*last).max((sequence, node));
        self.is_within(epoch)
    }

    /// Looks whether all that was prepared in an epoch is before its end.
    fn is_within(&self, epoch: u64) -> Result<(), Violation> {
        let end = self.changes.get(&(epoch + 1)).map(|(_, end)| *end);
        match (self.last.get(&epoch), end) {
            (Some((sequence, node)), Some(end)) if *sequence > end => {
                Err(Violation::BehindEnd { node: *node, epoch, sequence: *sequence, end })
            }
            _ => Ok(()),
        }
    }

    /// A replica that does not lie has executed a request of the administrator.
    fn changed(&mut self, node: NodeId, result: &Bytes) -> Result<(), Violation> {
        let Ok(Changed::Taken(members, end)) = wire::decode(result.clone()) else { return Ok(()) };
        let epoch = members.epoch;
        let first = self.changes.entry(epoch).or_insert_with(|| (members.clone(), end));
        if *first != (members, end) {
            return Err(Violation::OtherMembers { node, epoch });
        }
        self.is_within(epoch - 1)
    }

    /// A replica that does not lie begins an epoch.
    pub(super) fn epoch_begun(&self, node: NodeId, handover: &Handover) -> Result<(), Violation> {
        let (epoch, end) = (handover.epoch(), handover.stable.checkpoint.sequence);
        match self.changes.get(&epoch) {
            Some((members, at)) if *members == handover.members && *at == end => Ok(()),
            _ => Err(Violation::OtherMembers { node, epoch }),
        }
    }

    fn entered(
        &mut self,
        node: NodeId,
        (epoch, new_view): (u64, &NewView),
        plan: &Plan,
    ) -> Result<(), Violation> {
        let view = new_view.view;
        if *plan != expected(new_view) {
            return Err(Violation::OtherPlan { node, view });
        }
        for (sequence, (of, digest)) in self.committed.range(plan.low.next()..) {
            if *of < (epoch, view) && plan.bound.get(sequence) != Some(digest) {
                let (sequence, digest) = (*sequence, *digest);
                return Err(Violation::Lost { node, view, sequence, digest });
            }
        }
        let plans = self.plans.entry((epoch, view)).or_default();
        if !plans.contains(plan) {
            plans.push(plan.clone());
        }
        Ok(())
    }

    /// A replica that does not lie has executed a batch.
    pub(super) fn executed(
        &mut self,
        node: NodeId,
        sequence: Sequence,
        second: Digest,
        outcomes: &[Executed],
    ) -> Result<(), Violation> {
        let first = *self.executed.entry(sequence).or_insert(second);
        if first != second {
            return Err(Violation::TwoBatches { node, sequence, first, second });
        }
        let requests = self.batches.get(&second).map(Batch::requests).unwrap_or_default();
        for (signed, executed) in requests.iter().zip(outcomes) {
            let Request { client, number, ref operation } = signed.request;
            let asked = self.asked.get(&(client, number));
            // Under a number that is decided nothing runs, whatever stands there.
            if executed.is_new && asked.is_none_or(|asked| !asked.contains(operation)) {
                return Err(Violation::NotAsked { node, client, number });
            }
        }
        for Executed { client, number, outcome, .. } in outcomes {
            let (client, number) = (*client, *number);
            if !self.asked.contains_key(&(client, number)) {
                return Err(Violation::NotAsked { node, client, number });
            }
            let Outcome::Done(result) = outcome else { continue };
            if self.administrator == Some(client) {
                self.changed(node, result)?;
            }
            let first = self.results.entry((client, number)).or_insert_with(|| result.clone());
            if first != result || &result[..] == TWICE {
                return Err(Violation::Twice { node, sequence, client, number });
            }
        }
        Ok(())
    }

    /// A client believes an outcome.
    pub(super) fn accepted(
        &self,
        client: ClientId,
        number: u64,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let result = self.results.get(&(client, number));
        match &outcome {
            Outcome::Done(done) if result == Some(done) => Ok(()),
            _ => Err(Violation::NotExecuted { client, number, outcome }),
        }
    }
}

/// The plan that follows from who wanted a view, worked out place by place.
fn expected(new_view: &NewView) -> Plan {
    let changes = || new_view.changes.iter().map(|change| &change.body);
    let low = changes().map(|change| change.stable.checkpoint.sequence).max().unwrap_or_default();
    let proofs = || changes().flat_map(|change| &change.prepared);
    let high = proofs().map(|proof| proof.sequence).max().unwrap_or_default().max(low);
    let of = |sequence| {
        let here = proofs().filter(|proof| proof.sequence == sequence);
        let best = here.max_by_key(|proof| proof.view).map(|proof| proof.digest);
        (sequence, best.unwrap_or_else(|| Batch::null().digest()))
    };
    Plan { low, high, bound: (low.0 + 1..=high.0).map(Sequence).map(of).collect() }
}

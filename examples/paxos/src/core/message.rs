//! Questions that nodes ask each other, and the answers. Each answer says what it answers, so that
//! it needs no number: a late one and a copy are recognised by their ballot.

use super::ballot::{Ballot, Life, Slot, Value};
use super::membership::Membership;

/// A question to another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Would you have me lead? Changes nothing; asked before a ballot, so that a node that nobody
    /// else misses its leader with disturbs nobody.
    Canvass {
        /// The ballot it would be.
        ballot: Ballot,
    },
    /// Phase 1 for all slots from `from` on.
    Prepare {
        /// The ballot.
        ballot: Ballot,
        /// The first slot that the asker does not know to be chosen.
        from: Slot,
    },
    /// Phase 2 for some slots in order; without values a heartbeat.
    Accept {
        /// The ballot.
        ballot: Ballot,
        /// The slot of the first value.
        first: Slot,
        /// Values of the slots from `first` on.
        values: Vec<Value>,
        /// All slots up to this one are chosen: each with what was proposed for it in this ballot,
        /// if anything was.
        chosen: Slot,
        /// Counts the leader's rounds, so that it knows which one an answer followed.
        beat: u64,
    },
    /// Asks for chosen values.
    CatchUp {
        /// The first one that is missed.
        from: Slot,
    },
    /// Asks to become leader at once: the leader is about to end.
    TakeOver {
        /// The ballot of who asks.
        ballot: Ballot,
    },
}

/// An answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To [`Ask::Canvass`].
    Canvassed {
        /// The ballot it would be.
        ballot: Ballot,
        /// True when the node misses a leader, too, and has promised nothing later.
        supports: bool,
        /// The greatest ballot it has promised.
        promised: Ballot,
        /// The node's own log is known up to here.
        chosen: Slot,
    },
    /// To [`Ask::Prepare`]: nothing of an earlier ballot will be accepted.
    Promise {
        /// The ballot.
        ballot: Ballot,
        /// The ledger that the promise is in.
        life: Life,
        /// All up to here are known to be chosen, and left out.
        chosen: Slot,
        /// Slots from there on in which something was accepted, in order.
        accepted: Vec<Accepted>,
        /// The slot to ask from for the rest, if there is more than fits a message.
        more: Option<Slot>,
    },
    /// To [`Ask::Accept`].
    Accepted {
        /// The ballot.
        ballot: Ballot,
        /// The ledger that the votes are in.
        life: Life,
        /// The first slot that was asked for.
        first: Slot,
        /// Slots accepted from there on: all that were asked for, or none.
        count: u64,
        /// All slots up to here are known to be chosen, or were accepted in this ballot.
        accepted: Slot,
        /// The node's own log is known up to here, and its ledger has that.
        chosen: Slot,
        /// The round of the question.
        beat: u64,
    },
    /// To [`Ask::Prepare`] and [`Ask::Accept`]: a later ballot was promised.
    Refused {
        /// The ballot that was asked for.
        ballot: Ballot,
        /// The one that was promised.
        promised: Ballot,
    },
    /// To [`Ask::CatchUp`]: values that are chosen.
    Chosen {
        /// The slot of the first.
        first: Slot,
        /// Values from `first` on.
        values: Vec<Value>,
        /// The node's own log is known up to here.
        chosen: Slot,
    },
    /// To [`Ask::CatchUp`]: the values are in a snapshot only.
    Trimmed {
        /// The snapshot has all up to here.
        trimmed: Slot,
    },
    /// To [`Ask::TakeOver`]: understood.
    TakingOver,
    /// To any: the asker is no member as far as this node knows, or asks as one of a configuration
    /// that is over. Nothing was done.
    OtherEpoch {
        /// The configuration of this node.
        epoch: u64,
        /// True when the asker is a member of it, or of the one that comes.
        is_member: bool,
        /// The node's own log is known up to here.
        chosen: Slot,
    },
}

/// A slot in which something was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// The slot.
    pub slot: Slot,
    /// The ballot in which it was accepted.
    pub ballot: Ballot,
    /// The value.
    pub value: Value,
}

/// An entry of a ledger. Replayed in order, they bring back what a node must not forget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The number of this ledger; its first record.
    Life(Life),
    /// Nothing of an earlier ballot will be accepted.
    Promised(Ballot),
    /// Accepted; also a promise.
    Accepted {
        /// The ballot.
        ballot: Ballot,
        /// The slot of the first value.
        first: Slot,
        /// Values from `first` on.
        values: Vec<Value>,
    },
    /// Slots up to `upto` are chosen; those not known before, with what was accepted in `ballot`.
    Chosen {
        /// The ballot.
        ballot: Ballot,
        /// The last slot.
        upto: Slot,
    },
    /// Chosen values that others told.
    Learned {
        /// The slot of the first.
        first: Slot,
        /// Values from `first` on.
        values: Vec<Value>,
    },
    /// The start of a snapshot: all up to here is in it.
    Trimmed {
        /// The last slot in it.
        upto: Slot,
        /// The members that it has decided on.
        membership: Membership,
    },
}

//! Readiness: what a node lacks to be one that the others can count on.

use std::fmt;

use crate::core::{Part, Replica, Standing};

/// The reason the others should not do without another node beside this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// It knows of no leader.
    Leader,
    /// It is no member.
    Membership,
    /// Its ledger is another than the one that is counted.
    Ledger,
    /// It has joined, and learns what it is to vote about.
    Vote,
    /// It is further behind than it votes, or fetches a snapshot.
    Log,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "no leader is known",
            Self::Membership => "it is no member: `paxos member add` lets it join",
            Self::Ledger => {
                "its ledger was lost, and its votes do not count until `paxos member add` lets it \
                 join again"
            }
            Self::Vote => "it has joined, and does not vote before it has caught up",
            Self::Log => "it is far behind, and catches up",
        })
    }
}

/// The first thing that a node lacks. One that only learns, by `--learner`, lacks no vote.
pub(super) fn lacking(replica: &Replica) -> Option<Lacking> {
    match replica.standing() {
        Standing::Leaderless => return Some(Lacking::Leader),
        Standing::Outside => return Some(Lacking::Membership),
        Standing::Following(_) | Standing::Leading(_) => {}
    }
    match replica.part() {
        Some(Part::Joining) => Some(Lacking::Vote),
        Some(Part::Voter(_)) if !replica.votes() => Some(Lacking::Ledger),
        _ => replica.is_far_behind().then_some(Lacking::Log),
    }
}

//! Readiness: what a node lacks to be one that the others can count on.

use std::fmt;

use crate::core::{Part, Replica, Standing};

/// The reason the others should not do without another node beside this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// It knows of no leader.
    Leader,
    /// It does not know yet who the members are.
    Members,
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
            Self::Members => "it does not know yet who the members are",
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

/// The first thing that a node lacks. One that only learns, by `--learner`, lacks no vote. One that
/// was removed, or has lost its ledger, follows for a while before others tell it.
pub(super) fn lacking(replica: &Replica) -> Option<Lacking> {
    match replica.standing() {
        Standing::Leaderless => return Some(Lacking::Leader),
        Standing::Outside => return Some(Lacking::Membership),
        Standing::Following(_) | Standing::Leading(_) => {}
    }
    if replica.membership().is_none() {
        return Some(Lacking::Members);
    }
    match replica.part() {
        None => Some(Lacking::Membership),
        Some(Part::Joining) => Some(Lacking::Vote),
        Some(Part::Voter(_)) if !replica.votes() => Some(Lacking::Ledger),
        Some(Part::Voter(_) | Part::Learner) => replica.is_far_behind().then_some(Lacking::Log),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use convoke::NodeId;

    use super::*;
    use crate::core::{
        Ask, Ballot, Lives, Member, Members, Membership, Record, Settings, Slot, Value,
    };

    const NOW: Duration = Duration::ZERO;

    /// Node 1, with the first ledger that it has had, by its log.
    fn node(log: Vec<Value>) -> Replica {
        let mut replica = Replica::new(Settings::new(NodeId::new(1), (1..=3).map(NodeId::new)), 1);
        replica.replay(Record::Learned { first: Slot::FIRST, values: log });
        replica.start(NOW);
        replica
    }

    /// The log of a cluster in which node 1 has this part, and two others vote.
    fn log(part: Option<Part>) -> Vec<Value> {
        let lives: Lives = (2..=3).map(|node| (NodeId::new(node), node)).collect();
        let mut members = Members::formed(&lives);
        let own = part.map(|part| (NodeId::new(1), Member { part, addresses: Vec::new() }));
        members.nodes.extend(own);
        vec![Value::Formation(Membership::new(32, members).into())]
    }

    /// Hears node 2, which leads and knows that all up to here is chosen.
    fn follow(replica: &mut Replica, chosen: Slot) {
        let ballot = Ballot { round: 1, node: 2 };
        let first = chosen.next();
        let ask = Ask::Accept { ballot, first, values: Vec::new(), chosen, beat: 1 };
        replica.handle_ask(NOW, NodeId::new(2), 1, (replica.epoch(), ask));
        assert_eq!(replica.standing(), Standing::Following(NodeId::new(2)));
    }

    #[test]
    fn a_node_that_follows_is_ready_by_its_part() {
        for (part, lacks) in [
            (Some(Part::Voter(1)), None),
            (Some(Part::Voter(2)), Some(Lacking::Ledger)),
            (Some(Part::Joining), Some(Lacking::Vote)),
            (Some(Part::Learner), None),
            (None, Some(Lacking::Membership)),
        ] {
            let mut replica = node(log(part));
            assert_eq!(lacking(&replica), Some(Lacking::Leader), "{part:?}");
            follow(&mut replica, Slot::FIRST);
            assert_eq!(lacking(&replica), lacks, "{part:?}");
        }
    }

    /// Its ledger was lost, and the log is short: it is not far behind.
    #[test]
    fn a_node_that_knows_of_no_members_is_not_ready() {
        let mut replica = node(Vec::new());
        follow(&mut replica, Slot(5));
        assert!(!replica.is_far_behind());
        assert_eq!(lacking(&replica), Some(Lacking::Members));
    }
}

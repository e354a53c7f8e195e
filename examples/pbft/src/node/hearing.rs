//! Hearing: how far the others are, before this replica counts itself among them.
//!
//! ```text
//!   starts ──▶ hears a quorum, itself with it ──▶ ready, once it has the state
//!      └─ its ledger knows of nothing it has said: it votes for nothing meanwhile, and listens
//!           └─ its own signature under what it does not know ──▶ LostLedger, at every start
//! ```
//! A ledger that knows of no words of its replica is one of a replica that starts for the first
//! time, or was lost. Without it a replica may contradict what it has said, so that it counts as
//! one that lies. Nothing tells the two apart but words of the replica that others still have. So
//! it waits for those before it says anything that binds it, and keeps nothing meanwhile by which
//! the next start could take its ledger for one that knows all.

use std::collections::BTreeSet;

use convoke::NodeId;

use super::actor::Input;
use crate::core::{Message, Replica, Sequence, Signed};
use crate::kv::Machine;

/// Requests that are kept while a replica listens. Clients make those beyond once more.
const KEPT_MAX: usize = 1_024;

/// Members that were heard.
#[derive(Debug)]
pub(super) struct Hearing {
    heard: BTreeSet<NodeId>,
    /// A quorum was heard, this replica with it.
    is_enough: bool,
    /// Requests that came while it listens; `None` where its ledger knows what it has said.
    kept: Option<Vec<Input>>,
    /// It is one of the first members, with an empty ledger, and nobody is known to be ahead.
    is_level: bool,
}

impl Hearing {
    /// That of a replica which is about to start, with a ledger that knows of nothing it has said,
    /// or of all.
    pub(super) fn new(replica: &Replica<Machine>, is_blank: bool) -> Self {
        let mut hearing = Self {
            heard: BTreeSet::new(),
            is_enough: false,
            kept: is_blank.then(Vec::new),
            is_level: is_blank && replica.takes_part(),
        };
        hearing.count(replica);
        hearing
    }

    /// True while the replica is to say nothing that binds it.
    pub(super) fn is_listening(&self) -> bool {
        self.kept.is_some()
    }

    /// True once a quorum was heard.
    pub(super) fn is_enough(&self) -> bool {
        self.is_enough
    }

    /// Keeps a request for later.
    pub(super) fn keep(&mut self, request: Input) {
        if let Some(kept) = self.kept.as_mut().filter(|kept| kept.len() < KEPT_MAX) {
            kept.push(request);
        }
    }

    /// Hears words of a member: its report counts once this replica knows all that is stable there,
    /// and so does the proof of that. The report of a later view counts while it listens alone: it
    /// is not told then how that has begun.
    pub(super) fn hear(&mut self, words: &Signed<Message>, replica: &Replica<Machine>) {
        if self.is_enough || words.epoch != replica.epoch() {
            return;
        }
        let known = replica.stable().checkpoint.sequence;
        let counts = |view| view <= replica.view().0 || self.is_listening();
        let place = match &words.body {
            Message::Stable(stable) => stable.checkpoint.sequence,
            Message::Status(status) if status.stable <= known && counts(status.view) => status.done,
            _ => return,
        };
        self.heard.insert(words.by);
        self.count(replica);
        if self.is_level && place > Sequence(0) {
            self.is_level = false;
            tracing::warn!(
                "the ledger was empty at the start, and {} has come to place {place}: if this \
                 replica has taken part before, its ledger was lost, which counts as a fault. Stop \
                 it then, and let another take its place, with a key of its own: `pbft member add \
                 .. --in-place-of`",
                words.by
            );
        }
    }

    /// Another epoch has begun: who listens may have said something in that one, too.
    pub(super) fn begin_epoch(&mut self) {
        self.is_level = false;
        if self.is_listening() {
            self.heard.clear();
        }
    }

    /// Ends the listening once a quorum was heard, and gives the requests that came meanwhile.
    pub(super) fn take_part(&mut self) -> Vec<Input> {
        let kept = self.kept.take_if(|_| self.is_enough);
        kept.unwrap_or_default()
    }

    fn count(&mut self, replica: &Replica<Machine>) {
        let members = replica.members();
        let heard = self.heard.iter().filter(|node| members.nodes.contains_key(node)).count();
        let quorum = members.group().map(|group| group.quorum());
        self.is_enough = replica.takes_part() && quorum.is_ok_and(|quorum| heard + 1 >= quorum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Group, Settings, Signature, Status, View};

    /// True when two of four have told a replica in the first view that they are in this one, and
    /// that is a quorum with it.
    fn is_enough(is_blank: bool, view: u64) -> bool {
        let group = Group::new((1..=4).map(NodeId::new)).expect("there are members");
        let replica = Replica::new(Settings::new(NodeId::new(1), group, []), Machine::default());
        let mut hearing = Hearing::new(&replica, is_blank);
        let (view, nothing) = (View(view), Sequence(0));
        let status = Status { view, is_changing: false, stable: nothing, done: nothing };
        for by in [2, 3].map(NodeId::new) {
            let (epoch, body) = (replica.epoch(), Message::Status(status));
            hearing.hear(&Signed { epoch, by, body, signature: Signature([0; 64]) }, &replica);
        }
        hearing.is_enough()
    }

    #[test]
    fn reports_of_a_later_view_count_for_who_listens_alone() {
        assert!(is_enough(false, 0) && is_enough(true, 0));
        assert!(!is_enough(false, 1), "it would be ready in a view that is over");
        assert!(is_enough(true, 1), "it would listen for ever");
    }
}

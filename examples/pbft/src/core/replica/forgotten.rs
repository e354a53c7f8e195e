//! Proof that a ledger was lost: this node's own signature under what it does not know.
//!
//! A node claims a checkpoint once it has executed all before it, and wants a view once it has left
//! those before it; both are durable by then. So whatever it has signed it knows for ever, unless
//! its ledger was lost, or put back as it was earlier. Such a node may contradict what it has said.

use std::fmt;

use super::Replica;
use crate::core::group::{Sequence, View};
use crate::core::handover::Handover;
use crate::core::keys::Signed;
use crate::core::message::{Message, Stable, ViewChange};
use crate::core::state::Machine;

/// Something that a node has signed, and that its ledger does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgotten {
    /// A claim about the state at this checkpoint.
    Checkpoint(Sequence),
    /// Its word that it wants this view.
    View(View),
}

impl fmt::Display for Forgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(sequence) => write!(f, "checkpoint {sequence}"),
            Self::View(view) => write!(f, "its word that it wants view {view}"),
        }
    }
}

impl<M: Machine> Replica<M> {
    /// The proof in verified words of a member, before they are taken, that this node has forgotten
    /// something.
    pub fn forgotten(&self, words: &Signed<Message>) -> Option<Forgotten> {
        if words.epoch != self.epoch {
            return None; // nothing in them counts any more
        }
        match &words.body {
            Message::Stable(stable) => self.forgotten_claim(stable),
            Message::ViewChange(change) => self.forgotten_claim(&change.stable),
            Message::NewView(new_view) => {
                let mut changes = new_view.changes.iter();
                changes.find_map(|change| self.forgotten_change(change))
            }
            _ => None,
        }
    }

    /// The same of the proof that this epoch has ended. Who is no member of the next one may have
    /// forgotten what it likes: nobody counts its words.
    pub fn forgotten_in(&self, handover: &Handover) -> Option<Forgotten> {
        let is_next = handover.epoch() == self.epoch + 1;
        let stays = handover.members.nodes.contains_key(&self.settings.node);
        (is_next && stays).then(|| self.forgotten_claim(&handover.stable)).flatten()
    }

    fn forgotten_claim(&self, stable: &Stable) -> Option<Forgotten> {
        let sequence = stable.checkpoint.sequence;
        let is_own = stable.signatures.contains_key(&self.settings.node);
        (is_own && sequence > self.executed).then_some(Forgotten::Checkpoint(sequence))
    }

    fn forgotten_change<C: AsRef<ViewChange>>(&self, change: &Signed<C>) -> Option<Forgotten> {
        let Signed { by, body, .. } = change;
        let ViewChange { view, stable, .. } = body.as_ref();
        let wants_later = *by == self.settings.node && *view > self.view;
        let wanted = wants_later.then_some(Forgotten::View(*view));
        wanted.or_else(|| self.forgotten_claim(stable))
    }
}

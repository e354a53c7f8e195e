//! A branch that a task opens.

use crate::encoded::Encoded;
use crate::id::{MethodId, NodeId};
use crate::time::Timestamp;
use crate::wire::{Extension, extension};

/// A branch that a task wants opened.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The node to ask.
    pub to: NodeId,
    /// The method to run there.
    pub method: MethodId,
    /// The request message.
    pub payload: Encoded,
    /// Replace those of the task's own request with the same tag.
    pub extensions: Vec<Extension>,
    /// Earlier than the task's own, if given.
    pub deadline: Option<Timestamp>,
}

impl Branch {
    /// Moves message and extensions out.
    pub fn take(&mut self) -> Self {
        let Self { to, method, deadline, .. } = *self;
        let payload = std::mem::take(&mut self.payload);
        Self { to, method, payload, extensions: std::mem::take(&mut self.extensions), deadline }
    }

    /// Its deadline, within that of its task.
    pub(crate) fn deadline_within(&self, of_task: Timestamp) -> Timestamp {
        self.deadline.map_or(of_task, |deadline| deadline.min(of_task))
    }

    /// Adds the task's own extensions, but for tags that the branch sets, and for the client that
    /// asked this node: whoever is asked next is asked by the node.
    pub(crate) fn inherit(&mut self, own: &[Extension]) {
        let set = self.extensions.len();
        for old in own {
            let is_set = self.extensions[..set].iter().any(|new| new.tag == old.tag);
            if old.tag != extension::CLIENT && !is_set {
                self.extensions.push(old.clone());
            }
        }
    }
}

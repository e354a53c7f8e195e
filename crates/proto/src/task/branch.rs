//! A branch that a task opens.

use crate::encoded::Encoded;
use crate::id::{MethodId, NodeId};
use crate::metadata;
use crate::time::Timestamp;
use crate::wire::{Extension, extension};

use super::SendError;

/// A branch that a task wants opened.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The node to ask.
    pub to: NodeId,
    /// The method to run there.
    pub method: MethodId,
    /// The request message.
    pub payload: Encoded,
    /// Replace those of the task's own request with the same tag; of metadata, pairs those of the
    /// same key.
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

    /// Adds the task's own extensions, but for those that the branch sets, and for the client that
    /// asked this node: whoever is asked next is asked by the node.
    ///
    /// # Errors
    /// [`SendError::MetadataTooLarge`] where both have more metadata than one may; then nothing was
    /// added.
    pub(crate) fn inherit(&mut self, own: &[Extension]) -> Result<(), SendError> {
        let set = self.extensions.len();
        for old in own {
            let is_set = self.extensions[..set].iter().any(|new| metadata::replaces(new, old));
            if old.tag != extension::CLIENT && !is_set {
                self.extensions.push(old.clone());
            }
        }
        metadata::check(&self.extensions).map_err(|(size, limit)| {
            self.extensions.truncate(set);
            SendError::MetadataTooLarge { size, limit }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &[u8])]) -> Vec<Extension> {
        let mut extensions = Vec::new();
        for (key, value) in pairs {
            metadata::push(&mut extensions, key, value).unwrap();
        }
        extensions
    }

    fn branch(of: &[(&str, &[u8])]) -> Branch {
        let (to, method, payload) = (NodeId::new(2), MethodId(7), Encoded::default());
        Branch { to, method, payload, extensions: pairs(of), deadline: None }
    }

    #[test]
    fn a_branch_has_the_pairs_of_its_task_but_for_those_of_its_own_keys() {
        let of_task = pairs(&[("tenant", b"a"), ("step", b"1"), ("step", b"2"), ("st", b"")]);
        let mut own = branch(&[("step", b"3")]);
        own.inherit(&of_task).unwrap();
        assert_eq!(own.extensions, pairs(&[("step", b"3"), ("tenant", b"a"), ("st", b"")]));
        let mut bare = branch(&[]);
        bare.inherit(&of_task).unwrap();
        assert_eq!(bare.extensions, of_task);
    }

    #[test]
    fn a_branch_and_its_task_have_no_more_metadata_than_one_may() {
        let (of_task, mut own) = (pairs(&[("a", &[7; 9_000])]), branch(&[("b", &[7; 9_000])]));
        let before = own.extensions.clone();
        let refused = own.inherit(&of_task);
        assert_eq!(refused, Err(SendError::MetadataTooLarge { size: 18_004, limit: 16_000 }));
        assert_eq!(own.extensions, before);
        branch(&[("a", &[7; 9_000])]).inherit(&of_task).unwrap();
    }
}

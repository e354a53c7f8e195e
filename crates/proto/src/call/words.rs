//! Room for what failures of a call say besides which branch failed and why.
//!
//! Every failure is told, whatever there is room for. Its text, details and metadata are as long as
//! the node that failed likes, and a task may open thousands of branches that fail: so a call keeps
//! of them as many bytes as of unread replies, and a root branch has its share of that (`trust.md`
//! T10). A failure beyond it is told without words.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::failure::Failure;
use super::super::flow::cost_of;
use super::super::metadata::Extensions;

/// Bytes that failures of a call have taken.
#[derive(Debug)]
pub(super) struct Words {
    max: u64,
    used: u64,
    of_root: BTreeMap<u32, u64>,
}

impl Words {
    pub(super) fn new(max: u64) -> Self {
        Self { max, used: 0, of_root: BTreeMap::new() }
    }

    /// Takes room for a failure, or its words from it.
    pub(super) fn admit(&mut self, failure: &mut Failure) {
        let Failure { text, details, extensions, .. } = failure;
        let bytes = (text.len() + details.len()) as u64 + cost_of(extensions.as_slice());
        if bytes == 0 {
            return;
        }
        let root = failure.task.path.indices().next().unwrap_or(0);
        let of_root = self.of_root.get(&root).copied().unwrap_or(0);
        if of_root + bytes > self.max.saturating_sub(self.used) {
            (*text, *details, *extensions) = (String::new(), Bytes::new(), Extensions::default());
            return;
        }
        self.used += bytes;
        self.of_root.insert(root, of_root + bytes);
        // A slice would keep all that came with it.
        *details = Bytes::copy_from_slice(details);
    }
}

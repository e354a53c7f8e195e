//! The arithmetic of a request tree: which branches are open, which replies are missing.
//!
//! Source: the manifests of Roo (DPC deck, "Detecting DPC Completion"), with the parent naming the
//! child. A branch is known from the moment its parent, or any frame from it or below it, names it:
//! a path implies all its prefixes, so no branch can be forgotten while something below it lives.
//!
//! ```text
//!          entry (children, replies)          all replies here, all children drained
//!   Open ──────────────────────────▶ Closed ─────────────────────────────▶ drained: one index
//!     └────────── failure ──────────────┴──▶ Failed                        in the parent's set
//! ```
//!
//! `open` counts the branches in `Open`, `missing` the replies that closed branches still owe. The
//! tree is complete when both are zero. Everything is by id, so a duplicate changes nothing and order
//! does not matter.

use std::collections::BTreeMap;

use crate::id::{NodeId, Path, TaskKey};

use super::index_set::IndexSet;
use super::mutant::{self, Mutant};

/// Where a branch is being served, as far as the initiator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// The neighbour that its frames come through, when it cannot reach the initiator itself.
    pub relay: Option<NodeId>,
}

/// How far a branch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchState {
    /// Its task may still open branches and send replies.
    Open,
    /// Its task has ended.
    Closed {
        /// Branches it opened.
        children: u32,
        /// Replies it sent.
        replies: u32,
    },
    /// It ended without a proper answer.
    Failed,
}

/// What the initiator knows of one branch.
#[derive(Clone, Debug)]
pub struct Branch {
    /// How far it is.
    pub state: BranchState,
    /// Tail transfers so far, as far as known.
    pub hop: u32,
    /// Who serves it, if known; belongs to `hop`.
    pub holder: Option<Holder>,
    /// Replies received whole.
    pub received: IndexSet,
    drained_children: IndexSet,
    known_children: u32,
}

impl Branch {
    fn new() -> Self {
        Self {
            state: BranchState::Open,
            hop: 0,
            holder: None,
            received: IndexSet::default(),
            drained_children: IndexSet::default(),
            known_children: 0,
        }
    }

    /// Replies it still owes.
    pub fn missing(&self) -> u32 {
        match self.state {
            BranchState::Closed { replies, .. } => replies - self.received.len(),
            BranchState::Open | BranchState::Failed => 0,
        }
    }

    /// Whether it still owes something.
    pub fn is_unsettled(&self) -> bool {
        self.state == BranchState::Open || self.missing() > 0
    }

    fn is_drained(&self) -> bool {
        match self.state {
            BranchState::Closed { children, .. } => {
                self.missing() == 0 && self.drained_children.len() == children
            }
            BranchState::Open | BranchState::Failed => false,
        }
    }
}

/// Why a peer's word about the tree cannot be true, or cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeFault {
    /// Two different entries, an index beyond what an entry declared, or a number beyond its bound.
    Contradiction,
    /// More branches than the call may have.
    TooManyBranches,
}

/// The request tree of one call.
#[derive(Clone, Debug)]
pub struct Tree {
    branches: BTreeMap<Path, Branch>,
    drained_roots: IndexSet,
    open: u64,
    missing: u64,
    ever: u64,
    branches_max: u32,
}

impl Tree {
    /// An empty tree that takes up to `branches_max` branches in all.
    pub fn new(branches_max: u32) -> Self {
        Self {
            branches: BTreeMap::new(),
            drained_roots: IndexSet::default(),
            open: 0,
            missing: 0,
            ever: 0,
            branches_max,
        }
    }

    /// Makes sure that `path` and all above it are known. `None` when it has been drained, that is,
    /// when nothing about it can be news.
    ///
    /// # Errors
    /// [`TreeFault`] when a closed parent did not declare it, or the call would outgrow its bound.
    pub fn ensure(&mut self, path: &Path) -> Result<Option<&mut Branch>, TreeFault> {
        if !self.branches.contains_key(path) {
            for prefix in path.prefixes() {
                if !self.ensure_one(&prefix)? {
                    return Ok(None);
                }
            }
        }
        Ok(self.branches.get_mut(path))
    }

    /// Whether `path` is known and not drained now; its parent already is.
    fn ensure_one(&mut self, path: &Path) -> Result<bool, TreeFault> {
        if self.branches.contains_key(path) {
            return Ok(true);
        }
        let (parent, index) = path.parent().ok_or(TreeFault::Contradiction)?;
        if parent.is_root() {
            if self.drained_roots.contains(index) {
                return Ok(false);
            }
        } else {
            let parent = self.branches.get_mut(&parent).expect("prefixes are ensured in order");
            if parent.drained_children.contains(index) {
                return Ok(false);
            }
            if let BranchState::Closed { children, .. } = parent.state
                && index >= children
            {
                return Err(TreeFault::Contradiction);
            }
        }
        if self.ever >= u64::from(self.branches_max) {
            return Err(TreeFault::TooManyBranches);
        }
        if let Some(parent) = self.branches.get_mut(&parent) {
            parent.known_children = parent.known_children.max(index.saturating_add(1));
        }
        self.ever += 1;
        self.open += 1;
        self.branches.insert(path.clone(), Branch::new());
        Ok(true)
    }

    /// Records who serves a branch, unless something later is known. Whether it was news.
    pub fn hold(&mut self, task: &TaskKey, holder: Holder) -> bool {
        let Some(branch) = self.branches.get_mut(&task.path) else { return false };
        let is_news = task.hop > branch.hop
            || (task.hop == branch.hop && branch.holder.is_none())
            || mutant::is(Mutant::HopIgnored);
        if is_news {
            branch.hop = task.hop;
            branch.holder = Some(holder);
        }
        is_news
    }

    /// Records that a task itself was heard of, and by which way: that is how it can be spoken to, whatever
    /// was assumed before. Whether it was news who serves the branch.
    pub fn hear(&mut self, task: &TaskKey, holder: Holder) -> bool {
        let is_news = self.hold(task, holder);
        if let Some(branch) = self.branches.get_mut(&task.path)
            && branch.hop == task.hop
        {
            branch.holder = Some(holder);
        }
        is_news
    }

    /// Records that reply `index` of a branch is here. Whether it was new.
    ///
    /// # Errors
    /// [`TreeFault::Contradiction`] when the branch declared fewer replies.
    pub fn receive(&mut self, path: &Path, index: u32) -> Result<bool, TreeFault> {
        let Some(branch) = self.branches.get_mut(path) else { return Ok(false) };
        if let BranchState::Closed { replies, .. } = branch.state
            && index >= replies
        {
            return Err(TreeFault::Contradiction);
        }
        if !branch.received.insert(index) {
            return Ok(false);
        }
        if matches!(branch.state, BranchState::Closed { .. }) {
            self.missing -= 1;
        }
        self.drain(path);
        Ok(true)
    }

    /// Applies a manifest entry: registers the children **first**, then closes the branch. Whether it
    /// was news.
    ///
    /// # Errors
    /// [`TreeFault`] when it contradicts what is known, or the call would outgrow its bound.
    pub fn close(
        &mut self,
        task: &TaskKey,
        children: u32,
        replies: u32,
    ) -> Result<bool, TreeFault> {
        let Some(branch) = self.ensure(&task.path)? else { return Ok(false) };
        match branch.state {
            BranchState::Failed => return Ok(false),
            BranchState::Closed { children: c, replies: m } => {
                let agrees = (c, m) == (children, replies) || task.hop < branch.hop;
                return if agrees { Ok(false) } else { Err(TreeFault::Contradiction) };
            }
            BranchState::Open if task.hop < branch.hop => return Ok(false),
            BranchState::Open => {}
        }
        let undeclared_reply = branch.received.last().is_some_and(|last| last >= replies);
        if undeclared_reply || branch.known_children > children {
            return Err(TreeFault::Contradiction);
        }
        if !mutant::is(Mutant::ChildrenNotRegistered) {
            self.ensure_children(&task.path, children)?;
        }
        let Some(branch) = self.branches.get_mut(&task.path) else { return Ok(false) };
        // The holder and its hop stay as they are: asked, it leads on to who has ended the branch.
        branch.state = BranchState::Closed { children, replies };
        self.open -= 1;
        self.missing += u64::from(branch.missing());
        self.drain(&task.path);
        Ok(true)
    }

    /// Ends a branch as failed, with the branches it had opened until then, which still count. Whether
    /// it was unsettled until now.
    ///
    /// # Errors
    /// [`TreeFault`] when it contradicts what is known, or the call would outgrow its bound.
    pub fn fail_with_children(&mut self, task: &TaskKey, children: u32) -> Result<bool, TreeFault> {
        let Some(branch) = self.ensure(&task.path)? else { return Ok(false) };
        if branch.state != BranchState::Open || task.hop < branch.hop {
            return Ok(false);
        }
        // Who fails may know of fewer branches than are known here: one that was cancelled before it came
        // to a new life of its node, but had run in the last.
        self.ensure_children(&task.path, children)?;
        Ok(self.fail(&task.path))
    }

    fn ensure_children(&mut self, path: &Path, children: u32) -> Result<(), TreeFault> {
        if children > self.branches_max {
            return Err(TreeFault::TooManyBranches);
        }
        for index in 0..children {
            let child = path.child(index).map_err(|_| TreeFault::Contradiction)?;
            self.ensure_one(&child)?;
        }
        Ok(())
    }

    /// Ends a branch as failed: it owes nothing any more. Known branches below it still count. Whether
    /// it was unsettled until now.
    pub fn fail(&mut self, path: &Path) -> bool {
        let Some(branch) = self.branches.get_mut(path) else { return false };
        if !branch.is_unsettled() {
            return false;
        }
        match branch.state {
            BranchState::Open => self.open -= 1,
            BranchState::Closed { .. } | BranchState::Failed => {
                self.missing -= u64::from(branch.missing());
            }
        }
        branch.state = BranchState::Failed;
        true
    }

    /// Drops a subtree that is not wanted any more, its top included.
    pub fn prune(&mut self, top: &Path) {
        let below: Vec<Path> = self.below(top).map(|(path, _)| path.clone()).collect();
        for path in below {
            if let Some(branch) = self.branches.remove(&path) {
                self.open -= u64::from(branch.state == BranchState::Open);
                self.missing -= u64::from(branch.missing());
            }
        }
        self.note_drained(top);
        if let Some((parent, _)) = top.parent() {
            self.drain(&parent);
        }
    }

    /// Collapses a settled branch into its parent's set, and the parent likewise.
    fn drain(&mut self, path: &Path) {
        let mut path = path.clone();
        while self.branches.get(&path).is_some_and(Branch::is_drained) {
            self.branches.remove(&path);
            self.note_drained(&path);
            match path.parent() {
                Some((parent, _)) => path = parent,
                None => return,
            }
        }
    }

    fn note_drained(&mut self, path: &Path) {
        let Some((parent, index)) = path.parent() else { return };
        if parent.is_root() {
            self.drained_roots.insert(index);
        } else if let Some(parent) = self.branches.get_mut(&parent) {
            parent.drained_children.insert(index);
        }
    }

    /// Whether nothing is owed.
    pub fn is_complete(&self) -> bool {
        self.open == 0 && self.missing == 0
    }

    /// Branches whose task may still open branches and send replies.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Replies that ended tasks still owe.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Branches there ever were.
    pub fn branch_count(&self) -> u64 {
        self.ever
    }

    /// A branch that is known and not drained.
    pub fn get(&self, path: &Path) -> Option<&Branch> {
        self.branches.get(path)
    }

    /// Every branch that is known and not drained, parents before children.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Branch)> {
        self.branches.iter()
    }

    /// `top` and everything known below it.
    pub fn below<'a>(&'a self, top: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Branch)> + 'a {
        self.branches.range(top.clone()..).take_while(move |(path, _)| top.is_prefix_of(path))
    }

    /// What the counters say against a count from scratch; equal unless this file is wrong.
    pub fn recount(&self) -> (u64, u64) {
        let open = self.branches.values().filter(|b| b.state == BranchState::Open).count() as u64;
        (open, self.branches.values().map(|branch| u64::from(branch.missing())).sum())
    }
}

#[cfg(test)]
mod tests;

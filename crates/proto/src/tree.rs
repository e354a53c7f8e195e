//! The arithmetic of a request tree: which branches are open, which replies are missing.
//!
//! Source: the manifests of Roo (DPC deck, "Detecting DPC Completion"), with the parent naming the
//! child. A branch is known from the moment its parent, or any frame from it or below it, names it:
//! a path implies all its prefixes, so no branch can be forgotten while something below it lives.
//!
//! ```text
//!          entry (children, replies)          all replies here, all children drained
//!   Open ──────────────────────────▶ Closed ─────────────────────────────▶ drained: one index
//!    ▲└────────── failure ──────────────┴──▶ Failed                        in the parent's set
//!    └─heard of── Named
//! ```
//!
//! `open` counts the branches in `Open`, `missing` the replies that closed branches still owe. The
//! tree is complete when both are zero. Everything is by id, so a duplicate changes nothing and
//! order does not matter.
//!
//! `unsaid` counts the branches whose end is not known by *word*: something that proves that the
//! task neither runs nor will, and how many branches it opened (`settlement.md` S1). A failure that
//! the initiator guesses is not word. A branch that its failed parent names late, or that is given
//! up with a parent that took it along, is not open and not missing, but unsaid (S5). Nothing of a
//! call can be on its way once `unsaid` is zero; completion does not look at it.

use std::collections::BTreeMap;

use crate::id::{NodeId, Path, TaskKey};
use crate::wire::{Entry, Outcome};

use super::index_set::IndexSet;
use super::mutant::{self, Mutant};

/// Holder of a branch: where it is being served, as far as the initiator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// The neighbour that its frames come through, when it cannot reach the initiator itself.
    pub relay: Option<NodeId>,
}

impl Holder {
    /// The node that a frame for it is sent to: its own, or the one that passes on.
    pub(crate) fn via(&self) -> NodeId {
        self.relay.unwrap_or(self.node)
    }

    /// True when it is this node, or its frames come through it.
    pub(crate) fn is_at(&self, node: NodeId) -> bool {
        self.node == node || self.relay == Some(node)
    }
}

/// Progress of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchState {
    /// It is known to exist by the late word of a parent that had failed: it counts once it is
    /// heard of.
    Named,
    /// It is not wanted, nor is anything below it: only its word matters.
    GivenUp,
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

/// State of one branch, as far as the initiator knows.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Its progress.
    pub state: BranchState,
    /// Tail transfers so far, as far as known.
    pub hop: u32,
    /// The node that serves it, if known; belongs to `hop`.
    pub holder: Option<Holder>,
    /// The node that held it one hop before, if known.
    pub before: Option<NodeId>,
    /// The node that its parent, or the hop before, says to have sent it to, and at which hop.
    named: Option<(u32, NodeId)>,
    /// Its end is known by its own word.
    pub has_word: bool,
    /// Replies received whole.
    pub received: IndexSet,
    /// One of its replies is a stream.
    pub is_streaming: bool,
    drained_children: IndexSet,
    known_children: u32,
}

impl Branch {
    fn new(state: BranchState) -> Self {
        Self {
            state,
            hop: 0,
            holder: None,
            before: None,
            named: None,
            has_word: false,
            received: IndexSet::default(),
            is_streaming: false,
            drained_children: IndexSet::default(),
            known_children: 0,
        }
    }

    /// True when this node is known to hold the task of this hop by the word of the one who sent it
    /// there.
    pub fn is_named(&self, hop: u32, node: NodeId) -> bool {
        self.named == Some((hop, node))
    }

    /// Replies it still owes.
    pub fn missing(&self) -> u32 {
        match self.state {
            BranchState::Closed { replies, .. } => replies - self.received.len(),
            _ => 0,
        }
    }

    /// True when it still owes something.
    pub fn is_unsettled(&self) -> bool {
        self.state == BranchState::Open || self.missing() > 0
    }

    /// True of an index beyond the replies that it declared as it ended.
    pub fn is_undeclared(&self, index: u32) -> bool {
        matches!(self.state, BranchState::Closed { replies, .. } if index >= replies)
    }

    fn is_drained(&self) -> bool {
        match self.state {
            BranchState::Closed { children, .. } => {
                self.missing() == 0 && self.drained_children.len() == children
            }
            _ => false,
        }
    }
}

/// Reason why a peer's word about the tree cannot be true, or cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeFault {
    /// Two different entries, an index beyond what an entry declared, or a number beyond its bound.
    Contradiction,
    /// More branches than the call may have, or than this root branch may have of them.
    TooManyBranches,
}

/// The request tree of one call.
#[derive(Clone, Debug)]
pub struct Tree {
    branches: BTreeMap<Path, Branch>,
    drained_roots: IndexSet,
    open: u64,
    missing: u64,
    unsaid: u64,
    /// Branches there ever were, and their moves to later hops.
    ever: u64,
    /// The same of each root branch, and all below it.
    of_root: BTreeMap<u32, u64>,
    /// Root branches there will be.
    root_count: usize,
    branches_max: u32,
}

impl Tree {
    /// An empty tree of so many root branches that takes up to `branches_max` branches in all.
    /// With several root branches, each takes at most as many as are still free (`trust.md` T10).
    pub fn new(root_count: usize, branches_max: u32) -> Self {
        Self {
            branches: BTreeMap::new(),
            drained_roots: IndexSet::default(),
            open: 0,
            missing: 0,
            unsaid: 0,
            ever: 0,
            of_root: BTreeMap::new(),
            root_count,
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
                if !self.ensure_one(&prefix, BranchState::Open)? {
                    return Ok(None);
                }
            }
        }
        let Some(branch) = self.branches.get_mut(path) else { return Ok(None) };
        // One that was only named is open from now on, as if it had just been heard of.
        if branch.state == BranchState::Named && !branch.has_word {
            branch.state = BranchState::Open;
            self.open += 1;
        }
        Ok(Some(branch))
    }

    /// True when `path` is known and not drained now; its parent already is.
    fn ensure_one(&mut self, path: &Path, mut state: BranchState) -> Result<bool, TreeFault> {
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
            match parent.state {
                BranchState::Closed { children, .. } if index >= children => {
                    return Err(TreeFault::Contradiction);
                }
                BranchState::GivenUp => state = BranchState::GivenUp,
                _ => {}
            }
        }
        self.take_room(path)?;
        if let Some(parent) = self.branches.get_mut(&parent) {
            parent.known_children = parent.known_children.max(index.saturating_add(1));
        }
        self.open += u64::from(state == BranchState::Open);
        self.unsaid += 1;
        self.branches.insert(path.clone(), Branch::new(state));
        Ok(true)
    }

    fn take_room(&mut self, path: &Path) -> Result<(), TreeFault> {
        let root = path.indices().next().ok_or(TreeFault::Contradiction)?;
        if !self.has_room(root) {
            return Err(TreeFault::TooManyBranches);
        }
        *self.of_root.entry(root).or_default() += 1;
        self.ever += 1;
        Ok(())
    }

    /// True when one more branch at or below a root branch has room in the call.
    pub fn has_room(&self, root: u32) -> bool {
        let of_root = self.of_root.get(&root).copied().unwrap_or_default();
        let free = u64::from(self.branches_max).saturating_sub(self.ever);
        // Its own place is each root's from the start.
        let is_alone = self.root_count == 1 || mutant::is(Mutant::BoundsShared);
        free > 0 && (of_root == 0 || is_alone || of_root < free)
    }

    /// Records the node that a branch was sent to, as its sender says, unless something later is
    /// known. True when it was news.
    ///
    /// # Errors
    /// [`TreeFault::TooManyBranches`] when it has moved on to there, and the call would outgrow its
    /// bound.
    pub fn hold(&mut self, task: &TaskKey, holder: Holder) -> Result<bool, TreeFault> {
        let is_news = self.move_on(task, holder)?;
        if let Some(branch) = self.branches.get_mut(&task.path)
            && branch.named.is_none_or(|(hop, _)| hop < task.hop)
        {
            branch.named = Some((task.hop, holder.node));
        }
        Ok(is_news)
    }

    /// Each move to a later hop counts as a branch: who is asked there remembers it as one.
    fn move_on(&mut self, task: &TaskKey, holder: Holder) -> Result<bool, TreeFault> {
        let Some(branch) = self.branches.get(&task.path) else { return Ok(false) };
        let is_later = task.hop > branch.hop;
        let is_news = is_later
            || (task.hop == branch.hop && branch.holder.is_none())
            || mutant::is(Mutant::HopIgnored);
        if !is_news {
            return Ok(false);
        }
        if is_later {
            self.take_room(&task.path)?;
        }
        let Some(branch) = self.branches.get_mut(&task.path) else { return Ok(false) };
        let last = branch.holder.filter(|_| branch.hop.checked_add(1) == Some(task.hop));
        branch.before = last.map(|last| last.node);
        branch.hop = task.hop;
        branch.holder = Some(holder);
        if mutant::is(Mutant::TailIsWord) && task.hop > 0 && !branch.has_word {
            branch.has_word = true;
            self.unsaid -= 1;
        }
        Ok(true)
    }

    /// Records that a task itself was heard of, and by which way: that is how it can be spoken to,
    /// whatever was assumed before. True when it was news where the branch is.
    ///
    /// # Errors
    /// As [`Self::hold`].
    pub fn hear(&mut self, task: &TaskKey, holder: Holder) -> Result<bool, TreeFault> {
        let is_news = self.move_on(task, holder)?;
        if let Some(branch) = self.branches.get_mut(&task.path)
            && branch.hop == task.hop
        {
            branch.holder = Some(holder);
        }
        Ok(is_news)
    }

    /// Records that the holder of a task cannot be reached through a relay any more.
    pub fn lose_relay(&mut self, task: &TaskKey, through: Holder) {
        if let Some(branch) = self.branches.get_mut(&task.path)
            && branch.hop == task.hop
            && branch.holder == Some(through)
        {
            branch.holder = Some(Holder { relay: None, ..through });
        }
    }

    /// Notes that a reply of a branch is a stream.
    pub fn note_streaming(&mut self, path: &Path) {
        if let Some(branch) = self.branches.get_mut(path) {
            branch.is_streaming = true;
        }
    }

    /// Records that reply `index` of a branch is here. True when it was new.
    ///
    /// # Errors
    /// [`TreeFault::Contradiction`] when the branch declared fewer replies.
    pub fn receive(&mut self, path: &Path, index: u32) -> Result<bool, TreeFault> {
        let Some(branch) = self.branches.get_mut(path) else { return Ok(false) };
        if branch.is_undeclared(index) {
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

    /// Applies a manifest entry: registers the children **first**, then closes the branch. True
    /// when it was news.
    ///
    /// # Errors
    /// [`TreeFault`] when it contradicts what is known, or the call would outgrow its bound.
    pub fn close(
        &mut self,
        task: &TaskKey,
        children: u32,
        replies: u32,
    ) -> Result<bool, TreeFault> {
        let Some(branch) = self.known(&task.path)? else { return Ok(false) };
        match branch.state {
            BranchState::Failed | BranchState::Named | BranchState::GivenUp => {
                self.note_word(task, children)?;
                return Ok(false);
            }
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
            self.ensure_children(&task.path, children, BranchState::Open)?;
        }
        let Some(branch) = self.branches.get_mut(&task.path) else { return Ok(false) };
        // The holder and its hop stay as they are: asked, it leads on to who has ended the branch.
        branch.state = BranchState::Closed { children, replies };
        self.open -= 1;
        self.unsaid -= u64::from(!std::mem::replace(&mut branch.has_word, true));
        self.missing += u64::from(branch.missing());
        self.drain(&task.path);
        Ok(true)
    }

    /// True when a branch has closed with this entry, and so is known by it already.
    pub fn has_entry(&self, entry: &Entry) -> bool {
        let Entry { ref task, children, replies, outcome, .. } = *entry;
        outcome == Outcome::Finished
            && self
                .branches
                .get(&task.path)
                .is_some_and(|branch| branch.state == BranchState::Closed { children, replies })
    }

    /// Ends a branch as failed by its own word, with the branches it had opened until then, which
    /// still count. True when it was unsettled until now.
    ///
    /// # Errors
    /// [`TreeFault`] when it contradicts what is known, or the call would outgrow its bound.
    pub fn fail_with_children(&mut self, task: &TaskKey, children: u32) -> Result<bool, TreeFault> {
        let Some(branch) = self.known(&task.path)? else { return Ok(false) };
        if branch.state != BranchState::Open {
            let fails = mutant::is(Mutant::FailsAgain) && branch.state == BranchState::Failed;
            self.note_word(task, children)?;
            return Ok(fails);
        }
        if task.hop < branch.hop {
            return Ok(false);
        }
        // Who fails may know of fewer branches than are known here: one that was cancelled before
        // it came to a new life of its node, but had run in the last.
        self.ensure_children(&task.path, children, BranchState::Open)?;
        let is_news = self.fail(&task.path);
        self.note_word(task, 0)?;
        Ok(is_news)
    }

    /// As [`Self::ensure`], but a branch that was only named stays so: the word that it is over
    /// does not open it.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub fn known(&mut self, path: &Path) -> Result<Option<&Branch>, TreeFault> {
        if !self.branches.contains_key(path) {
            self.ensure(path)?;
        }
        Ok(self.branches.get(path))
    }

    /// A branch that has ended otherwise has its word: what it opened is known by name.
    fn note_word(&mut self, task: &TaskKey, children: u32) -> Result<(), TreeFault> {
        self.ensure_children(&task.path, children, BranchState::Named)?;
        let Some(branch) = self.branches.get_mut(&task.path) else { return Ok(()) };
        if task.hop >= branch.hop && !branch.has_word {
            branch.has_word = true;
            self.unsaid -= 1;
        }
        Ok(())
    }

    /// Notes that a branch is said to be over, by somebody whose word does not end it: what it has
    /// opened counts, and once the call has ended nothing more need be said of it.
    ///
    /// # Errors
    /// [`TreeFault`] when the call would outgrow its bound.
    pub fn note_hearsay(&mut self, task: &TaskKey, children: u32) -> Result<(), TreeFault> {
        let Some(branch) = self.known(&task.path)? else { return Ok(()) };
        if branch.state == BranchState::Open {
            if task.hop < branch.hop {
                return Ok(());
            }
            self.ensure_children(&task.path, children, BranchState::Open)?;
        }
        self.note_word(task, children)
    }

    fn ensure_children(
        &mut self,
        path: &Path,
        children: u32,
        state: BranchState,
    ) -> Result<(), TreeFault> {
        if children > self.branches_max {
            return Err(TreeFault::TooManyBranches);
        }
        for index in 0..children {
            let child = path.child(index).map_err(|_| TreeFault::Contradiction)?;
            self.ensure_one(&child, state)?;
        }
        Ok(())
    }

    /// Ends a branch as failed: it owes nothing any more. Known branches below it still count. True
    /// when it was unsettled until now.
    pub fn fail(&mut self, path: &Path) -> bool {
        let Some(branch) = self.branches.get_mut(path) else { return false };
        if !branch.is_unsettled() {
            return false;
        }
        if branch.state == BranchState::Open {
            self.open -= 1;
        } else if !mutant::is(Mutant::FailedOwes) {
            self.missing -= u64::from(branch.missing());
        }
        branch.state = BranchState::Failed;
        if mutant::is(Mutant::GuessIsWord) && !branch.has_word {
            branch.has_word = true;
            self.unsaid -= 1;
        }
        true
    }

    /// A branch that cannot have been begun has its word: its request never left, or is kept from
    /// running.
    pub fn rule_out(&mut self, path: &Path) {
        if let Some(branch) = self.branches.get_mut(path)
            && !branch.has_word
        {
            branch.has_word = true;
            self.unsaid -= 1;
        }
    }

    /// Gives up what is at and below `top`: it owes nothing any more, and only its word matters.
    /// Returns its paths.
    pub fn give_up(&mut self, top: &Path) -> Vec<Path> {
        let below: Vec<Path> = self.below(top).map(|(path, _)| path.clone()).collect();
        for path in &below {
            let Some(branch) = self.branches.get_mut(path) else { continue };
            self.open -= u64::from(branch.state == BranchState::Open);
            self.missing -= u64::from(branch.missing());
            if mutant::is(Mutant::AbortedForgotten) && !branch.has_word {
                branch.has_word = true;
                self.unsaid -= 1;
            }
            branch.state = match branch.state {
                BranchState::Open | BranchState::Named => BranchState::GivenUp,
                BranchState::Closed { .. } if branch.missing() > 0 => BranchState::Failed,
                state => state,
            };
        }
        below
    }

    /// Gives up the first so many branches of `path`, of which there may be fewer: the number is a
    /// peer's. Returns the paths of what is at and below them.
    pub fn give_up_children(&mut self, path: &Path, children: u32) -> Vec<Path> {
        let below = self.below(path).map(|(below, _)| below);
        let meant = below.filter(|below| {
            let own = below.parent().filter(|(parent, _)| parent == path);
            own.is_some_and(|(_, index)| index < children)
        });
        let meant: Vec<Path> = meant.cloned().collect();
        meant.iter().flat_map(|child| self.give_up(child)).collect()
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

    /// True when nothing is owed.
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

    /// Branches whose end is not known by their own word.
    pub fn unsaid(&self) -> u64 {
        self.unsaid
    }

    /// Branches there ever were. Each move of one to a later hop counts as another.
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

    /// The counters `open`, `missing` and `unsaid`, counted from scratch; equal unless this file is
    /// wrong.
    pub fn recount(&self) -> (u64, u64, u64) {
        let open = self.branches.values().filter(|b| b.state == BranchState::Open).count() as u64;
        let unsaid = self.branches.values().filter(|b| !b.has_word).count() as u64;
        (open, self.branches.values().map(|branch| u64::from(branch.missing())).sum(), unsaid)
    }
}

#[cfg(test)]
mod tests;

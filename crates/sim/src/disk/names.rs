//! Names of files and directories, without I/O: which are seen, which are durable.
//!
//! A change of names moves files, or rather numbers of files, to other names or to none, as a
//! whole. Changes that depend on each other become durable in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::settings::Fate;
use crate::random::Random;

/// Number of a file or directory. Never used again.
pub(super) type Inode = u64;

/// The directory without a name.
pub(super) const ROOT: Inode = 0;

/// A name within a directory.
pub(super) type Place = (Inode, String);

/// Changes above which the oldest are made durable, as every system does.
const UNSYNCED_MAX: usize = 1 << 14;

/// Places of files and directories.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    inodes: BTreeMap<Place, Inode>,
    places: BTreeMap<Inode, Place>,
}

#[derive(Clone, Debug)]
struct Change {
    number: u64,
    /// Files, and where they are from then on.
    moves: Vec<(Inode, Option<Place>)>,
    /// Names that are taken or given up.
    touched: Vec<Place>,
    /// For what goes into another directory: that one, and all above it.
    above: Vec<Inode>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    seen: Tree,
    durable: Tree,
    unsynced: VecDeque<Change>,
    next: u64,
}

impl Tree {
    pub(super) fn find(&self, dir: Inode, name: &str) -> Option<Inode> {
        self.inodes.get(&(dir, name.to_owned())).copied()
    }

    /// True when a file or directory has a name.
    pub(super) fn has(&self, inode: Inode) -> bool {
        self.places.contains_key(&inode)
    }

    /// The names in a directory, in order.
    pub(super) fn list(&self, dir: Inode) -> impl Iterator<Item = (&str, Inode)> {
        let entries = self.inodes.range((dir, String::new())..);
        let entries = entries.take_while(move |((of, _), _)| *of == dir);
        entries.map(|((_, name), inode)| (name.as_str(), *inode))
    }

    /// True when `inode` is `dir` or somewhere below it.
    pub(super) fn is_within(&self, inode: Inode, dir: Inode) -> bool {
        let mut at = inode;
        while at != dir {
            match self.places.get(&at) {
                Some((above, _)) => at = *above,
                None => return false,
            }
        }
        true
    }

    /// A directory, and all above it but the root.
    fn path(&self, dir: Inode) -> impl Iterator<Item = Inode> {
        let above = |at: &Inode| self.places.get(at).map(|(above, _)| *above);
        std::iter::successors(Some(dir), above).filter(|at| *at != ROOT)
    }

    fn apply(&mut self, change: &Change) {
        for (inode, place) in &change.moves {
            self.put(*inode, place.as_ref());
        }
    }

    fn put(&mut self, inode: Inode, place: Option<&Place>) {
        if let Some(old) = self.places.remove(&inode) {
            self.inodes.remove(&old);
        }
        let Some(place) = place else { return };
        if let Some(replaced) = self.inodes.insert(place.clone(), inode) {
            self.places.remove(&replaced);
        }
        self.places.insert(inode, place.clone());
    }

    /// Forgets what no path leads to.
    fn prune(&mut self) {
        let inodes: Vec<_> = self.places.keys().copied().collect();
        let lost = inodes.into_iter().filter(|inode| !self.is_within(*inode, ROOT));
        lost.collect::<Vec<_>>().into_iter().for_each(|inode| self.put(inode, None));
    }
}

impl Change {
    /// Directories of which it is a part.
    fn dirs(&self) -> impl Iterator<Item = Inode> {
        self.touched.iter().map(|(dir, _)| *dir)
    }

    fn inodes(&self) -> impl Iterator<Item = Inode> {
        self.moves.iter().map(|(inode, _)| *inode)
    }

    fn removed(&self) -> impl Iterator<Item = Inode> {
        self.moves.iter().filter(|(_, place)| place.is_none()).map(|(inode, _)| *inode)
    }
}

/// Subjects of some changes, to find those that depend on one of them, or it on them.
#[derive(Default)]
struct Concerned {
    inodes: BTreeSet<Inode>,
    removed: BTreeSet<Inode>,
    dirs: BTreeSet<Inode>,
    places: BTreeSet<Place>,
    above: BTreeSet<Inode>,
}

impl Concerned {
    fn add(&mut self, change: &Change) {
        self.inodes.extend(change.inodes());
        self.removed.extend(change.removed());
        self.dirs.extend(change.dirs());
        self.places.extend(change.touched.iter().cloned());
        self.above.extend(&change.above);
    }

    /// True when one of these depends on an earlier change.
    fn need(&self, earlier: &Change) -> bool {
        // Else it could make a circle, or lead to where no path does.
        self.share(earlier) || earlier.inodes().any(|inode| self.above.contains(&inode))
    }

    /// True when a later change depends on one of these.
    fn are_needed_by(&self, later: &Change) -> bool {
        self.share(later) || later.above.iter().any(|inode| self.inodes.contains(inode))
    }

    fn share(&self, change: &Change) -> bool {
        change.inodes().any(|inode| self.inodes.contains(&inode))
            || change.touched.iter().any(|place| self.places.contains(place))
            // A directory does not go before what was in it has gone elsewhere.
            || change.removed().any(|inode| self.dirs.contains(&inode))
            || change.dirs().any(|dir| self.removed.contains(&dir))
    }
}

impl Names {
    pub(super) fn seen(&self) -> &Tree {
        &self.seen
    }

    pub(super) fn durable(&self) -> &Tree {
        &self.durable
    }

    /// Gives a file or directory a name, its first or another. Who has it already loses it.
    pub(super) fn place(&mut self, inode: Inode, dir: Inode, name: &str) {
        let place = (dir, name.to_owned());
        let replaced = self.seen.find(dir, name).filter(|replaced| *replaced != inode);
        let old = self.seen.places.get(&inode).cloned();
        let moves = replaced.map(|replaced| (replaced, None)).into_iter();
        self.change(Change {
            number: self.next,
            moves: moves.chain([(inode, Some(place.clone()))]).collect(),
            above: match &old {
                Some((from, _)) if *from != dir => self.seen.path(dir).collect(),
                _ => Vec::new(),
            },
            touched: old.into_iter().chain([place]).collect(),
        });
    }

    /// Takes the name of a file or directory.
    pub(super) fn remove(&mut self, inode: Inode) {
        self.change(Change {
            number: self.next,
            moves: vec![(inode, None)],
            above: Vec::new(),
            touched: self.seen.places.get(&inode).cloned().into_iter().collect(),
        });
    }

    fn change(&mut self, change: Change) {
        self.next += 1;
        self.seen.apply(&change);
        self.unsynced.push_back(change);
        if self.unsynced.len() > UNSYNCED_MAX {
            self.keep_first(1);
        }
    }

    /// Number of the next change: a sync that begins now covers all before it.
    pub(super) fn next_change(&self) -> u64 {
        self.next
    }

    /// Makes all changes durable.
    pub(super) fn sync_all(&mut self) {
        self.keep(|_| true);
    }

    /// True when a directory has nothing to sync.
    pub(super) fn is_synced(&self, dir: Inode) -> bool {
        !self.unsynced.iter().any(|change| change.dirs().any(|of| of == dir))
    }

    /// Makes the changes of `dir` before `next` durable, and those on which they depend.
    pub(super) fn sync(&mut self, dir: Inode, next: u64) {
        let is_of = |change: &&Change| change.number < next && change.dirs().any(|of| of == dir);
        let wanted = self.unsynced.iter().filter(is_of).map(|change| change.number).collect();
        self.keep_with(&wanted);
    }

    /// A sync of `dir` fails. All its changes before `next` are still unsynced, or each was written
    /// or is forgotten: it is seen, and no later sync makes it durable.
    pub(super) fn fail_sync(&mut self, dir: Inode, next: u64, random: &mut Random) {
        if random.chance(33) {
            return;
        }
        let is_of = |change: &Change| change.number < next && change.dirs().any(|of| of == dir);
        let (mut written, mut forgotten) = (BTreeSet::new(), BTreeSet::new());
        for change in self.unsynced.iter().filter(|change| is_of(change)) {
            // A name that goes into another directory stays a part of that one, too.
            match change.above.is_empty() && random.chance(50) {
                true => forgotten.insert(change.number),
                false => random.chance(50) && written.insert(change.number),
            };
        }
        self.unsynced.retain(|change| !forgotten.contains(&change.number));
        self.keep_with(&written);
    }

    /// Makes these changes durable, and those on which they depend.
    fn keep_with(&mut self, wanted: &BTreeSet<u64>) {
        let mut concerned = Concerned::default();
        let mut kept = BTreeSet::new();
        for change in self.unsynced.iter().rev() {
            if wanted.contains(&change.number) || concerned.need(change) {
                concerned.add(change);
                kept.insert(change.number);
            }
        }
        self.keep(|change| kept.contains(&change.number));
    }

    /// Makes those changes durable, in order, and the others not yet.
    fn keep(&mut self, mut is_kept: impl FnMut(&Change) -> bool) {
        let durable = &mut self.durable;
        self.unsynced.retain(|change| {
            let is_kept = is_kept(change);
            if is_kept {
                durable.apply(change);
            }
            !is_kept
        });
    }

    fn keep_first(&mut self, count: usize) {
        self.unsynced.drain(..count).for_each(|change| self.durable.apply(&change));
    }

    /// Leaves what a crash leaves.
    pub(super) fn crash(&mut self, fate: Fate, random: &mut Random) {
        match fate {
            Fate::Kept | Fate::Zeroed | Fate::Garbled => self.sync_all(),
            Fate::Lost => {}
            Fate::Torn => self.keep_first(random.index(self.unsynced.len() + 1)),
            Fate::Reordered => {
                let mut lost = Concerned::default();
                self.keep(|change| {
                    let is_kept = !lost.are_needed_by(change) && random.chance(50);
                    if !is_kept {
                        lost.add(change);
                    }
                    is_kept
                });
            }
        }
        self.unsynced.clear();
        self.durable.prune();
        self.seen = self.durable.clone();
    }

    /// True when a file has a name, or may have one after a crash.
    pub(super) fn is_named(&self, inode: Inode) -> bool {
        let is_moved = |change: &Change| change.inodes().any(|of| of == inode);
        self.seen.has(inode) || self.durable.has(inode) || self.unsynced.iter().any(is_moved)
    }

    /// All files for which that is so.
    pub(super) fn named(&self) -> BTreeSet<Inode> {
        let placed = self.seen.places.keys().chain(self.durable.places.keys()).copied();
        placed.chain(self.unsynced.iter().flat_map(Change::inodes)).collect()
    }
}

#[cfg(test)]
mod tests;

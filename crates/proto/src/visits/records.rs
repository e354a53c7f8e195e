//! The tasks that came from one sender for one life of an initiator, by call number.
//!
//! ```text
//!   recent: a ring, in order of number       old: a sorted map
//!   [ 7 | 8 | 9 | . | 11 | 12 ]  ──age──▶  { 3, 5 }
//! ```
//! Most calls are settled within milliseconds of their end, so most records enter at one end of the
//! ring and leave at the other. What is older than `worry_min` moves to the map: one long call
//! would otherwise make the ring span all that came since. What would move many others in the ring
//! enters the map at once, as most branches of a call do that has thousands of them here.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::id::{LinkId, Path, TaskKey};
use crate::key::Key;
use crate::limits::Limits;
use crate::links::Links;
use crate::share::{PeerIndex, Pool};
use crate::time::Timestamp;
use crate::wire::{Cause, Entry, Extension, Fail, Outcome, ReplyPath, Rung, Sealed};

use super::origins::OriginIndex;
use super::spare::Spare;
use crate::task::{Child, Finished, Given, Task};

/// The place of a ring in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingIndex(pub(super) u32);

impl RingIndex {
    pub(super) const LEAST: Self = Self(0);
}

/// Identity of a task among those of one ring: a request with another key is another task
/// (`trust.md` T5).
pub(super) type Name = (u64, TaskKey, Key);

/// The same, of a task that lies elsewhere.
pub(super) type NameRef<'a> = (u64, &'a TaskKey, Key);

/// One task, running or over.
#[derive(Debug)]
pub(super) struct Record {
    /// The number of its call.
    pub(super) seq: u64,
    pub(super) task: TaskKey,
    pub(super) key: Key,
    /// Its initiator.
    pub(super) origin: OriginIndex,
    /// The connection its request came over.
    pub(super) link: LinkId,
    /// Peer whose share it is taken from.
    pub(super) payer: PeerIndex,
    /// When its request came.
    pub(super) since: Timestamp,
    /// When nothing of it that could still arrive can do harm any more.
    pub(super) forget_at: Timestamp,
    /// Bytes that its replies, and its failure, have taken of the room for those that wait.
    pub(super) waiting_bytes: u32,
    /// Bytes that its request has taken of the room for large ones, until it is over.
    pub(super) request_bytes: u32,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Quiet(Quiet),
    Running(Box<Task>),
    Over(Over),
    /// Nothing is left of it but its place in the ring.
    Gone,
}

/// A task whose handler has not said anything yet, as most have not until their sole reply. It
/// becomes a [`Task`] before anything else happens to it.
#[derive(Debug)]
pub(super) struct Quiet {
    pub(super) deadline: Timestamp,
    pub(super) call_deadline: Timestamp,
    /// The extensions that its request carried.
    pub(super) extensions: Vec<Extension>,
    /// The entries that it was given to pass on, which ride on what it says first.
    pub(super) given: Given,
}

/// Remains of a task that is over: enough to drop duplicates, answer probes, pass on cancels
/// and report lost connections.
#[derive(Debug)]
pub(super) enum Over {
    /// It sent one reply, over this connection, with what it was given to pass on, and opened no
    /// branch.
    Answered(ReplyPath, Given),
    /// The branch went on there.
    Tailed(Child),
    /// Anything else.
    Otherwise(Box<Tombstone>),
}

#[derive(Debug)]
pub(super) struct Tombstone {
    pub(super) finished: Finished,
    pub(super) children: Vec<Child>,
    pub(super) given: Given,
    pub(super) replies_by: ReplyPath,
}

/// Accounts that a task that is over is counted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accounts {
    pub(super) origin: OriginIndex,
    pub(super) payer: PeerIndex,
    /// Bytes that its request has taken, to be given back.
    pub(super) request_bytes: usize,
}

impl Record {
    /// The task is over.
    pub(super) fn end(&mut self, over: Over) -> Accounts {
        self.state = State::Over(over);
        let request_bytes = std::mem::take(&mut self.request_bytes) as usize;
        Accounts { origin: self.origin, payer: self.payer, request_bytes }
    }

    /// Takes room for so many bytes that wait to leave.
    pub(super) fn hold_replies(&mut self, bytes: usize, links: &mut Links) {
        // A task that sends gigabytes at once pays for four.
        let left = u32::MAX - self.waiting_bytes;
        let bytes = u32::try_from(bytes).map_or(left, |bytes| bytes.min(left));
        links.shares_mut().take(self.payer, Pool::Replies, bytes as usize);
        self.waiting_bytes += bytes;
    }

    pub(super) fn name(&self) -> Name {
        owned(self.name_ref())
    }

    fn name_ref(&self) -> NameRef<'_> {
        (self.seq, &self.task, self.key)
    }

    fn is_there(&self) -> bool {
        !matches!(self.state, State::Gone)
    }

    /// Stub that keeps its place in the ring.
    fn stub(&self) -> Self {
        let Self { seq, key, origin, link, payer, since, forget_at, .. } = *self;
        let task = self.task.clone();
        Self {
            seq,
            task,
            key,
            origin,
            link,
            payer,
            since,
            forget_at,
            waiting_bytes: 0,
            request_bytes: 0,
            state: State::Gone,
        }
    }

    /// True when its handler has not ended and has not been stopped.
    pub(super) fn is_running(&self) -> bool {
        match &self.state {
            State::Quiet(_) => true,
            State::Running(task) => task.finished().is_none(),
            State::Over(_) | State::Gone => false,
        }
    }

    /// True when its handler has ended, and not all that it said has left.
    pub(super) fn has_ended(&self) -> bool {
        matches!(&self.state, State::Running(task) if task.finished().is_some())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// True when items follow its request that it will read.
    pub(super) fn takes_items(&self) -> bool {
        let State::Running(task) = &self.state else { return false };
        task.intake.as_ref().is_some_and(|intake| intake.is_open())
    }

    /// The task, if it has said anything and is not over.
    pub(super) fn running(&mut self) -> Option<&mut Task> {
        match &mut self.state {
            State::Running(task) => Some(task),
            State::Quiet(_) | State::Over(_) | State::Gone => None,
        }
    }

    /// The same of one that is about to say something.
    pub(super) fn speaking(&mut self, limits: &Limits, spare: &mut Spare) -> Option<&mut Task> {
        if let State::Quiet(quiet) = &mut self.state {
            let Quiet { deadline, call_deadline, extensions, given } = quiet;
            let (id, deadlines) = ((self.task.clone(), self.key), (*deadline, *call_deadline));
            let (given, extensions) = (given.take(), std::mem::take(extensions));
            let task = Task::new(id, deadlines, given, extensions, limits);
            self.state = State::Running(spare.boxed(task));
        }
        self.running()
    }

    /// Notes that what the task says, which may be over by now, leaves over this connection to the
    /// initiator. A reply leaves by this way, of which the first counts.
    pub(super) fn note_way(&mut self, link: Option<LinkId>, reply_by: Option<ReplyPath>) {
        match (&mut self.state, reply_by) {
            (State::Running(task), _) => {
                task.route = link.or(task.route);
                task.replies_by = task.replies_by.or(reply_by);
            }
            (State::Over(Over::Answered(by @ ReplyPath::Nowhere, _)), Some(way)) => *by = way,
            (State::Over(Over::Otherwise(over)), Some(way))
                if over.replies_by == ReplyPath::Nowhere =>
            {
                over.replies_by = way;
            }
            _ => {}
        }
    }

    /// The branches it opened, by index.
    pub(super) fn children(&self) -> &[Child] {
        match &self.state {
            State::Running(task) => &task.children,
            State::Quiet(_) | State::Over(Over::Answered(..)) | State::Gone => &[],
            State::Over(Over::Tailed(child)) => std::slice::from_ref(child),
            State::Over(Over::Otherwise(over)) => &over.children,
        }
    }

    pub(super) fn children_mut(&mut self) -> &mut [Child] {
        match &mut self.state {
            State::Running(task) => &mut task.children,
            State::Quiet(_) | State::Over(Over::Answered(..)) | State::Gone => &mut [],
            State::Over(Over::Tailed(child)) => std::slice::from_mut(child),
            State::Over(Over::Otherwise(over)) => &mut over.children,
        }
    }

    /// True when its branch went on elsewhere.
    pub(super) fn is_tailed(&self) -> bool {
        match &self.state {
            State::Running(task) => task.finished().is_some_and(|finished| finished.tailed),
            State::Quiet(_) | State::Over(Over::Answered(..)) | State::Gone => false,
            State::Over(Over::Tailed(_)) => true,
            State::Over(Over::Otherwise(over)) => over.finished.tailed,
        }
    }

    /// Number of records that it counts as: one, and one more for each [`RECORD_BYTES`] of entries
    /// that it was given to pass on.
    #[inline]
    pub(super) fn cost(&self) -> usize {
        let given = self.ancestors();
        if given.is_empty() { 1 } else { 1 + memory_of(given) / RECORD_BYTES }
    }

    /// The extensions that its request carried, while it runs.
    pub(super) fn extensions(&self) -> &[Extension] {
        match &self.state {
            State::Quiet(quiet) => &quiet.extensions,
            State::Running(task) => &task.extensions,
            State::Over(_) | State::Gone => &[],
        }
    }

    /// The entries that it was given to pass on.
    pub(super) fn ancestors(&self) -> &[Sealed] {
        let given = match &self.state {
            State::Quiet(quiet) => &quiet.given,
            State::Running(task) => &task.given,
            State::Over(Over::Answered(_, given)) => given,
            State::Over(Over::Otherwise(over)) => &over.given,
            State::Over(Over::Tailed(_)) | State::Gone => &None,
        };
        given.as_ref().map_or(&[], |given| given)
    }

    /// The entry that it declares, once it has ended without handing its branch on.
    pub(super) fn entry(&self) -> Option<Entry> {
        match &self.state {
            State::Running(task) => {
                task.finished().filter(|end| !end.tailed).map(|end| end.entry.clone())
            }
            State::Over(Over::Answered(..)) => Some(Entry::sole_reply(self.task.clone())),
            State::Quiet(_) | State::Over(Over::Tailed(_)) | State::Gone => None,
            State::Over(Over::Otherwise(over)) => {
                (!over.finished.tailed).then(|| over.finished.entry.clone())
            }
        }
    }

    /// Its failure as it is said again, once that has left.
    pub(super) fn failure(&self) -> Option<Fail> {
        match &self.state {
            State::Over(Over::Otherwise(over)) => over.finished.failure(),
            State::Quiet(_) | State::Running(_) | State::Over(_) | State::Gone => None,
        }
    }

    /// The names of the branches it opened, with where they went.
    pub(super) fn branches(&self) -> impl Iterator<Item = (TaskKey, Key, Child)> + '_ {
        (0..self.children().len()).filter_map(|index| self.branch(index))
    }

    fn branch(&self, index: usize) -> Option<(TaskKey, Key, Child)> {
        let child = *self.children().get(index)?;
        if self.is_tailed() {
            let hop = self.task.hop.saturating_add(1);
            return Some((TaskKey { path: self.task.path.clone(), hop }, self.key, child));
        }
        let index = u32::try_from(index).ok()?;
        let path = self.task.path.child(index).ok()?;
        Some((TaskKey { path, hop: 0 }, self.key.child(index), child))
    }

    /// The place to which it sent the branch of this name and key, unless it holds that back.
    pub(super) fn sent(&self, task: &TaskKey, key: Key) -> Option<Child> {
        let held = match &self.state {
            State::Running(task) => task.held_child_count(),
            _ => 0,
        };
        let index = match self.is_tailed() {
            true => 0,
            false => self.task.path.step_towards(&task.path)? as usize,
        };
        let (branch, of_branch, child) = self.branch(index)?;
        let is_meant = index < self.children().len() - held && branch == *task && of_branch == key;
        is_meant.then_some(child)
    }

    /// The branch by which `task` was sent from here, and where that went, when `key` is the key of
    /// its branch.
    pub(super) fn rung_towards(&self, task: &TaskKey, key: Key) -> Option<(Rung, Child)> {
        let child = self.towards(task, key)?;
        let Rung { levels, hop } = self.rung();
        let rung = match self.is_tailed() {
            true => Rung { levels, hop: hop.saturating_add(1) },
            false => Rung { levels: levels.saturating_add(1), hop: 0 },
        };
        Some((rung, child))
    }

    pub(super) fn rung(&self) -> Rung {
        Rung::of(&self.task)
    }

    /// The child below which `task` was sent from here, when `key` is the key of its branch.
    pub(super) fn towards(&self, task: &TaskKey, key: Key) -> Option<Child> {
        if !self.is_above(task, key) {
            return None;
        }
        if self.is_tailed() {
            let came_before = self.task.path == task.path && self.task.hop >= task.hop;
            return self.children().first().filter(|_| !came_before).copied();
        }
        let index = self.task.path.step_towards(&task.path)?;
        self.children().get(index as usize).copied()
    }

    /// True when `task` is of this branch or one below, as `key` proves.
    pub(super) fn is_above(&self, task: &TaskKey, key: Key) -> bool {
        self.key.descend(&self.task.path, &task.path) == Some(key)
    }
}

impl Over {
    /// Remains of a task that has ended and said all.
    pub(super) fn of(task: &mut Task) -> Self {
        let Finished { entry, tailed, .. } = task.finished().expect(DRAINED);
        let replies_by = task.replies_by.unwrap_or(ReplyPath::Nowhere);
        let is_sole = (entry.children, entry.replies, entry.outcome) == (0, 1, Outcome::Finished);
        match task.children.as_slice() {
            [child] if task.given.is_none() && *tailed => Self::Tailed(*child),
            [] if is_sole => Self::Answered(replies_by, task.given.take()),
            _ => Self::Otherwise(Box::new(Tombstone {
                finished: task.take_finished().expect(DRAINED),
                children: std::mem::take(&mut task.children).into_vec(),
                given: task.given.take(),
                replies_by,
            })),
        }
    }
}

const DRAINED: &str = "a drained task has ended";

/// Bytes of a record, about.
const RECORD_BYTES: usize = 256;

fn memory_of(entries: &[Sealed]) -> usize {
    entries.iter().map(Sealed::memory).sum()
}

/// The closing entry of a task that was stopped before it did anything.
pub(super) fn refused_entry(task: &TaskKey, cause: Cause) -> Entry {
    let outcome = Outcome::Failed(cause);
    Entry { task: task.clone(), children: 0, replies: 0, outcome, holders: Vec::new() }
}

/// The place of a record among those of its ring, until one is added or taken out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    Recent(usize),
    /// By its name.
    Old,
}

/// The records of one ring.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// In order of name; those that have gone keep their place until they are the first.
    recent: VecDeque<Record>,
    gone: usize,
    old: BTreeMap<Name, Record>,
}

/// Records of a ring that are moved to make a place: about as dear as a place in the map.
const MOVED_MAX: usize = 64;

impl Records {
    pub(super) fn len(&self) -> usize {
        self.recent.len() - self.gone + self.old.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a record whose name is not known yet. True of one that is among the old at once.
    #[inline]
    pub(super) fn insert(&mut self, record: Record) -> bool {
        if self.recent.back().is_none_or(|last| last.seq < record.seq) {
            self.recent.push_back(record);
            return false;
        }
        self.insert_between(record)
    }

    fn insert_between(&mut self, record: Record) -> bool {
        match self.position(record.name_ref()) {
            Ok(place) => {
                let place = &mut self.recent[place];
                self.gone -= usize::from(!place.is_there());
                *place = record;
            }
            Err(place) if place.min(self.recent.len() - place) > MOVED_MAX => {
                self.old.insert(record.name(), record);
                return true;
            }
            Err(place) => self.recent.insert(place, record),
        }
        false
    }

    pub(super) fn get(&self, name: NameRef<'_>) -> Option<&Record> {
        self.at(self.find(name)?, name)
    }

    pub(super) fn get_mut(&mut self, name: NameRef<'_>) -> Option<&mut Record> {
        let spot = self.find(name)?;
        self.at_mut(spot, name)
    }

    /// The place of a record.
    pub(super) fn find(&self, name: NameRef<'_>) -> Option<Spot> {
        match self.position(name) {
            Ok(place) => Some(Spot::Recent(place)),
            Err(_) if self.old.is_empty() => None,
            Err(_) => Some(Spot::Old),
        }
    }

    /// The record of a name at its place, if it is still there.
    #[inline]
    pub(super) fn at(&self, spot: Spot, name: NameRef<'_>) -> Option<&Record> {
        match spot {
            Spot::Recent(place) => self.recent.get(place).filter(|record| record.is_there()),
            Spot::Old => self.old.get(&owned(name)),
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn at_mut(&mut self, spot: Spot, name: NameRef<'_>) -> Option<&mut Record> {
        match spot {
            Spot::Recent(place) => self.recent.get_mut(place).filter(|record| record.is_there()),
            Spot::Old => self.old.get_mut(&owned(name)),
        }
    }

    /// True when a call is later than those of all records here, as that of most requests is.
    #[inline]
    pub(super) fn is_later(&self, seq: u64) -> bool {
        let is_above = |last: Option<u64>| last.is_none_or(|last| last < seq);
        is_above(self.recent.back().map(|record| record.seq))
            && is_above(self.old.last_key_value().map(|((last, _, _), _)| *last))
    }

    /// The records of one call.
    pub(super) fn of_call(&self, seq: u64) -> impl Iterator<Item = &Record> {
        let start = self.first_of(seq);
        let recent = self.recent.range(start..).take_while(move |record| record.seq == seq);
        let old = self.old.range(lowest(seq)..).take_while(move |((of, _, _), _)| *of == seq);
        old.map(|(_, record)| record).chain(recent.filter(|record| record.is_there()))
    }

    /// The tasks of one branch of a call, at whatever hop.
    pub(super) fn of_branch(&self, seq: u64, path: Path) -> impl Iterator<Item = &Record> {
        let old = (!self.old.is_empty()).then(|| self.old_of_branch(seq, path.clone()));
        let start = self.first_of_branch(seq, &path);
        let recent = self.recent.range(start..);
        let recent = recent.take_while(move |r| r.seq == seq && r.task.path == path);
        old.into_iter().flatten().chain(recent.filter(|record| record.is_there()))
    }

    fn old_of_branch(&self, seq: u64, path: Path) -> impl Iterator<Item = &Record> {
        let least = (seq, TaskKey { path: path.clone(), hop: 0 }, Key(0));
        let greatest = (seq, TaskKey { path, hop: u32::MAX }, Key(u64::MAX));
        self.old.range(least..=greatest).map(|(_, record)| record)
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, name: &Name) -> Option<Record> {
        let Ok(place) = self.position(by(name)) else { return self.old.remove(name) };
        let taken = self.take(place);
        self.trim();
        taken
    }

    fn take(&mut self, place: usize) -> Option<Record> {
        let there = self.recent.get_mut(place).filter(|record| record.is_there())?;
        let gone = there.stub();
        self.gone += 1;
        Some(std::mem::replace(there, gone))
    }

    /// Drops what has gone from the front.
    fn trim(&mut self) {
        while self.recent.front().is_some_and(|record| !record.is_there()) {
            self.recent.pop_front();
            self.gone -= 1;
        }
    }

    /// Drops the oldest of the recent ones as far as they are over and numbered in `[from, to)`,
    /// where `is_meant`, and shows each to `act` before.
    pub(super) fn drop_front_over(
        &mut self,
        (from, to): (u64, u64),
        is_meant: impl Fn(&Record) -> bool,
        mut act: impl FnMut(&Record),
    ) {
        let mut places = 0;
        for record in &self.recent {
            if record.is_there() {
                if !(from..to).contains(&record.seq) || !record.is_over() || !is_meant(record) {
                    break;
                }
                act(record);
            } else {
                self.gone -= 1;
            }
            places += 1;
        }
        self.recent.drain(..places);
    }

    /// Takes out what is over and numbered in `[from, to)`, where `is_meant`, and gives it to
    /// `act`.
    pub(super) fn drain_over(
        &mut self,
        (from, to): (u64, u64),
        is_meant: impl Fn(&Record) -> bool,
        mut act: impl FnMut(Record),
    ) {
        if self.first_seq().is_none_or(|first| first >= to) {
            return; // As most often: what is settled was the oldest, and has gone.
        }
        let is_meant = |record: &Record| record.is_over() && is_meant(record);
        if !self.old.is_empty() {
            let in_range = self.old.range(lowest(from)..lowest(to));
            let meant = in_range.filter(|(_, record)| is_meant(record));
            for name in meant.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                self.old.remove(&name).into_iter().for_each(&mut act);
            }
        }
        let mut place = self.first_of(from);
        while self.recent.get(place).is_some_and(|record| record.seq < to) {
            if is_meant(&self.recent[place]) {
                self.take(place).into_iter().for_each(&mut act);
            }
            place += 1;
        }
        self.trim();
    }

    /// Moves those that came at such a time to the old ones, and calls `act` with the name of each.
    pub(super) fn age(&mut self, is_old: impl Fn(Timestamp) -> bool, mut act: impl FnMut(Name)) {
        self.trim();
        while self.recent.front().is_some_and(|record| is_old(record.since)) {
            let record = self.recent.pop_front().expect("it was just looked at");
            act(record.name());
            self.old.insert(record.name(), record);
            self.trim();
        }
    }

    /// When the first of the recent ones came.
    pub(super) fn oldest_recent(&self) -> Option<Timestamp> {
        self.recent.front().map(|record| record.since)
    }

    /// The lowest number there is.
    pub(super) fn first_seq(&self) -> Option<u64> {
        let recent = self.recent.front().map(|record| record.seq);
        let old = self.old.first_key_value().map(|((seq, _, _), _)| *seq);
        recent.into_iter().chain(old).min()
    }

    /// Those that are numbered in a range.
    pub(super) fn in_range(&self, calls: Range<u64>) -> impl Iterator<Item = &Record> {
        let old = self.old.range(lowest(calls.start)..lowest(calls.end));
        let recent = (self.first_of(calls.start)..).map_while(|place| self.recent.get(place));
        let recent = recent.take_while(move |record| record.seq < calls.end);
        old.map(|(_, record)| record).chain(recent.filter(|record| record.is_there()))
    }

    /// All records, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.old.values().chain(self.recent.iter().filter(|record| record.is_there()))
    }

    fn position(&self, name: NameRef<'_>) -> Result<usize, usize> {
        let (seq, task, key) = name;
        // Most come in order and without gaps, and most calls have one task here.
        let guess = self.guess(seq);
        match self.recent.get(guess) {
            Some(record) if record.seq == seq && record.key == key && record.task == *task => {
                return Ok(guess);
            }
            None if self.recent.back().is_none_or(|last| last.seq < seq) => {
                return Err(self.recent.len());
            }
            _ => {}
        }
        self.recent.binary_search_by(|record| record.name_ref().cmp(&name))
    }

    fn first_of(&self, seq: u64) -> usize {
        let guess = self.guess(seq);
        let is_first = |place: usize| {
            self.recent[place].seq >= seq && (place == 0 || self.recent[place - 1].seq < seq)
        };
        if guess < self.recent.len() && is_first(guess) {
            return guess;
        }
        self.recent.partition_point(|record| record.seq < seq)
    }

    /// Most calls have one task here.
    fn first_of_branch(&self, seq: u64, path: &Path) -> usize {
        let first = self.first_of(seq);
        match self.recent.get(first) {
            Some(record) if record.seq == seq && record.task.path < *path => {
                self.recent.partition_point(|record| (record.seq, &record.task.path) < (seq, path))
            }
            _ => first,
        }
    }

    fn guess(&self, seq: u64) -> usize {
        let first = self.recent.front().map_or(0, |record| record.seq);
        usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX)
    }
}

pub(super) fn by((seq, task, key): &Name) -> NameRef<'_> {
    (*seq, task, *key)
}

fn owned((seq, task, key): NameRef<'_>) -> Name {
    (seq, task.clone(), key)
}

/// Below every name of this number.
pub(super) fn lowest(seq: u64) -> Name {
    (seq, TaskKey { path: Path::root(), hop: 0 }, Key(0))
}

#[cfg(test)]
mod tests;

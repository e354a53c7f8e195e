//! State of one simulated disk, without I/O or waiting: every operation, with the faults that the
//! settings ask for. Names are in `naming`, syncs in `syncing`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use convoke_disk::{DiskFailure, parts};

use super::contents::Contents;
use super::names::{Inode, Names, ROOT, Tree};
use super::settings::{DiskSettings, Fate, device_failure};
use super::{DiskStats, Life};
use crate::random::Random;

mod naming;
mod syncing;

/// Unsynced bytes that every disk may have, small as it is, so that all fates have something to
/// decide about.
const UNSYNCED_BYTES_MIN: u64 = 64 << 20;

/// Growth after which the unsynced bytes are counted again, which visits all files.
const COUNT_AFTER_BYTES: u64 = 1 << 20;

/// Cost of a change, and of what was removed, beyond its bytes.
const OVERHEAD_BYTES: u64 = 4 << 10;

#[derive(Debug, Default)]
struct Node {
    /// `None` of a directory.
    contents: Option<Contents>,
    /// Open handles of each process.
    handles: BTreeMap<Life, usize>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) settings: DiskSettings,
    pub(super) stats: DiskStats,
    pub(super) is_stalled: bool,
    /// Changes until a crash takes the place of one.
    pub(super) changes_left: Option<u64>,
    pub(super) failing_reads: u64,
    pub(super) failing_writes: u64,
    pub(super) failing_syncs: u64,
    pub(super) lying_syncs: u64,
    names: Names,
    nodes: BTreeMap<Inode, Node>,
    locks: BTreeMap<Inode, Life>,
    lives: BTreeSet<Life>,
    last_life: Life,
    last_inode: Inode,
    /// Bytes by which the files may have grown since the unsynced ones were counted.
    grown: u64,
    random: Random,
    /// Apart from the other, so that one fault more does not change what crashes leave.
    crash_random: Random,
}

impl Device {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            settings: DiskSettings::default(),
            stats: DiskStats::default(),
            is_stalled: false,
            changes_left: None,
            failing_reads: 0,
            failing_writes: 0,
            failing_syncs: 0,
            lying_syncs: 0,
            names: Names::default(),
            nodes: BTreeMap::from([(ROOT, Node::default())]),
            locks: BTreeMap::new(),
            lives: BTreeSet::new(),
            last_life: 0,
            last_inode: ROOT,
            grown: 0,
            random: Random::of(seed, 1),
            crash_random: Random::of(seed, 2),
        }
    }

    pub(super) fn begin_life(&mut self) -> Life {
        self.last_life += 1;
        self.lives.insert(self.last_life);
        self.last_life
    }

    pub(super) fn check(&self, life: Life) -> Result<(), DiskFailure> {
        if self.lives.contains(&life) { Ok(()) } else { Err(DiskFailure::Gone) }
    }

    /// The process is gone; its files are as they were.
    pub(super) fn kill(&mut self, life: Life) {
        self.lives.remove(&life);
        self.locks.retain(|_, holder| *holder != life);
        self.nodes.values_mut().for_each(|node| node.handles.retain(|of, _| *of != life));
        self.forget_unnamed();
    }

    /// The host is gone. `fate` is that of everything, or else it is drawn.
    pub(super) fn crash(&mut self, fate: Option<Fate>) {
        self.stats.crashes += 1;
        self.changes_left = None;
        self.lives.clear();
        self.locks.clear();
        let (fates, random) = (&self.settings.fates, &mut self.crash_random);
        let draw = |random: &mut Random| {
            fate.unwrap_or_else(|| random.pick(fates).copied().unwrap_or(Fate::Lost))
        };
        let of_names = draw(random);
        self.names.crash(of_names, random);
        for node in self.nodes.values_mut() {
            node.handles.clear();
            if let Some(contents) = &mut node.contents {
                let of_contents = draw(random);
                contents.crash(of_contents, random);
            }
        }
        self.forget_unnamed();
    }

    /// A change is about to be made: it is counted, and a crash may come instead.
    fn change(&mut self) -> Result<(), DiskFailure> {
        if self.settings.read_only {
            return Err(DiskFailure::ReadOnly);
        }
        match &mut self.changes_left {
            Some(0) => {
                self.crash(None);
                return Err(DiskFailure::Gone);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.stats.changes += 1;
        self.grow(OVERHEAD_BYTES);
        Ok(())
    }

    /// Counts what the files grow by. With too much unsynced all is written back, as every system
    /// does now and then.
    fn grow(&mut self, bytes: u64) {
        self.grown += bytes;
        if self.grown < COUNT_AFTER_BYTES {
            return;
        }
        self.grown = 0;
        if self.unsynced_bytes() > self.settings.capacity.max(UNSYNCED_BYTES_MIN) {
            self.names.sync_all();
            let contents = self.nodes.values_mut().filter_map(|node| node.contents.as_mut());
            contents.for_each(|contents| contents.sync(u64::MAX));
            self.forget_unnamed();
        }
    }

    /// Memory for what a crash may bring back, or lose.
    fn unsynced_bytes(&self) -> u64 {
        let of_node = |(inode, node): (&Inode, &Node)| {
            let is_removed = !self.is_there(*inode, node);
            let of_contents = |contents: &Contents| contents.excess_bytes(is_removed);
            let overhead = if is_removed { OVERHEAD_BYTES } else { 0 };
            overhead + node.contents.as_ref().map_or(0, of_contents)
        };
        self.nodes.iter().map(of_node).sum()
    }

    /// False of what was removed, though a crash may bring it back.
    fn is_there(&self, inode: Inode, node: &Node) -> bool {
        inode == ROOT || !node.handles.is_empty() || self.names.seen().has(inode)
    }

    pub(super) fn read_delay(&mut self) -> Duration {
        self.settings.read_delay.draw(&mut self.random)
    }

    pub(super) fn write_delay(&mut self) -> Duration {
        self.settings.write_delay.draw(&mut self.random)
    }

    pub(super) fn read(
        &mut self,
        inode: Inode,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, DiskFailure> {
        let fails = self.random.happens(self.settings.read_fails);
        if take_one(&mut self.failing_reads) || fails {
            return Err(device_failure());
        }
        let seen = self.contents(inode)?.seen();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
        let end = start.saturating_add(len).min(seen.len());
        Ok(Bytes::copy_from_slice(&seen[start..end]))
    }

    pub(super) fn len(&self, inode: Inode) -> Result<u64, DiskFailure> {
        Ok(self.contents(inode)?.seen().len() as u64)
    }

    /// Writes what there is room for; how many bytes.
    pub(super) fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        mut bytes: Bytes,
    ) -> Result<usize, DiskFailure> {
        self.change()?;
        let room = self.room(inode)?.saturating_sub(offset);
        if room == 0 && !bytes.is_empty() {
            return Err(DiskFailure::Full);
        }
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let at = usize::try_from(offset).map_err(|_| DiskFailure::Full)?;
        let fails = self.write_fails();
        if fails {
            bytes.truncate(self.random.index(bytes.len() + 1));
        } else if bytes.len() > 1 && self.random.happens(self.settings.short_writes) {
            bytes.truncate(1 + self.random.index(bytes.len() - 1));
        }
        let count = bytes.len();
        if count > 0 {
            self.stats.writes += 1;
            self.stats.bytes_written += count as u64;
            let contents = self.contents_mut(inode)?;
            contents.write(at, bytes);
            self.grow(count as u64);
        }
        if fails { Err(device_failure()) } else { Ok(count) }
    }

    pub(super) fn set_len(&mut self, inode: Inode, len: u64) -> Result<(), DiskFailure> {
        self.change()?;
        if len > self.room(inode)? {
            return Err(DiskFailure::Full);
        }
        let len = usize::try_from(len).map_err(|_| DiskFailure::Full)?;
        let fails = self.write_fails();
        if !fails || self.random.chance(50) {
            self.contents_mut(inode)?.set_len(len);
            self.grow(len as u64);
        }
        if fails { Err(device_failure()) } else { Ok(()) }
    }

    fn write_fails(&mut self) -> bool {
        let fails = self.random.happens(self.settings.write_fails);
        take_one(&mut self.failing_writes) || fails
    }

    /// The length that a file can have.
    fn room(&self, inode: Inode) -> Result<u64, DiskFailure> {
        let len = self.len(inode)?;
        let there = self.nodes.iter().filter(|(inode, node)| self.is_there(**inode, node));
        let there = there.filter_map(|(_, node)| node.contents.as_ref());
        let used: u64 = there.map(|contents| contents.seen().len() as u64).sum();
        let free = self.settings.capacity.saturating_sub(used);
        Ok(len.saturating_add(free))
    }

    /// Corrupts the sector around a byte.
    pub(super) fn rot(&mut self, path: &str, offset: u64) -> Result<(u64, u64), DiskFailure> {
        let inode = self.find(&parts(path)?)?;
        let node = self.nodes.get_mut(&inode).ok_or(DiskFailure::NotFound)?;
        let contents = node.contents.as_mut().ok_or(DiskFailure::WrongKind)?;
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let rotten = contents.rot(at, &mut self.random);
        let (start, end) = rotten.ok_or(DiskFailure::NotFound)?;
        Ok((start as u64, end as u64))
    }

    /// Contents of a file that would survive if a crash left nothing unsynced.
    pub(super) fn durable(&self, path: &str) -> Option<Bytes> {
        let inode = walk(self.names.durable(), &parts(path).ok()?)?;
        Some(Bytes::copy_from_slice(self.contents(inode).ok()?.durable()))
    }

    fn contents(&self, inode: Inode) -> Result<&Contents, DiskFailure> {
        let node = self.nodes.get(&inode).ok_or(DiskFailure::NotFound)?;
        node.contents.as_ref().ok_or(DiskFailure::WrongKind)
    }

    fn contents_mut(&mut self, inode: Inode) -> Result<&mut Contents, DiskFailure> {
        let node = self.nodes.get_mut(&inode).ok_or(DiskFailure::NotFound)?;
        node.contents.as_mut().ok_or(DiskFailure::WrongKind)
    }

    fn is_dir(&self, inode: Inode) -> bool {
        self.nodes.get(&inode).is_some_and(|node| node.contents.is_none())
    }

    fn find(&self, parts: &[&str]) -> Result<Inode, DiskFailure> {
        walk(self.names.seen(), parts).ok_or(DiskFailure::NotFound)
    }

    fn dir(&self, parts: &[&str]) -> Result<Inode, DiskFailure> {
        let inode = self.find(parts)?;
        if self.is_dir(inode) { Ok(inode) } else { Err(DiskFailure::WrongKind) }
    }

    /// Directory and name of a path.
    fn place<'a>(&self, path: &'a str) -> Result<(Inode, &'a str), DiskFailure> {
        let parts = parts(path)?;
        let (name, above) = parts.split_last().ok_or(DiskFailure::WrongKind)?;
        Ok((self.dir(above)?, name))
    }

    /// Drops the files that nobody can reach any more, now or after a crash.
    fn forget_unnamed(&mut self) {
        let named = self.names.named();
        let is_needed = |inode: Inode, node: &Node| {
            inode == ROOT || !node.handles.is_empty() || named.contains(&inode)
        };
        self.nodes.retain(|inode, node| is_needed(*inode, node));
    }
}

/// Takes one of those that a test has ordered, if there is one.
fn take_one(count: &mut u64) -> bool {
    let is_there = *count > 0;
    *count -= u64::from(is_there);
    is_there
}

fn walk(tree: &Tree, parts: &[&str]) -> Option<Inode> {
    parts.iter().try_fold(ROOT, |dir, name| tree.find(dir, name))
}

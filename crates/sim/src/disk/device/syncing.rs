//! Syncs: what they make durable, and how they fail and lie.

use std::time::Duration;

use convoke_disk::{DiskFailure, parts};

use super::super::names::Inode;
use super::Device;

/// Outcome of a sync, known when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Works,
    Fails,
    Lies,
}

/// A sync that has begun.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) struct Syncing {
    verdict: Verdict,
    /// It is about the changes before this one.
    next: u64,
    pub(in crate::disk) delay: Duration,
}

impl Device {
    pub(in crate::disk) fn begin_sync(&mut self, inode: Inode) -> Result<Syncing, DiskFailure> {
        self.stats.syncs += 1;
        let next = self.contents(inode)?.next_change();
        self.syncing(next)
    }

    pub(in crate::disk) fn end_sync(
        &mut self,
        inode: Inode,
        syncing: Syncing,
    ) -> Result<(), DiskFailure> {
        let contents = self.nodes.get_mut(&inode).and_then(|node| node.contents.as_mut());
        let contents = contents.ok_or(DiskFailure::NotFound)?;
        match syncing.verdict {
            Verdict::Works => contents.sync(syncing.next),
            Verdict::Lies => {}
            Verdict::Fails => {
                contents.fail_sync(syncing.next, &mut self.random);
                return Err(failed());
            }
        }
        Ok(())
    }

    pub(in crate::disk) fn begin_sync_dir(
        &mut self,
        path: &str,
    ) -> Result<(Inode, Syncing), DiskFailure> {
        let dir = self.dir(&parts(path)?)?;
        self.stats.dir_syncs += 1;
        Ok((dir, self.syncing(self.names.next_change())?))
    }

    pub(in crate::disk) fn end_sync_dir(
        &mut self,
        dir: Inode,
        syncing: Syncing,
    ) -> Result<(), DiskFailure> {
        match syncing.verdict {
            Verdict::Works => {
                self.names.sync(dir, syncing.next);
                self.forget_unnamed();
            }
            Verdict::Lies => {}
            Verdict::Fails => {
                self.names.fail_sync(dir, syncing.next, &mut self.random);
                return Err(failed());
            }
        }
        Ok(())
    }

    fn syncing(&mut self, next: u64) -> Result<Syncing, DiskFailure> {
        // Nothing can be unsynced that the disk has not taken.
        if !self.settings.read_only {
            self.change()?;
        }
        let is_due = |count: &mut u64| {
            let is_due = *count > 0;
            *count -= u64::from(is_due);
            is_due
        };
        // Drawn in any case, so that what a test orders changes nothing else.
        let fails = self.random.happens(self.settings.sync_fails);
        let lies = self.random.happens(self.settings.sync_lies);
        let verdict = if is_due(&mut self.failing_syncs) || fails {
            Verdict::Fails
        } else if is_due(&mut self.lying_syncs) || lies {
            Verdict::Lies
        } else {
            Verdict::Works
        };
        let delay = self.settings.sync_delay.draw(&mut self.random);
        Ok(Syncing { verdict, next, delay })
    }
}

fn failed() -> DiskFailure {
    DiskFailure::Device("input/output error".to_owned())
}

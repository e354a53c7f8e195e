//! Syncs: what they make durable, and how they fail and lie.

use std::time::Duration;

use convoke_disk::{DiskFailure, parts};

use super::super::names::Inode;
use super::{Device, take_one};

/// Outcome of a sync, known when it begins.
#[derive(Debug)]
enum Verdict {
    Works,
    Fails(DiskFailure),
    /// The disk has turned read-only.
    Refused,
    Lies,
}

/// A sync that has begun.
#[derive(Debug)]
pub(in crate::disk) struct Syncing {
    verdict: Verdict,
    /// It is about the changes before this one.
    next: u64,
    pub(in crate::disk) delay: Duration,
}

impl Device {
    pub(in crate::disk) fn begin_sync(&mut self, inode: Inode) -> Result<Syncing, DiskFailure> {
        self.stats.syncs += 1;
        let contents = self.contents(inode)?;
        let (next, is_synced) = (contents.next_change(), contents.is_synced());
        self.syncing(next, is_synced)
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
            Verdict::Refused => return Err(DiskFailure::ReadOnly),
            Verdict::Fails(failure) => {
                contents.fail_sync(syncing.next, &mut self.random);
                return Err(failure);
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
        let (next, is_synced) = (self.names.next_change(), self.names.is_synced(dir));
        Ok((dir, self.syncing(next, is_synced)?))
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
            Verdict::Refused => return Err(DiskFailure::ReadOnly),
            Verdict::Fails(failure) => {
                self.names.fail_sync(dir, syncing.next, &mut self.random);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Decides about a sync of the changes before `next`. `is_synced` when there are none.
    fn syncing(&mut self, next: u64, is_synced: bool) -> Result<Syncing, DiskFailure> {
        // A disk that takes no changes makes none durable that it took before.
        let takes_no_more = self.settings.read_only;
        if !takes_no_more {
            self.change()?;
        }
        // Drawn in any case, so that what a test orders changes nothing else.
        let fails = self.random.happens(self.settings.sync_fails);
        let lies = self.random.happens(self.settings.sync_lies);
        let verdict = if take_one(&mut self.failing_syncs) || fails {
            Verdict::Fails(self.settings.sync_failure.clone())
        } else if takes_no_more && !is_synced {
            Verdict::Refused
        } else if take_one(&mut self.lying_syncs) || lies {
            Verdict::Lies
        } else {
            Verdict::Works
        };
        let delay = self.settings.sync_delay.draw(&mut self.random);
        Ok(Syncing { verdict, next, delay })
    }
}

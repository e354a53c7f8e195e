//! Operations on names: open, list, rename, remove, lock.

use std::collections::BTreeMap;

use convoke_disk::{DiskFailure, Entry, Open, parts};

use super::super::Life;
use super::super::contents::Contents;
use super::super::names::{Inode, ROOT};
use super::{Device, Node};

impl Device {
    /// Opens a file, and counts the handle. True when it is new.
    pub(in crate::disk) fn open(
        &mut self,
        life: Life,
        path: &str,
        open: Open,
    ) -> Result<(Inode, bool), DiskFailure> {
        let (dir, name) = self.place(path)?;
        let found = self.names.seen().find(dir, name);
        let inode = match (found, open) {
            (Some(_), Open::New) => return Err(DiskFailure::Exists),
            (Some(inode), _) => inode,
            (None, Open::New | Open::Create) => {
                self.create(dir, name, Some(Contents::default()))?
            }
            (None, Open::Read | Open::Write) => return Err(DiskFailure::NotFound),
        };
        if open != Open::Read && self.settings.read_only {
            return Err(DiskFailure::ReadOnly);
        }
        let node = self.nodes.get_mut(&inode).ok_or(DiskFailure::NotFound)?;
        if node.contents.is_none() {
            return Err(DiskFailure::WrongKind);
        }
        *node.handles.entry(life).or_default() += 1;
        Ok((inode, found.is_none()))
    }

    /// A handle is dropped.
    pub(in crate::disk) fn close(&mut self, life: Life, inode: Inode) {
        let Some(node) = self.nodes.get_mut(&inode) else { return };
        // The process may have ended before its handles were dropped.
        let Some(count) = node.handles.get_mut(&life) else { return };
        *count -= 1;
        if *count == 0 {
            node.handles.remove(&life);
            if node.handles.is_empty() && !self.names.is_named(inode) {
                self.nodes.remove(&inode);
            }
        }
    }

    pub(in crate::disk) fn create_dir(&mut self, path: &str) -> Result<(), DiskFailure> {
        let parts = parts(path)?;
        if self.find(&parts).is_ok() {
            return Err(DiskFailure::Exists);
        }
        let (dir, name) = self.place(path)?;
        self.create(dir, name, None).map(drop)
    }

    fn create(
        &mut self,
        dir: Inode,
        name: &str,
        contents: Option<Contents>,
    ) -> Result<Inode, DiskFailure> {
        self.change()?;
        self.last_inode += 1;
        let inode = self.last_inode;
        self.names.place(inode, dir, name);
        self.nodes.insert(inode, Node { contents, handles: BTreeMap::new() });
        Ok(inode)
    }

    pub(in crate::disk) fn list(&self, path: &str) -> Result<Vec<Entry>, DiskFailure> {
        let dir = self.dir(&parts(path)?)?;
        let entries = self.names.seen().list(dir);
        let entries = entries
            .map(|(name, inode)| Entry { name: name.to_owned(), is_dir: self.is_dir(inode) });
        Ok(entries.collect())
    }

    pub(in crate::disk) fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskFailure> {
        let (dir, name) = self.place(to)?;
        let inode = self.find(&parts(from)?)?;
        let is_dir = self.is_dir(inode);
        let replaced = self.names.seen().find(dir, name);
        if replaced == Some(inode) {
            return Ok(());
        }
        if is_dir && self.names.seen().is_within(dir, inode) {
            return Err(DiskFailure::InvalidPath);
        }
        match replaced.map(|replaced| self.is_dir(replaced)) {
            Some(is_replaced_dir) if is_replaced_dir != is_dir => {
                return Err(DiskFailure::WrongKind);
            }
            Some(true) => return Err(DiskFailure::NotEmpty),
            Some(false) | None => {}
        }
        self.change()?;
        self.names.place(inode, dir, name);
        Ok(())
    }

    pub(in crate::disk) fn remove(&mut self, path: &str) -> Result<(), DiskFailure> {
        let inode = self.find(&parts(path)?)?;
        if inode == ROOT {
            return Err(DiskFailure::Denied);
        }
        if self.names.seen().list(inode).next().is_some() {
            return Err(DiskFailure::NotEmpty);
        }
        self.change()?;
        self.names.remove(inode);
        Ok(())
    }

    pub(in crate::disk) fn lock(&mut self, life: Life, path: &str) -> Result<Inode, DiskFailure> {
        let (inode, _) = self.open(life, path, Open::Create)?;
        if self.locks.contains_key(&inode) {
            self.close(life, inode);
            return Err(DiskFailure::Locked);
        }
        self.locks.insert(inode, life);
        Ok(inode)
    }

    pub(in crate::disk) fn unlock(&mut self, life: Life, inode: Inode) {
        if self.locks.get(&inode) == Some(&life) {
            self.locks.remove(&inode);
            self.close(life, inode);
        }
    }
}

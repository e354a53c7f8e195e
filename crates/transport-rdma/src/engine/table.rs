//! Table of what the tags of a device stand for.

use std::sync::Arc;

use convoke_transport::Sink;

use crate::provider::{Provider, Tag, VerbsError};
use crate::wire::Wire;

/// Listeners and wires by their tag. A tag is used again as soon as it is free: a provider reports
/// nothing of one whose handle was dropped.
#[derive(Debug)]
pub(super) struct Table<P: Provider> {
    entries: Vec<Option<Entry<P>>>,
    free: Vec<Tag>,
    wire_count: usize,
    /// Reason why nothing can be added any more.
    pub(super) lost: Option<VerbsError>,
}

#[derive(Debug)]
pub(super) enum Entry<P: Provider> {
    Listener(Arc<dyn Sink>),
    /// A wire that is being made.
    Reserved,
    Wire(Arc<Wire<P>>),
}

impl<P: Provider> Table<P> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), wire_count: 0, lost: None }
    }

    /// Adds an entry, unless there are `wires_max` wires already.
    pub(super) fn insert(&mut self, entry: Entry<P>, wires_max: usize) -> Result<Tag, VerbsError> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let is_wire = !matches!(entry, Entry::Listener(_));
        let new_tag = || Tag::new(u32::try_from(self.entries.len()).ok()?);
        let tag = self.free.last().copied().or_else(new_tag);
        let tag = tag.filter(|_| !is_wire || self.wire_count < wires_max);
        let tag = tag.ok_or_else(|| VerbsError::Exhausted {
            what: "connections",
            advice: format!("{wires_max} are open, which is the limit of connections_max"),
        })?;
        self.wire_count += usize::from(is_wire);
        if self.free.pop().is_none() {
            self.entries.push(None);
        }
        self.entries[index(tag)] = Some(entry);
        Ok(tag)
    }

    /// Replaces an entry.
    pub(super) fn set(&mut self, tag: Tag, entry: Entry<P>) {
        self.entries[index(tag)] = Some(entry);
    }

    pub(super) fn remove(&mut self, tag: Tag) -> Option<Entry<P>> {
        let removed = self.entries[index(tag)].take()?;
        self.wire_count -= usize::from(!matches!(removed, Entry::Listener(_)));
        self.free.push(tag);
        Some(removed)
    }

    pub(super) fn wire(&self, tag: Tag) -> Option<Arc<Wire<P>>> {
        match self.entries.get(index(tag))? {
            Some(Entry::Wire(wire)) => Some(Arc::clone(wire)),
            _ => None,
        }
    }

    pub(super) fn sink(&self, listener: Tag) -> Option<Arc<dyn Sink>> {
        match self.entries.get(index(listener))? {
            Some(Entry::Listener(sink)) => Some(Arc::clone(sink)),
            _ => None,
        }
    }

    pub(super) fn wires(&self) -> impl Iterator<Item = &Arc<Wire<P>>> {
        self.entries.iter().flatten().filter_map(|entry| match entry {
            Entry::Wire(wire) => Some(wire),
            Entry::Listener(_) | Entry::Reserved => None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == self.free.len()
    }
}

fn index(tag: Tag) -> usize {
    tag.get() as usize
}

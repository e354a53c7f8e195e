//! Table of what the tags of a device stand for.

use std::collections::VecDeque;
use std::sync::Arc;

use convoke_transport::Sink;

use crate::provider::{Provider, Tag, VerbsError};
use crate::wire::Wire;

/// Listeners and wires by their tag. A tag is used again once it is free: a provider reports
/// nothing of one whose handle was dropped. But one task may still have in its hands what another
/// has ended meanwhile, so the tag that has been free for longest is the next.
#[derive(Debug)]
pub(super) struct Table<P: Provider> {
    entries: Vec<Option<Entry<P>>>,
    free: VecDeque<Tag>,
    wire_count: usize,
    /// Reason why nothing can be added any more.
    pub(super) lost: Option<VerbsError>,
}

#[derive(Debug)]
pub(super) enum Entry<P: Provider> {
    /// The provider's listener is there once it listens, and until the device is lost.
    Listener {
        sink: Arc<dyn Sink>,
        open: Option<P::Listener>,
    },
    /// A wire that is being made.
    Reserved,
    Wire(Arc<Wire<P>>),
}

impl<P: Provider> Table<P> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: VecDeque::new(), wire_count: 0, lost: None }
    }

    /// Adds an entry, unless there are `wires_max` wires already.
    pub(super) fn insert(&mut self, entry: Entry<P>, wires_max: usize) -> Result<Tag, VerbsError> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let is_wire = !matches!(entry, Entry::Listener { .. });
        let new_tag = || Tag::new(u32::try_from(self.entries.len()).ok()?);
        let tag = self.free.front().copied().or_else(new_tag);
        let tag = tag.filter(|_| !is_wire || self.wire_count < wires_max);
        let tag = tag.ok_or_else(|| VerbsError::Exhausted {
            what: "connections",
            advice: format!("{wires_max} are open, which is the limit of connections_max"),
        })?;
        self.wire_count += usize::from(is_wire);
        if self.free.pop_front().is_none() {
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
        self.wire_count -= usize::from(!matches!(removed, Entry::Listener { .. }));
        self.free.push_back(tag);
        Some(removed)
    }

    /// Removes a wire, if it is there.
    pub(super) fn remove_wire(&mut self, wire: &Wire<P>) -> Option<Entry<P>> {
        let tag = wire.tag();
        let is_there = self.wire(tag).is_some_and(|there| std::ptr::eq(&*there, wire));
        if is_there { self.remove(tag) } else { None }
    }

    pub(super) fn wire(&self, tag: Tag) -> Option<Arc<Wire<P>>> {
        match self.entries.get(index(tag))? {
            Some(Entry::Wire(wire)) => Some(Arc::clone(wire)),
            _ => None,
        }
    }

    pub(super) fn sink(&self, listener: Tag) -> Option<Arc<dyn Sink>> {
        match self.entries.get(index(listener))? {
            Some(Entry::Listener { sink, .. }) => Some(Arc::clone(sink)),
            _ => None,
        }
    }

    /// Adds the provider's listener to its entry. Gives it back when the device was lost meanwhile.
    pub(super) fn open(
        &mut self,
        tag: Tag,
        listener: P::Listener,
    ) -> Result<(), (P::Listener, VerbsError)> {
        if let Some(error) = &self.lost {
            return Err((listener, error.clone()));
        }
        if let Some(Entry::Listener { open, .. }) = &mut self.entries[index(tag)] {
            *open = Some(listener);
        }
        Ok(())
    }

    /// Takes the provider's listener out of its entry.
    pub(super) fn close(&mut self, tag: Tag) -> Option<P::Listener> {
        match &mut self.entries[index(tag)] {
            Some(Entry::Listener { open, .. }) => open.take(),
            _ => None,
        }
    }

    /// Takes all listeners of the provider out of their entries.
    pub(super) fn close_all(&mut self) -> Vec<P::Listener> {
        let listeners = self.entries.iter_mut().flatten().filter_map(|entry| match entry {
            Entry::Listener { open, .. } => open.take(),
            Entry::Reserved | Entry::Wire(_) => None,
        });
        listeners.collect()
    }

    pub(super) fn wires(&self) -> impl Iterator<Item = &Arc<Wire<P>>> {
        self.entries.iter().flatten().filter_map(|entry| match entry {
            Entry::Wire(wire) => Some(wire),
            Entry::Listener { .. } | Entry::Reserved => None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == self.free.len()
    }
}

fn index(tag: Tag) -> usize {
    tag.get() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::simulated::SimDevice;

    #[test]
    fn a_tag_that_is_free_is_used_again_after_those_that_were_free_before() {
        let mut table = Table::<SimDevice>::new();
        let add = |table: &mut Table<_>| table.insert(Entry::Reserved, 4).unwrap();
        let [one, two, three] = [(); 3].map(|()| add(&mut table));
        table.remove(two);
        table.remove(one);
        assert_eq!(add(&mut table), two);
        table.remove(three);
        table.remove(two);
        assert_eq!([(); 3].map(|()| add(&mut table)), [one, three, two]);
    }
}

//! The log: values that are known to be chosen, without a gap.

use std::collections::VecDeque;

use super::ballot::{Slot, Value};

/// Chosen values behind a snapshot.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Log {
    trimmed: Slot,
    values: VecDeque<Value>,
    /// Of the values.
    bytes: usize,
}

impl Log {
    /// All up to here are known.
    pub(super) fn chosen(&self) -> Slot {
        self.trimmed.plus(self.values.len())
    }

    /// All up to here are in a snapshot only.
    pub(super) fn trimmed(&self) -> Slot {
        self.trimmed
    }

    /// The next value.
    pub(super) fn push(&mut self, value: Value) {
        self.bytes += value.size();
        self.values.push_back(value);
    }

    /// Values from `from` on, up to so many bytes of them, at least one if there is one. `None`
    /// when the first is in a snapshot only.
    pub(super) fn read(&self, from: Slot, bytes: usize) -> Option<Vec<Value>> {
        let skip = usize::try_from(from.0.checked_sub(self.trimmed.next().0)?).ok()?;
        let mut room = bytes;
        let mut read = Vec::new();
        for value in self.values.iter().skip(skip) {
            if value.size() > room && !read.is_empty() {
                break;
            }
            room = room.saturating_sub(value.size());
            read.push(value.clone());
        }
        Some(read)
    }

    /// Bytes of the values behind a slot.
    pub(super) fn bytes_behind(&self, slot: Slot) -> usize {
        let skip = usize::try_from(slot.0.saturating_sub(self.trimmed.0)).unwrap_or(usize::MAX);
        self.values.iter().skip(skip).map(Value::size).sum()
    }

    /// Lets go of what is in a snapshot.
    pub(super) fn trim(&mut self, upto: Slot) {
        while self.trimmed < upto && self.trim_next().is_some() {}
    }

    /// Lets go of what is in a snapshot, as long as there are more bytes than these.
    pub(super) fn trim_to(&mut self, upto: Slot, bytes: usize) {
        while self.bytes > bytes && self.trimmed < upto && self.trim_next().is_some() {}
    }

    fn trim_next(&mut self) -> Option<()> {
        self.bytes -= self.values.pop_front()?.size();
        self.trimmed = self.trimmed.next();
        Some(())
    }

    /// Begins anew behind a snapshot of somebody else.
    pub(super) fn jump(&mut self, upto: Slot) {
        debug_assert!(upto > self.chosen(), "a snapshot that is behind the log");
        *self = Self { trimmed: upto, ..Self::default() };
    }
}

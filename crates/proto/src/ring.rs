//! Things by number, made in order of number and mostly removed so, too.

use std::collections::VecDeque;

/// Things by number. A number that was left out, or removed behind an older one, costs the room of
/// a thing.
#[derive(Debug)]
pub struct Ring<T> {
    /// The number of the first entry, which is never vacant.
    first: u64,
    entries: VecDeque<Option<T>>,
    in_use: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { first: 0, entries: VecDeque::new(), in_use: 0 }
    }
}

impl<T> Ring<T> {
    /// Keeps a thing whose number is above all before it.
    #[inline]
    pub fn push(&mut self, number: u64, thing: T) {
        if self.entries.is_empty() {
            self.first = number;
        }
        debug_assert!(self.first + self.entries.len() as u64 <= number, "numbers rise");
        while self.first + (self.entries.len() as u64) < number {
            self.entries.push_back(None);
        }
        self.entries.push_back(Some(thing));
        self.in_use += 1;
    }

    /// Keeps a thing under a number that may have been left out.
    ///
    /// # Errors
    /// The thing, when its number lies below the oldest.
    pub fn insert(&mut self, number: u64, thing: T) -> Result<(), T> {
        match self.index(number) {
            None if self.entries.is_empty() || number > self.first => self.push(number, thing),
            None => return Err(thing),
            Some(index) => {
                self.in_use += usize::from(self.entries[index].replace(thing).is_none());
            }
        }
        Ok(())
    }

    /// The entry that is kept under a number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.entries.get(self.index(number)?)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let index = self.index(number)?;
        self.entries.get_mut(index)?.as_mut()
    }

    /// Takes out what is kept under a number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let index = self.index(number)?;
        let thing = self.entries[index].take()?;
        self.on_removed();
        Some(thing)
    }

    /// Drops what is kept under a number, where it lies.
    pub fn discard(&mut self, number: u64) {
        self.discard_if(number, |_| true);
    }

    /// Drops what is kept under a number, if it is as it should be. True when it was.
    pub fn discard_if(&mut self, number: u64, is_meant: impl FnOnce(&T) -> bool) -> bool {
        let Some(index) = self.index(number) else { return false };
        let entry = &mut self.entries[index];
        let is_meant = entry.as_ref().is_some_and(is_meant);
        if is_meant {
            *entry = None;
            self.on_removed();
        }
        is_meant
    }

    fn on_removed(&mut self) {
        self.in_use -= 1;
        while matches!(self.entries.front(), Some(None)) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// The oldest, and its number.
    pub fn front(&self) -> Option<(u64, &T)> {
        self.entries.front()?.as_ref().map(|thing| (self.first, thing))
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.first..)
            .zip(&self.entries)
            .filter_map(|(number, thing)| Some((number, thing.as_ref()?)))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.in_use
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.in_use == 0
    }

    /// The numbers from the oldest to the newest, vacant ones too.
    pub fn span(&self) -> usize {
        self.entries.len()
    }

    fn index(&self, number: u64) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (index < self.entries.len()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_as_long_as_its_oldest_entry_is_behind() {
        let mut ring = Ring::default();
        for number in [4, 7, 8] {
            ring.push(number, number);
        }
        assert_eq!((ring.front(), ring.len(), ring.span()), (Some((4, &4)), 3, 5));
        assert_eq!((ring.get(5), ring.get(3), ring.get(9)), (None, None, None));
        assert_eq!((ring.remove(7), ring.remove(7)), (Some(7), None));
        assert_eq!(ring.front(), Some((4, &4)));
        assert_eq!(ring.remove(4), Some(4));
        assert_eq!((ring.front(), ring.len(), ring.span()), (Some((8, &8)), 1, 1));
        assert_eq!(ring.insert(6, 6), Err(6));
        ring.discard(8);
        assert!(ring.is_empty() && ring.front().is_none());
        assert_eq!(ring.insert(6, 6), Ok(()), "an empty ring begins anywhere");
    }

    #[test]
    fn a_thing_takes_the_place_of_the_one_before_it() {
        let mut ring = Ring::default();
        for (number, thing) in [(1, 'a'), (3, 'c'), (2, 'b'), (3, 'd')] {
            assert_eq!(ring.insert(number, thing), Ok(()));
        }
        assert_eq!(ring.iter().collect::<Vec<_>>(), [(1, &'a'), (2, &'b'), (3, &'d')]);
        assert_eq!(ring.len(), 3);
    }
}

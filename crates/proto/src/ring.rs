//! Things by number, made in order of number and mostly removed so, too.

/// Things by number. A number that was left out, or removed behind an older one, costs the room of
/// a thing.
#[derive(Debug)]
pub struct Ring<T> {
    /// The number of the first entry, which is never vacant.
    first: u64,
    /// Numbers from the first entry to the last.
    span: u64,
    /// None, or a power of two of them: a number has the one at its remainder. Those of numbers
    /// outside the span are vacant.
    slots: Vec<Option<T>>,
    in_use: usize,
}

/// Slots that a ring begins with.
const SLOTS_MIN: u64 = 4;

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { first: 0, span: 0, slots: Vec::new(), in_use: 0 }
    }
}

impl<T> Ring<T> {
    /// Keeps a thing whose number is above all before it.
    #[inline]
    pub fn push(&mut self, number: u64, thing: T) {
        self.push_with(number, || thing);
    }

    /// The same of one that is made where it lies.
    #[inline]
    pub fn push_with(&mut self, number: u64, make: impl FnOnce() -> T) -> &mut T {
        if self.span == 0 {
            self.first = number;
        }
        debug_assert!(self.first + self.span <= number, "numbers rise");
        let span = number - self.first + 1;
        if span > self.slots.len() as u64 {
            self.grow(span);
        }
        self.span = self.span.max(span);
        let slot = self.slot(number);
        self.in_use += 1;
        self.slots[slot].get_or_insert_with(make)
    }

    /// Makes room for so many numbers.
    #[cold]
    fn grow(&mut self, span: u64) {
        let mut grown = Self { first: self.first, ..Self::default() };
        let count = usize::try_from(span.max(SLOTS_MIN).next_power_of_two());
        grown.slots.resize_with(count.expect("as many as lie in memory"), || None);
        for number in self.first..self.first + self.span {
            let (from, to) = (self.slot(number), grown.slot(number));
            grown.slots[to] = self.slots[from].take();
        }
        self.slots = grown.slots;
    }

    /// Keeps a thing under a number that may have been left out.
    ///
    /// # Errors
    /// The thing, when its number lies below the oldest.
    pub fn insert(&mut self, number: u64, thing: T) -> Result<(), T> {
        if self.contains(number) {
            let slot = self.slot(number);
            self.in_use += usize::from(self.slots[slot].replace(thing).is_none());
        } else if self.span == 0 || number > self.first {
            self.push(number, thing);
        } else {
            return Err(thing);
        }
        Ok(())
    }

    /// The entry that is kept under a number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&T> {
        let slot = self.contains(number).then(|| self.slot(number))?;
        self.slots.get(slot)?.as_ref()
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let slot = self.contains(number).then(|| self.slot(number))?;
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Takes out what is kept under a number.
    #[inline]
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let slot = self.contains(number).then(|| self.slot(number))?;
        let thing = self.slots.get_mut(slot)?.take()?;
        self.in_use -= 1;
        self.skip_vacant();
        Some(thing)
    }

    /// Drops what is kept under a number, where it lies, and shows it to `act` before.
    #[inline]
    pub fn discard(&mut self, number: u64, act: impl FnOnce(&T)) {
        if self.contains(number) {
            let slot = self.slot(number);
            if let Some(thing) = &self.slots[slot] {
                act(thing);
                self.slots[slot] = None;
                self.in_use -= 1;
                self.skip_vacant();
            }
        }
    }

    /// The first entry is not vacant.
    #[inline]
    fn skip_vacant(&mut self) {
        while self.span > 0 && self.slots[self.slot(self.first)].is_none() {
            (self.first, self.span) = (self.first + 1, self.span - 1);
        }
    }

    /// The oldest, and its number.
    #[inline]
    pub fn front(&self) -> Option<(u64, &T)> {
        self.get(self.first).map(|thing| (self.first, thing))
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbers = self.first..self.first + self.span;
        numbers.filter_map(|number| Some((number, self.get(number)?)))
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
    pub fn span(&self) -> u64 {
        self.span
    }

    /// True for a number from the oldest to the newest.
    #[inline]
    fn contains(&self, number: u64) -> bool {
        number.wrapping_sub(self.first) < self.span
    }

    /// Place of a number, where there are slots.
    #[inline]
    fn slot(&self, number: u64) -> usize {
        let mask = (self.slots.len() as u64).wrapping_sub(1);
        usize::try_from(number & mask).unwrap_or(usize::MAX)
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
        ring.discard(8, |_| ());
        assert!(ring.is_empty() && ring.front().is_none());
        assert_eq!(ring.insert(6, 6), Ok(()), "an empty ring begins anywhere");
    }

    /// Against a map, with numbers that are left out and removed in any order.
    #[test]
    fn a_ring_that_grows_keeps_each_thing_under_its_number() {
        let (mut ring, mut map) = (Ring::default(), std::collections::BTreeMap::new());
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        let mut next = u64::from(u32::MAX) - 100;
        for _ in 0..20_000 {
            if below(5) < 3 {
                next += 1 + below(8) / 7;
                ring.push(next, next);
                map.insert(next, next);
            } else {
                let number = next - below(60).min(next);
                if below(2) == 0 {
                    assert_eq!(ring.remove(number), map.remove(&number));
                } else {
                    ring.discard(number, |_| ());
                    map.remove(&number);
                }
            }
            // The oldest does not stay for ever.
            if map.len() > 40 {
                let (oldest, thing) = map.pop_first().unwrap();
                assert_eq!(ring.front(), Some((oldest, &thing)));
                assert_eq!(ring.remove(oldest), Some(thing));
            }
            assert_eq!(ring.len(), map.len());
            assert!(ring.iter().eq(map.iter().map(|(number, thing)| (*number, thing))));
            assert_eq!(ring.get(next + 1), None);
        }
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

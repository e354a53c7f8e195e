//! Bytes that wait, by source.

use crate::site::Site;

/// Bytes by source, and of all sources together.
#[derive(Debug)]
pub(crate) struct Tally {
    by_source: Vec<usize>,
    total: usize,
}

impl Tally {
    /// None of so many sites.
    pub(crate) fn new(sites: usize) -> Self {
        Self { by_source: vec![0; sites], total: 0 }
    }

    pub(crate) fn add(&mut self, source: Site, bytes: usize) {
        self.by_source[source.index()] += bytes;
        self.total += bytes;
    }

    /// Takes bytes away that were added.
    pub(crate) fn take(&mut self, source: Site, bytes: usize) {
        let left = self.by_source[source.index()].checked_sub(bytes);
        self.by_source[source.index()] = left.expect("no more is taken than was added");
        self.total -= bytes;
    }

    pub(crate) fn of(&self, source: Site) -> usize {
        self.by_source[source.index()]
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each change adds, or takes as much as there is of it.
        #[test]
        fn the_total_is_that_of_all_sources(
            changes in prop::collection::vec((0..4_u16, any::<bool>(), 0..1_000_usize), 0..100),
        ) {
            let mut tally = Tally::new(4);
            for (source, adds, bytes) in changes {
                let (source, before) = (Site(source), tally.of(Site(source)));
                let after = if adds {
                    tally.add(source, bytes);
                    before + bytes
                } else {
                    tally.take(source, bytes.min(before));
                    before.saturating_sub(bytes)
                };
                prop_assert_eq!(tally.of(source), after);
                let sum: usize = (0..4).map(|site| tally.of(Site(site))).sum();
                prop_assert_eq!(tally.total(), sum);
            }
        }
    }
}

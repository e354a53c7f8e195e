//! Amounts that the cores of a node have taken of what its peers share, as each core has last said.
//! By it a bound holds for the node, though each core counts for itself.
//!
//! A core says again what it has once that differs by a small part of the pool, and hears of the
//! others before it takes what a connection brings. So all cores together may pass a bound by that
//! part for each core, and by what they take at the same moment.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::link::PeerName;
use crate::share::POOLS;

/// The book of all cores.
#[derive(Debug, Default)]
pub struct Ledger {
    pools: Account<PeerName, POOLS>,
    /// Bytes of casts that wait, by their senders.
    casts: Account<NodeId, 1>,
    version: u64,
}

/// Amounts in all, and those of each who has any.
#[derive(Debug)]
pub(crate) struct Account<K, const N: usize> {
    total: [usize; N],
    of: BTreeMap<K, [usize; N]>,
}

/// Amounts that one core has taken, in all or for one peer, and the others as it was last heard.
#[derive(Debug)]
pub(crate) struct Part<const N: usize> {
    taken: [usize; N],
    /// Amounts that the ledger has for this core.
    said: [usize; N],
    elsewhere: [usize; N],
    /// The ledger is to be told.
    is_due: bool,
}

/// A core tells the ledger of differences of this part of a pool, divided by the cores.
const STEP: usize = 64;

/// The difference in a pool of this size of which one of so many cores tells the ledger.
pub(crate) fn step(max: usize, cores: usize) -> usize {
    (max / (STEP * cores)).max(1)
}

impl Ledger {
    /// Changes whenever a core has said something; never 0 from then on.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn pools(&self) -> &Account<PeerName, POOLS> {
        &self.pools
    }

    pub(crate) fn casts(&self) -> &Account<NodeId, 1> {
        &self.casts
    }

    /// The pools, of which a core has something new to say.
    pub(crate) fn pools_mut(&mut self) -> &mut Account<PeerName, POOLS> {
        self.version += 1;
        &mut self.pools
    }

    /// The casts, of which a core has something new to say.
    pub(crate) fn casts_mut(&mut self) -> &mut Account<NodeId, 1> {
        self.version += 1;
        &mut self.casts
    }
}

impl<K, const N: usize> Default for Account<K, N> {
    fn default() -> Self {
        Self { total: [0; N], of: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, const N: usize> Account<K, N> {
    pub(crate) fn total(&self) -> [usize; N] {
        self.total
    }

    pub(crate) fn of(&self, name: &K) -> [usize; N] {
        self.of.get(name).copied().unwrap_or([0; N])
    }

    /// A core has this part of all, in place of what it said last.
    pub(crate) fn note_total(&mut self, part: &mut Part<N>) {
        part.tell(&mut self.total);
    }

    /// A core has this part for one, in place of what it said last.
    pub(crate) fn note(&mut self, name: &K, part: &mut Part<N>) {
        if !self.of.contains_key(name) {
            self.of.insert(name.clone(), [0; N]);
        }
        if let Some(of) = self.of.get_mut(name) {
            part.tell(of);
            if *of == [0; N] {
                self.of.remove(name);
            }
        }
    }
}

impl<const N: usize> Default for Part<N> {
    fn default() -> Self {
        Self { taken: [0; N], said: [0; N], elsewhere: [0; N], is_due: false }
    }
}

impl<const N: usize> Part<N> {
    /// Amounts of this core.
    pub(crate) fn taken(&self) -> &[usize; N] {
        &self.taken
    }

    /// The amount in all cores, as far as it is known.
    pub(crate) fn in_all(&self, at: usize) -> usize {
        self.taken[at] + self.elsewhere[at]
    }

    pub(crate) fn take(&mut self, at: usize, count: usize) {
        self.taken[at] += count;
    }

    pub(crate) fn give(&mut self, at: usize, count: usize) {
        self.taken[at] -= count;
    }

    /// The ledger is to be told.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// True when an amount that has changed is news for the ledger, and none was before: it differs
    /// by a step, or nothing is left of it.
    pub(crate) fn becomes_due(&mut self, at: usize, step: usize) -> bool {
        let (taken, said) = (self.taken[at], self.said[at]);
        let is_news = taken.abs_diff(said) >= step || (taken == 0 && said > 0);
        is_news && !std::mem::replace(&mut self.is_due, true)
    }

    /// All cores together have so much, as the ledger says.
    pub(crate) fn hear(&mut self, all: [usize; N]) {
        self.elsewhere = std::array::from_fn(|at| all[at] - self.said[at]);
    }

    /// Of the other cores nothing is heard any more.
    pub(crate) fn forget_elsewhere(&mut self) {
        self.elsewhere = [0; N];
    }

    /// True when nobody has anything, as far as this core knows.
    pub(crate) fn is_blank(&self) -> bool {
        [&self.taken, &self.said, &self.elsewhere].into_iter().flatten().all(|amount| *amount == 0)
    }

    /// Gives all back: what is left is to tell the ledger so.
    pub(crate) fn withdrawn(self) -> Option<Self> {
        let is_known = self.said != [0; N];
        is_known.then(|| Self { said: self.said, ..Self::default() })
    }

    fn tell(&mut self, sum: &mut [usize; N]) {
        for (sum, (taken, said)) in sum.iter_mut().zip(self.taken.iter().zip(&self.said)) {
            *sum = *sum + taken - said;
        }
        (self.said, self.is_due) = (self.taken, false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever cores take and give and whenever they tell it: the book is the sum of what was
        /// told, who hears of it knows what others have told, and nobody keeps a step to itself.
        #[test]
        fn the_book_is_what_cores_have_told(
            acts in prop::collection::vec((0..3_usize, 0..40_usize, any::<bool>()), 1..200),
            step in 1..30_usize,
        ) {
            let name = NodeId::new(1);
            let mut account = Account::<NodeId, 1>::default();
            let mut parts: [Part<1>; 3] = Default::default();
            for (core, amount, gives) in acts {
                let part = &mut parts[core];
                if gives {
                    part.give(0, amount.min(part.taken()[0]));
                } else {
                    part.take(0, amount);
                }
                if part.becomes_due(0, step) {
                    account.note(&name, part);
                }
                prop_assert!(!part.is_due());
                prop_assert!(part.taken[0].abs_diff(part.said[0]) < step);
                prop_assert!(part.taken[0] > 0 || part.said[0] == 0);
                let told: usize = parts.iter().map(|part| part.said[0]).sum();
                prop_assert_eq!(account.of(&name), [told]);
                for part in &mut parts {
                    part.hear([told]);
                    prop_assert_eq!(part.in_all(0), part.taken[0] + told - part.said[0]);
                }
            }
            for part in parts {
                if let Some(mut part) = part.withdrawn() {
                    account.note(&name, &mut part);
                }
            }
            prop_assert!(account.of.is_empty());
        }
    }
}

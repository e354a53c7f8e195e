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

    /// A core has so much in all, in place of what it said last.
    pub(crate) fn note_total(&mut self, has: &[usize; N], said: &mut [usize; N]) {
        restate(&mut self.total, has, said);
    }

    /// A core has so much for one, in place of what it said last.
    pub(crate) fn note(&mut self, name: &K, has: &[usize; N], said: &mut [usize; N]) {
        if !self.of.contains_key(name) {
            self.of.insert(name.clone(), [0; N]);
        }
        if let Some(of) = self.of.get_mut(name) {
            restate(of, has, said);
            if *of == [0; N] {
                self.of.remove(name);
            }
        }
    }
}

fn restate<const N: usize>(sum: &mut [usize; N], has: &[usize; N], said: &mut [usize; N]) {
    for at in 0..N {
        sum[at] = sum[at] + has[at] - said[at];
    }
    *said = *has;
}

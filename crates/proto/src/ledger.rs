//! Amounts that the cores of a node have taken of the pools that its peers share, as each core has
//! last said. By it a bound holds for the node, though each core counts for itself.
//!
//! A core says again what it has once that differs by a small part of the pool, and hears of the
//! others before it takes what a connection brings. So all cores together may pass a bound by that
//! part for each core, and by what they take at the same moment.

use std::collections::BTreeMap;

use crate::link::PeerName;
use crate::share::{Amounts, POOLS};

/// The book of all cores.
#[derive(Debug, Default)]
pub struct Ledger {
    total: Amounts,
    peers: BTreeMap<PeerName, Amounts>,
    version: u64,
}

impl Ledger {
    /// Changes whenever a core has said something; never 0 from then on.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn total(&self) -> &Amounts {
        &self.total
    }

    pub(crate) fn of_peer(&self, name: &PeerName) -> Amounts {
        self.peers.get(name).copied().unwrap_or_default()
    }

    /// A core has so much in all, in place of what it said last.
    pub(crate) fn note_total(&mut self, has: &Amounts, said: &mut Amounts) {
        self.version += 1;
        restate(&mut self.total, has, said);
    }

    /// A core has so much for a peer, in place of what it said last.
    pub(crate) fn note_peer(&mut self, name: &PeerName, has: &Amounts, said: &mut Amounts) {
        if !self.peers.contains_key(name) {
            self.peers.insert(name.clone(), Amounts::default());
        }
        if let Some(of_peer) = self.peers.get_mut(name) {
            restate(of_peer, has, said);
            if *of_peer == Amounts::default() {
                self.peers.remove(name);
            }
        }
    }
}

fn restate(sum: &mut Amounts, has: &Amounts, said: &mut Amounts) {
    for pool in 0..POOLS {
        sum[pool] = sum[pool] + has[pool] - said[pool];
    }
    *said = *has;
}

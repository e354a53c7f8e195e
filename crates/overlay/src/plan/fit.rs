//! Makes rates fit: in whole kbit/s, with sites that may not relay, with a cap on each relay.
//!
//! Sustainable rates fit if any site may relay anything and rates can be split finely. A relayed
//! unit takes n-2 units of an uplink, so in whole kbit/s up to n-1 kbit/s of all rates together can
//! be lost.

use crate::admit::Fairness;
use crate::hose::sites;
use crate::site::{Site, SiteSet};

use super::base::Base;

/// Limits that rates have to fit into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit<'a> {
    /// Part of each uplink that the plan may use, kbit/s.
    pub(super) usable: &'a [u64],
    /// Sites that relay for nobody.
    pub(super) excluded: SiteSet,
    /// Share of a root's stream that a relay may carry, in thousandths.
    pub(super) share_permille: u32,
}

impl Fit<'_> {
    /// The rates, or the largest below them that fit: as even, or as proportional, as the rule
    /// says.
    pub(super) fn cut(&self, wanted: Vec<u64>, fairness: &Fairness) -> Vec<u64> {
        if self.fits(&wanted) {
            return wanted;
        }
        let rise = Rise { fit: self, wanted: &wanted, fairness };
        match fairness {
            Fairness::Proportional => rise.together(),
            Fairness::MaxMin | Fairness::Weighted(_) if self.share_permille < 1000 => {
                rise.together()
            }
            Fairness::MaxMin | Fairness::Weighted(_) => rise.one_after_the_other(),
        }
    }

    /// True when there is room for the rates.
    pub(super) fn fits(&self, rates: &[u64]) -> bool {
        let n = rates.len();
        let all = || self.usable.iter().zip(rates);
        if n <= 2 || all().any(|(usable, rate)| rate > usable) {
            return all().all(|(usable, rate)| rate <= usable);
        }
        let (mut needed, mut relays) = (0, 0);
        for (site, (usable, rate)) in sites(n).zip(all()) {
            let room = room(n, *usable, *rate);
            if self.excluded.contains(site) {
                needed += rate.saturating_sub(room);
            } else {
                needed += rate;
                relays += room;
            }
        }
        needed <= relays && (self.share_permille >= 1000 || self.has_flow(rates))
    }

    /// Units of rate that each site can serve to all but one receiver, besides the first copies of
    /// its own stream, which must have room.
    pub(super) fn room(&self, rates: &[u64]) -> Vec<u64> {
        let all = self.usable.iter().zip(rates);
        all.map(|(usable, rate)| room(rates.len(), *usable, *rate)).collect()
    }

    /// Most of each root's stream that one relay may carry, kbit/s.
    pub(super) fn share(&self, rates: &[u64]) -> Vec<u64> {
        rates.iter().map(|rate| permille(*rate, self.share_permille)).collect()
    }

    fn has_flow(&self, rates: &[u64]) -> bool {
        let cost = vec![0; rates.len() * rates.len()];
        let (room, share) = (self.room(rates), self.share(rates));
        let excluded = self.excluded;
        Base { rates, room: &room, cost: &cost, share: &share, excluded }.solve().unplaced == 0
    }
}

/// Room that one of `n` sites has besides its own first copies. With two sites there is no other
/// receiver.
fn room(n: usize, usable: u64, rate: u64) -> u64 {
    (usable - rate).checked_div((n as u64).saturating_sub(2)).unwrap_or(u64::MAX)
}

/// So many thousandths, rounded down.
pub(super) fn permille(rate: u64, permille: u32) -> u64 {
    // The rate is at most 2^48, and a thousandth at most all of it.
    rate * u64::from(permille) / 1000
}

/// Rates that rise from nothing, as far as they fit and are wanted.
struct Rise<'a> {
    fit: &'a Fit<'a>,
    wanted: &'a [u64],
    fairness: &'a Fairness,
}

impl Rise<'_> {
    /// Until one more would be too much.
    fn together(&self) -> Vec<u64> {
        let all = SiteSet::first(self.wanted.len());
        let none = vec![0; self.wanted.len()];
        self.at(self.highest(all, &none), all, &none)
    }

    /// Those that fit no further stay where they are, while the others rise.
    fn one_after_the_other(&self) -> Vec<u64> {
        let mut rising = SiteSet::first(self.wanted.len());
        let mut rates = vec![0; self.wanted.len()];
        while !rising.is_empty() {
            let level = self.highest(rising, &rates);
            rates = self.at(level, rising, &rates);
            // All together rise no further, so one of them at least does not in this turn.
            for site in rising.iter() {
                let next = self.rate(site.index(), level + 1);
                let most = self.most(&mut rates, site.index(), next);
                if most < next || most == self.wanted[site.index()] {
                    rising = rising.without(site);
                }
            }
        }
        rates
    }

    /// Raises one rate as far as it fits, at most to a bound. Where to it was.
    fn most(&self, rates: &mut [u64], index: usize, bound: u64) -> u64 {
        let most = largest(rates[index], bound, |rate| {
            rates[index] = rate;
            self.fit.fits(rates)
        });
        rates[index] = most;
        most
    }

    /// The highest level that fits, where those that do not rise keep their rates.
    fn highest(&self, rising: SiteSet, rates: &[u64]) -> u64 {
        largest(0, self.top(), |level| self.fit.fits(&self.at(level, rising, rates)))
    }

    fn at(&self, level: u64, rising: SiteSet, rates: &[u64]) -> Vec<u64> {
        let rate = |(site, rate): (Site, &u64)| {
            if rising.contains(site) { self.rate(site.index(), level) } else { *rate }
        };
        sites(rates.len()).zip(rates).map(rate).collect()
    }

    /// The level at which everybody has what it wants, at the latest.
    fn top(&self) -> u64 {
        match self.fairness {
            Fairness::Proportional => 1 << SCALE_BITS,
            Fairness::MaxMin | Fairness::Weighted(_) => {
                self.wanted.iter().copied().max().unwrap_or(0)
            }
        }
    }

    fn rate(&self, index: usize, level: u64) -> u64 {
        let wanted = self.wanted[index];
        match self.fairness {
            Fairness::MaxMin => wanted.min(level),
            Fairness::Weighted(weights) => wanted.min(level.saturating_mul(weights[index].into())),
            Fairness::Proportional => {
                let scaled = (u128::from(wanted) * u128::from(level)) >> SCALE_BITS;
                u64::try_from(scaled).unwrap_or(wanted)
            }
        }
    }
}

/// The largest number up to `most` that fits, where `least` does and what is more than too much is
/// too much.
fn largest(least: u64, most: u64, mut fits: impl FnMut(u64) -> bool) -> u64 {
    let (mut least, mut too_much) = (least, most + 1);
    while too_much - least > 1 {
        let middle = least + (too_much - least) / 2;
        if fits(middle) {
            least = middle;
        } else {
            too_much = middle;
        }
    }
    least
}

/// Precision at which all rates are scaled together, in bits.
const SCALE_BITS: u32 = 32;

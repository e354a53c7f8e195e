//! The hose model: each site has one uplink and one downlink, and the core between them is
//! unlimited. (ShallowForest, section 4.1)

use crate::site::{SITES_MAX, Site};

/// Network that a plan is made for. All numbers are integers, so that every site computes the same
/// plan from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoseModel {
    /// Uplink capacity of each site, kbit/s.
    pub uplink: Vec<u64>,
    /// Downlink capacity of each site, kbit/s.
    pub downlink: Vec<u64>,
    /// One-way latency in microseconds from site `i` to site `j` at `i * n + j`; 0 on the diagonal.
    /// Need be neither symmetric nor a metric.
    pub latency_us: Vec<u32>,
    /// Rate each site wants to broadcast at, kbit/s.
    pub demand: Vec<u64>,
    /// Version of the model.
    pub epoch: u32,
}

/// Largest capacity and demand that a model may have, kbit/s. With it, sums over all sites and
/// copies fit 63 bits; whoever has more has most likely mixed up units.
pub const RATE_MAX_KBIT: u64 = 1 << 48;

/// Error in a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There are no sites, or too many.
    #[error("uplink has {found} sites: give 1 to {SITES_MAX}")]
    Sites {
        /// Number of sites that there are.
        found: usize,
    },
    /// The fields disagree about how many sites there are.
    #[error(
        "{field} has {found} entries where {expected} are needed for the sites that uplink has"
    )]
    Length {
        /// The field.
        field: &'static str,
        /// Number of entries that it should have.
        expected: usize,
        /// Number of entries that it has.
        found: usize,
    },
    /// A number is too large to be a rate.
    #[error("{field} of site {site:?} is {found} kbit/s, over {RATE_MAX_KBIT}: check its unit")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// Its site.
        site: Site,
        /// The number.
        found: u64,
    },
    /// A site is said to be away from itself.
    #[error("latency_us from site {site:?} to itself is {found}: it must be 0")]
    OwnLatency {
        /// The site.
        site: Site,
        /// The number.
        found: u32,
    },
    /// A weight of [`Fairness::Weighted`](crate::Fairness::Weighted) is zero or too large.
    #[error("the weight of site {site:?} is {found}: give 1 to {max}")]
    Weight {
        /// The site.
        site: Site,
        /// The weight.
        found: u32,
        /// The largest possible.
        max: u32,
    },
}

impl HoseModel {
    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.uplink.len()
    }

    /// One-way latency in microseconds.
    ///
    /// # Panics
    /// If the model is not [valid](Self::validate) or has no such site.
    pub fn latency(&self, from: Site, to: Site) -> u32 {
        self.latency_us[from.index() * self.sites() + to.index()]
    }

    /// Checks that a plan can be made from it at all. Capacities and demands may be zero, and
    /// demands may be more than what fits: [`admit`](crate::admit) cuts those.
    ///
    /// # Errors
    /// The first field that is wrong, and how.
    pub fn validate(&self) -> Result<(), ModelError> {
        let n = self.sites();
        if n == 0 || n > SITES_MAX {
            return Err(ModelError::Sites { found: n });
        }
        length("downlink", n, self.downlink.len())?;
        length("latency_us", n * n, self.latency_us.len())?;
        length("demand", n, self.demand.len())?;
        rates("uplink", &self.uplink)?;
        rates("downlink", &self.downlink)?;
        rates("demand", &self.demand)?;
        let own = sites(n).find(|site| self.latency(*site, *site) != 0);
        own.map_or(Ok(()), |site| {
            Err(ModelError::OwnLatency { site, found: self.latency(site, site) })
        })
    }
}

/// All sites of a model or plan with so many.
pub(crate) fn sites(count: usize) -> impl DoubleEndedIterator<Item = Site> + Clone {
    (0..u16::try_from(count).unwrap_or(u16::MAX)).map(Site)
}

fn length(field: &'static str, expected: usize, found: usize) -> Result<(), ModelError> {
    if expected == found { Ok(()) } else { Err(ModelError::Length { field, expected, found }) }
}

fn rates(field: &'static str, rates: &[u64]) -> Result<(), ModelError> {
    let of = sites(rates.len()).zip(rates).find(|(_, rate)| **rate > RATE_MAX_KBIT);
    of.map_or(Ok(()), |(site, &found)| Err(ModelError::TooLarge { field, site, found }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> HoseModel {
        HoseModel {
            uplink: vec![10, 0],
            downlink: vec![5, 5],
            latency_us: vec![0, 3, 4, 0],
            demand: vec![20, 0],
            epoch: 1,
        }
    }

    fn spoilt(spoil: impl FnOnce(&mut HoseModel)) -> String {
        let mut model = model();
        spoil(&mut model);
        model.validate().expect_err("it is spoilt").to_string()
    }

    #[test]
    fn zero_capacities_and_too_much_demand_are_no_errors() {
        assert_eq!(model().validate(), Ok(()));
    }

    #[test]
    fn every_error_names_the_field() {
        assert!(spoilt(|model| model.uplink.clear()).starts_with("uplink has 0 sites"));
        assert!(spoilt(|model| model.uplink = vec![1; 129]).starts_with("uplink has 129 sites"));
        assert!(spoilt(|model| model.downlink.push(1)).starts_with("downlink has 3 entries"));
        assert!(spoilt(|model| model.latency_us.truncate(2)).starts_with("latency_us has 2"));
        assert!(spoilt(|model| model.demand.clear()).starts_with("demand has 0 entries"));
        assert!(spoilt(|model| model.uplink[1] = u64::MAX).starts_with("uplink of site s1"));
        assert!(spoilt(|model| model.downlink[0] = 1 << 49).starts_with("downlink of site s0"));
        assert!(spoilt(|model| model.demand[0] = u64::MAX).starts_with("demand of site s0"));
        assert!(spoilt(|model| model.latency_us[3] = 7).starts_with("latency_us from site s1"));
    }
}

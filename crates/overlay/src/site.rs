//! Sites and sets of them.

use std::fmt;

/// Most sites of an overlay.
pub const SITES_MAX: usize = 128;

/// A site, by its index in the configuration, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub u16);

impl Site {
    /// The index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// A set of sites.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteSet(u128);

impl SiteSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The first `count` sites, at most [`SITES_MAX`].
    pub fn first(count: usize) -> Self {
        if count >= SITES_MAX { Self(u128::MAX) } else { Self((1 << count) - 1) }
    }

    /// The set whose bit i says whether site i is in.
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Bit i says whether site i is in.
    pub fn bits(self) -> u128 {
        self.0
    }

    /// Adds a site. Whether it was not in yet.
    pub fn insert(&mut self, site: Site) -> bool {
        let is_new = !self.contains(site);
        self.0 |= bit(site);
        is_new
    }

    /// Takes a site out. Whether it was in.
    pub fn remove(&mut self, site: Site) -> bool {
        let was_in = self.contains(site);
        self.0 &= !bit(site);
        was_in
    }

    /// The same set with this site, too.
    #[must_use]
    pub fn with(self, site: Site) -> Self {
        Self(self.0 | bit(site))
    }

    /// The same set without this site.
    #[must_use]
    pub fn without(self, site: Site) -> Self {
        Self(self.0 & !bit(site))
    }

    /// True when a site is in.
    pub fn contains(self, site: Site) -> bool {
        self.0 & bit(site) != 0
    }

    /// Number of sites that are in.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True when none is in.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those of this and not of the other.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The sites, ascending.
    pub fn iter(self) -> impl Iterator<Item = Site> {
        (0..128u16).map(Site).filter(move |site| self.contains(*site))
    }
}

/// A site beyond [`SITES_MAX`] is in no set.
fn bit(site: Site) -> u128 {
    1u128.checked_shl(u32::from(site.0)).unwrap_or(0)
}

impl FromIterator<Site> for SiteSet {
    fn from_iter<I: IntoIterator<Item = Site>>(sites: I) -> Self {
        sites.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for SiteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

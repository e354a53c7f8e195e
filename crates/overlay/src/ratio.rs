//! Exact fractions.

use std::cmp::Ordering;
use std::fmt;

/// A fraction that is not negative, in lowest terms. `Display` is `a` or `a/b`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    numerator: u128,
    denominator: u128,
}

impl Ratio {
    /// One.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// A whole number.
    pub const fn whole(number: u64) -> Self {
        Self { numerator: number as u128, denominator: 1 }
    }

    /// `numerator / denominator`.
    ///
    /// # Panics
    /// If the denominator is zero.
    pub fn new(numerator: u128, denominator: u128) -> Self {
        assert!(denominator > 0, "a fraction of nothing");
        let divisor = greatest_common_divisor(numerator, denominator);
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    fn parts(self) -> (u128, u128) {
        (self.numerator, self.denominator)
    }

    /// Above the line.
    pub fn numerator(self) -> u128 {
        self.numerator
    }

    /// Below the line.
    pub fn denominator(self) -> u128 {
        self.denominator
    }

    /// The largest whole number that is not more; `u64::MAX` if that is too large.
    pub fn floor(self) -> u64 {
        u64::try_from(self.numerator / self.denominator).unwrap_or(u64::MAX)
    }

    /// This fraction of a rate. The product above the line must fit 128 bits, which that of any two
    /// numbers of a [valid](crate::HoseModel::validate) model does.
    pub(crate) fn of(self, rate: u64) -> Self {
        Self::new(self.numerator * u128::from(rate), self.denominator)
    }

    /// As a floating-point number.
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        // As long division goes: whole parts first, and where they are the same, what is left
        // upside down. Cross products could overflow.
        let ((mut a, mut b), (mut c, mut d)) = (self.parts(), other.parts());
        loop {
            let by_whole = (a / b).cmp(&(c / d));
            let (left, other_left) = (a % b, c % d);
            if by_whole.is_ne() || left == 0 || other_left == 0 {
                return by_whole.then(left.cmp(&other_left));
            }
            (a, b, c, d) = (d, other_left, b, left);
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            _ => write!(f, "{}/{}", self.numerator, self.denominator),
        }
    }
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_in_lowest_terms_and_ordered() {
        assert_eq!(Ratio::new(6, 4).to_string(), "3/2");
        assert_eq!(Ratio::new(0, 4).to_string(), "0");
        assert_eq!(Ratio::new(7, 2).floor(), 3);
        let mut some = [Ratio::new(7, 2), Ratio::ONE, Ratio::new(10, 3), Ratio::whole(4)];
        some.sort();
        assert_eq!(some, [Ratio::ONE, Ratio::new(10, 3), Ratio::new(7, 2), Ratio::whole(4)]);
    }

    #[test]
    fn the_largest_fractions_are_compared_exactly() {
        let most = u128::MAX;
        assert!(Ratio::new(most, most - 1) < Ratio::new(most - 1, most - 2));
        assert!(Ratio::new(most - 1, most) > Ratio::new(most - 2, most - 1));
    }

    proptest::proptest! {
        #[test]
        fn fractions_are_ordered_as_their_cross_products(
            a in 0..1000_u128, b in 1..1000_u128, c in 0..1000_u128, d in 1..1000_u128,
        ) {
            let order = Ratio::new(a, b).cmp(&Ratio::new(c, d));
            proptest::prop_assert_eq!(order, (a * d).cmp(&(c * b)));
        }
    }
}

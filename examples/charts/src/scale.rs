//! Axes: from values to places.

/// An axis: its name, and how values lie along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis<'a> {
    pub(crate) name: &'a str,
    is_logarithmic: bool,
}

impl<'a> Axis<'a> {
    /// From 0 on, evenly.
    pub fn linear(name: &'a str) -> Self {
        Self { name, is_logarithmic: false }
    }

    /// From the smallest value on, each power of ten as wide. Has positive values only.
    pub fn logarithmic(name: &'a str) -> Self {
        Self { name, is_logarithmic: true }
    }

    /// True for values that have a place.
    pub(crate) fn has(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_logarithmic || value > 0.0)
    }

    /// The axis over these values, all of which it has. A part of it, `slack`, is left free above
    /// them.
    pub(crate) fn over(&self, values: &[f64], slack: f64) -> Scale {
        let high = values.iter().copied().fold(0.0, f64::max);
        if !self.is_logarithmic {
            let end = if high > 0.0 { high * (1.0 + slack) } else { 1.0 };
            return Scale { low: 0.0, high: end, is_logarithmic: false };
        }
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let (low, high) = if values.is_empty() { (1.0, 10.0) } else { (low, high) };
        let (low, mut high) = (low.log10().floor(), high.log10().ceil());
        if high <= low {
            high = low + 1.0;
        }
        Scale { low, high, is_logarithmic: true }
    }
}

/// An axis with its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Of a logarithmic one, powers of ten.
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// The part of the axis below a value; values beyond an end are at it.
    pub(crate) fn part(&self, value: f64) -> f64 {
        let at = if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((at - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Values to mark: five to ten round ones, or powers of ten.
    pub(crate) fn marks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let step = ((self.high - self.low) / 10.0).ceil().max(1.0);
            let powers = (0_u32..).map(|index| self.low + f64::from(index) * step);
            return powers
                .take_while(|power| *power <= self.high)
                .map(|p| 10_f64.powf(p))
                .collect();
        }
        let magnitude = 10_f64.powf((self.high / 5.0).log10().floor());
        let steps = [5.0, 2.0, 1.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| self.high / step >= 5.0).unwrap_or(magnitude);
        let marks = (0_u32..11).map(|index| f64::from(index) * step);
        marks.take_while(|value| *value <= self.high).collect()
    }
}

/// A number with as many digits as matter.
pub(crate) fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        size if size >= 10.0 || value == value.round() => 0,
        size if size >= 1.0 => 1,
        size if size >= 0.01 => 2,
        _ => 6,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        let of = |end| Axis::linear("").over(&[end], 0.0).marks();
        assert_eq!(of(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        for end in [1e-9, 0.013, 0.9, 7.0, 42.0, 61_234.0, 1e300] {
            let marks = of(end);
            assert!((6..=11).contains(&marks.len()), "{end}: {marks:?}");
            assert!(marks.iter().all(|mark| *mark <= end));
        }
    }

    #[test]
    fn a_logarithmic_axis_ends_at_powers_of_ten() {
        let scale = Axis::logarithmic("").over(&[3.0, 4000.0], 0.05);
        assert_eq!(scale.marks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert!((scale.part(100.0) - 0.5).abs() < 1e-9);
        let one = Axis::logarithmic("").over(&[10.0], 0.0);
        assert_eq!(one.marks(), [10.0, 100.0]);
        let wide = Axis::logarithmic("").over(&[1e-300, 1e300], 0.0).marks();
        assert!((6..=12).contains(&wide.len()), "{wide:?}");
    }

    #[test]
    fn values_without_a_place_are_known() {
        assert!(!Axis::linear("").has(f64::NAN) && !Axis::linear("").has(f64::INFINITY));
        assert!(Axis::linear("").has(0.0) && !Axis::logarithmic("").has(0.0));
        assert_eq!(Axis::linear("").over(&[], 0.0).part(7.0), 1.0);
        assert_eq!(Axis::linear("").over(&[0.0], 0.0).part(0.0), 0.0);
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let written = [0.0, 0.25, 1.5, 2.0, 42.4, 9000.0, 12_000.0, 3.2e6, 5e9].map(number);
        assert_eq!(written, ["0", "0.25", "1.5", "2", "42", "9000", "12k", "3.2M", "5G"]);
    }
}

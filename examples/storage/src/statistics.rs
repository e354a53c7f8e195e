//! Quantiles, means and how far to trust them.

/// The value that the part `at` of the values does not exceed; `None` when there are none.
pub fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of the values"
    )]
    let index = (last as f64 * at.clamp(0.0, 1.0)).round() as usize;
    sorted.get(index).copied()
}

/// The median; `None` when there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The mean; `None` when there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Half of the width of the 95 % confidence interval of the mean, by Student's distribution: for a
/// few runs whose deviation is only known from themselves. `None` for fewer than two values.
pub fn ci95(values: &[f64]) -> Option<f64> {
    let free = values.len().checked_sub(2)?;
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let count = values.len() as f64;
    let deviation = (squares / (count - 1.0)).sqrt();
    Some(T_975.get(free).unwrap_or(&T_975_MANY) * deviation / count.sqrt())
}

/// The 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// And for more: that of the normal distribution, a little too small.
const T_975_MANY: f64 = 1.960;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values() {
        let values = [1.0, 2.0, 3.0, 4.0, 100.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.99), Some(100.0));
        assert_eq!(median(&[4.0, 100.0, 1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn an_interval_needs_two_values_and_narrows_with_more() {
        assert_eq!((mean(&[]), ci95(&[]), ci95(&[1.0])), (None, None, None));
        // By hand: deviation sqrt(2.5), five values, t of 4 degrees of freedom.
        let five = ci95(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((five - 2.776 * (2.5_f64).sqrt() / 5.0_f64.sqrt()).abs() < 1e-9);
        let many: Vec<f64> = (0..500).map(|n| f64::from(n % 5) + 1.0).collect();
        assert!(ci95(&many).unwrap() < five / 5.0);
        assert_eq!(ci95(&[7.0; 10]), Some(0.0));
    }
}

//! Several charts as one picture, one below the other.

use crate::frame::Frame;

/// Top of the first.
const TOP: f64 = 44.0;

/// A picture of these charts of this crate, in their order.
pub fn stack(title: &str, charts: &[String]) -> String {
    let mut frame = Frame::page(title, TOP + charts.iter().map(|chart| height(chart)).sum::<f64>());
    let mut top = TOP;
    for chart in charts {
        frame.push(&chart.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1));
        top += height(chart);
    }
    frame.finish()
}

/// Height that a chart says it has.
fn height(chart: &str) -> f64 {
    let after = chart.split_once(" height=\"").map(|(_, after)| after);
    let text = after.and_then(|after| after.split('"').next());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rank, ranks};

    #[test]
    fn charts_stand_one_below_the_other() {
        let charts = ["a", "b"].map(|title| ranks(title, &[Rank::new("x", 1.0)]));
        let each = height(&charts[0]);
        let picture = stack("all", &charts);
        assert!(each > 0.0 && height(&picture) == TOP + 2.0 * each);
        assert!(picture.contains(&format!("<svg y=\"{TOP}\" ")));
        assert!(picture.contains(&format!("<svg y=\"{}\" ", TOP + each)));
        assert_eq!(picture.matches("</svg>").count(), 3);
        assert!(stack("all", &[]).ends_with("</svg>\n"));
    }
}

//! Ranks: values of named things, each a bar from the left, one below the other.

use crate::Look;
use crate::frame::{Frame, WIDTH, fill, label};
use crate::scale::number;

/// Left end of the bars, length of the longest, and height of a line.
const LEFT: f64 = 240.0;
const LENGTH: f64 = WIDTH - LEFT - 90.0;
const LINE: f64 = 22.0;

/// Top of the first.
const TOP: f64 = 46.0;

/// A name and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rank {
    name: String,
    value: f64,
    range: Option<(f64, f64)>,
    look: Look,
}

impl Rank {
    /// One in the first colour.
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, range: None, look: Look::of(0) }
    }

    /// With the lowest and the highest that was measured, as a line over the end of its bar.
    #[must_use]
    pub fn from_to(self, low: f64, high: f64) -> Self {
        let is_one = low.is_finite() && high.is_finite() && 0.0 <= low && low <= high;
        Self { range: is_one.then_some((low, high)), ..self }
    }

    /// In another colour.
    #[must_use]
    pub fn look(self, look: Look) -> Self {
        Self { look, ..self }
    }
}

/// A chart of these, in their order. A value that is no positive number has no bar.
pub fn ranks(title: &str, ranks: &[Rank]) -> String {
    let mut frame = Frame::page(title, TOP + LINE * ranks.len() as f64 + 14.0);
    let is_drawn = |rank: &&Rank| rank.value.is_finite() && rank.value > 0.0;
    let end = |rank: &Rank| rank.range.map_or(rank.value, |(_, high)| high.max(rank.value));
    let values = ranks.iter().filter(is_drawn).map(end);
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    for (index, rank) in ranks.iter().enumerate() {
        let top = TOP + LINE * index as f64;
        let (middle, fill) = (top + 13.0, fill(rank.look));
        frame.push(&label((LEFT - 8.0, middle), "end", 12, &rank.name));
        let length = if is_drawn(&rank) { LENGTH * rank.value / most } else { 0.0 };
        frame.push(&format!(
            "<rect class=\"bar {fill}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{length:.1}\" \
             height=\"{:.1}\"/>\n",
            LINE - 5.0
        ));
        let mut right = LEFT + length;
        if let Some((low, high)) = rank.range.filter(|_| is_drawn(&rank)) {
            let [low, high] = [low, high].map(|end| LEFT + LENGTH * end / most);
            let line = top + (LINE - 5.0) / 2.0;
            frame
                .push(&format!("<path class=\"interval\" d=\"M{low:.1} {line:.1}H{high:.1}\"/>\n"));
            right = right.max(high);
        }
        let text = if rank.value.is_finite() { number(rank.value) } else { "-".into() };
        frame.push(&label((right + 6.0, middle), "start", 12, &text));
    }
    frame.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_the_largest_value() {
        let all = [Rank::new("a", 50.0), Rank::new("b < c", 100.0), Rank::new("d", f64::NAN)];
        let svg = ranks("title", &all);
        assert_eq!(svg.matches("class=\"bar ").count(), 3);
        assert!(svg.contains(&format!("width=\"{LENGTH:.1}\"")));
        assert!(svg.contains(&format!("width=\"{:.1}\"", LENGTH / 2.0)));
        assert!(svg.contains("b &lt; c") && !svg.contains("NaN"));
        assert!(ranks("title", &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn what_was_measured_several_times_has_its_ends() {
        let twice = Rank::new("a", 50.0).from_to(40.0, 100.0);
        let svg = ranks("title", &[twice, Rank::new("b", 80.0).from_to(f64::NAN, 90.0)]);
        let (low, high) = (LEFT + 0.4 * LENGTH, LEFT + LENGTH);
        assert!(svg.contains(&format!("d=\"M{low:.1} ")) && svg.contains(&format!("H{high:.1}\"")));
        assert_eq!(svg.matches("<path class=\"interval\"").count(), 1);
    }
}

//! Bars: values of things that have no order, in groups.

use crate::Look;
use crate::frame::{BOTTOM, Frame, LEFT, RIGHT, fill, height, interval, label, scale_of};
use crate::scale::{Axis, Scale};

/// The widest bar; many are thinner.
const WIDTH_MAX: f64 = 44.0;

/// Part of a group's width that its bars may take.
const FILLED: f64 = 0.8;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    value: f64,
    half: Option<f64>,
}

impl Bar {
    /// A bar without an interval.
    pub fn new(value: f64) -> Self {
        Self { value, half: None }
    }

    /// With an interval of this far below and above its end, such as a confidence interval.
    #[must_use]
    pub fn within(self, half: f64) -> Self {
        Self { half: Some(half), ..self }
    }
}

/// A bar in each group, of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    name: String,
    bars: Vec<Option<Bar>>,
}

impl Bars {
    /// One for each group, in their order; `None` where nothing was measured.
    pub fn new(name: impl Into<String>, bars: Vec<Option<Bar>>) -> Self {
        Self { name: name.into(), bars }
    }
}

/// A chart of these bars, over the names of their groups.
pub fn bars(title: &str, y: Axis<'_>, groups: &[&str], series: &[Bars]) -> String {
    let mut frame = Frame::new(title, ["", y.name]);
    let is_drawn = |bar: &&Bar| y.has(bar.value);
    let all: Vec<&Bar> = series.iter().flat_map(|one| one.bars.iter().flatten()).collect();
    let half = |bar: &Bar| bar.half.filter(|half| half.is_finite()).unwrap_or_default();
    let tops: Vec<f64> =
        all.into_iter().filter(is_drawn).map(|bar| bar.value + half(bar)).collect();
    if tops.is_empty() {
        frame.nothing();
        return frame.finish();
    }
    let scale = scale_of(&y, tops, 0.05);
    frame.y_axis(scale);
    let group = (RIGHT - LEFT) / groups.len().max(1) as f64;
    let width = (group * FILLED / series.len() as f64).min(WIDTH_MAX);
    for (index, name) in groups.iter().enumerate() {
        let middle = LEFT + group * (index as f64 + 0.5);
        frame.push(&label((middle, BOTTOM + 18.0), "middle", 12, name));
        let left = middle - width * series.len() as f64 / 2.0;
        for (place, one) in series.iter().enumerate() {
            let bar = one.bars.get(index).and_then(Option::as_ref).filter(is_drawn);
            let left = left + width * place as f64;
            bar.iter().for_each(|bar| frame.push(&drawn(bar, place, left, width, scale)));
        }
    }
    for (place, one) in series.iter().enumerate() {
        let sample = |x: f64, y: f64| rectangle("sample", place, (x, y - 6.0), (28.0, 12.0));
        frame.legend(sample, &one.name);
    }
    frame.finish()
}

fn drawn(bar: &Bar, place: usize, left: f64, width: f64, scale: Scale) -> String {
    let gap = (width / 10.0).min(2.0);
    let top = height(scale, bar.value);
    let size = (width - 2.0 * gap, BOTTOM - top);
    let mut text = rectangle("bar", place, (left + gap, top), size);
    if let Some(half) = bar.half.filter(|half| half.is_finite()) {
        let (low, high) = (height(scale, bar.value - half), height(scale, bar.value + half));
        text += &interval(left + width / 2.0, low, high);
    }
    text
}

fn rectangle(class: &str, place: usize, (x, y): (f64, f64), (width, height): (f64, f64)) -> String {
    let fill = fill(Look::of(place));
    format!(
        "<rect class=\"{class} {fill}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"/>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_bar_in_its_group() {
        let ram = Bars::new("ram", vec![Some(Bar::new(1.0).within(0.1)), Some(Bar::new(2.0))]);
        let disk = Bars::new("disk", vec![None, Some(Bar::new(3.0))]);
        let svg = bars("title", Axis::linear("ms"), &["3", "5"], &[ram, disk]);
        assert_eq!(svg.matches("class=\"bar fill0\"").count(), 2);
        assert_eq!(svg.matches("class=\"bar fill1\"").count(), 1);
        assert_eq!(svg.matches("class=\"interval\"").count(), 1);
        assert_eq!(svg.matches("class=\"sample").count(), 2);
    }

    #[test]
    fn many_groups_and_strange_values_stay_within_the_chart() {
        let values = [0.0, -5.0, f64::NAN, f64::INFINITY, 1e300, 7.0];
        let all = values.map(|value| Some(Bar::new(value).within(f64::NAN)));
        let groups = vec!["a"; 200];
        let one = Bars::new("a", all.iter().copied().cycle().take(200).collect());
        let svg = bars("title", Axis::linear("y"), &groups, &[one]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(!svg.contains("width=\"-") && !svg.contains("height=\"-"));
        let nothing = bars("title", Axis::linear("y"), &[], &[]);
        assert!(nothing.contains("nothing was measured"));
    }
}

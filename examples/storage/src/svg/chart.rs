//! Frame, axes, colours and text that the figures share.

use std::fmt::Write as _;

use crate::form::{Form, Phases};

/// Of the whole figure.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
/// Of what is drawn in.
pub(super) const LEFT: f64 = 80.0;
pub(super) const TOP: f64 = 60.0;
pub(super) const RIGHT: f64 = 640.0;
pub(super) const BOTTOM: f64 = 360.0;
/// Left edge of the legend.
const LEGEND: f64 = RIGHT + 30.0;

/// A figure being drawn.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    text: String,
    legend_top: f64,
}

impl Chart {
    /// With a title and the names of the axes.
    pub(super) fn new(title: &str, [x, y]: [&str; 2]) -> Self {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#94a3b8\"/>\n"
        );
        let middle = (LEFT + RIGHT) / 2.0;
        text += &label((16.0, 28.0), "start", 16, title);
        text += &label((middle, BOTTOM + 44.0), "middle", 12, x);
        text += &label((LEFT - 50.0, TOP - 10.0), "start", 12, y);
        Self { text, legend_top: TOP }
    }

    pub(super) fn push(&mut self, svg: &str) {
        self.text += svg;
    }

    /// Marks at round numbers up to `end`, with lines across.
    pub(super) fn y_axis(&mut self, end: f64) {
        for value in marks(end) {
            let y = BOTTOM - (BOTTOM - TOP) * value / end;
            let _ = writeln!(self.text, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#e2e8f0\"/>");
            self.text += &label((LEFT - 8.0, y + 4.0), "end", 12, &number(value));
        }
    }

    /// Marks at round numbers up to `end`.
    pub(super) fn x_axis(&mut self, end: f64) {
        for value in marks(end) {
            let x = LEFT + (RIGHT - LEFT) * value / end;
            self.text += &label((x, BOTTOM + 18.0), "middle", 12, &number(value));
        }
    }

    /// A line of the legend, after a sample of what it is about.
    pub(super) fn legend(&mut self, sample: impl FnOnce(f64, f64) -> String, name: &str) {
        self.text += &sample(LEGEND, self.legend_top);
        self.text += &label((LEGEND + 36.0, self.legend_top + 4.0), "start", 12, name);
        self.legend_top += 22.0;
    }

    pub(super) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

pub(super) fn label((x, y): (f64, f64), anchor: &str, size: u32, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>\n"
    )
}

pub(super) fn colour(form: Form) -> &'static str {
    match form {
        Form::Echo => "#c2410c",
        Form::Nested => "#334155",
        Form::Client => "#2563eb",
    }
}

pub(super) fn dashes(phases: Phases) -> &'static str {
    match phases {
        Phases::None => "none",
        Phases::One => "7 3",
        Phases::Two => "2 3",
    }
}

/// Round numbers from 0 to `end`, five to ten of them.
fn marks(end: f64) -> impl Iterator<Item = f64> {
    let magnitude = 10_f64.powf((end / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * magnitude);
    let step = steps.into_iter().rev().find(|step| end / step >= 5.0).unwrap_or(magnitude);
    (0_u32..).map(move |index| f64::from(index) * step).take_while(move |value| *value <= end)
}

/// A number with as many digits as matter.
fn number(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1e3),
        value if value >= 10.0 || value == value.round() => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        let of = |end| marks(end).collect::<Vec<f64>>();
        assert_eq!(of(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        for end in [0.013, 0.9, 7.0, 42.0, 61_234.0] {
            let marks = of(end);
            assert!((6..=11).contains(&marks.len()), "{end}: {marks:?}");
            assert!(marks.iter().all(|mark| *mark <= end));
        }
    }

    #[test]
    fn text_is_escaped() {
        assert!(label((0.0, 0.0), "start", 12, "a < b & c").contains("a &lt; b &amp; c"));
    }
}

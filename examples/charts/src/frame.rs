//! Frame, axes, legend and colours of all charts.

use std::fmt::Write as _;

use crate::Look;
use crate::scale::{Axis, Scale, number};

/// Size of a chart.
pub(crate) const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;

/// Edges of what is drawn in.
pub(crate) const LEFT: f64 = 80.0;
pub(crate) const TOP: f64 = 60.0;
pub(crate) const RIGHT: f64 = 640.0;
pub(crate) const BOTTOM: f64 = 360.0;

/// Left edge of the legend.
const LEGEND: f64 = RIGHT + 30.0;

/// Colours on light and on dark pages. All have a contrast of 3 or more to their page, and differ
/// in lightness as well as in hue.
pub(crate) const COLOURS: [(&str, &str); 6] = [
    ("#c2410c", "#fb923c"),
    ("#334155", "#cbd5e1"),
    ("#2563eb", "#60a5fa"),
    ("#15803d", "#4ade80"),
    ("#7e22ce", "#c084fc"),
    ("#0e7490", "#22d3ee"),
];

/// Dashes of lines.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "10 3 2 3"];

/// Colours of a page: itself, its text, the axes, and the lines across.
const LIGHT: [&str; 4] = ["#ffffff", "#0f172a", "#64748b", "#e2e8f0"];
const DARK: [&str; 4] = ["#0f172a", "#e2e8f0", "#94a3b8", "#334155"];

/// A chart being drawn.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    text: String,
    legend_top: f64,
}

impl Frame {
    /// One with axes of these names.
    pub(crate) fn new(title: &str, [x, y]: [&str; 2]) -> Self {
        let mut frame = Self::page(title, HEIGHT);
        frame.push(&format!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>\n"));
        frame.push(&label(((LEFT + RIGHT) / 2.0, BOTTOM + 44.0), "middle", 12, x));
        frame.push(&label((LEFT - 50.0, TOP - 10.0), "start", 12, y));
        frame
    }

    /// A page with a title and nothing else.
    pub(crate) fn page(title: &str, height: f64) -> Self {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" \
             role=\"img\">\n<title>{}</title>\n<style>\n{}@media (prefers-color-scheme: dark) {{\n\
             {}}}\n</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
            escaped(title),
            style(LIGHT, COLOURS.map(|(light, _)| light)),
            style(DARK, COLOURS.map(|(_, dark)| dark)),
        );
        text += &label((16.0, 28.0), "start", 16, title);
        Self { text, legend_top: TOP }
    }

    pub(crate) fn push(&mut self, svg: &str) {
        self.text += svg;
    }

    pub(crate) fn y_axis(&mut self, scale: Scale) {
        for value in scale.marks() {
            let y = height(scale, value);
            let _ = writeln!(self.text, "<path class=\"mark\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>");
            self.text += &label((LEFT - 8.0, y + 4.0), "end", 12, &number(value));
        }
    }

    pub(crate) fn x_axis(&mut self, scale: Scale) {
        for value in scale.marks() {
            let x = width(scale, value);
            self.text += &label((x, BOTTOM + 18.0), "middle", 12, &number(value));
        }
    }

    /// A line of the legend, behind a sample of what it is about.
    pub(crate) fn legend(&mut self, sample: impl FnOnce(f64, f64) -> String, name: &str) {
        self.text += &sample(LEGEND, self.legend_top);
        self.text += &label((LEGEND + 36.0, self.legend_top + 4.0), "start", 12, name);
        self.legend_top += 22.0;
    }

    pub(crate) fn nothing(&mut self) {
        let middle = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        self.text += &label(middle, "middle", 16, "nothing was measured");
    }

    pub(crate) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

/// The place of a value along the width.
pub(crate) fn width(scale: Scale, value: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * scale.part(value)
}

/// The place of a value along the height.
pub(crate) fn height(scale: Scale, value: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * scale.part(value)
}

/// The classes of the colour of a look.
pub(crate) fn fill(look: Look) -> String {
    format!("fill{}", look.colour % COLOURS.len())
}

/// Class and dashes of a line of a look.
pub(crate) fn stroke(look: Look) -> String {
    let dashes = DASHES[look.dashes % DASHES.len()];
    format!("class=\"line{}\" stroke-dasharray=\"{dashes}\"", look.colour % COLOURS.len())
}

/// An interval around a place.
pub(crate) fn interval(x: f64, low: f64, high: f64) -> String {
    let left = x - 5.0;
    format!("<path class=\"interval\" d=\"M{left:.1} {high:.1}h10m-5 0V{low:.1}m-5 0h10\"/>\n")
}

pub(crate) fn label((x, y): (f64, f64), anchor: &str, size: u32, text: &str) -> String {
    let text = escaped(text);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">\
         {text}</text>\n"
    )
}

/// Text as it stands between tags and in quoted attributes of SVG and HTML.
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = text.replace('"', "&quot;");
    // Other control characters are no part of XML.
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The colours of charts as variables of CSS, for light and for dark pages: `--page`, `--text`,
/// `--axis`, `--mark`, and `--colour0` to `--colour5`.
pub fn variables() -> String {
    let all = |[page, text, axis, mark]: [&str; 4], colours: [&str; 6]| {
        let named = [("page", page), ("text", text), ("axis", axis), ("mark", mark)];
        let named = named.map(|(name, colour)| format!("--{name}: {colour};")).join(" ");
        let numbered = colours.iter().enumerate();
        let numbered = numbered.map(|(index, colour)| format!(" --colour{index}: {colour};"));
        format!(":root {{ {named}{} }}", numbered.collect::<String>())
    };
    let light = all(LIGHT, COLOURS.map(|(light, _)| light));
    let dark = all(DARK, COLOURS.map(|(_, dark)| dark));
    format!("{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n")
}

fn style([page, text, axis, mark]: [&str; 4], colours: [&str; 6]) -> String {
    let mut style = format!(
        ".page {{ fill: {page}; }} text {{ fill: {text}; }}\n\
         .axis {{ fill: none; stroke: {axis}; }} .mark {{ stroke: {mark}; }}\n\
         .interval {{ fill: none; stroke: {text}; }}\n"
    );
    for (index, colour) in colours.into_iter().enumerate() {
        let _ = writeln!(
            style,
            ".fill{index} {{ fill: {colour}; }} .line{index} {{ fill: none; stroke: {colour}; }}"
        );
    }
    style
}

/// All finite values of these, and the largest but one in a hundred as the end of an axis: one that
/// lies far above the rest would flatten it.
pub(crate) fn scale_of(axis: &Axis<'_>, mut values: Vec<f64>, slack: f64) -> Scale {
    values.sort_by(f64::total_cmp);
    let kept = values.len() - values.len() / 100;
    axis.over(&values[..kept], slack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let text = label((0.0, 0.0), "start", 12, "a < b & \"c\u{0}");
        assert!(text.contains("a &lt; b &amp; &quot;c<"), "{text}");
    }

    #[test]
    fn a_page_of_charts_has_their_colours() {
        let style = variables();
        let (light, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
        for (index, (on_light, on_dark)) in COLOURS.into_iter().enumerate() {
            assert!(light.contains(&format!("--colour{index}: {on_light};")));
            assert!(dark.contains(&format!("--colour{index}: {on_dark};")));
        }
        assert!(light.contains("--page: #ffffff;") && dark.contains("--page: #0f172a;"));
    }

    #[test]
    fn a_chart_has_colours_for_light_and_dark_pages() {
        let svg = Frame::new("a", ["x", "y"]).finish();
        let (light, dark) = svg.split_once("prefers-color-scheme: dark").unwrap();
        for (index, (on_light, on_dark)) in COLOURS.into_iter().enumerate() {
            assert!(light.contains(&format!(".fill{index} {{ fill: {on_light}; }}")));
            assert!(dark.contains(&format!(".fill{index} {{ fill: {on_dark}; }}")));
        }
    }

    #[test]
    fn one_far_above_the_rest_does_not_flatten_it() {
        let mut values = vec![1.0; 200];
        values[7] = 1e6;
        assert_eq!(scale_of(&Axis::linear(""), values, 0.0).part(1.0), 1.0);
        assert_eq!(scale_of(&Axis::linear(""), vec![1.0, 10.0], 0.0).part(10.0), 1.0);
    }
}

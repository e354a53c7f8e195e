//! Lines: a value that depends on another.

use crate::Look;
use crate::frame::{Frame, fill, height, interval, scale_of, stroke, width};
use crate::scale::{Axis, Scale};

/// A value `y`, measured at `x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
    half: Option<f64>,
}

impl Point {
    /// A point without an interval.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, half: None }
    }

    /// With an interval of this far below and above it, such as a confidence interval.
    #[must_use]
    pub fn within(self, half: f64) -> Self {
        Self { half: Some(half), ..self }
    }
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<Point>,
    look: Option<Look>,
}

impl Series {
    /// A series with the look that comes next.
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, look: None }
    }

    /// With this look.
    #[must_use]
    pub fn look(self, look: Look) -> Self {
        Self { look: Some(look), ..self }
    }
}

/// A value of a row, behind the words for it.
type Value<'a, R> = (&'a str, &'a dyn Fn(&R) -> Point);

/// Lines of measured rows: for each name in the order of the rows, a line for each of these values,
/// which its words behind the name tell. A name has one colour, and each of its values its dashes.
pub fn by_name<R>(rows: &[R], name: impl Fn(&R) -> String, values: &[Value<'_, R>]) -> Vec<Series> {
    let mut names: Vec<String> = rows.iter().map(&name).collect();
    names.dedup();
    let mut series = Vec::new();
    for (colour, of) in names.iter().enumerate() {
        for (dashes, (words, value)) in values.iter().enumerate() {
            let points = rows.iter().filter(|row| name(row) == *of).map(value).collect();
            let look = Look { colour, dashes };
            series.push(Series::new(format!("{of}{words}"), points).look(look));
        }
    }
    series
}

/// A chart of these series. Points are joined in the order they have; what lies far above the rest
/// is at the upper edge.
pub fn lines(title: &str, [x, y]: [Axis<'_>; 2], series: &[Series]) -> String {
    let mut frame = Frame::new(title, [x.name, y.name]);
    let is_drawn = |point: &&Point| x.has(point.x) && y.has(point.y);
    let all: Vec<&Point> = series.iter().flat_map(|one| &one.points).filter(is_drawn).collect();
    if all.is_empty() {
        frame.nothing();
        return frame.finish();
    }
    let xs: Vec<f64> = all.iter().map(|point| point.x).collect();
    let scales = (x.over(&xs, 0.0), scale_of(&y, all.iter().map(|point| point.y).collect(), 0.05));
    frame.x_axis(scales.0);
    frame.y_axis(scales.1);
    for (index, one) in series.iter().enumerate() {
        let look = one.look.unwrap_or(Look::of(index));
        let points: Vec<&Point> = one.points.iter().filter(is_drawn).collect();
        frame.push(&line(&points, look, scales));
        let sample = |x: f64, y: f64| format!("<path d=\"M{x} {y}h28\" {}/>\n", stroke(look));
        frame.legend(sample, &one.name);
    }
    frame.finish()
}

fn line(points: &[&Point], look: Look, (x, y): (Scale, Scale)) -> String {
    let places: Vec<(f64, f64)> =
        points.iter().map(|point| (width(x, point.x), height(y, point.y))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut text = format!("<polyline points=\"{}\" {}/>\n", path.join(" "), stroke(look));
    for (point, (left, top)) in points.iter().zip(places) {
        if let Some(half) = point.half.filter(|half| half.is_finite()) {
            text += &interval(left, height(y, point.y - half), height(y, point.y + half));
        }
        let fill = fill(look);
        text += &format!("<circle class=\"{fill}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"2.5\"/>\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> [Axis<'static>; 2] {
        [Axis::linear("x"), Axis::linear("y")]
    }

    #[test]
    fn every_series_is_drawn_with_its_intervals() {
        let points = |half: f64| vec![Point::new(1.0, 2.0).within(half), Point::new(2.0, 4.0)];
        let series = [Series::new("a", points(0.5)), Series::new("b", points(f64::NAN))];
        let svg = lines("title", axes(), &series);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("class=\"interval\"").count(), 1);
        assert!(svg.contains("class=\"line0\"") && svg.contains("class=\"line1\""));
    }

    #[test]
    fn the_seventh_series_has_a_colour_again_and_dashes() {
        let series: Vec<Series> =
            (0..30).map(|_| Series::new("a", vec![Point::new(1.0, 1.0)])).collect();
        let svg = lines("title", axes(), &series);
        assert!(svg.contains("class=\"line0\" stroke-dasharray=\"7 3\""));
        let look = Look { colour: 2, dashes: 2 };
        let svg = lines("title", axes(), &[series[0].clone().look(look)]);
        assert!(svg.contains("class=\"line2\" stroke-dasharray=\"2 3\""));
    }

    #[test]
    fn rows_of_one_name_have_one_colour_and_its_values_their_dashes() {
        let rows = [("tcp", 1.0), ("tcp", 2.0), ("tls", 3.0)];
        let value = |row: &(&str, f64)| Point::new(row.1, row.1);
        let half = |row: &(&str, f64)| Point::new(row.1, row.1 / 2.0);
        let name = |row: &(&str, f64)| row.0.to_owned();
        let series = by_name(&rows, name, &[("", &value), (", half", &half)]);
        let names: Vec<&str> = series.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["tcp", "tcp, half", "tls", "tls, half"]);
        assert_eq!(series[1].points, [Point::new(1.0, 0.5), Point::new(2.0, 1.0)]);
        assert_eq!(series[3].look, Some(Look { colour: 1, dashes: 1 }));
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let points = vec![Point::new(0.0, 1.0), Point::new(10.0, f64::NAN), Point::new(10.0, 5.0)];
        let axes = [Axis::logarithmic("x"), Axis::linear("y")];
        let svg = lines("title", axes, &[Series::new("a", points)]);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let nothing = lines("title", axes, &[Series::new("a", Vec::new())]);
        assert!(nothing.contains("nothing was measured"));
    }
}

//! A curve for each write in each form: the colour says the form, the dashes how many phases.

use crate::form::{Form, Phases};

use super::axis_end;
use super::chart::{BOTTOM, Chart, LEFT, RIGHT, TOP, colour, dashes};

/// Point of a curve: a value `y`, measured at `x`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// One write in one form.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) phases: Phases,
    pub(super) form: Form,
    pub(super) points: Vec<Point>,
}

/// The curves over axes that begin at zero. What lies far above the rest is drawn at the upper
/// edge.
pub(super) fn svg(curves: &[Curve], title: &str, axes: [&str; 2]) -> String {
    let mut chart = Chart::new(title, axes);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let widest = points().map(|point| point.x).fold(f64::MIN_POSITIVE, f64::max);
    let highest = 1.05 * axis_end(points().map(|point| point.y));
    chart.x_axis(widest);
    chart.y_axis(highest);
    let at = |point: &Point| {
        let (x, y) = (point.x / widest, point.y.min(highest) / highest);
        (LEFT + (RIGHT - LEFT) * x, BOTTOM - (BOTTOM - TOP) * y)
    };
    for curve in curves {
        let points: Vec<(f64, f64)> = curve.points.iter().map(at).collect();
        chart.push(&drawn(curve, &points));
        let sample = |x: f64, y: f64| format!("<path d=\"M{x} {y}h28\" {}/>\n", stroke(curve));
        chart.legend(sample, &format!("{}, {}", curve.phases.name(), curve.form));
    }
    chart.finish()
}

fn drawn(curve: &Curve, points: &[(f64, f64)]) -> String {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut text = format!("<polyline points=\"{}\" {}/>\n", path.join(" "), stroke(curve));
    let colour = colour(curve.form);
    for (x, y) in points {
        text += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n");
    }
    text
}

fn stroke(curve: &Curve) -> String {
    let (colour, dashes) = (colour(curve.form), dashes(curve.phases));
    format!("fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"")
}

//! Draws each bench that was measured at several sizes: a curve for each form, in SVG.

use std::fmt::Write as _;

use super::figures::Row;

/// The charts of these rows, each with the name of its file.
pub(crate) fn charts(rows: &[Row]) -> Vec<(String, String)> {
    let mut benches: Vec<&str> = Vec::new();
    for row in rows {
        if !benches.contains(&row.text("bench")) {
            benches.push(row.text("bench"));
        }
    }
    let chart = |bench: &&str| Some((format!("{bench}.svg"), chart(bench, rows)?));
    benches.iter().filter_map(chart).collect()
}

/// A curve of a chart.
#[derive(Clone, Debug, PartialEq)]
struct Curve<'a> {
    form: &'a str,
    /// The parameter, and what was measured in microseconds.
    points: Vec<(f64, f64)>,
}

fn chart(bench: &str, rows: &[Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.text("bench") == bench).collect();
    let parameter = PARAMETERS.into_iter().find(|name| values(&rows, name).len() > 1)?;
    let places = values(&rows, parameter);
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for row in rows {
        let (Some(x), Some(y)) = (row.number(parameter), row.median("p50_ns")) else { continue };
        let point = (x, (y / 1e3).max(f64::MIN_POSITIVE));
        match curves.iter_mut().find(|curve| curve.form == row.text("form")) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { form: row.text("form"), points: vec![point] }),
        }
    }
    (!curves.is_empty()).then(|| drawn(bench, parameter, &places, &curves))
}

/// Parameters that a bench may be measured at, one of them at several values.
const PARAMETERS: [&str; 3] = ["size", "buffers", "iterations"];

/// The values of a parameter, from the smallest.
fn values(rows: &[&Row], parameter: &str) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().filter_map(|row| row.number(parameter)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn drawn(bench: &str, parameter: &str, places: &[f64], curves: &[Curve<'_>]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#94a3b8\"/>\n"
    );
    svg += &label((16.0, 28.0), "start", 16, &bench.replace('_', " "));
    svg += &label(((LEFT + RIGHT) / 2.0, BOTTOM + 44.0), "middle", 12, parameter);
    svg += &label((LEFT - 50.0, TOP - 10.0), "start", 12, "median, virtual microseconds");
    let decades = Decades::of(curves);
    for exponent in decades.low..=decades.high {
        let (value, y) = (10_f64.powi(exponent), decades.y(10_f64.powi(exponent)));
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#e2e8f0\"/>");
        svg += &label((LEFT - 8.0, y + 4.0), "end", 12, &value.to_string());
    }
    let step = (RIGHT - LEFT) / (places.len() as f64 - 1.0).max(1.0);
    let x = |value: f64| {
        let place = places.iter().position(|place| *place == value).unwrap_or_default();
        LEFT + step * place as f64
    };
    for place in places {
        svg += &label((x(*place), BOTTOM + 18.0), "middle", 12, &binary(*place));
    }
    for (curve, (colour, top)) in curves.iter().zip(COLOURS.iter().cycle().zip(1_u32..)) {
        let points = curve.points.iter().map(|(at, value)| (x(*at), decades.y(*value)));
        svg += &line(colour, &points.collect::<Vec<_>>());
        let y = TOP + 22.0 * f64::from(top - 1);
        let _ = writeln!(svg, "<path d=\"M{LEGEND} {y}h28\" stroke=\"{colour}\"/>");
        svg += &label((LEGEND + 36.0, y + 4.0), "start", 12, curve.form);
    }
    svg + "</svg>\n"
}

/// The powers of ten around what was measured.
struct Decades {
    low: i32,
    high: i32,
}

impl Decades {
    fn of(curves: &[Curve<'_>]) -> Self {
        let logs = || curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| value.log10());
        let low = logs().fold(f64::INFINITY, f64::min).floor();
        let high = logs().fold(f64::NEG_INFINITY, f64::max).ceil();
        #[allow(clippy::cast_possible_truncation, reason = "logarithms of numbers are below 400")]
        let (low, high) = (low as i32, high as i32);
        Self { low, high: high.max(low + 1) }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        BOTTOM - (BOTTOM - TOP) * share
    }
}

fn line(colour: &str, points: &[(f64, f64)]) -> String {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut text =
        format!("<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>\n", path.join(" "));
    for (x, y) in points {
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
    }
    text
}

fn label((x, y): (f64, f64), anchor: &str, size: u32, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>\n"
    )
}

/// A count in units of 1024 where it is a multiple of them.
fn binary(value: f64) -> String {
    const KIB: f64 = 1024.0;
    match value {
        _ if value >= KIB * KIB && value % (KIB * KIB) == 0.0 => {
            format!("{} Mi", value / KIB / KIB)
        }
        _ if value >= KIB && value % KIB == 0.0 => format!("{} Ki", value / KIB),
        _ => value.to_string(),
    }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 60.0;
const RIGHT: f64 = 640.0;
const BOTTOM: f64 = 360.0;
const LEGEND: f64 = RIGHT + 30.0;
const COLOURS: [&str; 6] = ["#c2410c", "#334155", "#2563eb", "#15803d", "#a21caf", "#ca8a04"];

#[cfg(test)]
mod tests {
    use crate::rdma::figures::rows;
    use crate::rdma::results::Figures;

    use super::*;

    fn charts_of(lines: &[&str]) -> Vec<(String, String)> {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        let figures = [Figures { program: "some".to_owned(), lines }];
        charts(&rows(&figures).expect("well-formed"))
    }

    #[test]
    fn a_bench_of_several_sizes_is_a_chart_with_a_curve_a_form() {
        let charts = charts_of(&[
            r#"{"bench": "ping", "form": "bare", "size": 8, "p50_ns": 900}"#,
            r#"{"bench": "ping", "form": "bare", "size": 2048, "p50_ns": 12000}"#,
            r#"{"bench": "ping", "form": "a<b", "size": 8, "p50_ns": 1100}"#,
            r#"{"bench": "other", "form": "bare", "size": 8, "p50_ns": 1}"#,
        ]);
        let [(name, svg)] = &charts[..] else { panic!("one chart: {charts:?}") };
        assert_eq!(name, "ping.svg");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a&lt;b") && svg.contains("2 Ki") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn one_value_everywhere_still_has_an_axis() {
        let charts = charts_of(&[
            r#"{"bench": "x", "form": "f", "buffers": 1, "p50_ns": 1000}"#,
            r#"{"bench": "x", "form": "f", "buffers": 2, "p50_ns": 1000}"#,
        ]);
        assert!(!charts[0].1.contains("NaN"));
    }
}

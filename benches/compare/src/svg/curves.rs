//! Latency over the number of servers: a curve for each system and form.

use std::fmt::Write as _;

use super::panel::{Panel, TITLE_HEIGHT, colour, heading, number};
use crate::bench::Form;
use crate::report::Row;
use crate::system::System;

const HEIGHT: f64 = 260.0;
/// Place of the axes, and how far they reach.
const LEFT: f64 = 80.0;
const LENGTH: f64 = 560.0;

/// One measured bench.
struct Point<'a> {
    count: f64,
    row: &'a Row,
}

/// The benches whose names are this prefix and a number; none when there are none.
pub(super) fn panel(prefix: &str, rows: &[&Row]) -> Option<Panel> {
    let point = |row: &&Row| {
        let count = row.bench.strip_prefix(prefix)?.parse().ok()?;
        Some((count, (*row).clone()))
    };
    let points: Vec<(f64, Row)> = rows.iter().filter_map(point).collect();
    let points: Vec<Point<'_>> =
        points.iter().map(|(count, row)| Point { count: *count, row }).collect();
    let first = points.first()?.row;
    let (widest, slowest) = points.iter().fold((1.0_f64, f64::MIN_POSITIVE), |(x, y), point| {
        (x.max(point.count), y.max(point.row.median_us))
    });
    let scale = Scale { widest, slowest };
    let title = prefix.trim_end_matches('_');
    let mut body = heading(&format!("{title}, {}: median latency, µs", first.runtime));
    body += &scale.axes();
    for (index, curve) in curves(&points).iter().enumerate() {
        body += &scale.curve(curve, index);
    }
    Some(Panel { height: TITLE_HEIGHT + HEIGHT + 40.0, body })
}

/// Points of the same system and form, in the order of their counts.
fn curves<'a>(points: &'a [Point<'a>]) -> Vec<Vec<&'a Point<'a>>> {
    let mut curves = Vec::new();
    for system in System::ALL {
        for form in Form::ALL {
            let is_of =
                |point: &&Point<'_>| point.row.system == system && point.row.form == Some(form);
            let mut curve: Vec<_> = points.iter().filter(is_of).collect();
            curve.sort_by(|a, b| a.count.total_cmp(&b.count));
            if !curve.is_empty() {
                curves.push(curve);
            }
        }
    }
    curves
}

struct Scale {
    widest: f64,
    slowest: f64,
}

impl Scale {
    fn at(&self, point: &Point<'_>) -> (f64, f64) {
        let x = LEFT + LENGTH * point.count / self.widest;
        (x, TITLE_HEIGHT + HEIGHT * (1.0 - point.row.median_us / self.slowest))
    }

    fn axes(&self) -> String {
        let (bottom, right) = (TITLE_HEIGHT + HEIGHT, LEFT + LENGTH);
        format!(
            "<path d=\"M{LEFT} {TITLE_HEIGHT}V{bottom}H{right}\" fill=\"none\" stroke=\"#94a3b8\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            LEFT - 8.0,
            TITLE_HEIGHT + 10.0,
            number(self.slowest),
            bottom + 18.0,
            self.widest,
        )
    }

    /// The form shows in the dashes; the names stand beside the panel, one below the other.
    fn curve(&self, curve: &[&Point<'_>], index: usize) -> String {
        let row = curve[0].row;
        let form = row.form.unwrap_or(Form::Client);
        let (colour, dashes) = (colour(row.system), dashes(form));
        let points: Vec<(f64, f64)> = curve.iter().map(|point| self.at(point)).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let mut text = format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"/>\n",
            path.join(" ")
        );
        for (x, y) in points {
            let _ =
                writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (x, y) = (LEFT + LENGTH + 24.0, TITLE_HEIGHT + 12.0 + 20.0 * index as f64);
        let _ = write!(
            text,
            "<path d=\"M{x} {}h28\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"/>\n\
             <text x=\"{}\" y=\"{y}\">{}, {form}</text>\n",
            y - 4.0,
            x + 36.0,
            row.system,
        );
        text
    }
}

fn dashes(form: Form) -> &'static str {
    match form {
        Form::Tree => "none",
        Form::Client => "6 3",
        Form::Nested => "2 3",
    }
}

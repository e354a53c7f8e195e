//! Rows as the figures 4 to 7 of the paper.

use charts::{Axis, Bar, Bars, Look, Point, Series, bars, lines};

use crate::bench::Row;
use crate::form::{Form, Phases};

/// A figure of the paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// `figure4` to `figure7`.
    pub name: &'static str,
    /// The text of an SVG file.
    pub svg: String,
}

/// The figures that there are rows for.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |name, svg: Option<String>| Some(Figure { name, svg: svg? });
    let figures = [
        figure("figure4", throughput(rows, 4)),
        figure("figure5", throughput(rows, 7)),
        figure("figure6", latency_over_runs(rows)),
        figure("figure7", latency_and_throughput(rows)),
    ];
    figures.into_iter().flatten().collect()
}

fn throughput(rows: &[Row], n: u64) -> Option<String> {
    let rows: Vec<&Row> =
        rows.iter().filter(|row| row.n == n && row.in_flight == Some(32)).collect();
    let runs = || rows.iter().map(|row| row.runs.len());
    let (least, most) = (runs().min()?, runs().max()?);
    // A bench that failed midway has fewer of some.
    let runs = if least == most { format!("{least}") } else { format!("{least} or more") };
    let title = format!(
        "Throughput with {n} replicas, 32 writes in flight; mean of {runs} runs, 95 % confidence"
    );
    let groups = Phases::ALL.map(Phases::name);
    let series = Form::ALL.map(|form| Bars::new(form.name(), of_form(&rows, form)));
    Some(bars(&title, Axis::linear("writes a second"), &groups, &series))
}

/// A bar for each number of phases.
fn of_form(rows: &[&Row], form: Form) -> Vec<Option<Bar>> {
    let bar = |phases| {
        let row = rows.iter().find(|row| (row.phases, row.form) == (phases, form))?;
        let bar = Bar::new(row.per_second);
        Some(row.per_second_ci95.map_or(bar, |half| bar.within(half)))
    };
    Phases::ALL.map(bar).into()
}

fn latency_over_runs(rows: &[Row]) -> Option<String> {
    let of = |row: &&Row| row.n == 4 && row.in_flight == Some(1);
    let curves: Vec<Series> = rows.iter().filter(of).map(run_by_run).collect();
    let title = "Median latency of 1 client and 4 replicas, run by run";
    let axes = ["run", "milliseconds"].map(Axis::linear);
    (!curves.is_empty()).then(|| lines(title, axes, &curves))
}

fn run_by_run(row: &Row) -> Series {
    let medians = row
        .runs
        .iter()
        .zip(1_u32..)
        .filter_map(|(run, number)| Some(Point::new(f64::from(number), run.median_us? / 1e3)));
    curve(row.phases, row.form, medians.collect())
}

fn latency_and_throughput(rows: &[Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.n == 4 && row.kind == "open").collect();
    let mut curves = Vec::new();
    for phases in Phases::ALL {
        for form in Form::ALL {
            let of = rows.iter().filter(|row| (row.phases, row.form) == (phases, form));
            // From the least offered to the most, as they were measured.
            let points =
                of.filter_map(|row| Some(Point::new(row.per_second / 1e3, row.median_us? / 1e3)));
            let points: Vec<Point> = points.collect();
            if !points.is_empty() {
                curves.push(curve(phases, form, points));
            }
        }
    }
    let title = "Median latency and throughput of 4 replicas, as more and more writes are offered";
    let axes = ["thousand writes a second", "milliseconds"].map(Axis::linear);
    (!curves.is_empty()).then(|| lines(title, axes, &curves))
}

/// The colour says the form, as in the bars, and the dashes how many phases.
fn curve(phases: Phases, form: Form, points: Vec<Point>) -> Series {
    let place = |place: Option<usize>| place.unwrap_or_default();
    let colour = place(Form::ALL.iter().position(|one| *one == form));
    let dashes = place(Phases::ALL.iter().position(|one| *one == phases));
    let name = format!("{}, {form}", phases.name());
    Series::new(name, points).look(Look { colour, dashes })
}

#[cfg(test)]
mod tests {
    use crate::bench::{Case, Load, Measured, Run, rows};

    use super::*;

    fn measured(members: u64) -> Vec<Measured> {
        let run = |median_us| Run {
            operations: 10,
            failed: 0,
            not_begun: 0,
            median_us: Some(median_us),
            p99_us: Some(2.0 * median_us),
            per_second: 1e6 / median_us,
            cpu_us_per_op: Some(50.0),
            frames_per_op: Some(20.0),
        };
        let all = Case::all(members).map(|case| Measured {
            case,
            offered: matches!(case.load, Load::Open { .. }).then_some(1.0),
            runs: vec![run(100.0), run(200.0)],
        });
        all.collect()
    }

    #[test]
    fn every_figure_has_every_write_in_every_form() {
        let figures = figures(&rows(&[measured(4), measured(7)].concat()));
        let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["figure4", "figure5", "figure6", "figure7"]);
        for figure in &figures {
            assert!(figure.svg.starts_with("<svg ") && figure.svg.ends_with("</svg>\n"));
        }
        for bars in &figures[..2] {
            assert_eq!(bars.svg.matches("class=\"bar ").count(), 9);
            assert_eq!(bars.svg.matches("class=\"interval\"").count(), 9);
        }
        for curves in &figures[2..] {
            assert_eq!(curves.svg.matches("<polyline").count(), 9);
        }
        assert_eq!(figures[2].svg.matches("<circle").count(), 9 * 2);
        assert_eq!(figures[3].svg.matches("<circle").count(), 9 * 6);
    }

    #[test]
    fn a_figure_without_rows_is_left_out() {
        assert!(figures(&[]).is_empty());
        let closed = measured(7).into_iter().filter(|one| one.offered.is_none());
        let names: Vec<_> = figures(&rows(&closed.collect::<Vec<_>>()));
        assert_eq!(names.len(), 1);
        assert_eq!(names[0].name, "figure5");
    }
}

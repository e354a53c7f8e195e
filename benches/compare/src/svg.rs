//! The rows as a picture: bars for each bench, latency where one operation runs at a time and else
//! the rate; and curves over the number of servers.

use charts::{Axis, Look, Point, Rank, Series, lines, ranks, stack};

use crate::bench::Form;
use crate::flavour::Flavour;
use crate::report::Row;
use crate::system::System;

/// A picture of these rows, as the text of an SVG file.
pub fn svg(rows: &[Row], title: &str) -> String {
    let mut charts = Vec::new();
    for flavour in Flavour::ALL {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.runtime == flavour).collect();
        let (curves, bars): (Vec<&Row>, Vec<&Row>) =
            rows.into_iter().partition(|row| row.form.is_some() && row.in_flight == 1);
        charts.extend(bars.chunk_by(|a, b| a.bench == b.bench).map(bench));
        charts
            .extend(["hops_", "fanout_"].into_iter().filter_map(|one| over_servers(one, &curves)));
    }
    stack(title, &charts)
}

/// All rows of one bench on one runtime; there is at least one.
fn bench(rows: &[&Row]) -> String {
    let is_rate = rows[0].in_flight > 1;
    let unit = if is_rate { "operations a second" } else { "median latency, µs" };
    let rank = |row: &&Row| {
        let name = format!("{} {}", row.system, row.form.map_or("", Form::name));
        // Without a figure it has its name and no bar: one of nothing would be the best latency.
        let value = if is_rate { row.per_second } else { row.median_us }.unwrap_or(f64::NAN);
        let rank = Rank::new(name.trim_end(), value).look(look(row.system, Form::Tree));
        let range = row.spread.map(|of| if is_rate { of.per_second } else { of.median_us });
        match range {
            Some((low, high)) => rank.from_to(low, high),
            None => rank,
        }
    };
    let title = format!("{}, {}: {unit}", rows[0].bench, rows[0].runtime);
    ranks(&title, &rows.iter().map(rank).collect::<Vec<_>>())
}

/// The benches whose names are this prefix and a number: a curve for each system and form. `None`
/// when there are none.
fn over_servers(prefix: &str, rows: &[&Row]) -> Option<String> {
    let mut all = Vec::new();
    for system in System::ALL {
        for form in Form::ALL {
            let of = rows.iter().filter(|row| (row.system, row.form) == (system, Some(form)));
            let point = |row: &&Row| {
                let servers = row.bench.strip_prefix(prefix)?.parse().ok()?;
                Some((servers, row.median_us?))
            };
            let mut points: Vec<(f64, f64)> = of.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if !points.is_empty() {
                let points = points.into_iter().map(|(x, y)| Point::new(x, y)).collect();
                let name = format!("{system}, {form}");
                all.push(Series::new(name, points).look(look(system, form)));
            }
        }
    }
    let title = format!("{}, {}", prefix.trim_end_matches('_'), rows.first()?.runtime);
    let axes = [Axis::linear("servers"), Axis::linear("median latency, µs")];
    (!all.is_empty()).then(|| lines(&title, axes, &all))
}

/// Convoke stands out; the form is in the dashes of a curve.
fn look(system: System, form: Form) -> Look {
    let colour = if system.is_convoke() { 0 } else { 1 };
    let dashes = Form::ALL.iter().position(|one| *one == form).unwrap_or_default();
    Look { colour, dashes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Form;
    use crate::pin::Pin;
    use crate::report::Spread;
    use crate::system::System;

    fn row(bench: &str, form: Option<Form>, median_us: f64) -> Row {
        Row {
            bench: bench.to_owned(),
            system: System::ConvokeTcp,
            form,
            runtime: Flavour::Ct,
            pin: Pin::One,
            in_flight: if bench.contains("32") { 32 } else { 1 },
            median_us: Some(median_us),
            p99_us: Some(2.0 * median_us),
            per_second: Some(1e6 / median_us),
            cpu_us_per_op: Some(median_us),
            allocs_per_op: None,
            failed: 0,
            complaint: None,
            operations: 10,
            rounds: 1,
            spread: None,
            ratios: Vec::new(),
        }
    }

    #[test]
    fn each_bench_is_a_panel_and_each_row_a_bar_or_a_point() {
        let tree = Some(Form::Tree);
        let rows = [
            row("unary_latency_100b", None, 10.0),
            row("large_1mib", None, 900.0),
            row("hops_1", tree, 10.0),
            row("hops_10", tree, 60.0),
            row("hops_5_32_inflight", tree, 600.0),
        ];
        let text = svg(&rows, "a < b");
        assert_eq!(text.matches("<svg ").count(), 1 + 4);
        assert_eq!(text.matches("class=\"bar ").count(), 3);
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(text.contains("a &lt; b"));
    }

    #[test]
    fn a_bar_of_several_rounds_has_the_lowest_and_the_highest() {
        let alone = row("unary_latency_100b", None, 10.0);
        let range = |width: f64| (10.0 - width, 10.0 + width);
        let (median_us, per_second, cpu_us_per_op) = (range(1.0), range(2.0), range(3.0));
        let spread = Some(Spread { median_us, p99_us: None, per_second, cpu_us_per_op });
        let rows = [Row { spread, ..alone.clone() }, alone];
        assert_eq!(svg(&rows, "title").matches("<path class=\"interval\"").count(), 1);
    }

    #[test]
    fn a_row_without_figures_has_a_dash_and_no_point() {
        let failed = |bench, form| Row { median_us: None, ..row(bench, form, 10.0) };
        let text = svg(&[failed("unary_latency_100b", None)], "title");
        assert!(text.contains("width=\"0.0\"") && text.contains(">-</text>"), "{text}");
        let text = svg(&[failed("hops_1", Some(Form::Tree))], "title");
        assert_eq!(text.matches("<circle").count(), 0);
    }

    #[test]
    fn no_rows_are_an_empty_chart() {
        let text = svg(&[], "nothing");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<svg ").count(), 1);
    }
}

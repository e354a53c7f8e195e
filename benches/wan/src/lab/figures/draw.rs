//! Drawings of the figures.

use std::path::Path;

use anyhow::Context;
use charts::{Axis, Bar, Bars, Look, Point, Series, bars, lines};

use crate::protocol::Form;
use crate::rows::{Median, Row, median, medians};

/// Both forms, with the dashes of their lines.
const FORMS: [(Form, usize); 2] = [(Form::Direct, 1), (Form::Overlay, 0)];

/// Number of sites that the curves are for.
const CURVES: usize = 5;

/// Skew of the bars.
const BARS: f64 = 1.0;

/// Draws all figures in a folder.
pub(super) fn all(folder: &Path, rows: &[Row]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for (name, svg) in [("7.1.svg", curves(rows)), ("7.2.svg", throughputs(rows))] {
        let file = folder.join(name);
        std::fs::write(&file, svg).with_context(|| format!("writing {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Mean latency over throughput, for each skew and form.
fn curves(rows: &[Row]) -> String {
    let mut skews: Vec<f64> = of(rows, CURVES, None).map(|row| row.skew).collect();
    skews.sort_by(f64::total_cmp);
    skews.dedup();
    let mut series = Vec::new();
    for (colour, skew) in skews.into_iter().enumerate() {
        let rows: Vec<Row> = of(rows, CURVES, Some(skew)).cloned().collect();
        let medians = medians(&rows);
        for (form, dashes) in FORMS {
            let of_form = medians.iter().filter(|it| it.form == form);
            let points = of_form.map(|it| latency(&rows, it)).collect();
            let name = format!("s = {skew}, {}", form.name());
            series.push(Series::new(name, points).look(Look { colour, dashes }));
        }
    }
    let axes = [
        Axis::linear("Mbit/s that come at each site"),
        Axis::logarithmic("mean milliseconds from offer to delivery"),
    ];
    lines("7.1: five sites, four skews", axes, &series)
}

fn latency(rows: &[Row], of: &Median) -> Point {
    let is_same = |row: &&Row| row.form == of.form && row.load == of.load;
    let all: Vec<f64> = rows.iter().filter(is_same).map(|row| row.mean_ms).collect();
    let point = Point::new(of.sum.throughput_mbit, of.sum.mean_ms);
    if all.len() > 1 { point.within(half_range(&all)) } else { point }
}

/// Throughput at the largest load, for each number of sites.
fn throughputs(rows: &[Row]) -> String {
    let mut sites: Vec<usize> =
        rows.iter().filter(|row| row.skew == BARS).map(|row| row.sites).collect();
    sites.sort_unstable();
    sites.dedup();
    let names: Vec<String> = sites.iter().map(|sites| format!("{sites} sites")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let series = FORMS.map(|(form, _)| {
        let bar = |sites: &usize| throughput(of(rows, *sites, Some(BARS)), form);
        Bars::new(form.name(), sites.iter().map(bar).collect())
    });
    let y = Axis::linear("Mbit/s that come at each site");
    bars("7.2: skew 1, full load", y, &names, &series)
}

fn throughput<'a>(rows: impl Iterator<Item = &'a Row> + Clone, form: Form) -> Option<Bar> {
    let full = rows.clone().map(|row| row.load).fold(0.0, f64::max);
    let rows = rows.filter(|row| row.form == form && row.load == full);
    let all: Vec<f64> = rows.map(|row| row.throughput_mbit).collect();
    let bar = Bar::new(median(all.clone()));
    match all.len() {
        0 => None,
        1 => Some(bar),
        _ => Some(bar.within(half_range(&all))),
    }
}

fn of(rows: &[Row], sites: usize, skew: Option<f64>) -> impl Iterator<Item = &Row> + Clone {
    let is_of = move |row: &&Row| row.sites == sites && skew.is_none_or(|skew| row.skew == skew);
    rows.iter().filter(is_of)
}

/// Half of what is between the least and the most.
fn half_range(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    (most - least) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sites: usize, skew: f64, form: Form, load: f64, mbit: f64) -> Row {
        Row {
            sites,
            skew,
            form,
            load,
            throughput_mbit: mbit,
            planned_mbit: 97.0,
            mean_ms: 2.0 * mbit,
            p99_ms: 9.0,
        }
    }

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for (form, _) in FORMS {
            for (skew, load) in [(0.0, 0.5), (1.0, 0.5), (0.0, 1.0), (1.0, 1.0)] {
                rows.push(row(5, skew, form, load, 60.0 * load));
            }
            rows.push(row(9, 1.0, form, 1.0, 50.0));
            rows.push(row(9, 1.0, form, 1.0, 54.0));
        }
        rows
    }

    #[test]
    fn curves_are_of_five_sites_with_a_line_for_each_skew_and_form() {
        let svg = curves(&rows());
        assert_eq!(svg.matches("<polyline").count(), 4, "{svg}");
        assert!(svg.contains("s = 0, direct") && svg.contains("s = 1, overlay"));
    }

    #[test]
    fn bars_are_medians_at_full_load_with_what_is_between_the_runs() {
        let rows = rows();
        let bar = throughput(of(&rows, 9, Some(BARS)), Form::Overlay);
        assert_eq!(bar, Some(Bar::new(52.0).within(2.0)));
        let bar = throughput(of(&rows, 5, Some(BARS)), Form::Overlay);
        assert_eq!(bar, Some(Bar::new(60.0)));
        assert_eq!(throughput(of(&rows, 7, Some(BARS)), Form::Overlay), None);
        let svg = throughputs(&rows);
        assert!(svg.contains("5 sites") && svg.contains("9 sites") && !svg.contains("7 sites"));
    }

    #[test]
    fn figures_of_nothing_are_drawn() {
        assert!([curves(&[]), throughputs(&[])].iter().all(|svg| svg.ends_with("</svg>\n")));
    }
}

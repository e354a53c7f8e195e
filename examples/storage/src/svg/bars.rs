//! A group of bars for each write, a bar for each form, and how far to trust it.

use crate::bench::Row;
use crate::form::{Form, Phases};

use super::axis_end;
use super::chart::{BOTTOM, Chart, LEFT, RIGHT, TOP, colour, label};

const BAR_WIDTH: f64 = 44.0;

/// The throughput of these rows.
pub(super) fn svg(rows: &[&Row], title: &str) -> String {
    let mut chart = Chart::new(title, ["", "writes a second"]);
    let tops = rows.iter().map(|row| row.per_second + row.per_second_ci95.unwrap_or_default());
    let end = 1.05 * axis_end(tops);
    chart.y_axis(end);
    let group = (RIGHT - LEFT) / Phases::ALL.len() as f64;
    for (index, phases) in Phases::ALL.into_iter().enumerate() {
        let middle = LEFT + group * (index as f64 + 0.5);
        chart.push(&label((middle, BOTTOM + 18.0), "middle", 12, phases.name()));
        for (index, form) in Form::ALL.into_iter().enumerate() {
            let row = rows.iter().find(|row| (row.phases, row.form) == (phases, form));
            let left = middle + BAR_WIDTH * (index as f64 - 1.5);
            row.iter().for_each(|row| chart.push(&bar(row, left, end)));
        }
    }
    for form in Form::ALL {
        let sample = |x: f64, y: f64| rectangle("sample", (x, y - 6.0), (28.0, 12.0), form);
        chart.legend(sample, form.name());
    }
    chart.finish()
}

fn bar(row: &Row, left: f64, end: f64) -> String {
    let height = |value: f64| (BOTTOM - TOP) * value.clamp(0.0, end) / end;
    let value = height(row.per_second);
    let size = (BAR_WIDTH - 4.0, value);
    let mut text = rectangle("bar", (left + 2.0, BOTTOM - value), size, row.form);
    if let Some(half) = row.per_second_ci95 {
        let (middle, low) = (left + BAR_WIDTH / 2.0, BOTTOM - height(row.per_second - half));
        let high = BOTTOM - height(row.per_second + half);
        text += &format!(
            "<path class=\"interval\" d=\"M{} {high:.1}h10m-5 0V{low:.1}m-5 0h10\" fill=\"none\" \
             stroke=\"black\"/>\n",
            middle - 5.0
        );
    }
    text
}

fn rectangle(class: &str, (x, y): (f64, f64), (width, height): (f64, f64), form: Form) -> String {
    let colour = colour(form);
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\" fill=\"{colour}\"/>\n"
    )
}

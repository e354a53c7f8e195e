//! The rows for people.

use std::fmt::Write as _;

use super::Row;
use crate::bench::Form;

/// A block for each bench, with the ratios of a row below it.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut bench = "";
    for row in rows {
        if row.bench != bench {
            bench = &row.bench;
            heading(&mut text, row);
        }
        line(&mut text, row);
    }
    text
}

fn heading(text: &mut String, row: &Row) {
    let gap = if text.is_empty() { "" } else { "\n" };
    let title = format!("{}, {} in flight", row.bench, row.in_flight);
    let columns = "  median µs      p99 µs      per s   CPU µs  allocs  failed";
    let _ = writeln!(text, "{gap}{title:44}{columns}");
}

fn line(text: &mut String, row: &Row) {
    let form = row.form.map_or("", Form::name);
    let _ = writeln!(
        text,
        "  {:26} {:6} {:2}      {:>11} {:>11} {:>10} {:>8} {:>7} {:7}",
        row.system.name(),
        form,
        row.runtime.name(),
        figure(row.median_us, 1),
        figure(row.p99_us, 1),
        figure(row.per_second, 0),
        figure(row.cpu_us_per_op, 2),
        figure(row.allocs_per_op, 1),
        row.failed,
    );
    if let Some(complaint) = &row.complaint {
        let _ = writeln!(text, "      failed: {complaint}");
    }
    for ratio in &row.ratios {
        let _ = writeln!(
            text,
            "      against {:28} {:>11}x {:>11} {:>9}x {:>7}x",
            ratio.against,
            factor(ratio.median),
            ratio.p99.map_or(String::new(), |p99| factor(p99) + "x"),
            factor(ratio.per_second),
            factor(ratio.cpu)
        );
    }
}

/// With so many decimals; a dash where there is none.
pub(crate) fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Three digits that matter, at least.
fn factor(value: f64) -> String {
    if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::super::tests::{failed_sample, sample};
    use super::*;
    use crate::pin::Pin;
    use crate::plan::Case;

    #[test]
    fn rows_of_a_bench_stand_below_one_heading() {
        let cases = &Case::all()[..3];
        let text = table(&rows(cases, &vec![vec![sample(10, 7)]; 3], Pin::One));
        assert_eq!(text.matches("unary_latency_100b, 1 in flight").count(), 1);
        assert_eq!(text.matches("     7\n").count(), 3, "{text}");
        assert!(text.contains("against tcp-tokio"), "{text}");
    }

    #[test]
    fn what_failed_says_so_in_its_row_and_shows_no_figure() {
        let text = table(&rows(&Case::all()[..1], &[vec![failed_sample()]], Pin::One));
        let (row, complaint) = text.trim_end().rsplit_once('\n').expect("they are lines");
        assert_eq!(complaint.trim(), "failed: reset");
        assert!(row.ends_with("-        -       -       7") && !row.contains("0.0"), "{text}");
    }

    #[test]
    fn a_small_ratio_keeps_its_digits() {
        assert_eq!((factor(0.012_34).as_str(), factor(1.234).as_str()), ("0.0123", "1.23"));
    }
}

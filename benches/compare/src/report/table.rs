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
    let allocations = row.allocs_per_op.map_or("-".to_owned(), |count| format!("{count:.1}"));
    let _ = writeln!(
        text,
        "  {:26} {:6} {:2}      {:11.1} {:11.1} {:10.0} {:8.2} {:>7} {:7}",
        row.system.name(),
        form,
        row.runtime.name(),
        row.median_us,
        row.p99_us,
        row.per_second,
        row.cpu_us_per_op,
        allocations,
        row.failed,
    );
    for ratio in &row.ratios {
        let _ = writeln!(
            text,
            "      against {:28} {:>11}x {:11} {:>9}x {:>7}x",
            ratio.against,
            factor(ratio.median),
            "",
            factor(ratio.per_second),
            factor(ratio.cpu)
        );
    }
}

/// Three digits that matter, at least.
fn factor(value: f64) -> String {
    if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::super::tests::sample;
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
    fn a_small_ratio_keeps_its_digits() {
        assert_eq!((factor(0.012_34).as_str(), factor(1.234).as_str()), ("0.0123", "1.23"));
    }
}

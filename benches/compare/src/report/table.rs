//! The rows for people.

use std::fmt::Write as _;

use super::Row;

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
    let form = row.form.map_or("", |form| form.name());
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
            "      against {:28} {:11.2}x {:11} {:9.2}x {:7.2}x",
            ratio.against, ratio.median, "", ratio.per_second, ratio.cpu
        );
    }
}

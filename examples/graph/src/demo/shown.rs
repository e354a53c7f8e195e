//! The rows of the demo for people: a table, a sentence, a chart.

use charts::{Axis, Bar, Bars, bars};

use super::Row;
use crate::forms::Form;

/// The rows as a table: a line a query, or with `all` every form.
pub fn table(rows: &[Row], all: bool) -> String {
    if all { every_form(rows) } else { a_line_a_query(rows) }
}

fn a_line_a_query(rows: &[Row]) -> String {
    let mut text =
        String::from("query ids        tree µs   client µs   nested µs   ratio  predicted\n");
    for three in rows.chunks_exact(Form::ALL.len()) {
        let [tree, client, nested] =
            Form::ALL.map(|form| three.iter().find(|row| row.form == form));
        let (Some(tree), Some(client), Some(nested)) = (tree, client, nested) else { continue };
        text += &format!(
            "{:5} {:8} {:9.0} {:11.0} {:11.0} {:7.3} {:10.3}\n",
            tree.query.to_string(),
            tree.ids,
            tree.median_us,
            client.median_us,
            nested.median_us,
            tree.ratio,
            tree.predicted,
        );
    }
    text
}

fn every_form(rows: &[Row]) -> String {
    let mut text = String::from(
        "query ids      form     hops  frames   median µs      p99 µs   CPU µs   ratio  predicted\n",
    );
    for row in rows {
        if row.form == Form::Tree && !text.ends_with("predicted\n") {
            text.push('\n');
        }
        text += &format!(
            "{:5} {:8} {:7} {:5.2} {:7.1} {:11.0} {:11.0} {:8.1} {:7.3} {:10.3}\n",
            row.query.to_string(),
            row.ids,
            row.form,
            row.hops,
            row.frames,
            row.median_us,
            row.p99_us,
            row.cpu_us,
            row.ratio,
            row.predicted,
        );
    }
    text
}

/// The result in one sentence: what distance makes of the trees.
pub fn sentence(rows: &[Row]) -> String {
    let trees = || rows.iter().filter(|row| row.form == Form::Tree && row.predicted < 1.0);
    let Some(delay_ms) = trees().map(|row| row.delay_ms).max_by(f64::total_cmp) else {
        return "No query has fewer hops as a tree, so there is nothing to gain.".to_owned();
    };
    let ratios: Vec<f64> =
        trees().filter(|row| row.delay_ms == delay_ms).map(|row| row.ratio).collect();
    let (least, most) = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), ratio| {
        (least.min(*ratio), most.max(*ratio))
    });
    format!(
        "With {delay_ms} ms on the way, a query with fewer hops as a tree takes {:.0} to {:.0} % of the time \
         that the client's own steps take.",
        least * 100.0,
        most * 100.0,
    )
}

/// The ratios of the trees with the longest delay, each beside what its hops predict: of the ids
/// whose number of hops is that of the query's shape.
pub fn figure(rows: &[Row]) -> String {
    let delay_ms = rows.iter().map(|row| row.delay_ms).max_by(f64::total_cmp).unwrap_or_default();
    let is_drawn =
        |row: &&Row| row.form == Form::Tree && row.delay_ms == delay_ms && row.ids != "any";
    let trees: Vec<&Row> = rows.iter().filter(is_drawn).collect();
    let names: Vec<String> = trees
        .iter()
        .map(|row| format!("{} {}", row.query, row.ids).trim_end().to_owned())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = |name: &str, of: fn(&Row) -> f64| {
        Bars::new(name, trees.iter().map(|row| Some(Bar::new(of(row)))).collect())
    };
    let series = [all("measured", |row| row.ratio), all("predicted by hops", |row| row.predicted)];
    let title =
        format!("Median latency of a tree against the client's steps, {delay_ms} ms a frame");
    bars(&title, Axis::linear("ratio"), &names, &series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    fn rows(delay_ms: f64, ratio: f64) -> Vec<Row> {
        let row = |form| Row {
            query: Query::Is2,
            ids: "",
            form,
            delay_ms,
            hops: 5.0,
            frames: 8.0,
            median_us: 1000.0,
            p99_us: 2000.0,
            cpu_us: 10.0,
            runs: 60,
            ratio: if form == Form::Tree { ratio } else { 1.0 },
            predicted: if form == Form::Tree { 0.625 } else { 1.0 },
        };
        Form::ALL.map(row).to_vec()
    }

    #[test]
    fn a_query_is_a_line_unless_all_is_asked_for() {
        let rows = rows(2.0, 0.631);
        let (short, long) = (table(&rows, false), table(&rows, true));
        assert_eq!((short.lines().count(), long.lines().count()), (2, 4), "{short}{long}");
        assert!(short.contains("0.631") && short.contains("0.625"), "{short}");
    }

    #[test]
    fn the_sentence_and_the_chart_are_of_the_longest_delay() {
        let all = [rows(0.0, 1.07), rows(2.0, 0.631), rows(2.0, 0.66)].concat();
        let said = sentence(&all);
        assert!(said.starts_with("With 2 ms") && said.contains("63 to 66 %"), "{said}");
        assert!(figure(&all).contains("2 ms a frame"));
        assert!(sentence(&[]).starts_with("No query"));
    }
}

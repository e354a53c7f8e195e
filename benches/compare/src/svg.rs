//! The rows as a chart: a panel of bars for each bench, and curves over the number of servers.

mod bars;
mod curves;
mod panel;

use std::fmt::Write as _;

use crate::flavour::Flavour;
use crate::report::Row;

use self::panel::{HEADER_HEIGHT, Panel, WIDTH, escape};

/// A chart of these rows, as the text of an SVG file.
pub fn svg(rows: &[Row], title: &str) -> String {
    let mut panels: Vec<Panel> = Vec::new();
    for flavour in Flavour::ALL {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.runtime == flavour).collect();
        let (curves, bars): (Vec<&Row>, Vec<&Row>) =
            rows.into_iter().partition(|row| row.form.is_some() && row.in_flight == 1);
        panels.extend(bars.chunk_by(|a, b| a.bench == b.bench).map(bars::panel));
        for prefix in ["hops_", "fanout_"] {
            panels.extend(curves::panel(prefix, &curves));
        }
    }
    document(&panels, title)
}

fn document(panels: &[Panel], title: &str) -> String {
    let height = HEADER_HEIGHT + panels.iter().map(|panel| panel.height).sum::<f64>();
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"18\">{}</text>\n",
        escape(title)
    );
    let mut top = HEADER_HEIGHT;
    for panel in panels {
        let _ = writeln!(text, "<g transform=\"translate(0 {top})\">\n{}</g>", panel.body);
        top += panel.height;
    }
    text += "</svg>\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Form;
    use crate::pin::Pin;
    use crate::system::System;

    fn row(bench: &str, form: Option<Form>, median_us: f64) -> Row {
        Row {
            bench: bench.to_owned(),
            system: System::ConvokeTcp,
            form,
            runtime: Flavour::Ct,
            pin: Pin::One,
            in_flight: if bench.contains("32") { 32 } else { 1 },
            median_us,
            p99_us: 2.0 * median_us,
            per_second: 1e6 / median_us,
            cpu_us_per_op: median_us,
            allocs_per_op: None,
            failed: 0,
            operations: 10,
            rounds: 1,
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
        assert_eq!(text.matches("<g ").count(), 4);
        assert_eq!(text.matches("class=\"bar\"").count(), 3);
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(text.contains("a &lt; b"));
    }

    #[test]
    fn no_rows_are_an_empty_chart() {
        let text = svg(&[], "nothing");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(!text.contains("<g "));
    }
}

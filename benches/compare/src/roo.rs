//! `compare roo`: hops and fan-out in three forms, as the Roo paper measures them, with a distance
//! between the servers if wanted.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::bench::Form;
use crate::flavour::Flavour;
use crate::plan::Case;
use crate::report::{Row, figure};
use crate::system::System;

/// A row, and what distance alone would make of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooRow {
    /// The row of the case.
    #[serde(flatten)]
    pub row: Row,
    /// How much later every frame left, in milliseconds.
    pub delay_ms: f64,
    /// One-way trips from the request to the last answer.
    pub trips: usize,
    /// Median latency against the client-driven form: the median of the ratios within each round;
    /// absent when one of them failed.
    pub ratio: Option<f64>,
    /// The ratio that the trips alone predict.
    pub predicted: f64,
}

/// Every form of hops and fan-out, one call at a time.
pub fn cases(system: System, flavour: Flavour) -> Vec<Case> {
    let all = Case::all().into_iter();
    all.filter(|case| {
        let is_one = case.bench.has_forms() && case.bench.in_flight() == 1;
        is_one && case.system == system && case.flavour == flavour
    })
    .collect()
}

/// Rows of [`cases`], measured with a delay.
pub fn roo_rows(cases: &[Case], rows: Vec<Row>, delay_ms: f64) -> Vec<RooRow> {
    let row = |(case, row): (&Case, Row)| {
        let trips = |form| case.bench.trips(form);
        let ratio = match case.form {
            Form::Client => row.median_us.map(|_| 1.0),
            Form::Tree | Form::Nested => row.ratios.first().map(|ratio| ratio.median),
        };
        let predicted = trips(case.form) as f64 / trips(Form::Client) as f64;
        RooRow { row, delay_ms, trips: trips(case.form), ratio, predicted }
    };
    cases.iter().zip(rows).map(row).collect()
}

/// The rows for people.
pub fn roo_table(rows: &[RooRow]) -> String {
    let mut text = String::from(
        "bench       form    trips    median µs      p99 µs   CPU µs   ratio  predicted\n",
    );
    for RooRow { row, trips, ratio, predicted, .. } in rows {
        let form = row.form.map_or("", Form::name);
        let _ = writeln!(
            text,
            "{:11} {form:7} {trips:5} {:>12} {:>11} {:>8} {:>7} {predicted:10.3}",
            row.bench,
            figure(row.median_us, 1),
            figure(row.p99_us, 1),
            figure(row.cpu_us_per_op, 1),
            figure(*ratio, 3),
        );
        if let Some(complaint) = &row.complaint {
            let _ = writeln!(text, "    failed: {complaint}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Bench;

    #[test]
    fn each_bench_has_its_three_forms() {
        let cases = cases(System::ConvokeTcp, Flavour::Ct);
        let forms = |bench| {
            let of_bench = cases.iter().filter(move |case| case.bench == bench);
            of_bench.map(|case| case.form).collect::<Vec<_>>()
        };
        assert_eq!(forms(Bench::Hops { servers: 10, in_flight: 1 }), Form::ALL);
        assert_eq!(forms(Bench::Fanout { leaves: 7 }), Form::ALL);
        assert_eq!(forms(Bench::UnaryLatency), []);
    }
}

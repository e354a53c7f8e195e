//! Rows of the report: the runs of a case together.

use serde::Serialize;

use crate::form::{Form, Phases};
use crate::statistics::{ci95, mean, median};

use super::{Case, Load, Measured};

/// One run of a case.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    /// Writes that succeeded.
    pub operations: u64,
    /// Writes that failed.
    pub failed: u64,
    /// Writes of an open loop that were not begun, because thousands were under way: it is
    /// overloaded.
    pub not_begun: u64,
    /// Median latency in microseconds; none when nothing succeeded.
    pub median_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Writes a second.
    pub per_second: f64,
    /// Processor time of client and replicas for each write, in microseconds.
    pub cpu_us_per_op: Option<f64>,
    /// Frames of client and replicas for each write.
    pub frames_per_op: Option<f64>,
}

/// The runs of a case. A number is the mean of the runs in which a write succeeded, and none where
/// there is no such run; `.._ci95` is half of its 95 % confidence interval.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Replicas.
    pub n: u64,
    /// Echo phases.
    pub phases: Phases,
    /// The form, by who leads them.
    pub form: Form,
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub kind: &'static str,
    /// Writes under way, in a closed loop.
    pub in_flight: Option<usize>,
    /// Writes a second that were asked for, in an open loop.
    pub offered_per_second: Option<f64>,
    /// Median latency.
    pub median_us: Option<f64>,
    /// Of the median latency.
    pub median_us_ci95: Option<f64>,
    /// 99th percentile of the latency.
    pub p99_us: Option<f64>,
    /// Writes a second, of all runs.
    pub per_second: f64,
    /// Of the writes a second.
    pub per_second_ci95: Option<f64>,
    /// Processor time of client and replicas for each write.
    pub cpu_us_per_op: Option<f64>,
    /// Of the processor time.
    pub cpu_us_per_op_ci95: Option<f64>,
    /// Frames of client and replicas for each write, credit and keep-alive included.
    pub frames_per_op: Option<f64>,
    /// Writes that succeeded, in all runs.
    pub operations: u64,
    /// Writes that failed, in all runs.
    pub failed: u64,
    /// Writes of an open loop that were not begun, in all runs.
    pub not_begun: u64,
    /// Writes a second against the nested form under the same load: median of the ratios run by
    /// run.
    pub per_second_to_nested: Option<f64>,
    /// Processor time against the nested form, likewise.
    pub cpu_to_nested: Option<f64>,
    /// Results of each run.
    pub runs: Vec<Run>,
}

/// A row for each case that has a run.
pub fn rows(measured: &[Measured]) -> Vec<Row> {
    let begun = measured.iter().filter(|one| !one.runs.is_empty());
    begun.map(|one| row(one, nested_of(measured, one))).collect()
}

fn nested_of<'a>(all: &'a [Measured], one: &Measured) -> Option<&'a Measured> {
    let nested = Case { form: Form::Nested, ..one.case };
    // In an open loop each form has a rate of its own.
    let is_closed = matches!(one.case.load, Load::Closed { .. });
    let nested = all.iter().find(|other| other.case == nested)?;
    (is_closed && one.case.form != Form::Nested).then_some(nested)
}

fn row(measured: &Measured, nested: Option<&Measured>) -> Row {
    let Measured { case, offered, runs } = measured;
    let all = |of: fn(&Run) -> Option<f64>| -> Vec<f64> { runs.iter().filter_map(of).collect() };
    let ratio = |of: fn(&Run) -> Option<f64>| {
        let pairs = nested?.runs.iter().zip(runs);
        let pairs = pairs.filter_map(|(nested, run)| Some((of(nested)?, of(run)?)));
        let pairs = pairs.filter(|(nested, _)| *nested > 0.0);
        median(&pairs.map(|(nested, run)| run / nested).collect::<Vec<f64>>())
    };
    let (medians, p99s) = (all(|run| run.median_us), all(|run| run.p99_us));
    let (per_second, cpu) = (all(|run| Some(run.per_second)), all(|run| run.cpu_us_per_op));
    let (kind, in_flight) = match case.load {
        Load::Closed { in_flight } => ("closed", Some(in_flight)),
        Load::Open { .. } => ("open", None),
    };
    Row {
        n: case.members,
        phases: case.phases,
        form: case.form,
        kind,
        in_flight,
        offered_per_second: *offered,
        median_us: mean(&medians),
        median_us_ci95: ci95(&medians),
        p99_us: mean(&p99s),
        per_second: mean(&per_second).unwrap_or_default(),
        per_second_ci95: ci95(&per_second),
        cpu_us_per_op: mean(&cpu),
        cpu_us_per_op_ci95: ci95(&cpu),
        frames_per_op: mean(&all(|run| run.frames_per_op)),
        operations: runs.iter().map(|run| run.operations).sum(),
        failed: runs.iter().map(|run| run.failed).sum(),
        not_begun: runs.iter().map(|run| run.not_begun).sum(),
        per_second_to_nested: ratio(|run| Some(run.per_second)),
        cpu_to_nested: ratio(|run| run.cpu_us_per_op),
        runs: runs.clone(),
    }
}

/// The rows as a table for people: what 32 writes in flight reach, or with `all` every load and
/// every column. Where nothing has 32 in flight, all rows are shown.
pub fn table(rows: &[Row], all: bool) -> String {
    let matters: Vec<&Row> = rows.iter().filter(|row| row.in_flight == Some(FULL)).collect();
    if all || matters.is_empty() { every_column(rows) } else { what_matters(&matters) }
}

/// Writes in flight of the rows that matter.
const FULL: usize = 32;

fn what_matters(rows: &[&Row]) -> String {
    let mut text = String::from(
        "n  write               form     median µs  per second       ±   CPU µs  : nested, rate  \
         CPU  failed\n",
    );
    for row in rows {
        text += &format!(
            "{:<2} {:19} {:7} {:>10} {:11.0} {:7.0} {:>8} {:>15} {:>4} {:>7}\n",
            row.n,
            row.phases.name(),
            row.form,
            whole(row.median_us),
            row.per_second,
            row.per_second_ci95.unwrap_or_default(),
            whole(row.cpu_us_per_op),
            two_digits(row.per_second_to_nested),
            two_digits(row.cpu_to_nested),
            row.failed,
        );
    }
    text
}

fn every_column(rows: &[Row]) -> String {
    let mut text = String::from(
        "n  write               form    load              median µs     p99 µs  per second       ±  \
         CPU µs  frames  : nested, rate  CPU  failed  not begun\n",
    );
    for row in rows {
        let load = match (row.in_flight, row.offered_per_second) {
            (Some(in_flight), _) => format!("{in_flight} in flight"),
            (None, offered) => format!("{:.0} a second", offered.unwrap_or_default()),
        };
        text += &format!(
            "{:<2} {:19} {:7} {:16} {:>10} {:>10} {:11.0} {:7.0} {:>7} {:>7} {:>15} {:>4} {:>7} \
             {:>10}\n",
            row.n,
            row.phases.name(),
            row.form,
            load,
            whole(row.median_us),
            whole(row.p99_us),
            row.per_second,
            row.per_second_ci95.unwrap_or_default(),
            whole(row.cpu_us_per_op),
            row.frames_per_op.map_or_else(nothing, |frames| format!("{frames:.1}")),
            two_digits(row.per_second_to_nested),
            two_digits(row.cpu_to_nested),
            row.failed,
            row.not_begun,
        );
    }
    text
}

fn whole(number: Option<f64>) -> String {
    number.map_or_else(nothing, |number| format!("{number:.0}"))
}

/// Stands for a number that no write has.
fn nothing() -> String {
    "-".to_owned()
}

fn two_digits(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
}

/// The result in one sentence: what echo phases among the replicas gain over nested calls.
pub fn sentence(rows: &[Row]) -> String {
    let failed: u64 = rows.iter().map(|row| row.failed).sum();
    let echo = rows.iter().filter(|row| row.form == Form::Echo && row.in_flight == Some(FULL));
    let ratios: Vec<f64> = echo.filter_map(|row| row.per_second_to_nested).collect();
    let gain = if ratios.is_empty() {
        "No case shows echo phases beside nested calls".to_owned()
    } else {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        format!(
            "Replicas that echo among themselves reach {least:.2} to {most:.2} of the rate of \
             nested calls"
        )
    };
    format!("{gain}; {failed} writes failed.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(form: Form, load: Load, per_second: [f64; 3]) -> Measured {
        let run = |per_second| Run {
            operations: 10,
            failed: 1,
            not_begun: 2,
            median_us: Some(100.0),
            p99_us: None,
            per_second,
            cpu_us_per_op: Some(1e6 / per_second),
            frames_per_op: Some(20.0),
        };
        let case = Case { members: 4, phases: Phases::One, form, load };
        Measured { case, offered: None, runs: per_second.map(run).to_vec() }
    }

    #[test]
    fn ratios_are_taken_run_by_run() {
        let load = Load::Closed { in_flight: 32 };
        // The machine was slow in the second run, and in the third somebody disturbed one of them.
        let rows = rows(&[
            measured(Form::Echo, load, [200.0, 100.0, 300.0]),
            measured(Form::Nested, load, [100.0, 50.0, 10.0]),
        ]);
        assert_eq!(rows[0].per_second_to_nested, Some(2.0));
        assert_eq!(rows[0].cpu_to_nested, Some(0.5));
        assert_eq!(rows[1].per_second_to_nested, None);
        assert_eq!((rows[0].operations, rows[0].failed, rows[0].per_second), (30, 3, 200.0));
        assert_eq!(rows[0].not_begun, 6);
        assert!(rows[0].per_second_ci95.is_some_and(|half| half > 0.0));
        assert_eq!(table(&rows, true).lines().count(), 3);
        let said = sentence(&rows);
        assert!(
            said.contains("reach 2.00 to 2.00") && said.ends_with("6 writes failed."),
            "{said}"
        );
    }

    #[test]
    fn what_matters_is_32_in_flight_where_there_is_such_a_row() {
        let run = |in_flight| measured(Form::Nested, Load::Closed { in_flight }, [1.0; 3]);
        let (both, alone) = (rows(&[run(1), run(32)]), rows(&[run(1)]));
        assert_eq!(table(&both, false).lines().count(), 2);
        assert_eq!(table(&both, true).lines().count(), 3);
        assert_eq!(table(&alone, false), table(&alone, true));
    }

    #[test]
    fn a_case_whose_writes_all_fail_has_no_latency_and_shows_its_failures() {
        let nothing = Run {
            operations: 0,
            failed: 7,
            not_begun: 0,
            median_us: None,
            p99_us: None,
            per_second: 0.0,
            cpu_us_per_op: None,
            frames_per_op: None,
        };
        let load = Load::Closed { in_flight: 32 };
        let mut all = [Form::Echo, Form::Nested].map(|form| measured(form, load, [1.0; 3]));
        all[0].runs = vec![nothing; 2];
        let failing = rows(&all);
        assert_eq!((failing[0].median_us, failing[0].cpu_us_per_op), (None, None));
        assert_eq!((failing[0].failed, failing[0].cpu_to_nested), (14, None));
        let table = table(&failing, false);
        let line: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = ["4", "Write", "+", "Echo", "echo", "-", "0", "0", "-", "0.00", "14"];
        assert_eq!(line, expected, "{table}");
        assert!(serde_json::to_value(&failing).unwrap()[0]["median_us"].is_null());
        all[0].runs.clear();
        assert_eq!(rows(&all).len(), 1, "a case that was not begun has no row");
    }

    #[test]
    fn an_open_loop_is_compared_with_nobody() {
        let load = Load::Open { share: 0.5, per_second: 0.0 };
        let rows =
            rows(&[measured(Form::Echo, load, [1.0; 3]), measured(Form::Nested, load, [1.0; 3])]);
        assert_eq!(rows[0].per_second_to_nested, None);
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(json[0]["loop"], "open");
        assert_eq!(json[0]["form"], "echo");
        assert_eq!(json[0]["phases"], 1);
        assert!(json[0]["in_flight"].is_null());
    }
}

//! Outcomes of the lanes, and the table that says so.

use std::fmt;
use std::time::Duration;

/// Outcome of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// With why the rest could not run, and what would let it.
    Partly(String),
    /// With what failed.
    Failed(String),
    /// With why it could not run, and what would let it.
    Skipped(String),
}

/// The outcomes of the lanes, in the order they ran.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    lane: &'static str,
    outcome: Outcome,
    took: Duration,
}

impl Report {
    pub(crate) fn add(&mut self, lane: &'static str, outcome: Outcome, took: Duration) {
        self.rows.push(Row { lane, outcome, took });
    }

    pub(crate) fn has_failures(&self) -> bool {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_))) > 0
    }

    /// True when a lane, or a part of one, could not run.
    pub(crate) fn has_skips(&self) -> bool {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(_) | Outcome::Partly(_))) > 0
    }

    /// True when no lane could run, nor a part of one.
    pub(crate) fn is_all_skipped(&self) -> bool {
        self.count(|outcome| !matches!(outcome, Outcome::Skipped(_))) == 0
    }

    fn count(&self, counts: impl Fn(&Outcome) -> bool) -> usize {
        self.rows.iter().filter(|row| counts(&row.outcome)).count()
    }
}

impl Outcome {
    /// The word of the table and the reason beside it. Skipped lanes shout, also those of a part: a
    /// skip nobody notices is a check nobody has.
    pub(crate) fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Passed => ("passed", ""),
            Self::Partly(reason) => ("PARTLY", reason),
            Self::Failed(reason) => ("FAILED", reason),
            Self::Skipped(reason) => ("SKIPPED", reason),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.lane.len()).max().unwrap_or(0).max(4);
        writeln!(f, "{:width$}  {:7}  {:>7}", "lane", "outcome", "seconds")?;
        for Row { lane, outcome, took } in &self.rows {
            let (word, reason) = outcome.words();
            let line = format!("{lane:width$}  {word:7}  {:>7.1}  {reason}", took.as_secs_f64());
            writeln!(f, "{}", line.trim_end())?;
        }
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.count(|outcome| matches!(outcome, Outcome::Passed)),
            self.count(|outcome| matches!(outcome, Outcome::Failed(_))),
            self.count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        )?;
        match self.count(|outcome| matches!(outcome, Outcome::Partly(_))) {
            0 => writeln!(f),
            partly => writeln!(f, ", {partly} in part"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let mut report = Report::default();
        for outcome in outcomes {
            report.add("features", outcome.clone(), Duration::from_millis(1_250));
        }
        report
    }

    #[test]
    fn the_last_line_counts_the_lanes_alone() {
        let skipped = Outcome::Skipped("no tool".to_owned());
        let report = report(&[Outcome::Passed, skipped, Outcome::Passed]);
        assert_eq!(report.to_string().lines().last(), Some("2 passed, 0 failed, 1 skipped"));
        assert!(!report.has_failures() && report.has_skips());
    }

    #[test]
    fn a_lane_that_ran_in_part_has_neither_passed_nor_been_skipped() {
        let partly = Outcome::Partly("no library".to_owned());
        let report = report(&[Outcome::Passed, partly]);
        let said = report.to_string();
        assert!(said.contains("features  PARTLY       1.2  no library\n"), "{said}");
        assert!(said.ends_with("\n1 passed, 0 failed, 0 skipped, 1 in part\n"), "{said}");
        assert!(!report.has_failures() && report.has_skips() && !report.is_all_skipped());
    }

    #[test]
    fn a_report_of_skips_alone_says_so() {
        let skipped = || Outcome::Skipped("no tool".to_owned());
        assert!(report(&[skipped(), skipped()]).is_all_skipped());
        assert!(!report(&[skipped(), Outcome::Passed]).is_all_skipped());
        assert!(!report(&[skipped(), Outcome::Failed("bad".to_owned())]).is_all_skipped());
    }

    #[test]
    fn rows_name_lane_outcome_seconds_and_reason() {
        let report = report(&[Outcome::Failed("2 of 3 commands failed".to_owned())]);
        let expected = "\
lane      outcome  seconds
features  FAILED       1.2  2 of 3 commands failed
0 passed, 1 failed, 0 skipped
";
        assert_eq!(report.to_string(), expected);
        assert!(report.has_failures() && !report.has_skips());
    }
}

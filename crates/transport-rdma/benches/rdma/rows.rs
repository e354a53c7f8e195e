//! Rows that were measured, and the limits they keep.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Measurements so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    medians: BTreeMap<(&'static str, String, usize), f64>,
    broken: Vec<String>,
}

impl Report {
    /// Prints a row: how long operations of a form took, at this value of a parameter.
    pub(crate) fn row(
        &mut self,
        bench: &'static str,
        form: &str,
        (parameter, value): (&str, usize),
        mut times: Vec<Duration>,
    ) {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_nanos() as f64;
        println!(
            r#"{{"bench":"{bench}","form":"{form}","{parameter}":{value},"p50_ns":{},"p99_ns":{}}}"#,
            at(50),
            at(99)
        );
        self.medians.insert((bench, form.to_owned(), value), at(50));
    }

    /// The median of a row.
    pub(crate) fn median(&self, bench: &'static str, form: &str, value: usize) -> f64 {
        self.medians[&(bench, form.to_owned(), value)]
    }

    /// Holds a figure against its limit.
    pub(crate) fn limit(&mut self, what: &str, figure: f64, limit: f64) {
        let is_kept = figure <= limit;
        let word = if is_kept { "kept" } else { "BROKEN" };
        eprintln!("limit {word}: {what}: {figure:.4}, at most {limit:.4}");
        if !is_kept {
            self.broken.push(what.to_owned());
        }
    }

    /// Holds a figure that has not reached its goal yet against a limit above that, so that it does
    /// not get worse.
    pub(crate) fn goal(&mut self, what: &str, figure: f64, goal: f64, limit: f64) {
        let word = if figure <= goal { "reached" } else { "MISSED" };
        eprintln!("goal {word}: {what}: {figure:.4}, goal {goal:.4}");
        self.limit(what, figure, limit);
    }

    /// Success when all limits were kept.
    pub(crate) fn conclude(self) -> ExitCode {
        if self.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Pairs of which the best one counts, with messages up to this size. Some pairs of bare queue
/// pairs need 280 instructions more for a small message than others made the same way, as long as
/// they live: what memory the kernel has at hand for their packets is luck.
pub(crate) const CANDIDATES: usize = 5;
pub(crate) const CANDIDATE_BYTES_MAX: usize = 256;

/// The times of the pair with the lowest median; with larger messages those of the first.
pub(crate) fn best<P>(
    pairs: &mut [P],
    size: usize,
    mut times_of: impl FnMut(&mut P) -> Vec<Duration>,
) -> Vec<Duration> {
    let median = |times: &Vec<Duration>| {
        let mut times = times.clone();
        times.sort_unstable();
        times[(times.len() - 1) / 2]
    };
    let count = if size <= CANDIDATE_BYTES_MAX { pairs.len() } else { 1 };
    let all = pairs[..count].iter_mut().map(&mut times_of);
    all.min_by_key(median).expect("there is a pair")
}

/// True when the bench is to measure less, only to see that it works and keeps its limits.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("RDMA_VM_QUICK").is_some()
}

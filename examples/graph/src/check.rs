//! `graph check`: every expected answer against real shard processes.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::expected::{self, Difference, differences};
use crate::forms::Form;
use crate::processes::{Processes, Setup};

/// Findings of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Answers that are as expected.
    pub matches: usize,
    /// Answers asked for.
    pub total: usize,
    /// Differences between the answers and those expected.
    pub differences: Vec<Difference>,
    /// Queries that could not be answered, and why.
    pub failures: Vec<String>,
}

impl Checked {
    /// True when all is as expected, and something was.
    pub fn is_good(&self) -> bool {
        self.total > 0 && self.matches == self.total
    }
}

/// Runs every line of `expected` in `form` against the shards of `setup`.
///
/// # Errors
/// When the file cannot be read or has no answers, or the shards cannot be started.
pub async fn check(setup: &Setup, expected: &Path, form: Form) -> Result<Checked> {
    let answers = expected::read(expected)?;
    ensure!(!answers.is_empty(), "{} has no expected answers", expected.display());
    let processes = Processes::start(setup).await?;
    let mut checked = Checked { total: answers.len(), ..Checked::default() };
    for answer in answers {
        let (query, id) = (answer.query, answer.id);
        match processes.client().ask(form, query, id).await {
            Ok(answered) if answered.failures.is_empty() => {
                let differing = differences(&answer, &answered.answer);
                checked.matches += usize::from(differing.is_empty());
                checked.differences.extend(differing);
            }
            Ok(answered) => {
                let failed = answered.failures.iter().map(ToString::to_string);
                checked.failures.extend(failed.map(|text| format!("{query} id {id}: {text}")));
            }
            Err(error) => checked.failures.push(format!("{query} id {id}: {error}")),
        }
    }
    processes.stop().await?;
    Ok(checked)
}

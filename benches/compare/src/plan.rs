//! Cases to measure, and the rounds that go through all of them in turn.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::bench::{Bench, Form};
use crate::bencher::{Bencher, Effort, Sample};
use crate::drive::Work;
use crate::flavour::Flavour;
use crate::pin::{Pin, Pinned};
use crate::processes::{Servers, Setup};
use crate::system::System;

/// A system that does a bench, in a form, on a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The bench.
    pub bench: Bench,
    /// The system that does it.
    pub system: System,
    /// The form, by who leads; [`Form::Client`] where there is but one way.
    pub form: Form,
    /// Runtimes of its two sides.
    pub flavour: Flavour,
}

impl Case {
    /// All that make sense, in the order of the table.
    pub fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for bench in Bench::ALL {
            for flavour in Flavour::ALL {
                for system in System::ALL {
                    let forms = Form::ALL.into_iter().filter(|form| {
                        let has_form = bench.has_forms() || *form == Form::Client;
                        has_form && system.applies(bench, *form, flavour)
                    });
                    cases.extend(forms.map(|form| Self { bench, system, form, flavour }));
                }
            }
        }
        cases
    }

    /// Its names, by what a filter may be part of.
    fn names(&self) -> [String; 4] {
        let form = if self.bench.has_forms() { self.form.name() } else { "" };
        [
            self.bench.to_string(),
            self.system.name().to_owned(),
            form.to_owned(),
            self.flavour.name().to_owned(),
        ]
    }
}

/// The cases that all filters leave. A filter is part of the name of a bench, else of a system,
/// else of a form, else of a runtime; of filters of one kind, one has to fit.
///
/// # Errors
/// When a filter fits nothing.
pub fn select(only: &[String]) -> Result<Vec<Case>> {
    let mut cases = Case::all();
    let mut kinds: [Vec<&String>; 4] = Default::default();
    for filter in only {
        let fits = |kind: &usize| cases.iter().any(|case| case.names()[*kind].contains(filter));
        let Some(kind) = (0..kinds.len()).find(fits) else {
            bail!("--only {filter} is part of no name.\n{}", choices());
        };
        kinds[kind].push(filter);
    }
    cases.retain(|case| {
        let fits = |(name, filters): (&String, &Vec<&String>)| {
            filters.is_empty() || filters.iter().any(|filter| name.contains(*filter))
        };
        case.names().iter().zip(&kinds).all(fits)
    });
    if cases.is_empty() {
        bail!("no case fits all of --only {}", only.join(" --only "));
    }
    Ok(cases)
}

/// All names that a filter may be part of, a line for each kind.
fn choices() -> String {
    let cases = Case::all();
    let of_kind = |(kind, name): (usize, &str)| {
        let mut names: Vec<String> = Vec::new();
        for case in &cases {
            let name = case.names()[kind].clone();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        format!("{name}: {}", names.join(", "))
    };
    let kinds = ["benches", "systems", "forms", "runtimes"];
    kinds.into_iter().enumerate().map(of_kind).collect::<Vec<_>>().join("\n")
}

/// How to run the cases.
#[derive(Clone, Debug)]
pub struct Plan {
    /// This program, which also serves.
    pub program: PathBuf,
    /// Cases to measure, in this order in each round.
    pub cases: Vec<Case>,
    /// How much of each.
    pub effort: Effort,
    /// How often.
    pub rounds: usize,
    /// How much later every frame leaves, where the system can do that.
    pub delay: Duration,
    /// Processors of the cases of one thread.
    pub pin: Pin,
}

impl Plan {
    /// The samples of each case, one a round. Noise from elsewhere falls on all cases of a round
    /// alike. A case that cannot be measured has a sample that says why, and the others go on.
    pub fn run(&self, mut progress: impl FnMut(usize, usize, &Case)) -> Vec<Vec<Sample>> {
        let mut samples = vec![Vec::new(); self.cases.len()];
        for round in 0..self.rounds {
            for (index, case) in self.cases.iter().enumerate() {
                progress(round, index, case);
                let sample = self.measure(case).unwrap_or_else(|error| Sample::none(&error));
                samples[index].push(sample);
            }
        }
        samples
    }

    /// Servers of its own for each sample, so that none is left over from another, and none gets
    /// used to its place in memory.
    fn measure(&self, case: &Case) -> Result<Sample> {
        let (program, delay) = (self.program.clone(), self.delay);
        let setup = Setup { program, system: case.system, flavour: case.flavour, delay };
        let pinned = Pinned::servers(self.pin.of(case.flavour))?;
        let mut servers = Servers::start(&setup, case.bench.servers())?;
        pinned.client()?;
        let work = Work::new(case.bench, case.form);
        let bencher = Bencher { work, effort: self.effort, servers: &mut servers };
        let longest = self.effort.longest();
        case.flavour.runtime()?.block_on(async {
            let sample = tokio::time::timeout(longest, case.system.measure(bencher, delay)).await;
            sample.context("it does not come to an end")?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(only: &[&str]) -> Option<usize> {
        let only: Vec<String> = only.iter().map(|&filter| filter.to_owned()).collect();
        select(&only).ok().map(|cases| cases.len())
    }

    #[test]
    fn filters_of_one_kind_add_and_those_of_different_kinds_restrict() {
        assert_eq!(count(&["unary_latency", "convoke-tcp", "ct"]), Some(1));
        assert_eq!(count(&["unary_latency", "convoke-tcp"]), Some(2));
        assert_eq!(count(&["unary_latency", "tcp-tokio", "convoke-tcp", "ct"]), Some(2));
        assert_eq!(count(&["hops_7", "convoke-tcp", "tree", "nested", "mt"]), Some(2));
    }

    #[test]
    fn a_filter_that_fits_nothing_is_refused() {
        assert_eq!(count(&["carrier-pigeon"]), None);
        assert_eq!(count(&["quorum", "tcp-tokio"]), None);
    }
}

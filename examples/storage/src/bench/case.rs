//! Cases to measure: the product of replicas, phases, forms and loads.

use std::fmt;
use std::str::FromStr;

use crate::form::{Form, Phases};

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Replicas.
    pub members: u64,
    /// Echo phases.
    pub phases: Phases,
    /// The form, by who leads them.
    pub form: Form,
    /// How the replicas are kept busy.
    pub load: Load,
}

/// How replicas are kept busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// By so many callers that each wait for their answer.
    Closed {
        /// How many.
        in_flight: usize,
    },
    /// By so many writes a second, whether or not the ones before are answered.
    Open {
        /// As a part of what the replicas bear.
        share: f64,
        /// As a number, once that is known.
        per_second: f64,
    },
}

impl Case {
    /// Replicas of the paper's figures.
    pub const MEMBERS: [u64; 2] = [4, 7];

    /// All cases of so many replicas.
    pub fn all(members: u64) -> impl Iterator<Item = Self> {
        let closed = [1, 32].map(|in_flight| Load::Closed { in_flight });
        let open = SHARES.map(|share| Load::Open { share, per_second: 0.0 });
        let loads = closed.into_iter().chain(open);
        let of_load = move |load| {
            let phases = Phases::ALL.into_iter();
            phases.flat_map(move |phases| {
                Form::ALL.map(|form| Self { members, phases, form, load }).into_iter()
            })
        };
        loads.flat_map(of_load)
    }
}

/// The sweep of the open loop. Beyond the last one a queue only grows.
const SHARES: [f64; 6] = [0.2, 0.4, 0.6, 0.8, 0.9, 1.0];

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, phases, form, load } = self;
        write!(f, "n={members} phases={phases} form={form} ")?;
        match load {
            Load::Closed { in_flight } => write!(f, "in_flight={in_flight}"),
            Load::Open { share, .. } => write!(f, "share={share}"),
        }
    }
}

/// Cases that are wanted: those of which each property is among the values asked for, if any were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only(Vec<Wanted>);

/// `key=value` as a case shows itself, or `loop=closed`, `loop=open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    key: String,
    value: String,
}

impl Only {
    /// Cases that have all of these properties; of two values of one property either.
    pub fn new(wanted: Vec<Wanted>) -> Self {
        Self(wanted)
    }

    /// Count of the cases that are wanted.
    pub fn count(&self) -> usize {
        Case::MEMBERS.into_iter().flat_map(Case::all).filter(|case| self.includes(case)).count()
    }

    /// True when a case is wanted.
    pub fn includes(&self, case: &Case) -> bool {
        let properties = properties(case);
        self.0.iter().all(|wanted| {
            let mut same_key = self.0.iter().filter(|other| other.key == wanted.key);
            same_key.any(|one| properties.contains(&(one.key.as_str(), one.value.clone())))
        })
    }
}

/// All that can be asked for: each property with its values.
pub fn choices() -> String {
    let mut choices: Vec<(&str, Vec<String>)> = Vec::new();
    for case in Case::MEMBERS.into_iter().flat_map(Case::all) {
        for (key, value) in properties(&case) {
            match choices.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => choices.push((key, vec![value])),
            }
        }
    }
    let words = choices.iter().map(|(key, values)| format!("{key}={}", values.join("|")));
    words.collect::<Vec<_>>().join(", ")
}

fn properties(case: &Case) -> [(&'static str, String); 5] {
    let load = match case.load {
        Load::Closed { in_flight } => ("in_flight", in_flight.to_string()),
        Load::Open { share, .. } => ("share", share.to_string()),
    };
    let is_open = matches!(case.load, Load::Open { .. });
    [
        ("n", case.members.to_string()),
        ("phases", case.phases.to_string()),
        ("form", case.form.to_string()),
        ("loop", if is_open { "open" } else { "closed" }.to_owned()),
        load,
    ]
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || format!("{text:?} is not a property of a case: there are {}", choices());
        let (key, value) = text.split_once('=').ok_or_else(hint)?;
        let wanted = Self { key: key.to_owned(), value: value.to_owned() };
        let only = Only(vec![wanted.clone()]);
        let mut all = Case::MEMBERS.into_iter().flat_map(Case::all);
        // Nothing has it, so it is misspelt.
        all.any(|case| only.includes(&case)).then_some(wanted).ok_or_else(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(wanted: &[&str]) -> usize {
        Only(wanted.iter().map(|text| text.parse().unwrap()).collect()).count()
    }

    #[test]
    fn what_is_unknown_is_told_with_the_choices() {
        let refused = "form=tree".parse::<Wanted>().unwrap_err();
        for choice in ["n=4|7,", "phases=0|1|2,", "form=echo|nested|client,", "in_flight=1|32,"] {
            assert!(refused.contains(choice), "{choice}: {refused}");
        }
    }

    #[test]
    fn properties_narrow_and_values_of_one_widen() {
        assert_eq!(count(&[]), 2 * 9 * 8);
        assert_eq!(count(&["n=4"]), 9 * 8);
        assert_eq!(count(&["n=4", "loop=closed"]), 18);
        assert_eq!(count(&["n=4", "form=echo", "form=nested", "in_flight=32"]), 6);
        assert_eq!(count(&["loop=open", "share=0.2"]), 18);
        assert_eq!(count(&["in_flight=1", "share=0.2"]), 0);
    }

    #[test]
    fn a_property_that_no_case_has_is_refused() {
        for text in ["n", "n=5", "form=tree", "size=4", "phases=3", ""] {
            assert!(text.parse::<Wanted>().is_err(), "{text:?}");
        }
    }
}

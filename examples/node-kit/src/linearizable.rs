//! Linearizability of a history of a key-value store: is there one order of all calls that agrees
//! with time and with what each was told?
//!
//! Keys are judged one by one, which is the same (Herlihy and Wing, 1990: the property is local).
//! For one key it is the search of Wing and Gong (1993) with the memory of Lowe (*Testing for
//! linearizability*, 2017): calls that may come next are tried in turn, and a set of ordered calls
//! with the value they lead to is entered once. Three rules keep it short:
//!
//! - A read that may come next and agrees with the value comes next.
//! - No write comes next while reads of a value remain that nobody else will write, nor one whose
//!   value's reads have to wait for another write.
//! - A write of a value that only this call writes comes next, together with its reads, if nothing
//!   has to precede any of them; so does one that nobody reads. Both are Gibbons and Korach's
//!   (*Testing shared memories*, 1997): with values of their own, histories take linear time.
//!
//! The last rule needs all calls to say what they found: the answer of a compare-and-swap that it
//! did not apply, or of a delete that it found something, turns it off for the key.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Entry, History, HistoryError};

mod compile;
mod search;
#[cfg(test)]
mod tests;

/// The judgement of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Calls that were judged.
    pub calls: usize,
    /// Keys they were about.
    pub keys: usize,
    /// Keys whose calls have no order, by name.
    pub violations: Vec<Violation>,
    /// Keys whose search was given up after [`STEPS_MAX`] steps: neither proved nor refuted.
    pub undecided: Vec<String>,
}

impl Report {
    /// Every key was found to be linearizable.
    pub fn is_linearizable(&self) -> bool {
        self.violations.is_empty() && self.undecided.is_empty()
    }
}

/// Calls of a key that have no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// The longest order that was found for a beginning of its history.
    pub ordered: Vec<Entry>,
    /// The value it leads to.
    pub value: Option<String>,
    /// Calls that are next by time, together with those they contradict: none of them may come.
    pub stuck: Vec<Entry>,
}

/// Steps after which the search of one key is given up. A call takes one or two where it does not
/// have to be taken back.
pub const STEPS_MAX: u64 = 20_000_000;

/// Judges a history.
///
/// # Errors
/// When an entry contradicts itself.
pub fn check(history: &History) -> Result<Report, HistoryError> {
    let mut keys: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for (index, entry) in history.entries.iter().enumerate() {
        compile::validate(entry).map_err(|what| HistoryError::Contradiction { index, what })?;
        keys.entry(&entry.key).or_default().push(entry);
    }
    let (calls, keys_count) = (history.entries.len(), keys.len());
    let mut report = Report { calls, keys: keys_count, violations: vec![], undecided: vec![] };
    for (key, entries) in keys {
        report.judge(key, &entries);
    }
    Ok(report)
}

impl Report {
    fn judge(&mut self, key: &str, entries: &[&Entry]) {
        let compiled = compile::compile(entries);
        match search::search(&compiled, STEPS_MAX) {
            search::Found::Order => {}
            search::Found::GivenUp => self.undecided.push(key.to_owned()),
            search::Found::Stuck { ordered, value, stuck } => {
                let entry = |call: usize| entries[compiled.calls[call].entry].clone();
                self.violations.push(Violation {
                    key: key.to_owned(),
                    ordered: ordered.into_iter().map(entry).collect(),
                    value: compiled.values[value].clone(),
                    stuck: stuck.into_iter().map(entry).collect(),
                });
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_linearizable() {
            return write!(f, "{} calls of {} keys are linearizable", self.calls, self.keys);
        }
        write!(f, "{} calls of {} keys are not proved linearizable", self.calls, self.keys)?;
        for key in &self.undecided {
            write!(f, "\nkey {key}: too many orders to try")?;
        }
        self.violations.iter().try_for_each(|violation| write!(f, "\n{violation}"))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, count) = (&self.key, self.ordered.len());
        let value = self.value.as_ref().map_or("nothing".to_owned(), |value| format!("{value:?}"));
        write!(
            f,
            "key {key}: {count} calls in order lead to {value}; then none of these may come:"
        )?;
        for Entry { client, call, invoked, returned, outcome, .. } in &self.stuck {
            let returned = returned.map_or("..".to_owned(), |stamp| stamp.to_string());
            let outcome = outcome.as_ref().map_or("unknown".to_owned(), |o| format!("{o:?}"));
            write!(f, "\n  client {client}, {invoked} to {returned}: {call:?} -> {outcome}")?;
        }
        Ok(())
    }
}

//! Calls of one key as what they require of its value and what they make of it.

use std::collections::BTreeMap;

use crate::history::{Call, Entry, Outcome};

/// The number of a value of this key. [`ABSENT`] is that there is none.
pub(super) type Value = usize;

pub(super) const ABSENT: Value = 0;

/// All calls of one key that bear on its order.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) calls: Vec<Compact>,
    /// Values by their numbers.
    pub(super) values: Vec<Option<String>>,
}

/// A call, as the search sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compact {
    /// Index of its entry.
    pub(super) entry: usize,
    pub(super) requires: Requires,
    /// The value it leaves, unless it only reads.
    pub(super) writes: Option<Value>,
    pub(super) invoked: u64,
    /// `None`: it may come at any time later, or never.
    pub(super) returned: Option<u64>,
}

/// A condition on the value before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requires {
    Nothing,
    Is(Value),
    IsNot(Value),
}

impl Requires {
    pub(super) fn agrees(self, value: Value) -> bool {
        match self {
            Self::Nothing => true,
            Self::Is(required) => required == value,
            Self::IsNot(other) => other != value,
        }
    }
}

/// Finds what is wrong with an entry.
pub(super) fn validate(entry: &Entry) -> Result<(), &'static str> {
    match (entry.returned, &entry.outcome) {
        (Some(returned), Some(_)) if returned <= entry.invoked => {
            return Err("it returned before it was made");
        }
        (Some(_), Some(_)) | (None, None) => {}
        _ => return Err("it has a time of return without an outcome, or the other way round"),
    }
    match (&entry.call, &entry.outcome) {
        (Call::Get, Some(Outcome::Done | Outcome::Applied(_))) => {
            Err("a get is answered by what it found")
        }
        (Call::Put { .. }, Some(Outcome::Applied(_))) => Err("a put is always applied"),
        (Call::Cas { .. }, Some(Outcome::Done)) => {
            Err("a compare-and-swap is answered by whether it was applied")
        }
        (Call::Cas { expected, .. }, Some(Outcome::Found(found))) if expected == found => {
            Err("a compare-and-swap that found what it expected was applied")
        }
        _ => Ok(()),
    }
}

/// Compiles valid entries of one key.
pub(super) fn compile(entries: &[&Entry]) -> Compiled {
    let mut numbers = Numbers::new();
    let mut calls: Vec<Compact> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        if let Some((requires, writes)) = numbers.effect(&entry.call, entry.outcome.as_ref()) {
            let (invoked, returned) = (entry.invoked, entry.returned);
            calls.push(Compact { entry: index, requires, writes, invoked, returned });
        }
    }
    drop_needless(&mut calls, numbers.values.len());
    Compiled { calls, values: numbers.values }
}

/// Leaves out calls of unknown outcome that nobody has seen the effect of. That is sound if no call
/// says what it has *not* found: all others agree with the value before it as well.
fn drop_needless(calls: &mut Vec<Compact>, values: usize) {
    if calls.iter().any(|call| matches!(call.requires, Requires::IsNot(_))) {
        return;
    }
    let mut required = vec![0_usize; values];
    for call in calls.iter() {
        if let Requires::Is(value) = call.requires {
            required[value] += 1;
        }
    }
    let is_needless = |call: &Compact, required: &[usize]| {
        call.returned.is_none() && call.writes.is_some_and(|value| required[value] == 0)
    };
    // One that goes may have been all that required what another wrote.
    let mut before = usize::MAX;
    while calls.len() < before {
        before = calls.len();
        calls.retain(|call| {
            let needless = is_needless(call, &required);
            if needless && let Requires::Is(value) = call.requires {
                required[value] -= 1;
            }
            !needless
        });
    }
}

/// Values by the order of their first mention.
struct Numbers<'a> {
    values: Vec<Option<String>>,
    by_value: BTreeMap<&'a str, Value>,
}

impl<'a> Numbers<'a> {
    fn new() -> Self {
        Self { values: vec![None], by_value: BTreeMap::new() }
    }

    fn written(&mut self, value: &'a str) -> Value {
        *self.by_value.entry(value).or_insert_with(|| {
            self.values.push(Some(value.to_owned()));
            self.values.len() - 1
        })
    }

    fn of(&mut self, value: &'a Option<String>) -> Value {
        value.as_deref().map_or(ABSENT, |value| self.written(value))
    }

    /// Requirement and effect of a call. `None` for one that is of no consequence.
    fn effect(
        &mut self,
        call: &'a Call,
        outcome: Option<&'a Outcome>,
    ) -> Option<(Requires, Option<Value>)> {
        use Requires::{Is, IsNot, Nothing};
        let writes = match call {
            Call::Get => None,
            Call::Put { value } | Call::Cas { value, .. } => Some(self.written(value)),
            Call::Delete => Some(ABSENT),
        };
        Some(match (call, outcome) {
            (Call::Get, None) => return None,
            (Call::Cas { expected, .. }, None | Some(Outcome::Applied(true))) => {
                (Is(self.of(expected)), writes)
            }
            (Call::Cas { expected, .. }, Some(Outcome::Applied(false))) => {
                (IsNot(self.of(expected)), None)
            }
            (Call::Cas { .. }, Some(Outcome::Found(found))) => (Is(self.of(found)), None),
            (Call::Delete, Some(Outcome::Applied(true))) => (IsNot(ABSENT), writes),
            (Call::Delete, Some(Outcome::Applied(false) | Outcome::Found(None))) => {
                (Is(ABSENT), None)
            }
            (_, Some(Outcome::Found(found))) => (Is(self.of(found)), writes),
            (_, None | Some(Outcome::Done | Outcome::Applied(_))) => (Nothing, writes),
        })
    }
}

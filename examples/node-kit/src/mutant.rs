//! Deliberate defects that a simulation must find: a check of the checks.
//!
//! Each is switched on at exactly one place of the code. Without the feature `mutants` the question
//! is a constant, so nothing of this reaches a program. A mutant is set for a thread, so a
//! simulation that looks for it runs on one.

use std::fmt;
use std::str::FromStr;

/// One defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A ledger says that records are durable when they are written and not yet synced.
    ReplyBeforeFsync,
    /// A ledger does not sync the directory in which a segment has been begun.
    DirectoryNotSynced,
}

impl Mutant {
    /// All of them.
    pub const ALL: &[Self] = &[Self::ReplyBeforeFsync, Self::DirectoryNotSynced];

    /// The name by which a command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplyBeforeFsync => "reply-before-fsync",
            Self::DirectoryNotSynced => "directory-not-synced",
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No mutant has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mutant {0:?}")]
pub struct UnknownMutant(String);

impl FromStr for Mutant {
    type Err = UnknownMutant;

    fn from_str(name: &str) -> Result<Self, UnknownMutant> {
        let found = Self::ALL.iter().find(|mutant| mutant.name() == name);
        found.copied().ok_or_else(|| UnknownMutant(name.to_owned()))
    }
}

/// Writes `set` and `is` beside the enum of a crate's mutants, which has a feature `mutants`: a
/// switch of each thread, and a constant without the feature.
#[macro_export]
macro_rules! mutant_switch {
    ($mutant:ty) => {
        #[cfg(feature = "mutants")]
        thread_local! {
            static CURRENT: std::cell::Cell<Option<$mutant>> =
                const { std::cell::Cell::new(None) };
        }

        /// Switches this thread to one mutant, or back to what is right.
        #[cfg(feature = "mutants")]
        pub fn set(mutant: Option<$mutant>) {
            CURRENT.set(mutant);
        }

        /// True when this thread runs that mutant.
        #[cfg(feature = "mutants")]
        pub fn is(mutant: $mutant) -> bool {
            CURRENT.get() == Some(mutant)
        }

        /// True when this thread runs that mutant: never, in this build.
        #[cfg(not(feature = "mutants"))]
        pub const fn is(_: $mutant) -> bool {
            false
        }
    };
}

mutant_switch!(Mutant);

/// A rule of a core as a test has it: a function that says what is wrong.
pub type Rule = fn() -> Result<(), String>;

/// Writes a test for each of these functions of a module, which are [rules](Rule).
#[macro_export]
macro_rules! rule_tests {
    ($rules:ident: $($rule:ident)*) => {$(
        #[test]
        fn $rule() {
            $rules::$rule().unwrap();
        }
    )*};
}

/// Checks that each rule finds the mutant which breaks it.
///
/// # Panics
/// When one does not.
pub fn each_is_found<M: Copy + fmt::Debug>(set: fn(Option<M>), rules: &[(M, Rule)]) {
    for (mutant, rule) in rules {
        set(Some(*mutant));
        let found = rule();
        set(None);
        assert!(found.is_err(), "{mutant:?} is not found");
    }
}

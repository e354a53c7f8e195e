//! Deliberate defects: what credits and loans are good for, shown by leaving them out.

/// Deliberate defect of a transport, with feature `mutants`.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// It neither waits for credit nor gives or judges any. Towards a peer that falls behind, the
    /// device finds a receiver that is not ready; where both ends do it and limit themselves, it
    /// shows what credits cost.
    IgnoresCredit,
    /// It copies every frame out of its slot, however large.
    NeverLends,
}

/// Those of a connection. Without the feature there are none, and the compiler knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defects {
    #[cfg(feature = "mutants")]
    ignores_credit: bool,
    #[cfg(feature = "mutants")]
    never_lends: bool,
}

#[cfg(feature = "mutants")]
impl Defects {
    pub(crate) fn insert(&mut self, defect: Defect) {
        match defect {
            Defect::IgnoresCredit => self.ignores_credit = true,
            Defect::NeverLends => self.never_lends = true,
        }
    }

    pub(crate) fn ignores_credit(self) -> bool {
        self.ignores_credit
    }

    pub(crate) fn never_lends(self) -> bool {
        self.never_lends
    }
}

#[cfg(not(feature = "mutants"))]
impl Defects {
    pub(crate) fn ignores_credit(self) -> bool {
        false
    }

    pub(crate) fn never_lends(self) -> bool {
        false
    }
}

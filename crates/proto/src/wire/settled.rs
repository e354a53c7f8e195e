//! SETTLED: which calls of some origins are settled.

use crate::id::{Incarnation, TaskKey};
use crate::mutant::{self, Mutant};

use super::ask::ASKED_MAX;
use super::codec::{Out, Reader, WireError};

/// Most exceptions of one SETTLED, over all its statements.
pub const EXCEPTIONS_MAX: usize = 1024;

/// Most tasks that one SETTLED names, over all its statements.
pub const NAMED_MAX: usize = 512;

/// Says which calls of some origins are settled, as an ASK wanted to know. It is about no one call:
/// its header is [`Header::of_question`](super::Header::of_question). Typically 33 bytes, and 1
/// to 3 for each exception. Tasks are named only in what has grown old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The statements: one to [`ASKED_MAX`], with [`EXCEPTIONS_MAX`] exceptions and
    /// [`NAMED_MAX`] tasks in all.
    pub statements: Vec<Statement>,
}

/// Every call of `origin` with a number from `from` to below `to` is settled, but for the
/// exceptions. From another node than their initiator: is over, as far as that node had sent
/// requests of it to who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Life of the initiator whose calls these are.
    pub origin: Incarnation,
    /// The first number it is about.
    pub from: u64,
    /// The first number it is not about any more; `from` when it is about none.
    pub to: u64,
    /// Numbers among these that are not settled, ascending.
    pub exceptions: Vec<u64>,
    /// Tasks of exceptions, ascending: where any of a call is named, what its sender has sent to
    /// its receiver is over but for the branches of these. Of other exceptions nothing is said.
    pub open: Vec<(u64, TaskKey)>,
}

/// Fewest bytes of a statement on the wire.
const STATEMENT_BYTES_MIN: usize = 12;

/// Fewest bytes of a number and a task.
const NAMED_BYTES_MIN: usize = 3;

impl Settled {
    pub(super) fn write(&self, out: &mut impl Out) {
        out.count(self.statements.len());
        self.statements.iter().for_each(|statement| statement.write(out));
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (mut exceptions_left, mut named_left) = (EXCEPTIONS_MAX, NAMED_MAX);
        let statements = input.some(ASKED_MAX, STATEMENT_BYTES_MIN, |input| {
            let statement = Statement::read(exceptions_left, named_left, input)?;
            exceptions_left -= statement.exceptions.len();
            named_left -= statement.open.len();
            Ok(statement)
        })?;
        Ok(Self { statements })
    }
}

impl Statement {
    /// Says that every call in `[from, to)` is settled but those of `unsettled`, in any order and
    /// maybe repeated. Where there are more than `most`, `to` is lowered.
    pub fn of(
        origin: Incarnation,
        (from, mut to): (u64, u64),
        unsettled: impl IntoIterator<Item = u64>,
        most: usize,
    ) -> Self {
        let mut exceptions: Vec<u64> =
            unsettled.into_iter().filter(|seq| (from..to).contains(seq)).collect();
        exceptions.sort_unstable();
        exceptions.dedup();
        if let Some(first_left_out) = exceptions.get(most) {
            to = if mutant::is(Mutant::ExceptionsCut) { to } else { *first_left_out };
            exceptions.truncate(most);
        }
        Self { origin, from, to, exceptions, open: Vec::new() }
    }

    /// Leaves out the calls from this one on.
    pub(crate) fn cut(&mut self, to: u64) {
        self.to = to;
        self.exceptions.retain(|seq| *seq < to);
        self.open.retain(|(seq, _)| *seq < to);
    }

    fn write(&self, out: &mut impl Out) {
        debug_assert!(self.is_in_order(), "numbers ascend and are within what is said");
        out.u64(self.origin.0);
        out.varint(self.from);
        out.varint(self.to.wrapping_sub(self.from));
        out.count(self.exceptions.len());
        let mut before = self.from;
        for exception in &self.exceptions {
            out.varint(exception.wrapping_sub(before));
            before = *exception;
        }
        out.count(self.open.len());
        let mut before = self.from;
        for (seq, task) in &self.open {
            out.varint(seq.wrapping_sub(before));
            out.key(task);
            before = *seq;
        }
    }

    fn read(
        exceptions_max: usize,
        named_max: usize,
        input: &mut Reader<'_>,
    ) -> Result<Self, WireError> {
        let (origin, from) = (Incarnation(input.u64()?), input.varint()?);
        let to = from.checked_add(input.varint()?).ok_or(WireError::Invalid)?;
        let mut before = from;
        let exceptions = input.list_up_to(exceptions_max, 1, |input| {
            before = before.checked_add(input.varint()?).ok_or(WireError::Invalid)?;
            Ok(before)
        })?;
        let mut before = from;
        let open = input.list_up_to(named_max, NAMED_BYTES_MIN, |input| {
            before = before.checked_add(input.varint()?).ok_or(WireError::Invalid)?;
            Ok((before, input.key()?))
        })?;
        let statement = Self { origin, from, to, exceptions, open };
        if statement.is_in_order() { Ok(statement) } else { Err(WireError::Invalid) }
    }

    fn is_in_order(&self) -> bool {
        let is_within = |exception: &u64| (self.from..self.to).contains(exception);
        self.from <= self.to
            && self.exceptions.is_sorted_by(|one, next| one < next)
            && self.exceptions.iter().all(is_within)
            && self.open.is_sorted_by(|one, next| one < next)
            && self.open.iter().all(|(seq, _)| self.exceptions.binary_search(seq).is_ok())
    }
}

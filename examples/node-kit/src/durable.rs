//! Values that may leave a node only once what they rest on is durable.
//!
//! A promise that is said before it is on the disk is forgotten by a crash, and then given a second
//! time to somebody else. So a protocol core hands out what rests on its ledger as [`Held`]: nobody
//! can read it. The program says [after](Held::after) which record it may leave, and gets it for a
//! [`Durable`], which only a ledger makes.
//!
//! ```
//! use node_kit::durable::{Durable, Held, Position};
//!
//! let promise = Held::new("promised 7").after(Position::new(3));
//! let promise = promise.release(&Durable::in_memory(Position::new(2))).unwrap_err();
//! assert_eq!(promise.release(&Durable::in_memory(Position::new(3))), Ok("promised 7"));
//! ```

use std::collections::VecDeque;
use std::fmt;

/// A place in a ledger: how many records it has had, those since trimmed included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Behind so many records.
    pub fn new(records: u64) -> Self {
        Self(records)
    }

    /// The count of records before it.
    pub fn records(self) -> u64 {
        self.0
    }
}

/// Proof that a ledger has made durable all before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable(Position);

impl Durable {
    /// Proof of a ledger in memory, which loses everything with its process: what was appended is
    /// as durable as it ever gets. A node that has such a ledger must not return as the same voter.
    pub fn in_memory(up_to: Position) -> Self {
        Self(up_to)
    }

    /// Proof of a ledger on a disk, when it has synced.
    pub(crate) fn up_to_there(up_to: Position) -> Self {
        Self(up_to)
    }

    /// All before this place is durable.
    pub fn up_to(self) -> Position {
        self.0
    }
}

/// A value that may leave once the records appended before it are durable.
#[must_use = "what is held has to be released, or dropped on purpose"]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Held<T>(T);

impl<T> Held<T> {
    /// Holds a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Puts it into something else, still held.
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Held<U> {
        Held(into(self.0))
    }

    /// Says what it waits for.
    pub fn after(self, position: Position) -> Waiting<T> {
        Waiting { position, value: self.0 }
    }
}

/// A value that waits for a ledger.
#[must_use = "what waits has to be released, or dropped on purpose"]
#[derive(PartialEq, Eq)]
pub struct Waiting<T> {
    position: Position,
    value: T,
}

impl<T> Waiting<T> {
    /// All before this place has to be durable.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The value, for a proof that what it waits for is durable.
    ///
    /// # Errors
    /// Itself, when the proof does not reach so far.
    pub fn release(self, durable: &Durable) -> Result<T, Self> {
        if self.position <= durable.up_to() { Ok(self.value) } else { Err(self) }
    }
}

/// Values that wait for a ledger, in the order of their places.
#[derive(Debug)]
pub struct WaitQueue<T>(VecDeque<Waiting<T>>);

impl<T> WaitQueue<T> {
    /// Adds a value that waits for no earlier place than those before it.
    pub fn push(&mut self, waiting: Waiting<T>) {
        self.0.push_back(waiting);
    }

    /// The next value that waits no longer, for a proof.
    pub fn pop(&mut self, durable: &Durable) -> Option<T> {
        match self.0.pop_front()?.release(durable) {
            Ok(value) => Some(value),
            Err(waiting) => {
                self.0.push_front(waiting);
                None
            }
        }
    }

    /// The place that all of them wait for, if any does.
    pub fn last(&self) -> Option<Position> {
        self.0.back().map(Waiting::position)
    }

    /// Number of values that wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held(..)")
    }
}

impl<T> fmt::Debug for Waiting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("position", &self.position).finish_non_exhaustive()
    }
}

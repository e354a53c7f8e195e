//! Histories: what clients of a key-value store asked for, what they were told, and when.
//!
//! A [`Recorder`] stamps each call when it is made and when its answer has come. Stamps are counted
//! by one process, so that "before" in the history is before in time: clients that are recorded
//! together run in that process. A call whose outcome nobody knows stays open: it may take effect
//! at any later time, or never.
//!
//! ```
//! use node_kit::history::{Call, Outcome, Recorder};
//!
//! let recorder = Recorder::new();
//! let write = recorder.call(1, "x", Call::Put { value: "a".into() });
//! let read = recorder.call(2, "x", Call::Get);
//! read.returned(Outcome::Found(Some("a".into())));
//! drop(write); // timed out
//! let history = recorder.history();
//! assert!(node_kit::linearizable::check(&history).unwrap().is_linearizable());
//! ```
//! A history is written as one JSON object a line:
//!
//! ```json
//! {"client":1,"key":"x","call":"put","value":"a","invoked":0,"returned":null,"outcome":null}
//! {"client":2,"key":"x","call":"get","invoked":1,"returned":2,"outcome":{"found":"a"}}
//! ```

use std::io::{BufRead, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A call of a key-value store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Reads the value.
    Get,
    /// Writes a value, whatever there was.
    Put {
        /// The value.
        value: String,
    },
    /// Removes the value, if there is one.
    Delete,
    /// Writes a value if what is there is as expected.
    Cas {
        /// The value that is to be there; `None` for nothing.
        expected: Option<String>,
        /// The value.
        value: String,
    },
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A put or delete is done; nothing is said of what there was.
    Done,
    /// A compare-and-swap has written, or has not; a delete has found a value, or has not.
    Applied(bool),
    /// The value that was there: of a get; before a put or delete that is done; instead of what a
    /// compare-and-swap expected, which then has not written.
    Found(Option<String>),
}

/// A call and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The client that called.
    pub client: u64,
    /// The key it was about.
    pub key: String,
    /// Its request.
    #[serde(flatten)]
    pub call: Call,
    /// Stamp of the call.
    pub invoked: u64,
    /// Stamp of the answer. `None` while the outcome is unknown.
    pub returned: Option<u64>,
    /// The answer. `None` while it is unknown.
    pub outcome: Option<Outcome>,
}

/// The reason a history cannot be judged. It was not recorded so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A line is no entry.
    #[error("line {line} of the history is no call")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The parser's words.
        source: serde_json::Error,
    },
    /// The history could not be read or written.
    #[error("cannot read or write the history")]
    Io(#[from] std::io::Error),
    /// An entry contradicts itself.
    #[error("entry {index} of the history contradicts itself: {what}")]
    Contradiction {
        /// Counted from 0.
        index: usize,
        /// Description of what is wrong with it.
        what: &'static str,
    },
}

/// Calls in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The calls.
    pub entries: Vec<Entry>,
}

impl History {
    /// Writes one line for each call.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn write_json(&self, mut out: impl Write) -> Result<(), HistoryError> {
        for entry in &self.entries {
            serde_json::to_writer(&mut out, entry).map_err(std::io::Error::from)?;
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Reads what was written so.
    ///
    /// # Errors
    /// With the line, when one is no call; when the reader fails.
    pub fn read_json(input: impl BufRead) -> Result<Self, HistoryError> {
        let mut entries = Vec::new();
        for (index, line) in input.lines().enumerate() {
            let line_number = index + 1;
            let entry = serde_json::from_str(&line?);
            entries.push(entry.map_err(|source| HistoryError::Line { line: line_number, source })?);
        }
        Ok(Self { entries })
    }
}

/// Records calls of clients that run in this process. A clone records the same history.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    stamp: u64,
    /// `None` for a call that is known not to have run.
    entries: Vec<Option<Entry>>,
}

impl Recorded {
    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp - 1
    }
}

impl Recorder {
    /// Nothing recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a call is made. To be called before anything of it leaves the client.
    pub fn call(&self, client: u64, key: impl Into<String>, call: Call) -> Pending {
        let key = key.into();
        let mut recorded = self.0.lock();
        let invoked = recorded.stamp();
        let index = recorded.entries.len();
        let entry = Entry { client, key, call, invoked, returned: None, outcome: None };
        recorded.entries.push(Some(entry));
        Pending { recorded: self.0.clone(), index }
    }

    /// All that was recorded so far. Calls under way have unknown outcomes in it.
    pub fn history(&self) -> History {
        History { entries: self.0.lock().entries.iter().flatten().cloned().collect() }
    }
}

/// A call under way. Dropped, its outcome stays unknown.
#[derive(Debug)]
#[must_use = "a call that is dropped has an unknown outcome"]
pub struct Pending {
    recorded: Arc<Mutex<Recorded>>,
    index: usize,
}

impl Pending {
    /// Records its answer. To be called once that is here.
    pub fn returned(self, outcome: Outcome) {
        let mut recorded = self.recorded.lock();
        let stamp = recorded.stamp();
        if let Some(entry) = &mut recorded.entries[self.index] {
            entry.returned = Some(stamp);
            entry.outcome = Some(outcome);
        }
    }

    /// Records that it did not run, and never will: the call is left out of the history. Only for
    /// errors that promise so.
    pub fn did_not_run(self) {
        self.recorded.lock().entries[self.index] = None;
    }

    /// Leaves its outcome unknown, as dropping it does.
    pub fn unknown(self) {
        drop(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_history() -> History {
        let recorder = Recorder::new();
        let put = recorder.call(1, "x", Call::Put { value: "a".into() });
        let swap = Call::Cas { expected: None, value: "b".into() };
        recorder.call(2, "x", swap).returned(Outcome::Found(Some("a".into())));
        put.returned(Outcome::Done);
        recorder.call(1, "y", Call::Delete).returned(Outcome::Applied(false));
        recorder.call(2, "y", Call::Get).did_not_run();
        recorder.call(2, "y", Call::Get).returned(Outcome::Found(None));
        recorder.call(3, "x", Call::Delete).unknown();
        recorder.history()
    }

    const LINES: &str = r#"{"client":1,"key":"x","call":"put","value":"a","invoked":0,"returned":3,"outcome":"done"}
{"client":2,"key":"x","call":"cas","expected":null,"value":"b","invoked":1,"returned":2,"outcome":{"found":"a"}}
{"client":1,"key":"y","call":"delete","invoked":4,"returned":5,"outcome":{"applied":false}}
{"client":2,"key":"y","call":"get","invoked":7,"returned":8,"outcome":{"found":null}}
{"client":3,"key":"x","call":"delete","invoked":9,"returned":null,"outcome":null}
"#;

    #[test]
    fn a_history_survives_its_lines() {
        let mut lines = Vec::new();
        some_history().write_json(&mut lines).unwrap();
        assert_eq!(String::from_utf8(lines).unwrap(), LINES);
        assert_eq!(History::read_json(LINES.as_bytes()).unwrap(), some_history());
    }

    #[test]
    fn a_line_that_is_no_call_is_named() {
        let lines = LINES.replace("\"cas\"", "\"swap\"");
        let error = History::read_json(lines.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("line 2 "), "{error}");
    }
}

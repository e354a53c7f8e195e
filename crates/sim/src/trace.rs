//! Trace of a run: a hash of everything for comparing runs, and lines for people if asked.

use std::fmt;
use std::fmt::Write as _;

use convoke_proto::id::NodeId;
use convoke_proto::link::Lane;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Frame, Message};

use crate::random::{DIGEST_START, digest};

/// The record of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<String>,
}

/// Bytes of a frame that are hashed: its head, and the beginning of its payload.
const FRAME_BYTES_HASHED: usize = 96;

impl Trace {
    /// Keeps only the hash.
    pub fn hash_only() -> Self {
        Self { hash: DIGEST_START, lines: None }
    }

    /// Keeps a line for each event, too.
    pub fn with_lines() -> Self {
        Self { hash: DIGEST_START, lines: Some(String::new()) }
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines so far.
    pub fn lines(&self) -> &str {
        self.lines.as_deref().unwrap_or("")
    }

    /// A frame leaves (`bytes` as encoded) or is taken (no bytes).
    pub(crate) fn frame(&mut self, now: Timestamp, hop: &Hop, bytes: &[u8], frame: &Frame) {
        self.hash = digest(self.hash, &now.as_nanos().to_le_bytes());
        self.hash = digest(self.hash, &hop.from.get().to_le_bytes());
        self.hash = digest(self.hash, &hop.to.get().to_le_bytes());
        self.hash = digest(self.hash, &bytes[..bytes.len().min(FRAME_BYTES_HASHED)]);
        if let Some(lines) = &mut self.lines {
            let (call, task) = (frame.header.call, &frame.header.task);
            let at = Micros(now);
            let what = Brief(&frame.message);
            let relayed = frame.relayed.map(|of| format!(" for {}", of.node)).unwrap_or_default();
            let _ = writeln!(lines, "{at} {hop}{relayed} {call:?} {task} {what}");
        }
    }

    pub(crate) fn note(&mut self, now: Timestamp, text: impl FnOnce() -> String) {
        self.hash = digest(self.hash, &now.as_nanos().to_le_bytes());
        if let Some(lines) = &mut self.lines {
            let _ = writeln!(lines, "{} {}", Micros(now), text());
        }
    }
}

/// From where to where a frame goes.
pub(crate) struct Hop {
    /// Verb for what happens to the frame.
    pub(crate) verb: &'static str,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) lane: Lane,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lane = if self.lane == Lane::Control { "!" } else { "" };
        write!(f, "{} {} -> {}{lane}", self.verb, self.from, self.to)
    }
}

struct Micros(Timestamp);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.3}", self.0.as_nanos() as f64 / 1_000.0)
    }
}

struct Brief<'a>(&'a Message);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.name();
        match self.0 {
            Message::Request(m) => {
                let (budget, entries) = (m.budget_us, m.inherited.len());
                write!(f, "{name} budget {budget} us, {entries} entries")
            }
            Message::Reply(m) => {
                let len = m.payload.len();
                write!(f, "{name} #{} {:?} {len} B", m.index, m.kind)?;
                if let Some(part) = m.part {
                    write!(f, " at {} of {}", part.offset, part.total)?;
                }
                if m.is_final {
                    f.write_str(" final")?;
                }
                if let Some(entry) = &m.own_entry {
                    write!(f, " own {entry:?}")?;
                }
                write!(f, " +{}", m.inherited.len())
            }
            message => write!(f, "{message:?}"),
        }
    }
}

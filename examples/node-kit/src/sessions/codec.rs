//! Bytes of a table of sessions, for snapshots of the state that it is a part of.
//!
//! Numbers are little-endian, of 8 bytes but for session ids (16) and tags (1):
//!
//! ```text
//! version 1 · sessions idle window reply_bytes · position · count · count times:
//!   id · used_at · base · places · that many times: 0 | 1 length bytes | 2
//! ```
//! Sessions are in the order of their ids. Equal tables have equal bytes, and bytes that are read
//! are those that the table read from them is written as.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use bytes::Bytes;
use thiserror::Error;

use super::replies::{Place, Replies};
use super::{Limits, Session, SessionId, Sessions};

const VERSION: u8 = 1;

const NOT_RUN: u8 = 0;
const REPLY: u8 = 1;
const GONE: u8 = 2;

/// The reason bytes are not a table of sessions. They were damaged, or written by another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Written by a version that this one does not know.
    #[error("the table of sessions is of version {0}; this program reads version 1")]
    Version(u8),
    /// They end too soon.
    #[error("the table of sessions ends in the middle")]
    Short,
    /// Bytes are left over.
    #[error("{0} bytes follow the table of sessions")]
    Trailing(usize),
    /// They say what no table can be.
    #[error("the table of sessions is damaged: {0}")]
    Damaged(&'static str),
}

impl Sessions {
    /// Bytes from which [`decode`](Self::decode) makes the same table.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.sessions.len() * 64);
        self.encode_into(&mut out);
        out
    }

    /// Appends these bytes to others.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let Limits { sessions, idle, window, reply_bytes } = self.limits;
        out.push(VERSION);
        for number in [sessions.get() as u64, idle, window.get() as u64, reply_bytes as u64] {
            put(out, number);
        }
        put(out, self.position);
        put(out, self.sessions.len() as u64);
        for (id, session) in &self.sessions {
            session.encode_into(*id, out);
        }
    }

    /// The table that was written as these bytes, which may come from anywhere.
    ///
    /// # Errors
    /// When they are not the bytes of a table.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input(bytes);
        let version = input.tag()?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let mut table = Self::new(input.limits()?);
        table.position = input.number()?;
        for _ in 0..input.number()? {
            table.decode_session(&mut input)?;
        }
        if !input.0.is_empty() {
            return Err(Malformed::Trailing(input.0.len()));
        }
        Ok(table)
    }

    fn decode_session(&mut self, input: &mut Input<'_>) -> Result<(), Malformed> {
        let id = SessionId::from(u128::from_le_bytes(input.array()?));
        let session = input.session(&self.limits)?;
        let in_order = self.sessions.last_key_value().is_none_or(|(last, _)| *last < id);
        let in_time = id.opened_at() <= session.used_at && session.used_at <= self.position;
        if !in_order || !in_time || self.position - session.used_at > self.limits.idle {
            return Err(Malformed::Damaged("a session is out of order or out of time"));
        }
        if self.sessions.len() == self.limits.sessions.get() {
            return Err(Malformed::Damaged("it has more sessions than its own limit"));
        }
        self.by_use.insert((session.used_at, id));
        self.sessions.insert(id, session);
        Ok(())
    }
}

impl Session {
    fn encode_into(&self, id: SessionId, out: &mut Vec<u8>) {
        out.extend_from_slice(&id.get().to_le_bytes());
        for number in [self.used_at, self.replies.base, self.replies.places.len() as u64] {
            put(out, number);
        }
        for place in &self.replies.places {
            match place {
                Place::NotRun => out.push(NOT_RUN),
                Place::Gone => out.push(GONE),
                Place::Reply(reply) => {
                    out.push(REPLY);
                    put(out, reply.len() as u64);
                    out.extend_from_slice(reply);
                }
            }
        }
    }
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Bytes not read yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N).map(|bytes| bytes.try_into().expect("as many as asked for"))
    }

    fn tag(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[tag]| tag)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Result<usize, Malformed> {
        let too_large = |_| Malformed::Damaged("a size is larger than memory");
        usize::try_from(self.number()?).map_err(too_large)
    }

    fn positive(&mut self) -> Result<NonZeroUsize, Malformed> {
        NonZeroUsize::new(self.size()?).ok_or(Malformed::Damaged("a limit is 0"))
    }

    fn limits(&mut self) -> Result<Limits, Malformed> {
        Ok(Limits {
            sessions: self.positive()?,
            idle: self.number()?,
            window: self.positive()?,
            reply_bytes: self.size()?,
        })
    }

    fn session(&mut self, limits: &Limits) -> Result<Session, Malformed> {
        let (used_at, base) = (self.number()?, self.number()?);
        let count = self.size()?;
        if count > limits.width() {
            return Err(Malformed::Damaged("a session has more replies than its window"));
        }
        let places = (0..count).map(|_| self.place()).collect::<Result<VecDeque<_>, _>>()?;
        let replies = Replies::restore(base, places, limits)
            .ok_or(Malformed::Damaged("the replies of a session break its limits"))?;
        Ok(Session::new(used_at, replies))
    }

    fn place(&mut self) -> Result<Place, Malformed> {
        match self.tag()? {
            NOT_RUN => Ok(Place::NotRun),
            GONE => Ok(Place::Gone),
            REPLY => {
                let length = self.size()?;
                Ok(Place::Reply(Bytes::copy_from_slice(self.take(length)?)))
            }
            _ => Err(Malformed::Damaged("the reply of a request is marked as what it cannot be")),
        }
    }
}

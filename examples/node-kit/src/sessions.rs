//! Sessions of clients: each request takes effect once, however often it is sent.
//!
//! A client that hears nothing sends its request again, to another node perhaps, and the log then
//! has it twice. So a replicated state machine keeps, as a part of its state, what it replied to
//! the last requests of each session, and answers a repetition from there.
//!
//! ```text
//!             begin(session, number, position)
//!  log ──────▶  Run        ─▶ apply it, then finish(session, number, reply) ─▶ reply
//!               Repeat(r)  ─────────────────────────────────────────────────▶ r
//!               Forgotten  ─▶ refuse: it ran, or came too late to be run
//!               Expired    ─▶ refuse: the session is over, or is none of this cluster
//! ```
//! Everything is decided by the log: positions are the clock, so all replicas let go of the same
//! session at the same record. A session goes once it was not used within [`Limits::idle`]
//! positions; where there are as many as [`Limits::sessions`], a new one takes the place of the one
//! that was used longest ago. Limits are a part of the state, too, and travel with its snapshot.
//!
//! Numbers of a session are chosen by its client, upwards. It may have [`Limits::window`] of them
//! in flight: a request of a number so far below the highest is not run any more.
//!
//! ```
//! use node_kit::sessions::{Begin, Limits, Sessions};
//!
//! let mut sessions = Sessions::new(Limits::default());
//! let session = sessions.open(17, 0x5eed);
//! assert_eq!(sessions.begin(session, 1, 18), Begin::Run);
//! sessions.finish(session, 1, "was 3, is 4".into());
//! assert_eq!(sessions.begin(session, 1, 19), Begin::Repeat("was 3, is 4".into()));
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use bytes::Bytes;
use thiserror::Error;

use self::replies::Replies;

mod codec;
mod replies;
#[cfg(test)]
mod tests;

pub use self::codec::Malformed;

/// The name of a session: where in the log it was opened, and a number its client drew.
///
/// The second part makes a session of another cluster, or of this one before its data was lost,
/// one that is unknown here rather than another client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    opened_at: u64,
    nonce: u64,
}

impl SessionId {
    /// The name as a number, for messages.
    pub fn get(self) -> u128 {
        u128::from(self.opened_at) << 64 | u128::from(self.nonce)
    }

    /// The log position that opened it.
    pub fn opened_at(self) -> u64 {
        self.opened_at
    }
}

impl From<u128> for SessionId {
    fn from(number: u128) -> Self {
        let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).expect("64 bits");
        Self { opened_at: half(number >> 64), nonce: half(number) }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.get())
    }
}

impl FromStr for SessionId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self::from)
    }
}

/// Bounds of a table of sessions.
///
/// All replicas must have the same, as they decide what the table holds: they are those that the
/// table was made with, not those of a file that may differ between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once. 4,096 by default. A session that would be one more ends the one that was
    /// used longest ago.
    pub sessions: NonZeroUsize,
    /// Log positions after its last use at which a session is still known. A million by default.
    pub idle: u64,
    /// Requests of one session that may be in flight: as many of its highest numbers are told from
    /// each other. 16 by default, at most [`Limits::WINDOW_MAX`].
    pub window: NonZeroUsize,
    /// Bytes of replies that are kept for one session; beyond it the replies of its lowest numbers
    /// go first, and the repetition of such a request is [`Begin::Forgotten`]. 64 KiB by default.
    pub reply_bytes: usize,
}

impl Limits {
    /// The widest window there may be; a wider one is taken for this.
    pub const WINDOW_MAX: usize = 1024;

    fn width(&self) -> usize {
        self.window.get().min(Self::WINDOW_MAX)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: NonZeroUsize::new(4096).expect("not 0"),
            idle: 1_000_000,
            window: NonZeroUsize::new(16).expect("not 0"),
            reply_bytes: 64 << 10,
        }
    }
}

/// The answer to a request that is about to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request runs only if it is told to"]
pub enum Begin {
    /// It has not run: apply it, then [finish](Sessions::finish) it.
    Run,
    /// It has run, and this was its reply.
    Repeat(Bytes),
    /// Its reply was let go of, or its number is so far below the highest of the session that it
    /// cannot be told whether it ran. It must not run now.
    Forgotten,
    /// The session is unknown: it was not used for too long, had to make room, was closed, or is
    /// not of this cluster. The request must not run: it may have, while the session was known.
    Expired,
}

impl Begin {
    /// The reply of a request that has run.
    ///
    /// # Errors
    /// Why a request that is not to run has none; `Ok(None)` for one that is to run.
    pub fn reply(self) -> Result<Option<Bytes>, Refused> {
        match self {
            Self::Run => Ok(None),
            Self::Repeat(reply) => Ok(Some(reply)),
            Self::Forgotten => Err(Refused::Forgotten),
            Self::Expired => Err(Refused::Expired),
        }
    }
}

/// The reason a request of a session is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// See [`Begin::Forgotten`].
    #[error("the request is older than what its session remembers: it may have run")]
    Forgotten,
    /// See [`Begin::Expired`].
    #[error("the session is not known here, or not any more: its requests may have run")]
    Expired,
}

/// Sessions of all clients, a part of replicated state. See the [module](self).
#[derive(Clone, Debug)]
pub struct Sessions {
    limits: Limits,
    sessions: BTreeMap<SessionId, Session>,
    /// All of them by a use that was noted, the last one or one before: a use is not noted until
    /// its session has come to the front, so that uses cost nothing here.
    by_use: BTreeSet<(u64, SessionId)>,
    /// The highest position heard of.
    position: u64,
}

#[derive(Clone, Debug)]
struct Session {
    used_at: u64,
    /// The use that is noted.
    noted_at: u64,
    replies: Replies,
}

impl Session {
    fn new(used_at: u64, replies: Replies) -> Self {
        Self { used_at, noted_at: used_at, replies }
    }
}

/// Tables are equal that answer alike for ever.
impl PartialEq for Sessions {
    fn eq(&self, other: &Self) -> bool {
        (&self.limits, &self.sessions, self.position)
            == (&other.limits, &other.sessions, other.position)
    }
}

impl Eq for Sessions {}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        (self.used_at, &self.replies) == (other.used_at, &other.replies)
    }
}

impl Eq for Session {}

impl Sessions {
    /// No sessions yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, sessions: BTreeMap::new(), by_use: BTreeSet::new(), position: 0 }
    }

    /// Opens a session for the record at this log position.
    ///
    /// The nonce is drawn at random by the client. A record may open several sessions, also of
    /// clients that drew the same: each has one of its own.
    pub fn open(&mut self, position: u64, nonce: u64) -> SessionId {
        self.advance(position);
        let mut id = SessionId { opened_at: self.position, nonce };
        while self.sessions.contains_key(&id) {
            id.nonce = id.nonce.wrapping_add(1);
        }
        self.make_room();
        self.sessions.insert(id, Session::new(self.position, Replies::default()));
        self.by_use.insert((self.position, id));
        id
    }

    /// Judges a request of the record at this log position, which is a use of its session.
    pub fn begin(&mut self, session: SessionId, number: u64, position: u64) -> Begin {
        self.touch(session, position).map_or(Begin::Expired, |known| known.replies.judge(number))
    }

    /// The answer that [`begin`](Self::begin) would give at the last position heard of. It is no use
    /// of the session: nothing changes.
    pub fn known(&self, session: SessionId, number: u64) -> Begin {
        self.sessions.get(&session).map_or(Begin::Expired, |known| known.replies.judge(number))
    }

    /// Keeps the reply of a request that was told to [run](Begin::Run). Nothing happens if the
    /// session is gone.
    ///
    /// The reply should own its bytes: a slice keeps all of what it was cut from.
    pub fn finish(&mut self, session: SessionId, number: u64, reply: Bytes) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.replies.insert(number, reply, &self.limits);
        }
    }

    /// Judges a request, runs it if it is to run, and keeps its reply.
    ///
    /// # Errors
    /// Why it neither runs nor has a reply.
    pub fn apply(
        &mut self,
        session: SessionId,
        number: u64,
        position: u64,
        run: impl FnOnce() -> Bytes,
    ) -> Result<Bytes, Refused> {
        if let Some(reply) = self.begin(session, number, position).reply()? {
            return Ok(reply);
        }
        let reply = run();
        self.finish(session, number, reply.clone());
        Ok(reply)
    }

    /// Uses a session without a request. `false` if it is unknown.
    pub fn keep_alive(&mut self, session: SessionId, position: u64) -> bool {
        self.touch(session, position).is_some()
    }

    fn touch(&mut self, session: SessionId, position: u64) -> Option<&Session> {
        self.advance(position);
        let known = self.sessions.get_mut(&session)?;
        known.used_at = self.position;
        Some(known)
    }

    /// Ends a session. `false` if it is unknown.
    pub fn close(&mut self, session: SessionId, position: u64) -> bool {
        self.advance(position);
        self.remove(session)
    }

    /// Tells it the position of a record that is not about a session. Never needed: whatever is
    /// asked next comes to the same. It lets go of memory sooner.
    pub fn advance(&mut self, position: u64) {
        self.position = self.position.max(position);
        let is_idle = |noted_at: u64| self.position - noted_at > self.limits.idle;
        if !self.by_use.first().is_some_and(|(noted_at, _)| is_idle(*noted_at)) {
            return;
        }
        while let Some((used_at, session)) = self.oldest()
            && self.position - used_at > self.limits.idle
        {
            self.remove(session);
        }
    }

    /// The session that was used longest ago, and when.
    fn oldest(&mut self) -> Option<(u64, SessionId)> {
        loop {
            let &(noted_at, id) = self.by_use.first()?;
            let session = self.sessions.get_mut(&id)?;
            if session.used_at == noted_at {
                return Some((noted_at, id));
            }
            session.noted_at = session.used_at;
            self.by_use.pop_first();
            self.by_use.insert((session.noted_at, id));
        }
    }

    /// True when a session is known, at the last position that was heard of.
    pub fn contains(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// True when a session is known, and will be at this later log position, used or not, if no
    /// other is opened until then.
    pub fn outlasts(&self, session: SessionId, position: u64) -> bool {
        let is_kept = |known: &Session| position.saturating_sub(known.used_at) <= self.limits.idle;
        self.sessions.get(&session).is_some_and(is_kept)
    }

    /// True when so many can be opened, and none has to make room.
    pub fn has_room_for(&self, count: usize) -> bool {
        self.sessions.len().saturating_add(count) <= self.limits.sessions.get()
    }

    /// The count of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// No session is known.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The bounds it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn make_room(&mut self) {
        if self.sessions.len() >= self.limits.sessions.get()
            && let Some((_, oldest)) = self.oldest()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, session: SessionId) -> bool {
        let Some(known) = self.sessions.remove(&session) else { return false };
        self.by_use.remove(&(known.noted_at, session))
    }
}

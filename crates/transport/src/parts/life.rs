//! Life of a connection, as its reader sees it: what makes it dead, stale, ended.
//!
//! ```text
//!           closed here, or by the sink      peer's goodbye or end, or the grace is over
//!   open ─────────────────────────▶ ending ─────────────────────────────────────────────▶ over
//!    │ goodbye, end of the network, nothing heard for the timeout                           ▲
//!    └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! It is told of everything that comes and of time, and reads no clock. What it answers with a
//! reason ends the connection: the task that drives it stops, and [`Lifetime`] tells the sink.

use std::time::Duration;

use tokio::time::Instant;

use super::lifetime::{Carrier, Lifetime};
use crate::CloseReason;

/// Times after which a connection ends.
#[derive(Clone, Copy, Debug)]
pub struct LifeTerms {
    /// Without anything from the peer for so long it is dead.
    pub keep_alive_timeout: Duration,
    /// Longest time of a close.
    pub close_grace: Duration,
}

/// End that began on the sending side, as the reader must know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Reason of the end.
    pub reason: CloseReason,
    /// True when frames that still come are for the sink.
    pub is_delivering: bool,
}

impl Closing {
    /// The end with this reason. After a failed write the peer's last frames and its goodbye may
    /// still be there to read, and after its goodbye over another flow those of this one.
    pub fn new(reason: CloseReason) -> Self {
        let may_follow = matches!(reason, CloseReason::Network(_) | CloseReason::Peer(_));
        Self { is_delivering: reason.is_gentle() || may_follow, reason }
    }
}

/// Reason why no more frames are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The peer broke the rules.
    Fault(String),
    /// The peer says goodbye.
    Goodbye(String),
}

/// Decision on bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Frames among them are for the sink; [`Life::delivered`] follows.
    Deliver,
    /// They are dropped; [`Life::delivered`] follows.
    Drop,
    /// The connection is over.
    End(CloseReason),
}

/// Life of one connection.
#[derive(Debug)]
pub struct Life<C: Carrier> {
    lifetime: Lifetime<C>,
    terms: LifeTerms,
    last_heard: Instant,
    ending: Option<Ending>,
}

/// The connection is closing; it is read until the peer closes too, or the grace is over.
#[derive(Debug)]
struct Ending {
    reason: CloseReason,
    is_delivering: bool,
    deadline: Instant,
}

impl<C: Carrier> Life<C> {
    /// Life that begins now.
    pub fn new(lifetime: Lifetime<C>, terms: LifeTerms, now: Instant) -> Self {
        Self { lifetime, terms, last_heard: now, ending: None }
    }

    /// The connection and its sink.
    pub fn lifetime(&self) -> &Lifetime<C> {
        &self.lifetime
    }

    /// Something outside may want the end.
    pub fn on_signal(&mut self, now: Instant) {
        if self.ending.is_none() {
            self.ending = self.lifetime.connection().closing().map(|closing| Ending {
                reason: closing.reason,
                is_delivering: closing.is_delivering,
                deadline: now + self.terms.close_grace,
            });
        }
    }

    /// The [`deadline`](Self::deadline) may have passed.
    pub fn on_timer(&mut self, now: Instant) -> Option<CloseReason> {
        if now < self.deadline() {
            return None;
        }
        Some(match &self.ending {
            Some(ending) => self.end_of_grace(ending),
            None => self.end_at_once(CloseReason::KeepAlive),
        })
    }

    /// Bytes came, which nobody has looked at.
    pub fn on_bytes(&mut self, now: Instant) -> Verdict {
        match &self.ending {
            Some(ending) if ending.deadline <= now => Verdict::End(self.end_of_grace(ending)),
            Some(ending) if !ending.is_delivering => Verdict::Drop,
            // The timer would have closed the connection had this process been running: what has
            // waited meanwhile may be too old to act on.
            None if self.last_heard + self.terms.keep_alive_timeout < now => {
                Verdict::End(self.end_at_once(CloseReason::Stale))
            }
            _ => Verdict::Deliver,
        }
    }

    /// The bytes that came have been delivered, and `stop` was found in them. The time is taken
    /// again, since that which the sink takes is not the peer's.
    pub fn delivered(&mut self, stop: Option<Stop>, now: Instant) -> Option<CloseReason> {
        self.last_heard = now;
        match stop? {
            Stop::Fault(text) => self.end_by_fault(text, now),
            Stop::Goodbye(text) => Some(self.end_by_peer(text, now)),
        }
    }

    /// The network failed, or the peer left without a goodbye.
    pub fn end_by_network(&mut self, message: String, now: Instant) -> CloseReason {
        // The signal of an end from outside may still be on its way.
        self.on_signal(now);
        match self.ending.take() {
            Some(ending) => ending.reason,
            None => CloseReason::Network(message),
        }
    }

    /// Closes without waiting for anything: the peer does not listen, or must not be listened to. A
    /// reason from before stands.
    pub fn end_at_once(&self, reason: CloseReason) -> CloseReason {
        let connection = self.lifetime.connection();
        connection.close(reason.clone());
        connection.closing().map_or(reason, |closing| closing.reason)
    }

    /// Time at which [`on_timer`](Self::on_timer) matters next. It is not moved by all that comes:
    /// when the timer fires early, it is set to what this says then.
    pub fn deadline(&self) -> Instant {
        match &self.ending {
            Some(ending) => ending.deadline,
            None => self.last_heard + self.terms.keep_alive_timeout,
        }
    }

    /// It is over. Everything of the connection goes, and the sink hears of it.
    pub fn end(self, reason: CloseReason) {
        self.lifetime.end(reason);
    }

    fn end_of_grace(&self, ending: &Ending) -> CloseReason {
        self.lifetime.connection().stop_waiting();
        ending.reason.clone()
    }

    /// The goodbye goes out, and the peer gets the grace to read it: a connection that is dropped
    /// with bytes unread may take it back.
    fn end_by_fault(&mut self, text: String, now: Instant) -> Option<CloseReason> {
        self.lifetime.connection().close(CloseReason::Fault(text));
        // A reason from before stays, but nothing more of this peer is delivered.
        self.ending = None;
        self.on_signal(now);
        self.ending.as_mut().expect("the connection was closed above").is_delivering = false;
        None
    }

    fn end_by_peer(&mut self, text: String, now: Instant) -> CloseReason {
        self.on_signal(now);
        self.lifetime.connection().peer_has_left();
        match self.ending.take() {
            Some(ending) if !matches!(ending.reason, CloseReason::Network(_)) => ending.reason,
            _ => CloseReason::Peer(text),
        }
    }
}

#[cfg(test)]
mod tests;

//! Life of a connection, as its reader sees it: what makes it dead, stale, ended.
//!
//! ```text
//!           closed here, or by the sink      peer's goodbye or end, or the grace is over
//!   open ─────────────────────────▶ ending ─────────────────────────────────────────────▶ over
//!    │ goodbye, end of the network, nothing heard for the timeout                           ▲
//!    └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! When both ends close gently, each has more to send than its goodbye, perhaps: then the one that
//! hears a goodbye is over once all of its own is with the network, and the peer's end was read.
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
    /// The peer has said goodbye, while this end still sends.
    has_peer_left: bool,
    /// After the goodbye the end of what the peer sends was read, too.
    has_peer_ended: bool,
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

    /// Something outside may want the end, or everything is sent.
    pub fn on_signal(&mut self, now: Instant) -> Option<CloseReason> {
        self.note_closing(now);
        self.end_if_both_are_done()
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

    /// True as long as there may be something to read.
    pub fn is_reading(&self) -> bool {
        self.ending.as_ref().is_none_or(|ending| !ending.has_peer_ended)
    }

    /// Bytes came, which nobody has looked at.
    pub fn on_bytes(&mut self, now: Instant) -> Verdict {
        match self.on_waiting(now) {
            Verdict::Deliver if self.has_peer_left() => Verdict::Drop,
            verdict => verdict,
        }
    }

    /// Frames that came before need not wait any longer.
    pub fn on_waiting(&mut self, now: Instant) -> Verdict {
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
            Stop::Goodbye(text) => self.end_by_peer(text, now),
        }
    }

    /// The peer sends nothing more, be it after a goodbye or not.
    pub fn on_end_of_peer(&mut self, now: Instant) -> Option<CloseReason> {
        match &mut self.ending {
            Some(ending) if ending.has_peer_left => {
                ending.has_peer_ended = true;
                self.end_if_both_are_done()
            }
            _ => Some(self.end_by_network("it was closed without a goodbye".into(), now)),
        }
    }

    /// The network failed, or the peer left without a goodbye.
    pub fn end_by_network(&mut self, message: String, now: Instant) -> CloseReason {
        // The signal of an end from outside may still be on its way.
        self.note_closing(now);
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

    fn note_closing(&mut self, now: Instant) {
        if self.ending.is_none() {
            self.ending = self.lifetime.connection().closing().map(|closing| Ending {
                reason: closing.reason,
                is_delivering: closing.is_delivering,
                deadline: now + self.terms.close_grace,
                has_peer_left: false,
                has_peer_ended: false,
            });
        }
    }

    fn has_peer_left(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.has_peer_left)
    }

    /// The peer's end is waited for as well: a connection that is dropped with bytes unread, such
    /// as the last of TLS, may take back what it sent.
    fn end_if_both_are_done(&self) -> Option<CloseReason> {
        let ending = self.ending.as_ref().filter(|ending| ending.has_peer_ended)?;
        self.lifetime.connection().is_all_sent().then(|| ending.reason.clone())
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
        self.note_closing(now);
        self.ending.as_mut().expect("the connection was closed above").is_delivering = false;
        None
    }

    fn end_by_peer(&mut self, text: String, now: Instant) -> Option<CloseReason> {
        self.note_closing(now);
        let connection = self.lifetime.connection();
        if let Some(ending) = self.ending.as_mut().filter(|ending| ending.reason.is_gentle()) {
            ending.has_peer_left = true;
            connection.send_rest();
            return None;
        }
        connection.peer_has_left();
        Some(match self.ending.take() {
            Some(ending) if !matches!(ending.reason, CloseReason::Network(_)) => ending.reason,
            _ => CloseReason::Peer(text),
        })
    }
}

#[cfg(test)]
mod tests;

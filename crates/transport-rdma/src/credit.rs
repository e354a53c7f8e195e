//! Credit to send, so that a message always finds a receive posted for it.
//!
//! Each end has N slots for data messages and R for control messages, which give credit and nothing
//! else. The two are accounted for separately; sharing one window deadlocks (see
//! `credit/model.rs`). Every message says two things of the other direction:
//!
//! - `window`: how many data messages the receiver of this header may have sent in all. It grows by
//!   one whenever a data slot is posted again. Data may be sent while `sent < window`.
//! - `ctl_ack`: how many control messages have come, and their slots been posted again, in all. A
//!   control message may be sent while fewer than R are without acknowledgement.
//!
//! So credit rides on data where there is any. A control message goes out only when nothing can
//! carry the credit and the peer needs it: at half the window, or when it has no more than its
//! *reserve* left. Only data slots make control messages necessary, so these never cause each
//! other.
//!
//! **The reserve.** A sender keeps its last few credits for frames of the control lane, so that
//! those do not wait behind a full data window. Both ends know how many (a function of N), and two
//! rules keep the reserve from causing a deadlock:
//! - the receiver announces only what leaves the sender more than its reserve;
//! - a sender that owes the acknowledgement of a control message may spend its reserve on data.
//!   Control messages may cross messages in flight and find the sender with its reserve only. If it
//!   then fell silent, R such crossings would leave the receiver without a way to announce
//!   anything.
//!
//! **Why there is no deadlock.** Suppose that an end has data, may not send it, and nothing is in
//! flight. Then it owes no acknowledgement. If it has credit left, that is within its reserve,
//! which it would spend if it owed one. If it has none, the credit of the peer's last control
//! message was used by a message sent after that one came, which carried the acknowledgement. So
//! all control slots that the peer may use are free. And the [ring](crate::slot_ring) never lends
//! or holds back so many slots that not one more than the reserve is left, so the peer has
//! something to announce that helps, and does.
//!
//! **Never receiver-not-ready.** Receives posted in all are at least what the peer may have sent in
//! all, because a receive is posted before it is announced.
//!
//! **Liars.** A raise of the window beyond the slots the peer has, an acknowledgement of what was
//! not sent, a control message that gives nothing, or a message without credit is a [`Fault`]; half
//! of all windows count as older ones, which say nothing. Since a control message must raise the
//! window, there are never more of them than data messages.
//!
//! A header has the low 16 bits of the window and the low 8 of the acknowledgement. Counters are
//! compared by their distance, which stays within N and R.

use crate::defect::Defects;
use crate::framing::{Fault, Header, Kind};
use crate::hello::Terms;

/// The credit of one connection, both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreditEngine {
    outgoing: Outgoing,
    incoming: Incoming,
    defects: Defects,
}

/// Credit that this end may spend.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outgoing {
    /// N and R of the peer.
    limits: Limits,
    /// Data messages sent.
    sent: u32,
    /// Data messages that may have been sent.
    window: u32,
    /// Control messages sent, and of those, acknowledged.
    ctl_sent: u8,
    ctl_acked: u8,
}

/// Counts of what this end has posted, announced and received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Incoming {
    /// N and R of this end.
    limits: Limits,
    /// Data receives posted; `announced` of them are known to the peer, or on the way there.
    posted: u32,
    announced: u32,
    /// Data messages received.
    received: u32,
    /// Control messages received; `ctl_posted` of their slots are posted again; of those,
    /// acknowledged.
    ctl_received: u8,
    ctl_posted: u8,
    ctl_ack_sent: u8,
}

/// Limits of one direction: the slots of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// N.
    pub(crate) slot_count: u32,
    /// R.
    pub(crate) control_slot_count: u8,
    /// Number of data credits that the sender keeps for the control lane; below N.
    pub(crate) reserve: u32,
}

/// More would hardly help: one message holds many control frames.
const RESERVE_MAX: u32 = 2;

impl Limits {
    /// Those of a receiver with these slots.
    pub(crate) fn of(terms: &Terms) -> Self {
        let slot_count = u32::from(terms.slot_count);
        let reserve = (slot_count / 4).min(RESERVE_MAX);
        Self { slot_count, control_slot_count: terms.control_slot_count, reserve }
    }

    /// From so many unannounced slots on the peer is told, whether or not it needs them.
    fn announce_at(&self) -> u32 {
        self.slot_count.div_ceil(2)
    }
}

/// Purpose of a data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It carries data frames only, and leaves the reserve alone.
    Data,
    /// It carries frames of the control lane, or opens or ends the connection.
    Urgent,
}

impl CreditEngine {
    /// All slots of both ends are posted, and nothing has been sent.
    pub(crate) fn new(own: Limits, peer: Limits) -> Self {
        Self::starting_at(own, peer, 0, 0)
    }

    /// As [`new`](Self::new), after as many data and control messages each way.
    fn starting_at(own: Limits, peer: Limits, data: u32, ctl: u8) -> Self {
        Self {
            outgoing: Outgoing {
                limits: peer,
                sent: data,
                window: data.wrapping_add(peer.slot_count),
                ctl_sent: ctl,
                ctl_acked: ctl,
            },
            incoming: Incoming {
                limits: own,
                posted: data.wrapping_add(own.slot_count),
                announced: data.wrapping_add(own.slot_count),
                received: data,
                ctl_received: ctl,
                ctl_posted: ctl,
                ctl_ack_sent: ctl,
            },
            defects: Defects::default(),
        }
    }

    /// The same with these defects.
    pub(crate) fn with(self, defects: Defects) -> Self {
        Self { defects, ..self }
    }

    /// A message came. Everything is judged before anything is believed.
    ///
    /// # Errors
    /// A [`Fault`] when no honest peer would have sent it now; nothing has changed then.
    #[inline]
    pub(crate) fn handle_message(&mut self, header: &Header) -> Result<(), Fault> {
        if self.defects.ignores_credit() {
            return Ok(());
        }
        self.incoming.check(header.kind)?;
        let news = self.outgoing.judge(header)?;
        self.incoming.on_message(header.kind);
        self.outgoing.believe(header, news);
        Ok(())
    }

    /// Receives were posted, in place of so many that data and control messages had used.
    #[inline]
    pub(crate) fn on_posted(&mut self, data: u32, control: u8) {
        if self.defects.ignores_credit() {
            return;
        }
        let incoming = &mut self.incoming;
        incoming.posted = incoming.posted.wrapping_add(data);
        incoming.ctl_posted = incoming.ctl_posted.wrapping_add(control);
        debug_assert!(
            incoming.posted.wrapping_sub(incoming.received) <= incoming.limits.slot_count
        );
        debug_assert!(
            incoming.ctl_received.wrapping_sub(incoming.ctl_posted)
                <= incoming.limits.control_slot_count
        );
    }

    /// True when a data message may be sent now.
    ///
    /// Not before the slots of control messages are posted again: the message that uses their
    /// credit is the one that acknowledges them, and there may be no other.
    #[inline]
    pub(crate) fn may_send(&self, purpose: Purpose) -> bool {
        if self.defects.ignores_credit() {
            return true;
        }
        if self.incoming.ctl_received != self.incoming.ctl_posted {
            return false;
        }
        let reserve = match purpose {
            Purpose::Data if !self.incoming.owes_ack() => self.outgoing.limits.reserve,
            Purpose::Data | Purpose::Urgent => 0,
        };
        self.outgoing.left() > reserve
    }

    /// True when a credit-only message should go out now, provided that no data message can.
    #[inline]
    pub(crate) fn wants_credit_message(&self) -> bool {
        if self.defects.ignores_credit() {
            return false;
        }
        let Incoming { limits, .. } = &self.incoming;
        let unannounced = self.incoming.unannounced();
        let left = self.incoming.left();
        let is_needed = left <= limits.reserve && left + unannounced > limits.reserve;
        (is_needed || unannounced >= limits.announce_at()) && self.outgoing.may_send_control()
    }

    /// Counts a message and makes its header. To be asked before: [`may_send`](Self::may_send) or
    /// [`wants_credit_message`](Self::wants_credit_message).
    // Always: so many conditions lead to it that the compiler takes it for rare, and it is a part
    // of every message.
    #[inline(always)]
    pub(crate) fn send(&mut self, kind: Kind) -> Header {
        if self.defects.ignores_credit() {
            let Incoming { announced, ctl_ack_sent, .. } = self.incoming;
            return Header { window: low(announced), ctl_ack: ctl_ack_sent, kind };
        }
        if kind.is_data() {
            assert!(self.outgoing.left() > 0, "a data message without credit");
            self.outgoing.sent = self.outgoing.sent.wrapping_add(1);
        } else {
            assert!(self.outgoing.may_send_control(), "a control message without credit");
            self.outgoing.ctl_sent = self.outgoing.ctl_sent.wrapping_add(1);
        }
        let incoming = &mut self.incoming;
        incoming.announced = incoming.posted;
        incoming.ctl_ack_sent = incoming.ctl_posted;
        Header { window: low(incoming.announced), ctl_ack: incoming.ctl_ack_sent, kind }
    }

    /// True when the peer has credit to say something, or would have, had it acknowledged what was
    /// to give it some.
    pub(crate) fn may_peer_speak(&self) -> bool {
        let incoming = &self.incoming;
        incoming.left() > 0 || incoming.unannounced() > incoming.limits.reserve
    }

    /// Number of data messages that the peer may still send, or has on the way.
    #[inline]
    pub(crate) fn peer_left(&self) -> u32 {
        self.incoming.left()
    }
}

impl Outgoing {
    fn left(&self) -> u32 {
        self.window.wrapping_sub(self.sent)
    }

    fn ctl_unacked(&self) -> u8 {
        self.ctl_sent.wrapping_sub(self.ctl_acked)
    }

    fn may_send_control(&self) -> bool {
        self.ctl_unacked() < self.limits.control_slot_count
    }

    /// Amount by which a header raises the window, which never shrinks: an older window says
    /// nothing.
    #[inline]
    fn judge(&self, header: &Header) -> Result<u32, Fault> {
        if header.ctl_ack.wrapping_sub(self.ctl_acked) > self.ctl_unacked() {
            return Err(Fault::AckExcess);
        }
        let distance = header.window.wrapping_sub(low(self.window));
        let raise = if distance < 1 << 15 { distance.into() } else { 0 };
        let (announced, slot_count) = (self.left().saturating_add(raise), self.limits.slot_count);
        if announced > slot_count {
            return Err(Fault::WindowTooFar { announced, slot_count });
        }
        if raise == 0 && header.kind == Kind::Credit {
            return Err(Fault::NoCredit);
        }
        Ok(raise)
    }

    #[inline]
    fn believe(&mut self, header: &Header, raise: u32) {
        self.window = self.window.wrapping_add(raise);
        self.ctl_acked = header.ctl_ack;
    }
}

impl Incoming {
    /// Messages that the peer may still send, or has on the way.
    fn left(&self) -> u32 {
        self.announced.wrapping_sub(self.received)
    }

    fn unannounced(&self) -> u32 {
        self.posted.wrapping_sub(self.announced)
    }

    fn owes_ack(&self) -> bool {
        self.ctl_received != self.ctl_ack_sent
    }

    #[inline]
    fn check(&self, kind: Kind) -> Result<(), Fault> {
        if kind.is_data() {
            return if self.left() > 0 { Ok(()) } else { Err(Fault::DataOverrun) };
        }
        let unacked = self.ctl_received.wrapping_sub(self.ctl_ack_sent);
        let is_right = unacked < self.limits.control_slot_count;
        if is_right { Ok(()) } else { Err(Fault::ControlOverrun) }
    }

    #[inline]
    fn on_message(&mut self, kind: Kind) {
        if kind.is_data() {
            self.received = self.received.wrapping_add(1);
        } else {
            self.ctl_received = self.ctl_received.wrapping_add(1);
        }
    }
}

/// A count as a header has it.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the rest is known to both ends")]
fn low(count: u32) -> u16 {
    count as u16
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

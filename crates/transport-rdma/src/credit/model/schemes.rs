//! The credit engine as the model drives it, and schemes that look as good and are not.

use super::Scheme;
use crate::credit::{CreditEngine, Limits, Purpose, low};
use crate::framing::{Header, Kind};

impl Scheme for CreditEngine {
    fn new(own: Limits, peer: Limits) -> Self {
        // Shortly before both counters wrap.
        Self::starting_at(own, peer, u32::MAX - 1, u8::MAX - 1)
    }

    fn receive_count(own: Limits) -> u32 {
        own.slot_count + u32::from(own.control_slot_count)
    }

    fn may_send(&self, purpose: Purpose) -> bool {
        self.may_send(purpose)
    }

    fn wants_credit_message(&self) -> bool {
        self.wants_credit_message()
    }

    fn send(&mut self, kind: Kind) -> Header {
        self.send(kind)
    }

    fn receive(&mut self, header: &Header) -> bool {
        self.handle_message(header).expect("both ends are honest");
        if header.kind == Kind::Credit {
            self.on_posted(0, 1);
        }
        header.kind.is_data()
    }

    fn post_data(&mut self) {
        self.on_posted(1, 0);
    }

    fn distances(&self) -> [u32; 5] {
        let incoming = &self.incoming;
        let owed = incoming.ctl_received.wrapping_sub(incoming.ctl_ack_sent);
        let (left, unacked) = (self.outgoing.left(), self.outgoing.ctl_unacked());
        [left, unacked.into(), incoming.left(), incoming.unannounced(), owed.into()]
    }

    fn news(&self, header: &Header) -> [u32; 2] {
        let ctl_ack = header.ctl_ack.wrapping_sub(self.outgoing.ctl_acked);
        [header.window.wrapping_sub(low(self.outgoing.window)).into(), ctl_ack.into()]
    }
}

/// Methods that a variant leaves to the engine.
macro_rules! as_the_engine {
    ($($what:ident),*) => { $(as_the_engine!(@ $what);)* };
    (@ set_up) => {
        fn new(own: Limits, peer: Limits) -> Self {
            Self(Scheme::new(own, peer))
        }
        fn receive_count(own: Limits) -> u32 {
            <CreditEngine as Scheme>::receive_count(own)
        }
    };
    (@ may_send) => {
        fn may_send(&self, purpose: Purpose) -> bool {
            self.0.may_send(purpose)
        }
    };
    (@ announcing) => {
        fn wants_credit_message(&self) -> bool {
            self.0.wants_credit_message()
        }
    };
    (@ messages) => {
        fn send(&mut self, kind: Kind) -> Header {
            self.0.send(kind)
        }
        fn receive(&mut self, header: &Header) -> bool {
            Scheme::receive(&mut self.0, header)
        }
    };
    (@ knowledge) => {
        fn post_data(&mut self) {
            self.0.post_data();
        }
        fn distances(&self) -> [u32; 5] {
            self.0.distances()
        }
        fn news(&self, header: &Header) -> [u32; 2] {
            self.0.news(header)
        }
    };
}

/// The reserve is never spent on data, whatever this end owes.
#[derive(Clone)]
pub(super) struct RigidReserve(CreditEngine);

impl Scheme for RigidReserve {
    as_the_engine!(set_up, announcing, messages, knowledge);

    fn may_send(&self, purpose: Purpose) -> bool {
        let outgoing = &self.0.outgoing;
        let reserve = if purpose == Purpose::Data { outgoing.limits.reserve } else { 0 };
        outgoing.left() > reserve
    }
}

/// The goodbye takes a control slot.
#[derive(Clone)]
pub(super) struct CloseInControlSlot(CreditEngine);

impl Scheme for CloseInControlSlot {
    as_the_engine!(set_up, may_send, announcing, knowledge);

    fn may_close(&self) -> bool {
        self.0.outgoing.may_send_control()
    }

    fn send(&mut self, kind: Kind) -> Header {
        let accounted = if kind == Kind::Goodbye { Kind::Credit } else { kind };
        Header { kind, ..self.0.send(accounted) }
    }

    fn receive(&mut self, header: &Header) -> bool {
        if header.kind != Kind::Goodbye {
            return Scheme::receive(&mut self.0, header);
        }
        // It may raise no window, so it is judged as a data message and counted as a control
        // message.
        let raise = self.0.outgoing.judge(&Header { kind: Kind::Frames, ..*header }).unwrap();
        self.0.outgoing.believe(header, raise);
        self.0.incoming.on_message(Kind::Credit);
        self.0.on_posted(0, 1);
        false
    }
}

/// The obvious scheme: one window for all messages, the last slot of it for credit-only messages.
#[derive(Clone)]
pub(super) struct SharedWindow {
    slot_count: u32,
    sent: u32,
    window: u32,
    posted: u32,
    announced: u32,
    received: u32,
    /// Data slots posted since the last announcement: only these make credit-only messages
    /// necessary.
    news: u32,
}

impl SharedWindow {
    fn reserve(&self) -> u32 {
        1.min(self.slot_count - 1)
    }
}

impl Scheme for SharedWindow {
    fn new(own: Limits, peer: Limits) -> Self {
        assert_eq!(own, peer);
        let slot_count = own.slot_count;
        let (window, posted, announced) = (slot_count, slot_count, slot_count);
        Self { slot_count, sent: 0, window, posted, announced, received: 0, news: 0 }
    }

    fn receive_count(own: Limits) -> u32 {
        own.slot_count
    }

    fn may_send(&self, _: Purpose) -> bool {
        self.window - self.sent > self.reserve()
    }

    fn wants_credit_message(&self) -> bool {
        let is_low = self.announced - self.received <= self.reserve();
        let is_due = self.news >= 1 && (is_low || self.news >= self.slot_count.div_ceil(2));
        is_due && self.window > self.sent
    }

    fn send(&mut self, kind: Kind) -> Header {
        self.sent += 1;
        self.announced = self.posted;
        self.news = 0;
        Header { window: low(self.announced), ctl_ack: 0, kind }
    }

    fn receive(&mut self, header: &Header) -> bool {
        self.window = self.window.max(header.window.into());
        self.received += 1;
        if header.kind == Kind::Credit {
            self.posted += 1;
        }
        header.kind.is_data()
    }

    fn post_data(&mut self) {
        self.posted += 1;
        self.news += 1;
    }

    fn distances(&self) -> [u32; 5] {
        let left = self.window - self.sent;
        let (peer_left, unannounced) =
            (self.announced - self.received, self.posted - self.announced);
        [left, peer_left, unannounced, self.news, 0]
    }

    fn news(&self, header: &Header) -> [u32; 2] {
        [u32::from(header.window).saturating_sub(self.window), 0]
    }
}

/// The receiver does not know of the reserve, and announces when nothing is left.
#[derive(Clone)]
pub(super) struct UnknownReserve(CreditEngine);

impl Scheme for UnknownReserve {
    as_the_engine!(set_up, may_send, messages, knowledge);

    fn wants_credit_message(&self) -> bool {
        let incoming = &self.0.incoming;
        let (left, unannounced) = (incoming.left(), incoming.unannounced());
        let is_needed =
            (left == 0 && unannounced > 0) || unannounced >= incoming.limits.announce_at();
        is_needed && self.0.outgoing.may_send_control()
    }
}

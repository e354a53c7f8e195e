//! What a link makes of a message that came.

use bytes::Bytes;
use convoke_core::transport::{CloseReason, Received};

use super::{Event, Link, Listening, Pending};
use crate::framing::record::{Part, Record, Records};
use crate::framing::{Fault, HEADER_BYTES, Header, Kind, TEXT_BYTES_MAX, clean_text};
use crate::slot_ring::{Slot, Use};

/// A frame up to this size is copied out of its slot, which is posted again at once. To lend the slot
/// costs more than such a copy.
const COPY_BYTES_MAX: usize = 1024;

impl Link {
    /// A receive completed: `message` is what is in `slot`. When frames are large enough and the
    /// application does not hold too many slots already, they are slices of what `lend` returns: all of
    /// the message, to be given back by [`handle_slot_returned`](Self::handle_slot_returned) when the
    /// last slice is dropped. `lend` is called at most once.
    ///
    /// # Errors
    /// A [`Fault`] when the peer broke the rules. The link closes with it by itself.
    ///
    /// # Panics
    /// When `slot` is not the one that was posted first.
    pub(crate) fn handle_message(
        &mut self,
        slot: Slot,
        message: &[u8],
        lend: impl FnOnce() -> Bytes,
    ) -> Result<(), Fault> {
        if matches!(self.listening, Listening::Fault) {
            return Ok(());
        }
        self.counters.transport.bytes_received += message.len() as u64;
        self.ring.fill(slot);
        let result = self.receive(slot, message, lend);
        if let Err(fault) = &result {
            self.listening = Listening::Fault;
            self.begin_close(CloseReason::Fault(fault.to_string()));
        }
        result
    }

    /// The next thing to tell; slots whose frames are all told are free from then on.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.events.pop_front()? {
                Pending::Event(event) => return Some(event),
                Pending::Release(slot) => self.ring.release(slot, Use::Data),
            }
        }
    }

    fn receive(
        &mut self,
        slot: Slot,
        message: &[u8],
        lend: impl FnOnce() -> Bytes,
    ) -> Result<(), Fault> {
        let (header, payload) = Header::decode(message)?;
        self.credit.handle_message(&header)?;
        if header.kind == Kind::Credit {
            if !payload.is_empty() {
                return Err(Fault::ExcessBytes(payload.len()));
            }
            self.ring.release(slot, Use::Control);
            return Ok(());
        }
        if matches!(self.listening, Listening::Goodbye) {
            return Err(Fault::AfterGoodbye);
        }
        let is_lent = match header.kind {
            Kind::Frames => self.receive_frames(slot, payload, lend)?,
            Kind::Introduction { has_more } => self.receive_introduction(payload, has_more)?,
            Kind::Goodbye | Kind::Credit => self.receive_goodbye(payload)?,
        };
        if !is_lent {
            self.events.push_back(Pending::Release(slot));
        }
        Ok(())
    }

    /// Whether the slot was lent.
    fn receive_frames(
        &mut self,
        slot: Slot,
        payload: &[u8],
        lend: impl FnOnce() -> Bytes,
    ) -> Result<bool, Fault> {
        if !matches!(self.listening, Listening::Frames) {
            return Err(Fault::IntroductionOutOfPlace);
        }
        if payload.is_empty() {
            return Err(Fault::NoFrame);
        }
        if self.closing.as_ref().is_some_and(|reason| !reason.is_gentle()) {
            return Ok(false);
        }
        let mut loan = Loan { slot, lend: Some(lend), message: None };
        for record in Records::new(payload) {
            self.receive_record(&record?, payload, &mut loan)?;
        }
        Ok(loan.message.is_some())
    }

    fn receive_record<L: FnOnce() -> Bytes>(
        &mut self,
        record: &Record,
        payload: &[u8],
        loan: &mut Loan<L>,
    ) -> Result<(), Fault> {
        let Record { lane, part, range } = record.clone();
        let bytes = if part == Part::Whole {
            self.reassembly.check_whole(lane, range.len())?;
            match self.borrow(range.clone(), loan) {
                Some(slice) => slice,
                None => self.copies.copy(&payload[range]),
            }
        } else {
            let frame = self.reassembly.put(lane, part, &payload[range])?;
            let Some(frame) = frame else { return Ok(()) };
            frame
        };
        self.counters.transport.frames_received += 1;
        let received = Received { lane, bytes };
        self.events.push_back(Pending::Event(Event::Received(received)));
        Ok(())
    }

    /// A frame as a slice of its slot; `None` when it is better copied.
    fn borrow<L: FnOnce() -> Bytes>(
        &mut self,
        range: std::ops::Range<usize>,
        loan: &mut Loan<L>,
    ) -> Option<Bytes> {
        if range.len() <= COPY_BYTES_MAX {
            return None;
        }
        if loan.message.is_none() {
            if self.defects.never_lends() || !self.ring.may_lend() {
                self.counters.copies_under_pressure += 1;
                return None;
            }
            let lend = loan.lend.take()?;
            self.ring.lend(loan.slot);
            loan.message = Some(lend());
        }
        let message = loan.message.as_ref()?;
        Some(message.slice(HEADER_BYTES + range.start..HEADER_BYTES + range.end))
    }

    fn receive_introduction(&mut self, payload: &[u8], has_more: bool) -> Result<bool, Fault> {
        let Listening::Introduction(introduction) = &mut self.listening else {
            return Err(Fault::IntroductionOutOfPlace);
        };
        introduction.put(payload)?;
        if !has_more {
            let addresses = introduction.finish();
            self.events.push_back(Pending::Event(Event::Introduced(addresses)));
            self.listening = Listening::Frames;
        }
        Ok(false)
    }

    fn receive_goodbye(&mut self, text: &[u8]) -> Result<bool, Fault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Fault::GoodbyeTooLong(text.len()));
        }
        let text = clean_text(text);
        self.listening = Listening::Goodbye;
        self.reassembly.clear();
        self.begin_close(CloseReason::Peer(text.clone()));
        self.events.push_back(Pending::Event(Event::Goodbye(text)));
        Ok(false)
    }
}

/// The slot of a message, and all of it once lent.
struct Loan<L> {
    slot: Slot,
    lend: Option<L>,
    message: Option<Bytes>,
}

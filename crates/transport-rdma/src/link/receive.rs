//! Handling of a message that came, by a link.

use std::ops::Range;

use bytes::Bytes;
use convoke_transport::parts::{TEXT_BYTES_MAX, clean_text};
use convoke_transport::{CloseReason, Lane, Received};

use super::{Event, Link, Listening};
use crate::framing::record::{Part, Record, Records};
use crate::framing::{Fault, HEADER_BYTES, Header, Kind};
use crate::slot_ring::{Slot, Use};

/// A frame up to this size is copied out of its slot, which is posted again at once. To lend the
/// slot costs more than such a copy.
const COPY_BYTES_MAX: usize = 1024;

/// Memory for so many frames is kept for the next that come: as many empty ones fill a slot of
/// 8 KiB.
const KEPT_FRAMES_MAX: usize = 2_048;

impl Link {
    /// A receive completed: `message` is what is in `slot`. When frames are large enough and the
    /// application does not hold too many slots already, they are slices of what `lend` returns:
    /// all of the message, to be given back by [`handle_slot_returned`](Self::handle_slot_returned)
    /// when the last slice is dropped. `lend` is called at most once.
    ///
    /// # Errors
    /// A [`Fault`] when the peer broke the rules. The link closes with it by itself.
    ///
    /// # Panics
    /// When no receive is posted for `slot`, in tests and debug builds.
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
        self.receive(slot, message, lend).inspect_err(|fault| self.listen_no_more(fault))
    }

    #[cold]
    fn listen_no_more(&mut self, fault: &Fault) {
        self.listening = Listening::Fault;
        self.begin_close(CloseReason::Fault(fault.to_string()));
    }

    /// The next thing to tell. To be asked before [`take_received`](Self::take_received): an
    /// introduction comes before any frame.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next lane that has room again, ahead of what else there is to tell.
    pub(crate) fn poll_writable_event(&mut self) -> Option<Lane> {
        let found = self.events.iter().position(|event| matches!(event, Event::Writable(_)))?;
        match self.events.remove(found)? {
            Event::Writable(lane) => Some(lane),
            Event::Introduced(_) | Event::Goodbye(_) => None,
        }
    }

    /// The frame that has come, when it is a single one; its slot is free from then on.
    #[inline]
    pub(crate) fn take_only(&mut self) -> Option<Received> {
        if self.received.len() != 1 {
            return None;
        }
        self.release_read();
        self.received.pop()
    }

    /// The frames that have come, if any; their slots are free from then on.
    #[inline]
    pub(crate) fn take_received(&mut self) -> Option<Vec<Received>> {
        self.release_read();
        (!self.received.is_empty()).then(|| std::mem::take(&mut self.received))
    }

    #[inline]
    fn release_read(&mut self) {
        for slot in &self.read {
            self.ring.release(*slot, Use::Data);
        }
        self.read.clear();
    }

    /// Gives back the memory of frames that were [taken](Self::take_received).
    #[inline]
    pub(crate) fn reuse(&mut self, frames: Vec<Received>) {
        let is_small = frames.is_empty() && frames.capacity() <= KEPT_FRAMES_MAX;
        if self.received.capacity() == 0 && is_small {
            self.received = frames;
        }
    }

    #[inline]
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
            Kind::ControlFrame | Kind::DataFrame => {
                let is_data = header.kind == Kind::DataFrame;
                let lane = if is_data { Lane::Data } else { Lane::Control };
                self.receive_frame(lane, slot, payload, lend)?
            }
            Kind::Frames => self.receive_frames(slot, payload, lend)?,
            Kind::Introduction => self.receive_introduction(payload, false)?,
            Kind::IntroductionPart => self.receive_introduction(payload, true)?,
            Kind::KeepAlive if !payload.is_empty() => {
                return Err(Fault::ExcessBytes(payload.len()));
            }
            Kind::KeepAlive => false,
            Kind::Goodbye | Kind::Credit => self.receive_goodbye(payload)?,
        };
        if !is_lent {
            self.read.push(slot);
        }
        Ok(())
    }

    /// Receives a message that is a frame. True when its slot was lent.
    #[inline]
    fn receive_frame(
        &mut self,
        lane: Lane,
        slot: Slot,
        frame: &[u8],
        lend: impl FnOnce() -> Bytes,
    ) -> Result<bool, Fault> {
        if !self.wants_frames()? {
            return Ok(false);
        }
        self.reassembly.check_whole(lane, frame.len())?;
        let is_lent = frame.len() > COPY_BYTES_MAX && self.may_lend();
        let bytes = if is_lent {
            self.ring.lend(slot);
            lend().slice(HEADER_BYTES..)
        } else {
            self.copies.copy(frame)
        };
        self.give_out(Received { lane, bytes });
        Ok(is_lent)
    }

    /// Receives a message that is records. True when its slot was lent.
    fn receive_frames(
        &mut self,
        slot: Slot,
        payload: &[u8],
        lend: impl FnOnce() -> Bytes,
    ) -> Result<bool, Fault> {
        let is_wanted = self.wants_frames()?;
        if payload.is_empty() {
            return Err(Fault::NoFrame);
        }
        if !is_wanted {
            return Ok(false);
        }
        let mut loan = Loan { slot, lend: Some(lend), message: None };
        for record in Records::new(payload) {
            let Record { lane, part, range } = record?;
            let bytes = if part == Part::Whole {
                self.reassembly.check_whole(lane, range.len())?;
                self.copy_or_borrow(payload, range, &mut loan)
            } else {
                let frame = self.reassembly.put(lane, part, &payload[range])?;
                let Some(frame) = frame else { continue };
                frame
            };
            self.give_out(Received { lane, bytes });
        }
        Ok(loan.message.is_some())
    }

    /// True when frames are given out, and not dropped because this end is closing.
    #[inline]
    fn wants_frames(&self) -> Result<bool, Fault> {
        if !matches!(self.listening, Listening::Frames) {
            return Err(Fault::IntroductionOutOfPlace);
        }
        Ok(self.closing.as_ref().is_none_or(CloseReason::is_gentle))
    }

    #[inline]
    fn give_out(&mut self, frame: Received) {
        self.counters.transport.frames_received += 1;
        self.received.push(frame);
    }

    #[inline]
    fn copy_or_borrow<L: FnOnce() -> Bytes>(
        &mut self,
        payload: &[u8],
        range: Range<usize>,
        loan: &mut Loan<L>,
    ) -> Bytes {
        let borrowed = if range.len() > COPY_BYTES_MAX { self.borrow(&range, loan) } else { None };
        borrowed.unwrap_or_else(|| self.copies.copy(&payload[range]))
    }

    /// A frame as a slice of its slot; `None` while the application holds too many.
    fn borrow<L: FnOnce() -> Bytes>(
        &mut self,
        range: &Range<usize>,
        loan: &mut Loan<L>,
    ) -> Option<Bytes> {
        if loan.message.is_none() {
            if !self.may_lend() {
                return None;
            }
            let lend = loan.lend.take()?;
            self.ring.lend(loan.slot);
            loan.message = Some(lend());
        }
        let message = loan.message.as_ref()?;
        Some(message.slice(HEADER_BYTES + range.start..HEADER_BYTES + range.end))
    }

    /// True when the slot of a frame that is large enough may be lent; if not, the copy counts.
    fn may_lend(&mut self) -> bool {
        let may_lend = !self.defects.never_lends() && self.ring.may_lend();
        self.counters.copies_under_pressure += u64::from(!may_lend);
        may_lend
    }

    #[cold]
    fn receive_introduction(&mut self, payload: &[u8], has_more: bool) -> Result<bool, Fault> {
        let Listening::Introduction(introduction) = &mut self.listening else {
            return Err(Fault::IntroductionOutOfPlace);
        };
        introduction.put(payload)?;
        if !has_more {
            let addresses = introduction.finish();
            self.events.push_back(Event::Introduced(addresses));
            self.listening = Listening::Frames;
        }
        Ok(false)
    }

    #[cold]
    fn receive_goodbye(&mut self, text: &[u8]) -> Result<bool, Fault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Fault::GoodbyeTooLong(text.len()));
        }
        let text = clean_text(text);
        self.listening = Listening::Goodbye;
        self.reassembly.clear();
        self.begin_close(CloseReason::Peer(text.clone()));
        self.events.push_back(Event::Goodbye(text));
        Ok(false)
    }
}

/// The slot of a message, and all of it once lent.
struct Loan<L> {
    slot: Slot,
    lend: Option<L>,
    message: Option<Bytes>,
}

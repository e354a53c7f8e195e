//! What a link sends next, and how a message is written.

use convoke_core::transport::Lane;

use super::{Event, Link, Listening, Outbox, Pending, Speaking};
use crate::credit::Purpose;
use crate::framing::{HEADER_BYTES, Kind, TEXT_BYTES_MAX, cut_text, index};

/// After so many messages in which control frames left no room for data, data goes first.
const CONTROL_RUN_MAX: u32 = 4;

/// A message and how long it is without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Introduction { len: usize, has_more: bool },
    Frames { control: usize, data: usize },
    Goodbye { len: usize },
    Credit,
}

impl Message {
    fn kind(self) -> Kind {
        match self {
            Self::Introduction { has_more, .. } => Kind::Introduction { has_more },
            Self::Frames { .. } => Kind::Frames,
            Self::Goodbye { .. } => Kind::Goodbye,
            Self::Credit => Kind::Credit,
        }
    }

    fn len(self) -> usize {
        HEADER_BYTES
            + match self {
                Self::Introduction { len, .. } | Self::Goodbye { len } => len,
                Self::Frames { control, data } => control + data,
                Self::Credit => 0,
            }
    }
}

impl Link {
    /// Writes what may go out now, and returns how many messages that were. The last one is signalled.
    pub(crate) fn poll_send(&mut self, out: &mut impl Outbox) -> usize {
        let mut count = 0;
        let mut next = self.next_message(out.room());
        while let Some(message) = next {
            let buffer = out.buffer(message.len());
            debug_assert_eq!(buffer.len(), message.len());
            self.write(message, buffer);
            self.account.post();
            count += 1;
            next = self.next_message(out.room());
            out.post(self.account.must_signal(next.is_none()));
        }
        self.wake_writers();
        self.give_up_on_a_mute_peer();
        count
    }

    /// Decides; `room` data messages can be written.
    fn next_message(&self, room: usize) -> Option<Message> {
        if self.account.free() == 0 {
            return None;
        }
        let may_be_data = room > 0 && self.has_data_to_send();
        let data = if may_be_data { self.next_data_message() } else { None };
        data.or_else(|| self.is_credit_due().then_some(Message::Credit))
    }

    fn is_credit_due(&self) -> bool {
        !matches!(self.listening, Listening::Fault) && self.credit.wants_credit_message()
    }

    /// Mostly there is none, and one look tells: after each message it is asked for another.
    fn has_data_to_send(&self) -> bool {
        let is_opening = matches!(self.speaking, Speaking::Introducing(_));
        is_opening || self.closing.is_some() || !self.is_flushed()
    }

    fn next_data_message(&self) -> Option<Message> {
        if !self.credit.may_send(Purpose::Urgent) {
            return None;
        }
        match &self.speaking {
            Speaking::Introducing(payloads) => {
                let len = payloads.last()?.len();
                Some(Message::Introduction { len, has_more: payloads.len() > 1 })
            }
            Speaking::Frames => self.next_frames().or_else(|| self.goodbye()),
            Speaking::Silent => self.goodbye(),
            Speaking::Finished => None,
        }
    }

    /// Control frames and, in the room they leave, data.
    fn next_frames(&self) -> Option<Message> {
        let [control, data] = &self.lanes;
        let may_send_data = self.credit.may_send(Purpose::Data);
        let (control, data) = if may_send_data && self.control_run >= CONTROL_RUN_MAX {
            let data = data.measure(self.payload_max);
            (control.measure(self.payload_max - data), data)
        } else {
            let control = control.measure(self.payload_max);
            let may_ride = may_send_data || control > 0;
            (control, if may_ride { data.measure(self.payload_max - control) } else { 0 })
        };
        (control + data > 0).then_some(Message::Frames { control, data })
    }

    /// The goodbye, when everything else is out.
    fn goodbye(&self) -> Option<Message> {
        let is_due = self.closing.is_some() && self.is_flushed();
        is_due.then(|| Message::Goodbye { len: self.goodbye_text().len() })
    }

    fn goodbye_text(&self) -> String {
        let text = self.closing.as_ref().map(|reason| reason.goodbye_text()).unwrap_or_default();
        cut_text(&text, TEXT_BYTES_MAX).to_owned()
    }

    fn write(&mut self, message: Message, buffer: &mut [u8]) {
        let header = self.credit.send(message.kind());
        let (head, payload) = buffer.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        match message {
            Message::Introduction { .. } => self.write_introduction(payload),
            Message::Frames { control, .. } => self.write_frames(payload, control),
            Message::Goodbye { .. } => {
                payload.copy_from_slice(self.goodbye_text().as_bytes());
                self.speaking = Speaking::Finished;
            }
            Message::Credit => {}
        }
        self.count(message, buffer.len());
    }

    fn write_introduction(&mut self, payload: &mut [u8]) {
        let Speaking::Introducing(payloads) = &mut self.speaking else { return };
        let introduction = payloads.pop().expect("it was chosen as the next message");
        payload.copy_from_slice(&introduction);
        if payloads.is_empty() {
            self.speaking = Speaking::Frames;
        }
    }

    fn write_frames(&mut self, payload: &mut [u8], control_bytes: usize) {
        let (control, data) = payload.split_at_mut(control_bytes);
        let [control_lane, data_lane] = &mut self.lanes;
        let frames = control_lane.take(control) + data_lane.take(data);
        let is_data_left_out = data.is_empty() && !data_lane.is_empty();
        self.control_run = if is_data_left_out { self.control_run.saturating_add(1) } else { 0 };
        self.counters.transport.frames_sent += frames;
    }

    fn count(&mut self, message: Message, bytes: usize) {
        let counters = &mut self.counters;
        counters.transport.bytes_sent += bytes as u64;
        if !matches!(message, Message::Frames { .. }) {
            counters.transport.transport_frames_sent += 1;
        }
        if message.kind().is_data() {
            counters.data_messages_sent += 1;
        } else {
            counters.credit_messages_sent += 1;
        }
    }

    fn wake_writers(&mut self) {
        for lane in [Lane::Control, Lane::Data] {
            if self.lanes[index(lane)].take_writable_again() {
                self.events.push_back(Pending::Event(Event::Writable(lane)));
            }
        }
    }

    /// Nobody listens to a peer that broke the rules, so no more credit comes for the goodbye.
    fn give_up_on_a_mute_peer(&mut self) {
        let is_mute = matches!(self.listening, Listening::Fault);
        if is_mute && !self.credit.may_send(Purpose::Urgent) {
            self.speaking = Speaking::Finished;
        }
    }
}

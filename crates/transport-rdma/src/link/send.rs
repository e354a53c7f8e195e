//! Choice of what a link sends next, and the writing of a message.

use convoke_transport::Lane;
use convoke_transport::parts::{TEXT_BYTES_MAX, cut_text, index};

use super::{Event, Link, Listening, Outbox, Speaking};
use crate::credit::Purpose;
use crate::framing::{HEADER_BYTES, Kind};

/// After so many messages in which control frames left no room for data, data goes first.
const CONTROL_RUN_MAX: u32 = 4;

/// A message and how long it is without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Introduction { len: usize, has_more: bool },
    Frames { control: usize, data: usize },
    Goodbye { len: usize },
    KeepAlive,
    Credit,
}

impl Message {
    #[inline]
    fn kind(self) -> Kind {
        match self {
            Self::Introduction { has_more: false, .. } => Kind::Introduction,
            Self::Introduction { has_more: true, .. } => Kind::IntroductionPart,
            Self::Frames { .. } => Kind::Frames,
            Self::Goodbye { .. } => Kind::Goodbye,
            Self::KeepAlive => Kind::KeepAlive,
            Self::Credit => Kind::Credit,
        }
    }

    #[inline]
    fn len(self) -> usize {
        HEADER_BYTES
            + match self {
                Self::Introduction { len, .. } | Self::Goodbye { len } => len,
                Self::Frames { control, data } => control + data,
                Self::KeepAlive | Self::Credit => 0,
            }
    }
}

impl Link {
    /// Writes what may go out now, and returns how many messages that were.
    #[inline]
    pub(crate) fn poll_send(&mut self, out: &mut impl Outbox) -> usize {
        let mut count = 0;
        let mut next = self.next_message(out.room());
        while let Some(message) = next {
            let buffer = out.buffer(message.len());
            debug_assert_eq!(buffer.len(), message.len());
            self.write(message, buffer);
            self.work.post();
            count += 1;
            // A message takes all the credit there is to give with it, so mostly there is nothing
            // left to say.
            let is_last = message != Message::Credit && !self.has_data_to_send();
            next = if is_last { None } else { self.next_message(out.room()) };
            out.post(next.is_none());
        }
        self.wake_writers_of(Lane::Control);
        self.wake_writers_of(Lane::Data);
        self.give_up_on_a_mute_peer();
        count
    }

    /// The next message where its frames were encoded: when these are small ones of one lane, there
    /// is nothing else to send, and they make no more than `bytes_max`. It is to be posted at once,
    /// as the last of its batch, and needs no [`Outbox`].
    pub(crate) fn poll_send_in_place(&mut self, bytes_max: usize) -> Option<&[u8]> {
        let [control, data] = &mut self.lanes;
        let account = &mut self.account;
        let (lane, queue, purpose) =
            match (account.queued(Lane::Control), account.queued(Lane::Data)) {
                (0, 1..) => (Lane::Data, data, Purpose::Data),
                (1.., 0) => (Lane::Control, control, Purpose::Urgent),
                _ => return None,
            };
        let message = queue.in_place()?;
        let is_open = matches!(self.speaking, Speaking::Frames) && self.closing.is_none();
        let is_free = is_open && message.len() <= bytes_max && self.work.free() > 0;
        if !is_free || !self.credit.may_send(purpose) {
            return None;
        }
        self.work.post();
        self.control_run = 0;
        self.counters.transport.frames_sent += message.frames;
        self.counters.transport.bytes_sent += message.len() as u64;
        self.counters.data_messages_sent += 1;
        if queue.take_awaited() {
            self.events.push_back(Event::Writable(lane));
        }
        Some(queue.seal_in_place(account, &message, self.credit.send(message.kind)))
    }

    /// Decides; `room` data messages can be written.
    #[inline]
    fn next_message(&self, room: usize) -> Option<Message> {
        if self.work.free() == 0 {
            return None;
        }
        let may_be_data = room > 0 && self.has_data_to_send();
        let data = if may_be_data { self.next_data_message() } else { None };
        data.or_else(|| self.is_credit_due().then_some(Message::Credit))
    }

    #[inline]
    fn is_credit_due(&self) -> bool {
        !matches!(self.listening, Listening::Fault) && self.credit.wants_credit_message()
    }

    /// Mostly there is none, and one look tells: after each message it is asked for another.
    #[inline]
    fn has_data_to_send(&self) -> bool {
        let is_opening = matches!(self.speaking, Speaking::Introducing(_));
        is_opening || self.closing.is_some() || !self.is_flushed() || self.is_keep_alive_due
    }

    #[inline]
    fn next_data_message(&self) -> Option<Message> {
        if !self.credit.may_send(Purpose::Urgent) {
            return None;
        }
        match &self.speaking {
            Speaking::Introducing(payloads) => {
                let len = payloads.last()?.len();
                Some(Message::Introduction { len, has_more: payloads.len() > 1 })
            }
            Speaking::Frames => match self.next_frames() {
                None if self.closing.is_some() => self.goodbye(),
                None if self.is_keep_alive_due => Some(Message::KeepAlive),
                frames => frames,
            },
            Speaking::Silent => self.goodbye(),
            Speaking::Finished => None,
        }
    }

    /// Control frames and, in the room they leave, data.
    #[inline]
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
    #[cold]
    fn goodbye(&self) -> Option<Message> {
        let is_due = self.closing.is_some() && self.is_flushed();
        is_due.then(|| Message::Goodbye { len: self.goodbye_text().len() })
    }

    fn goodbye_text(&self) -> String {
        let text = self.closing.as_ref().map(|reason| reason.goodbye_text()).unwrap_or_default();
        cut_text(&text, TEXT_BYTES_MAX).to_owned()
    }

    #[inline]
    fn write(&mut self, message: Message, buffer: &mut [u8]) {
        let header = self.credit.send(message.kind());
        let (head, payload) = buffer.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        match message {
            Message::Introduction { .. } => self.write_introduction(payload),
            Message::Frames { control, .. } => self.write_frames(payload, control),
            Message::Goodbye { .. } => self.write_goodbye(payload),
            Message::KeepAlive | Message::Credit => {}
        }
        self.count(message, buffer.len());
    }

    #[cold]
    fn write_introduction(&mut self, payload: &mut [u8]) {
        let Speaking::Introducing(payloads) = &mut self.speaking else { return };
        let introduction = payloads.pop().expect("it was chosen as the next message");
        payload.copy_from_slice(&introduction);
        if payloads.is_empty() {
            self.speaking = Speaking::Frames;
        }
    }

    #[cold]
    fn write_goodbye(&mut self, payload: &mut [u8]) {
        payload.copy_from_slice(self.goodbye_text().as_bytes());
        self.speaking = Speaking::Finished;
    }

    #[inline]
    fn write_frames(&mut self, payload: &mut [u8], control_bytes: usize) {
        let (control, data) = payload.split_at_mut(control_bytes);
        let [control_lane, data_lane] = &mut self.lanes;
        let account = &mut self.account;
        let spent = &mut self.spent;
        let frames =
            control_lane.take(account, control, spent) + data_lane.take(account, data, spent);
        let is_data_left_out = data.is_empty() && account.queued(Lane::Data) > 0;
        self.control_run = if is_data_left_out { self.control_run.saturating_add(1) } else { 0 };
        self.counters.transport.frames_sent += frames;
    }

    #[inline]
    fn count(&mut self, message: Message, bytes: usize) {
        // Any message says as much.
        self.is_keep_alive_due = false;
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

    #[inline]
    fn wake_writers_of(&mut self, lane: Lane) {
        if self.lanes[index(lane)].take_writable_again(&self.account) {
            self.events.push_back(Event::Writable(lane));
        }
    }

    /// Nobody listens to a peer that broke the rules, so no more credit comes for the goodbye.
    #[inline]
    fn give_up_on_a_mute_peer(&mut self) {
        let is_mute = matches!(self.listening, Listening::Fault);
        if is_mute && !self.credit.may_send(Purpose::Urgent) {
            self.speaking = Speaking::Finished;
        }
    }
}

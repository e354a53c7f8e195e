//! The reader task of a connection: it owns the connection's life from the first frame to
//! `on_closed`.
//!
//! Frames are slices of the datagrams they came in. One that is spread over several is put
//! together, and a large one is read by a task of its own ([`LargeFrames`]). While one is not
//! complete, the [`Backlog`] decides which later frames pass it.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::parts::{LifeTerms, Lifetime, hand_to};
use convoke_transport::{CloseReason, Connection, Lane, ORDER_HEAD_BYTES, Received, Sink};
use quinn::{ConnectionError, ReadError, RecvStream};
use tokio::time::{Instant, sleep_until};

use crate::quic::backlog::Backlog;
use crate::quic::connection::{QuicConnection, close_reason};
use crate::quic::framing::{Decoder, Fault, Item, LaneRules};
use crate::quic::handshake::Streams;
use crate::quic::large::{Arrived, LargeError, LargeFrames};
use crate::quic::writer;

/// Number of pieces that one read takes at most; a piece is what one packet brought.
const PIECES: usize = 32;

/// Terms that the two ends agreed on, as far as receiving goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) frame_bytes_max: usize,
    pub(crate) inline_bytes_max: usize,
    pub(crate) large_frames_max: usize,
    pub(crate) large_bytes_max: usize,
    pub(crate) held_bytes_max: usize,
    pub(crate) life: LifeTerms,
}

/// Carries frames from now on. The hello is out.
pub(crate) fn start(
    mut lifetime: Lifetime<QuicConnection>,
    streams: Streams,
    terms: Terms,
) -> Arc<dyn Connection> {
    let (connection, handle) = (Arc::clone(lifetime.connection()), Arc::clone(lifetime.handle()));
    lifetime.accompany(tokio::spawn(writer::run(Arc::clone(&connection))).abort_handle());
    let Streams { control: (send_control, control), data: (send_data, data) } = streams;
    connection.start(send_control, send_data);
    tokio::spawn(Reader::new(lifetime, [control, data], terms).run());
    handle
}

struct Reader {
    lifetime: Lifetime<QuicConnection>,
    control: LaneIn,
    data: LaneIn,
    backlog: Backlog,
    large: LargeFrames,
    terms: Terms,
    /// The last time this task is known to have run on time.
    last_tick: Instant,
    ending: Option<Ending>,
    /// The peer's last word, and until when its frames from before may still come.
    goodbye: Option<(String, Instant)>,
    lost: Option<ConnectionError>,
    /// The peer has all that this end has sent, its goodbye included.
    has_all_arrived: bool,
}

/// The connection is closing; the streams are read until the peer closes too, or the grace is over.
struct Ending {
    reason: CloseReason,
    deadline: Instant,
}

struct LaneIn {
    lane: Lane,
    stream: RecvStream,
    decoder: Decoder,
    pieces: [Bytes; PIECES],
    is_finished: bool,
}

enum Event {
    Signal,
    Read(Lane, Result<Option<usize>, ReadError>),
    Large(Result<Arrived, LargeError>),
    AllArrived,
    Timer,
}

impl Reader {
    fn new(
        lifetime: Lifetime<QuicConnection>,
        [control, data]: [RecvStream; 2],
        terms: Terms,
    ) -> Self {
        let Terms { frame_bytes_max, inline_bytes_max, .. } = terms;
        let connection = Arc::clone(lifetime.connection());
        Self {
            lifetime,
            control: LaneIn::new(Lane::Control, control, frame_bytes_max, frame_bytes_max),
            data: LaneIn::new(Lane::Data, data, frame_bytes_max, inline_bytes_max),
            backlog: Backlog::new(terms.held_bytes_max),
            large: LargeFrames::new(connection, terms.large_frames_max, terms.large_bytes_max),
            terms,
            last_tick: Instant::now(),
            ending: None,
            goodbye: None,
            lost: None,
            has_all_arrived: false,
        }
    }

    async fn run(mut self) {
        let connection = Arc::clone(self.lifetime.connection());
        let mut signal = pin!(connection.reader_signal.notified());
        let mut arriving = pin!(connection.all_arrived());
        let mut timer = pin!(sleep_until(self.deadline()));
        let reason = loop {
            let (is_large_due, held) = (!self.large.is_idle(), self.backlog.held_bytes());
            let is_data_due = !self.data.is_finished && !self.backlog.is_full();
            let event = tokio::select! {
                biased;
                () = signal.as_mut() => Event::Signal,
                read = self.control.read(), if !self.control.is_finished => {
                    Event::Read(Lane::Control, read)
                }
                large = self.large.next(held), if is_large_due => Event::Large(large),
                read = self.data.read(), if is_data_due => Event::Read(Lane::Data, read),
                () = arriving.as_mut(), if self.is_arrival_due() => Event::AllArrived,
                () = timer.as_mut() => Event::Timer,
            };
            let end = match event {
                Event::Signal => {
                    signal.set(connection.reader_signal.notified());
                    self.on_signal()
                }
                Event::AllArrived => {
                    self.has_all_arrived = true;
                    None
                }
                Event::Timer => self.on_timer(),
                Event::Read(lane, read) => self.on_read(lane, read),
                Event::Large(large) => self.on_large(large),
            };
            if let Some(reason) = end.or_else(|| self.end_if_all_is_there()) {
                break reason;
            }
            if timer.is_elapsed() || self.deadline() < timer.deadline() {
                timer.as_mut().reset(self.deadline());
            }
            // Reading does not count against the task's budget by itself.
            tokio::task::coop::consume_budget().await;
        };
        self.lifetime.end(reason);
    }

    /// Something outside wants the end.
    fn on_signal(&mut self) -> Option<CloseReason> {
        let view = self.lifetime.connection().closing()?;
        if !view.is_delivering {
            return Some(view.reason);
        }
        if self.ending.is_none() {
            let deadline = Instant::now() + self.terms.life.close_grace;
            self.ending = Some(Ending { reason: view.reason, deadline });
        }
        None
    }

    fn on_timer(&mut self) -> Option<CloseReason> {
        let now = Instant::now();
        self.end_if_due(now).or_else(|| {
            self.last_tick = now;
            None
        })
    }

    /// Reason of an end whose time has come. Asked before anything is delivered, too: to a peer
    /// that always has more to read the timer never comes.
    fn end_if_due(&self, now: Instant) -> Option<CloseReason> {
        let end = match (&self.ending, &self.goodbye) {
            (Some(ending), _) if ending.deadline <= now => Some(ending.reason.clone()),
            (None, Some((text, deadline))) if *deadline <= now => {
                Some(CloseReason::Peer(text.clone()))
            }
            _ => None,
        };
        end.or_else(|| self.end_if_paused(now))
    }

    /// Had this process been running, QUIC would have closed the connection: what has waited in the
    /// socket meanwhile may be too old to act on.
    fn end_if_paused(&self, now: Instant) -> Option<CloseReason> {
        let is_paused = self.last_tick + self.terms.life.keep_alive_timeout < now;
        is_paused.then(|| match &self.ending {
            Some(ending) => ending.reason.clone(),
            None => CloseReason::Stale,
        })
    }

    fn on_read(
        &mut self,
        lane: Lane,
        read: Result<Option<usize>, ReadError>,
    ) -> Option<CloseReason> {
        let own = if lane == Lane::Control { &mut self.control } else { &mut self.data };
        match read {
            Ok(Some(count)) => {
                self.lifetime.connection().count_read(own.bytes(count));
                self.deliver_lane(lane, count)
            }
            Ok(None) => {
                own.is_finished = true;
                let is_whole = own.decoder.is_between_items();
                let is_said = lane == Lane::Control || own.decoder.is_ended();
                (!is_whole || !is_said).then(|| self.end_of_network("it left without a goodbye"))
            }
            Err(ReadError::ConnectionLost(lost)) => {
                own.is_finished = true;
                self.lost = Some(lost);
                None
            }
            Err(_) => Some(CloseReason::Fault(Fault::LaneGivenUp.to_string())),
        }
    }

    fn on_large(&mut self, large: Result<Arrived, LargeError>) -> Option<CloseReason> {
        match large {
            Ok(Arrived { number, frame }) => {
                let frames = self.backlog.complete(number, frame);
                self.end_if_due(Instant::now()).or_else(|| self.hand_over(frames))
            }
            Err(LargeError::Fault(fault)) => Some(CloseReason::Fault(fault.to_string())),
            // Of what came before the goodbye, some may be here whole.
            Err(LargeError::Lost(lost)) if self.goodbye.is_some() => {
                self.large.accept_no_more();
                self.lost = Some(lost);
                None
            }
            Err(LargeError::Lost(lost)) => Some(self.end_by_loss(&lost)),
        }
    }

    /// Hands the whole frames of a lane's pieces to the sink.
    fn deliver_lane(&mut self, lane: Lane, count: usize) -> Option<CloseReason> {
        if let Some(reason) = self.end_if_due(Instant::now()) {
            return Some(reason);
        }
        let own = if lane == Lane::Control { &mut self.control } else { &mut self.data };
        let mut frames = Frames {
            lane: own,
            next: 0,
            count,
            sink: self.lifetime.sink(),
            backlog: &mut self.backlog,
            large: &mut self.large,
            delivered: 0,
            stop: None,
        };
        let refused = hand_to(self.lifetime.sink(), self.lifetime.handle(), &mut frames);
        let (delivered, stop) = (frames.delivered, frames.stop);
        self.lifetime.connection().count_delivered(delivered);
        // Taken again, since the time the sink takes is not the peer's.
        self.last_tick = Instant::now();
        if let Err(text) = refused {
            return Some(CloseReason::Fault(text));
        }
        match stop? {
            Stop::Fault(fault) => Some(CloseReason::Fault(fault.to_string())),
            Stop::Goodbye(text) => {
                self.data.is_finished = true;
                self.goodbye = Some((text, Instant::now() + self.terms.life.close_grace));
                None
            }
        }
    }

    fn hand_over(&mut self, frames: Vec<Bytes>) -> Option<CloseReason> {
        let (begun, count) = (Instant::now(), frames.len());
        let mut frames = frames.into_iter().map(|bytes| Received { lane: Lane::Data, bytes });
        let refused = hand_to(self.lifetime.sink(), self.lifetime.handle(), &mut frames);
        self.lifetime.connection().count_delivered(count);
        self.last_tick = Instant::now();
        // Those that were announced before the goodbye are counted: there is an end to them.
        if let Some((_, deadline)) = &mut self.goodbye {
            *deadline += self.last_tick - begun;
        }
        refused.err().map(CloseReason::Fault)
    }

    /// A gentle close waits for what it still sends, though the peer has said goodbye, too.
    fn is_arrival_due(&self) -> bool {
        self.ending.is_some() && self.goodbye.is_some() && !self.has_all_arrived
    }

    /// Reason of the end once nothing can come any more that was sent before it, and all that this
    /// end has to send has arrived.
    fn end_if_all_is_there(&mut self) -> Option<CloseReason> {
        if !self.control.is_finished || !self.data.is_finished {
            return None;
        }
        // The signal of a close may still be on its way.
        if let Some(reason) = self.on_signal() {
            return Some(reason);
        }
        if self.is_arrival_due() && self.lost.is_none() {
            return None;
        }
        match (&self.goodbye, &self.lost) {
            (Some((text, _)), lost)
                if self.backlog.is_empty() || (lost.is_some() && self.large.is_idle()) =>
            {
                Some(match &self.ending {
                    Some(ending) => ending.reason.clone(),
                    None => CloseReason::Peer(text.clone()),
                })
            }
            (None, Some(lost)) => Some(self.end_by_loss(lost)),
            _ => None,
        }
    }

    fn end_by_loss(&self, lost: &ConnectionError) -> CloseReason {
        let ending = self.lifetime.connection().closing();
        match (&self.ending, ending) {
            (Some(ending), _) => ending.reason.clone(),
            (None, Some(view)) => view.reason,
            (None, None) => close_reason(lost),
        }
    }

    fn end_of_network(&self, message: &str) -> CloseReason {
        match &self.ending {
            Some(ending) => ending.reason.clone(),
            None => CloseReason::Network(message.to_owned()),
        }
    }

    /// When the timer matters next.
    fn deadline(&self) -> Instant {
        let tick = self.last_tick + self.terms.life.keep_alive_timeout / 3;
        // A close of this end's own leaves a peer that has said goodbye the grace of the close.
        let due = match (&self.ending, &self.goodbye) {
            (Some(ending), _) => ending.deadline,
            (None, Some((_, deadline))) => *deadline,
            (None, None) => tick,
        };
        tick.min(due)
    }
}

impl LaneIn {
    fn new(
        lane: Lane,
        stream: RecvStream,
        frame_bytes_max: usize,
        inline_bytes_max: usize,
    ) -> Self {
        Self {
            lane,
            stream,
            decoder: Decoder::new(LaneRules { lane, frame_bytes_max, inline_bytes_max }),
            pieces: [const { Bytes::new() }; PIECES],
            is_finished: false,
        }
    }

    /// Takes what is there; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped before it is ready.
    async fn read(&mut self) -> Result<Option<usize>, ReadError> {
        self.stream.read_chunks(&mut self.pieces).await
    }

    fn bytes(&self, count: usize) -> usize {
        self.pieces[..count].iter().map(Bytes::len).sum()
    }
}

/// Reason why no more frames are decoded.
#[derive(Debug)]
enum Stop {
    Fault(Fault),
    Goodbye(String),
}

/// The frames of one read, decoded as the sink takes them.
struct Frames<'a> {
    lane: &'a mut LaneIn,
    /// The piece being decoded, and how many there are.
    next: usize,
    count: usize,
    sink: &'a dyn Sink,
    backlog: &'a mut Backlog,
    large: &'a mut LargeFrames,
    /// Number that went to the sink.
    delivered: usize,
    stop: Option<Stop>,
}

impl Frames<'_> {
    fn advance(&mut self) -> Result<Option<Bytes>, Stop> {
        while self.next < self.count {
            let LaneIn { decoder, pieces, .. } = &mut *self.lane;
            let item = decoder.decode(&mut pieces[self.next]).map_err(Stop::Fault)?;
            match item {
                None => self.next += 1,
                Some(Item::Frame(frame)) => {
                    if let Some(frame) = self.pass(frame) {
                        return Ok(Some(frame));
                    }
                }
                Some(Item::Large { head, len }) => {
                    let number = self.backlog.announce(self.sink.order(&head));
                    self.large.announce(number, &head, len);
                }
                Some(Item::Goodbye(text)) => return Err(Stop::Goodbye(text)),
            }
        }
        Ok(None)
    }

    /// The frame, unless it has to wait for a large one.
    fn pass(&mut self, frame: Bytes) -> Option<Bytes> {
        if self.lane.lane == Lane::Control {
            return Some(frame);
        }
        let order = |frame: &[u8]| self.sink.order(&frame[..frame.len().min(ORDER_HEAD_BYTES)]);
        self.backlog.offer(frame, order)
    }
}

impl Iterator for Frames<'_> {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        if self.stop.is_some() {
            return None;
        }
        match self.advance() {
            Ok(frame) => frame.map(|bytes| {
                self.delivered += 1;
                Received { lane: self.lane.lane, bytes }
            }),
            Err(stop) => {
                self.stop = Some(stop);
                None
            }
        }
    }
}

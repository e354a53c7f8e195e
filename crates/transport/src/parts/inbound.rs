//! Receiving side of a connection: from bytes to frames that the sink takes, with the credit they
//! cost.
//!
//! It holds, per lane, the part of a frame that has come so far; frames are slices of what was
//! read, and one of several chunks is put together in its own.

use std::sync::Arc;

use super::chunk::{Decoder, Fault, Input, Item, Words};
use super::credit::ReceiveCredit;
use super::lanes::{LANES, index};
use super::life::Stop;
use super::lifetime::{Carrier, Lifetime};
use crate::{Connection, Lane, Received, Sink};

/// Frames that the sink is given at once. A read may bring hundreds, each of which may start a
/// handler: after so many others have their turn. Not so few that calls in flight together lose the
/// writes that they share.
pub const FRAMES_PER_TURN: usize = 128;

/// Decoder of a connection and the credit that it granted.
#[derive(Debug)]
pub struct Inbound {
    decoder: Decoder,
    credit: Option<[ReceiveCredit; 2]>,
    /// Cost of the data that was put aside behind a valve that is shut.
    withheld: u32,
}

/// Place between a reader and its sink where data frames may have to wait. While some do, the
/// reader goes on, and data that comes gives no credit back: so no more waits than the peer was
/// granted. The control lane passes, and has its credit back at once.
pub trait Valve: Send + Sync + 'static {
    /// False where no frame ever waits.
    const HOLDS: bool;

    /// True while frames wait.
    fn is_shut(&self) -> bool;

    /// Hands over what need not wait any longer.
    ///
    /// # Errors
    /// The sink's text when the peer broke the call protocol.
    fn resume(&self) -> Result<(), String>;
}

/// Nothing waits anywhere.
#[derive(Clone, Copy, Debug)]
pub struct NoValve;

impl Valve for NoValve {
    const HOLDS: bool = false;

    fn is_shut(&self) -> bool {
        false
    }

    fn resume(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Outcome of a delivery.
#[derive(Debug)]
pub struct Delivered {
    /// Reason why nothing more is to be delivered, if so.
    pub stop: Option<Stop>,
    /// The turn was over before the bytes were.
    pub has_more: bool,
}

impl Inbound {
    /// For frames and chunks up to these sizes, with credit for so much per lane, or none.
    pub fn new(frame_bytes_max: u32, chunk_bytes_max: u32, windows: Option<[u32; 2]>) -> Self {
        let credit =
            |windows: [u32; 2]| LANES.map(|lane| ReceiveCredit::new(lane, windows[index(lane)]));
        let decoder = Decoder::new(Words::of(windows), frame_bytes_max, chunk_bytes_max);
        Self { decoder, credit: windows.map(credit), withheld: 0 }
    }

    /// True when more waits behind the valve than the peer was granted, as it may after the goodbye
    /// of this end: nothing more is to be read until some is [released](Self::release).
    pub fn is_full(&self) -> bool {
        let data = self.credit.as_ref().map(|credit| &credit[index(Lane::Data)]);
        data.is_some_and(|data| data.is_beyond(self.withheld))
    }

    /// Number of bytes that the chunk at the front of `input` still needs; at least 1.
    pub fn missing(&self, input: &[u8]) -> usize {
        self.decoder.missing(input)
    }

    /// Hands the whole frames of `input`, at most `frames_max`, to the sink, and what they cost
    /// back to the peer.
    #[inline]
    pub fn deliver<C: Carrier>(
        &mut self,
        input: &mut impl Input,
        frames_max: usize,
        lifetime: &Lifetime<C>,
    ) -> Delivered {
        self.deliver_through(&NoValve, input, frames_max, lifetime)
    }

    /// The same, where the sink is a valve before another.
    pub fn deliver_through<C: Carrier, V: Valve>(
        &mut self,
        valve: &V,
        input: &mut impl Input,
        frames_max: usize,
        lifetime: &Lifetime<C>,
    ) -> Delivered {
        let connection = &**lifetime.connection();
        let mut frames = Frames {
            connection,
            inbound: self,
            input,
            left: frames_max,
            count: 0,
            taken: [0; 2],
            is_flush_due: false,
            stop: None,
        };
        let refused = hand_to(lifetime.sink(), lifetime.handle(), &mut frames);
        frames.tell_count(); // Where the sink has left some.
        let Frames { left, mut taken, mut is_flush_due, stop, .. } = frames;
        if V::HOLDS {
            let data = &mut taken[index(Lane::Data)];
            *data += std::mem::take(&mut self.withheld);
            if valve.is_shut() {
                self.withheld = std::mem::take(data);
            }
        }
        let given_back = self.give_back(taken, connection);
        is_flush_due |= given_back == Ok(true);
        if is_flush_due {
            connection.flush();
        }
        let overrun = given_back.err().map(Stop::from);
        let stop = refused.err().map(Stop::Fault).or(stop).or(overrun);
        Delivered { stop, has_more: left == 0 }
    }

    /// Gives back what was withheld, now that nothing waits.
    ///
    /// # Errors
    /// [`Fault::CreditOverrun`] when the peer has sent more than it can have been granted.
    pub fn release(&mut self, connection: &impl Carrier) -> Result<(), Fault> {
        let mut taken = [0; 2];
        taken[index(Lane::Data)] = std::mem::take(&mut self.withheld);
        if self.give_back(taken, connection)? {
            connection.flush();
        }
        Ok(())
    }

    /// True when a flush is due.
    fn give_back(&mut self, taken: [u32; 2], connection: &impl Carrier) -> Result<bool, Fault> {
        let mut is_flush_due = false;
        if let Some(credit) = &mut self.credit {
            for lane in LANES {
                let credit = &mut credit[index(lane)];
                if let Some(bytes) = credit.take(taken[index(lane)]) {
                    let due = connection.return_credit(lane, bytes);
                    // Of a window, what has not left cannot have been used again.
                    if credit.is_beyond(due) {
                        lift_or(Fault::CreditOverrun(lane), credit, connection)?;
                    }
                    is_flush_due = true;
                }
            }
        }
        Ok(is_flush_due)
    }
}

/// The fault of a peer that went beyond its credit, unless it need not have any: who hears the
/// goodbye of this end, behind which no credit goes out, sends its rest without.
fn lift_or(
    fault: Fault,
    credit: &mut ReceiveCredit,
    connection: &impl Carrier,
) -> Result<(), Fault> {
    let closing = connection.closing().filter(|closing| closing.reason.is_gentle());
    closing.map(|_| credit.lift()).ok_or(fault)
}

/// Calls the sink if there is a frame; what it leaves in the iterator is dropped.
///
/// # Errors
/// The sink's text when the peer broke the call protocol.
#[inline]
pub fn hand_to(
    sink: &dyn Sink,
    from: &Arc<dyn Connection>,
    frames: &mut impl Iterator<Item = Received>,
) -> Result<(), String> {
    let mut frames = frames.peekable();
    if frames.peek().is_some() {
        sink.on_batch(from, &mut frames)?;
        frames.for_each(drop);
    }
    Ok(())
}

/// Frames of one read, decoded as the sink takes them; the transport's own chunks are handled here.
struct Frames<'a, C, I> {
    connection: &'a C,
    inbound: &'a mut Inbound,
    input: &'a mut I,
    /// Number of frames that there may still be now.
    left: usize,
    /// Number of them that came and are not counted yet.
    count: u64,
    /// Credit to give back per lane once the sink has returned.
    taken: [u32; 2],
    is_flush_due: bool,
    stop: Option<Stop>,
}

impl<C: Carrier, I: Input> Frames<'_, C, I> {
    /// Handles items until one is a frame for the sink.
    #[inline]
    fn advance(&mut self) -> Result<Option<Received>, Stop> {
        while let Some(item) = self.inbound.decoder.decode(self.input)? {
            match item {
                Item::Frame { lane, bytes, cost } => {
                    self.charge(index(lane), cost)?;
                    self.count += 1;
                    return Ok(Some(Received { lane, bytes }));
                }
                // Given back before the frame is whole, or a frame above the window would be stuck;
                // what is put aside is bounded by the largest frame.
                Item::Part { lane, cost } => self.charge(index(lane), cost)?,
                Item::Credit { lane, bytes } => {
                    self.connection.grant(lane, bytes)?;
                    self.is_flush_due = true;
                }
                Item::KeepAlive => {}
                Item::Goodbye(text) => return Err(Stop::Goodbye(text)),
            }
        }
        Ok(None)
    }

    /// Counts what came. Once for all, and before the sink tells anybody of the last of them.
    fn tell_count(&mut self) {
        self.connection.counts().frames_received.add(std::mem::take(&mut self.count));
    }

    #[inline]
    fn charge(&mut self, lane: usize, cost: u32) -> Result<(), Fault> {
        if let Some(credit) = &mut self.inbound.credit {
            if let Err(fault) = credit[lane].receive(cost) {
                lift_or(fault, &mut credit[lane], self.connection)?;
            }
            self.taken[lane] += cost;
        }
        Ok(())
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.to_string())
    }
}

impl<C: Carrier, I: Input> Iterator for Frames<'_, C, I> {
    type Item = Received;

    #[inline]
    fn next(&mut self) -> Option<Received> {
        let mut next = None;
        if self.stop.is_none() && self.left > 0 {
            self.left -= 1;
            next = self.advance().unwrap_or_else(|stop| {
                self.stop = Some(stop);
                None
            });
        }
        if next.is_none() {
            self.tell_count();
        }
        next
    }
}

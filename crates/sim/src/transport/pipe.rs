//! One direction of a connection, without I/O: what waits for credit, and what is on its way.
//!
//! ```text
//!  append ──▶ queued ──(flush, credit)──▶ on its way ──(due, not held)──▶ the other end's sink
//!               └── goodbye when empty ──────▶ end                             │
//!                         credit  ◀────────────────── the sink has returned ───┘
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use convoke_transport::{Appended, Lane, NotWritable};
use tokio::time::Instant;

use super::hook::HookId;

/// Bytes that a frame costs beyond its own, in buffers, windows, bandwidth and counters; so that
/// frames without content are bounded too.
pub(crate) const FRAME_OVERHEAD_BYTES: usize = 16;

/// The bounds of a lane, in bytes. Those of the TCP transport's defaults, so that what stalls there
/// stalls here.
#[derive(Clone, Copy, Debug)]
struct LaneLimits {
    /// Bytes that may be on their way or with the sink. A frame above it goes alone.
    window: usize,
    /// From here on the lane is not writable.
    soft: usize,
    /// At least; what a writable lane takes is never refused.
    hard: usize,
}

const CONTROL: LaneLimits = LaneLimits { window: 64 << 10, soft: 512 << 10, hard: 1 << 20 };
const DATA: LaneLimits = LaneLimits { window: 1 << 20, soft: 1 << 20, hard: 16 << 20 };

/// Both lanes, the urgent one first.
pub(crate) const LANES: [Lane; 2] = [Lane::Control, Lane::Data];

pub(crate) const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Control => 0,
        Lane::Data => 1,
    }
}

/// End of a direction, for who listens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PipeEnd {
    /// With a text.
    Goodbye(String),
    /// Without: its sender is gone.
    Reset(String),
}

/// Treatment of one frame by the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    Arrives(Instant),
    /// When shows later, and is told to [`Pipe::arrive`].
    Carried,
    Lost,
}

/// A frame that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) lane: Lane,
    pub(crate) bytes: Bytes,
    /// Bytes of the window that come back when it is taken.
    pub(crate) cost: usize,
    /// The last hook that has seen it, or 0.
    pub(crate) passed: HookId,
}

/// A frame that a hook holds; it keeps its part of the window.
#[derive(Debug)]
struct Held {
    frame: Arrived,
    until: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    frame_bytes_max: usize,
    lanes: [LaneQueue; 2],
    goodbye: Option<String>,
    end: Option<(Instant, PipeEnd)>,
    /// Its sender is gone, and nobody says so. Something of it has arrived then, or may have, last.
    gone_at: Option<Instant>,
    /// Nothing arrives since then.
    held_since: Option<Instant>,
    /// Nothing has arrived since then; until then, once it may again.
    silence: Option<(Instant, Option<Instant>)>,
    /// Taken out of the line by hooks, in the order in which they came.
    held: Vec<Held>,
}

#[derive(Debug)]
struct LaneQueue {
    limits: LaneLimits,
    queued: VecDeque<Bytes>,
    queued_bytes: usize,
    /// On their way through the hose, with an arrival that is not known yet.
    carried: VecDeque<Bytes>,
    coming: VecDeque<(Instant, Bytes)>,
    /// On their way or with the sink.
    unreturned_bytes: usize,
    last_due: Option<Instant>,
}

impl Pipe {
    pub(crate) fn new(frame_bytes_max: usize, held_since: Option<Instant>) -> Self {
        Self {
            frame_bytes_max,
            lanes: [CONTROL, DATA].map(|limits| LaneQueue::new(limits, frame_bytes_max)),
            goodbye: None,
            end: None,
            gone_at: None,
            held_since,
            silence: held_since.map(|since| (since, None)),
            held: Vec::new(),
        }
    }

    /// Checks if a frame of `len` bytes would be taken.
    pub(crate) fn admit(&self, lane: Lane, len: usize) -> Result<(), NotWritable> {
        if len > self.frame_bytes_max {
            return Err(NotWritable::TooLarge { size: len, limit: self.frame_bytes_max });
        }
        let queue = &self.lanes[index(lane)];
        let is_full = queue.queued_bytes + cost(len) > queue.limits.hard;
        if is_full && queue.queued_bytes > 0 { Err(NotWritable::Full) } else { Ok(()) }
    }

    /// Takes a frame that was admitted.
    pub(crate) fn append(&mut self, lane: Lane, frame: Bytes) -> Appended {
        let queue = &mut self.lanes[index(lane)];
        queue.queued_bytes += cost(frame.len());
        queue.queued.push_back(frame);
        if self.is_writable(lane) { Appended::Writable } else { Appended::Full }
    }

    /// Sends what has credit. `depart` says when a frame of this cost arrives. `false` when one was
    /// lost, and with it the connection.
    pub(crate) fn pump(&mut self, mut depart: impl FnMut(Lane, usize) -> Departure) -> bool {
        for lane in LANES {
            let queue = &mut self.lanes[index(lane)];
            while let Some(frame) = queue.next_with_credit() {
                let bytes = cost(frame.len());
                match depart(lane, bytes) {
                    Departure::Arrives(due) => queue.send(due, frame),
                    Departure::Carried => queue.carried.push_back(frame),
                    Departure::Lost => return false,
                }
            }
        }
        true
    }

    /// The oldest frame that is carried on this lane arrives.
    pub(crate) fn arrive(&mut self, lane: Lane, due: Instant) {
        let queue = &mut self.lanes[index(lane)];
        if let Some(frame) = queue.carried.pop_front() {
            queue.send(due, frame);
        }
    }

    /// Ends the direction after what was appended, or instead of it.
    pub(crate) fn close(&mut self, text: String, is_kept: bool) {
        if !is_kept {
            self.lanes.iter_mut().for_each(LaneQueue::drop_queued);
        }
        if self.end.is_none() {
            self.goodbye.get_or_insert(text);
        }
    }

    /// Sends the goodbye once nothing is queued; it arrives at `due` or after the last frame.
    /// True when it did so now.
    pub(crate) fn pump_goodbye(&mut self, due: Instant) -> bool {
        if !self.is_flushed() {
            return false;
        }
        let Some(text) = self.goodbye.take() else { return false };
        self.end_at(due, PipeEnd::Goodbye(text));
        true
    }

    /// Ends the direction behind what is on its way.
    pub(crate) fn end_at(&mut self, due: Instant, end: PipeEnd) {
        if self.gone_at.is_some() {
            return; // A later life of the sender does not speak for it.
        }
        self.lanes.iter_mut().for_each(LaneQueue::drop_queued);
        self.goodbye = None;
        let last = self.behind_all(due);
        self.end.get_or_insert((last, end));
    }

    /// `due`, or the time at which the last of what is on its way arrives, if that is later.
    fn behind_all(&self, due: Instant) -> Instant {
        self.lanes.iter().filter_map(|queue| queue.last_due).fold(due, Instant::max)
    }

    /// Ends the direction behind what is on its way, in silence.
    pub(crate) fn vanish(&mut self, due: Instant) {
        self.lanes.iter_mut().for_each(LaneQueue::drop_queued);
        self.goodbye = None;
        let last = self.behind_all(due);
        self.gone_at.get_or_insert(last);
    }

    /// Drops everything: nobody listens any more.
    pub(crate) fn clear(&mut self) {
        for queue in &mut self.lanes {
            queue.drop_queued();
            queue.carried.clear();
            queue.coming.clear();
        }
        self.held.clear();
    }

    /// Lets nothing arrive from now on.
    pub(crate) fn hold(&mut self, now: Instant) {
        if self.held_since.is_none() {
            self.held_since = Some(now);
            self.silence = Some((self.silent_since(now).unwrap_or(now), None));
        }
    }

    /// Lets everything arrive again, from `due` on.
    pub(crate) fn release(&mut self, due: Instant) {
        let Some(held_since) = self.held_since.take() else { return };
        // A keep-alive is what comes then, if nothing else does.
        self.silence = self.silence.map(|(since, _)| (since, Some(due)));
        for queue in &mut self.lanes {
            queue.coming.iter_mut().for_each(|(at, _)| *at = due.max(*at));
            queue.last_due = queue.last_due.map(|last| last.max(due));
        }
        self.held.iter_mut().flat_map(|held| &mut held.until).for_each(|at| *at = due.max(*at));
        if let Some((at, _)) = &mut self.end {
            *at = due.max(*at);
        }
        if let Some(at) = self.gone_at.as_mut().filter(|at| **at > held_since) {
            *at = due.max(*at);
        }
    }

    /// Takes a frame that has arrived out of the line, until then or until it is let go.
    pub(crate) fn keep_back(&mut self, frame: Arrived, until: Option<Instant>) {
        self.held.push(Held { frame, until });
    }

    /// Lets what a hook holds arrive now. How many frames.
    pub(crate) fn let_go(&mut self, hook: HookId, now: Instant) -> usize {
        let of_hook = self.held.iter_mut().filter(|held| held.frame.passed == hook);
        of_hook.map(|held| held.until = Some(now)).count()
    }

    pub(crate) fn held_by(&self, hook: HookId) -> usize {
        self.held.iter().filter(|held| held.frame.passed == hook).count()
    }

    /// Largest frame that its receiver takes.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// When it began that nothing arrives. A partition that was healed ends it with what arrives
    /// next, at the earliest one latency later.
    pub(crate) fn silent_since(&self, now: Instant) -> Option<Instant> {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let silence = self.silence.filter(|(_, until)| !is_over(*until));
        silence.map(|(since, _)| since).or(self.gone_at)
    }

    /// Takes what has arrived, control first, and of a lane what was held first.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Arrived> {
        let mut arrived = Vec::new();
        if self.held_since.is_some() {
            return arrived;
        }
        for lane in LANES {
            let is_due = |held: &mut Held| held.frame.lane == lane && held.is_due(now);
            arrived.extend(self.held.extract_if(.., is_due).map(|held| held.frame));
            let coming = &mut self.lanes[index(lane)].coming;
            let due_count = coming.iter().take_while(|(due, _)| *due <= now).count();
            arrived.extend(coming.drain(..due_count).map(|(_, bytes)| Arrived {
                lane,
                cost: cost(bytes.len()),
                bytes,
                passed: 0,
            }));
        }
        if !arrived.is_empty() {
            self.silence = None;
            self.gone_at = self.gone_at.map(|at| at.max(now));
        }
        arrived
    }

    /// The end, once it and everything before it has arrived.
    pub(crate) fn reached_end(&self, now: Instant) -> Option<PipeEnd> {
        let has_all = |queue: &LaneQueue| queue.coming.is_empty() && queue.carried.is_empty();
        let is_through = self.held_since.is_none()
            && self.lanes.iter().all(has_all)
            && !self.held.iter().any(|held| held.is_due(now));
        self.end.as_ref().filter(|(due, _)| is_through && *due <= now).map(|(_, end)| end.clone())
    }

    /// When the next thing arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.held_since.is_some() {
            return None;
        }
        let frames = self.lanes.iter().filter_map(|queue| queue.coming.front());
        // The end comes behind what is carried, whenever that arrives.
        let is_carrying = self.lanes.iter().any(|queue| !queue.carried.is_empty());
        let end = self.end.as_ref().filter(|_| !is_carrying).map(|(due, _)| *due);
        let held = self.held.iter().filter_map(|held| held.until);
        frames.map(|(due, _)| *due).chain(held).chain(end).min()
    }

    /// The sink has taken a batch.
    pub(crate) fn give_back(&mut self, bytes: [usize; 2]) {
        for (queue, bytes) in self.lanes.iter_mut().zip(bytes) {
            queue.unreturned_bytes -= bytes;
        }
    }

    /// True when everything appended is on its way.
    pub(crate) fn is_flushed(&self) -> bool {
        self.lanes.iter().all(|queue| queue.queued.is_empty())
    }

    pub(crate) fn is_writable(&self, lane: Lane) -> bool {
        let queue = &self.lanes[index(lane)];
        queue.queued_bytes < queue.limits.soft
    }
}

impl Held {
    fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl LaneQueue {
    fn new(limits: LaneLimits, frame_bytes_max: usize) -> Self {
        let one_more = limits.soft.saturating_add(cost(frame_bytes_max));
        Self {
            limits: LaneLimits { hard: limits.hard.max(one_more), ..limits },
            queued: VecDeque::new(),
            queued_bytes: 0,
            carried: VecDeque::new(),
            coming: VecDeque::new(),
            unreturned_bytes: 0,
            last_due: None,
        }
    }

    fn next_with_credit(&mut self) -> Option<Bytes> {
        let bytes = cost(self.queued.front()?.len());
        if self.unreturned_bytes > 0 && self.unreturned_bytes + bytes > self.limits.window {
            return None;
        }
        self.queued_bytes -= bytes;
        self.unreturned_bytes += bytes;
        self.queued.pop_front()
    }

    /// A lane is first in, first out, even when the latency has become shorter.
    fn send(&mut self, due: Instant, frame: Bytes) {
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        self.coming.push_back((due, frame));
    }

    fn drop_queued(&mut self) {
        self.queued.clear();
        self.queued_bytes = 0;
    }
}

fn cost(len: usize) -> usize {
    len.saturating_add(FRAME_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pipe(frame_bytes_max: usize) -> Pipe {
        Pipe::new(frame_bytes_max, None)
    }

    fn append(pipe: &mut Pipe, lane: Lane, len: usize) -> Result<Appended, NotWritable> {
        pipe.admit(lane, len)?;
        Ok(pipe.append(lane, Bytes::from(vec![7; len])))
    }

    fn pump(pipe: &mut Pipe, due: Instant) {
        assert!(pipe.pump(|_, _| Departure::Arrives(due)));
    }

    #[test]
    fn a_writable_lane_takes_the_largest_frame_and_the_bound_comes_after() {
        for lane in LANES {
            let mut pipe = pipe(3 << 20);
            while pipe.is_writable(lane) {
                append(&mut pipe, lane, 3 << 20).unwrap();
            }
            let refused = (0..1 << 16).find_map(|_| append(&mut pipe, lane, 1 << 10).err());
            assert_eq!(refused, Some(NotWritable::Full));
        }
    }

    #[test]
    fn what_the_sink_has_not_taken_holds_up_the_rest() {
        let (mut pipe, now) = (pipe(4 << 20), Instant::now());
        for len in [10, 4 << 20, 10] {
            append(&mut pipe, Lane::Data, len).unwrap();
        }
        // The large one is above the window, so it goes alone.
        for len in [10, 4 << 20, 10] {
            pump(&mut pipe, now);
            let arrived = pipe.take_due(now);
            assert_eq!(arrived.iter().map(|frame| frame.bytes.len()).sum::<usize>(), len);
            assert!(pipe.take_due(now).is_empty());
            pipe.give_back([0, arrived.iter().map(|frame| frame.cost).sum()]);
        }
        assert!(pipe.is_flushed());
    }

    #[test]
    fn the_goodbye_comes_behind_the_last_frame() {
        let (mut pipe, now) = (pipe(1_000), Instant::now());
        let later = now + Duration::from_secs(1);
        append(&mut pipe, Lane::Data, 10).unwrap();
        pipe.close("enough".into(), true);
        assert!(!pipe.pump_goodbye(now), "a frame is queued before it");
        pump(&mut pipe, later);
        assert!(pipe.pump_goodbye(now));
        assert_eq!((pipe.reached_end(later), pipe.next_due()), (None, Some(later)));
        assert_eq!(pipe.take_due(later).len(), 1);
        assert_eq!(pipe.reached_end(now), None);
        assert_eq!(pipe.reached_end(later), Some(PipeEnd::Goodbye("enough".into())));
    }

    #[test]
    fn the_goodbye_waits_for_what_is_carried() {
        let (mut pipe, now) = (pipe(1_000), Instant::now());
        let later = now + Duration::from_secs(1);
        append(&mut pipe, Lane::Data, 10).unwrap();
        pipe.close("enough".into(), true);
        assert!(pipe.pump(|_, _| Departure::Carried) && pipe.pump_goodbye(now));
        assert_eq!((pipe.reached_end(later), pipe.next_due()), (None, None));
        pipe.arrive(Lane::Data, later);
        assert_eq!((pipe.reached_end(later), pipe.next_due()), (None, Some(now)));
        assert_eq!(pipe.take_due(later).len(), 1);
        assert_eq!(pipe.reached_end(later), Some(PipeEnd::Goodbye("enough".into())));
    }

    #[test]
    fn what_is_held_arrives_after_the_release() {
        let (mut pipe, now) = (pipe(1_000), Instant::now());
        let later = now + Duration::from_secs(1);
        append(&mut pipe, Lane::Control, 10).unwrap();
        pump(&mut pipe, now);
        pipe.hold(now);
        assert!(pipe.take_due(later).is_empty());
        assert_eq!((pipe.next_due(), pipe.silent_since(later)), (None, Some(now)));
        pipe.release(later);
        assert!(pipe.take_due(now).is_empty());
        assert_eq!(pipe.take_due(later).len(), 1);
    }

    #[test]
    fn what_a_hook_holds_leaves_the_line_and_keeps_its_window() {
        let (mut pipe, now) = (pipe(2 << 20), Instant::now());
        let later = now + Duration::from_secs(1);
        for len in [1 << 20, 10] {
            append(&mut pipe, Lane::Data, len).unwrap();
        }
        pump(&mut pipe, now);
        let mut held = pipe.take_due(now);
        assert_eq!(held.len(), 1);
        held[0].passed = 3;
        pipe.keep_back(held[0].clone(), None);
        pump(&mut pipe, now);
        assert!(!pipe.is_flushed(), "the window is taken");
        assert_eq!((pipe.held_by(3), pipe.held_by(4), pipe.next_due()), (1, 0, None));
        // The end does not wait for it, but for what was let go.
        pipe.end_at(now, PipeEnd::Reset("gone".into()));
        assert!(pipe.reached_end(now).is_some());
        assert_eq!((pipe.let_go(4, later), pipe.let_go(3, later)), (0, 1));
        assert_eq!((pipe.next_due(), pipe.take_due(now)), (Some(now), Vec::new()));
        assert_eq!(pipe.reached_end(later), None);
        assert_eq!(pipe.take_due(later), held);
        assert!(pipe.reached_end(later).is_some());
    }
}

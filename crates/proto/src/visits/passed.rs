//! Frames of other nodes' tasks that this one passes on to an initiator, and that wait for room in
//! the connection that they take.
//!
//! The nodes that they come from know nothing of that connection, so a client that stands still for
//! a moment is sent more than it may queue, and would lose it with all of its calls. What waits is
//! in the share of who sent the branch here, and leaves in the order in which it came: neither a
//! STATUS nor the report that a connection has ended overtakes a reply.

use std::collections::VecDeque;

use crate::id::{CallId, LinkId};
use crate::link::Lane;
use crate::links::Links;
use crate::share::{PeerIndex, Pool};
use crate::time::Timestamp;

use super::route::{Upward, need_not_wait};
use super::{Place, Visits};

/// A frame that waits.
#[derive(Debug)]
pub(super) struct Passed {
    place: Place,
    call: CallId,
    upward: Upward,
    payer: PeerIndex,
    bytes: usize,
}

impl Passed {
    /// Its payer, and the bytes that it pays for.
    pub(super) fn paid(&self) -> (PeerIndex, usize) {
        (self.payer, self.bytes)
    }
}

impl Visits {
    /// True when frames of others wait.
    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// Passes a frame on by the way of a task here that is above its own, or says that there is no
    /// way down any more: at once, or once there is room.
    pub(super) fn pass_up(
        &mut self,
        now: Timestamp,
        call: CallId,
        place: Place,
        upward: Upward,
        links: &mut Links,
    ) {
        let Some(payer) = self.record(&place).map(|record| record.payer) else { return };
        let link = self.link_up(now, &place, links);
        // Whatever its lane, it says nothing before what was said first.
        let is_behind = self.passed.contains_key(&link);
        let waits = if links.has_room(link) {
            is_behind
        } else {
            (is_behind || upward.lane() == Lane::Data) && !need_not_wait(payer, link, links)
        };
        if waits {
            let (upward, bytes) = upward.kept(call);
            links.shares_mut().take(payer, Pool::Replies, bytes);
            return self.keep_for(link, Passed { place, call, upward, payer, bytes });
        }
        // Too much waits to take more: what came first is first.
        for passed in self.take_passed(link) {
            self.go_on(now, passed, links);
        }
        self.send_upward(now, call, &place, upward, links);
    }

    /// Sends one of the frames that wait, by a connection that has room. False when there is none.
    pub(crate) fn send_passed(&mut self, now: Timestamp, links: &mut Links) -> bool {
        let mut ready = self.passed.iter_mut().filter(|(link, _)| links.has_room(**link));
        let Some((link, frames)) = ready.next() else { return false };
        let (link, passed) = (*link, frames.pop_front());
        if frames.is_empty() {
            self.passed.remove(&link);
        }
        if let Some(passed) = passed {
            self.go_on(now, passed, links);
        }
        true
    }

    /// Sends what waited for a connection that has ended another way, if there is one, or has it
    /// wait there.
    pub(super) fn pass_otherwise(&mut self, now: Timestamp, link: LinkId, links: &mut Links) {
        for passed in self.take_passed(link) {
            match self.link_up(now, &passed.place, links) {
                // For a dial, or for nothing.
                LinkId::LOCAL => self.go_on(now, passed, links),
                other => self.keep_for(other, passed),
            }
        }
    }

    fn keep_for(&mut self, link: LinkId, passed: Passed) {
        self.passed.entry(link).or_default().push_back(passed);
    }

    fn take_passed(&mut self, link: LinkId) -> VecDeque<Passed> {
        self.passed.remove(&link).unwrap_or_default()
    }

    fn go_on(&mut self, now: Timestamp, passed: Passed, links: &mut Links) {
        let Passed { place, call, upward, payer, bytes } = passed;
        links.shares_mut().give(payer, Pool::Replies, bytes);
        self.send_upward(now, call, &place, upward, links);
    }
}

//! Flat calls of a node: of one branch, whose request is given straight to the driver, and of several.

use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::id::{CallId, LinkNonce, MethodId, NodeId};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::{Extension, Frame, Header, Message};

use super::super::call::{CallOptions, RootBranch, root_path, root_request};
use super::super::initiator::{SlotPoll, TooManyCalls};
use super::super::slot::{Errand, Fan, Leg};
use super::super::{Transmit, key};
use super::Node;

impl Node {
    /// The connection by which a flat call to `to` would leave: one branch, one reply, at least
    /// `worry_min` of time. `None` when it must begin as a full call.
    pub fn slot_link(&self, to: NodeId, budget: Option<Duration>) -> Option<LinkNonce> {
        let budget = self.budget(budget);
        let suits = self.initiator.slot_suits(budget);
        if suits && to != self.identity.node { self.links.current(to) } else { None }
    }

    /// Opens a flat call over a connection that [`Self::slot_link`] named. Its request is not among the
    /// transmits: it is the one given back.
    ///
    /// # Errors
    /// [`TooManyCalls`] at the bound.
    pub fn open_slot(
        &mut self,
        now: Timestamp,
        budget: Option<Duration>,
        (to, link): (NodeId, LinkNonce),
        (method, extensions, payload): (MethodId, Vec<Extension>, Bytes),
    ) -> Result<Transmit, TooManyCalls> {
        let budget = self.budget(budget);
        let errand = Errand {
            to,
            link,
            life: self.links.incarnation(to),
            opened_at: now,
            deadline: now + budget,
            waker: None,
            answer: None,
        };
        let frame = self.initiator.open_slot(errand, method, extensions, payload)?;
        Ok(Transmit { to, link, lane: Lane::Data, frame })
    }

    /// What a flat call of one branch has.
    pub fn poll_slot(&mut self, call: CallId) -> SlotPoll {
        self.initiator.poll_slot(call)
    }

    /// Whether a call of these branches can begin flat: every node is connected, or this one, and there is
    /// at least `worry_min` of time.
    pub fn fan_suits(&self, budget: Option<Duration>, to: impl Iterator<Item = NodeId>) -> bool {
        let budget = self.budget(budget);
        let is_near = |to: NodeId| to == self.identity.node || self.links.current(to).is_some();
        self.initiator.fan_suits(budget, to.map(is_near))
    }

    /// Opens a flat call of branches that [`Self::fan_suits`] has found fit. It is sealed.
    ///
    /// # Errors
    /// [`TooManyCalls`] at the bound.
    pub fn open_fan(
        &mut self,
        now: Timestamp,
        budget: Option<Duration>,
        options: CallOptions,
        branches: impl IntoIterator<Item = RootBranch>,
    ) -> Result<CallId, TooManyCalls> {
        let budget = self.budget(budget);
        let branches: SmallVec<[RootBranch; 4]> = branches.into_iter().collect();
        let legs = branches.iter().map(|branch| Leg {
            to: branch.to,
            link: self.links.current(branch.to),
            life: self.links.incarnation(branch.to),
            is_answered: false,
        });
        let fan = Fan::new(now, now + budget, options, legs);
        let opened = self.initiator.open_fan(fan)?;
        for (index, branch) in (0..).zip(branches) {
            let RootBranch { to, method, extensions, payload } = branch;
            let parts = (method, extensions, payload);
            let request = root_request(opened.budget_us, opened.floor, parts);
            let header = Header { call: opened.call, task: key(root_path(index), 0) };
            let frame = Frame::new(header, Message::Request(request));
            match self.links.current(to) {
                Some(link) => {
                    self.transmits.push_back(Transmit { to, link, lane: Lane::Data, frame });
                }
                None => self.loopback.push_back(frame),
            }
        }
        self.pump(now);
        Ok(opened.call)
    }

    /// Keeps who waits for a call until it has something.
    pub fn park(&mut self, call: CallId, waker: &Waker) {
        self.initiator.park(call, waker);
    }

    /// A call's reader is to be woken when `count` replies wait, a branch has failed, or the call has ended; once
    /// it reads, for each.
    pub fn wake_after(&mut self, call: CallId, count: usize) {
        self.initiator.wake_after(call, count);
    }

    /// The caller has enough and reads the call no longer. What still runs goes on, unless it
    /// `cancels_late`.
    pub fn decide_call(&mut self, now: Timestamp, call: CallId, cancels_late: bool) {
        self.initiator.decide(now, call, cancels_late);
        self.pump(now);
    }

    /// Who waits for calls that have something for them.
    pub fn take_woken(&mut self) -> std::vec::Drain<'_, Waker> {
        self.initiator.take_woken()
    }

    /// The time that a call gets, of what it was given.
    fn budget(&self, given: Option<Duration>) -> Duration {
        given.unwrap_or(self.deadline_default).min(self.deadline_max)
    }
}

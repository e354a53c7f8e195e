//! Ways of frames: the part that each is for, and the connection that a message takes.

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::id::{CallId, LinkId, NodeId, Path, TaskKey};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::{
    Ask, Cast, Cause, Credit, Credited, EXCEPTIONS_MAX, Envelope, Frame, Head, Header, Message,
    NAMED_MAX, Opened, Relayed, Reply, Request, RequestHead, Rung, Settled,
};

use super::super::call::Call;
use super::super::initiator::Initiator;
use super::super::links::{Noise, Way, is_own_doing};
use super::super::outbox::{Destination, Outbox, Rejected, Room};
use super::super::task::ChildRequest;
use super::super::tree::Holder;
use super::super::visits::{Forth, Leaving};
use super::super::{Arrival, Fault, Outbound, lane_of};
use super::{Ignored, Node, NodeEvent, ResetReason};

/// Reason why a request does not leave for a node that has said LEAVING: that of a refusal there.
const HAS_LEFT: (Cause, &str) =
    (Cause::ShuttingDown, "the node has said that it takes no new tasks");

impl<O: Outbox> Node<O> {
    /// A frame of which the message has not been read. Nearly all are requests and whole replies,
    /// which are handled without becoming a [`Frame`].
    pub(super) fn dispatch_opened(
        &mut self,
        now: Timestamp,
        by: Arrival,
        opened: &mut Opened,
        bytes: Bytes,
    ) -> Result<(), Fault> {
        let by = by.said(opened.relayed, opened.key);
        if opened.is_request() && opened.relayed.is_none() {
            let mut request = Request::blank();
            opened.read_request(bytes, &mut request)?;
            return self.dispatch_request(now, by, &opened.header, &mut request);
        }
        if opened.is_plain_reply()
            && let Some(initiator) = self.initiator.of_mut(opened.header.call)
        {
            let mut reply = Reply::blank();
            opened.read_reply(bytes, &mut reply)?;
            let counts = initiator.handle_reply(now, by, &opened.header, &mut reply);
            self.note(now, &by, counts, Ignored::SpeaksForOther);
            return Ok(());
        }
        self.dispatch(now, by, &mut opened.frame(bytes)?)
    }

    pub(super) fn dispatch(
        &mut self,
        now: Timestamp,
        by: Arrival,
        frame: &mut Frame,
    ) -> Result<(), Fault> {
        let by = by.said(frame.relayed, frame.key);
        let is_relayed = frame.relayed.is_some();
        let header = &frame.header;
        // In place: most frames are not moved again.
        match &mut frame.message {
            Message::Credit(Credit { of: Credited::Items, limit_bytes }) if !is_relayed => {
                let (call, limit) = (header.call, *limit_bytes);
                if let Some(initiator) = self.initiator.of_mut(call) {
                    let counts = initiator.handle_items_credit(&by, call, limit);
                    self.note(now, &by, counts, Ignored::SpeaksForOther);
                }
            }
            Message::Probe(_) | Message::Credit(_) => self.dispatch_down(now, &by, frame),
            Message::Reply(_)
            | Message::Manifest(_)
            | Message::Fail(_)
            | Message::Status(_)
            | Message::LinkDown(_) => self.dispatch_up(now, by, frame),
            _ if is_relayed => return Err(Fault::Misrouted),
            Message::Request(request) => {
                return self.dispatch_request(now, by, header, request);
            }
            Message::Cancel(cancel) => {
                let counts = self.visits.handle_cancel(now, &by, header, cancel, &mut self.links);
                self.note(now, &by, counts, Ignored::OrdersOther);
            }
            Message::Cast(cast) => {
                let payload = std::mem::take(&mut cast.payload);
                let cast = Cast { payload, ..cast.clone() };
                self.handle_cast(now, by.via, header.call, cast);
            }
            Message::Ask(ask) => self.state_settled(now, &by, (header.call.seq, ask)),
            Message::Settled(settled) => {
                for statement in &settled.statements {
                    let stated = (header.call.seq, statement);
                    self.visits.handle_statement(now, &by, stated, &mut self.links);
                }
            }
            Message::Item(item) => {
                self.visits.handle_item(&by, header, item, &mut self.links);
            }
            // For all cores together: whoever owns them hears it.
            Message::Parting(_) => return Err(Fault::Misrouted),
        }
        Ok(())
    }

    /// A request: of a call of this node's own, which it knows best to be over, or another's.
    fn dispatch_request(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: &Header,
        request: &mut Request,
    ) -> Result<(), Fault> {
        if self.initiator.is_settled(header.call) {
            return Ok(());
        }
        self.visits.handle_request(now, by, header, request, (&mut self.links, &mut self.starts))
    }

    /// A frame on its way to the initiator: this node, or one to which it is relayed.
    fn dispatch_up(&mut self, now: Timestamp, by: Arrival, frame: &mut Frame) {
        let call = frame.header.call;
        if let Some(initiator) = self.initiator.of_mut(call) {
            let counts = initiator.handle_frame(now, by, frame, &self.links);
            self.note(now, &by, counts, Ignored::SpeaksForOther);
        } else if frame.relayed.is_some() && !self.identity.incarnation.is_life_of(call.origin) {
            self.visits.relay_up(now, &by, frame.take(), &mut self.links);
        }
        // Else it is for an earlier life of this node, or a call that it has not begun.
    }

    /// A frame of the initiator for a task: here, or further down where only this node's children
    /// are known.
    fn dispatch_down(&mut self, now: Timestamp, by: &Arrival, frame: &mut Frame) {
        if frame.relayed.is_some_and(|to| to.node != self.identity.node) {
            return self.visits.relay_down(by, frame.take(), &self.links);
        }
        let at = frame.relayed.map_or(Rung::default(), |relayed| relayed.at);
        let Frame { header, message, .. } = frame;
        match message {
            Message::Probe(probe) => {
                self.visits.handle_probe(now, by, (header, at), probe, &mut self.links);
            }
            Message::Credit(credit) => {
                let counts = self.visits.handle_credit(now, by, header, *credit, &mut self.links);
                self.note(now, by, counts, Ignored::OrdersOther);
            }
            _ => debug_assert!(false, "only these go down"),
        }
    }

    /// Counts what did not count. Who gives orders without a key, which no honest node does, and
    /// does nothing else is disconnected.
    ///
    /// Departs from `trust.md` section 8, where frames that speak for others close their
    /// connection, too: a request may name any node as its initiator, so whoever sends such to an
    /// honest server would have it speak so, and lose the connection that it shares with that node.
    fn note(&mut self, now: Timestamp, by: &Arrival, counts: bool, why: Ignored) {
        if counts {
            return;
        }
        self.ignored.note(why);
        let (node, link) = (by.via, by.link);
        match self.links.note_ignored(now, link) {
            Noise::First => self.events.push_back(NodeEvent::Ignored { node, link, why }),
            Noise::TooMuch if why == Ignored::OrdersOther => {
                self.reset(now, node, link, ResetReason::Noise);
            }
            Noise::More | Noise::TooMuch => {}
        }
    }

    /// Says which calls are settled: to each connection a few times at once, and then every few
    /// milliseconds.
    fn state_settled(&mut self, now: Timestamp, by: &Arrival, (number, ask): (u64, &Ask)) {
        if !self.links.may_answer(now, by.link) {
            return;
        }
        let (mut exceptions_left, mut named_left) = (EXCEPTIONS_MAX, NAMED_MAX);
        let mut statements = Vec::new();
        for (origin, from) in &ask.origins {
            let statement = match self.initiator.of(CallId { origin: *origin, seq: *from }) {
                Some(initiator) => initiator.statement(*from),
                // Another core's, or nobody's: only who opens them has a word to say.
                None if self.identity.incarnation.is_life_of(*origin) => continue,
                None => self.visits.statement(now, by.via, (*origin, *from), named_left),
            };
            // What finds no room is asked for again.
            let rest = exceptions_left.checked_sub(statement.exceptions.len());
            let Some(rest) = rest else { break };
            exceptions_left = rest;
            named_left -= statement.open.len();
            statements.push(statement);
        }
        if statements.is_empty() {
            return;
        }
        let message = Message::Settled(Settled { statements });
        let mut outbound = Outbound::new(by.via, Header::of_question(number), message);
        outbound.link = Some(by.link);
        self.send(now, outbound);
    }

    /// Moves what calls and tasks want sent to connections, and this node's frames to itself back
    /// in.
    #[inline]
    pub(super) fn pump(&mut self, now: Timestamp) {
        let has_output = self.initiator.has_output() || self.visits.has_output();
        let has_granted = self.initiator.has_granted() || self.visits.has_granted();
        let has_waiting = has_granted || self.visits.has_passed();
        if has_output || has_waiting || !self.loopback.is_empty() {
            self.pump_all(now);
        }
    }

    fn pump_all(&mut self, now: Timestamp) {
        loop {
            if let Some(outbound) = self.initiator.poll_outbound() {
                self.send(now, outbound);
            } else if let Some(leaving) = self.visits.poll_leaving() {
                match leaving {
                    Leaving::Frame(outbound) => self.send(now, outbound),
                    Leaving::Branch(forth) => self.send_branch(now, forth),
                }
            } else if let Some(mut frame) = self.loopback.pop_front() {
                let by = self.links.arrival(LinkId::LOCAL).expect("this one never ends");
                let result = self.dispatch(now, by, &mut frame);
                debug_assert_eq!(result, Ok(()), "this node keeps the protocol with itself");
                self.let_go(frame.message.take_payload()); // Unless somebody has it now.
            } else {
                // Each has its turn.
                let has_passed = self.visits.send_passed(now, &mut self.links);
                let has_replies = self.visits.send_granted(now, &mut self.links);
                let has_items = self.initiator.send_granted(&self.links);
                if !has_passed && !has_replies && !has_items {
                    return;
                }
            }
        }
    }

    /// Lets go of a payload whose owner may be called as it is dropped.
    #[inline]
    pub(super) fn let_go(&mut self, payload: impl Into<Encoded>) {
        if let Some(payload) = payload.into().into_owned() {
            self.outbox.let_go(payload);
        }
    }

    pub(super) fn send(&mut self, now: Timestamp, outbound: Outbound) {
        let Outbound { to, link: bound_to, mut frame } = outbound;
        let lane = lane_of(&frame.message);
        let way = match bound_to {
            // Bound to a connection: when it is gone, so is the frame.
            Some(link) if !self.links.is_up(link) => {
                return self.outbox.let_go(frame.message.take_payload());
            }
            Some(link) => Way::Up(link),
            None => match self.links.way(now, to) {
                Way::Dead if is_own_doing(&frame) && self.links.is_resolvable(now, to) => {
                    Way::Dialable
                }
                way => way,
            },
        };
        match way {
            Way::Up(link)
                if self.links.is_leaving(link) && matches!(frame.message, Message::Request(_)) =>
            {
                self.handle_undeliverable(now, (to, Some(HAS_LEFT)), frame);
            }
            Way::Up(link) => {
                if let Some((call, path)) = self.own_request(&frame) {
                    let life = self.links.life(to).map(|(life, _)| life);
                    self.initiator.handle_sent(call, &path, link, life);
                } else if let Message::Request(request) = &frame.message
                    && bound_to.is_none()
                {
                    self.visits.handle_sent(&frame.header, request.key, to, link);
                }
                self.hand_over_frame(now, Destination { to, link, lane }, frame);
            }
            Way::Dialable if self.never_dials(frame.header.call) => {
                if let Some((call, path)) = self.own_request(&frame) {
                    let text = "it is not connected, and is not dialled for this";
                    self.initiator.handle_unsent(now, call, &path, (Cause::Unreachable, text));
                    self.outbox.let_go(frame.message.take_payload());
                } else {
                    self.handle_undeliverable(now, (to, None), frame);
                }
            }
            Way::Dialable => {
                // A question that finds no room says nothing of the node; it is asked again.
                let outbound = Outbound { to, link: bound_to, frame };
                match self.links.wait(now, outbound).map(|outbound| outbound.frame) {
                    Some(Frame { header, message: Message::Probe(probe), relayed, .. }) => {
                        if let Some((initiator, asked)) =
                            asker(&mut self.initiator, header.call, (to, relayed))
                        {
                            initiator.forget_unasked(header.call, asked, &probe);
                        }
                    }
                    Some(frame) => self.handle_undeliverable(now, (to, None), frame),
                    None => {}
                }
            }
            Way::Dead => self.handle_undeliverable(now, (to, None), frame),
        }
    }

    /// Hands the request of a branch to the connection that it is bound to: when that is gone, so
    /// is the request.
    fn send_branch(&mut self, now: Timestamp, Forth { call, link, child, terms }: Forth) {
        if !self.links.is_up(link) {
            return self.let_go(child.payload);
        }
        let ChildRequest { to, task, key, method, ref extensions, ref inherited, .. } = child;
        let request = terms.head((key, method), inherited, extensions);
        self.send_onward(now, (call, task), (to, link), &request, child.payload);
    }

    /// Hands the request of a branch of a task here to a connection. Its initiator is told when
    /// that does not take it.
    pub(super) fn send_onward(
        &mut self,
        now: Timestamp,
        (call, task): (CallId, TaskKey),
        (to, link): (NodeId, LinkId),
        request: &RequestHead<'_>,
        payload: Encoded,
    ) {
        let head = Envelope { call, task: &task, relayed: None, key: None }.request(request);
        let at = Destination { to, link, lane: Lane::Data };
        if let Err(Rejected { text }) = self.hand_over_request(now, at, head.head(), payload) {
            let (header, why) = (Header { call, task }, (Cause::Unreachable, text.as_str()));
            let unsent = request.with(Bytes::new());
            self.visits.handle_unsent(now, &header, (to, Some(why)), unsent, &mut self.links);
        }
    }

    /// True for an own call that has nobody dialled.
    fn never_dials(&self, call: CallId) -> bool {
        self.initiator.call(call).is_some_and(Call::never_dials)
    }

    /// Hands a frame to its connection. What it asks for fails when that does not take it.
    fn hand_over_frame(&mut self, now: Timestamp, to: Destination, mut frame: Frame) {
        if to.link == LinkId::LOCAL {
            return self.loopback.push_back(frame);
        }
        let payload = frame.message.take_payload();
        let sent = frame.with_head(|head| self.outbox.send(now, to, head, payload.into()));
        let sent = sent.or_else(|rejected| self.send_shorter(now, to, &mut frame, rejected));
        match sent.map(|room| self.note_room(to.link, room)) {
            Ok(()) if matches!(frame.message, Message::Request(_)) => {
                self.links.count_sent(to.link);
            }
            Ok(()) => {}
            Err(Rejected { text }) => {
                self.handle_undeliverable(now, (to.to, Some((Cause::Unreachable, &text))), frame);
            }
        }
    }

    /// Sends a failure whose connection did not take it again: without its details, the payload,
    /// and if need be without metadata. Its initiator is to know at least what failed, and whether
    /// the task ran.
    fn send_shorter(
        &mut self,
        now: Timestamp,
        to: Destination,
        frame: &mut Frame,
        rejected: Rejected,
    ) -> Result<Room, Rejected> {
        if !matches!(frame.message, Message::Fail(_)) {
            return Err(rejected);
        }
        let without_details =
            frame.with_head(|head| self.outbox.send(now, to, head, Encoded::default()));
        without_details.or_else(|_| {
            if let Message::Fail(fail) = &mut frame.message {
                fail.shorten();
            }
            frame.with_head(|head| self.outbox.send(now, to, head, Encoded::default()))
        })
    }

    /// A connection has room again for what can wait.
    pub fn handle_room(&mut self, now: Timestamp, link: LinkId) {
        self.links.note_room(link, Room::Some);
        self.pump(now);
    }

    #[inline]
    fn note_room(&mut self, link: LinkId, room: Room) {
        if room == Room::None {
            self.links.note_room(link, room);
        }
    }

    /// Hands a frame to its connection, or to this node itself.
    #[inline]
    pub(super) fn hand_over(
        &mut self,
        now: Timestamp,
        to: Destination,
        head: Head<'_>,
        payload: Encoded,
    ) -> Result<(), Rejected> {
        if to.link != LinkId::LOCAL {
            return self
                .outbox
                .send(now, to, head, payload)
                .map(|room| self.note_room(to.link, room));
        }
        self.loopback.push_back(head.frame(payload.into_bytes())?);
        Ok(())
    }

    /// The same of a request, which is counted once it has left.
    #[inline]
    pub(super) fn hand_over_request(
        &mut self,
        now: Timestamp,
        to: Destination,
        head: Head<'_>,
        payload: Encoded,
    ) -> Result<(), Rejected> {
        self.hand_over(now, to, head, payload)?;
        self.links.count_sent(to.link);
        Ok(())
    }

    /// The root branch that a request of this node's own call opens.
    fn own_request(&self, frame: &Frame) -> Option<(CallId, Path)> {
        if !matches!(frame.message, Message::Request(_)) {
            return None;
        }
        let (call, task) = (frame.header.call, &frame.header.task);
        let is_root = task.hop == 0 && task.path.level_count() == 1;
        let is_own = is_root && self.initiator.of(call).is_some();
        is_own.then(|| (call, task.path.clone()))
    }

    /// A frame cannot leave for a node, for this reason or as that cannot be reached.
    pub(super) fn handle_undeliverable(
        &mut self,
        now: Timestamp,
        (to, why): (NodeId, Option<(Cause, &str)>),
        mut frame: Frame,
    ) {
        self.outbox.let_go(frame.message.take_payload());
        if let Some((call, path)) = self.own_request(&frame) {
            let why = why.unwrap_or_else(|| (Cause::Unreachable, self.links.why_unreachable(to)));
            self.initiator.handle_unsent(now, call, &path, why);
            return;
        }
        let Frame { header, message, relayed, .. } = frame;
        match message {
            Message::Request(request) => {
                self.visits.handle_unsent(now, &header, (to, why), request, &mut self.links);
            }
            Message::Probe(probe) => {
                let call = header.call;
                match asker(&mut self.initiator, call, (to, relayed)) {
                    Some((initiator, asked)) => {
                        initiator.handle_unasked(now, call, asked, &probe, &self.links);
                    }
                    None => self.visits.handle_unasked(now, call, &probe, &mut self.links),
                }
            }
            Message::Item(_) => {
                if let Some(initiator) = self.initiator.of_mut(header.call) {
                    initiator.lose_items(header.call);
                }
            }
            Message::Cast(cast) => self.note_unsent_cast(to, header.call, cast.about),
            // Replies that had only this way are lost; the rest is repeated or not needed.
            _ => {}
        }
    }
}

/// The initiator that asks for tasks by a question to a node, and by which way. `None` where a task
/// here passes it on, which may be of a call of this node, too.
fn asker(
    initiator: &mut Initiator,
    call: CallId,
    (to, relayed): (NodeId, Option<Relayed>),
) -> Option<(&mut Initiator, Holder)> {
    let is_own = relayed.is_none_or(|relayed| relayed.at == Rung::default());
    let asked = match relayed {
        Some(Relayed { node, .. }) => Holder { node, relay: Some(to) },
        None => Holder { node: to, relay: None },
    };
    initiator.of_mut(call).filter(|_| is_own).map(|initiator| (initiator, asked))
}

//! The way back to the initiator: a connection both share, else dialling it, else through the
//! sender of the request; and the way of requests to children.

use std::time::Duration;

use crate::id::{CallId, LinkId, MethodId, NodeId, NodeLife, Path, TaskKey};
use crate::key::Key;
use crate::limits::{Limits, ReplyDial};
use crate::link::Lane;
use crate::links::{Links, Way};
use crate::mutant::{self, Mutant};
use crate::share::{PeerIndex, Pool};
use crate::task::{ChildRequest, TaskFailure, Unsent};
use crate::time::Timestamp;
use crate::wire::{
    Asked, Cause, Executed, Extension, Fail, Frame, Header, Message, Probe, Relayed, ReplyPath,
    ReplyRoute, Request, RequestHead, Rung, Sealed, Status,
};
use crate::{Arrival, Outbound, lane_of};

use super::{OriginIndex, Place, Record, RingIndex, State, Visits};

/// A message on its way to the initiator.
#[derive(Debug)]
pub(super) struct Upward {
    /// The node whose task says it: this one, or one further down.
    from: NodeId,
    task: TaskKey,
    key: Key,
    message: Message,
}

/// The way by which a question came that others have passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    pub(super) to: NodeId,
    pub(super) link: LinkId,
    pub(super) relayed: Relayed,
}

impl Upward {
    /// The same for who keeps it, and the memory that it takes while it waits, about.
    pub(super) fn kept(self, call: CallId) -> (Self, usize) {
        let Self { from, task, key, message } = self;
        let mut frame = Frame::new(Header { call, task }, message);
        frame.message.keep_payload();
        let bytes = frame.waiting_len();
        (Self { from, task: frame.header.task, key, message: frame.message }, bytes)
    }

    pub(super) fn lane(&self) -> Lane {
        lane_of(&self.message)
    }
}

/// Reason why a message for the initiator cannot leave now.
pub(super) enum Blocked {
    /// The initiator is being dialled, or can be.
    Dialling(NodeId),
    /// There is no way at all.
    Nowhere,
}

/// Way by which a message for the initiator can leave now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WayUp {
    pub(crate) to: NodeId,
    /// The initiator's own connection; without one any to the node that relays.
    pub(crate) link: Option<LinkId>,
    pub(crate) relayed: Option<Relayed>,
    /// The message has to prove that its sender holds the task.
    pub(crate) shows_key: bool,
}

/// The last branch of a task as it leaves: the branch of the task itself, at its next hop.
#[derive(Debug)]
pub(crate) struct Onward {
    /// The connection that it takes.
    pub(crate) link: LinkId,
    pub(crate) task: TaskKey,
    pub(crate) terms: Terms,
}

/// Output of tasks that is about to leave.
#[derive(Debug)]
pub(crate) enum Leaving {
    Frame(Outbound),
    Branch(Forth),
}

/// The request of a branch that a connection takes now.
#[derive(Debug)]
pub(crate) struct Forth {
    pub(crate) call: CallId,
    pub(crate) link: LinkId,
    pub(crate) child: ChildRequest,
    pub(crate) terms: Terms,
}

/// Part of the request of a branch that is about its call.
#[derive(Debug)]
pub(crate) struct Terms {
    budget_us: u64,
    outlasted_us: u64,
    floor: u64,
    reply_route: ReplyRoute,
}

impl Terms {
    /// The request of a branch that carries these entries, but for its message.
    pub(crate) fn head<'a>(
        &'a self,
        (key, method): (Key, MethodId),
        inherited: &'a [Sealed],
        extensions: &'a [Extension],
    ) -> RequestHead<'a> {
        RequestHead {
            key,
            budget_us: self.budget_us,
            outlasted_us: self.outlasted_us,
            floor: self.floor,
            method,
            reply_route: &self.reply_route,
            inherited,
            extensions,
        }
    }
}

impl WayUp {
    /// The connection that it takes as things are; that of this node to itself without one.
    pub(super) fn link_now(&self, links: &Links) -> LinkId {
        self.link.or_else(|| links.current(self.to)).unwrap_or(LinkId::LOCAL)
    }

    /// The way that a reply has taken, as it is remembered.
    pub(super) fn reply_path(&self, links: &Links) -> ReplyPath {
        match self.link {
            Some(LinkId::LOCAL) => ReplyPath::Nowhere,
            Some(link) => links.nonce(link).map_or(ReplyPath::Nowhere, ReplyPath::Link),
            None => ReplyPath::Relay(self.to),
        }
    }
}

/// True when what needs no credit leaves at once by a connection: it has room, or much waits for
/// this peer, or many connections have none. Then a connection is closed once it can queue no more,
/// so that those who never read have no more kept than that.
#[inline]
pub(super) fn need_not_wait(payer: PeerIndex, link: LinkId, links: &Links) -> bool {
    links.has_room(link)
        || links.full_count() > FULL_CONNECTIONS_MAX
        || !links.shares().has_little(payer, Pool::Replies)
}

/// Connections without room for which replies wait that need no credit.
const FULL_CONNECTIONS_MAX: usize = 16;

impl Visits {
    /// Sends a message of one of this node's tasks to the initiator.
    pub(super) fn send_up(
        &mut self,
        now: Timestamp,
        call: CallId,
        place: &Place,
        message: Message,
        links: &mut Links,
    ) {
        let is_late = |fail: &Fail| fail.cause == Cause::Deadline;
        if mutant::is(Mutant::ExpiryWithoutWord)
            && matches!(&message, Message::Fail(fail) if is_late(fail))
        {
            return;
        }
        let upward = self.own(place, message);
        self.send_upward(now, call, place, upward, links);
    }

    /// A message of a task of this node.
    pub(super) fn own(&self, (_, (_, task, key)): &Place, message: Message) -> Upward {
        Upward { from: self.me.node, task: task.clone(), key: *key, message }
    }

    /// Sends a message by its way to the initiator; one that has to wait for a dial is kept.
    pub(super) fn send_upward(
        &mut self,
        now: Timestamp,
        call: CallId,
        place: &Place,
        mut upward: Upward,
        links: &mut Links,
    ) {
        let Some(record) = self.record(place) else { return };
        let way = match self.way_up(now, (place.0, record), (upward.from, &upward.task), links) {
            Ok(way) => way,
            Err(Blocked::Dialling(origin)) => {
                return self.wait_for_dial(now, origin, call, place, upward, links);
            }
            Err(Blocked::Nowhere) => return self.spend(upward.message.take_payload()),
        };
        let Upward { from, task, key, message } = upward;
        let is_reply = from == self.me.node && matches!(message, Message::Reply(_));
        let left_by = is_reply.then(|| way.reply_path(links));
        if let Some(record) = self.record_mut(place) {
            record.note_way(way.link, left_by);
        }
        let mut outbound = Outbound::new(way.to, Header { call, task }, message);
        outbound.link = way.link;
        outbound.frame.relayed = way.relayed;
        outbound.show(way.shows_key.then_some(key));
        self.out.push_back(Leaving::Frame(outbound));
    }

    /// Sends what a task says back by the way that a question for it came, where it has no other to
    /// its initiator: what follows an answer goes where that went. Returns it where it has, or was
    /// not asked through others.
    pub(super) fn say_back(
        &mut self,
        now: Timestamp,
        call: CallId,
        (place, back): (&Place, Option<Back>),
        upward: Upward,
        links: &Links,
    ) -> Option<Upward> {
        let Some(back) = back.filter(|_| self.has_no_way_up(now, place, links)) else {
            return Some(upward);
        };
        // Without room it is left out: it will be asked again.
        if links.has_room(back.link) {
            let Upward { task, key, message, .. } = upward;
            let mut outbound = Outbound::new(back.to, Header { call, task }, message);
            outbound.link = Some(back.link);
            outbound.frame.relayed = Some(back.relayed);
            outbound.show(Some(key));
            self.out.push_back(Leaving::Frame(outbound));
        }
        None
    }

    /// Finds the way to the initiator of what a node says of a task.
    pub(super) fn way_up(
        &self,
        now: Timestamp,
        (ring, record): (RingIndex, &Record),
        (from, task): (NodeId, &TaskKey),
        links: &Links,
    ) -> Result<WayUp, Blocked> {
        let (to, link, at) = self.next_step(now, ring, record, links)?;
        let is_own = from == self.me.node;
        // Who answers over the connection that a root request came by need not prove that it holds
        // the task.
        let is_proven = is_own && link == Some(record.link) && task.opens_root();
        let relayed = (!is_own || link.is_none()).then_some(Relayed { node: from, at });
        Ok(WayUp { to, link, relayed, shows_key: !is_proven })
    }

    /// True when what a task says for its initiator need not wait for room in a connection. What
    /// has no way now waits elsewhere.
    #[inline]
    pub(super) fn has_room_up(&self, now: Timestamp, place: &Place, links: &Links) -> bool {
        links.full_count() == 0 || {
            let payer = self.record(place).map(|record| record.payer);
            payer.is_none_or(|payer| need_not_wait(payer, self.link_up(now, place, links), links))
        }
    }

    /// The connection that what a task says for its initiator takes now; that of this node to
    /// itself while there is none.
    pub(super) fn link_up(&self, now: Timestamp, place: &Place, links: &Links) -> LinkId {
        let Some(record) = self.record(place) else { return LinkId::LOCAL };
        let way = self.way_up(now, (place.0, record), (self.me.node, &record.task), links);
        way.map_or(LinkId::LOCAL, |way| way.link_now(links))
    }

    /// True when what a task says cannot get to its initiator, nor can that be dialled.
    pub(super) fn has_no_way_up(&self, now: Timestamp, place: &Place, links: &Links) -> bool {
        let record = self.record(place);
        let step = record.map(|record| self.next_step(now, place.0, record, links));
        matches!(step, Some(Err(Blocked::Nowhere)))
    }

    /// The node that is next on the way to the initiator: the initiator and the connection to it,
    /// or one that relays, with the branch that it sent here. It is the way that a task took at its
    /// first output, and another once that is broken.
    fn next_step(
        &self,
        now: Timestamp,
        ring: RingIndex,
        record: &Record,
        links: &Links,
    ) -> Result<(NodeId, Option<LinkId>, Rung), Blocked> {
        let origin = self.origins.get(record.origin);
        let (name, gave_up) = (origin.name, origin.gave_up_dialling);
        if self.dials.contains(name.node) {
            return Err(Blocked::Dialling(name.node)); // Behind what waits already.
        }
        let fixed = match &record.state {
            State::Running(task) => task.route.filter(|link| links.is_up(*link)),
            State::Quiet(_) | State::Over(_) | State::Gone => None,
        };
        let known = fixed.or_else(|| self.came_by(ring, record, links));
        if let Some(link) = known.or_else(|| links.to_life(name)) {
            return Ok((name.node, Some(link), Rung::default()));
        }
        let may_dial = !gave_up
            && match self.limits.reply_dial {
                ReplyDial::Never => false,
                ReplyDial::KnownNodes => links.is_configured(name.node),
                ReplyDial::Anybody => true,
            };
        if may_dial && links.way(now, name.node) == Way::Dialable {
            return Err(Blocked::Dialling(name.node));
        }
        // Through the sender of the highest task here, from this one up.
        let (task, key) = (&record.task, record.key);
        let call = CallId { origin: name.life, seq: record.seq };
        let above = self.records_above(call, task, key).filter_map(|(ring, record)| {
            let sender = self.origins.ring(ring)?.name.sender.node;
            Some((record.rung(), sender)).filter(|_| sender != self.me.node)
        });
        let above = above.filter(|(above, _)| *above <= record.rung());
        let highest = above.min_by_key(|(rung, _)| *rung);
        // Above what the initiator has sent here itself there is nothing: any other step would lead
        // down again.
        let is_way = |sender: NodeId| sender != name.node && links.current(sender).is_some();
        match highest.filter(|(_, sender)| is_way(*sender)) {
            Some((rung, sender)) => Ok((sender, None, rung)),
            None => Err(Blocked::Nowhere),
        }
    }

    /// The connection that the request of a task came by, if that leads to its initiator.
    fn came_by(&self, ring: RingIndex, record: &Record, links: &Links) -> Option<LinkId> {
        let sender = self.origins.ring(ring)?.name.sender;
        let is_there = sender.is_of(self.origins.get(record.origin).name);
        (is_there && links.is_up(record.link)).then_some(record.link)
    }

    /// The tasks here at or above a task, as its key proves.
    fn records_above(
        &self,
        call: CallId,
        task: &TaskKey,
        key: Key,
    ) -> impl Iterator<Item = (RingIndex, &Record)> {
        let branches = task.path.prefixes();
        let of_branches = branches.flat_map(move |branch| self.records_of_branch(call, branch));
        of_branches.filter(move |(_, record)| record.is_above(task, key))
    }

    /// The tasks here of one branch of a call, whoever sent their requests.
    fn records_of_branch(
        &self,
        call: CallId,
        branch: Path,
    ) -> impl Iterator<Item = (RingIndex, &Record)> {
        self.origins.rings_of(call.origin).flat_map(move |(index, ring)| {
            ring.records.of_branch(call.seq, branch.clone()).map(move |record| (index, record))
        })
    }

    fn wait_for_dial(
        &mut self,
        now: Timestamp,
        origin: NodeId,
        call: CallId,
        place: &Place,
        upward: Upward,
        links: &mut Links,
    ) {
        let time_left = self.record(place).map_or(Duration::ZERO, |record| {
            record.forget_at.since(now + self.limits.keep_alive_timeout)
        });
        let timeout = self.limits.reply_dial_timeout.min(time_left / 4);
        // Of which a copy may be kept.
        self.spend(upward.message.payload().cloned().unwrap_or_default());
        let (upward, bytes) = upward.kept(call);
        if self.dials.wait(origin, now + timeout, (place.clone(), call, upward), bytes) {
            links.dial(origin);
        }
        let (of_node, of_all) = self.dials.bytes(origin);
        let Limits { dial_queue_bytes_max, dial_bytes_total_max, .. } = self.limits;
        if of_node > dial_queue_bytes_max || of_all > dial_bytes_total_max {
            self.give_up_dial(now, origin, links);
        }
    }

    /// A connection to an initiator came up, or dialling it failed: what waited takes the best way
    /// there is now.
    pub(crate) fn handle_dial_over(&mut self, now: Timestamp, node: NodeId, links: &mut Links) {
        for (place, call, upward) in self.dials.end(node) {
            self.send_upward(now, call, &place, upward, links);
        }
    }

    /// The dial takes too long, or too much waits: through the senders of the requests.
    fn give_up_dial(&mut self, now: Timestamp, node: NodeId, links: &mut Links) {
        for place in self.dials.waiting(node).cloned().collect::<Vec<_>>() {
            if let Some(origin) = self.record(&place).map(|record| record.origin) {
                self.origins.get_mut(origin).gave_up_dialling = true;
            }
        }
        self.handle_dial_over(now, node, links);
    }

    pub(super) fn give_up_late_dials(&mut self, now: Timestamp, links: &mut Links) {
        while let Some((_, node)) = self.dials.next_end().filter(|(at, _)| *at <= now) {
            self.give_up_dial(now, node, links);
        }
    }

    /// Answers a request of which nothing is kept: the initiator if it is connected, else through
    /// the sender, who knows its ancestors.
    pub(super) fn send_back(
        &mut self,
        by: &Arrival,
        origin: NodeLife,
        (header, key): (Header, Key),
        message: Message,
        links: &Links,
    ) {
        let came_by = Some(by.link).filter(|_| by.sender() == origin);
        let direct = came_by.or_else(|| links.to_life(origin));
        let is_root = header.task.opens_root();
        let relayed = Relayed { node: self.me.node, at: Rung::of(&header.task) };
        let to = if direct.is_some() { origin.node } else { by.via };
        let mut outbound = Outbound::new(to, header, message);
        outbound.link = direct.or(Some(by.link));
        outbound.frame.relayed = direct.is_none().then_some(relayed);
        outbound.show((!is_root || came_by.is_none()).then_some(key));
        self.out.push_back(Leaving::Frame(outbound));
    }

    /// A frame of another node's task, on its way up to the initiator: passed on by this node's own
    /// way, from the task here that sent the branch above it, as the key proves.
    pub(crate) fn relay_up(
        &mut self,
        now: Timestamp,
        by: &Arrival,
        frame: Frame,
        links: &mut Links,
    ) {
        let Frame { header: Header { call, task }, key, message, relayed } = frame;
        let shown = match &message {
            Message::Status(status) => {
                status.tasks.first().map(|(asked, _)| (asked.task.clone(), asked.key))
            }
            _ => key.map(|key| (task, key)),
        };
        let (Some((task, key)), Some(Relayed { at, .. })) = (shown, relayed) else { return };
        // Only what comes from the node that the branch was sent to by which it says to come.
        let is_sent = |record: &Record| {
            let sent = record.rung_towards(&task, key).filter(|(rung, _)| *rung == at);
            sent.is_some_and(|(_, child)| child.node == by.via && child.link.is_some())
        };
        if !self.records_above(call, &task, key).any(|(_, record)| is_sent(record)) {
            return;
        }
        if let Some(place) = self.highest_above(call, &task, key) {
            let upward = Upward { from: by.from, task, key, message };
            self.pass_up(now, call, place, upward, links);
        }
    }

    /// The highest task here at or above a task, as its key proves.
    fn highest_above(&self, call: CallId, task: &TaskKey, key: Key) -> Option<Place> {
        let above = self.records_above(call, task, key);
        let highest = above.min_by_key(|(_, record)| record.rung());
        highest.map(|(ring, record)| (ring, record.name()))
    }

    /// A PROBE that was passed on here found no way further down: the initiator is told that the
    /// branch could not leave here, or that this node knows nothing of its tasks, and so that there
    /// is no way through it.
    pub(crate) fn handle_unasked(
        &mut self,
        now: Timestamp,
        call: CallId,
        probe: &Probe,
        links: &mut Links,
    ) {
        let Some(Asked { task, key }) = probe.tasks.first().cloned() else { return };
        if let Some((place, to)) = self.sender_of_unsent(call, &task, key) {
            return self.say_unsent(now, call, (&place, None), ((task, key), to), links);
        }
        if let Some(place) = self.highest_above(call, &task, key) {
            let message = Message::Status(Status::unknown(&probe.tasks));
            let upward = Upward { from: self.me.node, task, key, message };
            self.pass_up(now, call, place, upward, links);
        }
    }

    /// A frame of the initiator for a task further down: passed on to the next node on the way that
    /// its request took, from the lowest task here that is above it, as the key proves.
    pub(crate) fn relay_down(&mut self, by: &Arrival, mut frame: Frame, links: &Links) {
        let (Header { call, task }, Some(relayed)) = (&frame.header, &mut frame.relayed) else {
            return;
        };
        let came_by = relayed.at;
        let key = match &frame.message {
            Message::Probe(probe) => probe.tasks.first().map(|asked| asked.key),
            _ => frame.key,
        };
        let Some(key) = key else { return };
        // Only from who sent the branch here by which it says to come, or from the initiator.
        let is_sent = |(ring, record): (RingIndex, &Record)| {
            let sender = self.origins.ring(ring).map(|ring| ring.name.sender.node);
            record.rung() == came_by && sender == Some(by.via)
        };
        let is_of_initiator = by.life.is_life_of(call.origin);
        let may_pass = is_of_initiator || self.records_above(*call, task, key).any(is_sent);
        let above = self
            .records_above(*call, task, key)
            .filter_map(|(_, record)| Some((&record.task, record.rung_towards(task, key)?)));
        let above = above.filter(|(_, (at, child))| *at > came_by && child.node != self.me.node);
        let next = above.max_by_key(|(task, _)| *task).filter(|_| may_pass);
        if let Some((_, (at, child))) = next {
            relayed.at = at;
            let link = child.link.filter(|link| links.is_up(*link));
            self.out.push_back(Leaving::Frame(Outbound { to: child.node, link, frame }));
        } else if let Message::Probe(probe) = &frame.message {
            // To who asked, who may have known a way through an earlier life of this node.
            let message = Message::Status(Status::unknown(&probe.tasks));
            let mut outbound = Outbound::new(by.via, frame.header, message);
            outbound.link = Some(by.link);
            let relayed = Relayed { node: self.me.node, at: came_by };
            outbound.frame.relayed = (!is_of_initiator).then_some(relayed);
            self.out.push_back(Leaving::Frame(outbound));
        }
    }

    /// Opens a branch of a task.
    pub(super) fn send_request(
        &mut self,
        now: Timestamp,
        call: CallId,
        place: &Place,
        child: ChildRequest,
        links: &mut Links,
    ) {
        let Some(record) = self.record(place) else { return };
        let deadlines = (child.deadline, child.call_deadline);
        let terms = self.terms(now, (call, record.origin), deadlines, links);
        let link = links.current(child.to);
        if let Some(link) = link {
            self.note_left(call, place, &child.task, child.to, link);
        }
        let leaving = match link.filter(|link| !links.is_leaving(*link)) {
            Some(link) => Leaving::Branch(Forth { call, link, child, terms }),
            None => {
                let head =
                    terms.head((child.key, child.method), &child.inherited, &child.extensions);
                let request = head.with(child.payload.into_bytes());
                let header = Header { call, task: child.task };
                let outbound = Outbound::new(child.to, header, Message::Request(request));
                Leaving::Frame(Outbound { link, ..outbound })
            }
        };
        self.out.push_back(leaving);
    }

    /// Time that a branch of a call has, and how its tasks reach the initiator.
    pub(super) fn terms(
        &self,
        now: Timestamp,
        (call, origin): (CallId, OriginIndex),
        (deadline, call_deadline): (Timestamp, Timestamp),
        links: &Links,
    ) -> Terms {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let of_origin = self.origins.get(origin);
        let origin = of_origin.name.node;
        // Calls are for their initiator to speak of: this one says as much as it has told the tasks
        // here.
        let (reply_route, floor) = if origin == self.me.node {
            (ReplyRoute::Sender, of_origin.settled.first_missing())
        } else {
            let addresses = links.addresses_for_others(origin);
            (ReplyRoute::Node { node: origin, addresses }, 0)
        };
        Terms {
            budget_us: match mutant::is(Mutant::TimeOfCall) {
                true => micros(call_deadline.since(now)),
                false => micros(deadline.since(now)),
            },
            outlasted_us: micros(call_deadline.since(deadline.max(now))),
            floor: call.seq - floor.min(call.seq),
            reply_route,
        }
    }

    /// The request of a branch that had to wait was handed to this connection.
    pub(crate) fn handle_sent(&mut self, header: &Header, key: Key, to: NodeId, link: LinkId) {
        if let Some(place) = self.parent_of(header, key, to) {
            self.note_left(header.call, &place, &header.task, to, link);
        }
    }

    fn note_left(
        &mut self,
        call: CallId,
        place: &Place,
        child: &TaskKey,
        to: NodeId,
        link: LinkId,
    ) {
        let Some(record) = self.record_mut(place) else { return };
        let index = match child.hop {
            0 => child.path.parent().map_or(0, |(_, index)| index),
            _ => 0,
        };
        let Some(child) = record.children_mut().get_mut(index as usize) else { return };
        let left_by = child.link.replace(link);
        if left_by.is_none() {
            self.add_left(to, call, place.0);
        }
    }

    /// A branch has left for a node, or never will.
    pub(super) fn add_left(&mut self, to: NodeId, call: CallId, ring: RingIndex) {
        *self.left.entry((to, call, ring)).or_default() += 1;
    }

    /// The request of a branch never left this node, for this reason or as its node cannot be
    /// reached: the initiator is told in the child's name.
    pub(crate) fn handle_unsent(
        &mut self,
        now: Timestamp,
        header: &Header,
        to: (NodeId, Option<(Cause, &str)>),
        request: Request,
        links: &mut Links,
    ) {
        if let Some(place) = self.parent_of(header, request.key, to.0) {
            let unsent = ((header.task.clone(), request.key), request.inherited);
            self.report_unsent(now, header.call, &place, unsent, to, links);
        }
    }

    pub(super) fn report_unsent(
        &mut self,
        now: Timestamp,
        call: CallId,
        parent: &Place,
        unsent: Unsent,
        (to, why): (NodeId, Option<(Cause, &str)>),
        links: &mut Links,
    ) {
        let why = why.unwrap_or_else(|| (Cause::Unreachable, links.why_unreachable(to)));
        let upward = self.note_unsent(call, parent, unsent, (to, why));
        self.send_upward(now, call, parent, upward, links);
    }

    /// Says again that a branch could not leave. Why is not known any more.
    pub(super) fn say_unsent(
        &mut self,
        now: Timestamp,
        call: CallId,
        (parent, back): (&Place, Option<Back>),
        (child, to): ((TaskKey, Key), NodeId),
        links: &mut Links,
    ) {
        let why = (Cause::Unreachable, "its request never left");
        let upward = self.note_unsent(call, parent, (child, Vec::new()), (to, why));
        if let Some(upward) = self.say_back(now, call, (parent, back), upward, links) {
            self.send_upward(now, call, parent, upward, links);
        }
    }

    /// The word for its initiator of a branch that could not leave.
    fn note_unsent(
        &mut self,
        call: CallId,
        parent: &Place,
        ((task, key), inherited): Unsent,
        (to, (cause, text)): (NodeId, (Cause, &str)),
    ) -> Upward {
        // What is said here may be lost on its way: then it is said again when this task is asked
        // for.
        self.note_left(call, parent, &task, to, LinkId::NONE);
        let failure = TaskFailure::new(cause, Executed::No, text);
        let fail = Fail { node: Some(to), ..failure.into_fail(None, inherited) };
        Upward { from: self.me.node, task, key, message: Message::Fail(fail) }
    }

    /// The task here of which a branch could not leave, and where that was to go.
    fn sender_of_unsent(&self, call: CallId, task: &TaskKey, key: Key) -> Option<(Place, NodeId)> {
        self.records_of_branch(call, above(task)?).find_map(|(ring, record)| {
            let child = record.sent(task, key)?;
            let is_unsent = child.link == Some(LinkId::NONE);
            is_unsent.then(|| ((ring, record.name()), child.node))
        })
    }

    /// The task here whose request of a branch to a node had to wait, or was not taken. Peers that
    /// were sent a task can make others of it with branches of the same names and keys: its next
    /// hop, and the same task again, whose own branch may not have been sent at all.
    fn parent_of(&self, header: &Header, key: Key, to: NodeId) -> Option<Place> {
        let Header { call, task } = header;
        let opened = self.records_of_branch(*call, above(task)?).filter_map(|(ring, record)| {
            let at = record.sent(task, key).filter(|at| at.node == to)?;
            Some((at.link.is_some(), (ring, record.name())))
        });
        opened.min_by_key(|(has_left, _)| *has_left).map(|(_, place)| place)
    }
}

/// The branch of the task that sent this one.
fn above(task: &TaskKey) -> Option<Path> {
    match task.hop {
        0 => task.path.parent().map(|(parent, _)| parent),
        _ => Some(task.path.clone()),
    }
}

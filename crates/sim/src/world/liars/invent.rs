//! Frames that liars make up: any at all, mostly about what matters to the node that they are for.

use bytes::Bytes;
use convoke_proto::id::{CallId, Incarnation, LinkNonce, NodeId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{
    Ask, Asked, Cancel, CancelReason, Cause, Credit, Credited, Entry, Executed, Fail, Frame,
    Header, Item, ItemKind, LinkDown, Manifest, Message, Outcome, Part, Probe, Relayed, Reply,
    ReplyKind, ReplyPath, ReplyRoute, Request, Rung, Sealed, Settled, Statement, Status,
    TaskStatus,
};

use crate::network::Place;
use crate::oracle::TaskName;
use crate::plan::{FLAT, TREE};
use crate::world::World;
use crate::world::host::node_id;

impl World {
    /// A task worth lying about to this node.
    fn subject(&mut self, to: Place) -> TaskName {
        let node = node_id(to);
        let roll = self.liars.random.within(0..100);
        if roll < 15
            && let Some(life) = self.some_life()
        {
            // A call that is still to come.
            let life = life.of_stream([0, 1, 2, 3][self.liars.random.index(4)]);
            let opened = self.oracle.calls.keys().filter(|call| call.origin == life).count() as u64;
            let seq = match self.liars.random.within(0..10) {
                0 => 0,
                1 => u64::MAX - self.liars.random.within(0..2),
                _ => 1 + opened + self.liars.random.within(0..3),
            };
            let call = CallId { origin: life, seq };
            let task = self.some_task();
            return TaskName::of(call, task);
        }
        if roll < 40
            && let Some((call, path, _)) = self.liars.random.pick(&self.liars.keys).cloned()
        {
            let below = self.liars.random.index(3);
            let path = (0..below).fold(path, |path, _| {
                path.child(u32::try_from(self.liars.random.index(3)).unwrap_or(0)).unwrap_or(path)
            });
            let hop = u32::try_from(self.liars.random.index(2)).unwrap_or(0);
            return TaskName::of(call, TaskKey { path, hop });
        }
        let matters = |name: &&TaskName| {
            let truth = &self.oracle.tasks[*name];
            let is_there = truth.sent_to == node;
            is_there || self.oracle.calls.get(&name.call).is_some_and(|call| call.node == node)
        };
        let names: Vec<&TaskName> = self
            .oracle
            .tasks
            .keys()
            .filter(|name| name.made_up.is_none())
            .filter(matters)
            .collect();
        let name = self.liars.random.pick(&names).map(|name| (*name).clone());
        let call = CallId { origin: Incarnation(0), seq: 1 };
        name.unwrap_or_else(|| TaskName::of(call, TaskKey { path: Path::root(), hop: 0 }))
    }

    fn some_life(&mut self) -> Option<Incarnation> {
        let lives: Vec<Incarnation> = self.oracle.secrets.keys().copied().collect();
        self.liars.random.pick(&lives).copied()
    }

    fn some_task(&mut self) -> TaskKey {
        let random = &mut self.liars.random;
        let indices: Vec<u32> =
            (0..1 + random.index(3)).map(|_| u32::try_from(random.index(3)).unwrap_or(0)).collect();
        let path = Path::from_indices(&indices).unwrap_or_default();
        TaskKey { path, hop: u32::from(random.chance(20)) }
    }

    fn some_key(&mut self, name: &TaskName) -> Option<Key> {
        let roll = self.liars.random.within(0..100);
        let derived = self.liars.derive(name.call, &name.task.path);
        match roll {
            0..=44 if derived.is_some() => derived,
            0..=64 => self.liars.random.pick(&self.liars.keys).map(|(_, _, key)| *key),
            65..=74 => {
                let known = self.liars.random.pick(&self.liars.keys).map(|(_, _, key)| *key);
                let index = u32::try_from(self.liars.random.index(3)).unwrap_or(0);
                known.map(|key| key.child(index))
            }
            75..=84 => Some(Key(self.liars.random.draw())),
            _ => None,
        }
    }

    fn some_node(&mut self) -> NodeId {
        node_id(self.liars.random.index(self.hosts.len()))
    }

    /// Any node, by any branch on the path of a task or none.
    pub(super) fn some_relay(&mut self, task: &TaskKey) -> Relayed {
        let node = self.some_node();
        let levels = self.liars.random.index(task.path.level_count() + 2);
        let hop = u32::from(self.liars.random.chance(30));
        Relayed { node, at: Rung { levels: u8::try_from(levels).unwrap_or(u8::MAX), hop } }
    }

    fn some_entry(&mut self, task: TaskKey) -> Entry {
        let random = &mut self.liars.random;
        let children = match random.within(0..10) {
            0 => 300,
            1 => u32::MAX,
            _ => u32::try_from(random.index(3)).unwrap_or(0),
        };
        let replies = u32::try_from(random.index(3)).unwrap_or(0);
        let is_finished = random.chance(60);
        let outcome =
            if is_finished { Outcome::Finished } else { Outcome::Failed(Cause::Application) };
        let names = children < 4 && random.chance(60);
        let holders = if names {
            (0..children).map(|_| Some(self.some_node())).collect()
        } else {
            Vec::new()
        };
        Entry { task, children, replies, outcome, holders }
    }

    /// Entries of tasks above one, as if that had been given them to pass on.
    fn some_carried(&mut self, name: &TaskName) -> Vec<Sealed> {
        if self.liars.random.chance(60) {
            return Vec::new();
        }
        let above: Vec<Path> = name.task.path.prefixes().collect();
        let Some(path) = self.liars.random.pick(&above).cloned() else { return Vec::new() };
        let above = TaskName::of(name.call, TaskKey { path, hop: 0 });
        let entry = self.some_entry(above.task.clone());
        let key = self.some_key(&above).unwrap_or(Key(0));
        vec![Sealed::new(entry, key)]
    }

    /// Any frame at all, but one that a reader takes for a frame.
    pub(super) fn invent(&mut self, to: Place, about: Option<TaskName>) -> Frame {
        if self.liars.random.chance(12)
            && let Some(frame) = self.liars.random.pick(self.liars.seen.make_contiguous()).cloned()
        {
            return frame;
        }
        let name = match about {
            Some(name) => name,
            None => self.subject(to),
        };
        let is_initiator =
            self.oracle.calls.get(&name.call).is_some_and(|call| call.node == node_id(to));
        let goes_up = self.liars.random.chance(if is_initiator { 90 } else { 10 });
        let message = if goes_up { self.upward(&name) } else { self.downward(&name) };
        let key = self.some_key(&name);
        let relayed = self.liars.random.chance(12).then(|| self.some_relay(&name.task));
        let header = match &message {
            Message::Ask(_) | Message::Settled(_) => Header::without_call(),
            _ => Header { call: name.call, task: name.task },
        };
        let shows = matches!(
            message,
            Message::Reply(_)
                | Message::Manifest(_)
                | Message::Fail(_)
                | Message::LinkDown(_)
                | Message::Cancel(_)
                | Message::Credit(_)
        );
        Frame { header, relayed, key: key.filter(|_| shows), message }
    }

    fn upward(&mut self, name: &TaskName) -> Message {
        let inherited = self.some_carried(name);
        let entry = self.some_entry(name.task.clone());
        match self.liars.random.within(0..100) {
            0..=34 => Message::Reply(self.some_reply(entry, inherited)),
            35..=49 => Message::Manifest(Manifest { own: Some(entry), inherited }),
            50..=69 => Message::Fail(self.some_failure(entry, inherited)),
            70..=84 => {
                let status = self.some_status(entry);
                let key = self.some_key(name).unwrap_or(Key(0));
                let asked = Asked { task: name.task.clone(), key };
                Message::Status(Status { tasks: vec![(asked, status)], inherited })
            }
            _ => {
                let children = (0..2).filter_map(|index| name.task.path.child(index).ok());
                let mut children: Vec<_> = children.map(|path| TaskKey { path, hop: 0 }).collect();
                if self.liars.random.chance(40) {
                    children = vec![TaskKey { hop: name.task.hop + 1, ..name.task.clone() }];
                }
                let node = self.some_node();
                let own = self.liars.random.chance(30).then_some(entry);
                Message::LinkDown(LinkDown { node, children, own, inherited })
            }
        }
    }

    fn some_reply(&mut self, entry: Entry, inherited: Vec<Sealed>) -> Reply {
        let random = &mut self.liars.random;
        let is_final = random.chance(60);
        let kind = match random.within(0..10) {
            0 => ReplyKind::Item { seq: random.within(0..3), is_last: random.chance(50) },
            1 => ReplyKind::End { count: random.within(0..3) },
            _ => ReplyKind::Message,
        };
        let is_part = kind == ReplyKind::Message && random.chance(10);
        let part = is_part.then(|| Part { offset: 0, total: 1 + random.within(0..9_000_000) });
        let has_payload = !matches!(kind, ReplyKind::End { .. });
        let payload: &'static [u8] = if has_payload { b"a lie" } else { b"" };
        Reply {
            index: u32::try_from(random.index(3)).unwrap_or(0),
            kind,
            part: part.filter(|part| part.total >= payload.len() as u64),
            is_final: is_final && part.is_none(),
            own_entry: (!is_final && random.chance(70)).then(|| Box::new(entry)),
            inherited,
            extensions: Vec::new(),
            payload: Bytes::from_static(payload),
        }
    }

    fn some_failure(&mut self, entry: Entry, inherited: Vec<Sealed>) -> Fail {
        let node = self.liars.random.chance(40).then(|| self.some_node());
        let random = &mut self.liars.random;
        let causes = [Cause::Overloaded, Cause::Application, Cause::Unreachable, Cause::Cancelled];
        let executed = [Executed::No, Executed::No, Executed::Maybe, Executed::Yes];
        Fail {
            cause: causes[random.index(causes.len())],
            executed: executed[random.index(executed.len())],
            code: 0,
            node,
            text: "a lie".to_owned(),
            entry: random.chance(50).then(|| Box::new(entry)),
            aborts_children: random.chance(40),
            inherited,
            extensions: Vec::new(),
            details: Bytes::new(),
        }
    }

    fn some_status(&mut self, entry: Entry) -> TaskStatus {
        let node = self.some_node();
        let entry = Box::new(entry);
        let paths = [ReplyPath::Nowhere, ReplyPath::Relay(node), ReplyPath::Link(LinkNonce(1))];
        let replies_by = paths[self.liars.random.index(paths.len())];
        match self.liars.random.within(0..6) {
            0 => TaskStatus::Unknown,
            1 => TaskStatus::Running,
            2 => TaskStatus::Tailed { node },
            3 => TaskStatus::Fenced,
            4 => TaskStatus::Forgotten,
            _ => TaskStatus::Closed { entry, replies_by },
        }
    }

    fn downward(&mut self, name: &TaskName) -> Message {
        let inherited = self.some_carried(name);
        let key = self.some_key(name).unwrap_or(Key(1));
        let longest = u64::try_from(self.scenario.limits.deadline_max.as_micros()).unwrap_or(1);
        let budget_us = self.liars.random.within(0..longest);
        match self.liars.random.within(0..100) {
            0..=39 => {
                let is_sender = self.liars.random.chance(40);
                let node = match self.oracle.calls.get(&name.call) {
                    Some(call) if self.liars.random.chance(80) => call.node,
                    _ => self.some_node(),
                };
                let random = &mut self.liars.random;
                Message::Request(Request {
                    key,
                    budget_us,
                    outlasted_us: 0,
                    floor: if random.chance(50) { 0 } else { name.call.seq },
                    method: if random.chance(50) { TREE } else { FLAT },
                    reply_route: match is_sender {
                        true => ReplyRoute::Sender,
                        false => ReplyRoute::Node { node, addresses: Vec::new() },
                    },
                    inherited,
                    extensions: Vec::new(),
                    payload: Bytes::from_static(b"a lie"),
                })
            }
            40..=54 => Message::Cancel(Cancel { reason: CancelReason::Caller, budget_us }),
            55..=74 => {
                let asked = Asked { task: name.task.clone(), key };
                let fence = self.liars.random.chance(80);
                Message::Probe(Probe { fence, budget_us, tasks: vec![asked] })
            }
            75..=84 => {
                let limit_bytes = self.liars.random.within(0..1 << 30);
                let of = match limit_bytes % 3 {
                    0 => Credited::Items,
                    _ => Credited::Reply(0),
                };
                Message::Credit(Credit { of, limit_bytes })
            }
            85..=94 => {
                let origin = self.some_life().unwrap_or(name.call.origin);
                let to = if self.liars.random.chance(50) {
                    u64::MAX
                } else {
                    name.call.seq.saturating_add(3)
                };
                let all =
                    Statement { origin, from: 0, to, exceptions: Vec::new(), open: Vec::new() };
                Message::Settled(Settled { statements: vec![all] })
            }
            95..=97 => {
                let kind =
                    ItemKind::Item { seq: budget_us % 4, is_last: budget_us.is_multiple_of(8) };
                let payload = Bytes::from_static(b"a lie");
                Message::Item(Item { kind, part: None, payload })
            }
            _ => Message::Ask(Ask { origins: vec![(name.call.origin, 0)] }),
        }
    }
}

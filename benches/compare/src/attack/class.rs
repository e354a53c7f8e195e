//! Classes of attacks, and the frames of each.

use bytes::Bytes;
use clap::ValueEnum;
use convoke::NodeId;
use convoke::transport::Lane;
use convoke_proto::id::{CallId, Incarnation, MethodId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{
    About, Asked, Cancel, CancelReason, Cast, Cause, Credit, Credited, Digest, Entry, Executed,
    Fail, Frame, Header, LinkDown, Manifest, Message, Probe, Reply, ReplyKind, ReplyRoute, Request,
};
use serde::{Deserialize, Serialize};

use crate::lab::BODY_BYTES;

use super::raw::Reads;

/// Behaviour of a hostile process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing wrong: calls as fast as they are taken.
    Honest,
    /// Nothing wrong: the same requests as [`Class::NeverGrants`], whose replies are read and
    /// granted.
    HonestLarge,
    /// Nothing wrong: the same requests as [`Class::NeverReads`], whose replies are read.
    HonestBulk,
    /// First to speak: replies, manifests, failures and lost connections for the branches of the
    /// honest client.
    SpeaksFirst,
    /// A life is believed: the honest client's life under another name, with floors, cancels and
    /// fences for its calls.
    ClaimsLife,
    /// First to ask: requests in the name of the honest client, for calls that it has not opened
    /// yet.
    AsksFirst,
    /// First to fill: finished calls that are never settled.
    Records,
    /// First to fill: calls whose handlers never end.
    Running,
    /// First to fill: cancels of calls that never come.
    Marks,
    /// First to fill: fences for calls that never come.
    Fences,
    /// First to fill: casts that nobody reads.
    Casts,
    /// First to fill: connections that say hello and nothing more, as fast as they are taken.
    Connections,
    /// First to fill: connections that say nothing at all.
    Handshakes,
    /// First to fill: replies that are never read, over many connections.
    NeverReads,
    /// The same by five hundred peers, each at an address of its own.
    NobodyReads,
    /// First to fill: large replies that are never granted.
    NeverGrants,
    /// First to fill: requests in the names of nodes that the victim would have to dial.
    Dials,
}

/// Identity of a hostile peer, and the identities that it knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knows {
    /// The life that it claims itself.
    pub(super) own: Incarnation,
    /// The honest client.
    pub(super) client: NodeId,
    pub(super) life: Incarnation,
    /// The time of its calls.
    pub(super) budget_us: u64,
}

impl Class {
    /// All but the honest one.
    pub const HOSTILE: [Self; 14] = [
        Self::SpeaksFirst,
        Self::ClaimsLife,
        Self::AsksFirst,
        Self::Records,
        Self::Running,
        Self::Marks,
        Self::Fences,
        Self::Casts,
        Self::Connections,
        Self::Handshakes,
        Self::NeverReads,
        Self::NobodyReads,
        Self::NeverGrants,
        Self::Dials,
    ];

    /// As in rows and arguments.
    ///
    /// # Panics
    /// Never: no class is hidden.
    pub fn name(self) -> String {
        self.to_possible_value().expect("no class is hidden").get_name().to_owned()
    }

    /// The same load sent honestly: what its latencies are compared with.
    pub fn baseline(self) -> Self {
        match self {
            Self::NeverGrants | Self::HonestLarge => Self::HonestLarge,
            Self::NeverReads | Self::NobodyReads | Self::HonestBulk => Self::HonestBulk,
            _ => Self::Honest,
        }
    }

    /// True when it opens connections rather than sending frames over one.
    pub(super) fn is_crowd(self) -> bool {
        self.is_bulk() || matches!(self, Self::Connections | Self::Handshakes)
    }

    /// True when each connection of its crowd asks for much.
    pub(super) fn is_bulk(self) -> bool {
        matches!(self, Self::NeverReads | Self::NobodyReads | Self::HonestBulk)
    }

    /// Requests of each connection of a crowd that asks for much. Of one that does not read so many
    /// that the replies do not fit its room; those to many peers do not fit the room for all.
    pub(super) fn bulk_requests(self) -> u64 {
        if self == Self::NeverReads { 2_000 } else { 200 }
    }

    /// Peers of the hostile process, each at an address of its own.
    pub(super) fn peers(self) -> usize {
        if self == Self::NobodyReads { 500 } else { 1 }
    }

    /// Treatment of what comes, where the process sends frames.
    pub(super) fn reads(self) -> Reads {
        match self {
            Self::NeverReads | Self::NobodyReads | Self::Connections => Reads::Nothing,
            Self::HonestLarge => Reads::AndGrants,
            _ => Reads::Everything,
        }
    }

    /// True when it attacks the honest client itself.
    pub(super) fn is_at_client(self) -> bool {
        self == Self::SpeaksFirst
    }

    /// The frames of this number.
    pub(super) fn frames(self, knows: &Knows, number: u64) -> Vec<(Lane, Frame)> {
        let own = call(knows.own, number + 1);
        let key = key_of(&own);
        // Where the client's numbers are it cannot know: behind, about there, ahead.
        let of_client = || call(knows.life, 1 + (number << (number % 8)) / 8);
        let (root, below) = (task(&[0]), task(&[0, 0]));
        let data = |call, task: &TaskKey, message| (Lane::Data, framed(call, task, None, message));
        let control =
            |call, task: &TaskKey, key, message| (Lane::Control, framed(call, task, key, message));
        let request = |method, distance| Message::Request(knows.request(key, method, distance));
        let cancel =
            Message::Cancel(Cancel { reason: CancelReason::Caller, budget_us: knows.budget_us });
        match self {
            Self::Honest => vec![data(own, &root, request("Echo", 64.min(number + 1)))],
            Self::SpeaksFirst => {
                let message = speech(number, &root);
                vec![(Lane::Data, framed(of_client(), &root, Some(key), message))]
            }
            Self::ClaimsLife => match number % 4 {
                // Of a call far ahead: as if all before it were settled.
                0 => vec![data(call(knows.life, 1 << 40), &root, request("Echo", 0))],
                1 => vec![control(of_client(), &root, Some(key), cancel)],
                2 => vec![control(of_client(), &root, None, cancel)],
                _ => vec![data(of_client(), &root, knows.fence([(root.clone(), key)]))],
            },
            Self::AsksFirst => {
                let mut asks = knows.request(key, "Echo", 0);
                asks.reply_route = ReplyRoute::Node { node: knows.client, addresses: Vec::new() };
                vec![data(of_client(), &below, Message::Request(asks))]
            }
            // As if none of them were settled, ever.
            Self::Records => vec![data(own, &root, request("Echo", number + 1))],
            Self::Running => vec![data(own, &root, request("Never", number + 1))],
            Self::Marks => vec![control(own, &root, Some(key), cancel)],
            Self::Fences => {
                let many = (0..8).map(|index| (task(&[index]), key));
                vec![data(own, &root, knows.fence(many))]
            }
            Self::Casts => vec![data(own, &root, knows.cast())],
            Self::NeverGrants | Self::HonestLarge => {
                vec![data(own, &root, request("Large", number + 1))]
            }
            Self::NeverReads | Self::NobodyReads | Self::HonestBulk => {
                vec![data(own, &root, request("Bulk", number + 1))]
            }
            Self::Dials => {
                let mut asks = knows.request(key, "Echo", 0);
                let node = NodeId::new(10_000 + number);
                let nobody = "tcp://127.0.0.3:9".parse().expect("it is an address");
                asks.reply_route = ReplyRoute::Node { node, addresses: vec![nobody] };
                vec![data(own, &below, Message::Request(asks))]
            }
            Self::Connections | Self::Handshakes => Vec::new(),
        }
    }
}

impl Knows {
    fn request(&self, key: Key, method: &str, distance: u64) -> Request {
        Request {
            key,
            budget_us: self.budget_us,
            outlasted_us: 0,
            floor: distance,
            method: MethodId::of(&format!("compare.Lab/{method}")),
            reply_route: ReplyRoute::Sender,
            inherited: Vec::new(),
            extensions: Vec::new(),
            payload: body(),
        }
    }

    fn fence(&self, tasks: impl IntoIterator<Item = (TaskKey, Key)>) -> Message {
        let tasks = tasks.into_iter().map(|(task, key)| Asked { task, key }).collect();
        Message::Probe(Probe { fence: true, budget_us: self.budget_us, tasks })
    }

    fn cast(&self) -> Message {
        Message::Cast(Cast {
            about: About::Call { initiator: NodeId::new(1) },
            phase: 0,
            sender: 0,
            epoch: 0,
            budget_us: self.budget_us,
            digest: Digest::ZERO,
            is_carried: false,
            payload: vec![7; 1_000].into(),
        })
    }
}

/// Messages of one that speaks for others: each kind in turn.
fn speech(number: u64, root: &TaskKey) -> Message {
    let entry = || Entry::sole_reply(root.clone());
    match number % 4 {
        0 => Message::Reply(Reply {
            index: 0,
            kind: ReplyKind::Message,
            part: None,
            is_final: true,
            own_entry: None,
            inherited: Vec::new(),
            extensions: Vec::new(),
            payload: body(),
        }),
        1 => Message::Manifest(Manifest { own: Some(entry()), inherited: Vec::new() }),
        2 => Message::Fail(Fail {
            cause: Cause::Panicked,
            executed: Executed::Yes,
            code: 0,
            text: "as if it were said by another".into(),
            details: Bytes::new(),
            node: None,
            entry: None,
            aborts_children: false,
            inherited: Vec::new(),
            extensions: Vec::new(),
        }),
        _ => Message::LinkDown(LinkDown {
            node: NodeId::new(1),
            children: vec![root.clone()],
            own: Some(entry()),
            inherited: Vec::new(),
        }),
    }
}

/// Request body of a small call, as protobuf has it: the field's tag, its length, its bytes.
fn body() -> Bytes {
    let length = u8::try_from(BODY_BYTES).expect("it is small");
    [&[0x0a, length][..], &[7; BODY_BYTES]].concat().into()
}

/// The key of the only branch of an own call.
fn key_of(call: &CallId) -> Key {
    Key((call.seq - 1).wrapping_mul(0x9e37_79b9) | 1)
}

/// The frame that lets the rest of a reply come, if this one brings its first part.
pub(super) fn grant_for(frame: Frame) -> Option<Frame> {
    let Message::Reply(Reply { index, part: Some(part), .. }) = frame.message else { return None };
    if part.offset > 0 {
        return None;
    }
    let Header { call, task } = frame.header;
    let credit = Credit { of: Credited::Reply(index), limit_bytes: part.total };
    Some(framed(call, &task, Some(key_of(&call)), Message::Credit(credit)))
}

fn call(origin: Incarnation, seq: u64) -> CallId {
    CallId { origin, seq }
}

fn task(indices: &[u32]) -> TaskKey {
    TaskKey { path: Path::from_indices(indices).expect("it is shallow"), hop: 0 }
}

fn framed(call: CallId, task: &TaskKey, key: Option<Key>, message: Message) -> Frame {
    let header = Header { call, task: task.clone() };
    Frame { header, relayed: None, key, message }
}

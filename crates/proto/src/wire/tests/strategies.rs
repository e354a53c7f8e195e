//! Any frame that a correct node could send.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::address::Address;
use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::key::Key;
use crate::wire::{
    About, Ask, Asked, Cancel, CancelReason, Cast, Cause, Credit, Credited, Digest, Entry,
    Executed, Extension, Fail, Frame, Header, Item, ItemKind, LinkDown, Manifest, Message, Outcome,
    Part, Parting, Probe, Relayed, Reply, ReplyKind, ReplyPath, ReplyRoute, Request, Rung, Sealed,
    Settled, Statement, Status, TaskStatus, can_show_key,
};

/// `count` cases, and no file of failures: a failure that matters becomes a test of its own.
pub(super) fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() }
}

pub(super) fn frame() -> impl Strategy<Value = Frame> {
    let relayed = (node(), any::<u8>(), any::<u32>())
        .prop_map(|(node, levels, hop)| Relayed { node, at: Rung { levels, hop } });
    let shown = (option::weighted(0.2, relayed), option::weighted(0.3, branch_key()));
    (header(), shown, message()).prop_map(|(header, (relayed, key), message)| {
        let key = key.filter(|_| can_show_key(message.kind()));
        Frame { header, relayed, key, message }
    })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        request().prop_map(Message::Request),
        reply().prop_map(Message::Reply),
        manifest().prop_map(Message::Manifest),
        fail().prop_map(Message::Fail),
        cancel().prop_map(Message::Cancel),
        probe().prop_map(Message::Probe),
        status().prop_map(Message::Status),
        link_down().prop_map(Message::LinkDown),
        (credited(), number())
            .prop_map(|(of, limit_bytes)| Message::Credit(Credit { of, limit_bytes })),
        cast().prop_map(Message::Cast),
        ask().prop_map(Message::Ask),
        settled().prop_map(Message::Settled),
        item().prop_map(Message::Item),
        prop_oneof![Just(Parting::Leaving), number().prop_map(Parting::Sent)]
            .prop_map(Message::Parting),
    ]
}

fn credited() -> impl Strategy<Value = Credited> {
    prop_oneof![3 => number_u32().prop_map(Credited::Reply), 1 => Just(Credited::Items)]
}

fn header() -> impl Strategy<Value = Header> {
    (any::<u64>(), number(), key()).prop_map(|(origin, seq, task)| Header {
        call: CallId { origin: Incarnation(origin), seq },
        task,
    })
}

/// Numbers of every width alike, so that varints of every length occur.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift)
}

fn number_u32() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32_u32).prop_map(|(value, shift)| value >> shift)
}

fn number_u16() -> impl Strategy<Value = u16> {
    (any::<u16>(), 0..16_u32).prop_map(|(value, shift)| value >> shift)
}

/// Few nodes, so that they repeat, and any node.
fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![3 => 1..4_u64, 1 => 1..=u64::MAX].prop_map(NodeId::new)
}

fn path() -> impl Strategy<Value = Path> {
    prop_oneof![vec(0..4_u32, 0..4), vec(0..4_u32, 0..=32), vec(any::<u32>(), 0..=12)]
        .prop_map(|indices| Path::from_indices(&indices).unwrap())
}

fn key() -> impl Strategy<Value = TaskKey> {
    (path(), number_u32()).prop_map(|(path, hop)| TaskKey { path, hop })
}

fn branch_key() -> impl Strategy<Value = Key> {
    any::<u64>().prop_map(Key)
}

fn payload() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..48).prop_map(Bytes::from)
}

fn cause() -> impl Strategy<Value = Cause> {
    prop::sample::select(&Cause::ALL[..])
}

fn entry() -> impl Strategy<Value = Entry> {
    let outcome = prop_oneof![Just(Outcome::Finished), cause().prop_map(Outcome::Failed)];
    let holders = prop_oneof![
        number_u32().prop_map(|children| (children, Vec::new())),
        vec(option::weighted(0.9, node()), 1..24).prop_map(|holders| {
            (u32::try_from(holders.len()).expect("fewer than 24"), holders)
        }),
    ];
    (key(), number_u32(), outcome, holders).prop_map(
        |(task, replies, outcome, (children, holders))| Entry {
            task,
            children,
            replies,
            outcome,
            holders,
        },
    )
}

fn sealed(count_max: usize) -> impl Strategy<Value = Vec<Sealed>> {
    let sealed = (entry(), any::<u64>()).prop_map(|(entry, seal)| Sealed { entry, seal });
    vec(sealed, 0..=count_max)
}

fn extensions() -> impl Strategy<Value = Vec<Extension>> {
    let extension = (any::<u8>(), vec(any::<u8>(), 0..40))
        .prop_map(|(tag, value)| Extension { tag, value: value.into() });
    vec(extension, 0..4)
}

fn manifest() -> impl Strategy<Value = Manifest> {
    (option::of(entry()), entry(), branch_key(), sealed(4)).prop_map(
        |(own, other, key, mut inherited)| {
            if own.is_none() {
                inherited.push(Sealed::new(other, key));
            }
            Manifest { own, inherited }
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let rest = (sealed(2), extensions(), payload());
    let numbers = (number(), number(), number());
    (branch_key(), numbers, any::<u32>(), reply_route(), rest).prop_map(
        |(
            key,
            (budget_us, outlasted_us, floor),
            method,
            reply_route,
            (inherited, extensions, payload),
        )| Request {
            key,
            budget_us,
            outlasted_us,
            floor,
            method: MethodId(method),
            reply_route,
            inherited,
            extensions,
            payload,
        },
    )
}

fn reply_route() -> impl Strategy<Value = ReplyRoute> {
    let address = "[a-z]{1,6}://[a-zé0-9.:]{1,40}";
    let address = address.prop_map(|text| text.parse::<Address>().unwrap());
    prop_oneof![
        Just(ReplyRoute::Sender),
        (node(), vec(address, 0..=8))
            .prop_map(|(node, addresses)| ReplyRoute::Node { node, addresses }),
    ]
}

/// Values of the flags FINAL and OWN_ENTRY, which exclude each other.
fn ending() -> impl Strategy<Value = (bool, Option<Box<Entry>>)> {
    prop_oneof![
        Just((false, None)),
        Just((true, None)),
        entry().prop_map(|entry| (false, Some(Box::new(entry)))),
    ]
}

/// A whole message, or a piece of one that has so many bytes at least.
fn content(least: usize) -> impl Strategy<Value = (Option<Part>, Bytes)> {
    let whole = payload().prop_map(|payload| (None, payload));
    let piece = (number_u32(), number_u32(), vec(any::<u8>(), least..48)).prop_map(
        |(offset, behind, payload)| {
            let offset = u64::from(offset);
            let total = offset + payload.len() as u64 + u64::from(behind);
            (Some(Part { offset, total }), Bytes::from(payload))
        },
    );
    prop_oneof![whole, piece]
}

fn reply() -> impl Strategy<Value = Reply> {
    let kind = prop_oneof![
        Just(ReplyKind::Message),
        (number(), any::<bool>()).prop_map(|(seq, is_last)| ReplyKind::Item { seq, is_last }),
    ];
    let with_content = (kind, content(0));
    let riding = (sealed(2), prop_oneof![Just(Vec::new()), extensions()]);
    let end = number().prop_map(|count| (ReplyKind::End { count }, (None, Bytes::new())));
    (number_u32(), prop_oneof![4 => with_content, 1 => end], ending(), riding).prop_map(
        |(index, (kind, (part, payload)), (is_final, own_entry), riding)| Reply {
            index,
            kind,
            part,
            is_final,
            own_entry,
            inherited: riding.0,
            extensions: riding.1,
            payload,
        },
    )
}

fn fail() -> impl Strategy<Value = Fail> {
    let executed = prop::sample::select(&[Executed::No, Executed::Yes, Executed::Maybe][..]);
    let what = (cause(), executed, any::<u32>(), option::of(node()), "[ -~é]{0,40}");
    let entry = option::of(entry().prop_map(Box::new));
    let riding = (sealed(2), prop_oneof![Just(Vec::new()), extensions()]);
    (what, entry, any::<bool>(), riding, payload()).prop_map(
        |((cause, executed, code, node, text), entry, aborts_children, riding, details)| Fail {
            cause,
            executed,
            code,
            node,
            text,
            entry,
            aborts_children,
            inherited: riding.0,
            extensions: riding.1,
            details,
        },
    )
}

fn cancel() -> impl Strategy<Value = Cancel> {
    let reason = prop::sample::select(
        &[
            CancelReason::Caller,
            CancelReason::ResourceExhausted,
            CancelReason::Late,
            CancelReason::ParentFailed,
        ][..],
    );
    (reason, number()).prop_map(|(reason, budget_us)| Cancel { reason, budget_us })
}

/// Some tasks with their keys, and something of each.
fn asked<T: std::fmt::Debug>(
    of_each: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<(Asked, T)>> {
    let tasks = vec((key(), branch_key(), of_each), 1..6);
    tasks.prop_map(|tasks| {
        tasks.into_iter().map(|(task, key, of_it)| (Asked { task, key }, of_it)).collect()
    })
}

fn probe() -> impl Strategy<Value = Probe> {
    (any::<bool>(), number(), asked(Just(()))).prop_map(|(fence, budget_us, tasks)| Probe {
        fence,
        budget_us,
        tasks: tasks.into_iter().map(|(asked, ())| asked).collect(),
    })
}

fn status() -> impl Strategy<Value = Status> {
    (asked(task_status()), sealed(2)).prop_map(|(tasks, inherited)| Status { tasks, inherited })
}

fn task_status() -> impl Strategy<Value = TaskStatus> {
    let replies_by = prop_oneof![
        Just(ReplyPath::Nowhere),
        any::<u64>().prop_map(|nonce| ReplyPath::Link(LinkNonce(nonce))),
        node().prop_map(ReplyPath::Relay),
    ];
    prop_oneof![
        Just(TaskStatus::Unknown),
        Just(TaskStatus::Running),
        node().prop_map(|node| TaskStatus::Tailed { node }),
        (entry(), replies_by)
            .prop_map(|(entry, replies_by)| TaskStatus::Closed { entry: entry.into(), replies_by }),
        Just(TaskStatus::Fenced),
        Just(TaskStatus::Forgotten),
    ]
}

fn link_down() -> impl Strategy<Value = LinkDown> {
    (node(), vec(key(), 0..6), option::of(entry()), sealed(3))
        .prop_map(|(node, children, own, inherited)| LinkDown { node, children, own, inherited })
}

fn origin() -> impl Strategy<Value = Incarnation> {
    any::<u64>().prop_map(Incarnation)
}

fn ask() -> impl Strategy<Value = Ask> {
    prop::collection::btree_map(origin(), number(), 1..6)
        .prop_map(|origins| Ask { origins: origins.into_iter().collect() })
}

fn settled() -> impl Strategy<Value = Settled> {
    vec(statement(), 1..5).prop_map(|statements| Settled { statements })
}

/// Each step is a difference: from the number before to an exception, and from the last to the end.
fn statement() -> impl Strategy<Value = Statement> {
    let steps = vec(number_u32(), 0..6);
    let named = vec((any::<prop::sample::Index>(), key()), 0..4);
    let parts = (origin(), number(), number_u32(), steps, named);
    parts.prop_map(|(origin, from, behind, steps, named)| {
        let from = from.min(u64::MAX >> 1);
        let (mut exceptions, mut next) = (Vec::new(), from);
        for step in steps {
            exceptions.push(next + u64::from(step));
            next += u64::from(step) + 1;
        }
        let named = named.into_iter().filter(|_| !exceptions.is_empty());
        let mut open: Vec<_> = named.map(|(place, task)| (*place.get(&exceptions), task)).collect();
        open.sort();
        open.dedup();
        Statement { origin, from, to: next + u64::from(behind), exceptions, open }
    })
}

fn item() -> impl Strategy<Value = Item> {
    let kind = (number(), any::<bool>()).prop_map(|(seq, is_last)| ItemKind::Item { seq, is_last });
    let end = number().prop_map(|count| (ItemKind::End { count }, (None, Bytes::new())));
    prop_oneof![4 => (kind, content(1)), 1 => end].prop_map(|(kind, (part, payload))| Item {
        kind,
        part,
        payload,
    })
}

fn about() -> impl Strategy<Value = About> {
    let call = (1..=u64::MAX).prop_map(|node| About::Call { initiator: NodeId::new(node) });
    prop_oneof![call, number().prop_map(|view| About::Tag { view })]
}

fn cast() -> impl Strategy<Value = Cast> {
    let digest = any::<[u8; 32]>().prop_map(Digest);
    let numbers = (number_u16(), number_u16(), number(), number());
    (about(), numbers, digest, any::<bool>(), payload()).prop_map(
        |(about, (phase, sender, epoch, budget_us), digest, is_carried, payload)| Cast {
            about,
            phase,
            sender,
            epoch,
            budget_us,
            digest,
            is_carried,
            payload,
        },
    )
}

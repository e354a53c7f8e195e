//! Sizes of typical frames, and what a receiver refuses.

use bytes::Bytes;

use super::golden::{self, header, key, leaf_entry, node};
use crate::id::{Incarnation, TaskKey};
use crate::key::Key;
use crate::wire::entry::CHILDREN_MAX;
use crate::wire::fail::TEXT_BYTES_MAX;
use crate::wire::{
    ASKED_MAX, About, Ask, Asked, Cancel, CancelReason, Cast, Cause, Credit, Credited, Digest,
    EXCEPTIONS_MAX, Entry, Executed, Extension, Fail, Frame, Header, Item, ItemKind, LinkDown,
    Manifest, Message, NAMED_MAX, Outcome, Part, Parting, Probe, Reply, ReplyKind, ReplyPath,
    ReplyRoute, Request, Sealed, Settled, Statement, Status, TASKS_MAX, TaskStatus, WireError,
};

/// Bytes that TCP adds: the frame's length.
const LENGTH_BYTES: usize = 4;

/// The key of every branch here.
const KEY: Key = Key(7);

/// The default deadline.
const BUDGET_US: u64 = 10_000_000;

fn request(inherited: Vec<Sealed>) -> Request {
    Request {
        key: KEY,
        budget_us: BUDGET_US,
        outlasted_us: 0,
        floor: 0,
        method: crate::id::MethodId::of("shop.Stock/Reserve"),
        reply_route: ReplyRoute::Sender,
        inherited,
        extensions: Vec::new(),
        payload: Bytes::new(),
    }
}

fn sealed(entry: Entry) -> Sealed {
    Sealed::new(entry, KEY)
}

fn asked() -> Asked {
    Asked { task: key("/2"), key: KEY }
}

fn status(status: TaskStatus) -> Frame {
    let tasks = vec![(asked(), status)];
    let status = Status { tasks, inherited: Vec::new() };
    Frame::new(header("/"), Message::Status(status))
}

fn manifest(own: Entry) -> Frame {
    let manifest = Manifest { own: Some(own), inherited: Vec::new() };
    Frame::new(header("/2"), Message::Manifest(manifest))
}

fn link_down(children: Vec<TaskKey>) -> LinkDown {
    LinkDown { node: node(9), children, own: None, inherited: Vec::new() }
}

fn fail(text: &str) -> Fail {
    Fail {
        cause: Cause::Application,
        executed: Executed::Yes,
        code: 0,
        node: None,
        text: text.to_owned(),
        entry: None,
        aborts_children: false,
        inherited: Vec::new(),
        extensions: Vec::new(),
        details: Bytes::new(),
    }
}

fn statement(from: u64, to: u64, exceptions: Vec<u64>) -> Statement {
    Statement { origin: header("/").call.origin, from, to, exceptions, open: Vec::new() }
}

/// An entry whose children went to `node_count` nodes in turn.
fn fan_out(children: u32, node_count: u64) -> Entry {
    let holders = (0..u64::from(children)).map(|child| Some(node(1 + child % node_count)));
    Entry { children, holders: holders.collect(), ..leaf_entry() }
}

#[test]
fn a_typical_header_is_20_bytes_with_the_transports_length() {
    let credit = Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 0 });
    let frame = Frame::new(header("/2"), credit);
    assert_eq!(LENGTH_BYTES + frame.head_len() - 2, 20);
}

#[test]
fn typical_frames_are_this_small() {
    let task = |message| Frame::new(header("/2"), message);
    let keyed = |message| Frame::keyed(header("/2"), KEY, message);
    let about_connection = |word| Frame::new(Header::without_call(), Message::Parting(word));
    let sole = Reply::sole(Bytes::new());
    let item =
        Reply { kind: ReplyKind::Item { seq: 0, is_last: false }, is_final: false, ..sole.clone() };
    let own = |entry: Entry| Reply {
        is_final: false,
        own_entry: Some(entry.into()),
        ..Reply::sole(Bytes::new())
    };
    let cancel = |budget_us| Cancel { reason: CancelReason::Caller, budget_us };
    let closed = |replies_by| TaskStatus::Closed { entry: leaf_entry().into(), replies_by };
    let probe = Probe { fence: false, budget_us: BUDGET_US, tasks: vec![asked()] };
    let link_down = link_down(vec![key("/2/1")]);
    let (origin, from) = (header("/").call.origin, 70_000);
    let ask = Ask { origins: vec![(origin, from)] };
    let settled = Settled { statements: vec![statement(from, from + 300, Vec::new())] };
    let kind = ItemKind::Item { seq: 0, is_last: false };
    let request_item = Item { kind, part: None, payload: Bytes::new() };
    let cast = |about| {
        let (digest, payload) = (Digest([7; 32]), Bytes::new());
        Cast {
            about,
            phase: 0,
            sender: 2,
            epoch: 0,
            budget_us: BUDGET_US,
            digest,
            is_carried: false,
            payload,
        }
    };
    let sizes = [
        ("request", task(Message::Request(request(Vec::new()))), 39),
        ("request with an entry", task(Message::Request(request(vec![sealed(leaf_entry())]))), 54),
        ("sole reply", task(Message::Reply(sole.clone())), 21),
        ("sole reply with a key", keyed(Message::Reply(sole)), 29),
        ("item of a stream", task(Message::Reply(item)), 22),
        ("reply with the task's entry", task(Message::Reply(own(leaf_entry()))), 28),
        ("the same after 3 delegations to 1 node", task(Message::Reply(own(fan_out(3, 1)))), 36),
        ("manifest", manifest(leaf_entry()), 28),
        ("manifest of a fan-out to 3 nodes", manifest(fan_out(3, 3)), 55),
        ("fail", task(Message::Fail(fail(""))), 36),
        (
            "fail with the task's entry",
            task(Message::Fail(Fail { entry: Some(leaf_entry().into()), ..fail("") })),
            43,
        ),
        ("cancel", keyed(Message::Cancel(cancel(BUDGET_US))), 33),
        ("cancel with 2 s left", keyed(Message::Cancel(cancel(2_000_000))), 32),
        ("probe", Frame::new(header("/"), Message::Probe(probe)), 35),
        ("status of a running task", status(TaskStatus::Running), 33),
        ("status of a silent task", status(closed(ReplyPath::Nowhere)), 41),
        ("status of a task that replied", status(closed(ReplyPath::Relay(node(6)))), 49),
        ("link down", task(Message::LinkDown(link_down)), 34),
        (
            "credit of 1 MiB",
            keyed(Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 1 << 20 })),
            32,
        ),
        ("ask", Frame::new(Header::without_call(), Message::Ask(ask)), 29),
        ("settled", Frame::new(Header::without_call(), Message::Settled(settled)), 33),
        ("item of a request", task(Message::Item(request_item)), 21),
        ("leaving", about_connection(Parting::Leaving), 17),
        ("sent", about_connection(Parting::Sent(127)), 18),
        (
            "cast",
            Frame::new(header("/"), Message::Cast(cast(About::Call { initiator: node(7) }))),
            59,
        ),
        (
            "cast about a tag",
            Frame::new(header("/"), Message::Cast(cast(About::Tag { view: 7 }))),
            59,
        ),
    ];
    for (name, frame, size) in sizes {
        assert_eq!(LENGTH_BYTES + frame.encoded_len(), size, "{name}");
    }
    assert_eq!(leaf_entry().encoded_len(), 7);
}

#[test]
fn reserved_flags_are_refused() {
    let in_use =
        [0x83, 0xff, 0x81, 0x87, 0x80, 0x81, 0x80, 0x81, 0x81, 0x83, 0x80, 0x80, 0xd4, 0xff, 0x83];
    for golden in golden::all() {
        let bytes = golden.frame.to_bytes();
        let reserved = !in_use[usize::from((bytes[0] & 0x0f) - 1)];
        // RELAYED stays as it is: it would shift what follows.
        for flags in (0..0x80).filter(|flags| flags & reserved != 0) {
            let flags = flags | (bytes[1] & 0x80);
            let decoded = Frame::decode(with_byte(&bytes, 1, flags));
            assert_eq!(decoded, Err(WireError::Reserved), "{} flags {flags:02x}", golden.name);
        }
    }
}

#[test]
fn every_change_of_one_byte_decodes_canonically_or_is_refused() {
    for golden in golden::all() {
        let bytes = golden.frame.to_bytes();
        for (at, value) in
            (0..bytes.len()).flat_map(|at| (0..=u8::MAX).map(move |value| (at, value)))
        {
            let changed = with_byte(&bytes, at, value);
            if let Ok(frame) = Frame::decode(changed.clone()) {
                assert_eq!(frame.to_bytes(), changed, "{} byte {at} = {value:02x}", golden.name);
            }
        }
    }
}

fn with_byte(bytes: &Bytes, at: usize, value: u8) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at] = value;
    bytes.into()
}

#[test]
fn other_versions_and_kinds_are_refused() {
    let bytes = golden::all()[0].frame.to_bytes();
    let first = |value| Frame::decode(with_byte(&with_byte(&bytes, 0, value), 1, 0));
    assert_eq!(first(0x01), Err(WireError::Version(0)));
    assert_eq!(first(0x11), Err(WireError::Version(1)));
    assert_eq!(first(0x31), Err(WireError::Version(3)));
    assert_eq!(first(0xf1), Err(WireError::Version(7)));
    assert_eq!(first(0x20), Err(WireError::UnknownKind(0)));
    assert_eq!(first(0x2f), Err(WireError::Reserved), "FEATURES is no frame of calls");
    assert_eq!(Frame::decode(Bytes::new()), Err(WireError::Truncated));
}

#[test]
fn a_key_is_shown_only_where_a_branch_speaks() {
    for golden in golden::all() {
        let (bytes, kind) = (golden.frame.to_bytes(), golden.frame.message.kind());
        let decoded = Frame::decode(with_byte(&bytes, 0, 0xa0 | kind));
        let may_show = [2, 3, 4, 5, 8, 9, 14].contains(&kind);
        // Where one may be shown, the next bytes are taken for it, and the rest for another
        // message.
        assert_eq!(decoded == Err(WireError::Reserved), !may_show, "{}", golden.name);
    }
    let keyed = Frame::keyed(header("/2"), KEY, Message::Reply(Reply::sole(Bytes::new())));
    assert_eq!(keyed.to_bytes()[16..24], KEY.0.to_le_bytes());
}

#[test]
fn a_seal_is_of_one_key_and_one_entry() {
    let sealed = sealed(fan_out(3, 2));
    assert!(sealed.is_of(KEY) && !sealed.is_of(KEY.child(0)));
    for changed in [
        Entry { holders: Vec::new(), ..sealed.entry.clone() },
        Entry { replies: 2, ..sealed.entry.clone() },
        Entry { task: key("/3"), ..sealed.entry.clone() },
        Entry { outcome: Outcome::Failed(Cause::Deadline), ..sealed.entry.clone() },
        fan_out(3, 3),
    ] {
        let changed = Sealed { entry: changed, ..sealed };
        assert!(!changed.is_of(KEY), "{changed:?}");
    }
}

/// A frame of `kind` with these bytes behind a typical header.
fn raw(kind: u8, flags: u8, fields: &[&[u8]]) -> Result<Frame, WireError> {
    let header = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xf0, 0xa2, 0x04, 1, 2, 0];
    Frame::decode([&[0x20 | kind, flags], &header[..], &fields.concat()].concat().into())
}

const NODE: [u8; 8] = [7, 0, 0, 0, 0, 0, 0, 0];
const NEXT_NODE: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 0];

/// The key with which the message of a REQUEST begins.
const ANY_KEY: [u8; 8] = [9; 8];

/// An origin or a seal.
const ANY_U64: [u8; 8] = [5; 8];

#[test]
fn counts_that_the_frame_cannot_hold_are_refused_at_once() {
    let most: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let many: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f];
    for count in [most, many, &[2]] {
        let entry_start: &[u8] = &[1, 2, 0, 3, 0, 0];
        let frames = [
            ("inherited of REQUEST", raw(1, 0, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 0], count])),
            ("extensions", raw(1, 1, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 0, 0], count])),
            ("an extension", raw(1, 1, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 0, 0, 1, 1], count])),
            ("inherited of REPLY", raw(2, 0x20, &[&[0], count])),
            ("entries", raw(3, 0, &[count])),
            ("holders of the own entry", raw(3, 1, &[entry_start, count])),
            ("holders", raw(3, 0, &[&[1], entry_start, count, &ANY_U64])),
            ("text", raw(4, 0, &[&[1, 1, 0, 0, 0, 0], &[0; 8], count])),
            ("extensions of FAIL", raw(4, 4, &[&[1, 1, 0, 0, 0, 0], &[0; 8], &[0, 0], count])),
            ("tasks of PROBE", raw(6, 0, &[&[0], count])),
            ("tasks of STATUS", raw(7, 0, &[count])),
            ("origins", raw(11, 0, &[count])),
            ("statements", raw(12, 0, &[count])),
            ("exceptions", raw(12, 0, &[&[1], &ANY_U64, &[1, 9], count])),
            ("extensions of REPLY", raw(14, 0, &[count])),
            ("children", raw(8, 0, &[&NODE, count])),
        ];
        for (name, decoded) in frames {
            assert_eq!(decoded, Err(WireError::OverLimit), "{name}");
        }
    }
}

#[test]
fn one_frame_expands_to_one_list_of_65_536_holders_at_most() {
    let most = u32::try_from(CHILDREN_MAX).unwrap();
    let decodes = |own: Entry, others: Vec<Entry>| {
        let inherited = others.into_iter().map(sealed).collect();
        let manifest = Message::Manifest(Manifest { own: Some(own), inherited });
        Frame::decode(Frame::new(header("/2"), manifest).to_bytes()).map(|_| ())
    };
    assert_eq!(decodes(fan_out(most, 1), Vec::new()), Ok(()));
    assert_eq!(decodes(fan_out(most, 3), Vec::new()), Ok(()));
    assert_eq!(decodes(fan_out(most - 1, 1), vec![fan_out(1, 1)]), Ok(()));
    assert_eq!(decodes(fan_out(most + 1, 1), Vec::new()), Err(WireError::OverLimit));
    assert_eq!(decodes(fan_out(most - 1, 1), vec![fan_out(2, 2)]), Err(WireError::OverLimit));
    let both = vec![fan_out(most - 1, 1), fan_out(2, 2)];
    assert_eq!(decodes(leaf_entry(), both), Err(WireError::OverLimit));
}

#[test]
fn holders_have_one_encoding() {
    let entry = |children: u8, holders: &[&[u8]]| {
        let fields: [&[u8]; 3] = [&[1, 2, 0, children, 0, 0], &holders.concat(), &[0]];
        raw(3, 0x01, &fields).map(|_| ())
    };
    assert_eq!(entry(2, &[&[2], &NODE, &NEXT_NODE, &[0, 1]]), Ok(()));
    let none_first = [0; 8];
    assert_eq!(entry(2, &[&[2], &none_first, &NODE, &[1, 0]]), Ok(()));
    let refused: [(&str, u8, &[&[u8]]); 6] = [
        ("a holder of no child", 0, &[&[1], &NODE]),
        ("out of order", 2, &[&[2], &NEXT_NODE, &NODE, &[0, 1]]),
        ("twice the same", 2, &[&[2], &NODE, &NODE, &[0, 1]]),
        ("one unused", 2, &[&[2], &NODE, &NEXT_NODE, &[1, 1]]),
        ("more holders than children", 1, &[&[2], &NODE, &NEXT_NODE, &[0]]),
        ("an index beyond the list", 2, &[&[2], &NODE, &NEXT_NODE, &[0, 2]]),
    ];
    for (name, children, holders) in refused {
        assert_eq!(entry(children, holders), Err(WireError::Invalid), "{name}");
    }
}

#[test]
fn flags_that_promise_nothing_or_exclude_each_other_are_refused() {
    let leaf: &[u8] = &[1, 2, 0, 0, 1, 0, 0];
    let refused = [
        ("EXTENSIONS without any", raw(1, 0x01, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 0, 0, 0]])),
        (
            "extensions of FAIL without any",
            raw(4, 0x04, &[&[1, 1, 0, 0, 0, 0], &[0; 8], &[0, 0, 0]]),
        ),
        ("REPLY behind no extensions", raw(14, 0x01, &[&[0, 0]])),
        ("MANIFEST of nothing", raw(3, 0, &[&[0]])),
        ("PROBE of no task", raw(6, 0, &[&[0, 0]])),
        ("STATUS of no task", raw(7, 0, &[&[0, 0]])),
        ("ASK of no origin", raw(11, 0, &[&[0]])),
        ("SETTLED without a statement", raw(12, 0, &[&[0]])),
        ("NO_ITEM of ITEM without END", raw(13, 0x40, &[&[0]])),
        ("NO_ITEM of ITEM with a payload", raw(13, 0x44, &[&[5, 1]])),
        ("NO_ITEM of ITEM with PART", raw(13, 0x54, &[&[5, 0, 1]])),
        ("an empty PART of ITEM", raw(13, 0x10, &[&[0, 0, 9]])),
        ("PART of ITEM beyond the whole", raw(13, 0x10, &[&[0, 8, 9], &[1, 2]])),
        ("INHERITED without any", raw(2, 0x20, &[&[0, 0]])),
        ("FINAL and OWN_ENTRY", raw(2, 0x09, &[&[0], leaf])),
        ("END without STREAM", raw(2, 0x04, &[&[0, 0]])),
        ("NO_ITEM without END", raw(2, 0x42, &[&[0, 0]])),
        ("NO_ITEM with a payload", raw(2, 0x46, &[&[0, 5, 1]])),
        ("NO_ITEM with PART", raw(2, 0x56, &[&[0, 5, 0, 0]])),
        ("an empty PART beyond the whole", raw(2, 0x10, &[&[0, 10, 9]])),
        ("PART beyond the whole", raw(2, 0x10, &[&[0, 8, 9], &[1, 2]])),
    ];
    for (name, decoded) in refused {
        assert_eq!(decoded, Err(WireError::Invalid), "{name}");
    }
    let largest = Part { offset: u64::MAX - 1, total: u64::MAX };
    let reply = |payload| Reply { part: Some(largest), ..Reply::sole(payload) };
    let decodes = |payload| {
        let frame = Frame::new(header("/2"), Message::Reply(reply(payload)));
        Frame::decode(frame.to_bytes()).map(|_| ())
    };
    assert_eq!(decodes(Bytes::from_static(b"1")), Ok(()));
    assert_eq!(decodes(Bytes::from_static(b"12")), Err(WireError::Invalid));
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = [
        ("a longer form of a number", raw(9, 0, &[&[0x80, 0x00, 0]])),
        ("a number beyond 64 bits", raw(9, 0, &[&[0], &[0xff; 9], &[0x02]])),
        ("a reply index beyond 32 bits", raw(9, 0, &[&[0x80, 0x80, 0x80, 0x80, 0x10, 0]])),
        ("a phase beyond 16 bits", raw(10, 0, &[&[7, 0x80, 0x80, 0x04, 0, 0], &[0; 8]])),
        ("a call of node 0", raw(10, 0, &[&[0; 5], &[0; 32]])),
        ("no such cause", raw(4, 0, &[&[20, 1, 0, 0, 0, 0], &[0; 8], &[0, 0]])),
        ("cause 0 of a FAIL", raw(4, 0, &[&[0, 1, 0, 0, 0, 0], &[0; 8], &[0, 0]])),
        ("no such executed", raw(4, 0, &[&[1, 3, 0, 0, 0, 0], &[0; 8], &[0, 0]])),
        ("text that is not UTF-8", raw(4, 0, &[&[1, 1, 0, 0, 0, 0], &[0; 8], &[1, 0xff, 0]])),
        ("no such reason", raw(5, 0, &[&[4, 0]])),
        ("no such state", raw(7, 0, &[&[1, 0, 0], &ANY_U64, &[6, 0]])),
        (
            "no such way of replies",
            raw(7, 0, &[&[1, 0, 0], &ANY_U64, &[3, 0, 0, 0, 0, 0, 0, 3, 0]]),
        ),
        ("node 0", raw(8, 0, &[&[0; 8], &[0, 0]])),
        ("relayed from node 0", raw(9, 0x80, &[&[0; 8], &[0, 0]])),
        (
            "an address without a scheme",
            raw(1, 0, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 2], &NODE, &[1, b'h', 0]]),
        ),
        ("a path that ends within a level", raw(6, 0, &[&[0, 1, 1, 0x80, 0], &ANY_U64])),
    ];
    for (name, decoded) in refused {
        assert_eq!(decoded, Err(WireError::Invalid), "{name}");
    }
}

#[test]
fn statements_have_one_encoding() {
    // Of calls 10 to 19.
    let decodes = |exceptions: &[u8]| {
        raw(12, 0, &[&[1], &ANY_U64, &[10, 10], exceptions, &[0]]).map(|frame| {
            match frame.message {
                Message::Settled(settled) => settled.statements[0].exceptions.clone(),
                message => panic!("{message:?}"),
            }
        })
    };
    assert_eq!(decodes(&[0]), Ok(Vec::new()));
    assert_eq!(decodes(&[3, 0, 1, 8]), Ok(vec![10, 11, 19]));
    assert_eq!(decodes(&[2, 3, 0]), Err(WireError::Invalid), "twice the same");
    assert_eq!(decodes(&[1, 10]), Err(WireError::Invalid), "the first number beyond");
    assert_eq!(decodes(&[2, 9, 1]), Err(WireError::Invalid), "beyond, behind one within");
    let last: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let of = |fields: &[&[u8]]| raw(12, 0, &[&[1], &ANY_U64, &fields.concat()]).map(|_| ());
    assert_eq!(of(&[last, &[0, 0, 0]]), Ok(()), "of no call");
    assert_eq!(of(&[last, &[0, 1, 0, 0]]), Err(WireError::Invalid), "an exception of no call");
    assert_eq!(of(&[last, &[1, 0, 0]]), Err(WireError::Invalid), "to overflows");
    assert_eq!(of(&[&[1], last, &[0, 0]]), Err(WireError::Invalid), "to overflows");
    assert_eq!(of(&[&[0], last, &[0, 0]]), Ok(()), "of all calls but the last");
    assert_eq!(of(&[&[9, 9, 1], last, &[0]]), Err(WireError::Invalid), "an exception overflows");
    // Calls 10 to 19 but 10 and 12, and the task /1 of some.
    let named = |seqs: &[u8]| {
        let tasks: Vec<u8> = seqs.iter().flat_map(|seq| [*seq, 1, 1, 0]).collect();
        of(&[&[10, 10, 2, 0, 2], &[u8::try_from(seqs.len()).unwrap()], &tasks])
    };
    assert_eq!(named(&[0, 2]), Ok(()));
    assert_eq!(named(&[0, 0]), Err(WireError::Invalid), "twice the same");
    assert_eq!(named(&[1]), Err(WireError::Invalid), "of a call that is no exception");
    assert_eq!(named(&[2, 1]), Err(WireError::Invalid), "of one behind the exceptions");
    let count = u8::try_from(10 + ANY_U64.len()).unwrap();
    assert_eq!(of(&[&[10, 10, 0, count]]), Err(WireError::OverLimit), "more than there is room");
}

#[test]
fn bounded_fields_are_refused_beyond_their_bound() {
    let extension = |len| {
        let extensions = vec![Extension { tag: 9, value: vec![0; len].into() }];
        let request = Request { extensions, ..request(Vec::new()) };
        let frame = Frame::new(header("/2"), Message::Request(request));
        Frame::decode(frame.to_bytes()).map(|_| ())
    };
    assert_eq!(extension(16 * 1024), Ok(()));
    assert_eq!(extension(16 * 1024 + 1), Err(WireError::OverLimit));
    let nine_addresses = raw(1, 0, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 10], &NODE]);
    assert_eq!(nine_addresses, Err(WireError::OverLimit));
    let text = raw(4, 0, &[&[1, 1, 0, 0, 0, 0], &[0; 8], &[0x81, 0x20], &[b'a'; 4097], &[0]]);
    assert_eq!(text, Err(WireError::OverLimit));
    let long_address = [b'a'; 256];
    let address =
        raw(1, 0, &[&ANY_KEY, &[1, 0, 1, 2, 3, 4, 2], &NODE, &[0x80, 0x02], &long_address]);
    assert_eq!(address, Err(WireError::OverLimit));
}

#[test]
fn a_longer_text_is_cut_between_characters() {
    let decoded = |text: &str| {
        let frame = Frame::new(header("/2"), Message::Fail(fail(text)));
        match Frame::decode(frame.to_bytes()).unwrap().message {
            Message::Fail(decoded) => decoded.text,
            message => panic!("{message:?}"),
        }
    };
    let longest = "a".repeat(TEXT_BYTES_MAX);
    assert_eq!(decoded(&longest), longest);
    assert_eq!(decoded(&format!("{longest}a")), format!("{}…", "a".repeat(TEXT_BYTES_MAX - 3)));
    // 4,093 bytes remain beside the ellipsis, of which 4,092 are whole characters.
    let accents = decoded(&"é".repeat(TEXT_BYTES_MAX));
    assert_eq!(accents, format!("{}…", "é".repeat(TEXT_BYTES_MAX / 2 - 2)));
    assert_eq!(decoded(&accents), accents);
}

#[test]
fn a_failed_outcome_carries_its_cause() {
    let outcome = Outcome::Failed(Cause::Deadline);
    let frame = manifest(Entry { outcome, ..leaf_entry() });
    let bytes = frame.to_bytes();
    assert_eq!(bytes[bytes.len() - 3], 9);
    assert_eq!(Frame::decode(bytes.clone()), Ok(frame));
}

#[test]
fn a_frame_names_256_tasks_at_most() {
    let keys = |count: usize| vec![key("/2"); count];
    let frames = |count| {
        let tasks = vec![asked(); count];
        let probe = Message::Probe(Probe { fence: true, budget_us: BUDGET_US, tasks });
        let tasks = vec![(asked(), TaskStatus::Running); count];
        let status = Message::Status(Status { tasks, inherited: Vec::new() });
        let report = Message::LinkDown(link_down(keys(count)));
        [probe, status, report].map(|message| Frame::new(header("/"), message))
    };
    for frame in frames(TASKS_MAX) {
        assert_eq!(Frame::decode(frame.to_bytes()).as_ref(), Ok(&frame));
    }
    for frame in frames(TASKS_MAX + 1) {
        assert_eq!(Frame::decode(frame.to_bytes()), Err(WireError::OverLimit));
    }
}

#[test]
fn a_frame_names_256_origins_1_024_exceptions_and_512_tasks_at_most() {
    let decodes = |message| {
        let frame = Frame::new(Header::without_call(), message);
        let decoded = Frame::decode(frame.to_bytes());
        decoded.map(|decoded| assert_eq!(decoded, frame))
    };
    let origins = |count| (0..count as u64).map(|life| (Incarnation(life), 70_000)).collect();
    let ask = |count| Message::Ask(Ask { origins: origins(count) });
    assert_eq!(decodes(ask(ASKED_MAX)), Ok(()));
    assert_eq!(decodes(ask(ASKED_MAX + 1)), Err(WireError::OverLimit));
    let settled = |statements| Message::Settled(Settled { statements });
    let bare = |count| settled(vec![statement(0, 9, Vec::new()); count]);
    assert_eq!(decodes(bare(ASKED_MAX)), Ok(()));
    assert_eq!(decodes(bare(ASKED_MAX + 1)), Err(WireError::OverLimit));
    let with = |counts: &[usize]| {
        let of = |count: &usize| statement(1, 9_999, (1..=*count as u64).collect());
        settled(counts.iter().map(of).collect())
    };
    assert_eq!(decodes(with(&[EXCEPTIONS_MAX])), Ok(()));
    assert_eq!(decodes(with(&[EXCEPTIONS_MAX - 1, 0, 1])), Ok(()));
    assert_eq!(decodes(with(&[EXCEPTIONS_MAX + 1])), Err(WireError::OverLimit));
    assert_eq!(decodes(with(&[EXCEPTIONS_MAX - 1, 0, 2])), Err(WireError::OverLimit));
    let named = |counts: &[usize]| {
        let of = |count: &usize| Statement {
            open: (0_u32..).take(*count).map(|hop| (1, TaskKey { hop, ..key("/2") })).collect(),
            ..statement(0, 9, vec![1])
        };
        settled(counts.iter().map(of).collect())
    };
    assert_eq!(decodes(named(&[NAMED_MAX - 1, 1])), Ok(()));
    assert_eq!(decodes(named(&[NAMED_MAX - 1, 2])), Err(WireError::OverLimit));
}

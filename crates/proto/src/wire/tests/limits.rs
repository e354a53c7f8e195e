//! Sizes of typical frames, and what a receiver refuses.

use bytes::Bytes;

use super::golden::{self, header, key, leaf_entry, node};
use crate::wire::entry::CHILDREN_MAX;
use crate::wire::fail::TEXT_BYTES_MAX;
use crate::wire::{
    Cancel, CancelReason, Cast, Cause, Credit, Digest, Entry, Executed, Extension, Fail, Frame,
    LinkDown, Manifest, Message, Outcome, Part, Probe, Reply, ReplyKind, ReplyPath, ReplyRoute,
    Request, Status, TASKS_MAX, TaskStatus, WireError,
};

/// What TCP adds: the frame's length.
const LENGTH_BYTES: usize = 4;

/// The default deadline.
const BUDGET_US: u64 = 10_000_000;

fn request(inherited: Vec<Entry>) -> Request {
    Request {
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

fn status(status: TaskStatus) -> Frame {
    let status = Status { tasks: vec![(key("/2"), status)], inherited: Vec::new() };
    Frame::new(header("/"), Message::Status(status))
}

fn manifest(entries: Vec<Entry>) -> Frame {
    Frame::new(header("/2"), Message::Manifest(Manifest { entries }))
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
        details: Bytes::new(),
    }
}

/// An entry whose children went to `node_count` nodes in turn.
fn fan_out(children: u32, node_count: u64) -> Entry {
    let holders = (0..u64::from(children)).map(|child| Some(node(1 + child % node_count)));
    Entry { children, holders: holders.collect(), ..leaf_entry() }
}

#[test]
fn a_typical_header_is_20_bytes_with_the_transports_length() {
    let credit = Message::Credit(Credit { index: 0, limit_bytes: 0 });
    let frame = Frame::new(header("/2"), credit);
    assert_eq!(LENGTH_BYTES + frame.head_len() - 2, 20);
}

#[test]
fn typical_frames_are_this_small() {
    let task = |message| Frame::new(header("/2"), message);
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
    let probe = Probe { fence: false, budget_us: BUDGET_US, tasks: vec![key("/2")] };
    let link_down = LinkDown { node: node(9), children: vec![key("/2/1")], entries: Vec::new() };
    let cast = |view| {
        let (digest, payload) = (Digest([7; 32]), Bytes::new());
        Cast {
            view,
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
        ("request", task(Message::Request(request(Vec::new()))), 31),
        ("request with an entry", task(Message::Request(request(vec![leaf_entry()]))), 38),
        ("sole reply", task(Message::Reply(sole)), 21),
        ("item of a stream", task(Message::Reply(item)), 22),
        ("reply with the task's entry", task(Message::Reply(own(leaf_entry()))), 28),
        ("the same after 3 delegations to 1 node", task(Message::Reply(own(fan_out(3, 1)))), 36),
        ("manifest", manifest(vec![leaf_entry()]), 28),
        ("manifest of a fan-out to 3 nodes", manifest(vec![fan_out(3, 3)]), 55),
        ("fail", task(Message::Fail(fail(""))), 36),
        (
            "fail with the task's entry",
            task(Message::Fail(Fail { entry: Some(leaf_entry().into()), ..fail("") })),
            43,
        ),
        ("cancel", task(Message::Cancel(cancel(BUDGET_US))), 25),
        ("cancel with 2 s left", task(Message::Cancel(cancel(2_000_000))), 24),
        ("probe", Frame::new(header("/"), Message::Probe(probe)), 27),
        ("status of a running task", status(TaskStatus::Running), 25),
        ("status of a silent task", status(closed(ReplyPath::Nowhere)), 33),
        ("status of a task that replied", status(closed(ReplyPath::Relay(node(6)))), 41),
        ("link down", task(Message::LinkDown(link_down)), 34),
        ("credit of 1 MiB", task(Message::Credit(Credit { index: 0, limit_bytes: 1 << 20 })), 24),
        ("cast", Frame::new(header("/"), Message::Cast(cast(None))), 58),
        ("cast about a tag", Frame::new(header("/"), Message::Cast(cast(Some(7)))), 59),
    ];
    for (name, frame, size) in sizes {
        assert_eq!(LENGTH_BYTES + frame.encoded_len(), size, "{name}");
    }
    assert_eq!(leaf_entry().encoded_len(), 7);
}

#[test]
fn reserved_flags_are_refused() {
    let in_use = [0x83, 0xff, 0x80, 0x83, 0x80, 0x81, 0x80, 0x80, 0x80, 0x83];
    for golden in golden::all() {
        let bytes = golden.frame.to_bytes();
        let reserved = !in_use[usize::from((bytes[0] & 0x0f) - 1)];
        // RELAYED stays as it is: it would shift what follows.
        for flags in (0..0x80).filter(|flags| flags & reserved != 0) {
            let flags = flags | (bytes[1] & 0x80);
            let decoded = Frame::decode(&with_byte(&bytes, 1, flags));
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
            if let Ok(frame) = Frame::decode(&changed) {
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
    let first = |value| Frame::decode(&with_byte(&with_byte(&bytes, 0, value), 1, 0));
    assert_eq!(first(0x01), Err(WireError::Version(0)));
    assert_eq!(first(0x21), Err(WireError::Version(2)));
    for kind in [0, 11, 12, 13, 14, 15] {
        assert_eq!(first(0x10 | kind), Err(WireError::UnknownKind(kind)));
    }
    assert_eq!(Frame::decode(&Bytes::new()), Err(WireError::Truncated));
}

/// A frame of `kind` with these bytes behind a typical header.
fn raw(kind: u8, flags: u8, fields: &[&[u8]]) -> Result<Frame, WireError> {
    let header = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xf0, 0xa2, 0x04, 1, 2, 0];
    Frame::decode(&[&[0x10 | kind, flags], &header[..], &fields.concat()].concat().into())
}

const NODE: [u8; 8] = [7, 0, 0, 0, 0, 0, 0, 0];
const NEXT_NODE: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn counts_that_the_frame_cannot_hold_are_refused_at_once() {
    let most: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let many: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f];
    for count in [most, many, &[2]] {
        let entry_start: &[u8] = &[1, 1, 2, 0, 3, 0, 0];
        let frames = [
            ("inherited of REQUEST", raw(1, 0, &[&[1, 0, 1, 2, 3, 4, 0], count])),
            ("extensions", raw(1, 1, &[&[1, 0, 1, 2, 3, 4, 0, 0], count])),
            ("an extension", raw(1, 1, &[&[1, 0, 1, 2, 3, 4, 0, 0, 1, 1], count])),
            ("inherited of REPLY", raw(2, 0x20, &[&[0], count])),
            ("entries", raw(3, 0, &[count])),
            ("holders", raw(3, 0, &[entry_start, count])),
            ("text", raw(4, 0, &[&[1, 1, 0, 0, 0, 0], &[0; 8], count])),
            ("tasks of PROBE", raw(6, 0, &[&[0], count])),
            ("tasks of STATUS", raw(7, 0, &[count])),
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
    let decodes = |entries: Vec<Entry>| Frame::decode(&manifest(entries).to_bytes()).map(|_| ());
    assert_eq!(decodes(vec![fan_out(most, 1)]), Ok(()));
    assert_eq!(decodes(vec![fan_out(most, 3)]), Ok(()));
    assert_eq!(decodes(vec![fan_out(most - 1, 1), fan_out(1, 1)]), Ok(()));
    assert_eq!(decodes(vec![fan_out(most + 1, 1)]), Err(WireError::OverLimit));
    assert_eq!(decodes(vec![fan_out(most - 1, 1), fan_out(2, 2)]), Err(WireError::OverLimit));
}

#[test]
fn holders_have_one_encoding() {
    let entry = |children: u8, holders: &[&[u8]]| {
        raw(3, 0, &[&[1, 1, 2, 0, children, 0, 0], &holders.concat()[..]]).map(|_| ())
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
        ("EXTENSIONS without any", raw(1, 0x01, &[&[1, 0, 1, 2, 3, 4, 0, 0, 0]])),
        ("INHERITED without any", raw(2, 0x20, &[&[0, 0]])),
        ("FINAL and OWN_ENTRY", raw(2, 0x09, &[&[0], leaf])),
        ("END without STREAM", raw(2, 0x04, &[&[0, 0]])),
        ("NO_ITEM without END", raw(2, 0x42, &[&[0, 0]])),
        ("NO_ITEM with a payload", raw(2, 0x46, &[&[0, 5, 1]])),
        ("NO_ITEM with PART", raw(2, 0x56, &[&[0, 5, 0, 0]])),
        ("an empty PART", raw(2, 0x10, &[&[0, 0, 9]])),
        ("PART beyond the whole", raw(2, 0x10, &[&[0, 8, 9], &[1, 2]])),
    ];
    for (name, decoded) in refused {
        assert_eq!(decoded, Err(WireError::Invalid), "{name}");
    }
    let largest = Part { offset: u64::MAX - 1, total: u64::MAX };
    let reply = |payload| Reply { part: Some(largest), ..Reply::sole(payload) };
    let decodes = |payload| {
        let frame = Frame::new(header("/2"), Message::Reply(reply(payload)));
        Frame::decode(&frame.to_bytes()).map(|_| ())
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
        ("a phase beyond 16 bits", raw(10, 0, &[&[0x80, 0x80, 0x04, 0, 0], &[0; 8]])),
        ("no such cause", raw(4, 0, &[&[20, 1, 0, 0, 0, 0], &[0; 8], &[0, 0]])),
        ("cause 0 of a FAIL", raw(4, 0, &[&[0, 1, 0, 0, 0, 0], &[0; 8], &[0, 0]])),
        ("no such executed", raw(4, 0, &[&[1, 3, 0, 0, 0, 0], &[0; 8], &[0, 0]])),
        ("text that is not UTF-8", raw(4, 0, &[&[1, 1, 0, 0, 0, 0], &[0; 8], &[1, 0xff, 0]])),
        ("no such reason", raw(5, 0, &[&[4, 0]])),
        ("no such state", raw(7, 0, &[&[1, 0, 0, 5, 0]])),
        ("no such way of replies", raw(7, 0, &[&[1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 3, 0]])),
        ("node 0", raw(8, 0, &[&[0; 8], &[0, 0]])),
        ("relayed from node 0", raw(9, 0x80, &[&[0; 8], &[0, 0]])),
        ("an address without a scheme", raw(1, 0, &[&[1, 0, 1, 2, 3, 4, 2], &NODE, &[1, b'h', 0]])),
        ("a path that ends within a level", raw(6, 0, &[&[0, 1, 1, 0x80, 0]])),
    ];
    for (name, decoded) in refused {
        assert_eq!(decoded, Err(WireError::Invalid), "{name}");
    }
}

#[test]
fn bounded_fields_are_refused_beyond_their_bound() {
    let extension = |len| {
        let extensions = vec![Extension { tag: 9, value: vec![0; len].into() }];
        let request = Request { extensions, ..request(Vec::new()) };
        let frame = Frame::new(header("/2"), Message::Request(request));
        Frame::decode(&frame.to_bytes()).map(|_| ())
    };
    assert_eq!(extension(16 * 1024), Ok(()));
    assert_eq!(extension(16 * 1024 + 1), Err(WireError::OverLimit));
    let nine_addresses = raw(1, 0, &[&[1, 0, 1, 2, 3, 4, 10], &NODE]);
    assert_eq!(nine_addresses, Err(WireError::OverLimit));
    let text = raw(4, 0, &[&[1, 1, 0, 0, 0, 0], &[0; 8], &[0x81, 0x02], &[b'a'; 257], &[0]]);
    assert_eq!(text, Err(WireError::OverLimit));
    let long_address = [b'a'; 256];
    let address = raw(1, 0, &[&[1, 0, 1, 2, 3, 4, 2], &NODE, &[0x80, 0x02], &long_address]);
    assert_eq!(address, Err(WireError::OverLimit));
}

#[test]
fn a_longer_text_is_cut_between_characters() {
    let text = format!("a{}", "é".repeat(TEXT_BYTES_MAX));
    let frame = Frame::new(header("/2"), Message::Fail(fail(&text)));
    let Message::Fail(decoded) = Frame::decode(&frame.to_bytes()).unwrap().message else {
        panic!("a FAIL decodes to a FAIL");
    };
    assert_eq!(decoded.text, text[..TEXT_BYTES_MAX - 1]);
}

#[test]
fn a_failed_outcome_carries_its_cause() {
    let outcome = Outcome::Failed(Cause::Deadline);
    let frame = manifest(vec![Entry { outcome, ..leaf_entry() }]);
    let bytes = frame.to_bytes();
    assert_eq!(bytes[bytes.len() - 2], 9);
    assert_eq!(Frame::decode(&bytes), Ok(frame));
}

#[test]
fn a_frame_names_256_tasks_at_most() {
    let keys = |count: usize| vec![key("/2"); count];
    let frames = |count| {
        let probe = Probe { fence: true, budget_us: BUDGET_US, tasks: keys(count) };
        let children = keys(count);
        let report = LinkDown { node: node(1), children, entries: Vec::new() };
        let tasks = keys(count).into_iter().map(|key| (key, TaskStatus::Running)).collect();
        let status = Status { tasks, inherited: Vec::new() };
        [Message::Probe(probe), Message::LinkDown(report), Message::Status(status)]
            .map(|message| Frame::new(header("/"), message))
    };
    for frame in frames(TASKS_MAX) {
        assert_eq!(Frame::decode(&frame.to_bytes()).as_ref(), Ok(&frame));
    }
    for frame in frames(TASKS_MAX + 1) {
        assert_eq!(Frame::decode(&frame.to_bytes()), Err(WireError::OverLimit));
    }
}

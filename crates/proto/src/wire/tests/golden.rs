//! The bytes of one frame of each kind, field by field. They are the format: a change here is a
//! change of the wire version. `docs/wire.md` shows the same frames.

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::key::Key;
use crate::wire::{
    About, Ask, Asked, Cancel, CancelReason, Cast, Cause, Credit, Credited, Digest, Entry,
    Executed, Extension, Fail, Frame, Header, Item, ItemKind, LinkDown, Manifest, Message, Part,
    Parting, Probe, Relayed, Reply, ReplyKind, ReplyPath, ReplyRoute, Request, Rung, Sealed,
    Settled, Statement, Status, TaskStatus, extension,
};

/// A frame and its fields on the wire: hex and what it is.
pub(super) struct Golden {
    pub(super) name: &'static str,
    pub(super) frame: Frame,
    fields: Vec<(&'static str, &'static str)>,
}

impl Golden {
    fn new(
        name: &'static str,
        frame: Frame,
        before: &[(&'static str, &'static str)],
        header: [(&'static str, &'static str); 4],
        behind: &[(&'static str, &'static str)],
    ) -> Self {
        Self { name, frame, fields: [before, &header, behind].concat() }
    }

    fn hex(&self) -> String {
        self.fields.iter().map(|(hex, _)| *hex).collect()
    }
}

/// Call 70,000 of its initiator, and within it ...
const CALL: [(&str, &str); 2] = [("8877665544332211", "origin"), ("f0a204", "call seq 70,000")];
/// ... the task of the branch /2, or
const TASK: [(&str, &str); 4] = [CALL[0], CALL[1], ("0102", "path /2"), ("00", "hop 0")];
/// ... all of it.
const ROOT: [(&str, &str); 4] = [CALL[0], CALL[1], ("00", "path /"), ("00", "hop 0")];

/// The key of the branch, wherever one is shown or seals.
const KEY: Key = Key(0x0102_0304_0506_0708);
const KEY_SHOWN: (&str, &str) = ("0807060504030201", "key of the branch");

const BUDGET_US: u64 = 10_000_000;
const BUDGET: (&str, &str) = ("80ade204", "budget 10 s");

pub(super) fn header(path: &str) -> Header {
    let call = CallId { origin: Incarnation(0x1122_3344_5566_7788), seq: 70_000 };
    Header { call, task: key(path) }
}

pub(super) fn key(path: &str) -> TaskKey {
    TaskKey { path: path.parse().unwrap(), hop: 0 }
}

pub(super) fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

/// Declaration of /2 when it replied once and opened no branch.
pub(super) fn leaf_entry() -> Entry {
    Entry::sole_reply(key("/2"))
}

const LEAF_ENTRY: [(&str, &str); 6] = [
    ("0102", "entry: path /2"),
    ("00", "hop 0"),
    ("00", "no children"),
    ("01", "1 reply"),
    ("00", "finished"),
    ("00", "no holders"),
];

/// Declaration of the ancestor /2 that opened three branches, at node 7, node 9 and node 7.
fn fan_out_entry() -> Entry {
    let holders = [7, 9, 7].map(|id| Some(node(id))).to_vec();
    Entry { children: 3, replies: 0, holders, ..leaf_entry() }
}

const FAN_OUT_ENTRY: [(&str, &str); 9] = [
    ("0102", "entry: path /2"),
    ("00", "hop 0"),
    ("03", "3 children"),
    ("00", "no replies"),
    ("00", "finished"),
    ("02", "2 holders"),
    ("0700000000000000", "holder 0: node 7"),
    ("0900000000000000", "holder 1: node 9"),
    ("000100", "children 0, 1, 2 at holder 0, 1, 0"),
];

/// SipHash-2-4 under (key, 0) of the byte 3 and the entry, computed apart from this crate.
const FAN_OUT_SEAL: (&str, &str) = ("0dd4b9e45f962415", "seal of the entry");

/// Declaration of a task that replied once, of the branch above all others here.
fn top_entry() -> Sealed {
    Sealed::new(Entry::sole_reply(TaskKey { path: Path::root(), hop: 0 }), KEY)
}

const TOP_ENTRY: [(&str, &str); 2] =
    [("000000010000", "entry of /"), ("a7e66aad907050c7", "seal of the entry")];

pub(super) fn all() -> Vec<Golden> {
    [requests(), replies(), manifests(), fails(), control(), states(), settlement(), items()]
        .into_iter()
        .flatten()
        .collect()
}

fn metadata() -> Extension {
    Extension { tag: extension::METADATA, value: Bytes::from_static(b"\x01kv") }
}

fn requests() -> Vec<Golden> {
    let plain = Request {
        key: KEY,
        budget_us: BUDGET_US,
        outlasted_us: 0,
        floor: 3,
        method: MethodId(0x0a0b_0c0d),
        reply_route: ReplyRoute::Sender,
        inherited: Vec::new(),
        extensions: Vec::new(),
        payload: Bytes::from_static(b"hi"),
    };
    let addresses = vec!["tcp://h:1".parse().unwrap()];
    let full = Request {
        outlasted_us: 300,
        reply_route: ReplyRoute::Node { node: node(5), addresses },
        inherited: vec![Sealed::new(fan_out_entry(), KEY)],
        extensions: vec![metadata()],
        ..plain.clone()
    };
    let below = [CALL[0], CALL[1], ("020201", "path /2/1"), ("00", "hop 0")];
    let at = Rung { levels: 1, hop: 300 };
    let relayed = Some(Relayed { node: node(6), at });
    let relayed = Frame { relayed, ..Frame::new(header("/2/1"), Message::Request(full)) };
    let start = [("03", "floor 3"), ("0d0c0b0a", "method")];
    let rest = [("00", "reply to the sender"), ("00", "no inherited entries"), ("6869", "payload")];
    let full_start = [
        &[
            ("0600000000000000", "relayed from node 6"),
            ("01", "by the branch of 1 level"),
            ("ac02", "and hop 300"),
            KEY_SHOWN,
            BUDGET,
            ("ac02", "outlasted by 300 us"),
        ][..],
        &start,
        &[
            ("02", "reply to a node with 1 address"),
            ("0500000000000000", "node 5"),
            ("097463703a2f2f683a31", "tcp://h:1"),
            ("01", "1 inherited entry"),
        ],
        &FAN_OUT_ENTRY,
        &[FAN_OUT_SEAL],
        &[("01", "1 extension"), ("0203016b76", "metadata, 3 bytes"), ("6869", "payload")],
    ]
    .concat();
    vec![
        Golden::new(
            "REQUEST",
            Frame::new(header("/2"), Message::Request(plain)),
            &[("21", "version 2, kind 1"), ("00", "no flags")],
            TASK,
            &[&[KEY_SHOWN, BUDGET][..], &start, &rest].concat(),
        ),
        Golden::new(
            "REQUEST with everything",
            relayed,
            &[("21", "version 2, kind 1"), ("83", "RELAYED, EXTENSIONS, OUTLASTED")],
            below,
            &full_start,
        ),
    ]
}

fn replies() -> Vec<Golden> {
    let sole = Reply::sole(Bytes::from_static(b"ok"));
    let piece = Reply {
        index: 1,
        kind: ReplyKind::Item { seq: 4, is_last: true },
        part: Some(Part { offset: 300, total: 302 }),
        is_final: false,
        own_entry: Some(leaf_entry().into()),
        inherited: vec![top_entry()],
        extensions: Vec::new(),
        payload: Bytes::from_static(b"ok"),
    };
    let end = Reply { kind: ReplyKind::End { count: 5 }, payload: Bytes::new(), ..sole.clone() };
    let piece_fields = [
        &[
            ("01", "index 1"),
            ("04", "stream seq 4"),
            ("ac02", "piece at byte 300"),
            ("ae02", "of 302"),
        ][..],
        &LEAF_ENTRY,
        &[("01", "1 inherited entry")],
        &TOP_ENTRY,
        &[("6f6b", "payload")],
    ]
    .concat();
    let extended = Reply { extensions: vec![metadata()], ..sole.clone() };
    vec![
        Golden::new(
            "REPLY",
            Frame::new(header("/2"), Message::Reply(sole.clone())),
            &[("22", "version 2, kind 2"), ("01", "FINAL")],
            TASK,
            &[("00", "index 0"), ("6f6b", "payload")],
        ),
        Golden::new(
            "REPLY by another connection",
            Frame::keyed(header("/2"), KEY, Message::Reply(sole)),
            &[("a2", "KEYED, version 2, kind 2"), ("01", "FINAL")],
            TASK,
            &[KEY_SHOWN, ("00", "index 0"), ("6f6b", "payload")],
        ),
        Golden::new(
            "REPLY behind extensions",
            Frame::new(header("/2"), Message::Reply(extended)),
            &[("2e", "version 2, kind 14"), ("01", "FINAL")],
            TASK,
            &[
                ("01", "1 extension"),
                ("0203016b76", "metadata, 3 bytes"),
                ("00", "index 0"),
                ("6f6b", "payload"),
            ],
        ),
        Golden::new(
            "REPLY with everything",
            Frame::new(header("/2"), Message::Reply(piece)),
            &[("22", "version 2, kind 2"), ("3e", "STREAM, END, OWN_ENTRY, PART, INHERITED")],
            TASK,
            &piece_fields,
        ),
        Golden::new(
            "REPLY that ends a stream without an item",
            Frame::new(header("/2"), Message::Reply(end)),
            &[("22", "version 2, kind 2"), ("47", "FINAL, STREAM, END, NO_ITEM")],
            TASK,
            &[("00", "index 0"), ("05", "5 items")],
        ),
    ]
}

fn manifests() -> Vec<Golden> {
    let manifest = |own| Message::Manifest(Manifest { own: Some(own), inherited: Vec::new() });
    let inherited = vec![Sealed::new(fan_out_entry(), KEY)];
    let below = [CALL[0], CALL[1], ("020201", "path /2/1"), ("00", "hop 0")];
    let start = [("23", "version 2, kind 3"), ("01", "OWN")];
    let rest = [("00", "no inherited entries")];
    vec![
        Golden::new(
            "MANIFEST",
            Frame::new(header("/2"), manifest(leaf_entry())),
            &start,
            TASK,
            &[&LEAF_ENTRY[..], &rest].concat(),
        ),
        Golden::new(
            "MANIFEST of a fan-out",
            Frame::new(header("/2"), manifest(fan_out_entry())),
            &start,
            TASK,
            &[&FAN_OUT_ENTRY[..], &rest].concat(),
        ),
        Golden::new(
            "MANIFEST of an ancestor",
            Frame::keyed(header("/2/1"), KEY, Message::Manifest(Manifest { own: None, inherited })),
            &[("a3", "KEYED, version 2, kind 3"), ("00", "no flags")],
            below,
            &[&[KEY_SHOWN, ("01", "1 inherited entry")], &FAN_OUT_ENTRY[..], &[FAN_OUT_SEAL]]
                .concat(),
        ),
    ]
}

fn fails() -> Vec<Golden> {
    let fail = Fail {
        cause: Cause::Application,
        executed: Executed::Yes,
        code: 7,
        node: None,
        text: "no".to_owned(),
        entry: Some(leaf_entry().into()),
        aborts_children: true,
        inherited: Vec::new(),
        extensions: Vec::new(),
        details: Bytes::from_static(b"why"),
    };
    let start = [
        ("01", "cause: application"),
        ("01", "executed: yes"),
        ("07000000", "code 7"),
        ("0000000000000000", "at the sender"),
        ("026e6f", "text"),
    ];
    let inherited = ("00", "no inherited entries");
    let fields = [&start[..], &LEAF_ENTRY, &[inherited, ("776879", "details")]].concat();
    let extensions =
        [("01", "1 extension"), ("0203016b76", "metadata, 3 bytes"), ("776879", "details")];
    let extended_fields = [&[KEY_SHOWN], &start[..], &[inherited], &extensions].concat();
    let extended =
        Fail { entry: None, aborts_children: false, extensions: vec![metadata()], ..fail.clone() };
    vec![
        Golden::new(
            "FAIL",
            Frame::new(header("/2"), Message::Fail(fail)),
            &[("24", "version 2, kind 4"), ("03", "ABORT_CHILDREN, ENTRY")],
            TASK,
            &fields,
        ),
        Golden::new(
            "FAIL with extensions",
            Frame::keyed(header("/2"), KEY, Message::Fail(extended)),
            &[("a4", "KEYED, version 2, kind 4"), ("04", "EXTENSIONS")],
            TASK,
            &extended_fields,
        ),
    ]
}

fn control() -> Vec<Golden> {
    let cancel = Cancel { reason: CancelReason::Late, budget_us: BUDGET_US };
    let credit = Credit { of: Credited::Reply(0), limit_bytes: 1 << 20 };
    let cast = Cast {
        about: About::Call { initiator: NodeId::new(7) },
        phase: 1,
        sender: 2,
        epoch: 3,
        budget_us: BUDGET_US,
        digest: Digest([0xd1; 32]),
        is_carried: false,
        payload: Bytes::from_static(b"v"),
    };
    let digest = "d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
    let initiator = ("07", "initiator n7");
    let vote = [
        ("01", "phase 1"),
        ("02", "sender 2"),
        ("03", "epoch 3"),
        BUDGET,
        (digest, "digest"),
        ("76", "payload"),
    ];
    let tagged = Cast { about: About::Tag { view: 9 }, ..cast.clone() };
    let carried = Cast { is_carried: true, payload: Bytes::from_static(b"ref"), ..cast.clone() };
    vec![
        Golden::new(
            "CANCEL",
            Frame::keyed(header("/2"), KEY, Message::Cancel(cancel)),
            &[("a5", "KEYED, version 2, kind 5"), ("00", "no flags")],
            TASK,
            &[KEY_SHOWN, ("02", "reason: late"), BUDGET],
        ),
        Golden::new(
            "CREDIT",
            Frame::keyed(header("/2"), KEY, Message::Credit(credit)),
            &[("a9", "KEYED, version 2, kind 9"), ("00", "no flags")],
            TASK,
            &[KEY_SHOWN, ("00", "reply 0"), ("808040", "up to 1 MiB")],
        ),
        Golden::new(
            "CREDIT of items",
            Frame::new(header("/2"), Message::Credit(Credit { of: Credited::Items, ..credit })),
            &[("29", "version 2, kind 9"), ("01", "ITEMS")],
            TASK,
            &[("808040", "up to 1 MiB")],
        ),
        Golden::new(
            "CAST",
            Frame::new(header("/"), Message::Cast(cast)),
            &[("2a", "version 2, kind 10"), ("00", "no flags")],
            ROOT,
            &[&[initiator], &vote[..]].concat(),
        ),
        Golden::new(
            "CAST about a tag",
            Frame::new(header("/"), Message::Cast(tagged)),
            &[("2a", "version 2, kind 10"), ("01", "TAGGED")],
            ROOT,
            &[&[("09", "view 9")], &vote[..]].concat(),
        ),
        Golden::new(
            "CAST with a carried value",
            Frame::new(header("/"), Message::Cast(carried)),
            &[("2a", "version 2, kind 10"), ("02", "CARRIED")],
            ROOT,
            &[&[initiator], &vote[..5], &[("726566", "reference")]].concat(),
        ),
    ]
}

fn states() -> Vec<Golden> {
    let asked = Asked { task: key("/2"), key: KEY };
    let probe = Probe { fence: true, budget_us: BUDGET_US, tasks: vec![asked.clone()] };
    let replies_by = ReplyPath::Link(LinkNonce(4));
    let closed = TaskStatus::Closed { entry: leaf_entry().into(), replies_by };
    let status = |status| {
        let status = Status { tasks: vec![(asked.clone(), status)], inherited: Vec::new() };
        Frame::new(header("/"), Message::Status(status))
    };
    let start = [("01", "1 task"), ("010200", "task /2"), KEY_SHOWN];
    let status_fields = [
        &start[..],
        &[("03", "closed")],
        &LEAF_ENTRY,
        &[
            ("01", "replies left by a connection"),
            ("0400000000000000", "nonce 4"),
            ("00", "no inherited entries"),
        ],
    ]
    .concat();
    let forgotten = [("05", "forgotten"), ("00", "no inherited entries")];
    vec![
        Golden::new(
            "PROBE",
            Frame::new(header("/"), Message::Probe(probe)),
            &[("26", "version 2, kind 6"), ("01", "FENCE")],
            ROOT,
            &[&[BUDGET], &start[..]].concat(),
        ),
        Golden::new(
            "STATUS",
            status(closed),
            &[("27", "version 2, kind 7"), ("00", "no flags")],
            ROOT,
            &status_fields,
        ),
        Golden::new(
            "STATUS of a forgotten task",
            status(TaskStatus::Forgotten),
            &[("27", "version 2, kind 7"), ("00", "no flags")],
            ROOT,
            &[&start[..], &forgotten].concat(),
        ),
    ]
    .into_iter()
    .chain(link_downs())
    .collect()
}

fn link_downs() -> Vec<Golden> {
    let running =
        LinkDown { node: node(9), children: vec![key("/2/1")], own: None, inherited: Vec::new() };
    let over =
        LinkDown { own: Some(fan_out_entry()), inherited: vec![top_entry()], ..running.clone() };
    let start = [("0900000000000000", "node 9"), ("01", "1 child"), ("02020100", "task /2/1")];
    vec![
        Golden::new(
            "LINK_DOWN",
            Frame::new(header("/2"), Message::LinkDown(running)),
            &[("28", "version 2, kind 8"), ("00", "no flags")],
            TASK,
            &[&start[..], &[("00", "no inherited entries")]].concat(),
        ),
        Golden::new(
            "LINK_DOWN of a task that is over",
            Frame::keyed(header("/2"), KEY, Message::LinkDown(over)),
            &[("a8", "KEYED, version 2, kind 8"), ("01", "OWN")],
            TASK,
            &[&[KEY_SHOWN], &start[..], &FAN_OUT_ENTRY, &[("01", "1 inherited entry")], &TOP_ENTRY]
                .concat(),
        ),
    ]
}

fn settlement() -> Vec<Golden> {
    let no_call =
        [("0000000000000000", "origin 0"), ("00", "call seq 0"), ("00", "path /"), ("00", "hop 0")];
    let origin = header("/").call.origin;
    let ask = Ask { origins: vec![(origin, 70_000)] };
    let exceptions = vec![70_000, 70_003, 70_299];
    let open = vec![(70_003, key("/0/1"))];
    let statement = Statement { origin, from: 70_000, to: 70_300, exceptions, open };
    let settled = Settled { statements: vec![statement] };
    vec![
        Golden::new(
            "ASK",
            Frame::new(Header::without_call(), Message::Ask(ask)),
            &[("2b", "version 2, kind 11"), ("00", "no flags")],
            no_call,
            &[("01", "1 origin"), CALL[0], ("f0a204", "from 70,000")],
        ),
        Golden::new(
            "SETTLED",
            Frame::new(Header::without_call(), Message::Settled(settled)),
            &[("2c", "version 2, kind 12"), ("00", "no flags")],
            no_call,
            &[
                ("01", "1 statement"),
                CALL[0],
                ("f0a204", "from 70,000"),
                ("ac02", "to 300 calls further"),
                ("03", "3 exceptions"),
                ("00", "70,000"),
                ("03", "70,003"),
                ("a802", "70,299"),
                ("01", "1 task"),
                ("03", "of 70,003"),
                ("020001", "path /0/1"),
                ("00", "hop 0"),
            ],
        ),
        Golden::new(
            "LEAVING",
            Frame::new(Header::without_call(), Message::Parting(Parting::Leaving)),
            &[("2f", "version 2, kind 15"), ("01", "LEAVING")],
            no_call,
            &[],
        ),
        Golden::new(
            "SENT",
            Frame::new(Header::without_call(), Message::Parting(Parting::Sent(300))),
            &[("2f", "version 2, kind 15"), ("02", "SENT")],
            no_call,
            &[("ac02", "300 requests")],
        ),
    ]
}

fn items() -> Vec<Golden> {
    let item = Item {
        kind: ItemKind::Item { seq: 4, is_last: true },
        part: Some(Part { offset: 300, total: 302 }),
        payload: Bytes::from_static(b"hi"),
    };
    let end = Item { kind: ItemKind::End { count: 5 }, part: None, payload: Bytes::new() };
    vec![
        Golden::new(
            "ITEM",
            Frame::new(header("/2"), Message::Item(item)),
            &[("2d", "version 2, kind 13"), ("14", "END, PART")],
            TASK,
            &[
                ("04", "item 4"),
                ("ac02", "piece at byte 300"),
                ("ae02", "of 302"),
                ("6869", "payload"),
            ],
        ),
        Golden::new(
            "ITEM that ends a stream without an item",
            Frame::new(header("/2"), Message::Item(end)),
            &[("2d", "version 2, kind 13"), ("44", "END, NO_ITEM")],
            TASK,
            &[("05", "5 items")],
        ),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn frames_are_exactly_these_bytes() {
    for golden in all() {
        let bytes = golden.frame.to_bytes();
        assert_eq!(hex(&bytes), golden.hex(), "{}: {:?}", golden.name, golden.fields);
        assert_eq!(Frame::decode(bytes.clone()), Ok(golden.frame), "{}", golden.name);
    }
}

#[test]
fn every_kind_has_a_golden_frame() {
    let mut names: Vec<_> = all().iter().map(|golden| golden.frame.message.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 15, "{names:?}");
    let mut kinds: Vec<_> = all().iter().map(|golden| golden.frame.message.kind()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (1..=15).collect::<Vec<_>>());
}

#[test]
fn the_document_shows_the_same_frames() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire.md");
    let document = std::fs::read_to_string(path).expect("the repository has docs/wire.md");
    for golden in all() {
        let title = format!("### {} ({} bytes)", golden.name, golden.frame.encoded_len());
        let section = document.lines().skip_while(|line| *line != title);
        let block = section.skip_while(|line| *line != "```text").skip(1);
        let fields = block.take_while(|line| *line != "```");
        let hex: String = fields.filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(hex, golden.hex(), "{title}");
    }
}

#[test]
fn causes_keep_their_numbers() {
    let numbers = [
        (1, Cause::Application),
        (2, Cause::Panicked),
        (3, Cause::Dropped),
        (4, Cause::Overloaded),
        (5, Cause::UnknownMethod),
        (6, Cause::BadRequest),
        (7, Cause::PathTooDeep),
        (8, Cause::TooManyBranches),
        (9, Cause::Deadline),
        (10, Cause::Cancelled),
        (11, Cause::NodeDown),
        (12, Cause::Lost),
        (13, Cause::ReplyLost),
        (14, Cause::Orphaned),
        (15, Cause::Unreachable),
        (16, Cause::Protocol),
        (17, Cause::ShuttingDown),
        (18, Cause::ResourceExhausted),
        (19, Cause::StaleEpoch),
    ];
    for (number, cause) in numbers {
        assert_eq!((cause.to_wire(), Cause::from_wire(number)), (number, Ok(cause)));
    }
    assert_eq!(numbers.len(), Cause::ALL.len());
}

//! Random and mutated bytes against `Frame::decode`, for `CONVOKE_FUZZ_SECONDS` seconds (default
//! 2).
//!
//! Decoding any bytes must not panic, must not hold more memory than a small multiple of them, and
//! what it accepts must encode to the very same bytes. Every round has a seed of its own; a round
//! that fails prints it, and `CONVOKE_FUZZ_SEED` set to it starts with that round. An abort, as on
//! running out of memory, prints none: run with `--nocapture` to see the first seed.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::mem::size_of;
use std::time::{Duration, Instant};

use bytes::Bytes;
use convoke_proto::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{
    About, Ask, Asked, Cancel, CancelReason, Cast, Cause, Credit, Credited, Digest, Entry,
    Executed, Extension, Fail, Frame, Header, Item, ItemKind, LinkDown, Manifest, Message, Outcome,
    Part, Parting, Probe, Relayed, Reply, ReplyKind, ReplyPath, ReplyRoute, Request, Rung, Sealed,
    Settled, Statement, Status, TaskStatus, extension,
};

/// Rounds even where the clock has run out, so that a slow machine tests something too.
const ROUNDS_MIN: u64 = 20_000;

#[test]
#[expect(clippy::disallowed_methods, reason = "the clock ends the test and decides nothing in it")]
fn decoding_survives_hostile_bytes() {
    let seed =
        number_from_env("CONVOKE_FUZZ_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let seconds = number_from_env("CONVOKE_FUZZ_SECONDS").unwrap_or(2);
    println!("CONVOKE_FUZZ_SEED={seed} CONVOKE_FUZZ_SECONDS={seconds}");

    let corpus = corpus();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut accepted) = (0, 0_u64);
    while rounds < ROUNDS_MIN || Instant::now() < end {
        let mut round = Round::new(seed.wrapping_add(rounds), &corpus);
        accepted += u64::from(round.run());
        rounds += 1;
    }
    println!("{rounds} rounds, {accepted} inputs accepted");
    assert!(accepted > 0 && accepted < rounds, "the inputs should be of both kinds");
}

#[test]
fn the_corpus_itself_decodes() {
    for frame in frames() {
        assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
    }
}

fn number_from_env(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// One input and its check. Says how to repeat it when that panics.
struct Round {
    seed: u64,
    input: Bytes,
}

impl Round {
    fn new(seed: u64, corpus: &[Bytes]) -> Self {
        Self { seed, input: input(&mut Random::new(seed), corpus) }
    }

    /// True when the input was a frame.
    fn run(&mut self) -> bool {
        let Ok(frame) = Frame::decode(self.input.clone()) else { return false };
        assert_eq!(frame.to_bytes(), self.input, "{frame:?} has another encoding");
        assert_eq!(frame.encoded_len(), self.input.len());
        let (held, bound) = (held_bytes(&frame.message), held_bytes_max(self.input.len()));
        assert!(held <= bound, "{} bytes hold {held} in memory", self.input.len());
        true
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("failed at CONVOKE_FUZZ_SEED={} with the input {hex}", self.seed);
        }
    }
}

/// One list of holders, which a few bytes can stand for, and a small multiple of the rest.
const fn held_bytes_max(input_len: usize) -> usize {
    64 * input_len + 2 * 65_536 * size_of::<Option<NodeId>>()
}

/// Heap that the lists of a message take, by capacity; payloads share the input.
fn held_bytes(message: &Message) -> usize {
    match message {
        Message::Request(request) => {
            let addresses = match &request.reply_route {
                ReplyRoute::Sender => 0,
                ReplyRoute::Node { addresses, .. } => {
                    held_by(addresses, |address| address.as_str().len())
                }
            };
            let extensions = held_by_extensions(&request.extensions);
            addresses + extensions + held_by_entries(&request.inherited)
        }
        Message::Reply(reply) => {
            let entry = reply.own_entry.as_deref().map_or(0, held_by_entry);
            entry + held_by_entries(&reply.inherited) + held_by_extensions(&reply.extensions)
        }
        Message::Manifest(manifest) => {
            let own = manifest.own.as_ref().map_or(0, held_by_entry);
            own + held_by_entries(&manifest.inherited)
        }
        Message::Fail(fail) => {
            let entry = fail.entry.as_deref().map_or(0, held_by_entry);
            let riding = held_by_entries(&fail.inherited) + held_by_extensions(&fail.extensions);
            fail.text.capacity() + entry + riding
        }
        Message::Probe(probe) => held_by(&probe.tasks, |asked| held_by_key(&asked.task)),
        Message::Status(status) => {
            let of_task = |(asked, status): &(Asked, TaskStatus)| {
                let entry = match status {
                    TaskStatus::Closed { entry, .. } => held_by_entry(entry),
                    _ => 0,
                };
                held_by_key(&asked.task) + entry
            };
            held_by(&status.tasks, of_task) + held_by_entries(&status.inherited)
        }
        Message::LinkDown(link_down) => {
            let own = link_down.own.as_ref().map_or(0, held_by_entry);
            let entries = own + held_by_entries(&link_down.inherited);
            held_by(&link_down.children, held_by_key) + entries
        }
        Message::Ask(ask) => held_by(&ask.origins, |_| 0),
        Message::Settled(settled) => {
            held_by(&settled.statements, |statement| held_by(&statement.exceptions, |_| 0))
        }
        Message::Cancel(_)
        | Message::Credit(_)
        | Message::Cast(_)
        | Message::Item(_)
        | Message::Parting(_) => 0,
    }
}

fn held_by<T>(list: &Vec<T>, of_each: impl Fn(&T) -> usize) -> usize {
    list.capacity() * size_of::<T>() + list.iter().map(of_each).sum::<usize>()
}

fn held_by_extensions(extensions: &Vec<Extension>) -> usize {
    held_by(extensions, |extension| extension.value.len())
}

fn held_by_entries(entries: &Vec<Sealed>) -> usize {
    held_by(entries, |Sealed { entry, .. }| {
        held_by_key(&entry.task) + held_by(&entry.holders, |_| 0)
    })
}

fn held_by_entry(entry: &Entry) -> usize {
    size_of::<Entry>() + held_by_key(&entry.task) + held_by(&entry.holders, |_| 0)
}

/// A path moves to the heap when it is long; it may do so with all its bytes.
fn held_by_key(key: &TaskKey) -> usize {
    key.path.as_wire().len()
}

/// Bytes to decode: mostly valid frames with some damage, sometimes noise.
fn input(random: &mut Random, corpus: &[Bytes]) -> Bytes {
    let mut bytes = match random.below(8) {
        0 => (0..random.below(96)).map(|_| random.byte()).collect(),
        _ => random.pick(corpus).to_vec(),
    };
    for _ in 0..random.below(5) {
        mutate(&mut bytes, random, corpus);
    }
    bytes.into()
}

/// Values at which counts, varints and flags change their meaning.
const NOTABLE: [&[u8]; 9] = [
    &[0x00],
    &[0x01],
    &[0x7f],
    &[0x80, 0x00],
    &[0x80, 0x80, 0x04],
    &[0xff, 0xff, 0x03],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random, corpus: &[Bytes]) {
    let at = random.below(bytes.len() + 1);
    let end = at + random.below(bytes.len() - at + 1).min(16);
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.extend_from_within(at..end),
        3 => {
            let replaced = random.below(2).min(bytes.len() - at);
            bytes.splice(at..at + replaced, random.pick(&NOTABLE).iter().copied());
        }
        4 => {
            let tail = random.pick(corpus);
            bytes.truncate(at);
            bytes.extend_from_slice(&tail[random.below(tail.len())..]);
        }
        5 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        _ if at < bytes.len() => bytes[at] = random.byte(),
        _ => bytes.push(random.byte()),
    }
}

/// xorshift64*, which needs no dependency and replays everywhere.
struct Random(u64);

impl Random {
    /// Neighbouring seeds give unlike sequences: the seed goes through the finalizer of splitmix64.
    fn new(seed: u64) -> Self {
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((state ^ (state >> 31)).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// From 0 to `bound - 1`; 0 where there is no choice.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).expect("a usize has at most 64 bits");
        usize::try_from(self.next() % bound).expect("it is below a usize")
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn corpus() -> Vec<Bytes> {
    frames().iter().map(Frame::to_bytes).collect()
}

fn frames() -> Vec<Frame> {
    let messages = [openings(), answers(), control()].into_iter().flatten();
    let frames = messages.map(|message| Frame::new(header(), message)).collect::<Vec<_>>();
    let relayed = Some(Relayed { node: node(6), at: Rung { levels: 1, hop: 2 } });
    let relayed = frames.iter().map(|frame| Frame { relayed, ..frame.clone() });
    let keyed = frames.iter().filter(|frame| can_show_key(&frame.message));
    let keyed = keyed.map(|frame| Frame { key: Some(KEY), ..frame.clone() });
    frames.iter().cloned().chain(relayed).chain(keyed).collect()
}

const KEY: Key = Key(0x0102_0304_0506_0708);

fn can_show_key(message: &Message) -> bool {
    matches!(
        message,
        Message::Reply(_)
            | Message::Manifest(_)
            | Message::Fail(_)
            | Message::LinkDown(_)
            | Message::Cancel(_)
            | Message::Credit(_)
    )
}

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn key(indices: &[u32]) -> TaskKey {
    TaskKey { path: Path::from_indices(indices).expect("no path here is deep"), hop: 1 }
}

fn header() -> Header {
    let call = CallId { origin: Incarnation(0x1122_3344_5566_7788), seq: 70_000 };
    Header { call, task: key(&[2, 300]) }
}

fn leaf() -> Entry {
    let outcome = Outcome::Failed(Cause::Deadline);
    Entry { task: key(&[2]), children: 0, replies: 1, outcome, holders: Vec::new() }
}

fn fan_out() -> Entry {
    let holders = [Some(node(7)), None, Some(node(9)), Some(node(7))].to_vec();
    Entry { task: key(&[]), children: 4, replies: 0, outcome: Outcome::Finished, holders }
}

fn sealed(entry: Entry) -> Sealed {
    Sealed::new(entry, KEY)
}

fn metadata() -> Extension {
    Extension { tag: extension::METADATA, value: Bytes::from_static(b"\x01kv") }
}

/// All children at one node: the entry that takes most memory for its size.
fn at_one_node(children: u16) -> Entry {
    let holders = vec![Some(node(7)); children.into()];
    Entry { children: children.into(), holders, ..fan_out() }
}

fn openings() -> Vec<Message> {
    let plain = Request {
        key: KEY,
        budget_us: 10_000_000,
        outlasted_us: 0,
        floor: 3,
        method: MethodId::of("shop.Stock/Reserve"),
        reply_route: ReplyRoute::Sender,
        inherited: Vec::new(),
        extensions: Vec::new(),
        payload: Bytes::from_static(b"hello"),
    };
    let addresses = ["tcp://127.0.0.1:7000", "quic://h:1"];
    let addresses = addresses.map(|text| text.parse().expect("it is an address")).to_vec();
    let trace = Bytes::from_static(&[3; 25]);
    let full = Request {
        outlasted_us: 500_000,
        reply_route: ReplyRoute::Node { node: node(5), addresses },
        inherited: vec![sealed(leaf()), sealed(fan_out())],
        extensions: vec![Extension { tag: extension::TRACE_CONTEXT, value: trace }, metadata()],
        ..plain.clone()
    };
    let cast = Cast {
        about: About::Tag { view: 9 },
        phase: 1,
        sender: 2,
        epoch: 3,
        budget_us: 10_000_000,
        digest: Digest([7; 32]),
        is_carried: false,
        payload: Bytes::from_static(b"value"),
    };
    let kind = ItemKind::Item { seq: 300, is_last: true };
    let part = Some(Part { offset: 300, total: 400 });
    let item = Item { kind, part, payload: Bytes::from_static(b"item") };
    let end = Item { kind: ItemKind::End { count: 5 }, part: None, payload: Bytes::new() };
    let requests = [plain, full].map(Message::Request);
    let items = [item, end].map(Message::Item);
    requests.into_iter().chain(items).chain([Message::Cast(cast)]).collect()
}

fn answers() -> Vec<Message> {
    let sole = Reply::sole(Bytes::from_static(b"ok"));
    let piece = Reply {
        index: 300,
        kind: ReplyKind::Item { seq: 4, is_last: true },
        part: Some(Part { offset: 300, total: 400 }),
        is_final: false,
        own_entry: Some(fan_out().into()),
        inherited: vec![sealed(leaf())],
        ..sole.clone()
    };
    let end = Reply { kind: ReplyKind::End { count: 5 }, payload: Bytes::new(), ..sole.clone() };
    let extended = Reply { extensions: vec![metadata(), metadata()], ..piece.clone() };
    let fail = Fail {
        cause: Cause::Application,
        executed: Executed::Maybe,
        code: 7,
        node: Some(node(4)),
        text: "out of stock".to_owned(),
        entry: Some(leaf().into()),
        aborts_children: true,
        inherited: vec![sealed(fan_out())],
        extensions: vec![metadata()],
        details: Bytes::from_static(b"details"),
    };
    vec![
        Message::Reply(sole),
        Message::Reply(piece),
        Message::Reply(end),
        Message::Fail(fail),
        Message::Reply(extended),
        manifest(Some(leaf()), vec![fan_out()]),
        manifest(Some(at_one_node(65_000)), Vec::new()),
        manifest(None, vec![at_one_node(3), at_one_node(2)]),
    ]
}

fn manifest(own: Option<Entry>, inherited: Vec<Entry>) -> Message {
    let inherited = inherited.into_iter().map(sealed).collect();
    Message::Manifest(Manifest { own, inherited })
}

fn control() -> Vec<Message> {
    let tasks = vec![key(&[2]), key(&[2, 1, 0])];
    let states = [
        TaskStatus::Unknown,
        TaskStatus::Running,
        TaskStatus::Tailed { node: node(9) },
        TaskStatus::Closed { entry: fan_out().into(), replies_by: ReplyPath::Link(LinkNonce(4)) },
        TaskStatus::Closed { entry: leaf().into(), replies_by: ReplyPath::Relay(node(9)) },
        TaskStatus::Closed { entry: leaf().into(), replies_by: ReplyPath::Nowhere },
        TaskStatus::Fenced,
        TaskStatus::Forgotten,
    ];
    let asked = |task: &TaskKey| Asked { task: task.clone(), key: KEY };
    let states = states.map(|state| (asked(&key(&[1])), state)).to_vec();
    let probe = |tasks| Message::Probe(Probe { fence: true, budget_us: 10_000_000, tasks });
    let over = vec![sealed(fan_out())];
    let running =
        LinkDown { node: node(9), children: tasks.clone(), own: None, inherited: Vec::new() };
    let ended = LinkDown { own: Some(fan_out()), inherited: over, ..running.clone() };
    let origin = header().call.origin;
    let open = |of: &[u64]| of.iter().map(|seq| (*seq, key(&[1, 2]))).collect();
    let statement = |exceptions: Vec<u64>| {
        let open = open(&exceptions);
        Statement { origin, from: 70_000, to: 80_000, exceptions, open }
    };
    let statements = vec![statement(vec![70_000, 70_300, 79_999]), statement(Vec::new())];
    let ask = Ask { origins: vec![(Incarnation(7), 0), (origin, 70_000)] };
    vec![
        Message::Cancel(Cancel { reason: CancelReason::ParentFailed, budget_us: 10_000_000 }),
        Message::Credit(Credit { of: Credited::Reply(0), limit_bytes: 1 << 20 }),
        probe(tasks.iter().map(asked).collect()),
        Message::Status(Status { tasks: states, inherited: vec![sealed(leaf())] }),
        Message::LinkDown(running),
        Message::LinkDown(ended),
        Message::Ask(ask),
        Message::Settled(Settled { statements }),
        Message::Parting(Parting::Leaving),
        Message::Parting(Parting::Sent(70_000)),
    ]
}

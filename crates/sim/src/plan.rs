//! Plans of what tasks do: the seed and the task's name decide a plan, so that the same tree grows
//! whatever the network does.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::encoded::Encoded;
use convoke_proto::id::{CallId, MethodId, NodeId, Path, TaskKey};

use crate::oracle::TaskName;
use crate::random::{DIGEST_START, Random, digest};

/// One thing a handler does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a whole reply of this many bytes.
    Reply(usize),
    /// Sends a stream of items of these sizes; it may leave the end of the stream to its own end.
    Stream(Vec<usize>, bool),
    /// Opens a branch, maybe with less time than it has itself.
    Delegate(NodeId, Option<Duration>),
    /// Waits for something else.
    Wait(Duration),
    /// Fails.
    Fail {
        /// It panics rather than to return an error.
        panics: bool,
        /// It takes its branches with it.
        aborts: bool,
    },
}

/// Shape of trees.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Deepest task, tail transfers included.
    pub depth_max: usize,
    /// Most branches of a task.
    pub fan_out_max: u64,
    /// Tasks that fail, of a hundred.
    pub failure_percent: u32,
    /// Steps before which a task waits, of a hundred.
    pub wait_percent: u32,
    /// Time to wait, in microseconds.
    pub wait_us: Range<u64>,
    /// Replies larger than may be sent without a grant, of a hundred.
    pub large_percent: u32,
    /// Tasks that stream, of a hundred.
    pub stream_percent: u32,
    /// Branches with a deadline of their own, of a hundred.
    pub short_deadline_percent: u32,
}

/// A method whose tasks open branches.
pub const TREE: MethodId = MethodId::of("sim.Tree/Grow");
/// A method whose tasks send one reply, or fail.
pub const FLAT: MethodId = MethodId::of("sim.Flat/Answer");

/// Decides what a task does.
pub fn plan(
    seed: u64,
    shape: &Shape,
    call: CallId,
    task: &TaskKey,
    method: MethodId,
    peers: &[NodeId],
) -> Vec<Step> {
    let mut random = Random::of(seed, name(call, task));
    let mut steps = if method == FLAT {
        vec![Step::Reply(size(&mut random, shape))]
    } else {
        tree(&mut random, shape, task, peers)
    };
    if random.chance(shape.failure_percent) {
        steps.truncate(random.index(steps.len() + 1));
        steps.push(Step::Fail { panics: random.chance(30), aborts: random.chance(40) });
    }
    let mut waiting = Vec::new();
    for step in steps {
        if random.chance(shape.wait_percent) {
            waiting.push(Step::Wait(random.micros(shape.wait_us.clone())));
        }
        waiting.push(step);
    }
    if random.chance(shape.wait_percent / 2) {
        waiting.push(Step::Wait(random.micros(shape.wait_us.clone())));
    }
    waiting
}

fn tree(random: &mut Random, shape: &Shape, task: &TaskKey, peers: &[NodeId]) -> Vec<Step> {
    let depth = task.path.level_count() + usize::try_from(task.hop).unwrap_or(usize::MAX);
    let is_leaf = depth >= shape.depth_max;
    let delegate = |random: &mut Random| {
        let short = random.chance(shape.short_deadline_percent);
        let deadline = short.then(|| random.micros(1_000..500_000));
        random.pick(peers).map(|peer| Step::Delegate(*peer, deadline))
    };
    match random.within(0..100) {
        0..=7 => Vec::new(),
        8..=39 => vec![Step::Reply(size(random, shape))],
        40..=54 if !is_leaf => delegate(random).into_iter().collect(),
        55..=74 if !is_leaf => {
            let count = random.within(1..shape.fan_out_max + 1);
            (0..count).filter_map(|_| delegate(random)).collect()
        }
        _ => {
            let count = random.within(1..6);
            let mut steps = Vec::new();
            for _ in 0..count {
                match random.within(0..100) {
                    roll if roll < u64::from(shape.stream_percent) => {
                        let items = (0..random.within(0..12)).map(|_| size(random, shape));
                        let items = items.collect();
                        steps.push(Step::Stream(items, random.chance(70)));
                    }
                    roll if roll % 2 == 0 && !is_leaf => steps.extend(delegate(random)),
                    _ => steps.push(Step::Reply(size(random, shape))),
                }
            }
            steps
        }
    }
}

fn size(random: &mut Random, shape: &Shape) -> usize {
    let range = match random.within(0..100) {
        roll if roll < u64::from(shape.large_percent) => 10_000..60_000,
        roll if roll < 80 => 0..200,
        _ => 200..4_000,
    };
    usize::try_from(random.within(range)).expect("sizes are small")
}

/// The payload of one message: different for each, so that none can stand for another.
pub fn payload(task: &TaskName, index: u32, item: u64, len: usize) -> Bytes {
    let name = message(task, index, item);
    let mut bytes = vec![(name >> 56) as u8; len];
    for (at, byte) in name.to_le_bytes().into_iter().enumerate().take(len) {
        bytes[at] = byte;
    }
    bytes.into()
}

/// An item of a call's request, different for each.
pub fn item(call: CallId, nth: usize, len: usize) -> Bytes {
    let root = TaskKey { path: Path::root(), hop: 0 };
    payload(&TaskName::of(call, root), u32::MAX, nth as u64, len)
}

/// A message as an endpoint hands it over: a small one in a buffer that the next one takes.
pub fn encoded(message: &[u8]) -> Encoded {
    Encoded::new(message.len(), |out| out.extend_from_slice(message))
}

/// The value of a message's metadata; one message in four has any.
pub fn tag(task: &TaskName, index: u32, item: u64) -> Option<Bytes> {
    let number = digest(message(task, index, item), b"tag");
    number.is_multiple_of(4).then(|| Bytes::copy_from_slice(&number.to_le_bytes()))
}

/// A number for a message.
fn message(task: &TaskName, index: u32, item: u64) -> u64 {
    let made_up = task.made_up.map_or(0, |key| key.0 | 1);
    let name = name(task.call, &task.task) ^ made_up;
    name ^ (u64::from(index) << 32) ^ item.wrapping_mul(0x9e37_79b9)
}

/// A number for a task.
fn name(call: CallId, task: &TaskKey) -> u64 {
    let start = digest(DIGEST_START, &call.origin.0.to_le_bytes());
    let start = digest(start, &call.seq.to_le_bytes());
    let start = digest(start, task.path.as_wire());
    digest(start, &task.hop.to_le_bytes())
}

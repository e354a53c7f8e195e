//! Grants of a call of many root branches, whose replies are streams of large items.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::*;
use super::mesh::Mesh;
use crate::call::{CallEvent, CallOptions};
use crate::id::{CallId, Path};
use crate::task::TaskFailure;
use crate::wire::{Cause, Executed, Reply};

const ROOT_COUNT: u64 = 127;
/// Root branches that keep to their credit and do not bring all: one sends nothing of what it was
/// granted, one fails in the middle of an item, one is slow for ever.
const SILENT: u64 = 3;
const FAILING: u64 = 4;
const SLOW: u64 = 5;

/// Items of each stream. The first of them brings it its window, and the others outgrow that.
const SIZES: [usize; 3] = [12 << 10, 1 << 20, 1 << 20];

/// Any number below this one, by the seed (SplitMix64, Steele et al. 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

/// A call of node 1 to all others, two streams of each of which are on their way.
struct Streaming {
    mesh: Mesh,
    call: CallId,
    random: Random,
    /// Items that were read of each stream.
    read: BTreeMap<(Path, u32), usize>,
}

impl Streaming {
    fn new(seed: u64, limits: &Limits) -> Self {
        let mut mesh = Mesh::new(1 + ROOT_COUNT, limits);
        (2..=1 + ROOT_COUNT).for_each(|node| _ = mesh.connect(1, node));
        let roots: Vec<u64> = (2..=1 + ROOT_COUNT).collect();
        let call = mesh.call(1, &roots, CallOptions::default());
        mesh.deliver_all();
        let mut streaming = Self { mesh, call, random: Random(seed), read: BTreeMap::new() };
        for root in 0..ROOT_COUNT {
            for _ in 0..2 {
                streaming.begin(root);
            }
            if ![FAILING, SLOW].contains(&root) {
                streaming.mesh.finish(&format!("/{root}"));
            }
        }
        streaming
    }

    fn begin(&mut self, root: u64) {
        let ((at, task), now) = (self.mesh.task(&format!("/{root}")), self.mesh.now);
        static BYTES: [u8; 1 << 20] = [7; 1 << 20];
        self.mesh.with(at, |node| {
            let stream = node.stream(now, &task).unwrap();
            let items = SIZES.map(|size| Bytes::from_static(&BYTES[..size]));
            node.stream_items(now, &task, stream, items).unwrap();
            node.handle_yield(now, &task);
        });
    }

    /// Delivers a frame: of any connection and lane the one that left first. False when there is
    /// none but of the slow one.
    fn deliver(&mut self) -> bool {
        let wire = &self.mesh.wire;
        let is_slow = |at: u64| at == SLOW + 2;
        let picked = (0..wire.len()).filter(|at| !is_slow(wire[*at].0)).collect::<Vec<_>>();
        let Some(picked) = picked.get(self.random.below(picked.len().max(1))) else { return false };
        let way = |at: usize| (wire[at].0, wire[at].1.to, wire[at].1.lane);
        let first = (0..=*picked).find(|at| way(*at) == way(*picked)).unwrap();
        self.deliver_at(first);
        true
    }

    fn deliver_at(&mut self, at: usize) {
        let (from, sent) = &self.mesh.wire[at];
        let (from, is_rest) = (*from, is_rest(&sent.frame.message));
        if from == SILENT + 2 && is_rest {
            self.mesh.wire.remove(at);
            return;
        }
        self.mesh.deliver(at);
        let (node, task) = self.mesh.task(&format!("/{FAILING}"));
        if from == node && is_rest {
            let (now, no) =
                (self.mesh.now, TaskFailure::new(Cause::Application, Executed::Yes, "no"));
            self.mesh.with(node, |node| node.fail(now, &task, no));
        }
    }

    /// Reads what it is handed at once. False when there is nothing.
    fn read(&mut self) -> bool {
        let events = self.mesh.read(1, self.call);
        let is_any = !events.is_empty();
        for event in events {
            match event {
                CallEvent::Reply(item) => {
                    *self.read.entry((item.path, item.index)).or_default() += 1;
                }
                CallEvent::Failure(failure) => assert_eq!(failure.cause, Cause::Application),
                other => panic!("{other:?}"),
            }
        }
        is_any
    }

    fn committed(&self) -> u64 {
        self.mesh.nodes[&1].call(self.call).map_or(0, |call| call.committed())
    }
}

/// True of a part of an item behind its first.
fn is_rest(message: &Message) -> bool {
    let part = match message {
        Message::Reply(Reply { part, .. }) => *part,
        _ => None,
    };
    part.is_some_and(|part| part.offset > 0)
}

/// Windows that all had been granted left nothing for the items that outgrow them, and all waited
/// for each other until the deadline.
#[test]
fn streams_of_many_root_branches_bring_items_that_outgrow_their_windows() {
    for (seed, message_bytes_max) in [(1, 1 << 20), (2, 4 << 20)] {
        let limits = Limits { reply_bytes_max: 8 << 20, message_bytes_max, ..Limits::default() };
        let bytes_max = limits.reply_bytes_max.max((5 << 20) + message_bytes_max as u64);
        let mut streaming = Streaming::new(seed, &limits);
        loop {
            let (reads, slow) = (streaming.random.below(3) == 0, streaming.random.below(100) == 0);
            let is_slow = |(from, _): &(u64, _)| *from == SLOW + 2;
            let of_slow = streaming.mesh.wire.iter().position(is_slow).filter(|_| slow);
            if let Some(at) = of_slow {
                streaming.deliver_at(at);
            }
            let is_idle = match reads {
                true => !streaming.read() && !streaming.deliver(),
                false => !streaming.deliver() && !streaming.read(),
            };
            assert!(streaming.committed() <= bytes_max, "seed {seed}");
            if is_idle {
                break;
            }
        }
        for root in (0..ROOT_COUNT).filter(|root| ![SILENT, FAILING, SLOW].contains(root)) {
            let path: Path = format!("/{root}").parse().unwrap();
            let read = [0, 1].map(|index| streaming.read.get(&(path.clone(), index)).copied());
            assert_eq!(read, [Some(SIZES.len()); 2], "seed {seed} root {root}");
        }
    }
}

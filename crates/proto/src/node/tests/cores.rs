//! I44 of `streams.md`: what becomes of calls does not depend on the number of cores.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::mesh::{Mesh, Sent, branch, millis, node_of};
use crate::call::{CallOptions, End};
use crate::cores::CORES_MAX;
use crate::id::{CallId, TaskKey};
use crate::limits::Limits;
use crate::node::Node;
use crate::task::TaskFailure;
use crate::visits::TaskRef;
use crate::wire::{Cause, Executed, Frame, Header};

const NODES: u64 = 4;

/// An input, of the call or task with this number among those that there are.
#[derive(Clone, Debug)]
enum Step {
    Open {
        at: u64,
        roots: Vec<u64>,
        is_full: bool,
    },
    Delegate {
        task: usize,
        to: u64,
    },
    Answer {
        task: usize,
    },
    Return {
        task: usize,
    },
    Fail {
        task: usize,
    },
    Decide {
        call: usize,
        cancels_late: bool,
    },
    Cancel {
        call: usize,
    },
    Read {
        call: usize,
    },
    /// The frames of one call, or all there are and what follows from them.
    Deliver {
        call: Option<usize>,
    },
    Pass {
        ms: u64,
    },
    Break {
        one: u64,
        other: u64,
    },
    Connect {
        one: u64,
        other: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 1..=NODES;
    let pair = || (node(), node()).prop_filter("two nodes", |(one, other)| one != other);
    let number = || 0..64_usize;
    prop_oneof![
        4 => (node(), vec(node(), 1..4), any::<bool>())
            .prop_map(|(at, roots, is_full)| Step::Open { at, roots, is_full }),
        3 => (number(), node()).prop_map(|(task, to)| Step::Delegate { task, to }),
        4 => number().prop_map(|task| Step::Answer { task }),
        2 => number().prop_map(|task| Step::Return { task }),
        1 => number().prop_map(|task| Step::Fail { task }),
        1 => (number(), any::<bool>())
            .prop_map(|(call, cancels_late)| Step::Decide { call, cancels_late }),
        1 => number().prop_map(|call| Step::Cancel { call }),
        2 => number().prop_map(|call| Step::Read { call }),
        6 => proptest::option::of(number()).prop_map(|call| Step::Deliver { call }),
        3 => (1..120_u64).prop_map(|ms| Step::Pass { ms }),
        1 => pair().prop_map(|(one, other)| Step::Break { one, other }),
        2 => pair().prop_map(|(one, other)| Step::Connect { one, other }),
    ]
}

/// Nodes with so many cores, and their calls in the order in which they were opened.
struct Run {
    mesh: Mesh,
    calls: Vec<(u64, CallId)>,
    numbers: BTreeMap<CallId, usize>,
}

impl Run {
    fn new(cores: u8) -> Self {
        let mut mesh = Mesh::with_cores(NODES, &Limits::default(), cores);
        mesh.connect_all();
        Self { mesh, calls: Vec::new(), numbers: BTreeMap::new() }
    }

    /// Applies a step. What a caller that reads is told.
    fn apply(&mut self, step: &Step) -> Vec<String> {
        let now = self.mesh.now;
        match step {
            Step::Open { at, roots, is_full } => {
                let options = CallOptions { tells_silent: *is_full, ..CallOptions::default() };
                let call = self.mesh.call(*at, roots, options);
                self.numbers.insert(call, self.calls.len());
                self.calls.push((*at, call));
            }
            Step::Delegate { task, to } => self.with_task(*task, |node, task| {
                let _ = node.delegate(now, task, branch(*to));
                node.handle_yield(now, task);
            }),
            Step::Answer { task } => self.with_task(*task, |node, task| {
                let _ = node.reply(now, task, Bytes::from_static(b"yes"));
                node.finish(now, task);
            }),
            Step::Return { task } => self.with_task(*task, |node, task| node.finish(now, task)),
            Step::Fail { task } => self.with_task(*task, |node, task| {
                node.fail(now, task, TaskFailure::new(Cause::Application, Executed::Yes, "no"));
            }),
            Step::Decide { call, cancels_late } => self.with_call(*call, |mesh, at, call| {
                mesh.with(mesh.core_of(at, call), |node| {
                    node.decide_call(now, call, *cancels_late)
                });
            }),
            Step::Cancel { call } => self.with_call(*call, |mesh, at, call| {
                mesh.with(mesh.core_of(at, call), |node| node.cancel_call(now, call));
            }),
            Step::Read { call } => {
                return self.with_call(*call, |mesh, at, call| mesh.told(at, call));
            }
            Step::Deliver { call: Some(call) } => {
                let of_call = |_: &mut Mesh, _, call| Some(call);
                let call = self.with_call(*call, of_call);
                while let Some(index) =
                    self.mesh.wire.iter().position(|(_, sent)| Some(sent.frame.header.call) == call)
                {
                    self.mesh.deliver(index);
                }
            }
            Step::Deliver { call: None } => self.deliver_all(),
            Step::Pass { ms } => self.mesh.pass(millis(*ms)),
            Step::Break { one, other } => {
                if let Some(link) = self.mesh.find_link(*one, *other) {
                    self.mesh.disconnect(*one, link);
                    self.mesh.disconnect(*other, link);
                }
            }
            Step::Connect { one, other } => {
                if self.mesh.find_link(*one, *other).is_none() {
                    self.mesh.connect(*one, *other);
                }
            }
        }
        Vec::new()
    }

    fn with_task(&mut self, number: usize, act: impl FnOnce(&mut Node, &TaskRef)) {
        let count = self.mesh.starts.len();
        if count > 0 {
            let (at, start) = &self.mesh.starts[number % count];
            let (at, task) = (*at, start.task.clone());
            self.mesh.with(at, |node| act(node, &task));
        }
    }

    fn with_call<T: Default>(
        &mut self,
        number: usize,
        act: impl FnOnce(&mut Mesh, u64, CallId) -> T,
    ) -> T {
        let Some((at, call)) = self.calls.get(number % self.calls.len().max(1)).copied() else {
            return T::default();
        };
        act(&mut self.mesh, at, call)
    }

    /// Delivers what is on its way, and what follows, call by call: frames of two calls that leave
    /// at once do so in the order of their cores.
    fn deliver_all(&mut self) {
        while let Some(index) = (0..self.mesh.wire.len()).min_by_key(|index| {
            let call = self.mesh.wire[*index].1.frame.header.call;
            (self.numbers.get(&call).copied().unwrap_or(usize::MAX), *index)
        }) {
            self.mesh.deliver(index);
        }
    }

    /// All there is to be seen of the calls, by their numbers. How long a node remembers tasks of
    /// calls that have ended, and speaks of them, hangs on the floors of streams, and which calls
    /// are settled is asked for each.
    fn seen(&self) -> (Vec<String>, Vec<Option<End>>) {
        let name = |call: &CallId, task: &TaskKey| format!("call {} {task}", self.numbers[call]);
        let is_open = |call: &CallId| {
            let at = self.numbers.get(call).map(|number| self.calls[*number].0);
            let core = at.map(|at| self.mesh.core_of(at, *call));
            let initiator = core.map(|core| self.mesh.nodes[&core].initiator());
            initiator.is_some_and(|of| of.is_kept(*call) && of.end(*call).is_none())
        };
        let of_calls = self.mesh.wire.iter().filter(|(_, sent)| is_open(&sent.frame.header.call));
        let frames = of_calls.map(|(from, Sent { to, frame, .. })| {
            let Frame { header: Header { call, task }, message, .. } = frame;
            format!("{from} to {to}: {} of {}", message.name(), name(call, task))
        });
        let starts = self.mesh.starts.iter().map(|(at, start)| {
            let at = node_of(*at);
            format!("{at} starts {}", name(&start.task.call, &start.task.task))
        });
        let stops = self.mesh.stops.iter().map(|(at, task, cause)| {
            format!("{} stops {}: {cause:?}", node_of(*at), name(&task.call, &task.task))
        });
        let mut seen: Vec<String> = frames.chain(starts).chain(stops).collect();
        seen.sort_unstable();
        let ends = self.calls.iter().map(|(at, call)| self.mesh.end(*at, *call));
        (seen, ends.collect())
    }
}

proptest! {
    #[test]
    fn what_becomes_of_calls_does_not_depend_on_the_number_of_cores(
        cores in 2..=CORES_MAX,
        steps in vec(step(), 1..60),
    ) {
        let mut runs = [Run::new(1), Run::new(cores)];
        for (index, step) in steps.iter().enumerate() {
            let [one, several] = runs.each_mut().map(|run| (run.apply(step), run.seen()));
            prop_assert_eq!(one, several, "step {}", index);
        }
    }
}

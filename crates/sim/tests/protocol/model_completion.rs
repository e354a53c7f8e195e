//! Completion, checked exhaustively: every small request tree, every order in which its frames can
//! arrive, one of them twice. The code under test is the initiator's own `proto::tree::Tree`.
//!
//! The model is everything around it: which frames the tasks of a tree send (`trees.rs`,
//! rules R1 to R7 of `proto::task`), and in which order the initiator applies the parts of a frame
//! (as `proto::call` does). No fault is modelled, so nothing may look like one.

mod trees;

use std::hash::{Hash, Hasher};

use convoke_proto::id::NodeId;
use convoke_proto::tree::{BranchState, Holder, Tree, TreeFault};
use stateright::{Checker, Model, Property};

use self::trees::{Bounds, Entry, Frame, Scenario, scenarios};

/// All deliveries of the frames of all scenarios.
struct Completion {
    scenarios: Vec<Scenario>,
    /// False is the defect that the check must find: an entry closes its branch alone.
    is_registering_children: bool,
}

/// A frame of the scenario arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deliver(usize);

#[derive(Clone, Debug)]
struct State {
    scenario: usize,
    /// One bit per frame that has arrived.
    arrived: u32,
    /// The network has delivered a frame twice.
    is_copied: bool,
    tree: Tree,
    /// All there is in `tree`, to compare states by.
    tree_text: String,
    /// Replies that were news to the tree.
    replies: usize,
    fault: Option<TreeFault>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        (self.scenario, self.arrived, self.is_copied, self.replies, self.fault)
            == (other.scenario, other.arrived, other.is_copied, other.replies, other.fault)
            && self.tree_text == other.tree_text
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.scenario, self.arrived, self.is_copied, self.replies).hash(state);
        (self.fault.is_some(), &self.tree_text).hash(state);
    }
}

impl Model for Completion {
    type State = State;
    type Action = Deliver;

    /// The initiator has sent the requests of its branches.
    fn init_states(&self) -> Vec<State> {
        let begun = |(number, scenario): (usize, &Scenario)| {
            let mut tree = Tree::new(scenario.roots.len(), 64);
            for path in &scenario.roots {
                tree.ensure(path).expect("roots are within the bound").expect("roots are new");
            }
            let (arrived, replies) = (0, 0);
            State {
                scenario: number,
                arrived,
                is_copied: false,
                tree,
                tree_text: String::new(),
                replies,
                fault: None,
            }
            .with_text()
        };
        self.scenarios.iter().enumerate().map(begun).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Deliver>) {
        let frames = 0..self.scenarios[state.scenario].frames.len();
        actions.extend(frames.filter(|at| !state.is_copied || !state.has(*at)).map(Deliver));
    }

    fn next_state(&self, last: &State, Deliver(at): Deliver) -> Option<State> {
        let mut state = last.clone();
        state.is_copied |= state.has(at);
        state.arrived |= 1 << at;
        let frame = &self.scenarios[state.scenario].frames[at];
        if let Err(fault) = self.apply(&mut state, frame) {
            state.fault = Some(fault);
        }
        Some(state.with_text())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "completes only when everything has arrived",
                |model: &Self, state: &State| {
                    !state.tree.is_complete() || model.is_everything_in(state)
                },
            ),
            Property::always(
                "completes once everything has arrived",
                |model: &Self, state: &State| {
                    !model.has_all_frames(state) || state.tree.is_complete()
                },
            ),
            Property::always(
                "the counters are those of a count from scratch",
                |_, State { tree, .. }: &State| {
                    (tree.open(), tree.missing(), tree.unsaid()) == tree.recount()
                },
            ),
            Property::always("every reply is news once", |model: &Self, state: &State| {
                state.replies == model.arrived_frames(state).filter(|f| f.reply.is_some()).count()
            }),
            Property::always("without a fault nothing contradicts", |_, state: &State| {
                state.fault.is_none()
                    && state.tree.iter().all(|(_, b)| b.state != BranchState::Failed)
            }),
            Property::always("a complete tree holds no branch", |_, state: &State| {
                !state.tree.is_complete() || state.tree.iter().next().is_none()
            }),
        ]
    }
}

impl Completion {
    fn of(bounds: Bounds) -> Self {
        Self { scenarios: scenarios(bounds), is_registering_children: true }
    }

    /// As `proto::call` applies a frame: entries of ancestors, the sender itself, its reply, its
    /// entry.
    fn apply(&self, state: &mut State, frame: &Frame) -> Result<(), TreeFault> {
        for entry in &frame.inherited {
            self.close(&mut state.tree, entry)?;
        }
        let task = &frame.task;
        let Some(branch) = state.tree.ensure(&task.path)? else { return Ok(()) };
        let is_new = frame.reply.is_some_and(|index| !branch.received.contains(index));
        state.tree.hold(task, Holder { node: frame.node, relay: None })?;
        if is_new
            && let Some(index) = frame.reply
            && state.tree.receive(&task.path, index)?
        {
            state.replies += 1;
        }
        frame.own.iter().try_for_each(|entry| self.close(&mut state.tree, entry))
    }

    fn close(&self, tree: &mut Tree, entry: &Entry) -> Result<(), TreeFault> {
        let children = if self.is_registering_children { entry.children } else { 0 };
        tree.close(&entry.task, children, entry.replies).map(drop)
    }

    fn arrived_frames<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Frame> {
        let frames = self.scenarios[state.scenario].frames.iter().enumerate();
        frames.filter(|(at, _)| state.has(*at)).map(|(_, frame)| frame)
    }

    fn has_all_frames(&self, state: &State) -> bool {
        self.arrived_frames(state).count() == self.scenarios[state.scenario].frames.len()
    }

    /// Every reply and every entry has arrived: some frames may be copies of entries only.
    fn is_everything_in(&self, state: &State) -> bool {
        let scenario = &self.scenarios[state.scenario];
        let replies = self.arrived_frames(state).filter(|frame| frame.reply.is_some()).count();
        let entries = self.arrived_frames(state).flat_map(|f| f.inherited.iter().chain(&f.own));
        let entries: std::collections::BTreeSet<_> = entries.map(|entry| &entry.task).collect();
        (replies, entries.len()) == (scenario.reply_count, scenario.task_count)
    }
}

impl State {
    fn has(&self, at: usize) -> bool {
        self.arrived & 1 << at != 0
    }

    fn with_text(mut self) -> Self {
        self.tree_text = format!("{:?}", self.tree);
        self
    }
}

/// Checks all trees within `bounds`, and answers how many states there were.
fn check(bounds: Bounds) -> usize {
    let model = Completion::of(bounds);
    let count = model.scenarios.len();
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{bounds:?}: {count} trees, {} unique states", checker.unique_state_count());
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn small_trees_complete_exactly_when_everything_has_arrived() {
    let states = check(Bounds { tasks: 3, replies: 6, is_every_rule: true });
    assert!(states > 10_000, "{states} states are fewer than there are");
}

#[test]
fn larger_trees_with_few_replies_do_so_too() {
    check(Bounds { tasks: 4, replies: 3, is_every_rule: false });
    check(Bounds { tasks: 5, replies: 2, is_every_rule: false });
}

#[test]
fn an_entry_that_registers_no_children_is_found_to_complete_early() {
    let mut model = Completion::of(Bounds { tasks: 2, replies: 2, is_every_rule: true });
    model.is_registering_children = false;
    let checker = model.checker().threads(2).spawn_bfs().join();
    let path = checker.assert_any_discovery("completes only when everything has arrived");
    let (last, model) = (path.last_state(), checker.model());
    assert!(last.tree.is_complete() && !model.is_everything_in(last));
}

#[test]
fn the_trees_are_all_there_are() {
    let shapes = |tasks| {
        let bounds = Bounds { tasks, replies: 0, is_every_rule: false };
        scenarios(bounds).len()
    };
    // Forests of ordered trees whose branches may be handed on: counted by hand up to three tasks.
    assert_eq!([1, 2, 3].map(shapes), [1, 1 + 3, 1 + 3 + 10]);
    let named: std::collections::BTreeSet<NodeId> =
        scenarios(Bounds { tasks: 3, replies: 0, is_every_rule: true })
            .iter()
            .flat_map(|scenario| scenario.frames.iter().map(|frame| frame.node))
            .collect();
    assert_eq!(named.len(), 3, "every task sends from a node of its own");
}

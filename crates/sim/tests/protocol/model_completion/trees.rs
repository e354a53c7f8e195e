//! Every request tree within bounds, and the frames its tasks send to the initiator.
//!
//! A task that ends its branch opens children, sends replies and then an entry, which travels by
//! one of the rules of `proto::task`. A task that hands its branch on (R3) sends nothing, and only
//! makes the next hop.

use convoke_proto::id::{NodeId, Path, TaskKey};

/// Bounds of the trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Tasks of a tree, at most.
    pub(crate) tasks: usize,
    /// Replies of a tree, at most; of a task at most two.
    pub(crate) replies: u32,
    /// True when entries travel every way they can, or only the way they do when nothing was
    /// flushed early.
    pub(crate) is_every_rule: bool,
}

/// One tree, as far as the initiator sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scenario {
    /// The branches the initiator opened.
    pub(crate) roots: Vec<Path>,
    /// Frames that arrive, in any order.
    pub(crate) frames: Vec<Frame>,
    /// Replies among them.
    pub(crate) reply_count: usize,
    /// Tasks that ended their branch.
    pub(crate) task_count: usize,
}

/// One frame to the initiator.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Sender of the frame.
    pub(crate) task: TaskKey,
    /// Node of that task.
    pub(crate) node: NodeId,
    /// Entries of ancestors.
    pub(crate) inherited: Vec<Entry>,
    /// The reply it is, if it is one.
    pub(crate) reply: Option<u32>,
    /// The sender's own entry; for FINAL the one it implies.
    pub(crate) own: Option<Entry>,
}

/// That a task has ended, with what it declared.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) task: TaskKey,
    pub(crate) children: u32,
    pub(crate) replies: u32,
}

/// A branch: how often it was handed on, and what its last task did.
#[derive(Clone, Debug)]
struct Branch {
    tails: u32,
    replies: u32,
    carrier: Carrier,
    children: Vec<Branch>,
}

/// Carrier of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// A manifest of its own: R1 and R6.
    Alone,
    /// On the last reply: R2 (as FINAL) and R4.
    Reply,
    /// On the last two requests: R5.
    Requests,
}

const REPLIES_MAX: u32 = 2;
/// R5's default, `carry_copies`.
const CARRY_COPIES: usize = 2;

/// All trees within `bounds`.
pub(crate) fn scenarios(bounds: Bounds) -> Vec<Scenario> {
    let sizes = 1..=bounds.tasks;
    let forests = sizes.flat_map(|tasks| forests(tasks, bounds.replies, bounds.is_every_rule));
    forests.map(|forest| Scenario::of(&forest)).collect()
}

/// All lists of branches with `tasks` tasks and up to `replies` replies in all.
fn forests(tasks: usize, replies: u32, is_every_rule: bool) -> Vec<Vec<Branch>> {
    if tasks == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first_tasks in 1..=tasks {
        for first in branches(first_tasks, replies, is_every_rule) {
            let left = replies - first.reply_count();
            for rest in forests(tasks - first_tasks, left, is_every_rule) {
                all.push(std::iter::once(first.clone()).chain(rest).collect());
            }
        }
    }
    all
}

/// All branches with `tasks` tasks, itself included, and up to `replies_max` replies in all.
fn branches(tasks: usize, replies_max: u32, is_every_rule: bool) -> Vec<Branch> {
    let mut all = Vec::new();
    for (tails, below) in (0..).zip((0..tasks).rev()) {
        for replies in 0..=REPLIES_MAX.min(replies_max) {
            for children in forests(below, replies_max - replies, is_every_rule) {
                for carrier in Carrier::all(replies, children.len(), is_every_rule) {
                    let children = children.clone();
                    all.push(Branch { tails, replies, carrier, children });
                }
            }
        }
    }
    all
}

impl Carrier {
    fn all(replies: u32, children: usize, is_every_rule: bool) -> Vec<Self> {
        let mut all = Vec::new();
        all.extend((replies > 0).then_some(Self::Reply));
        all.extend((children > 0).then_some(Self::Requests));
        all.push(Self::Alone);
        all.truncate(if is_every_rule { all.len() } else { 1 });
        all
    }
}

impl Branch {
    fn reply_count(&self) -> u32 {
        self.replies + self.children.iter().map(Self::reply_count).sum::<u32>()
    }
}

impl Scenario {
    fn of(forest: &[Branch]) -> Self {
        let mut scenario = Self::default();
        for (index, branch) in (0..).zip(forest) {
            let path = Path::root().child(index).expect("small trees are shallow");
            scenario.roots.push(path.clone());
            scenario.run(path, branch, Vec::new());
        }
        scenario
    }

    /// The last task of a branch runs, with the entries that came with its request.
    fn run(&mut self, path: Path, branch: &Branch, mut inherited: Vec<Entry>) {
        self.task_count += 1;
        let task = TaskKey { path: path.clone(), hop: branch.tails };
        let node = NodeId::new(self.task_count as u64);
        let children = u32::try_from(branch.children.len()).expect("small trees have few");
        let entry = Entry { task: task.clone(), children, replies: branch.replies };
        for index in 0..branch.replies {
            let is_carrier = branch.carrier == Carrier::Reply && index + 1 == branch.replies;
            let own = is_carrier.then(|| entry.clone());
            // R7: on the first output of any kind.
            let inherited = std::mem::take(&mut inherited);
            self.reply_count += 1;
            self.frames.push(Frame {
                task: task.clone(),
                node,
                inherited,
                reply: Some(index),
                own,
            });
        }
        if branch.carrier == Carrier::Alone {
            let (inherited, own) = (std::mem::take(&mut inherited), Some(entry.clone()));
            self.frames.push(Frame { task, node, inherited, reply: None, own });
        }
        let first_carrier = branch.children.len().saturating_sub(CARRY_COPIES);
        for ((at, index), child) in (0..).zip(0..).zip(&branch.children) {
            let mut carried = Vec::new();
            if branch.carrier == Carrier::Requests && at >= first_carrier {
                carried.extend(inherited.iter().cloned().chain([entry.clone()]));
            }
            self.run(path.child(index).expect("small trees are shallow"), child, carried);
        }
    }
}

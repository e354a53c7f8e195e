//! No table outgrows its bound, and after the last deadline and the keep-alive timeout all are
//! empty.

use convoke_proto::limits::Limits;
use convoke_proto::node::Node;

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I18.
#[derive(Debug)]
pub(super) struct Tables;

impl Invariant for Tables {
    fn name(&self) -> &'static str {
        "I18: tables are bounded, and empty in the end"
    }

    fn observe(&mut self, seen: &Observation<'_>, _: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Cores { cores, limits } => is_bounded(cores, limits),
            Observation::Quiet { nodes } => nodes.iter().try_for_each(|node| is_empty(node)),
            _ => Ok(()),
        }
    }
}

fn sizes(node: &Node) -> [(&'static str, usize); 7] {
    [
        ("calls", node.initiator().call_count()),
        ("unsettled calls", node.initiator().unsettled_count()),
        ("running tasks", node.visits().running_count()),
        ("remembered", node.visits().remembered_count()),
        ("stubs", node.visits().stub_count()),
        ("origins", node.visits().origin_count()),
        ("bytes of casts", node.mailboxes().held_bytes()),
    ]
}

/// Whatever its cores are, a node has its bounds.
fn is_bounded(cores: &[Node], limits: &Limits) -> Result<(), String> {
    // Cores tell each other of a 64th, divided by them, or of a byte.
    let casts = limits.cast_bytes_total_max;
    let bounds = [
        limits.calls_max,
        usize::MAX,
        limits.tasks_max,
        limits.remembered_max,
        usize::MAX,
        usize::MAX,
        casts + casts / 64 + cores.len(),
    ];
    let all: Vec<_> = cores.iter().map(sizes).collect();
    for (index, bound) in bounds.into_iter().enumerate() {
        let size: usize = all.iter().map(|sizes| sizes[index].1).sum();
        if size > bound {
            let (node, name) = (cores[0].identity().node, all[0][index].0);
            return Err(format!("{node}: {size} {name}, at most {bound}"));
        }
    }
    Ok(())
}

fn is_empty(node: &Node) -> Result<(), String> {
    let sizes = sizes(node);
    if sizes.iter().all(|(_, size)| *size == 0) {
        Ok(())
    } else {
        Err(format!("{} still has {sizes:?}", node.identity().node))
    }
}

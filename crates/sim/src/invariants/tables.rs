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
            Observation::Node { node, limits } => is_bounded(node, limits),
            Observation::Quiet { nodes } => nodes.iter().try_for_each(|node| is_empty(node)),
            _ => Ok(()),
        }
    }
}

fn sizes(node: &Node) -> [(&'static str, usize); 6] {
    [
        ("calls", node.initiators().call_count()),
        ("unsettled calls", node.initiators().unsettled_count()),
        ("running tasks", node.shards().running_count()),
        ("remembered", node.shards().remembered_count()),
        ("stubs", node.shards().stub_count()),
        ("origins", node.shards().origin_count()),
    ]
}

fn is_bounded(node: &Node, limits: &Limits) -> Result<(), String> {
    let bounds = [
        limits.calls_max,
        usize::MAX,
        limits.tasks_max,
        limits.remembered_max,
        usize::MAX,
        usize::MAX,
    ];
    for ((name, size), bound) in sizes(node).into_iter().zip(bounds) {
        if size > bound {
            return Err(format!("{}: {size} {name}, at most {bound}", node.identity().node));
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

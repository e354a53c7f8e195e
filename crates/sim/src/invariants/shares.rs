//! No peer takes more than its share of what peers share, and what it has taken is what is kept for
//! it.

use std::collections::BTreeMap;

use convoke_proto::limits::Limits;
use convoke_proto::link::PeerName;
use convoke_proto::node::Node;
use convoke_proto::share::Taken;

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I41, for one peer and all cores of a node: whatever others have taken, it leaves them the rest
/// of each pool.
#[derive(Debug)]
pub(super) struct Shares;

impl Invariant for Shares {
    fn name(&self) -> &'static str {
        "I41: a peer takes its share and no more"
    }

    fn observe(&mut self, seen: &Observation<'_>, _: &Oracle) -> Result<(), String> {
        let Observation::Cores { cores, limits } = seen else { return Ok(()) };
        let mut all = BTreeMap::<(PeerName, &str), Taken>::new();
        for taken in cores.iter().flat_map(Node::shares) {
            let of_all = all.entry((taken.peer.clone(), taken.pool));
            of_all.and_modify(|all| all.taken += taken.taken).or_insert(taken);
        }
        for taken in all.into_values() {
            let Some((alpha, once)) = rule(taken.pool, limits) else { continue };
            // When it took last it had less than alpha times what was free.
            let most = (alpha * taken.max).div_ceil(1 + alpha) + once - 1;
            if taken.taken > most {
                return Err(format!("{}: {taken:?}, at most {most}", cores[0].identity().node));
            }
        }
        Ok(())
    }
}

/// The factor of a pool, and what may be taken at once beyond the last look: a task that is new
/// brings an origin and a ring with it.
fn rule(pool: &str, limits: &Limits) -> Option<(usize, usize)> {
    match pool {
        "tasks_max" => Some((2, 1)),
        "remembered_max" => Some((1, 3)),
        "waiting_reply_bytes_max" | "running_request_bytes_max" => {
            Some((1, limits.message_bytes_max))
        }
        // Of items so much is granted as their windows ask for.
        _ => None,
    }
}

/// I42: nothing is kept that nobody pays for, and nobody pays for what is gone.
#[derive(Debug, Default)]
pub(super) struct Paid {
    looks: u64,
}

impl Invariant for Paid {
    fn name(&self) -> &'static str {
        "I42: a peer pays for what is kept for it"
    }

    fn observe(&mut self, seen: &Observation<'_>, _: &Oracle) -> Result<(), String> {
        let recount = |node: &Node| {
            node.audit_shares().map_err(|error| format!("{}: {error}", node.identity().node))
        };
        match seen {
            Observation::Node { node, .. } => {
                self.looks += 1;
                // A difference stays, so not every look need find it.
                if self.looks.is_multiple_of(16) { recount(node) } else { Ok(()) }
            }
            Observation::Quiet { nodes } => nodes.iter().try_for_each(|node| recount(node)),
            _ => Ok(()),
        }
    }
}

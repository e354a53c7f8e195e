//! Each message reaches the user at most once and as it was sent, with its own metadata; items of a
//! stream in order and without gaps.

use std::collections::BTreeMap;

use convoke_proto::call::{CallEvent, Delivered};
use convoke_proto::id::{CallId, Path};

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I5 and I20.
#[derive(Debug, Default)]
pub(super) struct ExactlyOnce {
    next_items: BTreeMap<(CallId, Path, u32), u64>,
}

impl Invariant for ExactlyOnce {
    fn name(&self) -> &'static str {
        "I5, I20: each message once, as sent, streams in order"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Learned { call, event: CallEvent::Reply(d) } = seen else {
            return Ok(());
        };
        if oracle.is_tainted(*call, &d.path) {
            return Ok(());
        }
        let name = (d.path.clone(), d.index, d.item);
        if oracle.calls[call].delivered.contains_key(&name) {
            return Err(format!("{call:?}: {name:?} came twice"));
        }
        if let Some(item) = d.item {
            let next = self.next_items.entry((*call, d.path.clone(), d.index)).or_default();
            if item != *next {
                return Err(format!("{call:?}: {name:?} came instead of item {next}"));
            }
            *next += 1;
        }
        if was_sent(*call, d, oracle) {
            Ok(())
        } else {
            Err(format!("{call:?}: {name:?} of {} is not what any task sent", d.from))
        }
    }
}

fn was_sent(call: CallId, d: &Delivered, oracle: &Oracle) -> bool {
    let metadata = d.extensions.metadata();
    let at = usize::try_from(d.item.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut of_branch = oracle.tasks_of(call).filter(|(task, _)| task.path == d.path);
    of_branch.any(|(_, truth)| {
        let reply = truth.replies.get(d.index as usize);
        let is_same = reply.is_some_and(|reply| {
            reply.is_stream == d.item.is_some()
                && reply.messages.get(at) == Some(&d.payload)
                && reply.tags.get(&at).map(|tag| &tag[..]) == metadata.get("tag")
        });
        is_same && truth.runs.iter().any(|(node, _)| *node == d.from)
    })
}

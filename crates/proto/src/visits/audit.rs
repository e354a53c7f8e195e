//! Count from scratch of what is kept for whom: whether each way that something comes and goes is
//! noted in the share of who pays, and which branches have left for whom.

use std::collections::BTreeMap;

use crate::id::CallId;
use crate::links::Links;
use crate::share::{Amounts, PeerIndex, Pool};

use super::forget::stub_cost;
use super::passed::Passed;
use super::records::State;
use super::{Left, Visits};

impl Visits {
    /// Counts what is kept for each peer.
    ///
    /// # Errors
    /// The first thing kept for another than who pays, or noted otherwise than it is, in words.
    pub(crate) fn audit(
        &self,
        links: &Links,
        counted: &mut BTreeMap<PeerIndex, Amounts>,
    ) -> Result<(), String> {
        if self.count_left() != self.left {
            return Err("the branches that have left are others than those noted".into());
        }
        let mut count = |payer: PeerIndex, pool: Pool, amount: usize| {
            counted.entry(payer).or_default()[pool.index()] += amount;
        };
        for origin in self.origins.iter() {
            count(origin.payer, Pool::Records, origin.paid);
        }
        for (payer, bytes) in self.passed.values().flatten().map(Passed::paid) {
            count(payer, Pool::Replies, bytes);
        }
        self.refusals.payers().for_each(|payer| count(payer, Pool::Records, 1));
        for ring in self.origins.rings() {
            count(ring.payer, Pool::Records, 1 + stub_cost(ring.stubs.len()));
            for record in ring.records.iter() {
                let payer = record.payer;
                if links.payer(record.link).is_some_and(|peer| peer != payer) {
                    return Err(format!("{:?} of {:?} is another's", record.task, ring.name));
                }
                count(payer, Pool::Records, record.cost());
                count(payer, Pool::Running, usize::from(!record.is_over()));
                count(payer, Pool::Replies, record.waiting_bytes as usize);
                count(payer, Pool::Requests, record.request_bytes as usize);
                if let State::Running(task) = &record.state
                    && let Some(intake) = &task.intake
                {
                    count(payer, Pool::Items, intake.paid());
                }
            }
        }
        Ok(())
    }

    fn count_left(&self) -> BTreeMap<Left, usize> {
        let mut left = BTreeMap::new();
        for (index, ring) in self.origins.rings_by_index() {
            for record in ring.records.iter() {
                let call = CallId { origin: ring.name.life, seq: record.seq };
                for child in record.children().iter().filter(|child| child.link.is_some()) {
                    *left.entry((child.node, call, index)).or_default() += 1;
                }
            }
        }
        left
    }
}

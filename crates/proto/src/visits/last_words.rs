//! Last words of a node that closes: what nobody else can say of its tasks.
//!
//! A task that has handed its branch on says nothing itself, and the entry of one that has opened
//! branches may ride on their requests. The initiator learns of both from those that come after,
//! or asks, `worry_min` after the last that it has heard: then nobody would be left to answer.

use crate::id::CallId;
use crate::links::Links;
use crate::time::Timestamp;
use crate::wire::{Asked, Message, Outcome, Status};

use super::control::Gathered;
use super::records::{Record, State};
use super::{Place, Visits};

impl Visits {
    /// Says to their initiators, as if these had asked, how the tasks are that have ended and
    /// handed work on: of so many, the last that came.
    pub(crate) fn say_last_words(&mut self, now: Timestamp, links: &mut Links) {
        let mut over = Vec::new();
        for (index, ring) in self.origins.rings_by_index() {
            for record in ring.records.iter().filter(|record| has_handed_on(record)) {
                let origin = self.origins.get(record.origin).name;
                if origin.node != self.me.node {
                    let call = CallId { origin: origin.life, seq: record.seq };
                    over.push((record.since, call, (index, record.name())));
                }
            }
        }
        over.sort_by_key(|(since, _, _)| std::cmp::Reverse(*since));
        // Those of initiators that are away take no place of others.
        over.retain(|(_, _, place)| !self.has_no_way_up(now, place, links));
        for (_, call, place) in over.into_iter().take(LAST_WORDS_MAX) {
            self.say_over(now, call, &place, links);
        }
    }

    fn say_over(&mut self, now: Timestamp, call: CallId, place: &Place, links: &mut Links) {
        let Some(record) = self.record(place) else { return };
        let (mut inherited, mut status) = (Gathered::default(), self.status_of(place));
        inherited.add(record.ancestors());
        inherited.bound(&mut status);
        let (_, (_, task, key)) = place.clone();
        let tasks = vec![(Asked { task, key }, status)];
        let status = Status { tasks, inherited: inherited.entries };
        self.send_up(now, call, place, Message::Status(status), links);
    }
}

/// True of a task that has ended well, and that only those which it has asked may have told of.
fn has_handed_on(record: &Record) -> bool {
    let is_over = matches!(record.state, State::Over(_)) && !record.children().is_empty();
    let has_finished = || record.entry().is_some_and(|it| it.outcome == Outcome::Finished);
    is_over && (record.is_tailed() || has_finished())
}

/// Tasks of which a core says how they are. Those of calls that are settled are forgotten, so it
/// has more only as a flood ends; a frame of each is 50 bytes, mostly.
const LAST_WORDS_MAX: usize = 16_384;

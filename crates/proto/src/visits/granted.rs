//! Replies that have credit, and leave as the connections that they take have room.
//!
//! All that its callers have granted is more than a connection may queue, and so are the first
//! parts of many, which nobody need grant. So a task sends a part in its turn, the oldest first,
//! and the next turn comes once the connection has room.

use crate::id::CallId;
use crate::links::Links;
use crate::time::Timestamp;

use super::records::State;
use super::{Place, TaskRef, VisitEvent, Visits};

impl Visits {
    /// True when replies wait that have credit.
    #[inline]
    pub(crate) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Has the next task send a part of its replies, by a connection that has room. False when
    /// there is none.
    pub(crate) fn send_granted(&mut self, now: Timestamp, links: &mut Links) -> bool {
        let mut ready = self.granted.iter_mut().filter(|(link, _)| links.has_room(**link));
        let Some((link, places)) = ready.next() else { return false };
        let (link, place) = (*link, places.pop_first());
        if places.is_empty() {
            self.granted.remove(&link);
        }
        let Some(place) = place else { return true };
        let Some(record) = self.record(&place) else { return true };
        let call = CallId { origin: self.origins.get(record.origin).name.life, seq: record.seq };
        if let Some(task) = self.task_mut(&place) {
            task.granted_at = None;
            task.send_granted();
            // What its handler waited behind may have left.
            let (ring, (_, task, key)) = place.clone();
            self.events.push_back(VisitEvent::Writable(TaskRef { call, task, key, ring }));
        }
        self.drain_task(now, call, &place, links);
        true
    }

    /// The replies of a task have credit, or have none any more.
    pub(super) fn note_granted(&mut self, now: Timestamp, place: &Place, links: &Links) {
        let Some(record) = self.record(place) else { return };
        let State::Running(task) = &record.state else { return };
        let granted_at = match task.granted_at {
            Some(link) => {
                let places = self.granted.get_mut(&link);
                if places.is_some_and(|places| places.remove(place) && places.is_empty()) {
                    self.granted.remove(&link);
                }
                None
            }
            None => {
                let link = self.link_up(now, place, links);
                self.granted.entry(link).or_default().insert(place.clone());
                Some(link)
            }
        };
        if let Some(task) = self.task_mut(place) {
            task.granted_at = granted_at;
        }
    }
}

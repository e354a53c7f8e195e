//! Items of streamed requests: handed to the task that they are for, granted as its handler reads.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::Arrival;
use crate::Outbound;
use crate::id::{CallId, LinkId};
use crate::key::Key;
use crate::limits::Limits;
use crate::links::Links;
use crate::share::Pool;
use crate::task::{Intake, ItemsFailure, NextItem};
use crate::wire::{Credit, Credited, Extension, Header, Item, Message, extension};

use super::origins::RingName;
use super::records::{Record, lowest};
use super::{Leaving, Place, RingIndex, TaskRef, VisitEvent, Visits};

/// Takes the mark out of the extensions of a request, which are inherited and this is not. True
/// when items follow the request.
pub(super) fn take_mark(extensions: &mut Vec<Extension>) -> bool {
    let count = extensions.len();
    if count > 0 {
        extensions.retain(|extension| extension.tag != extension::ITEMS);
    }
    let is_marked = extensions.len() < count;
    if is_marked {
        extensions.shrink_to_fit(); // Of many marks nothing is kept.
    }
    is_marked
}

impl Visits {
    /// An ITEM. What comes for a task that is over or reads no more is dropped, and so is what
    /// nobody asked for.
    pub(crate) fn handle_item(
        &mut self,
        by: &Arrival,
        header: &Header,
        item: &mut Item,
        links: &mut Links,
    ) {
        let name = RingName { life: header.call.origin, sender: by.sender() };
        let Some(ring) = self.origins.find_ring(name) else { return };
        let least = (by.link, ring, (header.call.seq, header.task.clone(), Key(0)));
        let first = self.intakes.range(least..).next().filter(|(link, of, (seq, task, _))| {
            (*link, *of, *seq) == (by.link, ring, header.call.seq) && *task == header.task
        });
        let Some(place) = first.map(|(_, _, name)| (ring, name.clone())) else { return };
        self.with_intake(header.call, &place, links, |intake| intake.accept(item));
    }

    /// The next item of a task's request, and small ones behind it in `ahead`. Without one,
    /// [`VisitEvent::Readable`] says once there is.
    pub(crate) fn next_item(
        &mut self,
        task: &TaskRef,
        ahead: Option<&mut VecDeque<Bytes>>,
        links: &mut Links,
    ) -> Result<Option<NextItem>, ItemsFailure> {
        let poll = |intake: &mut Intake| intake.poll(ahead);
        let next = self.with_intake(task.call, &task.place(), links, poll);
        // What it has read is not all there was.
        next.unwrap_or(Err(ItemsFailure::Ended))
    }

    /// The handler reads no further items of a task's request.
    pub(crate) fn drop_items(&mut self, task: &TaskRef, links: &mut Links) {
        let items = self.with_intake(task.call, &task.place(), links, Intake::drop_items);
        items.into_iter().flatten().for_each(|item| self.spend(item));
    }

    /// A connection has ended: the items that came over it are all there will be.
    pub(super) fn lose_items(&mut self, link: LinkId, links: &mut Links) {
        for place in self.intakes_of(link).collect::<Vec<_>>() {
            let Some(ring) = self.origins.ring(place.0) else { continue };
            let call = CallId { origin: ring.name.life, seq: place.1.0 };
            self.with_intake(call, &place, links, |intake| intake.fail(ItemsFailure::Lost));
        }
    }

    /// True while items may come over a connection that somebody reads.
    pub(crate) fn takes_items(&self, link: LinkId) -> bool {
        self.intakes_of(link).any(|place| self.record(&place).is_some_and(Record::takes_items))
    }

    /// The tasks whose items take a connection.
    fn intakes_of(&self, link: LinkId) -> impl Iterator<Item = Place> {
        let least = (link, RingIndex::LEAST, lowest(0));
        let there = self.intakes.range(least..).take_while(move |(of, _, _)| *of == link);
        there.map(|(_, ring, name)| (*ring, name.clone()))
    }

    /// Begins to take the items of a task that was just inserted.
    pub(super) fn open_intake(&mut self, place: &Place, link: LinkId) {
        let Limits { unscheduled_bytes, stream_window_bytes, message_bytes_max, .. } = self.limits;
        let Some(task) = self.task_mut(place) else { return };
        let message_max = message_bytes_max as u64;
        task.intake =
            Some(Box::new(Intake::new(unscheduled_bytes, stream_window_bytes, message_max)));
        self.intakes.insert((link, place.0, place.1.clone()));
    }

    /// A task has ended: it takes no further items, and what they took is given back.
    pub(super) fn close_intake(&mut self, call: CallId, place: &Place, links: &mut Links) {
        let Some(record) = self.record_mut(place) else { return };
        let intake = record.running().and_then(|task| task.intake.take());
        let Some(mut intake) = intake else { return };
        let (link, payer) = (record.link, record.payer);
        self.intakes.remove(&(link, place.0, place.1.clone()));
        links.shares_mut().give(payer, Pool::Items, intake.paid());
        if intake.is_open() {
            self.send_items_credit(call, place, Credit::NO_MORE, links);
        }
        intake.drop_items().into_iter().for_each(|item| self.spend(item));
    }

    /// Does something to the items of a task that is not over: then pays for them, grants what
    /// there is room for, and tells its handler.
    fn with_intake<T>(
        &mut self,
        call: CallId,
        place: &Place,
        links: &mut Links,
        act: impl FnOnce(&mut Intake) -> T,
    ) -> Option<T> {
        let record = self.record_mut(place)?;
        let payer = record.payer;
        let intake = record.running()?.intake.as_mut()?;
        let was_open = intake.is_open();
        let result = act(intake);
        let shares = links.shares_mut();
        let granted = intake.grant(shares.may_take(payer, Pool::Items));
        let due = intake.due();
        shares.adjust(payer, Pool::Items, intake.pay(due), due);
        let limit = match was_open && !intake.is_open() && !intake.is_complete() {
            true => Some(Credit::NO_MORE),
            false => granted,
        };
        if intake.take_news() {
            let (ring, (_, task, key)) = place.clone();
            self.events.push_back(VisitEvent::Readable(TaskRef { call, task, key, ring }));
        }
        if let Some(limit) = limit {
            self.send_items_credit(call, place, limit, links);
        }
        Some(result)
    }

    /// Over the connection of the request or not at all: without it no items come.
    fn send_items_credit(&mut self, call: CallId, place: &Place, limit_bytes: u64, links: &Links) {
        let Some(record) = self.record(place) else { return };
        let Some(ring) = self.origins.ring(place.0) else { return };
        let header = Header { call, task: record.task.clone() };
        let message = Message::Credit(Credit { of: Credited::Items, limit_bytes });
        let mut outbound = Outbound::new(ring.name.sender.node, header, message);
        outbound.link = Some(record.link).filter(|link| links.is_up(*link));
        if outbound.link.is_some() {
            self.out.push_back(Leaving::Frame(outbound));
        }
    }
}

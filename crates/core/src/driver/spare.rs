//! Room that handlers leave to those after them: most end at their first poll, and the next one of
//! the same method needs what they had.
//!
//! A batch takes what the one before it left, and gives back what it has left itself.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use convoke_proto::id::MethodId;
use convoke_proto::visits::Start;
use smallvec::SmallVec;

use super::ending::SUBSCRIBER;
use super::methods::{HandlerFuture, MethodEntry};
use super::task::TaskHandle;

/// The empty room of a handler of this method.
type Room = (MethodId, HandlerFuture);

/// Methods whose rooms are kept, at most: those that were called last.
const ROOMS_MAX: usize = 4;

/// The rooms of the last handlers that have ended, empty: one of each method.
#[derive(Default)]
pub(super) struct Spare {
    handle: Option<Arc<TaskHandle>>,
    /// That of the last one of all: most calls after one another are of one method.
    room: Option<Room>,
    /// Those of other methods, the last behind the others. Most batches have none, nor a place that
    /// would be moved and dropped with each.
    others: Option<Box<SmallVec<[Room; ROOMS_MAX - 1]>>>,
}

impl Spare {
    /// A handle for a task, which `begin` has begin while nobody else has it.
    pub(super) fn handle_for(
        &mut self,
        start: &mut Start,
        begin: impl FnOnce(&mut TaskHandle),
    ) -> Arc<TaskHandle> {
        if let Some(mut spare) = self.handle.take()
            && let Some(place) = Arc::get_mut(&mut spare)
        {
            place.replace(start);
            begin(place);
            return spare;
        }
        let mut handle = TaskHandle::new(start.take());
        begin(&mut handle);
        Arc::new(handle)
    }

    /// A room for a handler of this method.
    pub(super) fn room_of(&mut self, id: MethodId, method: &MethodEntry) -> HandlerFuture {
        match self.room.take_if(|(of, _)| *of == id) {
            Some((_, room)) => room,
            None => self.other_room_of(id).unwrap_or_else(|| (method.room)()),
        }
    }

    fn other_room_of(&mut self, id: MethodId) -> Option<HandlerFuture> {
        let others = self.others.as_mut()?;
        let place = others.iter().position(|(of, _)| *of == id)?;
        Some(others.remove(place).1)
    }

    /// Takes the handle of a task that is over, unless a part of the task still has it. What the
    /// task held goes now.
    pub(super) fn take_handle(&mut self, mut handle: Arc<TaskHandle>) {
        // What middleware kept with it is dropped: a panic of that is its own matter.
        let let_go =
            AssertUnwindSafe(|| Arc::get_mut(&mut handle).map(TaskHandle::let_go).is_some());
        match std::panic::catch_unwind(let_go) {
            Ok(true) => self.handle = Some(handle),
            Ok(false) => {}
            Err(_) => {
                let text = "a value that was kept with a task panicked as it was dropped";
                SUBSCRIBER.call(|| tracing::error!("{text}"));
            }
        }
    }

    /// The batch is over: what the next one finds holds nobody.
    pub(super) fn rest(&mut self) {
        if let Some(handle) = self.handle.as_mut().and_then(Arc::get_mut) {
            handle.rest();
        }
    }

    /// Takes the room of a handler of this method, which is gone from it.
    pub(super) fn take_room(&mut self, id: MethodId, room: HandlerFuture) {
        if let Some(before) = self.room.replace((id, room)) {
            self.put_aside(before);
        }
    }

    fn put_aside(&mut self, room: Room) {
        let others = self.others.get_or_insert_default();
        if others.len() == ROOMS_MAX - 1 {
            others.remove(0);
        }
        others.push(room);
    }
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others.iter().flat_map(|others| others.iter());
        let rooms: Vec<_> = others.chain(&self.room).map(|(id, _)| id).collect();
        f.debug_struct("Spare").field("rooms", &rooms).finish_non_exhaustive()
    }
}

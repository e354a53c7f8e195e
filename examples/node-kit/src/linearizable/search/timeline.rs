//! Calls and returns of those that have no place in the order yet, by time, as a linked list from
//! which a call is lifted and put back in constant time (Knuth's dancing links).

use super::super::compile::Compact;

/// An event at one place of the time line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Call(usize),
    Return(usize),
}

#[derive(Debug)]
pub(super) struct Timeline {
    events: Vec<Event>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Of each call, where it is made and where it returns.
    places: Vec<(usize, Option<usize>)>,
}

impl Timeline {
    pub(super) fn new(calls: &[Compact]) -> Self {
        let mut stamped = Vec::with_capacity(2 * calls.len());
        for (call, compact) in calls.iter().enumerate() {
            stamped.push((compact.invoked, false, call));
            stamped.extend(compact.returned.map(|returned| (returned, true, call)));
        }
        // Of one time, calls are first: neither comes before the other then.
        stamped.sort_unstable();
        let mut places = vec![(0, None); calls.len()];
        let mut events = Vec::with_capacity(stamped.len());
        for (place, (_, is_return, call)) in stamped.into_iter().enumerate() {
            if is_return {
                places[call].1 = Some(place);
                events.push(Event::Return(call));
            } else {
                places[call].0 = place;
                events.push(Event::Call(call));
            }
        }
        // The place behind the last is the head of the ring.
        let ring = events.len() + 1;
        let next = (0..ring).map(|place| (place + 1) % ring).collect();
        let previous = (0..ring).map(|place| (place + ring - 1) % ring).collect();
        Self { events, next, previous, places }
    }

    /// Events that are left, by time.
    pub(super) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        let head = self.events.len();
        let places = std::iter::successors(Some(self.next[head]), |&place| Some(self.next[place]));
        places.take_while(move |&place| place != head).map(|place| self.events[place])
    }

    /// Calls that nothing has to precede: those made before the first return.
    pub(super) fn front(&self) -> impl Iterator<Item = usize> + '_ {
        self.iter().map_while(|event| match event {
            Event::Call(call) => Some(call),
            Event::Return(_) => None,
        })
    }

    pub(super) fn lift(&mut self, call: usize) {
        let (made, returns) = self.places[call];
        self.unlink(made);
        if let Some(returns) = returns {
            self.unlink(returns);
        }
    }

    /// Puts back the call that was lifted last of those not put back.
    pub(super) fn put_back(&mut self, call: usize) {
        let (made, returns) = self.places[call];
        if let Some(returns) = returns {
            self.relink(returns);
        }
        self.relink(made);
    }

    fn unlink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn relink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = place;
        self.previous[next] = place;
    }
}

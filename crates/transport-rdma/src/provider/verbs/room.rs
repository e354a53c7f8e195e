//! Room of the completion queue that is spoken for.

/// The completion queue must have room for all that its queue pairs may report: when it overflows,
/// the device takes it down with all of them. Completions of a destroyed queue pair may still wait
/// in it, so their room is free only once the queue was seen empty.
#[derive(Debug)]
pub(super) struct Room {
    capacity: u32,
    capacity_max: u32,
    taken: u32,
    /// Of destroyed queue pairs, until the queue is empty.
    leaving: u32,
}

/// There is no more room: `wanted` do not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    pub(super) taken: u32,
    pub(super) capacity_max: u32,
}

impl Room {
    pub(super) fn new(capacity: u32, capacity_max: u32) -> Self {
        Self { capacity, capacity_max, taken: 0, leaving: 0 }
    }

    /// Takes room for so many completions; answers the capacity that the queue has to be grown to
    /// first, if any.
    pub(super) fn take(&mut self, wanted: u32) -> Result<Option<u32>, NoRoom> {
        let taken = self.taken.saturating_add(self.leaving).saturating_add(wanted);
        if taken > self.capacity_max {
            return Err(NoRoom {
                taken: self.taken + self.leaving,
                capacity_max: self.capacity_max,
            });
        }
        self.taken += wanted;
        if taken <= self.capacity {
            return Ok(None);
        }
        // Twice as much each time, so that many queue pairs grow it seldom.
        Ok(Some(taken.next_power_of_two().min(self.capacity_max)))
    }

    /// The queue has been grown.
    pub(super) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// A queue pair that could not be made gives its room back.
    pub(super) fn put_back(&mut self, count: u32) {
        self.taken -= count;
    }

    /// A queue pair is destroyed.
    pub(super) fn leave(&mut self, count: u32) {
        self.taken -= count;
        self.leaving += count;
    }

    /// Room of destroyed queue pairs that is not free yet.
    pub(super) fn leaving(&self) -> u32 {
        self.leaving
    }

    /// Nothing waited in the queue after so much had left, so that this had nothing more to report.
    pub(super) fn on_empty(&mut self, left: u32) {
        self.leaving -= left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_up_to_what_the_device_can() {
        let mut room = Room::new(64, 200);
        assert_eq!(room.take(64), Ok(None));
        assert_eq!(room.take(60), Ok(Some(128)));
        room.set_capacity(128);
        assert_eq!(room.take(60), Ok(Some(200)));
        room.set_capacity(200);
        assert_eq!(room.take(17), Err(NoRoom { taken: 184, capacity_max: 200 }));
        assert_eq!(room.take(16), Ok(None));
    }

    #[test]
    fn what_left_takes_room_until_the_queue_was_empty() {
        let mut room = Room::new(100, 100);
        assert_eq!(room.take(80), Ok(None));
        room.leave(50);
        let left = room.leaving();
        // After the queue was looked at, so that it may still report.
        room.leave(30);
        assert!(room.take(30).is_err());
        room.on_empty(left);
        assert!(room.take(71).is_err());
        assert_eq!(room.take(70), Ok(None));
        room.on_empty(room.leaving());
        room.put_back(70);
        assert_eq!(room.take(100), Ok(None));
    }
}

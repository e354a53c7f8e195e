//! Replies to the last requests of one session.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Begin, Limits};

/// One place for each number of the window, from `base` up to the highest that has run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replies {
    /// The lowest number of the window. Below it nothing is known.
    pub(super) base: u64,
    pub(super) places: VecDeque<Place>,
    /// Bytes of all replies held.
    bytes: usize,
}

/// Knowledge of one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    NotRun,
    Reply(Bytes),
    /// It has run, and its reply had to make room.
    Gone,
}

/// Knowledge of a number that was asked for.
enum Known<'a> {
    NotRun,
    Reply(&'a Bytes),
    Gone,
}

impl Replies {
    pub(super) fn judge(&self, number: u64) -> Begin {
        match self.of(number) {
            Known::NotRun => Begin::Run,
            Known::Reply(reply) => Begin::Repeat(reply.clone()),
            Known::Gone => Begin::Forgotten,
        }
    }

    fn of(&self, number: u64) -> Known<'_> {
        let Some(above) = number.checked_sub(self.base) else { return Known::Gone };
        let index = usize::try_from(above).unwrap_or(usize::MAX);
        match self.places.get(index) {
            None | Some(Place::NotRun) => Known::NotRun,
            Some(Place::Reply(reply)) => Known::Reply(reply),
            Some(Place::Gone) => Known::Gone,
        }
    }

    /// Keeps a reply, and lets go of what no longer fits. The first reply of a number stays.
    pub(super) fn insert(&mut self, number: u64, reply: Bytes, limits: &Limits) {
        if !matches!(self.of(number), Known::NotRun) {
            return;
        }
        let window = limits.width();
        self.slide(number.saturating_sub(window as u64 - 1));
        let index = usize::try_from(number - self.base).expect("it is within the window");
        if self.places.len() <= index {
            self.places.resize(index + 1, Place::NotRun);
        }
        self.bytes += reply.len();
        self.places[index] = Place::Reply(reply);
        self.make_room(limits.reply_bytes);
    }

    /// Lets go of all below a number.
    fn slide(&mut self, base: u64) {
        while self.base < base {
            match self.places.pop_front() {
                Some(place) => self.bytes -= place.bytes(),
                None => self.base = base - 1,
            }
            self.base += 1;
        }
    }

    /// Lets go of the replies of the lowest numbers until the others fit.
    fn make_room(&mut self, bytes_max: usize) {
        for place in &mut self.places {
            if self.bytes <= bytes_max {
                break;
            }
            if let Place::Reply(reply) = place {
                self.bytes -= reply.len();
                *place = Place::Gone;
            }
        }
    }

    /// From a snapshot. `None` if no run of requests under these limits leads here.
    pub(super) fn restore(base: u64, places: VecDeque<Place>, limits: &Limits) -> Option<Self> {
        let bytes = places.iter().map(Place::bytes).sum();
        let length = places.len() as u64;
        let ends_in_run = !matches!(places.back(), Some(Place::NotRun));
        let sound = ends_in_run
            && places.len() <= limits.width()
            && bytes <= limits.reply_bytes
            && (base == 0 || places.len() == limits.width())
            && base.checked_add(length.saturating_sub(1)).is_some();
        sound.then_some(Self { base, places, bytes })
    }
}

impl Place {
    fn bytes(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.len(),
            Self::NotRun | Self::Gone => 0,
        }
    }
}

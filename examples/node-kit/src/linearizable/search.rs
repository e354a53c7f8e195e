//! The search for an order of the calls of one key.

use std::collections::{BTreeMap, BTreeSet};

use self::timeline::{Event, Timeline};
use super::compile::{ABSENT, Compact, Compiled, Requires, Value};

mod timeline;

/// The end of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Order,
    GivenUp,
    /// Calls by their index.
    Stuck {
        ordered: Vec<usize>,
        value: Value,
        stuck: Vec<usize>,
    },
}

/// Searches for an order, for as many steps.
pub(super) fn search(compiled: &Compiled, steps_max: u64) -> Found {
    let mut first = Search::new(compiled);
    match first.run(steps_max) {
        Ended::Order => Found::Order,
        Ended::GivenUp => Found::GivenUp,
        // Keeping the deepest order of all would copy it often; going there again costs as much as
        // the search at most.
        Ended::Exhausted => {
            let mut again = Search::new(compiled);
            again.run(first.deepest.at_step);
            again.report()
        }
    }
}

enum Ended {
    Order,
    Exhausted,
    GivenUp,
}

/// The dead end that ordered most calls.
#[derive(Default)]
struct Deepest {
    ordered: usize,
    at_step: u64,
}

struct Search<'a> {
    calls: &'a [Compact],
    timeline: Timeline,
    value: Value,
    /// Calls in the order so far, each with the value before it.
    trail: Vec<(usize, Value)>,
    /// Choices on the way, the newest last.
    choices: Vec<Choice>,
    /// Sets of ordered calls that were entered, by fingerprint, with their value.
    entered: BTreeSet<(u128, Value)>,
    fingerprint: u128,
    /// Calls without a place that have returned.
    must_left: usize,
    counts: Vec<Counts>,
    /// A call tells what it has not found, so that moves may change what it finds.
    has_negations: bool,
    steps: u64,
    deepest: Deepest,
}

/// A point at which several calls may come next.
struct Choice {
    trail: usize,
    /// Calls not tried yet, the next one last.
    others: Vec<usize>,
}

/// Calls without a place that concern one value.
#[derive(Clone, Copy, Default)]
struct Counts {
    writers: usize,
    /// Those that require it, in all.
    readers: usize,
    /// Those of them that have returned.
    readers_must: usize,
    /// Those of them that write, too.
    readers_writing: usize,
}

impl<'a> Search<'a> {
    fn new(compiled: &'a Compiled) -> Self {
        let calls = &compiled.calls;
        let mut search = Self {
            calls,
            timeline: Timeline::new(calls),
            value: ABSENT,
            trail: Vec::with_capacity(calls.len()),
            choices: Vec::new(),
            entered: BTreeSet::new(),
            fingerprint: 0,
            must_left: 0,
            counts: vec![Counts::default(); compiled.values.len()],
            has_negations: calls.iter().any(|call| matches!(call.requires, Requires::IsNot(_))),
            steps: 0,
            deepest: Deepest::default(),
        };
        (0..calls.len()).for_each(|call| search.count(call, 1));
        search
    }

    fn run(&mut self, steps_max: u64) -> Ended {
        loop {
            self.settle();
            if self.must_left == 0 {
                return Ended::Order;
            }
            if self.steps >= steps_max {
                return Ended::GivenUp;
            }
            let next = if self.entered.insert((self.fingerprint, self.value)) {
                self.choose()
            } else {
                None
            };
            let Some(call) = next.or_else(|| self.take_back()) else { return Ended::Exhausted };
            self.place(call);
        }
    }

    /// Places all calls that may as well come now as later.
    fn settle(&mut self) {
        while let Some(call) = self.free_call() {
            self.place(call);
        }
    }

    fn free_call(&self) -> Option<usize> {
        self.timeline.front().find(|&call| self.is_free(call))
    }

    /// Chooses among the calls that may come next, and remembers the others.
    fn choose(&mut self) -> Option<usize> {
        let mut others: Vec<usize> =
            self.timeline.front().filter(|&call| self.may_come(call)).collect();
        // Those that have to return soonest are tried first.
        others.sort_by_key(|&call| {
            std::cmp::Reverse((self.calls[call].returned.unwrap_or(u64::MAX), call))
        });
        let Some(first) = others.pop() else {
            if self.trail.len() >= self.deepest.ordered {
                self.deepest = Deepest { ordered: self.trail.len(), at_step: self.steps };
            }
            return None;
        };
        if !others.is_empty() {
            self.choices.push(Choice { trail: self.trail.len(), others });
        }
        Some(first)
    }

    /// Goes back to the newest choice, and takes the next call there.
    fn take_back(&mut self) -> Option<usize> {
        let choice = self.choices.last_mut()?;
        let next = choice.others.pop().expect("a choice without others is not kept");
        let length = choice.trail;
        if choice.others.is_empty() {
            self.choices.pop();
        }
        while self.trail.len() > length {
            self.unplace();
        }
        Some(next)
    }

    fn place(&mut self, call: usize) {
        self.steps += 1;
        self.timeline.lift(call);
        self.count(call, -1);
        self.fingerprint ^= fingerprint(call);
        self.trail.push((call, self.value));
        self.value = self.calls[call].writes.unwrap_or(self.value);
    }

    fn unplace(&mut self) {
        let (call, value) =
            self.trail.pop().expect("the trail is longer than where it goes back to");
        self.value = value;
        self.fingerprint ^= fingerprint(call);
        self.count(call, 1);
        self.timeline.put_back(call);
    }

    fn count(&mut self, call: usize, change: isize) {
        let Compact { requires, writes, returned, .. } = self.calls[call];
        let add = |count: &mut usize, applies: bool| {
            if applies {
                *count = count.checked_add_signed(change).expect("what is taken was added");
            }
        };
        add(&mut self.must_left, returned.is_some());
        if let Some(value) = writes {
            add(&mut self.counts[value].writers, true);
        }
        if let Requires::Is(value) = requires {
            let counts = &mut self.counts[value];
            add(&mut counts.readers, true);
            add(&mut counts.readers_must, returned.is_some());
            add(&mut counts.readers_writing, writes.is_some());
        }
    }

    /// A call of the front that nothing is lost by placing now. The module above says why.
    fn is_free(&self, call: usize) -> bool {
        let Compact { requires, writes, .. } = self.calls[call];
        let Some(written) = writes else { return requires.agrees(self.value) };
        if requires != Requires::Nothing
            || self.has_negations
            || self.counts[self.value].readers > 0
        {
            return false;
        }
        let Counts { writers, readers, readers_must, readers_writing } = self.counts[written];
        let reads_alone = readers == readers_must && readers_writing == 0;
        readers == 0 || (writers == 1 && reads_alone && self.blocker(call, written).is_none())
    }

    /// A call of the front after which there may still be an order.
    fn may_come(&self, call: usize) -> bool {
        self.calls[call].requires.agrees(self.value) && self.obstacle(call).is_none()
    }

    /// The calls that would have no place any more if this one, a write, came next.
    fn obstacle(&self, call: usize) -> Option<Obstacle> {
        let written = self.calls[call].writes?;
        if written == self.value {
            return None;
        }
        let left = self.counts[self.value];
        let is_reader = self.calls[call].requires == Requires::Is(self.value);
        let is_must_reader = is_reader && self.calls[call].returned.is_some();
        if left.writers == 0 && left.readers_must > usize::from(is_must_reader) {
            return Some(Obstacle::ReadersOf(self.value));
        }
        if self.counts[written].writers > 1 {
            return None;
        }
        self.blocker(call, written).map(|blocker| Obstacle::Blocker { blocker, written })
    }

    /// Finds a call that must precede a reader of a value, and follow the only writer of the value
    /// if that comes next, but cannot: it needs another value, or makes one.
    fn blocker(&self, writer: usize, written: Value) -> Option<usize> {
        let mut readers = self.counts[written].readers_must;
        let is_read = |call: usize| {
            let Compact { requires, returned, .. } = self.calls[call];
            call != writer && returned.is_some() && requires == Requires::Is(written)
        };
        for event in self.timeline.iter() {
            if readers == 0 {
                return None;
            }
            match event {
                Event::Call(call) => readers -= usize::from(is_read(call)),
                Event::Return(call) => {
                    let Compact { requires, writes, .. } = self.calls[call];
                    let may_be_between = writes.is_none() && requires.agrees(written);
                    if call != writer && !may_be_between {
                        return Some(call);
                    }
                }
            }
        }
        None
    }

    /// The dead end it stands in.
    fn report(&self) -> Found {
        // By time of their calls, each once.
        let mut stuck = BTreeMap::new();
        let mut add = |call: usize| stuck.insert((self.calls[call].invoked, call), call);
        for call in self.timeline.front() {
            add(call);
            match self.obstacle(call) {
                None => {}
                Some(Obstacle::ReadersOf(value)) => {
                    self.late_reader(value, call).map(&mut add);
                }
                Some(Obstacle::Blocker { blocker, written }) => {
                    add(blocker);
                    self.late_reader(written, call).map(&mut add);
                }
            }
        }
        Found::Stuck {
            ordered: self.trail.iter().map(|(call, _)| *call).collect(),
            value: self.value,
            stuck: stuck.into_values().collect(),
        }
    }

    /// The reader of a value that is called last.
    fn late_reader(&self, value: Value, except: usize) -> Option<usize> {
        let calls = self.timeline.iter().filter_map(|event| match event {
            Event::Call(call) => Some(call),
            Event::Return(_) => None,
        });
        let is_read = |call: &usize| {
            let Compact { requires, returned, .. } = self.calls[*call];
            *call != except && returned.is_some() && requires == Requires::Is(value)
        };
        calls.filter(is_read).last()
    }
}

/// The reason a write may not come next.
enum Obstacle {
    /// Readers of the value that is there, which nobody will write again.
    ReadersOf(Value),
    /// A call that separates the write from a reader of its value.
    Blocker { blocker: usize, written: Value },
}

/// A number for a call, such that those of different sets of calls hardly ever have one sum
/// (Zobrist, 1970): 128 bits of two rounds of splitmix64.
fn fingerprint(call: usize) -> u128 {
    let half = |seed: u64| {
        let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let seed = 2 * call as u64 + 1;
    u128::from(half(seed)) << 64 | u128::from(half(seed + 1))
}

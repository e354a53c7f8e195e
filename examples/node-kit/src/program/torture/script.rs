//! The script of a run: what goes wrong, and when. A seed draws it before anything runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use convoke_sim::random::Random;

use crate::processes::Passage;

/// Pauses between beginnings of faults, in microseconds.
const PAUSE_US: std::ops::Range<u64> = 100_000..900_000;

/// Lengths of faults: shorter and longer than an election takes.
const LASTS_US: std::ops::Range<u64> = 50_000..2_500_000;

/// Of a hundred moments those at which all are killed.
const RESTART_PERCENT: u32 = 10;

/// Events in order, each with its time since the beginning.
pub(super) struct Script(Vec<(Duration, Act)>);

/// Something that is done to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Begin(Fault),
    End(Fault),
    /// All are killed, and started again.
    RestartAll,
}

/// A fault of one node, until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) node: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Killed,
    Stopped,
    Cut(Cut),
}

/// A cut between a node and another, or all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    from: Option<u64>,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Connections break.
    Broken,
    /// They stay, and nothing passes.
    Silent,
    /// The node is not heard.
    Mute,
    /// It does not hear.
    Deaf,
}

impl Script {
    /// Faults for a time, of so many nodes at a time at most; then none.
    pub(super) fn draw(seed: u64, (nodes, hurt_max): (u64, u64), time: Duration) -> Self {
        let mut drawing = Drawing {
            random: Random::of(seed, 11),
            nodes,
            hurt_max,
            acts: Vec::new(),
            hurt: BTreeMap::new(),
        };
        let mut now = Duration::ZERO;
        while now < time {
            drawing.end_until(now);
            drawing.moment(now);
            now += drawing.random.micros(PAUSE_US);
        }
        drawing.end_until(time);
        drawing.end_all(time);
        Self(drawing.acts)
    }

    pub(super) fn acts(&self) -> &[(Duration, Act)] {
        &self.0
    }

    fn count(&self, is_one: impl Fn(&Act) -> bool) -> usize {
        self.0.iter().filter(|(_, act)| is_one(act)).count()
    }
}

struct Drawing {
    random: Random,
    nodes: u64,
    hurt_max: u64,
    acts: Vec<(Duration, Act)>,
    /// Faults of now, with their ends.
    hurt: BTreeMap<u64, (Duration, Fault)>,
}

impl Drawing {
    /// Begins a fault if another is allowed, or kills all.
    fn moment(&mut self, now: Duration) {
        if self.random.chance(RESTART_PERCENT) {
            self.end_all(now);
            self.acts.push((now, Act::RestartAll));
            return;
        }
        let node = self.random.within(1..self.nodes + 1);
        let is_allowed = (self.hurt.len() as u64) < self.hurt_max;
        if is_allowed && !self.hurt.contains_key(&node) {
            let fault = Fault { node, kind: self.kind(node) };
            let end = now + self.random.micros(LASTS_US);
            self.acts.push((now, Act::Begin(fault)));
            self.hurt.insert(node, (end, fault));
        }
    }

    fn kind(&mut self, node: u64) -> Kind {
        match self.random.within(0..3) {
            0 => Kind::Killed,
            1 => Kind::Stopped,
            _ => {
                let other = 1 + (node + self.random.within(0..self.nodes - 1)) % self.nodes;
                let from = self.random.chance(50).then_some(other);
                let ways = [Way::Broken, Way::Silent, Way::Mute, Way::Deaf];
                Kind::Cut(Cut { from, way: ways[self.random.index(ways.len())] })
            }
        }
    }

    /// Ends what is over by now, in order.
    fn end_until(&mut self, now: Duration) {
        while let Some((end, fault)) = self.hurt.values().min_by_key(|(end, _)| *end).copied()
            && end <= now
        {
            self.acts.push((end, Act::End(fault)));
            self.hurt.remove(&fault.node);
        }
    }

    fn end_all(&mut self, now: Duration) {
        let ended = std::mem::take(&mut self.hurt).into_values();
        self.acts.extend(ended.map(|(_, fault)| (now, Act::End(fault))));
    }
}

impl Fault {
    /// Words that pass a link while this lasts.
    pub(super) fn passage(&self, dialler: u64, dialled: u64) -> Passage {
        let Kind::Cut(cut) = self.kind else { return Passage::default() };
        let is_dialler = dialler == self.node;
        let other = if is_dialler { dialled } else { dialler };
        let is_between = is_dialler || dialled == self.node;
        if !is_between || cut.from.is_some_and(|from| from != other) {
            return Passage::default();
        }
        let (is_mute, is_deaf) = match cut.way {
            Way::Broken => return Passage { is_broken: true, ..Passage::default() },
            Way::Silent => (true, true),
            Way::Mute => (true, false),
            Way::Deaf => (false, true),
        };
        let (holds_forth, holds_back) =
            if is_dialler { (is_mute, is_deaf) } else { (is_deaf, is_mute) };
        Passage { holds_forth, holds_back, is_broken: false }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(fault) => fault.fmt(f),
            Self::End(fault) => write!(f, "  over: {fault}"),
            Self::RestartAll => f.write_str("kill -9 of all, and all start again"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node;
        match self.kind {
            Kind::Killed => write!(f, "kill -9 of node {node}"),
            Kind::Stopped => write!(f, "node {node} is stopped"),
            Kind::Cut(Cut { from, way }) => {
                let others = from.map_or("the others".to_owned(), |other| format!("node {other}"));
                match way {
                    Way::Broken => write!(f, "the links of node {node} and {others} break"),
                    Way::Silent => write!(f, "nothing passes between node {node} and {others}"),
                    Way::Mute => write!(f, "node {node} is not heard by {others}"),
                    Way::Deaf => write!(f, "node {node} does not hear {others}"),
                }
            }
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = |is_one: fn(Kind) -> bool| {
            self.count(|act| matches!(act, Act::Begin(fault) if is_one(fault.kind)))
        };
        write!(
            f,
            "{} kills, {} stops, {} cuts, {} times all killed",
            begun(|kind| kind == Kind::Killed),
            begun(|kind| kind == Kind::Stopped),
            begun(|kind| matches!(kind, Kind::Cut(_))),
            self.count(|act| *act == Act::RestartAll)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    #[test]
    fn so_many_are_hurt_at_a_time_and_nobody_in_the_end() {
        let counts = [(1, 0), (3, 1), (4, 1), (5, 2)];
        for (seed, (nodes, most)) in (0..50).flat_map(|seed| counts.map(|count| (seed, count))) {
            let script = Script::draw(seed, (nodes, most), TIME);
            let (mut hurt, mut last) = (Vec::new(), Duration::ZERO);
            for (time, act) in script.acts() {
                assert!(last <= *time && *time <= TIME);
                last = *time;
                match act {
                    Act::Begin(fault) => hurt.push(*fault),
                    Act::End(fault) => hurt.retain(|other| other != fault),
                    Act::RestartAll => assert!(hurt.is_empty()),
                }
                let mut ids: Vec<_> = hurt.iter().map(|fault| fault.node).collect();
                ids.dedup();
                assert!(ids.len() == hurt.len() && hurt.len() as u64 <= most);
            }
            assert!(hurt.is_empty());
        }
    }

    #[test]
    fn all_kinds_are_drawn() {
        let script = Script::draw(1, (5, 2), TIME);
        let has = |is_one: fn(Kind) -> bool| {
            script.count(|act| matches!(act, Act::Begin(fault) if is_one(fault.kind))) > 0
        };
        assert!(has(|kind| kind == Kind::Killed) && has(|kind| kind == Kind::Stopped));
        for wanted in [Way::Broken, Way::Silent, Way::Mute, Way::Deaf] {
            let is_one = |act: &Act| match act {
                Act::Begin(Fault { kind: Kind::Cut(cut), .. }) => cut.way == wanted,
                _ => false,
            };
            assert!(script.count(is_one) > 0, "{wanted:?}");
        }
        assert!(script.count(|act| *act == Act::RestartAll) > 0);
    }

    #[test]
    fn a_cut_holds_the_words_of_its_node_whoever_has_dialled() {
        let cut = |from, way| Fault { node: 2, kind: Kind::Cut(Cut { from, way }) };
        let holds =
            |forth, back| Passage { holds_forth: forth, holds_back: back, is_broken: false };
        let mute = cut(None, Way::Mute);
        assert_eq!(mute.passage(2, 1), holds(true, false));
        assert_eq!(mute.passage(1, 2), holds(false, true));
        assert_eq!(mute.passage(1, 3), Passage::default());
        let deaf = cut(Some(3), Way::Deaf);
        assert_eq!(deaf.passage(3, 2), holds(true, false));
        assert_eq!(deaf.passage(2, 1), Passage::default());
    }
}

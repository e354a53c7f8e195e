//! Figures of the paper, and the points of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::args::{Ledger, Transport, Workload};

/// Bytes of a proposal, where a figure is over something else: 1 KB in the paper, section 4.1.3.
const PAYLOAD_BYTES: usize = 1_000;

/// Machines, where a figure is over something else. The paper does not say how many it took.
const NODES: usize = 3;

/// A figure of the paper, by its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) workload: Workload,
    pub(super) transport: Transport,
    pub(super) over: Over,
    pub(super) ledgers: &'static [Ledger],
    pub(super) delay_ms: u64,
}

/// The quantity of a figure's axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Payload,
    Nodes,
}

/// All of them. RDTP, the message layer of its authors, is TCP here; RDTP is one, too.
const FIGURES: [Figure; 6] = [
    over_payload("4.1.1", Workload::A, Transport::Tcp),
    over_payload("4.1.2", Workload::A, Transport::Grpc),
    Figure { over: Over::Nodes, ..over_payload("4.1.3", Workload::A, Transport::Tcp) },
    Figure {
        over: Over::Nodes,
        ledgers: &[Ledger::Ram],
        delay_ms: 50,
        ..over_payload("4.1.4", Workload::A, Transport::Tcp)
    },
    over_payload("4.2.1", Workload::B, Transport::Tcp),
    over_payload("4.2.2", Workload::B, Transport::Grpc),
];

const fn over_payload(name: &'static str, workload: Workload, transport: Transport) -> Figure {
    let ledgers = &[Ledger::Ram, Ledger::Disk];
    Figure { name, workload, transport, over: Over::Payload, ledgers, delay_ms: 0 }
}

/// Values of the axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    payloads: &'static [usize],
    nodes: &'static [usize],
}

impl Scale {
    /// 1 B to 1 MB, 3 to 9 machines.
    pub(super) const WHOLE: Self =
        Self { payloads: &[1, 100, 1_000, 10_000, 100_000, 1_000_000], nodes: &[3, 5, 7, 9] };
    /// Two of each.
    pub(super) const QUICK: Self = Self { payloads: &[1, 100_000], nodes: &[3, 5] };
}

/// Quantity that is measured at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Case {
    pub(super) workload: Workload,
    pub(super) transport: Transport,
    pub(super) nodes: usize,
    /// Between nodes, one way.
    pub(super) delay_ms: u64,
    pub(super) payload_bytes: usize,
    /// Last, so that cases in order have the ledgers in turn.
    pub(super) ledger: Ledger,
}

/// Clusters that differ in their ledgers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) transport: Transport,
    pub(super) delay_ms: u64,
    pub(super) nodes: usize,
}

/// Figures of these names, or all.
pub(super) fn figures(only: &[String]) -> Result<Vec<Figure>> {
    let is_one = |name: &&String| !FIGURES.iter().any(|figure| figure.name == **name);
    if let Some(name) = only.iter().find(is_one) {
        let names = FIGURES.map(|figure| figure.name).join(", ");
        bail!("there is no figure {name}: there are {names}");
    }
    let is_wanted = |figure: &Figure| only.is_empty() || only.iter().any(|of| of == figure.name);
    Ok(FIGURES.into_iter().filter(is_wanted).collect())
}

/// All points of figures, each once, by their clusters.
pub(super) fn by_kind(figures: &[Figure], scale: &Scale) -> BTreeMap<Kind, Vec<Case>> {
    let cases: BTreeSet<Case> = figures.iter().flat_map(|figure| figure.cases(scale)).collect();
    let mut by_kind: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for case in cases {
        let Case { transport, nodes, delay_ms, .. } = case;
        by_kind.entry(Kind { transport, delay_ms, nodes }).or_default().push(case);
    }
    by_kind
}

impl Figure {
    /// Its points.
    pub(super) fn cases(&self, scale: &Scale) -> Vec<Case> {
        let Self { workload, transport, delay_ms, .. } = *self;
        let places: Vec<_> = match self.over {
            Over::Payload => scale.payloads.iter().map(|bytes| (NODES, *bytes)).collect(),
            Over::Nodes => scale.nodes.iter().map(|nodes| (*nodes, PAYLOAD_BYTES)).collect(),
        };
        let case = |((nodes, payload_bytes), ledger)| Case {
            workload,
            transport,
            nodes,
            delay_ms,
            payload_bytes,
            ledger,
        };
        let all = places.into_iter().flat_map(|at| self.ledgers.iter().map(move |of| (at, *of)));
        all.map(case).collect()
    }

    /// Proposers of a point.
    pub(super) fn proposers(&self) -> usize {
        if self.workload == Workload::A { 1 } else { 2 }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, delay_ms, nodes } = self;
        write!(f, "{nodes} nodes, {}, {delay_ms} ms apart", transport.scheme())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, transport, nodes, delay_ms, payload_bytes, ledger } = self;
        write!(f, "{workload:?}, {}, {nodes} nodes, {delay_ms} ms apart, ", transport.scheme())?;
        write!(f, "{payload_bytes} B, {ledger:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_measured_once_with_the_ledgers_in_turn() -> Result<()> {
        let all = by_kind(&figures(&[])?, &Scale::WHOLE);
        let names: Vec<_> = all.keys().map(Kind::to_string).collect();
        assert_eq!(names.len(), 9, "{names:?}"); // tcp 3 to 9, apart 3 to 9, grpc 3
        let three = &all[&Kind { transport: Transport::Tcp, delay_ms: 0, nodes: 3 }];
        assert_eq!(three.len(), 24); // two workloads, six sizes, two ledgers: 1 KB is of 4.1.3, too
        for pair in three.chunks(2) {
            assert_eq!(pair[0], Case { ledger: Ledger::Ram, ..pair[1] });
            assert_eq!(pair[1].ledger, Ledger::Disk);
        }
        Ok(())
    }

    #[test]
    fn a_figure_that_is_not_there_is_refused() -> Result<()> {
        let words = figures(&["4.9".to_owned()]).unwrap_err().to_string();
        assert!(words.contains("no figure 4.9") && words.contains("4.2.2"), "{words}");
        assert_eq!(figures(&["4.1.4".to_owned()])?.len(), 1);
        Ok(())
    }
}

//! Agreement, checked exhaustively: three replicas of the core itself, two of which propose, two
//! slots, any question and answer lost, crashes and restarts between any two events. Within the
//! narrower bounds words arrive in every order; within the wider ones a link keeps theirs.
//!
//! The widest bounds are for release builds, where they take a minute:
//! `cargo test --release -p paxos --test simulated model`.
//!
//! The model is everything around the replicas (`cluster.rs`): a network, ledgers that keep what
//! was appended, nodes that miss their leader at any time, and the definition of a chosen value. A
//! ledger that loses its tail is the simulation's.

mod cluster;

use paxos::mutant::Mutant;
use stateright::{Checker, HasDiscoveries, Model, Property};

use self::cluster::{Action, Bounds, Cluster, Order};

/// All runs within some bounds.
struct Agreement {
    bounds: Bounds,
    /// The rule that is broken, if one is.
    mutant: Option<Mutant>,
}

const AGREES: &str = "a slot has one value, and all replicas know that one";
const BOTH: &str = "both slots are chosen";
const RIVALS: &str = "a slot has votes of two ballots";
const KEEPS: &str = "a ledger brings back what its replica knew";

impl Model for Agreement {
    type State = Cluster;
    type Action = Action;

    fn init_states(&self) -> Vec<Cluster> {
        paxos::mutant::set(self.mutant);
        vec![Cluster::formed(self.bounds)]
    }

    fn actions(&self, cluster: &Cluster, actions: &mut Vec<Action>) {
        actions.extend(cluster.actions());
    }

    fn next_state(&self, cluster: &Cluster, action: Action) -> Option<Cluster> {
        // Each thread of the checker has a switch of its own.
        paxos::mutant::set(self.mutant);
        Some(cluster.after(action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AGREES, |_, cluster: &Cluster| cluster.truth.agrees),
            Property::always(KEEPS, |_, cluster: &Cluster| cluster.keeps),
            Property::sometimes(BOTH, |_, cluster: &Cluster| cluster.truth.chosen_count() == 2),
            Property::sometimes(RIVALS, |_, cluster: &Cluster| cluster.truth.has_rival_ballots()),
        ]
    }
}

/// Checks all runs within `bounds`, and that there are some with each of `events`.
fn check(bounds: Bounds, events: &[&'static str]) {
    let checker = Agreement { bounds, mutant: None }.checker().threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states", checker.unique_state_count());
    let broken = [AGREES, KEEPS].into_iter().find_map(|rule| checker.discovery(rule));
    assert!(broken.is_none(), "{broken:?}");
    for event in events {
        assert!(checker.discovery(event).is_some(), "no run in which {event}");
    }
}

/// Checks that some run within `bounds` breaks `rule`.
fn is_found(mutant: Mutant, rule: &'static str, bounds: Bounds) {
    let model = Agreement { bounds, mutant: Some(mutant) };
    let finish = HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(2).finish_when(finish).spawn_bfs().join();
    println!("{mutant:?}: {} states", checker.unique_state_count());
    assert!(checker.discovery(rule).is_some(), "{mutant:?} is not found");
}

#[test]
fn replicas_agree_whoever_proposes() {
    check(Bounds { values: 2, order: Order::Sent, ..Bounds::of([1, 1]) }, &[BOTH, RIVALS]);
}

#[test]
fn replicas_agree_in_whatever_order_words_arrive() {
    check(Bounds::of([1, 1]), &[RIVALS]);
}

#[test]
fn a_proposer_that_crashes_takes_another_ballot() {
    check(Bounds { crashes: 1, ..Bounds::of([2, 0]) }, &[RIVALS]);
}

/// Everything that a run may have, at once.
#[cfg(not(debug_assertions))]
#[test]
fn replicas_agree_whoever_proposes_and_crashes() {
    let bounds = Bounds { values: 2, crashes: 1, order: Order::Sent, ..Bounds::of([1, 1]) };
    check(bounds, &[BOTH, RIVALS]);
}

#[cfg(not(debug_assertions))]
#[test]
fn replicas_agree_whoever_crashes_in_whatever_order_words_arrive() {
    check(Bounds { crashes: 1, ..Bounds::of([1, 1]) }, &[RIVALS]);
}

#[test]
fn a_majority_that_is_none_is_found() {
    let bounds = Bounds { values: 2, order: Order::Sent, ..Bounds::of([1, 1]) };
    is_found(Mutant::HalfIsEnough, AGREES, bounds);
}

#[test]
fn a_promise_that_a_crash_forgets_is_found() {
    is_found(Mutant::BallotNotPersisted, KEEPS, Bounds { crashes: 1, ..Bounds::of([1, 0]) });
}

#[cfg(not(debug_assertions))]
#[test]
fn the_value_of_an_early_ballot_is_found() {
    let bounds = Bounds { values: 2, order: Order::Sent, ..Bounds::of([2, 1]) };
    is_found(Mutant::TakesEarliestValue, AGREES, bounds);
}

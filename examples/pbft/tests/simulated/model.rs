//! Agreement, checked exhaustively: four replicas of the core itself, of which one is twins that
//! propose two requests for one place, each to some of the others; the others lose patience at any
//! time, and a second view begins. Words arrive in every order, or not at all; the votes of the
//! second view in one order, between all others in any.
//!
//! The model is everything around the replicas (`cluster.rs`): a network, clocks that may have run
//! out whenever somebody looks, and the definition of agreement. Liars hear everything at once, and
//! what they say is heard late or never. Nobody forges, and nobody crashes: that is the
//! simulation's. What is lost is not said again.

mod cluster;

use pbft::mutant::Mutant;
use stateright::{Checker, HasDiscoveries, Model, Property};

use self::cluster::{Action, Bounds, Cluster};

/// All runs within some bounds.
struct Agreement {
    bounds: Vec<Bounds>,
    /// The rule that is broken, if one is.
    mutant: Option<Mutant>,
}

const AGREE: &str = "a place has one batch";
const ONCE: &str = "one batch is prepared in a place of a view";
const FIRST: &str = "all execute it in the first view";
const SECOND: &str = "all execute it in the second view";
const BOTH: &str = "some execute it in the first view, others in the second";
const RIVALS: &str = "two batches of a view are voted for";

impl Model for Agreement {
    type State = Cluster;
    type Action = Action;

    fn init_states(&self) -> Vec<Cluster> {
        pbft::mutant::set(self.mutant);
        self.bounds.iter().copied().map(Cluster::new).collect()
    }

    fn actions(&self, cluster: &Cluster, actions: &mut Vec<Action>) {
        actions.extend(cluster.actions());
    }

    fn next_state(&self, cluster: &Cluster, action: Action) -> Option<Cluster> {
        // Each thread of the checker has a switch of its own.
        pbft::mutant::set(self.mutant);
        Some(cluster.after(action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AGREE, |_, cluster: &Cluster| cluster.truth.agrees),
            Property::always(ONCE, |_, cluster: &Cluster| cluster.truth.is_prepared_once),
            Property::sometimes(FIRST, |_, cluster: &Cluster| cluster.truth.executed_in(&[0])),
            Property::sometimes(SECOND, |_, cluster: &Cluster| cluster.truth.executed_in(&[1])),
            Property::sometimes(BOTH, |_, cluster: &Cluster| cluster.truth.executed_in(&[0, 1])),
            Property::sometimes(RIVALS, |_, cluster: &Cluster| cluster.truth.has_rivals()),
        ]
    }
}

/// Checks all runs within `bounds`, and that there are some with each of `events`.
fn check(bounds: Vec<Bounds>, events: &[&'static str]) {
    let text = format!("{bounds:?}");
    let checker = Agreement { bounds, mutant: None }.checker().threads(2).spawn_bfs().join();
    println!("{text}: {} states", checker.unique_state_count());
    let broken = [AGREE, ONCE].into_iter().find_map(|rule| checker.discovery(rule));
    assert!(broken.is_none(), "{broken:?}");
    for event in events {
        assert!(checker.discovery(event).is_some(), "no run in which {event}");
    }
}

/// Checks that some run within `bounds` breaks `rule`.
fn is_found(mutant: Mutant, rule: &'static str, bounds: Vec<Bounds>) {
    let model = Agreement { bounds, mutant: Some(mutant) };
    let finish = HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(2).finish_when(finish).spawn_dfs().join();
    println!("{mutant:?}: {} states", checker.unique_state_count());
    assert!(checker.discovery(rule).is_some(), "{mutant:?} is not found");
}

/// The twin that members 2, 3 and 4 each hear, but for the names of the twins.
const HEARD: [[usize; 3]; 4] = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]];

/// The first view alone: nobody leaves it.
fn one_view(hears: [usize; 3]) -> Bounds {
    Bounds { hears, impatient: [false; 5] }
}

/// Two views: these replicas leave the first when they like, and others join f + 1 that have.
fn two_views(hears: [usize; 3], leaving: &[usize]) -> Bounds {
    let impatient = std::array::from_fn(|host| leaving.contains(&host));
    Bounds { hears, impatient }
}

#[test]
fn replicas_agree_in_the_first_view() {
    check(HEARD.map(one_view).to_vec(), &[FIRST, RIVALS]);
}

#[test]
fn replicas_agree_over_two_views() {
    check(vec![two_views([0, 0, 1], &[1, 3])], &[SECOND, BOTH, RIVALS]);
}

#[test]
fn replicas_agree_over_two_views_of_which_a_majority_has_heard_the_other_twin() {
    check(vec![two_views([0, 1, 1], &[0, 3])], &[SECOND, RIVALS]);
}

#[test]
fn a_primary_that_is_counted_twice_is_found() {
    is_found(Mutant::PrimaryCountedTwice, ONCE, HEARD.map(one_view).to_vec());
}

#[test]
fn a_view_change_without_proofs_is_found() {
    is_found(Mutant::ProofsDropped, AGREE, vec![two_views([0, 1, 1], &[1, 2, 3])]);
}

//! Each deliberate defect must be found by the swarm, within few seeds, and by the property that
//! speaks of it: a check of the checks.

use convoke_proto::mutant::{self, Mutant};
use convoke_sim::scenario::Kind;
use convoke_sim::swarm;

/// Most seeds that a mutant may survive.
const SEEDS: u64 = 400;

fn is_found_by(mutant: Mutant, kind: Kind, invariants: &[&str]) {
    mutant::set(Some(mutant));
    let found = (0..SEEDS).find_map(|seed| swarm::run(seed, Some(kind)).err());
    mutant::set(None);
    let found = found.unwrap_or_else(|| panic!("{mutant:?} survived {SEEDS} seeds of {kind:?}"));
    let name = &found.violation.invariant;
    assert!(invariants.iter().any(|id| name.starts_with(id)), "{mutant:?} was found as {found}");
}

#[test]
fn children_that_are_not_registered_let_a_call_complete_early() {
    is_found_by(Mutant::ChildrenNotRegistered, Kind::Calm, &["I1"]);
}

#[test]
fn a_task_without_dedupe_runs_twice() {
    is_found_by(Mutant::NoDedupe, Kind::AnyOrder, &["I8"]);
}

#[test]
fn a_holder_without_its_hop_is_the_wrong_one() {
    is_found_by(Mutant::HopIgnored, Kind::AnyOrder, &["I24"]);
}

#[test]
fn a_fence_on_a_plain_probe_refuses_a_slow_request() {
    is_found_by(Mutant::FenceOnPlainProbe, Kind::SlowParentLink, &["I3", "I12"]);
}

#[test]
fn a_status_on_the_control_lane_overtakes_the_reply_it_speaks_of() {
    is_found_by(Mutant::StatusOvertakesReply, Kind::SlowParentLink, &["I3", "I12"]);
}

#[test]
fn a_cancel_after_a_decision_stops_what_should_run_on() {
    is_found_by(Mutant::CancelAfterDecision, Kind::Quorums, &["I13"]);
}

#[test]
fn a_quorum_counted_by_branches_takes_one_node_for_two() {
    is_found_by(Mutant::QuorumByPath, Kind::Quorums, &["I19"]);
}

//! Each scenario must meet what it is there for; else its silence would mean nothing.

use std::collections::BTreeMap;

use convoke_sim::scenario::Kind;
use convoke_sim::swarm;

/// Coverage by the runs of a scenario: frames by name, and failures by text.
#[derive(Debug, Default)]
struct Met {
    frames: BTreeMap<&'static str, u64>,
    failures: BTreeMap<String, u64>,
    ends: BTreeMap<String, u64>,
}

fn meet(kind: Kind) -> Met {
    let mut met = Met::default();
    for seed in 0..60 {
        let report = swarm::run(seed, Some(kind)).unwrap_or_else(|failure| panic!("{failure}"));
        for (name, count) in report.frames {
            *met.frames.entry(name).or_default() += count;
        }
        for outcome in report.outcomes {
            *met.ends.entry(format!("{:?}", outcome.end)).or_default() += 1;
            for failure in outcome.failures {
                let cause = failure.split(": ").nth(1).unwrap_or("").to_owned();
                let cause = cause.split(" (").next().unwrap_or("").to_owned();
                *met.failures.entry(cause).or_default() += 1;
            }
        }
    }
    met
}

impl Met {
    fn has_frames(&self, names: &[&str]) {
        for name in names {
            assert!(self.frames.contains_key(name), "no {name} among {:?}", self.frames);
        }
    }

    fn has_failures(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.failures.contains_key(*text), "no {text:?} among {:?}", self.failures);
        }
    }

    fn has_ends(&self, ends: &[&str]) {
        for end in ends {
            assert!(self.ends.contains_key(*end), "no {end} among {:?}", self.ends);
        }
    }
}

const NODE_DOWN: &str = "the connection to the node was lost";
const LOST: &str = "the request was lost on its way";
const REPLY_LOST: &str = "the task ran but its reply was lost";

#[test]
fn a_calm_run_still_has_failing_tasks_and_all_frames_of_a_tree() {
    let met = meet(Kind::Calm);
    met.has_frames(&["REQUEST", "REPLY", "MANIFEST", "FAIL", "CREDIT", "ITEM"]);
    met.has_failures(&["Aborted", "the handler panicked"]);
    met.has_ends(&["Some(Complete)", "Some(Partial)", "Some(Decided)"]);
}

#[test]
fn silent_loss_is_met_with_probes_and_fences() {
    let met = meet(Kind::Lossy);
    met.has_frames(&["PROBE", "STATUS"]);
    met.has_failures(&[LOST, REPLY_LOST]);
}

#[test]
fn broken_connections_are_reported_by_parents() {
    let met = meet(Kind::Cuts);
    met.has_frames(&["LINK_DOWN", "PROBE", "STATUS"]);
    met.has_failures(&[NODE_DOWN]);
}

#[test]
fn crashed_nodes_take_tasks_with_them() {
    meet(Kind::Crashes).has_failures(&[NODE_DOWN]);
}

#[test]
fn partitions_and_pauses_break_connections_by_keep_alive() {
    meet(Kind::Partitions).has_failures(&[NODE_DOWN]);
    meet(Kind::PausedDriver).has_failures(&[NODE_DOWN]);
}

#[test]
fn a_slow_parent_link_is_probed_in_vain() {
    let met = meet(Kind::SlowParentLink);
    assert!(met.frames["PROBE"] > met.frames["REQUEST"]);
}

#[test]
fn stopped_readers_hold_streams_back_until_the_deadline() {
    let met = meet(Kind::StoppedReader);
    met.has_frames(&["CREDIT"]);
    met.has_ends(&["None"]);
}

#[test]
fn cancels_are_sent_and_end_calls() {
    let met = meet(Kind::Cancels);
    met.has_frames(&["CANCEL"]);
    met.has_ends(&["Some(Cancelled)"]);
}

#[test]
fn quorums_are_decided_and_come_to_nothing() {
    meet(Kind::Quorums).has_ends(&["Some(Decided)", "Some(Partial)"]);
}

#[test]
fn tiny_limits_are_hit() {
    let met = meet(Kind::Overload);
    met.has_failures(&["the server has no room for another task"]);
    met.has_ends(&["Some(Exhausted)"]);
}

#[test]
fn liars_are_asked_and_are_heard() {
    let met = meet(Kind::Liars);
    met.has_frames(&["REQUEST", "REPLY", "FAIL", "STATUS"]);
    met.has_failures(&["a node broke the call protocol"]);
    met.has_ends(&["Some(Complete)", "Some(Partial)", "Some(Decided)"]);
}

#[test]
fn a_load_is_settled_by_statements() {
    for kind in [Kind::Load, Kind::LateCopies] {
        let met = meet(kind);
        met.has_frames(&["ASK", "SETTLED", "CANCEL", "FAIL"]);
        met.has_failures(&["the deadline passed", "Aborted"]);
        met.has_ends(&["Some(Cancelled)", "Some(Decided)", "Some(Partial)"]);
    }
}

#[test]
fn a_storm_has_everything() {
    let met = meet(Kind::Storm);
    met.has_frames(&["CANCEL", "LINK_DOWN", "PROBE", "STATUS", "CREDIT", "FAIL"]);
    met.has_failures(&[NODE_DOWN, "the deadline passed"]);
    met.has_ends(&["Some(Complete)", "Some(Partial)", "Some(Cancelled)"]);
}

//! A fault is noticed within a bound: a branch whose task was lost with its node, or whose request
//! with a connection, does not stay open until the deadline.

use std::time::Duration;

use convoke_proto::call::Call;
use convoke_proto::id::{CallId, TaskKey};
use convoke_proto::limits::ReplyDial;

use crate::network::Network;
use crate::oracle::{Oracle, TaskName};
use crate::scenario::{Kind, Scenario};

use super::{Invariant, Observation};

/// A bound on the time until a fault is noticed.
#[derive(Debug)]
pub(super) struct Noticed {
    /// After the last fault, and for each level of the branch: where frames are lost only with
    /// their connection.
    bounds: Option<(Duration, Duration)>,
}

impl Noticed {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let limits = &scenario.limits;
        let latency = Network::new(scenario.conditions.clone(), scenario.servers, 0);
        let round_trip = latency.latency_max(64 << 10) * 2;
        // A silent end is known by its keep-alive, at both ends, and a reply that has to wait for a
        // dial waits for it as long as it may.
        let dial = match limits.reply_dial {
            ReplyDial::Never => Duration::ZERO,
            ReplyDial::KnownNodes | ReplyDial::Anybody => limits.reply_dial_timeout,
        };
        let first = limits.keep_alive_timeout * 2 + dial + limits.backoff_max;
        // On each level somebody worries, asks, dials, and waits out the grace.
        let level = limits.worry_max + limits.grace + round_trip * 3;
        let is_meant = matches!(scenario.kind, Kind::Cuts | Kind::Crashes | Kind::Relayed);
        Self { bounds: is_meant.then_some((first, level)) }
    }

    fn check(&self, id: CallId, call: &Call, oracle: &Oracle) -> Result<(), String> {
        let Some((first, level)) = self.bounds else { return Ok(()) };
        if call.end().is_some() {
            return Ok(());
        }
        for (path, branch) in call.tree().iter().filter(|(_, branch)| branch.is_unsettled()) {
            let task = TaskKey { path: path.clone(), hop: branch.hop };
            let truth = oracle.tasks.get(&TaskName::of(id, task));
            let Some(hurt_at) = truth.and_then(|truth| truth.hurt_at) else { continue };
            let levels = u32::try_from(path.level_count()).unwrap_or(u32::MAX);
            let by = hurt_at.max(oracle.last_fault) + first + level * levels;
            if oracle.now > by {
                let now = oracle.now;
                return Err(format!(
                    "{id:?} {path} was hurt at {hurt_at:?}, at {now:?} {branch:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for Noticed {
    fn name(&self) -> &'static str {
        "I44: a fault is noticed within a bound, not at the deadline"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Call { id, call } => self.check(*id, call, oracle),
            _ => Ok(()),
        }
    }
}

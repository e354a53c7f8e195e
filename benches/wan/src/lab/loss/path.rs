//! A path between two ends, made for one run: nothing that a connection learnt is left for the
//! next.

use std::time::Duration;

use anyhow::Context;
use convoke_overlay::HoseModel;

use super::Options;
use super::authority::Authority;
use crate::lab::network::{Names, Network};
use crate::lab::processes::{Loss, Process, Router, own_program};
use crate::protocol::{Called, Calls, Start};
use crate::wire::Wire;

/// The sites of the two ends.
const ANSWERS: usize = 0;
const CALLS: usize = 1;

/// Longer than the last calls, and all dials, may take at the end.
const LATE: Duration = Duration::from_secs(40);

/// Two ends, and the path between them.
pub(super) struct Path {
    // Dropped in this order: processes before the namespaces they are in.
    ends: [Process; 2],
    address: String,
    router: Router,
    _network: Network,
}

impl Path {
    /// Makes it, and starts both ends.
    pub(super) async fn new(
        options: &Options,
        authority: &Authority,
        wire: Wire,
        loss: Loss,
    ) -> anyhow::Result<Self> {
        let (names, model) = (Names::of_this_process(), model(options));
        let network = Network::new(&names, model.sites())?;
        let mut router = Router::start(&names, &model, loss).await?;
        network.connect(&model, &options.congestion)?;
        router.go().await?;
        let identity = || wire.scheme.has_certificates().then(|| authority.issue()).transpose();
        let listen = format!("{}://{}:0", wire.scheme.name(), Names::address(ANSWERS));
        let answers = Start { wire, listen: Some(listen), identity: identity()? };
        let (answers, addresses) = start(&names, ANSWERS, &answers).await?;
        let calls = Start { wire, listen: None, identity: identity()? };
        let (calls, _) = start(&names, CALLS, &calls).await?;
        let address = addresses.into_iter().next().context("it listens")?;
        Ok(Self { ends: [answers, calls], address, router, _network: network })
    }

    /// Calls from one end to the other.
    pub(super) async fn measure(&mut self, options: &Options) -> anyhow::Result<Called> {
        let calls = Calls {
            address: self.address.clone(),
            per_second: options.rate.into(),
            callers: usize::try_from(options.callers)?,
            bytes: usize::try_from(options.bytes)?,
            bulk_bytes: options.bulk_bytes,
            warm_up: options.warm_up,
            seconds: options.seconds,
        };
        let caller = &mut self.ends[CALLS];
        caller.write(&serde_json::to_string(&calls)?).await?;
        let takes = Duration::from_secs(options.warm_up + options.seconds) + LATE;
        Ok(serde_json::from_str(&caller.read(takes).await?)?)
    }

    /// Ends everything in order. What the router says of the packets it carried.
    pub(super) async fn end(mut self) -> anyhow::Result<String> {
        for end in self.ends.iter_mut().rev() {
            end.end().await?;
        }
        self.router.end().await
    }
}

/// Two sites of the same rate.
fn model(options: &Options) -> HoseModel {
    let (kbit, way_us) = (options.mbit * 1_000, options.rtt_ms * 500);
    HoseModel {
        uplink: vec![kbit; 2],
        downlink: vec![kbit; 2],
        latency_us: vec![0, way_us, way_us, 0],
        demand: vec![0; 2],
        epoch: 1,
    }
}

/// Starts an end in its namespace. Where it listens.
async fn start(
    names: &Names,
    site: usize,
    start: &Start,
) -> anyhow::Result<(Process, Vec<String>)> {
    let in_namespace = ["netns".to_owned(), "exec".to_owned(), names.namespace(site)];
    let arguments = [&in_namespace[..], &[own_program()?, "end".to_owned()]].concat();
    let mut end = Process::start(format!("end {site}"), "ip", &arguments)?;
    end.write(&serde_json::to_string(start)?).await?;
    let addresses = serde_json::from_str(&end.read(Duration::ZERO).await?)?;
    Ok((end, addresses))
}

//! A host: a disk that survives its node, and the node while it is up.

use convoke::quorum::Configuration;
use convoke::sim::disk::{Delay, DiskSettings, Mount, SimDisk};
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::{Identity, Ledger, LedgerError, Settings};

use super::truth::Truth;
use super::{CLUSTER, Plan, Violation, address, signer};
use crate::core::Keys;
use crate::node::{Node, NodeError, Options, Standing};
use crate::proto::Inspection;

/// A host of the cluster.
pub(super) struct Host {
    id: u64,
    seed: u64,
    disk: SimDisk,
    is_liar: bool,
    truth: Truth,
    /// Starts so far.
    starts: u64,
    running: Option<(Node, Mount)>,
    has_snapshot: bool,
}

impl Host {
    pub(super) fn new(id: u64, seed: u64, plan: &Plan, truth: Truth) -> Self {
        let disk = SimDisk::new(seed ^ id << 8);
        disk.settings(DiskSettings {
            sync_delay: Delay { jitter: plan.sync, ..Delay::default() },
            sync_fails: f64::from(plan.failing_syncs) / 1_000.0,
            ..DiskSettings::default()
        });
        let is_liar = id <= plan.liars;
        Self { id, seed, disk, is_liar, truth, starts: 0, running: None, has_snapshot: false }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn node(&self) -> NodeId {
        NodeId::new(self.id)
    }

    pub(super) fn is_liar(&self) -> bool {
        self.is_liar
    }

    pub(super) fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// True when its last start found a snapshot.
    pub(super) fn has_snapshot(&self) -> bool {
        self.has_snapshot
    }

    pub(super) fn is_up(&self) -> bool {
        self.running.as_ref().is_some_and(|(node, _)| node.is_running())
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        self.running.as_ref().map(|(node, _)| *node.standing().borrow())
    }

    pub(super) async fn inspect(&self) -> Option<Inspection> {
        self.running.as_ref()?.0.inspect().await
    }

    /// Starts the node, or says how its disk has failed meanwhile.
    pub(super) async fn start(
        &mut self,
        plan: &Plan,
        network: &SimNetwork,
        cluster: (&Configuration, &Keys),
    ) -> Result<Result<(), String>, Violation> {
        self.starts += 1;
        let mount = self.disk.mount();
        match self.open(&mount, plan, network, cluster).await {
            Ok(node) => {
                self.running = Some((node, mount));
                Ok(Ok(()))
            }
            Err(error) if is_of_the_disk(&error) => {
                self.disk.crash();
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(Violation::Failed { node: self.id, error: error.to_string() }),
        }
    }

    async fn open(
        &mut self,
        mount: &Mount,
        plan: &Plan,
        network: &SimNetwork,
        (members, keys): (&Configuration, &Keys),
    ) -> Result<Node, NodeError> {
        let seed = self.seed ^ self.id << 16 ^ self.starts << 24;
        let identity = Identity { cluster: CLUSTER, node: self.id };
        let settings = Settings::default().segment_bytes(4_000).salt(seed);
        let (ledger, recovered) = Ledger::open(mount.clone(), identity, settings).await?;
        self.has_snapshot = recovered.snapshot.is_some();
        let own = signer(self.id);
        let mut options = Options::new(self.node(), members.clone(), keys.clone(), own);
        options.core.timeout = plan.timeout;
        options.core.checkpoint_every = plan.checkpoint_every;
        options.core.window = 2 * plan.checkpoint_every;
        options.core.in_flight = plan.in_flight;
        options.core.part_bytes = 1_000;
        options.snapshot_bytes = plan.snapshot_bytes;
        options.lie = self.is_liar.then_some(plan.lie);
        options.observer = (!self.is_liar).then(|| self.truth.observer(self.node()));
        let builder = Endpoint::builder().transport(network.transport()).seed(seed);
        let builder = builder.listen(address(self.id));
        Node::start(options, (ledger, Some(recovered)), builder).await
    }

    /// Ends the node as a power failure does, or as `kill -9`.
    pub(super) fn crash(&mut self, network: &SimNetwork, is_power: bool) {
        let running = self.running.take();
        network.crash(self.node());
        if is_power {
            self.disk.crash();
        } else if let Some((_, mount)) = &running {
            mount.kill();
        }
    }

    pub(super) fn take(&mut self) -> Option<(Node, Mount)> {
        self.running.take()
    }

    /// Why it is not up.
    pub(super) async fn failed(&mut self) -> Violation {
        let error = match &mut self.running {
            Some((node, _)) => node.failed().await.err().map(|error| error.to_string()),
            None => None,
        };
        let error = error.unwrap_or_else(|| "it is down".to_owned());
        Violation::Failed { node: self.id, error }
    }
}

/// True for what a disk with faults may do to a node, which has to be started again.
pub(super) fn is_of_the_disk(error: &NodeError) -> bool {
    let NodeError::Ledger(error) = error else { return false };
    match error {
        LedgerError::Failed(first) => matches!(**first, LedgerError::Disk(_)),
        other => matches!(other, LedgerError::Disk(_)),
    }
}

//! A host: a disk that survives its node, and the node while it is up.

use convoke::quorum::Configuration;
use convoke::sim::disk::{Delay, DiskSettings, Mount, SimDisk};
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};

use super::{CLUSTER, Conditions, Node, Program, Start, Violation};
use crate::ledger::{Identity, Ledger, LedgerError, Settings};

/// A host of the cluster.
#[derive(Debug)]
pub struct Host<N> {
    node: NodeId,
    seed: u64,
    disk: SimDisk,
    /// Starts so far.
    starts: u64,
    running: Option<(N, Mount)>,
    has_snapshot: bool,
}

/// Address of the node of this name.
pub(super) fn address(id: u64) -> String {
    format!("sim://node{id}")
}

impl<N: Node> Host<N> {
    pub(super) fn new(node: NodeId, seed: u64, conditions: &Conditions) -> Self {
        let disk = SimDisk::new(seed ^ node.get() << 8);
        disk.settings(DiskSettings {
            sync_delay: Delay { jitter: conditions.sync, ..Delay::default() },
            sync_fails: f64::from(conditions.failing_syncs) / 1_000.0,
            ..DiskSettings::default()
        });
        Self { node, seed, disk, starts: 0, running: None, has_snapshot: false }
    }

    /// The name of its node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Lets its disk take as much as any.
    pub(super) fn make_room(&self) {
        let capacity = DiskSettings::default().capacity;
        self.disk.configure(|settings| settings.capacity = capacity);
    }

    /// True when its last start found a snapshot.
    pub(super) fn has_snapshot(&self) -> bool {
        self.has_snapshot
    }

    /// True while the node runs.
    pub fn is_up(&self) -> bool {
        self.running.as_ref().is_some_and(|(node, _)| node.is_running())
    }

    /// The node, though it may have stopped by itself.
    pub fn running(&self) -> Option<&N> {
        self.running.as_ref().map(|(node, _)| node)
    }

    /// Starts the node, or says how its disk has failed meanwhile.
    pub(super) async fn start<P: Program<Node = N>>(
        &mut self,
        program: &P,
        network: &SimNetwork,
        members: &Configuration,
    ) -> Result<Result<(), String>, Violation> {
        if self.running.is_some() {
            self.crash(network, false); // It has ended by itself: the process is gone, too.
        }
        self.starts += 1;
        let mount = self.disk.mount();
        match self.open(program, &mount, network, members).await {
            Ok(node) => {
                self.running = Some((node, mount));
                Ok(Ok(()))
            }
            Err(error) if is_of_the_disk::<N>(&error) => {
                mount.kill();
                Ok(Err(error.to_string()))
            }
            Err(error) => {
                Err(Violation::Failed { node: self.node.get(), error: error.to_string() })
            }
        }
    }

    async fn open<P: Program<Node = N>>(
        &mut self,
        program: &P,
        mount: &Mount,
        network: &SimNetwork,
        members: &Configuration,
    ) -> Result<N, N::Error> {
        let seed = self.seed ^ self.node.get() << 16 ^ self.starts << 24;
        let identity = Identity { cluster: CLUSTER, node: self.node.get() };
        let settings = Settings::default().segment_bytes(P::SEGMENT_BYTES).salt(seed);
        let (ledger, recovered) = Ledger::open(mount.clone(), identity, settings).await?;
        self.has_snapshot = recovered.snapshot.is_some();
        let builder = Endpoint::builder().transport(network.transport()).seed(seed);
        let builder = builder.listen(address(self.node.get()));
        let (node, members) = (self.node, members.clone());
        program.start(Start { node, seed, ledger, recovered, members, builder }).await
    }

    /// Ends the node as a power failure does, or as `kill -9`.
    pub(super) fn crash(&mut self, network: &SimNetwork, is_power: bool) {
        let running = self.running.take();
        network.crash(self.node);
        if is_power {
            self.disk.crash();
        } else if let Some((_, mount)) = &running {
            mount.kill();
        }
    }

    pub(super) fn take(&mut self) -> Option<(N, Mount)> {
        self.running.take()
    }

    /// The reason it is not up.
    pub(super) async fn failed(&mut self) -> Violation {
        let error = match &mut self.running {
            Some((node, _)) => node.failed().await.err().map(|error| error.to_string()),
            None => None,
        };
        let error = error.unwrap_or_else(|| "it is down".to_owned());
        Violation::Failed { node: self.node.get(), error }
    }
}

/// True for what a disk with faults may do to a node, which has to be started again.
pub(super) fn is_of_the_disk<N: Node>(error: &N::Error) -> bool {
    match N::of_ledger(error) {
        Some(LedgerError::Failed(first)) => matches!(**first, LedgerError::Disk(_)),
        of_ledger => matches!(of_ledger, Some(LedgerError::Disk(_))),
    }
}

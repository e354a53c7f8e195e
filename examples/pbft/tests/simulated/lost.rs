//! Replicas that have lost their ledgers, cannot read them, or have left: whatever their next
//! starts find, they say nothing that could contradict what they have said.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::disk::{Mount, SimDisk};
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::{Identity, Ledger, Recovered, Settings};
use pbft::client::{self, Client};
use pbft::core::{
    Change, Changed, ClientId, Forgotten, Group, Keys, Member, Membership, Record, Scope, Sequence,
    Signer,
};
use pbft::node::{Node, NodeError, Options, Part};
use pbft::wire::{self, Malformed};
use tokio::time::{Instant, sleep, timeout};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const CLUSTER: u64 = 7;
const CLIENT: ClientId = ClientId(98);
const ADMINISTRATOR: ClientId = ClientId(99);

/// Long beside all that replicas do by themselves.
const PATIENCE: Duration = Duration::from_secs(60);

/// A replica that was removed ends after this time.
const LEAVES_AFTER: Duration = Duration::from_secs(5);

fn signer(id: u64) -> Signer {
    Signer::stand_in([u8::try_from(id).expect("it is small"); 32])
}

fn address(id: u64) -> String {
    format!("sim://node{id}")
}

/// The first four replicas, on disks that outlive them, and others that may join. A checkpoint is
/// every eight places.
struct World {
    seed: u64,
    network: SimNetwork,
    members: Configuration,
    keys: Keys,
    disks: BTreeMap<u64, SimDisk>,
    /// Of the last life of each.
    mounts: BTreeMap<u64, Mount>,
    starts: u64,
    leaves_after: Duration,
}

impl World {
    fn new(seed: u64) -> Result<Self> {
        let first = || (1..=4).map(NodeId::new);
        let members = Configuration::new(first().map(|node| (node, address(node.get()))))?;
        let checker = |id: u64| signer(id).checker();
        let checkers = first().map(|node| (node, checker(node.get()))).collect();
        let clients = [CLIENT, ADMINISTRATOR].map(|client| (client, checker(client.0)));
        let scope = Scope { cluster: CLUSTER, epoch: 1 };
        let keys = Keys::new(scope, Group::new(first())?, checkers, BTreeMap::from(clients));
        let network = SimNetwork::new(seed);
        let (disks, mounts) = Default::default();
        let (starts, leaves_after) = (0, LEAVES_AFTER);
        Ok(Self { seed, network, members, keys, disks, mounts, starts, leaves_after })
    }

    /// Opens the ledger of a replica on its disk, an empty one at first, once its last life has
    /// ended as by `kill -9`.
    async fn open(&mut self, id: u64) -> std::result::Result<(Ledger, Recovered), NodeError> {
        self.end(id);
        self.starts += 1;
        let seed = self.seed();
        let mount = self.disks.entry(id).or_insert_with(|| SimDisk::new(seed)).mount();
        self.mounts.insert(id, mount.clone());
        let identity = Identity { cluster: CLUSTER, node: id };
        Ok(Ledger::open(mount, identity, Settings::default()).await?)
    }

    /// The seed of the latest start.
    fn seed(&self) -> u64 {
        self.seed << 16 | self.starts
    }

    /// Starts a replica, with the ledger that it opens.
    async fn start(&mut self, id: u64) -> std::result::Result<(Node, Ledger), NodeError> {
        let (ledger, recovered) = self.open(id).await?;
        let node = NodeId::new(id);
        let mut options = Options::new(node, self.members.clone(), self.keys.clone(), signer(id));
        (options.core.checkpoint_every, options.core.window) = (8, 16);
        options.leave_after = self.leaves_after;
        options.core.administrator = Some(ADMINISTRATOR);
        let builder = Endpoint::builder().transport(self.network.transport()).seed(self.seed());
        let opened = (ledger.clone(), Some(recovered));
        let node = Node::start(options, opened, builder.listen(address(id))).await?;
        Ok((node, ledger))
    }

    async fn start_all(&mut self, ids: &[u64]) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        for id in ids {
            nodes.push(self.start(*id).await?.0);
        }
        Ok(nodes)
    }

    fn end(&mut self, id: u64) {
        if let Some(mount) = self.mounts.remove(&id) {
            self.network.crash(NodeId::new(id));
            mount.kill();
        }
    }

    /// Ends the life of a replica, and takes its ledger away.
    fn lose(&mut self, id: u64) {
        self.end(id);
        self.disks.remove(&id);
    }

    /// Cuts two off from each other, or lets them hear each other again.
    fn cut(&self, one: u64, other: u64, is_cut: bool) {
        let (one, other) = (NodeId::new(one), NodeId::new(other));
        for (from, to) in [(one, other), (other, one)] {
            match is_cut {
                true => self.network.partition(from, to),
                false => self.network.heal(from, to),
            }
        }
    }

    async fn client(&self, id: ClientId) -> Result<Client> {
        let endpoint = Endpoint::builder().transport(self.network.transport()).seed(self.seed);
        let endpoint = endpoint.peers(&self.members).start().await?;
        let options = client::Options { deadline: PATIENCE, ..client::Options::default() };
        let (keys, name) = (Arc::new(self.keys.clone()), (id, signer(id.0)));
        Ok(Client::new(&endpoint, &self.members, keys, name, options))
    }

    /// So many writes, each in a place of its own.
    async fn put(&self, count: u64) -> Result {
        let mut client = self.client(CLIENT).await?;
        for number in 0..count {
            client.put(number.to_string(), "v").await?;
        }
        Ok(())
    }

    /// Has the members changed, and waits until the change is in force.
    async fn change(&self, change: Change) -> Result {
        let mut administrator = self.client(ADMINISTRATOR).await?;
        let epoch = change.epoch;
        let taken = administrator.change(&change).await?;
        assert!(matches!(taken, Changed::Taken(..)), "{taken:?}");
        while administrator.members().epoch <= epoch {
            administrator.learn().await;
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

fn joining(id: u64) -> Option<(NodeId, Member)> {
    let member = Member { key: signer(id).checker(), addresses: vec![address(id)] };
    Some((NodeId::new(id), member))
}

/// It ends by itself, with the proof that it has lost its ledger.
async fn is_found_out(mut node: Node) -> Result<Forgotten> {
    match timeout(PATIENCE, node.failed()).await? {
        Err(NodeError::LostLedger(forgotten)) => Ok(forgotten),
        other => Err(format!("{other:?}").into()),
    }
}

/// By the second start the others have a later checkpoint, without its signature.
#[tokio::test(start_paused = true)]
async fn a_lost_ledger_that_was_found_out_is_refused_at_each_start() -> Result {
    for seed in 0..8 {
        let mut world = World::new(seed)?;
        let mut nodes = world.start_all(&[1, 2, 3]).await?;
        world.put(10).await?; // three have signed the first checkpoint
        nodes.remove(1);
        world.lose(2);
        nodes.extend(world.start_all(&[4]).await?);
        let (lost, _) = world.start(2).await?;
        let found = is_found_out(lost).await?;
        assert_eq!(found, Forgotten::Checkpoint(Sequence(8)), "seed {seed}");

        world.put(20).await?;
        for _ in 0..2 {
            let again = world.start(2).await.map(drop);
            let is_refused = matches!(again, Err(NodeError::LostLedger(of)) if of == found);
            assert!(is_refused, "seed {seed}: {again:?}");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_start_that_heard_of_no_proof_hides_the_loss_from_none_that_follows() -> Result {
    for seed in 0..8 {
        let mut world = World::new(seed)?;
        let mut nodes = world.start_all(&[1, 2, 3]).await?;
        world.put(10).await?;
        nodes.remove(1);
        world.lose(2);
        [1, 3].into_iter().for_each(|other| world.cut(2, other, true));
        for _ in 0..3 {
            let (lost, _) = world.start(2).await?;
            sleep(Duration::from_secs(5)).await;
            assert!(lost.is_running(), "seed {seed}: nobody has told it of a proof");
            assert_eq!(lost.standing().borrow().part, Part::Hearing);
        }
        [1, 3].into_iter().for_each(|other| world.cut(2, other, false));
        let (lost, _) = world.start(2).await?;
        let found = is_found_out(lost).await?;
        assert_eq!(found, Forgotten::Checkpoint(Sequence(8)), "seed {seed}");
    }
    Ok(())
}

/// There is no checkpoint that would prove anything yet.
#[tokio::test(start_paused = true)]
async fn a_replica_with_an_empty_ledger_votes_once_it_has_heard_a_quorum() -> Result {
    for seed in 0..8 {
        let mut world = World::new(seed)?;
        let mut nodes = world.start_all(&[1, 2, 3, 4]).await?;
        world.put(2).await?;
        nodes.remove(1);
        world.lose(2);
        [3, 4].into_iter().for_each(|other| world.cut(2, other, true));
        // It hears the primary, who proposes, and nobody else.
        let (late, ledger) = world.start(2).await?;
        world.put(2).await?;
        sleep(Duration::from_secs(5)).await;
        let records = ledger.end().records();
        assert_eq!(records, 1, "seed {seed}: of its clients alone");
        assert_eq!(late.standing().borrow().part, Part::Hearing);

        [3, 4].into_iter().for_each(|other| world.cut(2, other, false));
        let mut standing = late.standing();
        timeout(PATIENCE, standing.wait_for(|now| now.part == Part::Whole)).await??;
        world.put(2).await?;
        while late.inspect().await.ok_or("it has stopped")?.executed < 6 {
            sleep(Duration::from_millis(100)).await;
        }
        assert!(ledger.end().records() > 1, "seed {seed}: it votes");
    }
    Ok(())
}

/// Its words were of an epoch that is over, and the proof of its end has its signature.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_was_lost_before_members_changed_is_found_out() -> Result {
    for seed in 0..8 {
        let mut world = World::new(seed)?;
        let mut nodes = world.start_all(&[1, 2, 3, 5]).await?;
        world.put(2).await?;
        world.change(Change { epoch: 1, remove: None, add: joining(5) }).await?;
        nodes.extend(world.start_all(&[4]).await?);
        world.put(2).await?;
        nodes.remove(1);
        world.lose(2);
        let (lost, _) = world.start(2).await?;
        let found = is_found_out(lost).await?;
        assert!(matches!(found, Forgotten::Checkpoint(_)), "seed {seed}: {found}");
        world.put(2).await?;
        let again = world.start(2).await.map(drop);
        assert!(matches!(again, Err(NodeError::LostLedger(_))), "seed {seed}: {again:?}");
    }
    Ok(())
}

/// As after an upgrade to a program that does not read the states of the one before. That one can
/// start again, and finds no word of a loss.
#[tokio::test(start_paused = true)]
async fn a_state_that_is_not_read_is_refused_before_anything_is_said() -> Result {
    let mut world = World::new(0)?;
    let mut nodes = world.start_all(&[1, 2, 3]).await?;
    world.put(10).await?; // three have signed the first checkpoint
    nodes.remove(1);
    let (ledger, _) = world.open(2).await?;
    let members = Membership::of(world.keys.members());
    let unread = Record::Snapshot(Sequence(8), members, "of another program".into());
    let end = ledger.append(wire::encode(&unread));
    ledger.durable(end).await?;
    for _ in 0..2 {
        match world.start(2).await {
            Err(NodeError::Record { number, source: Malformed::State }) => {
                assert_eq!(number, end.records());
            }
            other => return Err(format!("{:?}", other.map(drop)).into()),
        }
    }
    let (ledger, _) = world.open(2).await?;
    assert_eq!(ledger.end(), end, "nothing was written");
    Ok(())
}

/// The operator who starts it again need not know that it has left; one that comes back goes on.
#[tokio::test(start_paused = true)]
async fn a_replica_that_was_removed_ends_after_each_start_until_it_is_a_member_again() -> Result {
    let removed = |node: NodeId| Change { epoch: 2, remove: Some(node), add: None };
    for seed in 0..2 {
        let mut world = World::new(seed)?;
        let _nodes = world.start_all(&[1, 3, 4, 5]).await?;
        let mut second = world.start(2).await?.0;
        world.change(Change { epoch: 1, remove: None, add: joining(5) }).await?;
        world.change(removed(NodeId::new(2))).await?;
        for start in 0..2 {
            let standing = second.standing();
            let ended = timeout(PATIENCE, second.failed()).await?;
            assert!(matches!(ended, Err(NodeError::Removed(3))), "seed {seed}: {ended:?}");
            let part = standing.borrow().part;
            assert!(start == 0 || part == Part::Outside, "seed {seed}: {part:?}");
            second = world.start(2).await?.0;
        }
        world.change(Change { epoch: 3, remove: None, add: joining(2) }).await?;
        let mut standing = second.standing();
        timeout(PATIENCE, standing.wait_for(|now| now.part == Part::Whole)).await??;
        sleep(2 * LEAVES_AFTER).await;
        assert!(second.is_running(), "seed {seed}: it is a member again");
    }
    Ok(())
}

/// It hears of the end of one epoch for each report of its own, ten in a second.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_a_member_again_goes_on_however_many_changes_it_has_missed() -> Result {
    let removed = |epoch, id| Change { epoch, remove: Some(NodeId::new(id)), add: None };
    let joined = |epoch, id| Change { epoch, remove: None, add: joining(id) };
    let mut world = World::new(0)?;
    world.leaves_after = Duration::from_secs(1);
    let _nodes = world.start_all(&[1, 3, 4, 5]).await?;
    let mut second = world.start(2).await?.0;
    world.change(joined(1, 5)).await?;
    world.change(removed(2, 2)).await?;
    let ended = timeout(PATIENCE, second.failed()).await?;
    assert!(matches!(ended, Err(NodeError::Removed(3))), "{ended:?}");
    for epoch in (3..23).step_by(2) {
        world.change(joined(epoch, 6)).await?;
        world.change(removed(epoch + 1, 6)).await?;
    }
    world.change(joined(23, 2)).await?;
    second = world.start(2).await?.0;
    let begun = Instant::now();
    let mut standing = second.standing();
    timeout(PATIENCE, standing.wait_for(|now| now.part == Part::Whole)).await??;
    let took = begun.elapsed();
    assert!(took > world.leaves_after, "{took:?}: it had missed too few");
    Ok(())
}

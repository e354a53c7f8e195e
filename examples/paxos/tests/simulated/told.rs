//! Words of nodes that no request brings about: who reads the log finds what is wrong, and where.

use std::error::Error;
use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use convoke::disk::Disk as _;
use convoke::{Context, Endpoint, Method, NodeId, Service, Status};
use parking_lot::Mutex;
use paxos::core::Standing;
use paxos::node::Node;
use tokio::time::{Instant, sleep};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::disk::{CLUSTER, World, address};

/// Warnings and errors of the nodes of this thread, each with its fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = set_default(log.clone());
        (log, guard)
    }

    /// Lines that have all these words.
    fn count(&self, words: &[&str]) -> usize {
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        self.0.lock().iter().filter(has_all).count()
    }

    /// Waits for the first line that has all these words.
    async fn told(&self, words: &[&str]) {
        let begun = Instant::now();
        while self.count(words) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(120), "{words:?}: {:#?}", self.0.lock());
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name()); // text takes any
    }
}

/// The nodes of a cluster of three that has begun, the leader first.
async fn cluster(world: &World) -> Result<[(u64, Node); 3], Box<dyn Error>> {
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push((id, world.start_of(CLUSTER, id).await?.0));
    }
    world.put(10, 1).await?;
    let follows = |node: &Node| matches!(*node.standing().borrow(), Standing::Following(_));
    nodes.sort_by_key(|(_, node)| follows(node));
    nodes.try_into().map_err(|_| "there are three".into())
}

async fn stop(world: &World, (id, node): (u64, Node)) -> Result<(), Box<dyn Error>> {
    node.stop(Duration::from_secs(5)).await?;
    world.network.crash(NodeId::new(id));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_has_rotted_is_told_on_both_sides_and_others_are_asked()
-> Result<(), Box<dyn Error>> {
    let (log, _guard) = Log::begin();
    let world = World::new(3)?;
    let [leader, follower, away] = cluster(&world).await?;
    let (id, behind) = (leader.0, away.0);
    stop(&world, away).await?;
    // Of a file that is open the first MiB is in memory.
    world.put_values(11, 10, 200_000).await?;
    sleep(Duration::from_secs(1)).await; // until no further one is written
    let disk = &world.disks[usize::try_from(id)? - 1];
    let entries = disk.mount().list("").await?;
    let mut names = entries.into_iter().map(|entry| entry.name);
    let snapshot = names.rfind(|name| name.starts_with("snapshot-")).ok_or("there is none")?;
    disk.rot(&snapshot, 1_400_000)?;

    let (back, ..) = world.start_of(CLUSTER, behind).await?;
    let place = format!("{snapshot:?} has no whole part of a snapshot at byte ");
    log.told(&["ERROR", "this node's snapshot cannot be given to others", &place]).await;
    let of_whom = format!("node=n{id}");
    log.told(&["WARN", &of_whom, "no snapshot of it, others are asked", &place]).await;
    let applied = async |node: &Node| node.inspect().await.map(|state| state.applied);
    while applied(&back).await != applied(&follower.1).await {
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_member_of_another_cluster_is_told_once_and_why_there_is_no_leader()
-> Result<(), Box<dyn Error>> {
    let (log, _guard) = Log::begin();
    let world = World::new(3)?;
    let _nodes = [world.start_of(CLUSTER, 1).await?, world.start_of(CLUSTER, 2).await?];
    let other = world.start_of(CLUSTER + 1, 3).await?;
    let why = ["node=n3", "it answers no question: this is cluster 8, and 7 was meant"];
    log.told(&why).await;
    let alone = ["no leader for long: a cluster that is new begins when all its members answer"];
    log.told(&[alone[0], "(n2, n3), and not all have"]).await;
    log.told(&[alone[0], "(n1, n3), and not all have"]).await;
    sleep(Duration::from_secs(60)).await;
    // By each of the two, and the other one hears as much of both.
    assert_eq!((log.count(&why), log.count(&alone)), (2, 3));
    drop(other);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_know_a_node_is_told_once() -> Result<(), Box<dyn Error>> {
    const ASK: Method<u64, u64> = Method::new("paxos.Paxos/Ask");
    let (log, _guard) = Log::begin();
    let world = World::new(2)?;
    let other = Endpoint::builder().transport(world.network.transport()).node(NodeId::new(2));
    let asked = Service::new().unary(ASK, async |_: u64, _: Context| Ok::<u64, Status>(0));
    let other = other.seed(9).listen(address(2)).serve(asked).authorize(|_, _| false);
    let other = other.start().await?;
    let _node = world.start_of(CLUSTER, 1).await?;
    let why = ["node=n2", "it answers no question: n1 may not call paxos.Paxos/Ask"];
    log.told(&why).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(log.count(&why), 1);
    drop(other);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_other_members_are_gone_says_why_there_is_no_leader()
-> Result<(), Box<dyn Error>> {
    let (log, _guard) = Log::begin();
    let world = World::new(3)?;
    let [leader, follower, last] = cluster(&world).await?;
    stop(&world, leader).await?;
    stop(&world, follower).await?;
    let why = ["no leader for long: too few of the members that this node knows of answer"];
    log.told(&why).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(log.count(&["no leader for long"]), 1, "it is told once");
    drop(last);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_disk_hangs_says_why_there_is_no_leader() -> Result<(), Box<dyn Error>> {
    let (log, _guard) = Log::begin();
    let world = World::new(3)?;
    let [leader, follower, last] = cluster(&world).await?;
    world.disks[usize::try_from(last.0)? - 1].stall();
    stop(&world, leader).await?;
    log.told(&["no leader for long: the disk of this node does not write"]).await;
    log.told(&["no leader for long: too few of the members", &format!("n{}", last.0)]).await;
    assert_eq!(log.count(&["no leader for long"]), 2, "one of each node");
    drop(follower);
    Ok(())
}

//! The shop on a simulated network: what it answers and when, and what becomes of orders when
//! servers fail.

use std::collections::{BTreeMap, BTreeSet};
use std::future::IntoFuture;
use std::time::Duration;

use convoke::sim::transport::SimNetwork;
use convoke::{CallError, Cause, Code, Endpoint, NodeId, Way};
use shop::cluster::{Cluster, Role, Server};
use shop::keeper::{self, KEEPER};
use shop::proto::{
    CatalogueClient, Item, ItemId, Order, PrepareRequest, Receipt, ShopClient, StockClient, Word,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;

const ONE_WAY: Duration = Duration::from_millis(10);
const CUSTOMER: u64 = 101;

struct World {
    network: SimNetwork,
    cluster: Cluster,
    servers: BTreeMap<NodeId, Endpoint>,
    customer: Endpoint,
    disks: TempDir,
    /// Lives so far, so that no two have the same random numbers.
    lives: u64,
}

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn address(id: u64) -> String {
    format!("sim://n{id}")
}

impl World {
    /// Two fronts, two shards and three replicas, and a customer who knows the fronts.
    async fn open(seed: u64) -> Self {
        let roles = [
            (1, Role::Front),
            (2, Role::Front),
            (11, Role::Shard),
            (12, Role::Shard),
            (21, Role::Replica),
            (22, Role::Replica),
            (23, Role::Replica),
        ];
        let server = |(id, role)| Server { node: node(id), role, address: address(id) };
        let cluster = Cluster::new(roles.map(server).to_vec()).expect("they differ");
        let network = SimNetwork::new(seed);
        let fronts = [1, 2].map(|id| (node(id), address(id)));
        let customer = Endpoint::builder().transport(network.transport()).node(node(CUSTOMER));
        let customer = customer.seed(seed).peers(fronts).start().await.expect("nothing to bind");
        let disks = tempfile::tempdir().expect("a folder");
        let servers = BTreeMap::new();
        let mut world = Self { network, cluster, servers, customer, disks, lives: seed << 8 };
        // Fronts last, as they connect to the others.
        for (id, _) in roles.into_iter().rev() {
            world.start(id).await;
        }
        for front in [1, 2] {
            world.customer.warm_up(node(front)).await.expect("it listens");
        }
        world.network.default_latency(ONE_WAY);
        world
    }

    async fn start(&mut self, id: u64) {
        self.lives += 1;
        let disk = self.disks.path().join(id.to_string());
        let builder = self.cluster.endpoint(node(id), self.network.transport(), &disk);
        let started = builder.expect("it has a disk").seed(self.lives).start().await;
        self.servers.insert(node(id), started.expect("the address is free"));
    }

    fn crash(&mut self, id: u64) {
        self.network.crash(node(id));
        self.servers.remove(&node(id));
    }

    fn shop(&self) -> ShopClient {
        ShopClient::new(self.customer.client().deadline(Duration::from_secs(2)))
    }

    /// The keeper, and what it asks the shards with.
    async fn keeper(&self) -> (Endpoint, CatalogueClient) {
        let shards = [11, 12].map(|id| (node(id), address(id)));
        let builder = Endpoint::builder().transport(self.network.transport()).node(KEEPER);
        let builder = builder.seed(self.lives).peers(shards).keep_connected();
        let keeper = builder.start().await.expect("nothing to bind");
        let catalogue = CatalogueClient::new(&keeper);
        (keeper, catalogue)
    }

    async fn buy(
        &self,
        front: u64,
        order: &str,
        item: u64,
        count: u32,
    ) -> Result<Receipt, CallError> {
        let order = Order { id: order.to_owned(), item, count };
        self.shop().buy(order).to(node(front)).await
    }

    /// Another customer, who knows the first front.
    async fn customer(&self, id: u64) -> (Endpoint, ShopClient) {
        let builder = Endpoint::builder().transport(self.network.transport()).node(node(id));
        let builder = builder.seed(id).peers([(node(1), address(1))]);
        let customer = builder.start().await.expect("nothing to bind");
        let shop = ShopClient::new(&customer);
        (customer, shop)
    }

    /// Items that a search finds, with their senders and the time that it took.
    async fn search(
        &self,
        text: &str,
    ) -> (Vec<(u64, NodeId)>, Vec<(Option<NodeId>, Cause)>, Duration) {
        let begin = Instant::now();
        let call = self.shop().search(Word { text: text.into() }).to(node(1)).open();
        let (replies, outcome) = call.expect("it opens").collect().await.expect("they are items");
        let mut found: Vec<_> =
            replies.iter().map(|reply| (reply.message().id, reply.from())).collect();
        found.sort_unstable();
        let failed = outcome.failures.iter().map(|failure| (failure.node, failure.cause)).collect();
        (found, failed, begin.elapsed())
    }
}

fn gulls(ids: impl IntoIterator<Item = u64>) -> Vec<Item> {
    let item = |id| Item { id, name: format!("gull {id}"), price_cents: 100, supply: 1 };
    ids.into_iter().map(item).collect()
}

fn code(result: Result<Receipt, CallError>) -> Option<Code> {
    result.expect_err("it fails").status().map(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn a_search_is_answered_by_every_shard_and_straight_where_there_is_a_connection() {
    let world = World::open(1).await;
    let all = vec![(1, node(12)), (2, node(11)), (5, node(12))];
    // To the front, to the shards, and back the same way: the customer knows the fronts alone.
    let (found, failed, took) = world.search("heron").await;
    assert_eq!((found, failed, took), (all.clone(), vec![], 4 * ONE_WAY));
    for shard in [11, 12] {
        let shard = world.customer.peer(node(shard), address(shard)).expect("it is an address");
        world.customer.warm_up(shard).await.expect("it listens");
    }
    let (found, failed, took) = world.search("heron").await;
    assert_eq!((found, failed, took), (all, vec![], 3 * ONE_WAY));
    let call = world.shop().look(ItemId { id: 3 }).to(node(1)).open().expect("it opens");
    let item = call.first().await.expect("shard 12 has it");
    assert_eq!((item.message().name.as_str(), item.way()), ("wren, brooch", Way::Direct));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_down_is_missing_and_the_rest_is_found() {
    let mut world = World::open(2).await;
    world.crash(11);
    tokio::time::sleep(2 * ONE_WAY).await;
    let (found, failed, _) = world.search("heron").await;
    assert_eq!(found, [(1, node(12)), (5, node(12))]);
    assert_eq!(failed, [(Some(node(11)), Cause::Unreachable)]);
    let looked =
        world.shop().look(ItemId { id: 2 }).to(node(1)).await.expect_err("shard 11 has it");
    assert_eq!(looked.failure().map(|failure| failure.cause), Some(Cause::Unreachable));
    // It comes back, and the fronts find it without being told.
    world.start(11).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.search("heron").await.0.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_that_make_no_sense_are_refused() {
    let world = World::open(3).await;
    assert_eq!(code(world.buy(1, "", 1, 1).await), Some(Code::InvalidArgument));
    assert_eq!(code(world.buy(1, &"x".repeat(100), 1, 1).await), Some(Code::InvalidArgument));
    assert_eq!(code(world.buy(1, "a", 1, 0).await), Some(Code::InvalidArgument));
    assert_eq!(code(world.buy(1, "a", 99, 1).await), Some(Code::NotFound));
    assert_eq!(code(world.buy(1, "a", 1, 6).await), Some(Code::FailedPrecondition));
    let call = world.shop().search(Word::default()).to(node(1));
    assert!(call.await.is_err_and(|error| error.is_safe_to_repeat()));
}

#[tokio::test(start_paused = true)]
async fn orders_of_two_customers_may_have_one_name() {
    let world = World::open(11).await;
    let (_neighbour, shop) = world.customer(102).await;
    let order = |count| Order { id: "mine".to_owned(), item: 1, count };
    let first = world.buy(1, "mine", 1, 1).await.expect("there are some");
    let second = shop.buy(order(2)).to(node(1)).await.expect("it is another order");
    assert_eq!(second.left + 2, first.left);
    let again = shop.buy(order(2)).to(node(1)).await.expect("it was taken");
    assert_eq!(again, second);
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_the_fronts_is_for_fronts_alone() {
    let world = World::open(4).await;
    let replica = world.customer.peer(node(21), address(21)).expect("it is an address");
    let stock = StockClient::new(&world.customer);
    let denied = stock.prepare(PrepareRequest::default()).to(replica).await;
    let denied = denied.expect_err("a customer is no front");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));
    assert!(denied.is_safe_to_repeat(), "it has not run");
}

#[tokio::test(start_paused = true)]
async fn a_catalogue_is_replaced_and_outlives_its_shard() {
    let mut world = World::open(9).await;
    let (keeper, _) = world.keeper().await;
    // More items than a task may have unread.
    let loaded = keeper::load(&keeper.client(), &[node(11), node(12)], &gulls(1..=1_000)).await;
    assert_eq!(loaded.expect("both shards take theirs"), 1_000);
    assert_eq!(world.search("heron").await.0, []);
    assert_eq!(world.search("gull 77").await.0.len(), 11);
    world.crash(11);
    world.start(11).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.search("gull 770").await.0, [(770, node(11))]);
}

#[tokio::test(start_paused = true)]
async fn a_catalogue_that_breaks_off_leaves_the_old_one() {
    type Break = fn(&World);
    let breaks: [Break; 3] = [
        |world| assert!(world.network.cut(KEEPER, node(11)) > 0),
        |world| world.network.crash(KEEPER),
        // Here it is the keeper that lets go of the stream.
        |_| (),
    ];
    for (seed, breaks) in (30..).zip(breaks) {
        let world = World::open(seed).await;
        let (_keeper, catalogue) = world.keeper().await;
        let (mut upload, call) = catalogue.load().to(node(11)).open().expect("it opens");
        for item in gulls((2..=200).step_by(2)) {
            upload.send(&item).await.expect("there is room");
        }
        // All of them have arrived, and the last has not been said to be the last.
        tokio::time::sleep(5 * ONE_WAY).await;
        breaks(&world);
        drop((upload, call));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.search("gull").await.0, [], "seed {seed}");
        assert_eq!(world.search("heron").await.0.len(), 3, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_catalogue_with_an_item_that_makes_no_sense_is_refused_whole() {
    let world = World::open(10).await;
    let (keeper, catalogue) = world.keeper().await;
    let unnamed = Item { name: String::new(), ..gulls([4]).remove(0) };
    let lists = [
        ([gulls(2..3), gulls(3..4)].concat(), Code::InvalidArgument),
        ([gulls(2..3), gulls(2..3)].concat(), Code::InvalidArgument),
        ([gulls(2..3), vec![unnamed]].concat(), Code::InvalidArgument),
        (gulls((2..=20_002).step_by(2)), Code::ResourceExhausted),
    ];
    for (list, expected) in lists {
        let (mut upload, call) = catalogue.load().to(node(11)).open().expect("it opens");
        for item in &list {
            if upload.send(item).await.is_err() {
                break;
            }
        }
        upload.finish();
        let refused = call.first().await.expect_err("it is refused");
        assert_eq!(refused.status().map(|status| status.code()), Some(expected));
        assert!(refused.is_safe_to_repeat(), "{refused}");
    }
    assert_eq!(world.search("gull").await.0, []);
    // Only the keeper loads.
    let shard = world.customer.peer(node(11), address(11)).expect("it is an address");
    let (upload, call) =
        CatalogueClient::new(&world.customer).load().to(shard).open().expect("it opens");
    upload.finish();
    let denied = call.first().await.expect_err("a customer is no keeper");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));
    drop(keeper);
}

#[tokio::test(start_paused = true)]
async fn an_order_takes_four_round_trips_and_is_taken_once() {
    let world = World::open(5).await;
    let begin = Instant::now();
    let receipt = world.buy(1, "mine", 1, 2).await.expect("there are five");
    assert_eq!((receipt.count, receipt.left, receipt.price_cents), (2, 3, 25_800));
    // The customer and the front; then the shard, and two majorities.
    assert_eq!(begin.elapsed(), 8 * ONE_WAY);
    // Sent again, and through the other front: it is the same order.
    for front in [1, 2] {
        assert_eq!(world.buy(front, "mine", 1, 2).await.expect("it is taken").left, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn two_fronts_never_sell_more_than_there_is() {
    let world = World::open(6).await;
    let mut orders = JoinSet::new();
    for number in 0..8 {
        let order = Order { id: format!("order {number}"), item: 1, count: 1 };
        let call = world.shop().buy(order).to(node(1 + number % 2));
        orders.spawn(call.into_future());
    }
    let results = orders.join_all().await;
    let taken = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.into_iter().filter(Result::is_err).map(code);
    assert_eq!(taken, 5);
    assert!(refused.eq([Some(Code::FailedPrecondition); 3]));
}

#[tokio::test(start_paused = true)]
async fn the_stock_survives_one_replica_and_waits_for_the_second() {
    let mut world = World::open(7).await;
    world.crash(23);
    tokio::time::sleep(2 * ONE_WAY).await;
    assert_eq!(world.buy(1, "a", 1, 1).await.expect("two are a majority").left, 4);
    world.crash(22);
    tokio::time::sleep(2 * ONE_WAY).await;
    assert_eq!(code(world.buy(1, "b", 1, 1).await), Some(Code::Unavailable));
    // The one that knows of the first order comes back, then another: what was sold stays sold.
    world.start(22).await;
    world.crash(21);
    world.start(23).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.buy(2, "b", 1, 1).await.expect("two are there").left, 3);
    assert_eq!(world.buy(2, "a", 1, 1).await.expect("it was taken").left, 3);
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_answer_is_lost_is_taken_once_when_it_is_sent_again() {
    let world = World::open(8).await;
    // The replicas hear the front and it does not hear them, from the moment of the last message
    // on.
    let cut = async {
        tokio::time::sleep(ONE_WAY * 11 / 2).await;
        for replica in [21, 22, 23] {
            world.network.partition(node(replica), node(1));
        }
    };
    let (lost, ()) = tokio::join!(world.buy(1, "mine", 1, 2), cut);
    let lost = lost.expect_err("nobody answers the front");
    assert!(!lost.is_safe_to_repeat(), "{lost}");
    world.network.heal_all();
    let receipt = world.buy(2, "mine", 1, 2).await.expect("front 2 hears them");
    assert_eq!(receipt.left, 3, "it was taken, once");
}

/// Servers fail and come back at random times while orders are sent, and sent again.
#[tokio::test(start_paused = true)]
async fn whatever_fails_nothing_is_sold_twice_and_no_order_is_forgotten() {
    for seed in 100..110 {
        let mut world = World::open(seed).await;
        let mut confirmed = BTreeSet::new();
        let mut random = seed;
        for number in 0..12_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (victim, when) =
                ([1, 21, 22, 23][(random >> 33) as usize % 4], (random >> 40) % 80);
            let name = format!("order {}", number / 2);
            let order = world.buy(1 + number % 2, &name, 1, 1);
            let crash = async {
                tokio::time::sleep(Duration::from_millis(when)).await;
                world.network.crash(node(victim));
            };
            let (bought, ()) = tokio::join!(order, crash);
            if bought.is_ok() {
                confirmed.insert(name);
            }
            world.start(victim).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        // All is well again, and all six orders are sent once more. Five find an item.
        let mut taken = BTreeSet::new();
        for number in 0..6 {
            let name = format!("order {number}");
            match world.buy(2, &name, 1, 1).await {
                Ok(_) => drop(taken.insert(name)),
                refused => assert_eq!(code(refused), Some(Code::FailedPrecondition), "{seed}"),
            }
        }
        assert_eq!(taken.len(), 5, "seed {seed}: {taken:?}");
        assert!(confirmed.is_subset(&taken), "seed {seed}: {confirmed:?} of {taken:?}");
        assert!(confirmed.len() > 1, "seed {seed}: something has to work");
    }
}

/// The name of an order is its own: with another count it is another order, which was not taken.
#[tokio::test(start_paused = true)]
async fn an_order_sent_again_with_another_count_is_refused() {
    let world = World::open(8).await;
    let first = world.buy(1, "mine", 1, 1).await.expect("all are up");
    let again = world.buy(1, "mine", 1, 1).await.expect("it was taken");
    assert_eq!((again.count, again.left), (first.count, first.left));
    let other = world.buy(1, "mine", 1, 4).await.expect_err("it was for one");
    assert!(other.to_string().contains("was taken before, for 1"), "{other}");
}

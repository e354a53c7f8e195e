//! Clients that write and read one key at once, while replicas crash: the register is atomic. Every
//! read and write has a version, and none that begins after another has ended has an older one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use convoke::NodeId;
use convoke::sim::transport::{Action, Conditions, SimFrame};
use storage::client::Client;
use storage::form::{Form, Phases};
use storage::proto::Value;
use storage::register::Version;
use storage::simulated::Simulated;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

const KEY: &str = "bird";
const CLIENTS: u64 = 3;
const OPERATIONS: u64 = 12;

/// One that has ended well.
#[derive(Clone, Debug)]
struct Operation {
    is_write: bool,
    begun: Instant,
    ended: Instant,
    version: Version,
    value: Vec<u8>,
}

type History = Rc<RefCell<Vec<Operation>>>;

#[tokio::test(start_paused = true)]
async fn no_operation_goes_back_behind_one_that_has_ended() {
    for seed in 1..=20 {
        println!("seed {seed}");
        let history = play(seed).await;
        // Two of five replicas crash, so that a majority always answers.
        assert_eq!(history.len() as u64, CLIENTS * OPERATIONS, "seed {seed}");
        check(&history);
    }
}

async fn play(seed: u64) -> Vec<Operation> {
    let mut world = Simulated::start(seed, 5).await.expect("it starts");
    let mut clients = Vec::new();
    for index in 0..CLIENTS {
        clients.push(world.client(1_000 + index).await.expect("all live"));
    }
    draw_latencies(&world, seed);
    let (history, local) = (History::default(), LocalSet::new());
    let mut running = JoinSet::new();
    for (index, client) in (0_u64..).zip(clients) {
        let (history, form) = (history.clone(), Form::ALL[usize_of(index + seed) % 3]);
        running.spawn_local_on(operate(client, form, index + seed, history), &local);
    }
    local
        .run_until(async {
            for id in [1 + seed % 5, 1 + (seed + 2) % 5] {
                tokio::time::sleep(Duration::from_millis(40 + 20 * seed)).await;
                world.crash(id);
            }
            while let Some(ended) = running.join_next().await {
                ended.expect("every operation ends well");
            }
        })
        .await;
    history.take()
}

/// Some ways to replicas are so slow that a write is under way there while others read several
/// times.
fn draw_latencies(world: &Simulated, seed: u64) {
    let jitter = Duration::from_millis(5);
    let conditions = |latency| Conditions { latency, jitter, ..Conditions::default() };
    world.network.default_conditions(conditions(Duration::from_millis(1)));
    let mut draw = seed;
    for client in 1_000..1_000 + CLIENTS {
        for replica in 1..=5 {
            // The generator of Knuth's MMIX; its upper bits are the good ones.
            draw = draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let latency = Duration::from_millis([1, 2, 5, 100][usize_of(draw >> 62)]);
            world.network.conditions(
                NodeId::new(client),
                NodeId::new(replica),
                conditions(latency),
            );
        }
    }
}

async fn operate(client: Client, form: Form, offset: u64, history: History) {
    for turn in 0..OPERATIONS {
        let (is_write, begun) = ((turn + offset).is_multiple_of(2), Instant::now());
        let (version, value) = if is_write {
            let phases = Phases::ALL[usize_of(turn) % 3];
            let value = format!("{turn} of {}", client.endpoint().node()).into_bytes();
            let written = client.write(form, phases, KEY, &value).await;
            (written.expect("a majority lives"), value)
        } else {
            let read = client.read(KEY).await.expect("a majority lives");
            (read.version(), read.value)
        };
        let ended = Instant::now();
        history.borrow_mut().push(Operation { is_write, begun, ended, version, value });
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_has_read_of_a_write_under_way_the_next_reads_too() {
    let world = Simulated::start(1, 5).await.expect("it starts");
    let client = async |id| world.client(id).await.expect("all live");
    let (writer, one, other) = (client(1_000).await, client(1_001).await, client(1_002).await);
    // The write is at replica 1 at once and elsewhere much later. Who reads first hears of 1, 2 and
    // 3 first, who reads then of 3, 4 and 5.
    world.network.default_latency(Duration::from_millis(1));
    let slow = [(1_000, 2..=5), (1_001, 4..=5), (1_002, 1..=2)];
    for (client, replicas) in slow {
        for replica in replicas {
            world.network.latency(
                NodeId::new(client),
                NodeId::new(replica),
                Duration::from_secs(1),
            );
        }
    }
    let (key, value) = (KEY.into(), b"heron".into());
    let value = Value { key, value, timestamp: 1, writer: 1_000, ..Value::default() };
    let readers = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        [one.read(KEY).await, other.read(KEY).await].map(|read| read.expect("all live").value)
    };
    let write = writer.put(Form::Echo, Phases::None, value);
    let (written, read) = tokio::join!(write, readers);
    written.expect("all live");
    assert_eq!(read, [b"heron", b"heron"]);
}

/// A client whose write reached one replica and failed writes again, and others do: no two values
/// have one version, of which the older one could come back.
#[tokio::test(start_paused = true)]
async fn a_write_that_failed_does_not_come_back_in_the_place_of_the_next() {
    let world = Simulated::start(3, 3).await.expect("it starts");
    let client = async |id| world.client(id).await.expect("all live");
    let (writer, reader) = (client(1_000).await, client(1_001).await);
    let write = async |client: &Client, value: &[u8]| {
        client.write(Form::Echo, Phases::None, KEY, value).await
    };
    let lose = |client, replica, is_lost: fn(&SimFrame<'_>) -> bool| {
        let act =
            move |frame: &SimFrame<'_>| if is_lost(frame) { Action::Drop } else { Action::Pass };
        world.network.hook(NodeId::new(client), NodeId::new(replica), act)
    };
    // It reads from all, and its value is at replica 1 alone.
    let is_write = |frame: &SimFrame<'_>| frame.is_request_of("storage.Storage/Write");
    let lost = [2, 3].map(|replica| lose(1_000, replica, is_write));
    let failed = write(&writer.clone().deadline(Duration::from_secs(1)), b"the first").await;
    failed.expect_err("there is no majority");
    drop(lost);
    // Then by 2 and 3 alone.
    let lost = lose(1_000, 1, |_| true);
    let second = write(&writer, b"another").await.expect("two are enough");
    drop(lost);
    // And read from 1 and 2.
    let _lost = lose(1_001, 3, |_| true);
    let read = reader.read(KEY).await.expect("two are enough");
    assert_eq!((&read.value[..], read.version()), (&b"another"[..], second));
}

/// As ABD's proof has it: versions agree with the order of operations in time, writes with each
/// other, and a version is of one value.
fn check(history: &[Operation]) {
    for first in history {
        for second in history.iter().filter(|second| second.begun > first.ended) {
            let goes_on = second.version > first.version;
            let stays = second.version == first.version && !second.is_write;
            assert!(goes_on || stays, "{first:?} and then {second:?}");
        }
        for second in history.iter().filter(|second| second.version == first.version) {
            assert_eq!(first.value, second.value, "{first:?} and {second:?} have one version");
        }
    }
    let mut written: Vec<Version> =
        history.iter().filter(|one| one.is_write).map(|one| one.version).collect();
    let count = written.len();
    written.sort();
    written.dedup();
    assert_eq!(written.len(), count, "two writes have one version");
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}

//! A register on a majority of five replicas, written and read while connections are cut, members
//! partitioned and handlers slow or refusing: seeded, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Code, Context, Endpoint, Method, Service, Status};
use convoke_quorum::{All, Configuration, Majority, QuorumError, QuorumExt, Threshold, newest_of};
use convoke_sim::transport::SimNetwork;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::support::{CLIENT, HOP, addressed, endpoint, node};

const WRITE: Method<u64, u64> = Method::new("swarm.Register/Write");
const READ: Method<u64, u64> = Method::new("swarm.Register/Read").read_only();

const MEMBERS: u64 = 5;
const DEADLINE: Duration = Duration::from_millis(400);

/// Small, and the same on every system.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// One replica: its value, how often each version was written to it, and how it behaves.
#[derive(Default)]
struct Register {
    value: u64,
    writes: BTreeMap<u64, u32>,
    delay_ms: u64,
    is_refusing: bool,
    /// It refuses writes, and so falls behind.
    is_full: bool,
}

fn serve(register: &Arc<Mutex<Register>>) -> Service {
    let (written, read) = (register.clone(), register.clone());
    Service::new()
        .unary(WRITE, move |version, _: Context| {
            let register = written.clone();
            async move {
                *register.lock().writes.entry(version).or_default() += 1;
                behave(&register).await?;
                let mut register = register.lock();
                if register.is_full {
                    return Err(Status::new(Code::ResourceExhausted, "the disk is full"));
                }
                register.value = register.value.max(version);
                Ok(version)
            }
        })
        .unary(READ, move |_, _: Context| {
            let register = read.clone();
            async move {
                behave(&register).await?;
                Ok(register.lock().value)
            }
        })
}

async fn behave(register: &Mutex<Register>) -> Result<(), Status> {
    let (delay_ms, is_refusing) = {
        let register = register.lock();
        (register.delay_ms, register.is_refusing)
    };
    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
    if is_refusing { Err(Status::new(Code::Unavailable, "not now")) } else { Ok(()) }
}

struct Swarm {
    random: Random,
    network: SimNetwork,
    client: Endpoint,
    servers: Vec<Endpoint>,
    registers: Vec<Arc<Mutex<Register>>>,
    members: Configuration,
}

impl Swarm {
    async fn start(seed: u64) -> Self {
        let (network, members) = (SimNetwork::new(seed), addressed(MEMBERS));
        let registers: Vec<Arc<Mutex<Register>>> = (0..MEMBERS).map(|_| Arc::default()).collect();
        let mut servers = Vec::new();
        for (id, register) in (1..).zip(&registers) {
            let server = endpoint(&network, id).serve(serve(register)).start().await.unwrap();
            servers.push(server);
        }
        let client = endpoint(&network, CLIENT).start().await.unwrap();
        members.introduce(&client).unwrap();
        network.default_latency(HOP);
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { random, network, client, servers, registers, members }
    }

    fn member(&mut self) -> u64 {
        1 + self.random.below(MEMBERS)
    }

    fn disturb(&mut self) {
        let id = self.member();
        let at = usize::try_from(id).unwrap() - 1;
        match self.random.below(9) {
            0 => drop(self.network.cut(node(CLIENT), node(id))),
            1 => self.network.partition(node(CLIENT), node(id)),
            2 => self.network.partition(node(id), node(CLIENT)),
            3 => self.network.heal_all(),
            4 => self.registers[at].lock().delay_ms = self.random.below(600),
            5 => self.registers[at].lock().is_refusing = true,
            6 => self.registers[at].lock().is_full ^= true,
            _ => self.repair(),
        }
    }

    fn repair(&self) {
        for register in &self.registers {
            let mut register = register.lock();
            (register.delay_ms, register.is_refusing) = (0, false);
        }
    }

    /// Ends all faults.
    async fn heal(&mut self) {
        self.network.heal_all();
        self.repair();
        self.registers.iter().for_each(|register| register.lock().is_full = false);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

fn check(error: &QuorumError, seed: u64) {
    let short = error.shortfall().unwrap_or_else(|| panic!("seed {seed}: {error}"));
    let named = short.replied.len() + short.failed.len() + short.silent.len();
    assert_eq!(named, 5, "seed {seed}: everybody is accounted for: {error}");
    assert!(short.replied.len() < 3, "seed {seed}: that was a majority: {error}");
}

async fn run(seed: u64) {
    let mut swarm = Swarm::start(seed).await;
    let mut written = 0;
    let mut successes = 0;
    for version in 1..=60_u64 {
        if swarm.random.below(2) == 0 {
            swarm.disturb();
        }
        let start = Instant::now();
        let call = |request| swarm.client.invoke(request).to_all(&swarm.members);
        let write = call(WRITE.request(version)).deadline(DEADLINE).quorum(Majority).await;
        match write {
            Ok(_) => written = version,
            Err(error) => check(&error, seed),
        }
        let read = call(READ.request(0)).deadline(DEADLINE);
        let read = read.quorum(newest_of(Threshold(3), |value: &u64| *value)).await;
        match read {
            Ok(value) => {
                assert!(
                    value >= written,
                    "seed {seed}: {value} was read after {written} was written"
                );
                assert!(value <= version, "seed {seed}: nobody has written {value}");
                successes += 1;
            }
            Err(error) => check(&error, seed),
        }
        assert!(start.elapsed() <= 2 * DEADLINE, "seed {seed}: no call outlasts its deadline");
    }
    assert!(successes > 0, "seed {seed}: some reads went well");

    swarm.heal().await;
    let call = |request| swarm.client.invoke(request).to_all(&swarm.members);
    let all = call(WRITE.request(1_000)).quorum(All).await;
    assert_eq!(all.unwrap_or_else(|error| panic!("seed {seed}: {error}")).len(), 5);
    for register in &swarm.registers {
        let twice = register.lock().writes.iter().find(|(_, count)| **count > 1).map(|(v, _)| *v);
        assert_eq!(twice, None, "seed {seed}: this version was written twice to one member");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for endpoint in swarm.servers.iter().chain([&swarm.client]) {
        let load = endpoint.load();
        let held = load.calls + load.unsettled + load.tasks + load.remembered + load.stubs;
        assert_eq!((held, load.waiting), (0, 0), "seed {seed}: {load:?}");
    }
}

#[test]
fn a_register_on_a_majority_keeps_what_was_written() {
    for seed in 1..=25 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime needs nothing");
        runtime.block_on(run(seed));
    }
}

//! Replicas that do as they are told, on a simulated network or on loopback.
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::sync::Arc;
use std::time::Duration;

use convoke_core::{
    CallBuilder, Code, Context, Endpoint, EndpointBuilder, Finish, Limits, Method, NodeId, Peer,
    Service, Status, Task,
};
use convoke_quorum::Configuration;
use convoke_sim::transport::SimNetwork;
use parking_lot::Mutex;

/// Answer of a replica.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answer {
    /// Replica that answers.
    #[prost(uint64, tag = "1")]
    pub(crate) node: u64,
    /// Number that was asked, or the one that its behaviour says.
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
}

/// Answers as the replica is told to.
pub(crate) const ASK: Method<u64, Answer> = Method::new("test.Replica/Ask");
/// The same, and may run twice.
pub(crate) const REPEAT: Method<u64, Answer> = Method::new("test.Replica/Repeat").idempotent();
/// The same, and changes nothing.
pub(crate) const READ: Method<u64, Answer> = Method::new("test.Replica/Read").read_only();
/// Notes the number, in order.
pub(crate) const NOTE: Method<u64, Answer> = Method::new("test.Replica/Note").ordered();
/// Streams this many items, 10 ms apart.
pub(crate) const STREAM: Method<u64, Answer> = Method::new("test.Replica/Stream");
/// Asks all other replicas on behalf of the initiator.
pub(crate) const LEAD: Method<u64, Answer> = Method::new("test.Replica/Lead");

/// Behaviour of a replica when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Answers at once with the number asked.
    #[default]
    Reply,
    /// Answers with this number.
    Say(u64),
    /// Answers after so many milliseconds.
    After(u64),
    /// Answers with an error.
    Refuse,
    /// Answers the first time that it is not available, then well.
    Stumble,
    /// Never answers.
    Hang,
    /// Ends without an answer.
    Silent,
    /// Answers twice.
    Twice,
    /// Hands the request on to replica 9, which is no member.
    HandOn,
    /// Asks replicas 1 to 3, but itself, another number on the branch that it was given.
    Ask(u64),
    /// Hands another number on to this replica, in its own place.
    HandTo(u64, u64),
}

/// One replica, as tests see it.
#[derive(Debug)]
pub(crate) struct Replica {
    id: u64,
    behaviour: Mutex<Behaviour>,
    runs: Mutex<Vec<u64>>,
    stopped: Mutex<u64>,
}

impl Replica {
    pub(crate) fn new(id: u64) -> Arc<Self> {
        let (behaviour, runs, stopped) = Default::default();
        Arc::new(Self { id, behaviour, runs, stopped })
    }

    pub(crate) fn will(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
    }

    /// The numbers it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<u64> {
        self.runs.lock().clone()
    }

    /// Number of handlers that were dropped before they ended.
    pub(crate) fn stopped(&self) -> u64 {
        *self.stopped.lock()
    }
}

/// Counts a handler that is dropped before it ends.
struct Running<'a>(&'a Replica, bool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.1 {
            *self.0.stopped.lock() += 1;
        }
    }
}

async fn ask(replica: Arc<Replica>, number: u64, task: Task<Answer>) -> Result<Finish, Status> {
    replica.runs.lock().push(number);
    let me = replica.id;
    let mut running = Running(&replica, false);
    let behaviour = *replica.behaviour.lock();
    let answer = |number| Answer { node: me, number };
    match behaviour {
        Behaviour::Reply => task.reply(&answer(number))?,
        Behaviour::Say(other) => task.reply(&answer(other))?,
        Behaviour::After(ms) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            task.reply(&answer(number))?;
        }
        Behaviour::Refuse => {
            running.1 = true;
            return Err(Status::new(Code::FailedPrecondition, "it refuses"));
        }
        Behaviour::Stumble if replica.runs.lock().len() == 1 => {
            running.1 = true;
            return Err(Status::new(Code::Unavailable, "not yet"));
        }
        Behaviour::Stumble => task.reply(&answer(number))?,
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Silent => {}
        Behaviour::Twice => {
            task.reply(&answer(number))?;
            task.reply(&answer(number))?;
        }
        Behaviour::HandOn => {
            running.1 = true;
            return Ok(task.tail(&Peer::from(node(9)), ASK.request(number)).await?);
        }
        Behaviour::Ask(other) => {
            running.1 = true;
            let asked = (1..=3).filter(|id| *id != me);
            return task.fan_out(asked.map(|id| (node(id), ASK.request(other)))).await;
        }
        Behaviour::HandTo(to, other) => {
            running.1 = true;
            return Ok(task.tail(&Peer::from(node(to)), ASK.request(other)).await?);
        }
    }
    running.1 = true;
    Ok(task.finish())
}

/// Service of a replica.
pub(crate) fn service(replica: &Arc<Replica>, others: &Configuration) -> Service {
    let asked = |replica: &Arc<Replica>| {
        let replica = replica.clone();
        move |number: u64, task: Task<Answer>| ask(replica.clone(), number, task)
    };
    let (noting, streaming, others) = (replica.clone(), replica.clone(), others.clone());
    let leader = node(replica.id);
    Service::new()
        .tree(ASK, asked(replica))
        .tree(REPEAT, asked(replica))
        .tree(READ, asked(replica))
        .unary(NOTE, move |number, _: Context| {
            noting.runs.lock().push(number);
            let me = noting.id;
            async move { Ok(Answer { node: me, number }) }
        })
        .tree(STREAM, move |count, task: Task<Answer>| {
            let replica = streaming.clone();
            async move {
                let behaviour = *replica.behaviour.lock();
                let me = replica.id;
                let mut items = task.stream()?;
                for number in 0..count {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    items.send(&Answer { node: me, number }).await?;
                    if behaviour == Behaviour::Hang {
                        std::future::pending::<()>().await;
                    }
                }
                drop(items);
                Ok(task.finish())
            }
        })
        .tree(LEAD, move |number, task: Task<Answer>| {
            let others = others.without([leader]);
            async move {
                let members = others.members().iter();
                task.fan_out(members.map(|member| (member, ASK.request(number)))).await
            }
        })
}

/// Replicas 1 to n, and a client that is none of them.
pub(crate) struct Cluster {
    pub(crate) network: SimNetwork,
    pub(crate) client: Endpoint,
    pub(crate) endpoints: Vec<Option<Endpoint>>,
    pub(crate) replicas: Vec<Arc<Replica>>,
    pub(crate) members: Configuration,
}

/// The client's name.
pub(crate) const CLIENT: u64 = 100;

/// Time that a frame takes.
pub(crate) const HOP: Duration = Duration::from_millis(10);

pub(crate) fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn index(id: u64) -> usize {
    usize::try_from(id).expect("tests have few nodes") - 1
}

pub(crate) fn nodes(ids: impl IntoIterator<Item = u64>) -> Vec<NodeId> {
    ids.into_iter().map(node).collect()
}

pub(crate) fn addressed(count: u64) -> Configuration {
    Configuration::new((1..=count).map(|id| (id, format!("sim://n{id}")))).expect("distinct ids")
}

pub(crate) fn endpoint(network: &SimNetwork, id: u64) -> EndpointBuilder {
    let builder = Endpoint::builder().node(node(id)).transport(network.transport());
    builder.listen(format!("sim://n{id}")).seed(id)
}

impl Cluster {
    /// All connected to all, [`HOP`] apart.
    pub(crate) async fn start(count: u64) -> Self {
        Self::start_with(count, Limits::default()).await
    }

    pub(crate) async fn start_with(count: u64, limits: Limits) -> Self {
        let network = SimNetwork::new(7);
        let members = addressed(count);
        let replicas: Vec<Arc<Replica>> = (1..=count).map(Replica::new).collect();
        let mut endpoints = Vec::new();
        for (id, replica) in (1..).zip(&replicas) {
            let builder = endpoint(&network, id).serve(service(replica, &members));
            endpoints.push(Some(builder.limits(limits.clone()).start().await.expect("free name")));
        }
        let client = endpoint(&network, CLIENT).limits(limits).start().await.expect("free name");
        let cluster = Self { network, client, endpoints, replicas, members };
        for endpoint in cluster.endpoints.iter().flatten().chain([&cluster.client]) {
            cluster.members.introduce(endpoint).expect("they are addresses");
            endpoint.peer(node(CLIENT), [format!("sim://n{CLIENT}")]).expect("it is an address");
        }
        for endpoint in cluster.endpoints.iter().flatten().chain([&cluster.client]) {
            for member in &cluster.members {
                endpoint.warm_up(member).await.expect("it listens");
            }
        }
        cluster.network.default_latency(HOP);
        cluster
    }

    pub(crate) fn endpoint(&self, id: u64) -> &Endpoint {
        self.endpoints[index(id)].as_ref().expect("it was not stopped")
    }

    pub(crate) fn replica(&self, id: u64) -> &Arc<Replica> {
        &self.replicas[index(id)]
    }

    pub(crate) fn will(&self, id: u64, behaviour: Behaviour) {
        self.replica(id).will(behaviour);
    }

    /// Kills a replica's process.
    pub(crate) fn crash(&mut self, id: u64) {
        self.network.crash(node(id));
        self.endpoints[index(id)] = None;
    }

    /// A request of the client to all replicas.
    pub(crate) fn all(&self, method: Method<u64, Answer>, number: u64) -> CallBuilder<Answer> {
        self.client.call(method, number).to_all(&self.members)
    }

    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

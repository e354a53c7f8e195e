//! A cluster of members, and a client that writes to all of them.

use std::time::Duration;

use convoke_core::{
    CallError, Context, Endpoint, EndpointBuilder, Failure, Limits, Method, NodeId, Peer, Service,
    Status,
};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoError, digest_of, echo_phases};
use convoke_sim::transport::SimNetwork;
use tokio::time::Instant;

/// One way between any two nodes.
pub(crate) const DELAY: Duration = Duration::from_millis(1);

/// Stores the text and echoes it.
pub(crate) const WRITE: Method<String, String> = Method::new("test.Storage/Write");

pub(crate) const CLIENT: u64 = 1_000;

pub(crate) fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

pub(crate) fn configuration(count: u64) -> Configuration {
    Configuration::new((1..=count).map(node)).expect("they differ")
}

pub(crate) struct Cluster {
    pub(crate) network: SimNetwork,
    pub(crate) members: Configuration,
    /// By index; taken out when they crash.
    pub(crate) servers: Vec<Option<Endpoint>>,
    pub(crate) client: Endpoint,
}

pub(crate) fn builder(network: &SimNetwork, id: u64) -> EndpointBuilder {
    Endpoint::builder().transport(network.transport()).node(node(id)).seed(id)
}

pub(crate) fn address(id: u64) -> String {
    format!("sim://n{id}")
}

impl Cluster {
    /// Members 1 to `count` with what `service` makes for each, all connected to each other and to
    /// a client.
    pub(crate) async fn start(
        seed: u64,
        count: u64,
        service: impl Fn(NodeId, Configuration) -> Service,
    ) -> Self {
        Self::start_within(seed, count, Limits::default(), service).await
    }

    /// As [`Self::start`], of members with these bounds.
    pub(crate) async fn start_within(
        seed: u64,
        count: u64,
        limits: Limits,
        service: impl Fn(NodeId, Configuration) -> Service,
    ) -> Self {
        let cluster = Self::begin(seed, count, limits, service).await;
        cluster.connect().await;
        cluster.introduced().await
    }

    /// As [`Self::start`], of members that know where the others are and have dialled none.
    pub(crate) async fn start_apart(
        seed: u64,
        count: u64,
        service: impl Fn(NodeId, Configuration) -> Service,
    ) -> Self {
        Self::begin(seed, count, Limits::default(), service).await.introduced().await
    }

    async fn begin(
        seed: u64,
        count: u64,
        limits: Limits,
        service: impl Fn(NodeId, Configuration) -> Service,
    ) -> Self {
        let (network, members) = (SimNetwork::new(seed), configuration(count));
        let mut servers = Vec::new();
        for id in 1..=count {
            let service = service(node(id), members.clone());
            let server = Self::server(&network, id, count).limits(limits.clone()).serve(service);
            servers.push(Some(server.start().await.expect("the name is free")));
        }
        let client = builder(&network, CLIENT).start().await.expect("nothing to bind");
        Self { network, members, servers, client }
    }

    /// Its client is connected to all members, and frames take their time.
    async fn introduced(self) -> Self {
        self.introduce(&self.client).await;
        self.network.default_latency(DELAY);
        self
    }

    /// A server that knows where the others are.
    pub(crate) fn server(network: &SimNetwork, id: u64, count: u64) -> EndpointBuilder {
        let others = (1..=count).filter(|other| *other != id);
        let server = builder(network, id).listen(address(id));
        others.fold(server, |server, other| server.peer(node(other), [address(other)]))
    }

    /// Another client, which is connected to all members.
    pub(crate) async fn caller(&self, id: u64) -> Endpoint {
        let caller = builder(&self.network, id).start().await.expect("nothing to bind");
        self.introduce(&caller).await;
        caller
    }

    async fn introduce(&self, client: &Endpoint) {
        for peer in self.members.members() {
            let text = address(peer.node().get());
            client.peer(peer.node(), [text]).expect("it is an address");
            client.warm_up(peer).await.expect("all listen");
        }
    }

    async fn connect(&self) {
        for (at, peer) in self.members.members().iter().enumerate() {
            for server in self.servers[..at].iter().flatten() {
                server.warm_up(peer).await.expect("all listen");
            }
        }
    }

    pub(crate) fn crash(&mut self, id: u64) {
        self.network.crash(node(id));
        let at = usize::try_from(id - 1).expect("a small number");
        self.servers[at] = None;
    }

    /// A member that crashed lives again, as another life of the same name.
    pub(crate) async fn restart(&mut self, id: u64, limits: Limits) {
        let count = self.members.len() as u64;
        let again = Self::server(&self.network, id, count).seed(id + 100).limits(limits);
        let again = again.start().await.expect("the name is free again");
        let at = usize::try_from(id - 1).expect("a small number");
        self.servers[at] = Some(again.clone());
        for server in self.servers.iter().flatten().filter(|server| server.node() != node(id)) {
            again.warm_up(server.node()).await.expect("it listens");
        }
    }

    /// Writes to all members and waits for all answers: with when each came.
    pub(crate) async fn write(&self, text: &str) -> Written {
        self.write_to(text, self.members.members(), Duration::from_secs(5)).await
    }

    pub(crate) async fn write_to(&self, text: &str, to: &[Peer], deadline: Duration) -> Written {
        let begun = Instant::now();
        let request = WRITE.request(text.into()).deadline(deadline);
        let call = self.client.invoke(request).to_all(to).open();
        let mut call = call.expect("one call");
        let mut written = Written::default();
        while let Some(reply) = call.next().await {
            let after = begun.elapsed();
            match reply {
                Ok(reply) => written.replies.push((reply.from(), after)),
                Err(CallError::Branch(failure)) => written.failures.push((failure, after)),
                Err(error) => panic!("{error}"),
            }
        }
        written.replies.sort();
        written
    }

    /// Lets everything that is on its way arrive.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(100 * DELAY).await;
    }
}

/// Replies and failures that have come back, each after how long.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) replies: Vec<(NodeId, Duration)>,
    pub(crate) failures: Vec<(Failure, Duration)>,
}

/// A storage that echoes in so many phases.
pub(crate) fn storage(phases: u16) -> impl Fn(NodeId, Configuration) -> Service {
    move |_, members| {
        Service::new().unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                echo(&context, &members, phases, &text).await?;
                Ok::<_, Status>(text)
            }
        })
    }
}

pub(crate) async fn echo(
    context: &Context,
    members: &Configuration,
    phases: u16,
    text: &str,
) -> Result<(), EchoError> {
    echo_phases(context, members, phases, digest_of(text.as_bytes())).await.map(drop)
}

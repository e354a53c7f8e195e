//! Memory of servers about calls that are over, by count: long chains of servers forget them, too.
#![cfg(feature = "tcp")]

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::sync::Arc;
use std::time::Duration;

use convoke::{Endpoint, Peer};
use support::{Ask, HOPS, client, server, stop};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// The deadline of the calls: long before it makes servers forget, they must have been told.
const LONG: Duration = Duration::from_secs(120);

/// A chain of servers, and what asks the first to go along it.
struct Chain {
    servers: Vec<Endpoint>,
    client: Endpoint,
    first: Peer,
    ask: Ask,
}

impl Chain {
    const SERVERS: u64 = 5;

    /// The client has a connection to as many of them, from the first on.
    async fn new(connected: usize) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let mut servers = Vec::new();
        for node in 1..=Self::SERVERS {
            servers.push(server(node).await);
        }
        let client = client().await;
        let mut peers = Vec::new();
        for server in &servers[..connected] {
            peers.push(client.connect(server.addresses()).await?);
        }
        let route = servers[1..].iter().map(stop).collect();
        let ask = Ask { text: "along".into(), number: 0, route };
        Ok(Self { servers, client, first: peers[0], ask })
    }

    async fn go(self: Arc<Self>, times: usize) {
        for _ in 0..times {
            let request = HOPS.request(self.ask.clone());
            let call = self.client.invoke(request).deadline(LONG).to(self.first);
            let answer = call.await;
            assert_eq!(answer.expect("nobody fails").node, Self::SERVERS);
        }
    }

    /// So many calls at full rate. Then every server forgets, but for what is not worth a question.
    async fn run(self: Arc<Self>, callers: usize, calls: usize) {
        let each = calls / callers;
        let tasks: Vec<_> =
            (0..callers).map(|_| tokio::spawn(Arc::clone(&self).go(each))).collect();
        for task in tasks {
            task.await.expect("no caller panics");
        }
        let forgets = async {
            while self.servers.iter().any(|server| server.load().remembered > 64) {
                tokio::task::yield_now().await;
            }
        };
        let forgets = tokio::time::timeout(LONG / 2, forgets);
        let remembered = || self.servers.iter().map(|server| server.load()).collect::<Vec<_>>();
        assert!(forgets.await.is_ok(), "{:#?}", remembered());
    }
}

#[tokio::test]
async fn servers_of_a_chain_forget_what_is_settled_and_keep_no_stubs_if_the_client_knows_them()
-> Result {
    let chain = Arc::new(Chain::new(5).await?);
    Arc::clone(&chain).run(32, 10_000).await;
    for server in &chain.servers {
        assert_eq!((server.load().stubs, server.load().tasks), (0, 0), "{:?}", server.load());
    }
    Ok(())
}

#[tokio::test]
async fn only_servers_that_do_not_know_the_client_keep_stubs() -> Result {
    let chain = Arc::new(Chain::new(2).await?);
    Arc::clone(&chain).run(32, 10_000).await;
    let stubs: Vec<_> = chain.servers.iter().map(|server| server.load().stubs).collect();
    assert_eq!(stubs[..2], [0, 0], "they were told by the client");
    for stubs in &stubs[2..] {
        assert!((9_900..=10_000).contains(stubs), "one for each call that is over: {stubs}");
    }
    Ok(())
}

//! Kinds of calls, made over and over by so many callers.

use convoke::Endpoint;
use convoke::quorum::{Configuration, Majority, QuorumExt};

use crate::servers::{Body, ECHO, FAN, GIVE, HOP, TAKE, serve};
use crate::wire::Ends;

/// Kinds of calls that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    Quorum,
    Tree,
    Hops,
    Fan,
    Items,
    Replies,
}

/// Their names and servers.
pub(crate) const KINDS: [(&str, Kind, u64); 7] = [
    ("unary", Kind::Unary, 1),
    // A majority of four.
    ("quorum", Kind::Quorum, 4),
    // A call that five servers hand on, and five calls to one after the other.
    ("tree", Kind::Tree, 5),
    ("hops", Kind::Hops, 5),
    // A call that one server hands to four others, who all answer.
    ("fan", Kind::Fan, 5),
    // Streamed requests, and streamed replies.
    ("items", Kind::Items, 1),
    ("replies", Kind::Replies, 1),
];

/// A client and its servers.
pub(crate) struct Cluster {
    pub(crate) client: Endpoint,
    /// In the order in which calls visit them.
    pub(crate) members: Configuration,
    _servers: Vec<Endpoint>,
}

impl Cluster {
    /// Starts those of a kind, connected as its calls go.
    pub(crate) async fn start(kind: Kind, ends: Ends) -> Self {
        let (.., count) = KINDS.into_iter().find(|(_, of, _)| *of == kind).expect("all are there");
        let servers = serve(ends, count).await;
        if kind == Kind::Fan {
            // With the next one it is connected.
            for leaf in &servers[2..] {
                servers[0].connect(&leaf.addresses()[0]).await.expect("it listens");
            }
        }
        let members = Configuration::new(&servers).expect("they differ");
        let client = ends.endpoint(None).peers(&members).start();
        let client = client.await.expect("nothing to bind");
        for member in &members {
            client.warm_up(member).await.expect("it listens");
        }
        Self { client, members, _servers: servers }
    }
}

impl Kind {
    const fn is_stream(self) -> bool {
        matches!(self, Self::Items | Self::Replies)
    }

    /// So many callers at once make so many calls each, or send or take so many items.
    ///
    /// # Panics
    /// When a call fails.
    pub(crate) async fn run(self, cluster: &Cluster, callers: usize, calls_each: usize) {
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let (client, members) = (cluster.client.clone(), cluster.members.clone());
                tokio::spawn(async move {
                    if self.is_stream() {
                        return self.stream(&client, &members, calls_each).await;
                    }
                    for _ in 0..calls_each {
                        self.call(&client, &members).await;
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("no call fails");
        }
    }

    async fn call(self, client: &Endpoint, members: &Configuration) {
        let first = &members.members()[0];
        match self {
            Self::Quorum => {
                let call = client.call(ECHO, Body::visiting(0)).to_all(members);
                call.acked_by(Majority).await.expect("they answer");
            }
            Self::Tree => {
                let call = client.call(HOP, Body::visiting(5)).to(first);
                call.await.expect("the last answers");
            }
            Self::Fan => {
                let call = client.call(FAN, Body::visiting(0)).to(first).open();
                let (replies, _) = call.expect("it is opened").collect().await.expect("they come");
                assert_eq!(replies.len(), 4);
            }
            _ => {
                let visited = if self == Self::Hops { members.members() } else { &[*first] };
                for member in visited {
                    let call = client.call(ECHO, Body::visiting(0)).to(member);
                    call.await.expect("it answers");
                }
            }
        }
    }

    /// One stream of so many items.
    async fn stream(self, client: &Endpoint, members: &Configuration, count: usize) {
        let to = &members.members()[0];
        if self == Self::Items {
            let (mut items, call) = client.call_stream(TAKE).to(to).open().expect("it is opened");
            for _ in 0..count {
                items.send(&Body::visiting(0)).await.expect("it is read");
            }
            items.finish();
            assert_eq!(call.first().await.expect("it answers").into_inner(), count as u64);
        } else {
            let call = client.call(GIVE, count as u64).to(to).open();
            let (replies, _) = call.expect("it is opened").collect().await.expect("they come");
            assert_eq!(replies.len(), count);
        }
    }
}

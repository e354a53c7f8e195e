//! The generated code of `testdata/graph.proto`, run in one process.

mod social {
    include!("../../testdata/social.rs");
}

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke::{Code, Context, Endpoint, Finish, Items, NodeId, Peer, Status, Task};

use self::social::{
    Change, FriendsNamedRequest, Graph, GraphClient, GraphServer, Log, LogClient, LogServer,
    Profile, ProfileRequest, ProfilesRequest, graph, log,
};

/// Has the persons 1 to 9, all of one name, all friends of each other.
struct Shard {
    /// All of them this one.
    shards: Vec<Peer>,
}

const NODE: NodeId = NodeId::new(1);

fn profile(id: u64) -> Profile {
    let about = BTreeMap::from([("likes".to_owned(), "trees".to_owned())]);
    Profile { id, name: "Ann".to_owned(), about, kind: social::profile::Kind::Person.into() }
}

impl Graph for Shard {
    async fn profile(&self, request: ProfileRequest, _: Context) -> Result<Profile, Status> {
        match request.id {
            1..=9 => Ok(profile(request.id)),
            id => Err(Status::new(Code::NotFound, format!("no person {id}"))),
        }
    }

    async fn friends_named(
        &self,
        request: FriendsNamedRequest,
        task: Task<Profile>,
    ) -> Result<Finish, Status> {
        let name = request.name;
        let parts = [vec![2, 3], vec![4], vec![]].into_iter();
        let mut parts = parts.map(|ids| ProfilesRequest { ids, name: name.clone() });
        let part = |shard| Some((shard, graph::PROFILES.request(parts.next()?)));
        task.fan_out(self.shards.iter().filter_map(part)).await
    }

    async fn profiles(
        &self,
        request: ProfilesRequest,
        task: Task<Profile>,
    ) -> Result<Finish, Status> {
        let profiles = request.ids.into_iter().map(profile);
        for profile in profiles.filter(|profile| profile.name == request.name) {
            task.reply(&profile)?;
        }
        Ok(task.finish())
    }

    async fn home(&self, request: ProfileRequest, task: Task<Profile>) -> Result<Finish, Status> {
        // A task is a client, too, and so is its context.
        let count = GraphClient::new(&task).r#match("Ann".to_owned()).to(NODE).await?;
        let own = GraphClient::new(task.context()).profile(request).to(NODE).await?;
        if count < own.id {
            return Err(Status::new(Code::NotFound, "nobody has that many friends"));
        }
        Ok(task.tail(self.shards[0], graph::PROFILE.request(request)).await?)
    }

    async fn changes(&self, (): (), task: Task<Change>) -> Result<Finish, Status> {
        stream(&task, [1, 2, 3]).await?;
        Ok(task.finish())
    }

    async fn befriend(&self, _: Change, _: Context) -> Result<(), Status> {
        Ok(())
    }

    async fn r#match(&self, name: String, _: Context) -> Result<u64, Status> {
        Ok(if name == "Ann" { 9 } else { 0 })
    }

    async fn new_(&self, _: ProfileRequest, _: Context) -> Result<(), Status> {
        Err(Status::new(Code::Unimplemented, "deprecated"))
    }
}

impl Log for Shard {
    async fn append(&self, _: Change, _: Context) -> Result<(), Status> {
        Ok(())
    }

    async fn load(&self, mut changes: Items<Change>, _: Context) -> Result<u64, Status> {
        let mut count = 0;
        while let Some(change) = changes.next().await {
            count += change?.from;
        }
        Ok(count)
    }

    async fn follow(
        &self,
        mut changes: Items<Change>,
        task: Task<Change>,
    ) -> Result<Finish, Status> {
        let mut appended = task.stream()?;
        while let Some(change) = changes.next().await {
            appended.send(&change?).await?;
        }
        drop(appended);
        Ok(task.finish())
    }

    async fn clone_(&self, (): (), task: Task<Change>) -> Result<Finish, Status> {
        stream(&task, [7]).await?;
        Ok(task.finish())
    }
}

async fn stream(task: &Task<Change>, ids: impl IntoIterator<Item = u64>) -> Result<(), Status> {
    let mut stream = task.stream()?;
    for from in ids {
        stream.send(&Change { from, to: 0 }).await?;
    }
    Ok(())
}

async fn start() -> Endpoint {
    let shard = Arc::new(Shard { shards: vec![NODE.into(); 3] });
    let builder = Endpoint::builder().node(NODE).serve(GraphServer::from_arc(shard.clone()));
    builder.serve(LogServer::from_arc(shard)).start().await.unwrap()
}

async fn stop(endpoint: Endpoint) {
    assert!(endpoint.shutdown(Duration::from_secs(10)).await, "something still runs");
}

#[tokio::test]
async fn a_unary_method_answers() {
    let endpoint = start().await;
    let client = GraphClient::new(&endpoint);
    let answer = client.profile(ProfileRequest { id: 7 }).to(endpoint.me()).await.unwrap();
    assert_eq!(answer, profile(7));
    let count = client.r#match("Ann".to_owned()).to(endpoint.me()).await.unwrap();
    assert_eq!(count, 9);
    let change = Change { from: 1, to: 2 };
    client.befriend(change).to(endpoint.me()).await.unwrap();
    LogClient::new(&endpoint).append(change).to(endpoint.me()).await.unwrap();
    stop(endpoint).await;
}

#[tokio::test]
async fn a_tree_without_a_stream_is_answered_once_by_whoever_has_it() {
    let endpoint = start().await;
    let client = GraphClient::new(&endpoint);
    let call = client.home(ProfileRequest { id: 7 }).to(endpoint.me()).open().unwrap();
    let (replies, outcome) = call.collect().await.unwrap();
    assert!(outcome.is_complete());
    assert!(matches!(&replies[..], [reply] if *reply.message() == profile(7)));
    stop(endpoint).await;
}

#[tokio::test]
async fn a_unary_method_fails_with_its_status() {
    let endpoint = start().await;
    let client = GraphClient::new(&endpoint);
    let error = client.profile(ProfileRequest { id: 10 }).to(endpoint.me()).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::new(Code::NotFound, "no person 10")));
    stop(endpoint).await;
}

#[tokio::test]
async fn a_tree_method_delegates_to_another_by_its_constant() {
    let endpoint = start().await;
    let request = FriendsNamedRequest { id: 1, name: "Ann".to_owned() };
    let call = GraphClient::new(&endpoint).friends_named(request).to(endpoint.me()).open().unwrap();
    let (replies, outcome) = call.collect().await.unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    let mut ids: Vec<_> = replies.iter().map(|reply| reply.message().id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [2, 3, 4]);
    assert!(replies.iter().all(|reply| reply.path().level_count() == 2), "{replies:?}");
    stop(endpoint).await;
}

#[tokio::test]
async fn a_method_that_returns_a_stream_streams() {
    let endpoint = start().await;
    let call = GraphClient::new(&endpoint).changes(()).to(endpoint.me()).open().unwrap();
    let (items, outcome) = call.collect().await.unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    let seen: Vec<_> = items.iter().map(|item| (item.item(), item.message().from)).collect();
    assert_eq!(seen, [(Some(0), 1), (Some(1), 2), (Some(2), 3)]);
    let copy = LogClient::new(&endpoint).clone().clone_(()).to(endpoint.me()).await.unwrap();
    assert_eq!(copy, Change { from: 7, to: 0 });
    stop(endpoint).await;
}

#[tokio::test]
async fn a_streamed_request_is_sent_item_by_item() {
    let endpoint = start().await;
    let client = LogClient::new(&endpoint);
    let (mut changes, call) = client.load().to(endpoint.me()).open().unwrap();
    for from in 1..=9 {
        changes.send(&Change { from, to: 0 }).await.unwrap();
    }
    changes.finish();
    assert_eq!(call.first().await.unwrap().into_inner(), 45);
    let (mut changes, mut call) = client.follow().to(endpoint.me()).open().unwrap();
    for from in 1..=9 {
        changes.send(&Change { from, to: 0 }).await.unwrap();
        let reply = call.next().await.unwrap().unwrap();
        assert_eq!(reply.message().from, from);
    }
    changes.finish();
    assert!(call.outcome().await.is_complete());
    stop(endpoint).await;
}

#[test]
fn options_and_names_are_those_of_the_file() {
    assert_eq!(graph::PROFILE.name(), "social.Graph/Profile");
    assert_eq!(graph::MATCH.name(), "social.Graph/Match");
    assert!(graph::PROFILE.is_read_only() && !graph::PROFILE.is_ordered());
    assert!(graph::FRIENDS_NAMED.is_read_only());
    assert!(graph::BEFRIEND.is_ordered() && !graph::BEFRIEND.is_read_only());
    assert!(!graph::PROFILES.is_ordered() && !graph::PROFILES.is_read_only());
    assert!(log::APPEND.is_ordered() && log::CLONE.is_ordered());
}

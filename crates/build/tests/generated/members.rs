//! The generated code of `testdata/storage.proto`, run by four members and a client on a
//! simulated network.

mod replicated {
    include!("../../testdata/replicated.rs");
}

mod support;

use std::time::Duration;

use convoke::quorum::{
    All, Configuration, Majority, MemberError, QuorumError, Retry, Threshold, newest_of,
};
use convoke::{Code, Endpoint, StartError};
use tokio::time::Instant;

use self::replicated::{
    Key, Rumours, RumoursClient, RumoursServer, StorageServer, Stored, storage,
};
use self::support::{Cluster, Register, configuration, entry, key, node};

#[tokio::test(start_paused = true)]
async fn what_is_written_with_no_one_or_two_phases_is_read_from_a_majority() {
    let cluster = Cluster::start().await;
    let replicas = cluster.at_members();
    replicas.write(entry("heron", 1)).acked_by(Majority).await.unwrap();
    let stored = replicas.write_echo(entry("stork", 2)).acked_by(Majority).await.unwrap();
    assert_eq!(stored, Stored { version: 2 });
    let stored = replicas.write_echo_echo(entry("crane", 3)).acked_by(Majority).await.unwrap();
    assert_eq!(stored, Stored { version: 3 });
    for (name, version) in [("heron", 1), ("stork", 2), ("crane", 3)] {
        let newest = newest_of(Majority, |entry: &replicated::Entry| entry.version);
        let read = replicas.read(key(name)).quorum(newest).await.unwrap();
        assert_eq!(read, entry(name, version));
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_phase_takes_one_delay_more() {
    let cluster = Cluster::start().await;
    let replicas = cluster.at_members();
    let mut delays = Vec::new();
    for phases in 0..=2 {
        let begun = Instant::now();
        match phases {
            0 => replicas.write(entry("heron", 1)).acked_by(All).await.unwrap(),
            1 => drop(replicas.write_echo(entry("heron", 2)).acked_by(All).await.unwrap()),
            _ => drop(replicas.write_echo_echo(entry("heron", 3)).acked_by(All).await.unwrap()),
        }
        delays.push(begun.elapsed().as_millis() / support::DELAY.as_millis());
    }
    assert_eq!(delays, [2, 3, 4]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_crashed_member_of_four_does_not_matter() {
    let mut cluster = Cluster::start().await;
    cluster.crash(2);
    let stored = cluster.at_members().write_echo_echo(entry("heron", 1)).acked_by(Majority).await;
    assert_eq!(stored.unwrap(), Stored { version: 1 });
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_phase_without_a_quorum_names_itself_and_the_missing_members() {
    let mut cluster = Cluster::start().await;
    cluster.crash(2);
    cluster.crash(3);
    let begun = Instant::now();
    let call = cluster.at_members().write_echo(entry("heron", 1)).open().unwrap();
    let (stored, failed) = call.collect().await;
    assert_eq!(stored, []);
    assert_eq!(failed.len(), 4, "{failed:?}");
    for id in [1, 4] {
        let (_, error) = failed.iter().find(|(member, _)| *member == node(id)).unwrap();
        let failure = error.failure().unwrap();
        assert_eq!(Code::from_number(failure.code), Code::Unavailable);
        assert!(failure.text.starts_with("echo phase 0 (echo) has"), "{failure}");
        assert!(failure.text.ends_with("down are n2, n3"), "{failure}");
        // The handler has run before.
        assert_eq!(cluster.register(id).read("heron"), entry("heron", 1));
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "at once, not at the deadline");
    let error =
        cluster.at_members().write_echo(entry("heron", 2)).acked_by(Majority).await.unwrap_err();
    let missing: Vec<_> = error.missing().collect();
    assert!(missing.contains(&node(2)) && missing.contains(&node(3)), "{error}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_handler_fails_does_not_vote() {
    let cluster = Cluster::start().await;
    cluster.register(1).refuse();
    let stored = cluster.at_members().write_echo(entry("heron", 1)).acked_by(Threshold(3)).await;
    assert_eq!(stored.unwrap(), Stored { version: 1 }, "three are a majority");
    cluster.register(2).refuse();
    let write = cluster.at_members().write_echo(entry("stork", 1)).deadline(support::SOON);
    let (stored, failed) = write.open().unwrap().collect().await;
    assert_eq!((stored, failed.len()), (Vec::new(), 4));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn members_that_were_told_different_things_do_not_answer() {
    let cluster = Cluster::start().await;
    let branches = cluster.members.members().iter().map(|member| {
        let version = member.node().get() % 2;
        (member, storage::WRITE_ECHO.request(entry("heron", version)))
    });
    let mut call = cluster.client.fan_out(branches).open().unwrap();
    let mut texts = Vec::new();
    while let Some(reply) = call.next().await {
        texts.push(reply.unwrap_err().to_string());
    }
    assert_eq!(texts.len(), 4);
    assert!(texts.iter().all(|text| text.contains("the votes are split")), "{texts:?}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_ordered_handler_starts_while_the_phases_of_the_one_before_are_open() {
    let cluster = Cluster::start().await;
    for id in [3, 4] {
        cluster.register(id).hang();
    }
    let replicas = cluster.at_members();
    let first = replicas.append(entry("first", 1)).open().unwrap();
    let second = replicas.append(entry("second", 1)).open().unwrap();
    cluster.settle().await;
    assert_eq!((first.replied_count(), second.replied_count()), (0, 0));
    assert_eq!(cluster.register(1).log(), ["first", "second"]);
    assert_eq!(cluster.register(3).log(), ["first"], "handlers are ordered all the same");
    drop((first, second));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_another_epoch_is_refused_before_the_handler_runs() {
    let cluster = Cluster::start_in_epoch(2).await;
    let later = cluster.members.with_epoch(3);
    let error = cluster.storage.on(&later).write_echo(entry("heron", 1)).acked_by(Majority).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("the request is for epoch 3, and this node echoes in epoch 2"), "{text}");
    assert!((1..=4).all(|id| cluster.register(id).read("heron").version == 0));
    let now = cluster.storage.on(&cluster.members.with_epoch(2));
    now.write_echo(entry("heron", 1)).acked_by(Majority).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn multicasts_reach_all_members_and_ordered_ones_in_order() {
    let cluster = Cluster::start().await;
    let replicas = cluster.at_members();
    replicas.forget(key("heron")).send().await.unwrap();
    replicas.forget(key("stork")).send_and_forget().unwrap();
    replicas.hint(key("crane")).deadline(support::SOON).send().await.unwrap();
    cluster.settle().await;
    for id in 1..=4 {
        let (hints, forgotten): (Vec<_>, Vec<_>) =
            cluster.register(id).log().into_iter().partition(|line| line.starts_with("hint"));
        assert_eq!(forgotten, ["heron", "stork"], "they are ordered");
        assert_eq!(hints, ["hint crane"]);
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_members_carry_metadata_of_their_own() {
    let cluster = Cluster::start().await;
    let replicas = cluster.at_members();
    let write = replicas.write_echo(entry("heron", 1)).metadata("by", "echo");
    write.acked_by(All).await.unwrap();
    replicas.read(key("heron")).metadata("by", "quorum").acked_by(All).await.unwrap();
    replicas.hint(key("heron")).metadata("by", "multicast").send().await.unwrap();
    cluster.settle().await;
    for id in 1..=4 {
        let log = cluster.register(id).log();
        assert_eq!(log, ["by echo", "by quorum", "by multicast", "hint heron"]);
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_multicast_says_to_whom_it_was_not_sent() {
    let mut cluster = Cluster::start().await;
    cluster.crash(3);
    cluster.settle().await;
    let error = cluster.at_members().forget(key("heron")).send().await.unwrap_err();
    assert!(error.to_string().starts_with("1 of 4 requests were not sent"), "{error}");
    cluster.settle().await;
    assert_eq!(cluster.register(4).log(), ["heron"]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn members_reply_in_the_tree_of_one_that_is_asked() {
    let cluster = Cluster::start().await;
    cluster.at_members().write(entry("heron", 7)).acked_by(All).await.unwrap();
    let root = cluster.members.members()[0];
    let collect = cluster.at_members().collect(key("heron"), root);
    let newest = newest_of(All, |entry: &replicated::Entry| entry.version);
    let decided = collect.quorum(newest).detailed().await.unwrap();
    assert_eq!(decided.value, entry("heron", 7));
    assert_eq!(decided.answered, cluster.members);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn members_may_stream() {
    let cluster = Cluster::start().await;
    let replicas = cluster.at_members();
    for version in 1..=2 {
        replicas.write(entry("heron", version)).acked_by(All).await.unwrap();
    }
    let (histories, failed) = replicas.history(key("heron")).open().unwrap().collect().await;
    assert_eq!(failed, []);
    let versions: Vec<_> = histories.iter().map(|(_, last)| last.version).collect();
    assert_eq!(versions, [2; 4], "the last item of each");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_echoes_is_not_asked_twice() {
    let cluster = Cluster::start().await;
    let write = cluster.at_members().write_echo(entry("heron", 1)).retry(Retry::times(1));
    let error = write.acked_by(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::NotIdempotent { .. }), "{error}");
    assert!(storage::WRITE.is_idempotent() && !storage::WRITE.is_read_only());
    assert!(storage::READ.is_idempotent() && storage::READ.is_read_only());
    assert!(!storage::APPEND.is_idempotent() && storage::APPEND.is_ordered());
    cluster.stop().await;
}

/// Refusal of node 1, when it is to serve a storage with these members.
async fn refusal(members: Option<Configuration>) -> String {
    let server = StorageServer::new(Register::default());
    let server = match members {
        Some(members) => server.members(members),
        None => server,
    };
    let builder = Endpoint::builder().node(node(1)).serve(server);
    let error = builder.start().await.unwrap_err();
    assert!(matches!(error, StartError::Unfit { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_server_that_is_not_told_its_members_does_not_start() {
    let expected = "a service does not fit this node: replicated.Storage has echo phases: say \
                    among whom by `StorageServer::members`";
    assert_eq!(refusal(None).await, expected);
}

#[tokio::test]
async fn a_server_among_whose_members_it_is_not_does_not_start() {
    let others = configuration().without([node(1)]);
    let expected = "a service does not fit this node: replicated.Storage/WriteEcho echoes among \
                    {n2, n3, n4}, and n1 is none of them";
    assert_eq!(refusal(Some(others)).await, expected);
    let nobody = configuration().without((1..=4).map(node));
    let text = refusal(Some(nobody)).await;
    assert!(
        text.starts_with("a service does not fit this node: replicated.Storage/WriteEcho: "),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_only_multicasts_needs_no_members() {
    struct Nobody;

    impl Rumours for Nobody {
        async fn tell(&self, _: Key, _: convoke::Context) -> Result<(), convoke::Status> {
            Ok(())
        }
    }

    let server = RumoursServer::new(Nobody);
    let endpoint = Endpoint::builder().node(node(1)).serve(server).start().await.unwrap();
    let alone = Configuration::new([node(1)]).unwrap();
    let rumours = RumoursClient::new(&endpoint);
    rumours.on(&alone).tell(key("heron")).send().await.unwrap();
    rumours.tell(key("heron")).to(endpoint.me()).await.unwrap();
    assert!(endpoint.shutdown(Duration::from_secs(10)).await, "something still runs");
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_says_who_refused() {
    let cluster = Cluster::start().await;
    (1..=4).for_each(|id| cluster.register(id).refuse());
    let error = cluster.at_members().write(entry("heron", 1)).acked_by(Majority).await.unwrap_err();
    let refused = error.failed(|error| matches!(error, MemberError::Failed(_))).count();
    assert!(refused >= 2, "two of four make a majority impossible: {error}");
    cluster.stop().await;
}

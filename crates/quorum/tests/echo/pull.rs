//! Values pulled from those who voted for them, some of whom lie or say nothing.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Context, Digest, Method, Service, Status};
use convoke_quorum::echo::{Payloads, PullError, digest_of};

use crate::support::{Cluster, node};

const VALUE: &[u8] = &[7; 100_000];

/// Members 1 and 2 have no store, 3 answers with another value, 4 and 5 have the value.
async fn cluster() -> (Cluster, Payloads) {
    let holder = Payloads::new(1 << 20);
    holder.insert(Bytes::from_static(VALUE)).expect("it has room");
    let shared = holder.clone();
    let cluster = Cluster::start(5, 5, move |me, _| match me.get() {
        3 => liar(),
        4 | 5 => shared.service(),
        _ => Service::new(),
    });
    (cluster.await, holder)
}

/// Never answers.
fn silent() -> Service {
    const PULL: Method<(), ()> = Method::new("convoke.Echo/Pull");
    Service::new().unary(PULL, |(), _: Context| std::future::pending::<Result<(), Status>>())
}

/// Answers every question after a value with one of another digest.
fn liar() -> Service {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Value {
        #[prost(bytes = "bytes", tag = "1")]
        bytes: Bytes,
    }
    const PULL: Method<Value, Value> = Method::new("convoke.Echo/Pull");
    let lie = |_: Value, _: Context| async {
        Ok::<_, Status>(Value { bytes: Bytes::from_static(b"lie") })
    };
    Service::new().unary(PULL, lie)
}

async fn pull(cluster: &Cluster, from: &[u64]) -> Result<(Bytes, Vec<u64>), PullError> {
    let endpoint = cluster.servers[0].as_ref().expect("it lives");
    let members = from.iter().map(|id| node(*id));
    let payloads = Payloads::new(1 << 20);
    let digest = digest_of(VALUE);
    let pulled = payloads.pull(endpoint, digest, members, Duration::from_secs(5)).await?;
    assert_eq!(payloads.get(digest), Some(pulled.value.clone()), "it is kept");
    Ok((pulled.value, pulled.liars.iter().map(|node| node.get()).collect()))
}

#[tokio::test(start_paused = true)]
async fn the_next_is_asked_when_one_lies_has_nothing_or_is_silent() {
    let (cluster, _holder) = cluster().await;
    cluster.network.partition(node(4), node(1));
    let value = Bytes::from_static(VALUE);
    assert_eq!(pull(&cluster, &[1, 2, 3, 4, 5]).await, Ok((value.clone(), vec![3])));
    assert_eq!(pull(&cluster, &[5]).await, Ok((value, vec![])));
}

#[tokio::test(start_paused = true)]
async fn one_after_many_silent_ones_is_asked_before_the_deadline() {
    let holder = Payloads::new(1 << 20);
    holder.insert(Bytes::from_static(VALUE)).expect("it has room");
    let shared = holder.clone();
    let cluster = Cluster::start(5, 8, move |me, _| match me.get() {
        8 => shared.service(),
        _ => silent(),
    });
    let cluster = cluster.await;
    let begun = tokio::time::Instant::now();
    let pulled = pull(&cluster, &[2, 3, 4, 5, 6, 7, 8]).await;
    assert_eq!(pulled, Ok((Bytes::from_static(VALUE), vec![])));
    assert!(begun.elapsed() < Duration::from_millis(1_300), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_give_the_value_is_named() {
    let (cluster, _holder) = cluster().await;
    let not_given = |asked: &[u64], liars: &[u64]| {
        let nodes = |ids: &[u64]| ids.iter().map(|id| node(*id)).collect();
        let (asked, liars) = (nodes(asked), nodes(liars));
        Err(PullError::NotGiven { digest: digest_of(VALUE), asked, liars })
    };
    assert_eq!(pull(&cluster, &[2, 3]).await, not_given(&[2, 3], &[3]));
    assert_eq!(pull(&cluster, &[3]).await, not_given(&[3], &[3]));
    let nobody = Err(PullError::Nobody { digest: digest_of(VALUE) });
    assert_eq!(pull(&cluster, &[1]).await, nobody, "oneself is not asked");
}

#[tokio::test(start_paused = true)]
async fn what_is_here_is_not_asked_for() {
    let (cluster, holder) = cluster().await;
    let endpoint = cluster.servers[0].as_ref().expect("it lives");
    let digest = holder.insert(Bytes::from_static(b"heron")).expect("it has room");
    assert_ne!(digest, Digest::ZERO);
    let pulled = holder.pull(endpoint, digest, [], Duration::from_secs(1)).await;
    assert_eq!(pulled.map(|pulled| pulled.value), Ok(Bytes::from_static(b"heron")));
}

#[tokio::test(start_paused = true)]
async fn when_all_who_may_have_it_are_down_that_is_told_at_once() {
    let (mut cluster, _holder) = cluster().await;
    cluster.crash(4);
    cluster.crash(5);
    cluster.settle().await;
    let begun = tokio::time::Instant::now();
    let (digest, down) = (digest_of(VALUE), vec![node(4), node(5)]);
    let no_holder = PullError::NoHolder { digest, down, liars: vec![node(3)] };
    assert_eq!(pull(&cluster, &[3, 4, 3, 5]).await, Err(no_holder), "named twice or not");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Over a path of 3 Mbit/s a value of 1 MiB takes 2.8 s: nobody is asked to begin it anew.
#[tokio::test(start_paused = true)]
async fn a_large_value_comes_over_a_slow_path() {
    let value = Bytes::from(vec![7; 1 << 20]);
    let holder = Payloads::new(8 << 20);
    let digest = holder.insert(value.clone()).expect("it has room");
    let shared = holder.clone();
    let cluster = Cluster::start(7, 4, move |_, _| shared.service()).await;
    for id in 2..=4 {
        cluster.network.uplink(node(id), 3_000);
    }
    for count in 1..=3 {
        let begun = tokio::time::Instant::now();
        let members = (2..2 + count).map(node);
        let pulling = Payloads::new(8 << 20);
        let pulled = pulling.pull(&cluster.client, digest, members, Duration::from_secs(10)).await;
        assert_eq!(pulled.map(|pulled| pulled.value), Ok(value.clone()), "{count} have it");
        assert!(begun.elapsed() < Duration::from_secs(4), "{count}: {:?}", begun.elapsed());
    }
}

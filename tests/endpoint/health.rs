//! Health of a node and its services, asked for over real sockets.

#![cfg(feature = "tcp")]

use std::time::Duration;

use convoke::health::{CHECK, Health, HealthReply, HealthRequest, ServingState, WATCH};
use convoke::transport::TcpTransport;
use convoke::{Call, Code, Endpoint, Peer};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

async fn pair(health: &Health) -> Result<(Endpoint, Endpoint, Peer)> {
    let builder = || Endpoint::builder().transport(TcpTransport::new());
    let server = builder().listen("tcp://127.0.0.1:0").health(health).start().await?;
    let client = builder().start().await?;
    let peer = client.connect(server.addresses()).await?;
    Ok((server, client, peer))
}

async fn check(client: &Endpoint, peer: &Peer, service: &str) -> Result<ServingState> {
    let request = CHECK.request(HealthRequest::of(service));
    Ok(client.invoke(request).to(peer).await?.state())
}

async fn next(watch: &mut Call<HealthReply>) -> Result<Option<ServingState>> {
    Ok(watch.next().await.transpose()?.map(|reply| reply.message().state()))
}

#[tokio::test]
async fn a_node_serves_until_it_says_otherwise_and_knows_only_what_it_was_told() -> Result {
    let health = Health::new();
    let (_server, client, peer) = pair(&health).await?;
    assert_eq!(check(&client, &peer, "").await?, ServingState::Serving);
    let request = CHECK.request(HealthRequest::of("shop.Shop"));
    let unknown = client.invoke(request).to(peer).await.expect_err("nobody said it");
    assert_eq!(unknown.status().map(|status| status.code()), Some(Code::NotFound));

    health.set("shop.Shop", ServingState::Serving);
    assert_eq!(check(&client, &peer, "shop.Shop").await?, ServingState::Serving);
    health.set("shop.Shop", ServingState::NotServing);
    assert_eq!(check(&client, &peer, "shop.Shop").await?, ServingState::NotServing);
    assert_eq!(check(&client, &peer, "").await?, ServingState::Serving, "the node itself does");
    Ok(())
}

#[tokio::test]
async fn who_watches_is_told_the_state_now_and_each_change() -> Result {
    let health = Health::new();
    let (_server, client, peer) = pair(&health).await?;
    let request = WATCH.request(HealthRequest::of("shop.Shop"));
    let mut watch = client.invoke(request).to(peer).open()?;
    assert_eq!(next(&mut watch).await?, Some(ServingState::ServiceUnknown));
    health.set("shop.Shop", ServingState::Serving);
    assert_eq!(next(&mut watch).await?, Some(ServingState::Serving));
    // What is no change, and what is another's, is not told.
    health.set("shop.Shop", ServingState::Serving);
    health.set("bank.Bank", ServingState::Serving);
    health.set("shop.Shop", ServingState::NotServing);
    assert_eq!(next(&mut watch).await?, Some(ServingState::NotServing));
    Ok(())
}

#[tokio::test]
async fn a_node_that_shuts_down_says_so_first_and_does_not_wait_for_who_watches() -> Result {
    let health = Health::new();
    health.set("shop.Shop", ServingState::Serving);
    let (server, client, peer) = pair(&health).await?;
    let request = WATCH.request(HealthRequest::of("shop.Shop"));
    let mut watch = client.invoke(request).to(peer).open()?;
    assert_eq!(next(&mut watch).await?, Some(ServingState::Serving));
    assert!(server.shutdown(Duration::from_secs(60)).await, "nothing else runs");
    assert_eq!(next(&mut watch).await?, Some(ServingState::NotServing));
    assert_eq!(next(&mut watch).await?, None, "the stream has ended");
    assert!(watch.outcome().await.is_complete());
    assert_eq!(health.state(""), Some(ServingState::NotServing));
    health.set("shop.Shop", ServingState::Serving);
    assert_eq!(health.state("shop.Shop"), Some(ServingState::NotServing), "it is for good");
    Ok(())
}

#[tokio::test]
async fn an_application_may_stop_before_it_shuts_down_and_still_serve() -> Result {
    let health = Health::new();
    let (server, client, peer) = pair(&health).await?;
    health.stop();
    assert_eq!(check(&client, &peer, "").await?, ServingState::NotServing);
    assert!(server.shutdown(Duration::from_secs(60)).await);
    Ok(())
}

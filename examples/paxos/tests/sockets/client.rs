//! A program of one's own as a client.

use std::error::Error;

use convoke::NodeId;
use convoke::quorum::Configuration;
use node_kit::ledger::Ledger;
use node_kit::processes::Ports;
use paxos::client::{Client, Options};
use paxos::node::{self, Node};

#[tokio::test]
async fn what_was_written_is_read_and_swapped() -> Result<(), Box<dyn Error>> {
    let (cluster, seed, id) = (7, 3, NodeId::new(1));
    let ports = Ports::reserve(1)?;
    let address = format!("tcp://127.0.0.1:{}", ports[0]);
    let members = Configuration::new([(id, address.as_str())])?;
    let options = node::Options::new(cluster, id, members.clone(), seed);
    let builder = convoke::endpoint().listen(address.as_str());
    let node = Node::start(options, (Ledger::in_memory(), None), builder).await?;
    let endpoint = convoke::endpoint().peers(&members).start().await?;

    let mut client = Client::new(&endpoint, &members, Options::new(cluster, seed));
    client.put("k", "a").await?;
    let swapped = client.cas("k", Some("a".into()), "b").await?; // Ok(()), or Err(what is there)
    assert_eq!(client.get("k").await?, Some("b".into()));

    assert_eq!(swapped, Ok(()));
    node.stop(std::time::Duration::from_secs(5)).await?;
    Ok(())
}

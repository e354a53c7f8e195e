//! Four members in one process, over TCP on loopback. The fourth lies.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use console::say;
use convoke::quorum::Configuration;
use convoke::quorum::echo::Payloads;
use convoke::{Endpoint, NodeId};
use tokio::time::timeout;

use crate::liar;
use crate::node::{Delivery, Member};

const FAULTY: usize = 1;

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the demo, and says what happens.
///
/// # Errors
/// When the members do not behave as they must.
pub async fn run() -> Result<()> {
    let members = Configuration::new((1..=4).map(NodeId::new))?;
    let (endpoints, stores) = start(&members).await?;
    let (liars, honest) = endpoints.split_last().context("there are four")?;
    let mut correct = Vec::new();
    for (endpoint, payloads) in honest.iter().zip(&stores) {
        correct.push(Member::start(endpoint, &members, FAULTY, payloads)?);
    }

    say("Four members, of whom n4 lies: it votes both ways, then sends two values. It takes a \
         second or two.\n")?;
    say("n1 broadcasts \"heron\", n4 votes both ways")?;
    let source = honest[0].node();
    liar::vote_both_ways(liars, source, &members, 0, "heron")?;
    correct[0].broadcast(0, Bytes::from_static(b"heron"))?;
    for delivery in deliver(&mut correct).await? {
        ensure!(delivery.value == "heron" && delivery.source == source, "{delivery:?}");
    }

    say("n4 sends \"left\" to n1 and n2, \"right\" to n3")?;
    liar::send_two_values(liars, &members, 0, ["left", "right"])?;
    let delivered = deliver(&mut correct).await?;
    ensure!(delivered.iter().all(|delivery| delivery.value == delivered[0].value), "they differ");
    for endpoint in endpoints {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    say("\nThe three correct members delivered the same both times, whatever the liar said.")
}

async fn start(members: &Configuration) -> Result<(Vec<Endpoint>, Vec<Payloads>)> {
    let (mut endpoints, mut stores): (Vec<Endpoint>, Vec<Payloads>) = Default::default();
    for node in members.nodes() {
        let payloads = Payloads::new(1 << 20).shared(members.len());
        let endpoint = convoke::endpoint().node(node).listen("tcp://127.0.0.1:0");
        let endpoint = endpoint.serve(payloads.service()).start().await?;
        for earlier in &endpoints {
            endpoint.connect(earlier.addresses()).await?;
        }
        endpoints.push(endpoint);
        stores.push(payloads);
    }
    Ok((endpoints, stores))
}

/// The next delivery of each correct member.
async fn deliver(correct: &mut [Member]) -> Result<Vec<Delivery>> {
    let mut delivered = Vec::new();
    for (at, member) in correct.iter_mut().enumerate() {
        let next = timeout(PATIENCE, member.next()).await?;
        let delivery = next.context("the member has ended")?;
        let value = String::from_utf8_lossy(&delivery.value);
        let liars: Vec<NodeId> = delivery.evidence.iter().map(|evidence| evidence.node).collect();
        let (member, source) = (at + 1, delivery.source);
        say(format_args!("  n{member} delivers {value:?} of {source}; voted twice: {liars:?}"))?;
        delivered.push(delivery);
    }
    Ok(delivered)
}

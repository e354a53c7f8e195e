//! The end of a node whose actor has ended: what it has said last leaves, and its ledger is closed.

use std::time::Duration;

use convoke::Endpoint;
use tokio::time::Instant;

use crate::ledger::{Ledger, LedgerError};

/// Ends a node: at the latest three seconds later for the endpoint, and then at `deadline` for the
/// ledger, which has a second at least. Where the actor has `ended` by a failure the ledger is left
/// as it is.
///
/// # Errors
/// That of the actor, or of the ledger: [`LedgerError::NotInTime`] where its disk hangs.
pub async fn finish<E: From<LedgerError>>(
    ended: Result<(), E>,
    endpoint: &Endpoint,
    ledger: &Ledger,
    deadline: Instant,
) -> Result<(), E> {
    endpoint.clone().shutdown(ENDPOINT_WITHIN).await;
    ended?;
    ledger.close_by(deadline.max(Instant::now() + LEDGER_WITHIN)).await?;
    Ok(())
}

/// Time of the endpoint. A peer that hangs takes two seconds of it: in one it is waited for whether
/// it has sent more, in another whether it reads what is left. Last answers to others leave
/// meanwhile.
const ENDPOINT_WITHIN: Duration = Duration::from_secs(3);

/// Time in which the ledger is closed, at least.
const LEDGER_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use convoke::sim::transport::SimNetwork;
    use convoke::{Context, Method, NodeId, Service, Status};
    use tokio::sync::Notify;

    use super::*;

    const READ: Method<String, String> = Method::new("node.Node/Read");
    const NODE: NodeId = NodeId::new(1);
    const HUNG: NodeId = NodeId::new(2);
    const CLIENT: NodeId = NodeId::new(3);
    const ADDRESS: &str = "sim://node";

    /// The answer takes longer than the second in which the node waits for the peer that hangs.
    #[tokio::test(start_paused = true)]
    async fn the_last_answer_leaves_though_a_peer_hangs() {
        let network = SimNetwork::new(7);
        let builder = |node| Endpoint::builder().transport(network.transport()).node(node);
        let has_read = Arc::new(Notify::new());
        let read = {
            let has_read = Arc::clone(&has_read);
            move |_: String, _: Context| {
                has_read.notify_one();
                async { Ok::<_, Status>("x".repeat(150_000)) }
            }
        };
        let node = builder(NODE).listen(ADDRESS).serve(Service::new().unary(READ, read));
        let node = node.start().await.expect("it listens");
        let hung = builder(HUNG).start().await.expect("it starts");
        let client = builder(CLIENT).start().await.expect("it starts");
        for endpoint in [&hung, &client] {
            let peer = endpoint.peer(NODE, ADDRESS).expect("it is an address");
            endpoint.warm_up(peer).await.expect("it connects");
        }

        network.uplink(NODE, 800); // 1.5 s for the answer
        network.partition(NODE, HUNG);
        network.partition(HUNG, NODE);
        let asked = client.call(READ, "all".into()).to(NODE);
        let asked = tokio::spawn(async move { asked.await.map(|answer| answer.len()) });
        has_read.notified().await;
        let ended = Ok::<(), LedgerError>(());
        let begun = Instant::now();
        finish(ended, &node, &Ledger::in_memory(), begun).await.expect("it is closed");
        tokio::task::yield_now().await;
        assert!(asked.is_finished(), "whoever ends the process now takes back what has not left");
        assert_eq!(asked.await.expect("it runs").expect("it is answered"), 150_000);
        assert!(begun.elapsed() > Duration::from_secs(1), "the answer was on its way for longer");
    }
}

//! Keeps the flows to a site open. Of two sites the lower one dials.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::seam::{SUBSCRIBER, dial_over};
use convoke_core::transport::{Address, DialError, Sink};
use rand::RngExt as _;

use crate::site::Site;

use super::{Driver, State};

/// The pause after a dial that failed: doubled each time, up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A flow that ends sooner counts as a dial that failed: the other end takes the connection and
/// then refuses what comes by it, such as from a site that is not one of its own.
const STEADY: Duration = Duration::from_secs(5);

/// Dials while there are too few, until the overlay is closed.
pub(super) async fn keep_flows(driver: Arc<Driver>, site: Site) {
    let mut backoff = BACKOFF.0;
    loop {
        let mut changed = Box::pin(driver.dialling.notified());
        changed.as_mut().enable();
        // Not before: whoever closes it wakes those who wait already.
        let (is_closed, lived, missing) = driver.with_quietly(|state| {
            let flows = &mut state.flows[site.index()];
            let is_missing = flows.len() < driver.flows_per_site;
            let address = state.addresses[site.index()].clone().filter(|_| is_missing);
            (state.is_closed, flows.take_lived(), address)
        });
        if is_closed {
            return;
        }
        let was_unsteady = match lived {
            Some(lived) if lived < STEADY => true,
            Some(_) => {
                backoff = BACKOFF.0;
                false
            }
            None => false,
        };
        let Some(address) = missing else {
            changed.await;
            continue;
        };
        if was_unsteady || !dial(&driver, site, &address).await {
            let jittered = rand::rng().random_range(backoff / 2..=backoff);
            tokio::select! {
                () = tokio::time::sleep(jittered) => {}
                () = moved(&driver, site, &address) => {}
            }
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }
}

/// Dials a site. True when a flow was opened.
async fn dial(driver: &Arc<Driver>, site: Site, address: &Address) -> bool {
    let node = driver.nodes[site.index()];
    let sink: Arc<dyn Sink> = driver.clone();
    let Some(transport) = driver.transport(address).cloned() else {
        SUBSCRIBER.call(|| {
            tracing::error!(
                %address,
                "no transport of the endpoint has the scheme of this site's address"
            );
        });
        return false;
    };
    let dialled = dial_over(&transport, address, Some(node), sink).await;
    let Err(error) = &dialled else { return true };
    SUBSCRIBER.call(|| match error {
        // It is there, and time alone does not help: such as when its sites are others.
        DialError::Handshake { .. } | DialError::WrongNode { .. } => {
            tracing::warn!(%node, %error, "a site refuses its flows");
        }
        _ => tracing::debug!(%node, %error, "a site cannot be dialled"),
    });
    false
}

/// Resolves once the site is to be dialled elsewhere, or the overlay is closed.
async fn moved(driver: &Driver, site: Site, address: &Address) {
    loop {
        let mut changed = Box::pin(driver.dialling.notified());
        changed.as_mut().enable();
        let is_same = |state: &mut State| {
            !state.is_closed && state.addresses[site.index()].as_ref() == Some(address)
        };
        if !driver.with_quietly(is_same) {
            return;
        }
        changed.await;
    }
}

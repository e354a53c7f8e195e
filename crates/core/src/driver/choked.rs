//! Casts that found no room at a connection that was full: they are lost, and their readers are
//! told once it has room again, so that they say them again to a member that was only slow.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use crate::transport::{Connection, Lane};

use super::{Driver, FlushScope};

/// Least time from a cast that found no room until the readers are told. All of them look then, and
/// a member that reads little by little must not have them do so all the time. A connection whose
/// room is taken by others is writable, too, and yet takes nothing.
const PAUSE: Duration = Duration::from_millis(50);

impl Driver {
    /// Tells the readers of a core once a connection that had no room for a cast has some again.
    pub(super) fn tell_of_room(&self, core: usize, connection: Arc<dyn Connection>) {
        let driver = self.me.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(PAUSE).await;
            poll_fn(|cx| connection.poll_writable(Lane::Data, cx)).await;
            let Some(driver) = driver.upgrade() else { return };
            let link = connection.link();
            let scope = FlushScope::enter();
            driver.with_core(core, |core, now, _| {
                let Some(id) = core.connections().id(link.peer.node, link.nonce) else { return };
                let Some(attached) = core.connections_mut().get_mut(id) else { return };
                attached.is_choked = false;
                core.node.handle_writable(now);
            });
            driver.end_scope(scope);
        });
    }
}

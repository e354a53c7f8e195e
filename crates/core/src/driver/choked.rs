//! Acts that wait until a connection that was full has room again.
//!
//! Casts that found none are lost, and their readers are told, so that they say them again to a
//! member that was only slow. Replies that have credit wait in their tasks, and go on.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use crate::transport::{Connection, Lane};

use super::{Driver, FlushScope};

/// Least time from a cast that found no room until the readers are told. All of them look then, and
/// a member that reads little by little must not have them do so all the time. A connection whose
/// room is taken by others is writable, too, and yet takes nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// Kinds of what a connection had no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choked {
    Casts,
    Replies,
}

impl Driver {
    /// Tells the node of a core once a connection has room again for what waits or was lost.
    pub(super) fn tell_of_room(&self, core: usize, what: Choked, connection: Arc<dyn Connection>) {
        let driver = self.me.clone();
        self.runtime.spawn(async move {
            if what == Choked::Casts {
                tokio::time::sleep(PAUSE).await;
            }
            poll_fn(|cx| connection.poll_writable(Lane::Data, cx)).await;
            let Some(driver) = driver.upgrade() else { return };
            let link = connection.link();
            let scope = FlushScope::enter();
            driver.with_core(core, |core, now, _| {
                let Some(id) = core.connections().id(link.peer.node, link.nonce) else { return };
                let Some(attached) = core.connections_mut().get_mut(id) else { return };
                match what {
                    Choked::Casts => {
                        attached.is_choked = false;
                        core.node.handle_writable(now);
                    }
                    Choked::Replies => {
                        attached.is_awaited = false;
                        core.node.handle_room(now, id);
                    }
                }
            });
            driver.end_scope(scope);
        });
    }
}

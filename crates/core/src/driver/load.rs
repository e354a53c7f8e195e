//! Load of an endpoint, for those who look after its memory.

use super::Driver;
use super::cores::Core;
use super::waiting::WaitingParts;

/// Counts of what an endpoint holds at one moment; see [`Endpoint::load`](crate::Endpoint::load).
///
/// All of it is bounded by [`Limits`](crate::Limits), and all but
/// [`connections`](Self::connections) and [`nodes`](Self::nodes) falls to zero by itself in an
/// endpoint that is neither asked nor asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Calls of this node that are open, or have ended and are held: a [`Call`](crate::Call) counts
    /// until it is dropped.
    pub calls: usize,
    /// Calls of this node that have ended, of which something may still be on its way: until each
    /// of their tasks has said that it is over, at the latest `keep_alive_timeout` after their
    /// deadline.
    pub unsettled: usize,
    /// Tasks that run here, or whose replies wait for credit.
    pub tasks: usize,
    /// Finished tasks, cancel marks and the like, remembered so that no request runs twice: until
    /// their initiator says that their calls are settled, at the latest `keep_alive_timeout` after
    /// their deadline.
    pub remembered: usize,
    /// Finished tasks of initiators that this node shares no connection with, of which only enough
    /// is left to refuse a copy of their request.
    pub stubs: usize,
    /// Calls and tags that casts are about: read by somebody, waiting for it, or with casts still
    /// to come late.
    pub mailboxes: usize,
    /// Handlers that are to be told something: that wait for credit, for casts or for their turn,
    /// or can be stopped.
    pub waiting: usize,
    /// Connections that are open.
    pub connections: usize,
    /// Nodes of which anything is known, such as an address.
    pub nodes: usize,
}

impl Driver {
    pub(crate) fn load(&self) -> Load {
        let mut load = Load { waiting: self.gates.lock().waiting_count(), ..Load::default() };
        for core in self.cores.each() {
            let (calls, tasks) = (core.node.initiator(), core.node.visits());
            load.calls += calls.call_count();
            load.unsettled += calls.winding_count();
            load.tasks += tasks.running_count();
            load.remembered += tasks.remembered_count();
            load.stubs += tasks.stub_count();
            load.mailboxes += core.node.mailboxes().count();
            load.waiting += core.waiting();
            // All know the same.
            load.connections = core.connections().len();
            load.nodes = load.nodes.max(core.node.links().known_count());
        }
        load
    }
}

impl Core {
    fn waiting(&self) -> usize {
        let parts: usize = self.parts.values().map(WaitingParts::count).sum();
        parts + self.item_wakers.len() + self.mail_wakers.len() + self.stoppers.len()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;
    use crate::{Context, Endpoint, Limits, Method, Service, Status};

    const NEVER: Method<String, String> = Method::new("test.Test/Never");

    #[tokio::test(start_paused = true)]
    async fn a_call_is_counted_at_both_its_ends_until_nothing_of_it_can_still_come() {
        let never = |_: String, _: Context| pending::<Result<String, Status>>();
        let service = Service::new().unary(NEVER, never);
        let endpoint = Endpoint::builder().serve(service).start().await.expect("nothing to bind");
        assert_eq!(endpoint.load(), Load::default());

        let deadline = Duration::from_secs(1);
        let call = endpoint.call(NEVER, String::new()).deadline(deadline);
        let call = call.to(endpoint.me()).open();
        let mut call = call.expect("it is the only one");
        let waits = tokio::time::timeout(Duration::ZERO, call.next()).await;
        assert!(waits.is_err());
        let load = endpoint.load();
        assert_eq!((load.calls, load.tasks, load.stubs), (1, 1, 0), "{load:?}");
        // The handler, which may have to be stopped.
        assert_eq!((load.waiting, load.unsettled), (1, 0), "{load:?}");

        drop(call);
        let load = endpoint.load();
        assert_eq!((load.calls, load.tasks, load.waiting), (0, 0, 0), "{load:?}");
        // Its only task has said that it was stopped, which settles the call long before its
        // deadline.
        assert_eq!(load.unsettled, 0, "{load:?}");

        tokio::time::sleep(deadline + Limits::default().keep_alive_timeout).await;
        tokio::task::yield_now().await;
        assert_eq!(endpoint.load(), Load::default());
    }
}

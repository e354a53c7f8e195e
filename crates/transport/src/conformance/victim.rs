//! A node that others attack.

use std::sync::Arc;

use bytes::Bytes;

use super::Setup;
use super::recorder::Recorder;
use crate::{Address, CloseReason, Connection, Lane, Listener};

/// A node under attack, number 1, with an honest one, number 2, connected to it.
#[derive(Debug)]
pub struct Victim {
    setup: Setup,
    /// Sink of the victim.
    pub sink: Arc<Recorder>,
    /// Listener of the victim.
    pub listener: Box<dyn Listener>,
    /// Sink of the honest node.
    pub honest: Arc<Recorder>,
    /// The honest node's connection.
    pub to_victim: Arc<dyn Connection>,
}

impl Victim {
    /// A victim with the listening end of `setup`; honest nodes have the dialling one.
    pub async fn new(setup: Setup) -> Self {
        Self::with(setup, Recorder::new(1)).await
    }

    /// A victim with this sink.
    pub async fn with(setup: Setup, sink: Recorder) -> Self {
        let (sink, honest) = (Arc::new(sink), Arc::new(Recorder::new(2)));
        let listener = setup.listen(&sink).await;
        let to_victim = setup.dial(&*listener, &honest).await.expect("the honest one is let in");
        Self { setup, sink, listener, honest, to_victim }
    }

    /// Address of the victim.
    pub fn address(&self) -> Address {
        self.listener.local_address()
    }

    /// Asserts that the honest connection still carries frames, that new ones are accepted, and
    /// that the sinks were told everything in turn.
    pub async fn lives_on(self) {
        let nonce = self.to_victim.link().nonce;
        let count = self.sink.frame_count(nonce);
        self.to_victim
            .append_bytes(Lane::Data, &[], Bytes::from_static(b"alive?"))
            .expect("the honest connection is open");
        self.to_victim.flush();
        self.sink.frames(nonce, count + 1).await;
        let late = Arc::new(Recorder::new(3));
        let to_victim = self.setup.dial(&*self.listener, &late).await.expect("it still accepts");
        for (sink, connection) in [(&late, to_victim), (&self.honest, self.to_victim)] {
            connection.close(CloseReason::Local);
            sink.closed(connection.link().nonce).await;
            self.sink.closed(connection.link().nonce).await;
            sink.check();
        }
        self.sink.check();
    }
}

//! Direct broadcast: one connection to each other site and a copy over each, paced by nothing.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use convoke_core::id::{Incarnation, NodeId};
use convoke_core::transport::{
    Address, CloseReason, Connection, Hello, Lane, Link, Listener, NotWritable, Received, Sink,
    Transport,
};
use convoke_transport_tcp::TcpTransport;
use parking_lot::Mutex;

use super::record::Recorder;
use super::{Broadcast, ByIndex, Options};

#[derive(Debug)]
pub(crate) struct Direct {
    node: Arc<Node>,
    transport: TcpTransport,
    listener: Box<dyn Listener>,
    index: u16,
}

#[derive(Debug)]
struct Node {
    name: NodeId,
    recorder: Arc<Recorder>,
    /// Dialled by this site, which sends over them; it receives over those that others dialled.
    peers: Mutex<ByIndex<Arc<dyn Connection>>>,
}

impl Direct {
    pub(crate) async fn listen(options: &Options, recorder: Arc<Recorder>) -> anyhow::Result<Self> {
        let name = NodeId::new(u64::from(options.index) + 1);
        let node = Arc::new(Node { name, recorder, peers: Mutex::default() });
        let transport = transport(options)?;
        let address: Address = options.listen.parse()?;
        let listener = transport.listen(&address, Arc::clone(&node) as _).await?;
        Ok(Self { node, transport, listener, index: options.index })
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_address().to_string()
    }

    /// Says goodbye to all others, once they have what was sent.
    pub(crate) async fn close(&self) {
        let peers = std::mem::take(&mut *self.node.peers.lock());
        for peer in peers.values() {
            peer.close(CloseReason::Local);
            std::future::poll_fn(|cx| peer.poll_flush(cx)).await;
        }
    }

    /// Dials all others.
    pub(crate) async fn connect(&self, addresses: &[String]) -> anyhow::Result<()> {
        for (index, address) in (0_u16..).zip(addresses).filter(|(index, _)| *index != self.index) {
            let address: Address = address.parse()?;
            let expected = Some(NodeId::new(u64::from(index) + 1));
            let dialled = self.transport.dial(&address, expected, Arc::clone(&self.node) as _);
            let connection = dialled.await.with_context(|| format!("dialling site {index}"))?;
            self.node.peers.lock().insert(index, connection);
        }
        Ok(())
    }
}

/// The transport of the lab's sites.
pub(crate) fn transport(options: &Options) -> anyhow::Result<TcpTransport> {
    Ok(TcpTransport::builder().data_window_bytes(options.window_bytes).build()?)
}

impl Broadcast for Direct {
    async fn broadcast(&self, payload: Bytes) -> anyhow::Result<()> {
        let peers: Vec<_> = self.node.peers.lock().values().cloned().collect();
        for peer in &peers {
            std::future::poll_fn(|cx| peer.poll_writable(Lane::Data, cx)).await;
            match peer.append_bytes(Lane::Data, &[], payload.clone()) {
                Ok(_) => peer.flush(),
                Err(NotWritable::Closed) => {
                    anyhow::bail!("the connection to {} is closed", peer.link().peer.node)
                }
                Err(error) => return Err(error).context("a writable connection takes a frame"),
            }
        }
        Ok(())
    }
}

impl Sink for Node {
    fn hello(&self) -> Hello {
        Hello {
            node: self.name,
            incarnation: Incarnation(self.name.get()),
            advertised: Vec::new(),
            frame_bytes_max: 1 << 20,
        }
    }

    fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
        Ok(())
    }

    fn on_batch(
        &self,
        _: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        frames.for_each(|frame| self.recorder.delivered(&frame.bytes));
        Ok(())
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        if !matches!(reason, CloseReason::Local | CloseReason::Peer(_)) {
            eprintln!("{} lost {}: {reason}", self.name, link.peer.node);
        }
    }
}

//! Broadcast over the trees of a plan: the overlay as users have it, over the same transport as the
//! direct form.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use convoke_core::{Endpoint, NodeId};
use convoke_overlay::{Delivery, HoseModel, Overlay, PlanOptions};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::clock::{now_ns, sleep_until_ns};
use super::record::{HEAD_BYTES, Head, Recorder};
use super::{Broadcast, Options, direct};
use crate::protocol::{Answer, Came, Model, PART_NS, Window};

/// An overlay for one plan.
#[derive(Debug)]
pub(crate) struct OverTrees {
    overlay: Overlay,
    endpoint: Endpoint,
    reader: JoinHandle<()>,
    came: AllCame,
    index: u16,
}

/// Operations that have come, by run and source.
type AllCame = Arc<Mutex<BTreeMap<(u32, u16), Came>>>;

impl OverTrees {
    /// Starts this site's part, which listens.
    pub(crate) async fn listen(
        options: &Options,
        model: &Model,
        recorder: Arc<Recorder>,
    ) -> anyhow::Result<Self> {
        let transport = direct::transport(options)?;
        let endpoint = Endpoint::builder().node(node(options.index)?).transport(transport);
        let endpoint = endpoint.start().await?;
        let headroom = PlanOptions::new().headroom_permille(model.headroom_permille);
        let mut builder = Overlay::builder(&endpoint)
            .listen(&options.listen)
            .model(model.to_hose())
            .plan_options(headroom)
            .flows_per_site(options.flows)
            .without_requests();
        for site in 0..options.sites {
            builder = builder.site_without_address(node(site)?);
        }
        let overlay = builder.start().await?;
        let came = AllCame::default();
        let reader = tokio::spawn(read(overlay.clone(), recorder, came.clone()));
        Ok(Self { overlay, endpoint, reader, came, index: options.index })
    }

    pub(crate) fn address(&self) -> anyhow::Result<String> {
        let address = self.overlay.addresses().first().context("it listens")?;
        Ok(address.to_string())
    }

    /// Waits until all others can be reached.
    pub(crate) async fn connect(&self, addresses: &[String]) -> anyhow::Result<()> {
        for (site, address) in (0_u16..).zip(addresses) {
            self.overlay.introduce(node(site)?, address)?;
        }
        self.overlay.connected().await;
        Ok(())
    }

    /// Broadcasts at the rate of the window until it ends, and waits until all who live have
    /// everything.
    pub(crate) async fn offer(&self, window: &Window) -> anyhow::Result<Answer> {
        let before = self.overlay.counters().resent_bytes;
        let mut sent = Vec::new();
        if let Some(every_ns) = window.every_ns() {
            let mut offered_ns = window.start_ns;
            while offered_ns < window.until_ns {
                sleep_until_ns(offered_ns).await;
                let head = Head { run: window.run, source: self.index, offered_ns };
                let payload = head.payload(window.op_bytes.max(HEAD_BYTES));
                sent.push(self.overlay.broadcast(payload).await?);
                offered_ns += every_ns;
            }
        }
        for broadcast in &sent {
            broadcast.settled().await;
        }
        let resent_bytes = self.overlay.counters().resent_bytes - before;
        Ok(Answer::Offered { operations: sent.len() as u64, resent_bytes })
    }

    /// Operations of each site that have come in a run.
    pub(crate) fn came(&self, run: u32) -> BTreeMap<u16, Came> {
        let came = self.came.lock();
        let of_run = came.range((run, 0)..=(run, u16::MAX));
        of_run.map(|((_, site), came)| (*site, came.clone())).collect()
    }

    pub(crate) async fn close(self) {
        self.overlay.shutdown(CLOSE_GRACE).await;
        self.reader.abort();
        self.endpoint.shutdown(CLOSE_GRACE).await;
    }
}

/// How long the last operations may take to be acknowledged.
const CLOSE_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

async fn read(overlay: Overlay, recorder: Arc<Recorder>, came: AllCame) {
    while let Some(delivery) = overlay.next().await {
        match delivery {
            Delivery::Operation { op, payload } => {
                recorder.delivered(&payload);
                if let Some(head) = Head::of(&payload) {
                    let took_us = now_ns().saturating_sub(head.offered_ns) / 1_000;
                    let mut came = came.lock();
                    let came = came.entry((head.run, op.source.0)).or_default();
                    came.operations += 1;
                    let worst = came.worst_us.entry(head.offered_ns / PART_NS).or_default();
                    *worst = took_us.max(*worst);
                }
            }
            gap => eprintln!("site {:?} misses something: {gap:?}", overlay.site()),
        }
    }
}

fn node(site: u16) -> anyhow::Result<NodeId> {
    Ok(NodeId::new(u64::from(site) + 1))
}

impl Broadcast for OverTrees {
    async fn broadcast(&self, payload: Bytes) -> anyhow::Result<()> {
        self.overlay.broadcast(payload).await?;
        Ok(())
    }
}

impl Model {
    fn to_hose(&self) -> HoseModel {
        HoseModel {
            uplink: self.uplink.clone(),
            downlink: self.downlink.clone(),
            latency_us: self.latency_us.clone(),
            demand: self.demand.clone(),
            epoch: 1,
        }
    }
}

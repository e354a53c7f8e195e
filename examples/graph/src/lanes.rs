//! `graph lanes`: a query frame by frame, over lanes of time, as shards that call each other and
//! wait, and as a call tree.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::Result;
use charts::{Kind, Message, Panel};
use convoke::sim::transport::{Action, SimFrame};
use convoke::{CallId, NodeId};
use tokio::time::Instant;

use crate::cluster::shard_node;
use crate::forms::{Client, Form};
use crate::query::Query;
use crate::simulated::Simulated;
use crate::store::{Graph, Sharding};

/// A request or a reply, when it arrived.
struct Seen {
    kind: Kind,
    call: Option<CallId>,
    from: NodeId,
    to: NodeId,
    came: Duration,
}

/// Lanes of a query in one of the forms, each frame `one_way` on its way. The clock of the runtime
/// has to be paused.
///
/// # Errors
/// The query fails.
pub async fn record(
    graph: &Graph,
    sharding: Sharding,
    (query, id): (Query, i64),
    form: Form,
    one_way: Duration,
) -> Result<Panel> {
    let Simulated { network, client, .. } = &Simulated::start(graph, sharding, one_way).await?;
    let (start, (sender, seen)) = (Instant::now(), channel());
    let hook = network.hook_all(move |frame| note(frame, start, &sender));
    client.ask(form, query, id).await?;
    let end = start.elapsed();
    drop(hook);
    Ok(panel(client, seen, one_way, end))
}

fn note(frame: &SimFrame<'_>, start: Instant, seen: &Sender<Seen>) -> Action {
    let kind = match frame.name() {
        "REQUEST" => Some(Kind::Request),
        "REPLY" => Some(Kind::Reply),
        _ => None,
    };
    if let Some(kind) = kind {
        let (from, to, call) = (frame.from(), frame.to(), frame.call());
        // Nobody listens once the query is over.
        let _ = seen.send(Seen { kind, call, from, to, came: start.elapsed() });
    }
    Action::Pass
}

/// Lanes with what was seen: the client above the shards. A shard is busy from a request to the
/// last that it sends for the same call.
fn panel(client: &Client, seen: Receiver<Seen>, one_way: Duration, end: Duration) -> Panel {
    let shards = client.peers().len();
    let lanes: BTreeMap<NodeId, usize> =
        (0..shards).map(|index| (shard_node(index), index + 1)).collect();
    let lane = |node: &NodeId| lanes.get(node).copied().unwrap_or(0);
    let mut panel =
        Panel { end: millis(end), busy: vec![(0, 0.0, millis(end))], ..Panel::default() };
    panel.lanes.push("client".into());
    panel.lanes.extend((0..shards).map(|index| format!("shard {index}")));
    let mut open: BTreeMap<(Option<CallId>, NodeId), usize> = BTreeMap::new();
    for Seen { kind, call, from, to, came } in seen {
        let left = came.saturating_sub(one_way);
        if let Some(busy) = open.get(&(call, from)) {
            panel.busy[*busy].2 = millis(left);
        }
        if kind == Kind::Request {
            open.insert((call, to), panel.busy.len());
            panel.busy.push((lane(&to), millis(came), millis(came)));
        }
        let (left, came) = ((lane(&from), millis(left)), (lane(&to), millis(came)));
        panel.messages.push(Message { kind, left, came });
    }
    panel
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

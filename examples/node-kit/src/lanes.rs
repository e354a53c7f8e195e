//! Frames of nodes on a simulated network as lanes over time: who sent what to whom, when it came,
//! and for how long each node was busy with it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use charts::{Kind, Message, Panel};
use convoke::sim::transport::{Action, SimFrame, SimNetwork};
use convoke::{CallId, NodeId};
use tokio::time::Instant;

/// A request, a reply or a cast, when it arrived.
struct Seen {
    kind: Kind,
    call: Option<CallId>,
    from: NodeId,
    to: NodeId,
    came: Duration,
}

/// Records what a client has these nodes do, each frame `one_way` on its way. The lane of the
/// client is above those of the nodes. The clock of the runtime has to be paused.
///
/// # Errors
/// Those of what is run.
pub async fn record<T, E>(
    network: &SimNetwork,
    nodes: &[(NodeId, String)],
    one_way: Duration,
    run: impl Future<Output = Result<T, E>>,
) -> Result<Panel, E> {
    let (start, (sender, seen)) = (Instant::now(), channel());
    let hook = network.hook_all(move |frame| note(frame, start, &sender));
    run.await?;
    let end = start.elapsed();
    // What had left by then arrives, though nobody waits for it any more.
    tokio::time::sleep(one_way).await;
    drop(hook);
    Ok(panel(nodes, &seen, one_way, end))
}

fn note(frame: &SimFrame<'_>, start: Instant, seen: &Sender<Seen>) -> Action {
    let kind = match frame.name() {
        "REQUEST" => Some(Kind::Request),
        "REPLY" => Some(Kind::Reply),
        "CAST" => Some(Kind::Cast),
        _ => None,
    };
    if let Some(kind) = kind {
        let (from, to, call) = (frame.from(), frame.to(), frame.call());
        // Nobody listens once the run is over.
        let _ = seen.send(Seen { kind, call, from, to, came: start.elapsed() });
    }
    Action::Pass
}

/// Lanes with what was seen. A node is busy from a request to the last that it sends for the same
/// call.
fn panel(
    nodes: &[(NodeId, String)],
    seen: &Receiver<Seen>,
    one_way: Duration,
    end: Duration,
) -> Panel {
    let lanes: BTreeMap<NodeId, usize> = nodes.iter().map(|(node, _)| *node).zip(1..).collect();
    let lane = |node: &NodeId| lanes.get(node).copied().unwrap_or(0);
    let mut panel =
        Panel { end: millis(end), busy: vec![(0, 0.0, millis(end))], ..Panel::default() };
    panel.lanes.push("client".into());
    panel.lanes.extend(nodes.iter().map(|(_, name)| name.clone()));
    let mut open: BTreeMap<(Option<CallId>, NodeId), usize> = BTreeMap::new();
    while let Ok(Seen { kind, call, from, to, came }) = seen.try_recv() {
        let left = came.saturating_sub(one_way);
        if left >= end {
            continue;
        }
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

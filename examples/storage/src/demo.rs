//! `storage demo`: the executions that the paper draws, played by real processes.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use convoke::quorum::{Decided, Majority, MemberError, QuorumError};
use convoke::{Cause, NodeId};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::form::{Form, Phases};
use crate::processes::{Processes, Setup};
use crate::proto::{StorageClient, Value, WriteResponse};

/// Much longer than anything here takes, so that an error before it did not come from it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A write with one echo phase, and what came of it.
#[derive(Debug)]
pub struct Scene {
    /// Title of what is played.
    pub title: &'static str,
    /// The decision; with those who had answered and failed by then.
    pub decided: Result<Decided<WriteResponse>, QuorumError>,
    /// When it was there.
    pub after: Duration,
    /// Replicas that have answered in the end.
    pub answered: BTreeSet<NodeId>,
    /// Replicas that were lost, in the end.
    pub lost: BTreeSet<NodeId>,
    /// Words of those who could not answer well, though they live.
    pub refused: Vec<(NodeId, String)>,
    /// Replicas that store the value, of those who live.
    pub stored: BTreeSet<NodeId>,
}

/// Name of a replica in the paper.
fn name(node: NodeId) -> String {
    const NAMES: [&str; 4] = ["p", "q", "r", "s"];
    let name = usize::try_from(node.get() - 1).ok().and_then(|index| NAMES.get(index));
    name.map_or_else(|| node.to_string(), |name| format!("{name} ({node})"))
}

fn names<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    let names: Vec<String> = nodes.into_iter().map(|node| name(*node)).collect();
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

/// Figures 1 to 3 of the paper, each with fresh processes.
///
/// # Errors
/// When a process cannot be started or stopped.
pub async fn figures() -> Result<Vec<Scene>> {
    Ok(vec![
        crash("Figure 1: nobody crashes", []).await?,
        crash("Figure 2: p crashes once it has the write", [1]).await?,
        crash("Figure 3: p and q crash once they have the write", [1, 2]).await?,
    ])
}

/// Three replicas, of which these crash once they have the write.
async fn crash(title: &'static str, ids: impl IntoIterator<Item = u64>) -> Result<Scene> {
    let setup = Setup { crashing: ids.into_iter().collect(), ..Setup::new(3)? };
    let mut processes = Processes::start(&setup).await?;
    let writing = Writing::start(processes.client()).await;
    for id in &setup.crashing {
        processes.crashed(*id).await?;
    }
    let scene = writing.end(processes.client(), title).await;
    processes.stop().await?;
    Ok(scene)
}

/// Four replicas, of which one is stopped before the write, and goes on after the decision.
///
/// # Errors
/// When a process cannot be started, stopped or sent a signal.
#[cfg(unix)]
pub async fn stopped() -> Result<Scene> {
    let mut processes = Processes::start(&Setup::new(4)?).await?;
    processes.pause(4)?;
    let writing = Writing::start(processes.client()).await;
    processes.resume(4)?;
    let title = "SIGSTOP: s is stopped before the write, and goes on after the decision";
    let scene = writing.end(processes.client(), title).await;
    processes.stop().await?;
    Ok(scene)
}

/// The result in one sentence.
pub fn sentence(scenes: &[Scene]) -> String {
    let written = scenes.iter().filter(|scene| scene.decided.is_ok()).count();
    let slowest = scenes.iter().map(|scene| scene.after).max().unwrap_or_default();
    format!(
        "{written} of {} writes had a majority, and each end was known within {:.0} ms.",
        scenes.len(),
        slowest.as_secs_f64() * 1e3
    )
}

type Answer = (NodeId, Result<WriteResponse, MemberError>);

/// A write that is decided, and what still comes.
struct Writing {
    decided: Result<Decided<WriteResponse>, QuorumError>,
    after: Duration,
    late: mpsc::UnboundedReceiver<Answer>,
}

impl Writing {
    async fn start(client: &Client) -> Self {
        let (key, value) = (KEY.into(), b"heron".into());
        let value = Value { key, value, timestamp: 1, writer: 1, ..Value::default() };
        let (tell, late) = mpsc::unbounded_channel();
        let call = client.clone().deadline(DEADLINE).open(Form::Echo, Phases::One, value);
        let call = call.late(move |node, answer| {
            // Nobody listens any more only when the demo has failed.
            let _ = tell.send((node, answer));
        });
        let begun = Instant::now();
        let decided = call.acked_by(Majority).detailed().await;
        Self { decided, after: begun.elapsed(), late }
    }

    /// Waits for all that still comes, and looks at what the replicas store.
    async fn end(mut self, client: &Client, title: &'static str) -> Scene {
        let mut scene = Scene {
            title,
            after: self.after,
            answered: BTreeSet::new(),
            lost: BTreeSet::new(),
            refused: Vec::new(),
            stored: BTreeSet::new(),
            decided: self.decided,
        };
        let (answered, failed) = match &scene.decided {
            Ok(decided) => (decided.answered.nodes().collect(), decided.failed.clone()),
            Err(error) => match error.shortfall() {
                Some(shortfall) => (shortfall.replied.clone(), shortfall.failed.clone()),
                None => (Vec::new(), Vec::new()),
            },
        };
        scene.answered.extend::<Vec<NodeId>>(answered);
        failed.into_iter().for_each(|(node, error)| scene.note(node, &error));
        while let Some((node, answer)) = self.late.recv().await {
            match answer {
                Ok(_) => drop(scene.answered.insert(node)),
                Err(error) => scene.note(node, &error),
            }
        }
        let living = client.members().without(scene.lost.iter().copied());
        let storage = StorageClient::new(client.endpoint());
        for peer in &living {
            let stored = storage.read(client.key(KEY)).to(peer).await;
            if stored.is_ok_and(|value| value.value == b"heron") {
                scene.stored.insert(peer.node());
            }
        }
        scene
    }
}

const KEY: &str = "bird";

impl Scene {
    fn note(&mut self, node: NodeId, error: &MemberError) {
        match error.failure() {
            Some(failure) if failure.cause == Cause::Application => {
                self.refused.push((node, failure.text.clone()));
            }
            _ => drop(self.lost.insert(node)),
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.after.as_secs_f64() * 1e3;
        writeln!(f, "{}", self.title)?;
        match &self.decided {
            Ok(decided) => {
                let by: Vec<NodeId> = decided.answered.nodes().collect();
                writeln!(f, "  written after {ms:.1} ms, by the answers of {}", names(&by))?;
            }
            Err(error) => {
                let deadline = DEADLINE.as_secs();
                writeln!(f, "  not written, known after {ms:.1} ms of the {deadline} s allowed:")?;
                writeln!(f, "    {error}")?;
            }
        }
        writeln!(f, "  answered  {}", names(&self.answered))?;
        writeln!(f, "  lost      {}", names(&self.lost))?;
        for (node, text) in &self.refused {
            writeln!(f, "  refused   {}: {text}", name(*node))?;
        }
        writeln!(f, "  stored at {}", names(&self.stored))
    }
}

//! `storage lanes`: a write frame by frame, over lanes of time, with its echo phases led by casts
//! and by quorum calls inside handlers.

use std::time::Duration;

use anyhow::Result;
use charts::Panel;
use convoke::NodeId;

use crate::form::{Form, Phases};
use crate::proto::Value;
use crate::simulated::Simulated;

/// Node of the client: of no replica.
const CLIENT: u64 = 1_000;

/// Lanes of a write in one of the forms to `count` replicas, each frame `one_way` on its way. The
/// clock of the runtime has to be paused.
///
/// # Errors
/// The write fails.
pub async fn record(count: u64, form: Form, phases: Phases, one_way: Duration) -> Result<Panel> {
    let world = Simulated::start(1, count).await?;
    let client = world.client(CLIENT).await?;
    world.network.default_latency(one_way);
    let replicas = (1..=count).map(|id| (NodeId::new(id), format!("replica {id}")));
    let replicas: Vec<_> = replicas.collect();
    let (key, value) = ("bird".into(), b"heron".into());
    let value = Value { key, value, timestamp: 1, writer: CLIENT, ..Value::default() };
    let write = client.put(form, phases, value);
    Ok(node_kit::lanes::record(&world.network, &replicas, one_way, write).await?)
}

/// Picture of a write in these forms, one below the other, and a line about each.
///
/// # Errors
/// Those of [`record`].
pub async fn picture(
    count: u64,
    forms: &[Form],
    phases: Phases,
    one_way: Duration,
) -> Result<(String, Vec<String>)> {
    let (mut panels, mut lines) = (Vec::new(), Vec::new());
    for form in forms {
        let mut panel = record(count, *form, phases, one_way).await?;
        lines.push(format!("{form}: {} ms, {} frames", panel.end, panel.messages.len()));
        panel.title = title(*form).into();
        panels.push(panel);
    }
    let delay = one_way.as_millis();
    let title = format!("{} to {count} replicas, {delay} ms a way", phases.name());
    Ok((charts::lanes(&title, "ms", "works or waits", &panels), lines))
}

fn title(form: Form) -> &'static str {
    match form {
        Form::Echo => "echo: replicas cast to each other, and answer once a majority has",
        Form::Nested => "nested: replicas ask each other, and answer once a majority has answered",
        Form::Client => "client: it asks again for each phase",
    }
}

//! A node out of the kit: a cluster file, metrics and health, an orderly end; and load on it.
//!
//! ```sh
//! cargo run -p node-kit -- check-config cluster.toml 1
//! cargo run -p node-kit -- node cluster.toml 1
//! cargo run -p node-kit -- node cluster.toml 1 --page
//! cargo run -p node-kit -- load cluster.toml 2
//! ```
//! The protocol is an echo: whatever a node is asked it answers. With `--page` it has a web page at
//! its address of operation. The last command asks node 1 for as many seconds and prints the report
//! as JSON.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use console::say;
use convoke::{Context, Endpoint, Method, NodeId, Service, Status};
use node_kit::cluster::{Cluster, NoProtocol, check};
use node_kit::load::{self, Client, Outcome, Pace, Plan};
use node_kit::operation::{self, Listener, Metrics, NodeHealth, Shutdown, StopSignal};
use node_kit::program;

const ECHO: Method<String, String> = Method::new("node.Node/Echo");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    console::end("echo-node", run(&arguments).map(|()| true))
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments[..] {
        ["check-config", file] => checked(file, None),
        ["check-config", file, id] => checked(file, Some(id)),
        ["node", file, id] => program::run(node(file, id, false))?,
        ["node", file, id, "--page"] => program::run(node(file, id, true))?,
        ["load", file, seconds] => program::run_on_this_thread(load(file, seconds))?,
        _ => bail!("check-config FILE [ID], node FILE ID [--page], or load FILE SECONDS"),
    }
}

fn checked(file: &str, id: Option<&str>) -> Result<()> {
    let id = id.map(str::parse).transpose()?;
    say(check::<NoProtocol>(Path::new(file), id)?.trim_end())
}

async fn echo(text: String, _: Context) -> Result<String, Status> {
    Ok(text)
}

async fn node(file: &str, id: &str, has_page: bool) -> Result<()> {
    let page = operation::logs_and_page("warn", has_page)?;
    let (cluster, id) = (Cluster::<NoProtocol>::read(file)?, id.parse()?);
    let (metrics, mut stop) = (Metrics::install()?, StopSignal::listen()?);
    let health = NodeHealth::new("starting");
    let address = cluster.node(id)?.operation;
    let _listener = Listener::of_node(address, metrics.clone(), &health, page.as_ref()).await?;
    let service = Service::new().unary(ECHO, echo);
    let (endpoint, identity) = cluster.endpoint(id)?;
    let _renewal = identity.as_ref().map(program::renewed);
    let endpoint = endpoint.serve(service).health(health.endpoint()).metrics().start().await?;
    metrics.sample(&endpoint);
    page.iter().for_each(|page| page.show(&endpoint));
    health.ready();
    say(format_args!("node {id} listens at {:?}", endpoint.addresses()))?;
    let signal = stop.received().await;
    // It leads nothing, and keeps nothing: an election and a ledger would be here.
    let (hand_over, close) = (async {}, async {});
    let ended = Shutdown::new(&health).run(&mut stop, hand_over, endpoint, close).await;
    say(format_args!("{signal}: {ended}"))
}

struct Asker(Endpoint);

impl Client for Asker {
    async fn operate(&mut self) -> Outcome {
        match self.0.call(ECHO, "anybody?".to_owned()).to(NodeId::new(1)).await {
            Ok(_) => Outcome::Done,
            Err(error) if error.is_safe_to_repeat() => Outcome::Failed(error.to_string()),
            Err(error) => Outcome::Unknown(error.to_string()),
        }
    }
}

async fn load(file: &str, seconds: &str) -> Result<()> {
    let endpoint = Cluster::<NoProtocol>::read(file)?.client(None)?.start().await?;
    let plan = Plan::new(Pace::Open { per_second: 1000.0 }).warm_up(Duration::from_millis(100));
    let plan = plan.time(Duration::from_secs(seconds.parse::<u32>()?.into()));
    let clients = (0..16).map(|_| Asker(endpoint.clone()));
    let report = load::run(&plan, clients, load::live()).await;
    say(serde_json::to_string(&report)?)
}

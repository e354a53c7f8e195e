//! The program of the shop: its servers, and a customer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use convoke::transport::TcpTransport;
use convoke::{CallError, Code, Endpoint, NodeId, OneOf};
use shop::certificates::{Authority, folder_of, load};
use shop::cluster::{Cluster, Role};
use shop::keeper::{self, KEEPER};
use shop::proto::{Item, Order, ShopClient, Word};
use tracing_subscriber::EnvFilter;

/// A shop whose servers prove who they are, and whose stock survives the loss of a replica.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of certificates, the stock and the list of servers.
    #[arg(long, default_value = "shop-data")]
    dir: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Runs all servers on this machine until Ctrl-C. Makes what is missing.
    Up,
    /// Runs one server, by its number in the list.
    Serve { node: NodeId },
    /// Finds items by a word of their name.
    Search { word: String },
    /// Buys an item. Sent again under the same name, an order is taken once.
    Buy {
        item: u64,
        count: u32,
        /// The name of the order.
        #[arg(long)]
        order: String,
    },
    /// Replaces what the shop sells by the items of a file, one in a line: number, price in cents,
    /// supply and name.
    Load { file: PathBuf },
}

/// The servers of `shop up`. Everybody else has another number.
const SERVERS: &str = "\
1 front tls://127.0.0.1:7301
2 front tls://127.0.0.1:7302
11 shard tls://127.0.0.1:7311
12 shard tls://127.0.0.1:7312
21 replica tls://127.0.0.1:7321
22 replica tls://127.0.0.1:7322
23 replica tls://127.0.0.1:7323
";

const CUSTOMER: NodeId = NodeId::new(101);

/// Longest time that loading a catalogue may take.
const LOAD_DEADLINE: Duration = Duration::from_secs(60);

/// Longest time that running requests get when a server ends.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).init();
    let Args { dir, what } = Args::parse();
    match what {
        What::Up => {
            set_up(&dir)?;
            let cluster = Cluster::read(&dir.join("servers"))?;
            let mut servers = Vec::new();
            for server in cluster.servers() {
                servers.push(start(&cluster, server.node, &dir).await?);
            }
            println!("the shop is open: `shop search heron` and `shop buy 1 1 --order mine`");
            tokio::signal::ctrl_c().await?;
            for server in servers {
                server.shutdown(GRACE).await;
            }
        }
        What::Serve { node } => {
            let cluster = Cluster::read(&dir.join("servers"))?;
            let server = start(&cluster, node, &dir).await?;
            println!("{node} listens at {}", server.addresses()[0]);
            tokio::signal::ctrl_c().await?;
            server.shutdown(GRACE).await;
        }
        What::Search { word } => search(&dir, word).await?,
        What::Buy { item, count, order } => buy(&dir, Order { id: order, item, count }).await?,
        What::Load { file } => load_catalogue(&dir, &file).await?,
    }
    Ok(())
}

/// Makes the list of servers and the certificates, once.
fn set_up(dir: &Path) -> Result<()> {
    if dir.join("servers").exists() {
        return Ok(());
    }
    let (cluster, authority) = (SERVERS.parse::<Cluster>()?, Authority::new()?);
    let nodes = cluster.servers().iter().map(|server| server.node);
    nodes.chain([CUSTOMER, KEEPER]).try_for_each(|node| authority.issue(node, dir))?;
    // Whole or not at all, for it says that all is there.
    let begun = dir.join("servers.new");
    std::fs::write(&begun, SERVERS)?;
    Ok(std::fs::rename(begun, dir.join("servers"))?)
}

async fn start(cluster: &Cluster, node: NodeId, dir: &Path) -> Result<Endpoint> {
    let transport = TcpTransport::tls(load(node, dir)?);
    let endpoint = cluster.endpoint(node, transport, &folder_of(node, dir).join("data"))?;
    endpoint.start().await.with_context(|| format!("{node} cannot start"))
}

/// Somebody who asks the servers of one role.
async fn connect(cluster: &Cluster, who: NodeId, role: Role, dir: &Path) -> Result<Endpoint> {
    let servers = cluster.servers().iter().filter(|server| server.role == role);
    let builder = Endpoint::builder().transport(TcpTransport::tls(load(who, dir)?));
    let builder = builder.peers(servers.map(|server| (server.node, &server.address)));
    Ok(builder.keep_connected().start().await?)
}

/// A customer, and the fronts to choose of.
async fn customer(dir: &Path) -> Result<(Endpoint, OneOf)> {
    let cluster = Cluster::read(&dir.join("servers"))?;
    let endpoint = connect(&cluster, CUSTOMER, Role::Front, dir).await?;
    let fronts = OneOf::round_robin(&endpoint, cluster.of(Role::Front))?;
    Ok((endpoint, fronts))
}

async fn search(dir: &Path, text: String) -> Result<()> {
    let (endpoint, fronts) = customer(dir).await?;
    let client = ShopClient::new(&endpoint);
    let (found, outcome) = client.search(Word { text }).to(fronts.pick()).open()?.collect().await?;
    for Item { id, name, price_cents, .. } in found.iter().map(|reply| reply.message()) {
        println!("{id}: {name}, {}.{:02}", price_cents / 100, price_cents % 100);
    }
    for failure in outcome.failures {
        println!("not all was searched: {failure}");
    }
    Ok(())
}

async fn buy(dir: &Path, order: Order) -> Result<()> {
    let (endpoint, fronts) = customer(dir).await?;
    let client = ShopClient::new(endpoint.client().deadline(Duration::from_secs(3)));
    let mut tried = client.buy(order.clone()).to(fronts.pick()).await;
    // It is taken once, whatever has become of the first try.
    if tried.as_ref().is_err_and(is_worth_another_try) {
        tried = client.buy(order).to(fronts.pick()).await;
    }
    let receipt = tried?;
    println!("{}: {} bought, {} left", receipt.order, receipt.count, receipt.left);
    Ok(())
}

async fn load_catalogue(dir: &Path, file: &Path) -> Result<()> {
    let list = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let lines = list.lines().filter(|line| !line.trim().is_empty());
    let items = lines.map(|line| line.parse::<Item>().with_context(|| format!("in {line:?}")));
    let items = items.collect::<Result<Vec<_>>>()?;
    let cluster = Cluster::read(&dir.join("servers"))?;
    let endpoint = connect(&cluster, KEEPER, Role::Shard, dir).await?;
    let shards: Vec<NodeId> = cluster.of(Role::Shard).collect();
    let client = endpoint.client().deadline(LOAD_DEADLINE);
    println!("{} items loaded", keeper::load(&client, &shards, &items).await?);
    Ok(())
}

/// True when another front may do better: this one has not refused the order for good.
fn is_worth_another_try(error: &CallError) -> bool {
    let said = error.status().map(|status| status.code());
    said.is_none_or(|code| matches!(code, Code::Unavailable | Code::Aborted))
}

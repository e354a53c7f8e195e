//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use node_kit::cluster::LedgerForm;
use node_kit::program::ranges;
use node_kit::program::store::Action;
use node_kit::program::torture::Course;
use paxos::client::Shape;
use paxos::kv::VALUE_BYTES_MAX;
use serde::Serialize;

/// A replicated key-value store by Multi-Paxos.
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Options of `demo`, for who names no command.
    #[command(flatten)]
    demo: DemoArgs,
}

impl Args {
    /// The command that is meant: without one it is `demo`.
    pub(crate) fn command(self) -> Command {
        self.command.unwrap_or(Command::Demo(self.demo))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Three processes on this machine under load, killed and started again; then all is read back.
    Demo(DemoArgs),
    /// Runs a node until it is told to stop.
    Node(NodeArgs),
    /// Reads or writes.
    Client(ClientArgs),
    /// Lets nodes join and leave the cluster while it works.
    Member(MemberArgs),
    /// Tells what each node is doing.
    Status(StatusArgs),
    /// Reads a cluster file, and the keys of a node, and says what is wrong.
    CheckConfig {
        #[command(flatten)]
        config: ConfigArgs,
        /// The node whose keys are looked at, too.
        #[arg(long)]
        id: Option<u64>,
    },
    /// Prints the records of a ledger, whatever state it is in.
    DumpLedger {
        /// Its folder.
        folder: PathBuf,
    },
    /// Processes on this machine under load, killed, stopped and cut off from each other at random;
    /// then all is read back, and the answers are judged.
    Torture(TortureArgs),
    /// Measures processes on this machine under load.
    Bench(BenchArgs),
    /// Measures what the figures of the RAM-Paxos paper show, and draws them.
    Figures(FiguresArgs),
    /// Runs clusters under faults that seeds draw, and checks what clients were told.
    Sim(SimArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigArgs {
    /// The cluster file.
    #[arg(long)]
    pub(crate) config: PathBuf,
}

/// Proof of a client, where the nodes of a cluster take only who proves itself.
#[derive(Debug, ClapArgs)]
pub(crate) struct KeysArgs {
    /// Folder with `node.pem`, `node.key` and `ca.pem`.
    #[arg(long, requires = "name")]
    pub(crate) keys: Option<PathBuf>,
    /// The number that they prove: of none of the nodes, and of no other client at the time.
    #[arg(long, requires = "keys")]
    pub(crate) name: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The node, by its number in the cluster file.
    #[arg(long)]
    pub(crate) id: u64,
    /// Shows a web page of the node at its address of operation, too.
    #[arg(long)]
    pub(crate) page: bool,
    /// Stops when its standard input ends, as it does with the process that started it.
    #[arg(long, hide = true)]
    pub(crate) child: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    /// Seconds for the request with all its attempts.
    #[arg(long, default_value_t = 10, value_parser = ranges::deadline())]
    pub(crate) deadline: u64,
    /// A read is answered by this node, from what it has applied: it may be old.
    #[arg(long)]
    pub(crate) stale: Option<u64>,
    /// The way in which a put is answered. With `direct` it says who has answered: votes, or the
    /// leader, where votes prove too little.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) shape: Shape,
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MemberArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    /// Seconds until the change has to be in force.
    #[arg(long, default_value_t = 60, value_parser = ranges::deadline())]
    pub(crate) deadline: u64,
    /// Changes the members also where no majority of those who vote then is heard: until they are
    /// back nothing can be written.
    #[arg(long, global = true)]
    pub(crate) anyway: bool,
    #[command(subcommand)]
    pub(crate) action: MemberAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberAction {
    /// A node joins: it learns, and votes once it has caught up. So does a member whose ledger was
    /// lost.
    Add {
        /// Its number.
        id: u64,
        /// An address at which it is dialled, where the cluster files of the others do not have
        /// any.
        #[arg(long)]
        address: Vec<String>,
        /// It learns, and never votes.
        #[arg(long)]
        learner: bool,
    },
    /// A node leaves. It may be stopped when this has ended.
    Remove {
        /// Its number.
        id: u64,
    },
    /// Prints the members.
    List,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Clients.
    #[arg(long, default_value_t = 8, value_parser = ranges::clients())]
    pub(crate) clients: u64,
    /// Seconds of load before and after each event.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Keeps the folder with the ledgers and logs of the nodes, and prints where it is.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Instead of kills: two nodes join under load, and then two leave that were there before,
    /// among them the leader.
    #[arg(long)]
    pub(crate) members: bool,
    /// The way in which puts are answered.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) shape: Shape,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TortureArgs {
    #[command(flatten)]
    pub(crate) course: Course,
    /// Nodes. With five, two may be hurt at a time.
    #[arg(long, default_value_t = 3, value_parser = ranges::nodes())]
    pub(crate) nodes: usize,
    /// Nodes join and leave all the time: these, and two more that are spare at first.
    #[arg(long)]
    pub(crate) members: bool,
    /// The way in which puts are answered.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) shape: Shape,
}

/// Form of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ledger {
    /// In memory: a node that has stopped is never counted again.
    Ram,
    /// On the disk.
    Disk,
}

impl Ledger {
    /// The same, for a cluster file.
    pub(crate) fn form(self) -> LedgerForm {
        match self {
            Self::Ram => LedgerForm::Ram,
            Self::Disk => LedgerForm::Disk,
        }
    }
}

/// Somebody who asks: workloads A to D of the RAM-Paxos paper, or many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Workload {
    /// One proposer, at the leader.
    A,
    /// Two proposers at nodes of their own, of which one leads; the other begins a little later.
    B,
    /// As B, and the machine of the first is killed when half of the time is over.
    C,
    /// Several proposers at nodes of their own.
    D,
    /// Clients that read and write keys as fast as they are answered, or at a rate.
    Kv,
}

/// Transport between nodes, and from clients to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// TCP, in the clear.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// QUIC.
    Quic,
    /// Frames in a stream of gRPC, in the clear.
    Grpc,
    /// RDMA verbs.
    Rdma,
}

impl Transport {
    /// Scheme of its addresses.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::Grpc => "grpc",
            Self::Rdma => "rdma",
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// Load: a workload of the RAM-Paxos paper, or many clients.
    #[arg(long, value_enum, default_value_t = Workload::Kv)]
    pub(crate) workload: Workload,
    /// Nodes.
    #[arg(long, default_value_t = 3, value_parser = ranges::nodes())]
    pub(crate) nodes: usize,
    /// Clients, each with one request at a time. Several, as in `1,8,64`, are measured one after
    /// the other. Default 64.
    #[arg(long, value_delimiter = ',', value_parser = ranges::clients())]
    pub(crate) clients: Vec<u64>,
    /// Proposers of workload D. Default: one less than nodes.
    #[arg(long, value_parser = ranges::nodes())]
    pub(crate) proposers: Option<usize>,
    /// Milliseconds between two proposals of a proposer, in workloads A to D. Default 1,000, as in
    /// the paper.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every_ms: Option<u64>,
    /// Transports. Several are measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    pub(crate) transport: Vec<Transport>,
    /// Host of all addresses: over rdma:// that of the device.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Ways in which puts are answered. Several are measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "gather")]
    pub(crate) shape: Vec<Shape>,
    /// Milliseconds that what a node says to another takes, about; not over QUIC and RDMA. Clients
    /// are near all nodes.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000))]
    pub(crate) delay_ms: u64,
    /// Requests a second, whoever waits. Default: each client asks again once it was answered.
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100, value_parser = ranges::payload(VALUE_BYTES_MAX))]
    pub(crate) payload: usize,
    /// Keys that are read and written, in the workload kv. Default 10,000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: Option<u64>,
    /// All keys are written once before anything is measured.
    #[arg(long)]
    pub(crate) fill: bool,
    /// Mebibytes of the log between two snapshots.
    #[arg(long, default_value_t = 64)]
    pub(crate) snapshot_mib: u64,
    /// Followers that are killed before anything is measured, and stay away.
    #[arg(long, default_value_t = 0, conflicts_with = "restarts")]
    pub(crate) lost: usize,
    /// Times that a follower is killed and started again afterwards, with load in between.
    #[arg(long, default_value_t = 0)]
    pub(crate) restarts: usize,
    /// Reads among a hundred requests. The rest are puts.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    pub(crate) reads: u32,
    /// Place of the records.
    #[arg(long, value_enum, default_value_t = Ledger::Disk)]
    pub(crate) ledger: Ledger,
    /// Batches under way, at most.
    #[arg(long, default_value_t = 4)]
    pub(crate) pipeline: usize,
    /// Requests of one batch, at most.
    #[arg(long, default_value_t = 1_024)]
    pub(crate) batch: usize,
    /// Seconds that are measured, after one that is not.
    #[arg(long, default_value_t = 5, value_parser = ranges::seconds())]
    pub(crate) seconds: u64,
    /// The results as JSON, into this file.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Throughput and latency over the count of clients, as SVG into this folder.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
    /// Folder in which the ledgers are put. Default: that for temporary files.
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

/// Requests a second, of which there are some.
fn rate(text: &str) -> Result<f64, String> {
    let per_second = text.parse().map_err(|error| format!("{error}"))?;
    match (RATE_MIN..=RATE_MAX).contains(&per_second) {
        true => Ok(per_second),
        false => Err(format!("{text} is not in {RATE_MIN}..={RATE_MAX}")),
    }
}

/// The lowest rate: one request in a run of seventeen minutes.
const RATE_MIN: f64 = 0.001;

/// The highest rate, far beyond what a process of clients can ask for.
const RATE_MAX: f64 = 10_000_000.0;

#[derive(Debug, ClapArgs)]
pub(crate) struct FiguresArgs {
    /// Figures, by their sections in the paper, as in `4.1.1,4.2.2`. Default: all.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Rounds, in each of which all points of a kind of cluster are measured once.
    #[arg(long, default_value_t = 5, value_parser = ranges::rounds::<usize>())]
    pub(crate) rounds: usize,
    /// Seconds of a point, each round.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Milliseconds between two proposals.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every_ms: u64,
    /// Sizes and counts of machines at the ends of the axes alone, up to 100 kB and 5 machines.
    #[arg(long)]
    pub(crate) quick: bool,
    /// All points, as JSON into this file.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// The figures, as SVG into this folder.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
    /// Folder in which the ledgers are put. Default: that for temporary files.
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimArgs {
    /// Runs replicas alone, without clients, endpoints and disks: many more seeds in a second.
    #[arg(long)]
    pub(crate) core: bool,
    /// Kills the leader of whole nodes under load, and measures how long nobody takes requests.
    /// With `--seed`, that one, without its events.
    #[arg(long, conflicts_with_all = ["core", "shape"])]
    pub(crate) failover: bool,
    /// Replays this one, and prints every event.
    #[arg(long, conflicts_with_all = ["seeds", "start_seed"])]
    pub(crate) seed: Option<u64>,
    /// Count of seeds.
    #[arg(long, default_value_t = 100, value_parser = ranges::seeds())]
    pub(crate) seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    pub(crate) start_seed: u64,
    /// The way in which puts are answered. Default: each seed draws it.
    #[arg(long, value_enum, conflicts_with = "core")]
    pub(crate) shape: Option<Shape>,
    /// Breaks one rule, to see which seed finds that.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    pub(crate) mutant: Option<paxos::mutant::Mutant>,
}

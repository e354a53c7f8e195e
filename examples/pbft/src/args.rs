//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use node_kit::cluster::Credits;
use node_kit::program::ranges;
use node_kit::program::store::Action;
use node_kit::program::torture::Course;
use pbft::key_file::PublicKey;
use pbft::kv::VALUE_BYTES_MAX;
use pbft::node::Lie;
use pbft::settings::Auth;

/// A replicated key-value store by PBFT.
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
    /// Four processes on this machine under load: killed, silent, lying; then all is read back.
    Demo(DemoArgs),
    /// Makes a key, and prints the public half of it.
    Keygen {
        /// The file of the secret half, which must not exist.
        file: PathBuf,
    },
    /// Runs a node until it is told to stop. Its secret key is `sign.key` in its folder.
    Node(NodeArgs),
    /// Reads or writes.
    Client(ClientArgs),
    /// Replicas join and leave while the others go on.
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
    /// Runs clusters under faults that seeds draw, and checks them after every event.
    Sim(SimArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigArgs {
    /// The cluster file.
    #[arg(long)]
    pub(crate) config: PathBuf,
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
    /// Lies to the others, for demonstrations.
    #[arg(long, hide = true, value_enum)]
    pub(crate) lie: Option<LieName>,
    /// Messages of a peer that may be under way over rdma://. Default: 32.
    #[arg(long)]
    pub(crate) window: Option<u16>,
    /// Flow control over rdma://, for measurements: whoever is at the other end needs the same.
    #[arg(long, hide = true, value_enum)]
    pub(crate) credits: Option<CreditsName>,
}

/// A lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LieName {
    /// As the primary it proposes another batch to each replica.
    Equivocate,
}

impl From<LieName> for Lie {
    fn from(name: LieName) -> Self {
        match name {
            LieName::Equivocate => Self::Equivocate,
        }
    }
}

/// Flow control over `rdma://`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CreditsName {
    /// A message waits until the other end has a receive for it.
    #[default]
    Counted,
    /// No message waits; one that finds no receive ends the connection.
    Unlimited,
}

impl From<CreditsName> for Credits {
    fn from(name: CreditsName) -> Self {
        match name {
            CreditsName::Counted => Self::Counted,
            CreditsName::Unlimited => Self::Unlimited,
        }
    }
}

/// Proof of a client to nodes whose addresses are `tls://` or `quic://`.
#[derive(Debug, ClapArgs)]
pub(crate) struct IdentityArgs {
    /// Folder of a certificate, its key and whom it trusts, where nodes want one.
    #[arg(long, requires = "node_id")]
    pub(crate) certificates: Option<PathBuf>,
    /// The number that the certificate proves: of no node of the cluster.
    #[arg(long, requires = "certificates")]
    pub(crate) node_id: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The client, by its number in the cluster file.
    #[arg(long)]
    pub(crate) id: u64,
    /// The file of its secret key, where requests are signed.
    #[arg(long)]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// Seconds for the request with all its attempts.
    #[arg(long, default_value_t = 10, value_parser = ranges::deadline())]
    pub(crate) deadline: u64,
    /// Asks the primary first, or all replicas at once. Default: the primary where requests are
    /// signed, and all where connections prove them.
    #[arg(long, value_enum)]
    pub(crate) path: Option<Way>,
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MemberArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The file of the administrator's secret key, where requests are signed.
    #[arg(long)]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// Seconds until the change has to be in force.
    #[arg(long, default_value_t = 60, value_parser = ranges::deadline())]
    pub(crate) deadline: u64,
    /// Changes the members also where no quorum of those behind the change answers: until they are
    /// back nothing is ordered.
    #[arg(long, global = true)]
    pub(crate) anyway: bool,
    #[command(subcommand)]
    pub(crate) action: MemberAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberAction {
    /// A replica joins, and takes part once the change is in force.
    Add {
        /// Its number.
        id: u64,
        /// An address at which it is dialled, where the cluster files of the others do not have
        /// any.
        #[arg(long)]
        address: Vec<String>,
        /// Its key, as `pbft keygen` printed it.
        #[arg(long)]
        public_key: PublicKey,
        /// A member that leaves in the same change.
        #[arg(long)]
        in_place_of: Option<u64>,
    },
    /// A replica leaves, and stops.
    Remove {
        /// Its number.
        id: u64,
    },
    /// Prints the members.
    List,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
}

/// Whom a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// The primary, and after a while all.
    Primary,
    /// All at once.
    All,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Clients.
    #[arg(long, default_value_t = 8, value_parser = ranges::clients())]
    pub(crate) clients: u64,
    /// Seconds of load before and after each event.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Milliseconds that a request may wait before its view ends.
    #[arg(
        long,
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(1..=60_000)
    )]
    pub(crate) timeout: u64,
    /// Protection of words and requests.
    #[arg(long, value_enum, default_value_t = Protection::Signed)]
    pub(crate) auth: Protection,
    /// Keeps the folder with the ledgers and logs of the nodes, and prints where it is.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TortureArgs {
    #[command(flatten)]
    pub(crate) course: Course,
    /// Replicas. With seven, two may be hurt at a time.
    #[arg(long, default_value_t = 4, value_parser = ranges::nodes())]
    pub(crate) replicas: usize,
    /// Protection of words and requests.
    #[arg(long, value_enum, default_value_t = Protection::Signed)]
    pub(crate) auth: Protection,
}

/// Form of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ledger {
    /// In memory.
    Ram,
    /// On the disk.
    Disk,
}

/// Protection of words and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthName {
    /// Ed25519 under all of them.
    Signed,
    /// Connections that prove names, and Ed25519 under what certificates are made of.
    Channel,
    /// Nothing: to measure all else.
    None,
}

/// Protection of words and requests, in earnest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protection {
    /// Ed25519 under all of them.
    Signed,
    /// Connections that prove names, over TLS.
    Channel,
}

impl Protection {
    /// The setting of the cluster, and a scheme of addresses that it allows.
    pub(crate) fn setting(self) -> (Auth, &'static str) {
        match self {
            Self::Signed => (Auth::Signed, "tcp"),
            Self::Channel => (Auth::Channel, "tls"),
        }
    }
}

impl From<AuthName> for Auth {
    fn from(name: AuthName) -> Self {
        match name {
            AuthName::Signed => Self::Signed,
            AuthName::Channel => Self::Channel,
            AuthName::None => Self::None,
        }
    }
}

/// Transport between all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// QUIC.
    Quic,
    /// RDMA verbs.
    Rdma,
}

impl Transport {
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::Rdma => "rdma",
        }
    }

    /// True where a connection proves who is at its other end.
    pub(crate) fn proves_names(self) -> bool {
        matches!(self, Self::Tls | Self::Quic)
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// Replicas.
    #[arg(long, default_value_t = 4, value_parser = ranges::nodes())]
    pub(crate) replicas: usize,
    /// Clients, each with one request at a time. Several counts, parted by commas, are measured
    /// one after the other.
    #[arg(long, value_delimiter = ',', default_value = "64", value_parser = ranges::clients())]
    pub(crate) clients: Vec<u64>,
    /// Bytes of a value. With 0 requests are empty, and have no key either.
    #[arg(long, default_value_t = 100, value_parser = ranges::payload(VALUE_BYTES_MAX))]
    pub(crate) payload: usize,
    /// Transport between all, or several.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    pub(crate) transport: Vec<Transport>,
    /// Protection of words and requests, or several.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "signed")]
    pub(crate) auth: Vec<AuthName>,
    /// Whom clients ask. Default: the primary, and all where connections prove requests. With `all`
    /// proposals have digests of the requests.
    #[arg(long, value_enum)]
    pub(crate) path: Option<Way>,
    /// Place of the records.
    #[arg(long, value_enum, default_value_t = Ledger::Disk)]
    pub(crate) ledger: Ledger,
    /// Requests of one batch, at most: 256 or less.
    #[arg(
        long, default_value_t = 256,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=256)
    )]
    pub(crate) batch: usize,
    /// Batches under way, at most.
    #[arg(long, default_value_t = 4)]
    pub(crate) in_flight: u64,
    /// Seconds that are measured, after one that is not.
    #[arg(long, default_value_t = 5, value_parser = ranges::seconds())]
    pub(crate) seconds: u64,
    /// Requests that are measured in place of seconds, however long they take.
    #[arg(
        long,
        conflicts_with = "seconds",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) requests: Option<u64>,
    /// Rounds, in each of which all is measured once: what disturbs the machine disturbs all alike.
    #[arg(long, default_value_t = 1, value_parser = ranges::rounds::<u64>())]
    pub(crate) rounds: u64,
    /// Host of all addresses: over rdma:// that of the device.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Messages of a peer that may be under way over rdma://, or several counts. Default: 32.
    #[arg(long, value_delimiter = ',')]
    pub(crate) window: Vec<u16>,
    /// Flow control over rdma://, or both. Default: credits are counted.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) credits: Vec<CreditsName>,
    /// The results as JSON, into this file.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Charts of throughput, latency and processor time, into this folder. Of several rounds they
    /// have the middle one.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
    /// Folder in which the ledgers are put. Default: that for temporary files.
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

/// A simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Cores whose words are signed.
    World,
    /// Cores that connections tell who speaks, and clients that lie.
    Channels,
    /// Cores whose members change.
    Members,
    /// Whole nodes, disks and clients.
    Nodes,
}

impl Part {
    /// All of them.
    pub(crate) const ALL: &[Self] = &[Self::World, Self::Channels, Self::Members, Self::Nodes];
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::World => "world",
            Self::Channels => "channels",
            Self::Members => "members",
            Self::Nodes => "nodes",
        })
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimArgs {
    /// The simulation. Default: all of them; for one seed the world.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) part: Vec<Part>,
    /// Measures in place of that, in virtual time: the time until a silent primary is replaced, and
    /// the rate without a backup.
    #[arg(long, conflicts_with_all = ["part", "seed"])]
    pub(crate) outages: bool,
    /// Replays this one, and prints every event.
    #[arg(long, conflicts_with_all = ["seeds", "start_seed"])]
    pub(crate) seed: Option<u64>,
    /// Count of seeds.
    #[arg(long, default_value_t = 500, value_parser = ranges::seeds())]
    pub(crate) seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    pub(crate) start_seed: u64,
    /// Breaks a rule; the first seed that notices is printed.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    pub(crate) mutant: Option<pbft::mutant::Mutant>,
}

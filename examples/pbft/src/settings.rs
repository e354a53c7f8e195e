//! Settings of a cluster in its file, the table `[protocol]`: its keys, its clients, its bounds.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::NodeId;
use convoke::quorum::{Configuration, ConfigurationError};
use convoke::transport::Address;
use node_kit::cluster::{Cluster, LedgerForm, Node, Protocol};
use serde::{Deserialize, Serialize};

use crate::core::{
    Batch, Checker, ClientId, FIRST_EPOCH, Group, Keys, NoMembers, Scope, Signer, Trust,
};
use crate::key_file::PublicKey;
use crate::node::Options;

/// Protection of words and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// Ed25519 under all of them.
    #[default]
    Signed,
    /// Connections of `tls://` or `quic://`, which prove who is at their other end: requests,
    /// replies and all words are unsigned but those that certificates are made of.
    Channel,
    /// Nothing, to measure all else. Anybody can say anything in anybody's name.
    None,
}

/// Proposal of a primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proposals {
    /// Batches, with their requests.
    #[default]
    Whole,
    /// Digests of requests, which clients send to all replicas.
    Digests,
}

/// A node's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A member.
    #[default]
    Replica,
}

/// A public key, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOf {
    /// The number of the node, or of the client.
    pub id: u64,
    /// Its key.
    pub key: PublicKey,
    /// It is a replica that is no member yet: a change takes it in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
}

/// A client, and the proof of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRow {
    /// Its number.
    pub id: u64,
    /// Its key, where requests are signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
    /// The node whose connection proves it, where that is the proof: the number that its
    /// certificate has. Several clients may share one. Default: that of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
}

impl ClientRow {
    /// The node whose connection proves it.
    pub fn connection(&self) -> u64 {
        self.node.unwrap_or(self.id)
    }
}

/// The table `[protocol]`. All nodes and clients must have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Place of the records: `disk`, or `ram` for measurements. A replica whose records are gone
    /// must not come back under its name.
    pub ledger: LedgerForm,
    /// Protection: `signed`, `channel`, or `none` for measurements.
    pub auth: Auth,
    /// Contents of proposals: `whole` requests, or their `digests`, where clients ask all replicas.
    pub proposals: Proposals,
    /// A request that has waited for so long ends the view; it doubles with each view that fails.
    /// Default 2,000.
    pub timeout_ms: u64,
    /// Batches between two checkpoints, each of which is a copy of the state. Default 256; more
    /// than 15 replicas need fewer, as a view begins with a proof of each since the last, in one
    /// message.
    pub checkpoint_every: u64,
    /// Requests of one batch, at most. Default 256, and no more.
    pub batch_max: usize,
    /// Batches that are proposed and not executed yet, at most. Default 4: requests that come
    /// meanwhile are the next batch.
    pub in_flight: u64,
    /// Mebibytes of the ledger between two snapshots. Default 256.
    pub snapshot_mib: u64,
    /// The epoch whose members are those of the file. Default 1: they form the cluster.
    pub epoch: u64,
    /// The client whose requests change the members, and nothing else. Default: nobody may. As long
    /// as the cluster lives it is the same at all replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub administrator: Option<u64>,
    /// Keys of the nodes.
    pub member: Vec<KeyOf>,
    /// Clients, and their keys.
    pub client: Vec<ClientRow>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ledger: LedgerForm::Disk,
            auth: Auth::Signed,
            proposals: Proposals::Whole,
            timeout_ms: 2_000,
            checkpoint_every: 256,
            batch_max: Batch::REQUESTS_MAX,
            in_flight: 4,
            snapshot_mib: 256,
            epoch: FIRST_EPOCH,
            administrator: None,
            member: Vec::new(),
            client: Vec::new(),
        }
    }
}

/// Clients of a cluster, at most: a checkpoint has the replies of all.
const CLIENTS_MAX: usize = 256;

impl Protocol for Settings {
    type Role = Role;

    fn contradictions(&self, nodes: &[Node<Role>]) -> Vec<String> {
        let mut found = Vec::new();
        let members = nodes.iter().filter(|node| self.is_member(node.id)).count();
        if members < 4 {
            found.push(format!(
                "{members} replicas stand none that lies: it takes 4 for one, 7 for two"
            ));
        }
        found.extend(self.astray());
        let members = nodes.iter().map(|node| node.id).filter(|node| self.is_member(*node));
        let members = Group::new(members).ok();
        let too_open = members.and_then(|of| of.check_window(self.window()).err());
        found.extend(too_open.map(|too_open| too_open.to_string()));
        let named: BTreeSet<u64> = self.member.iter().map(|of| of.id).collect();
        let wanted: BTreeSet<u64> = nodes.iter().map(|node| node.id.get()).collect();
        for id in wanted.difference(&named) {
            found.push(format!("node {id} has no key: add a table [[protocol.member]]"));
        }
        for id in named.difference(&wanted) {
            found.push(format!("there is a key of node {id}, and no such node"));
        }
        found.extend(twice("node", self.member.iter().map(|of| (of.id, Some(of.key)))));
        found.extend(twice("client", self.client.iter().map(|of| (of.id, of.key))));
        if self.client.is_empty() || self.client.len() > CLIENTS_MAX {
            found.push(format!(
                "there are {} clients: from 1 to {CLIENTS_MAX} can be, each in a table \
                 [[protocol.client]]",
                self.client.len()
            ));
        }
        match self.auth {
            Auth::Channel => found.extend(self.unproven(nodes)),
            Auth::Signed => found.extend(self.keyless()),
            Auth::None => {}
        }
        let least = [self.timeout_ms, self.checkpoint_every, self.in_flight, self.snapshot_mib];
        if least.contains(&0) || self.batch_max == 0 {
            found.push(
                "timeout_ms, checkpoint_every, batch_max, in_flight and snapshot_mib have to be 1 \
                 or more"
                    .to_owned(),
            );
        }
        if self.batch_max > Batch::REQUESTS_MAX {
            found.push(format!("batch_max has to be {} or less", Batch::REQUESTS_MAX));
        }
        found
    }
}

impl Settings {
    /// True for a node that is a member in the epoch of the file.
    fn is_member(&self, node: NodeId) -> bool {
        !self.member.iter().any(|of| of.id == node.get() && of.joins)
    }

    /// Places that are open above a checkpoint: two checkpoints.
    pub fn window(&self) -> u64 {
        self.checkpoint_every.saturating_mul(2)
    }

    /// An administrator that there is not, and an epoch that never was.
    fn astray(&self) -> impl Iterator<Item = String> + '_ {
        let is_client = |id: &u64| self.client.iter().any(|of| of.id == *id);
        let stranger = self.administrator.filter(|id| !is_client(id));
        let stranger = stranger.map(|id| {
            format!("administrator {id} is no client: add a table [[protocol.client]] for it")
        });
        let epoch = (self.epoch < FIRST_EPOCH).then(|| "epoch has to be 1 or more".to_owned());
        stranger.into_iter().chain(epoch)
    }

    /// Clients that could not sign.
    fn keyless(&self) -> impl Iterator<Item = String> + '_ {
        let clients = self.client.iter().filter(|of| of.key.is_none());
        clients.map(|of| format!("client {} has no key: `pbft keygen` makes one", of.id))
    }

    /// Connections that would prove nobody, and clients that they would prove as somebody else.
    fn unproven(&self, nodes: &[Node<Role>]) -> Vec<String> {
        let mut found = Vec::new();
        for node in nodes {
            let all = node.addresses.iter().chain(&node.listen);
            if let Some(address) = all.into_iter().find(|address| !proves_names(address)) {
                found.push(format!(
                    "auth = \"channel\" believes connections, and one over {}:// proves nobody: \
                     give node {} addresses of tls:// or quic:// and `keys`, or take auth = \
                     \"signed\"",
                    address.scheme(),
                    node.id.get()
                ));
            }
        }
        for client in &self.client {
            let connection = client.connection();
            if nodes.iter().any(|node| node.id.get() == connection) {
                found.push(format!(
                    "client {} is known by the connection of node {connection}, which is a \
                     replica: give it a `node` of its own",
                    client.id
                ));
            } else if connection == 0 {
                found.push(format!("client {} has no `node`: a node is 1 or more", client.id));
            }
        }
        found
    }
}

/// True where a connection to this address proves who is at its other end.
pub(crate) fn proves_names(address: &Address) -> bool {
    matches!(address.scheme(), "tls" | "quic")
}

/// Names and keys that stand there twice. Whoever has a key speaks for all that have it.
fn twice(
    whose: &str,
    keys: impl Iterator<Item = (u64, Option<PublicKey>)>,
) -> impl Iterator<Item = String> {
    let (mut named, mut known) = (BTreeSet::new(), BTreeSet::new());
    keys.flat_map(move |(id, key)| {
        let is_named = !named.insert(id);
        let is_known = key.is_some_and(|key| !known.insert(key));
        let named = is_named.then(|| format!("{whose} {id} stands there twice"));
        let known = is_known.then(|| format!("{whose} {id} has the key of another"));
        named.into_iter().chain(known)
    })
}

/// The reason a cluster file is not enough for a node or client.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Its nodes are no configuration.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// It has no nodes.
    #[error(transparent)]
    Group(#[from] NoMembers),
    /// Requests are signed, and there is no key for it.
    #[error("{whose} {id} has to sign what it says: name the file of its secret key")]
    NoKey {
        /// `node` or `client`.
        whose: &'static str,
        /// Its number.
        id: u64,
    },
    /// The secret key is not that of the file.
    #[error("the secret key of {whose} {id} does not belong to its key in the cluster file")]
    OtherKey {
        /// `node` or `client`.
        whose: &'static str,
        /// Its number.
        id: u64,
    },
}

/// Members of a cluster file, with their addresses.
///
/// # Errors
/// [`SettingsError::Configuration`].
pub fn members(cluster: &Cluster<Settings>) -> Result<Configuration, SettingsError> {
    let settings = cluster.protocol();
    Ok(Configuration::new(cluster.peers().filter(|(node, _)| settings.is_member(*node)))?)
}

/// Everybody's keys.
///
/// # Errors
/// [`SettingsError::Group`].
pub fn keys(cluster: &Cluster<Settings>) -> Result<Keys, SettingsError> {
    let settings = cluster.protocol();
    let nodes = cluster.nodes().iter().map(|node| node.id);
    let group = Group::new(nodes.filter(|node| settings.is_member(*node)))?;
    let of_member = |key: &PublicKey| match settings.auth {
        Auth::Signed | Auth::Channel => key.checker(),
        Auth::None => Checker::Unsigned,
    };
    let of_client = |of: &ClientRow| match settings.auth {
        Auth::Signed => Some(of.key?.checker()),
        Auth::Channel => Some(Checker::Connection(NodeId::try_from(of.connection()).ok()?)),
        Auth::None => Some(Checker::Unsigned),
    };
    let member = |of: &KeyOf| Some((NodeId::try_from(of.id).ok()?, of_member(&of.key)));
    let client = |of: &ClientRow| Some((ClientId(of.id), of_client(of)?));
    let members = settings.member.iter().filter(|of| !of.joins).filter_map(member).collect();
    let clients = settings.client.iter().filter_map(client).collect();
    let trust = match settings.auth {
        Auth::Channel => Trust::Channels,
        Auth::Signed | Auth::None => Trust::Signatures,
    };
    let scope = Scope { cluster: cluster.id(), epoch: settings.epoch };
    Ok(Keys::new(scope, group, members, clients).trusting(trust))
}

/// Options of one of its nodes, which signs with this key.
///
/// # Errors
/// [`SettingsError`]: a node with another key than the file says would be a liar to all.
pub fn options(
    cluster: &Cluster<Settings>,
    node: NodeId,
    signer: Signer,
) -> Result<Options, SettingsError> {
    let settings = cluster.protocol();
    let signer = node_signer(settings, node, signer)?;
    let mut options = Options::new(node, members(cluster)?, keys(cluster)?, signer);
    options.core.administrator = settings.administrator.map(ClientId);
    options.core.timeout = Duration::from_millis(settings.timeout_ms);
    options.core.checkpoint_every = settings.checkpoint_every;
    options.core.window = settings.window();
    options.core.batch_max = settings.batch_max;
    options.core.is_outlined = settings.proposals == Proposals::Digests;
    options.core.in_flight = settings.in_flight;
    options.snapshot_bytes = settings.snapshot_mib.saturating_mul(1 << 20);
    Ok(options)
}

/// The key that a node signs with, if it is the one that the file has.
///
/// # Errors
/// [`SettingsError::OtherKey`].
pub fn node_signer(
    settings: &Settings,
    node: NodeId,
    signer: Signer,
) -> Result<Signer, SettingsError> {
    if settings.auth == Auth::None {
        return Ok(Signer::Unsigned);
    }
    let known = settings.member.iter().find(|of| of.id == node.get()).map(|of| of.key);
    own_signer(("node", node.get()), known, Some(signer))
}

/// The key that a client signs with, if it is the one that the file has. Where requests are not
/// signed it needs none.
///
/// # Errors
/// [`SettingsError::OtherKey`], [`SettingsError::NoKey`].
pub fn client_signer(
    settings: &Settings,
    id: u64,
    signer: Option<Signer>,
) -> Result<Signer, SettingsError> {
    if settings.auth != Auth::Signed {
        return Ok(Signer::Unsigned);
    }
    let known = settings.client.iter().find(|of| of.id == id).and_then(|of| of.key);
    own_signer(("client", id), known, signer)
}

fn own_signer(
    (whose, id): (&'static str, u64),
    known: Option<PublicKey>,
    signer: Option<Signer>,
) -> Result<Signer, SettingsError> {
    let signer = signer.ok_or(SettingsError::NoKey { whose, id })?;
    match (known.map(|key| key.checker()), signer.checker()) {
        (Some(Checker::Ed25519(known)), Checker::Ed25519(own)) if known == own => Ok(signer),
        _ => Err(SettingsError::OtherKey { whose, id }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_file::SecretKey;

    fn text(settings: &str) -> String {
        let node = |id| {
            format!("[[node]]\nid = {id}\nfolder = 'f{id}'\naddresses = ['tcp://127.0.0.1:{id}']\n")
        };
        let nodes: String = (1..5).map(node).collect();
        format!("[cluster]\nid = 7\nname = 'a'\n{nodes}[protocol]\n{settings}")
    }

    fn keys_of(whose: &str, ids: &[u64]) -> String {
        let key = |id: &u64| {
            let key = SecretKey::generate().expect("there is randomness").public();
            format!("[[protocol.{whose}]]\nid = {id}\nkey = '{key}'\n")
        };
        ids.iter().map(key).collect()
    }

    #[test]
    fn a_file_with_all_keys_is_taken() {
        let settings = keys_of("member", &[1, 2, 3, 4]) + &keys_of("client", &[9]);
        let cluster = Cluster::<Settings>::parse(&text(&settings)).unwrap();
        assert_eq!(keys(&cluster).unwrap().clients().len(), 1);
        let other = SecretKey::generate().unwrap().signer();
        let refused = options(&cluster, NodeId::new(2), other).map(drop);
        assert!(matches!(refused, Err(SettingsError::OtherKey { id: 2, .. })));
    }

    #[test]
    fn where_no_view_could_begin_a_file_says_how_many_batches_a_checkpoint_may_have() {
        let nodes = |settings: &str| {
            let node = |id| {
                let address = format!("addresses = ['tcp://127.0.0.1:{id}']");
                format!("[[node]]\nid = {id}\nfolder = 'f{id}'\n{address}\n")
            };
            let nodes: String = (1..=16).map(node).collect();
            let keys = keys_of("member", &Vec::from_iter(1..=16)) + &keys_of("client", &[9]);
            format!("[cluster]\nid = 7\nname = 'a'\n{nodes}[protocol]\n{settings}{keys}")
        };
        let refused = Cluster::<Settings>::parse(&nodes("")).map(drop).unwrap_err().to_string();
        let (_, most) = refused.split_once("set checkpoint_every to ").expect("it says so");
        let most: u64 = most.split(' ').next().unwrap().parse().unwrap();
        assert!(most > 128, "{refused}");
        let taken = |every| {
            Cluster::<Settings>::parse(&nodes(&format!("checkpoint_every = {every}\n"))).is_ok()
        };
        assert!(taken(most) && !taken(most + 1));
    }

    /// Words that certificates are made of are signed, and need keys; clients need none.
    #[test]
    fn channels_are_taken_where_connections_prove_names_and_nowhere_else() {
        let members = keys_of("member", &[1, 2, 3, 4]);
        let channel = |client: &str| {
            format!("auth = 'channel'\n{members}[[protocol.client]]\nid = 9\n{client}")
        };
        let secured = |scheme: &str, settings: &str| {
            let proven = format!("keys = 'k'\naddresses = ['{scheme}://");
            text(settings).replace("addresses = ['tcp://", &proven)
        };
        for scheme in ["tls", "quic"] {
            let cluster = Cluster::<Settings>::parse(&secured(scheme, &channel(""))).unwrap();
            assert_eq!(keys(&cluster).unwrap().trust(), Trust::Channels);
            assert!(matches!(client_signer(cluster.protocol(), 9, None), Ok(Signer::Unsigned)));
        }
        let refused =
            |file: &str| Cluster::<Settings>::parse(file).map(drop).unwrap_err().to_string();
        let rdma = text(&channel("")).replace("tcp://", "rdma://");
        for (scheme, file) in [("tcp", text(&channel(""))), ("rdma", rdma)] {
            let words = refused(&file);
            let remedy = format!("over {scheme}:// proves nobody: give node 4 addresses of tls://");
            assert!(words.contains(&remedy), "{words}");
        }
        let words = refused(&secured("tls", &channel("node = 3")));
        assert!(words.contains("connection of node 3, which is a replica"), "{words}");
        let words = refused(&text(&channel("")).replace("auth = 'channel'", "auth = 'signed'"));
        assert!(words.contains("client 9 has no key"), "{words}");
    }

    #[test]
    fn a_batch_that_others_would_refuse_is_refused_in_the_file() {
        let keys = keys_of("member", &[1, 2, 3, 4]) + &keys_of("client", &[9]);
        let with = |most: usize| text(&format!("batch_max = {most}\n{keys}"));
        assert!(Cluster::<Settings>::parse(&with(256)).is_ok());
        let refused = Cluster::<Settings>::parse(&with(257)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("batch_max has to be 256 or less"), "{refused}");
    }

    #[test]
    fn keys_that_are_missing_or_too_many_are_told() {
        let refused = |settings: &str| {
            Cluster::<Settings>::parse(&text(settings)).map(drop).unwrap_err().to_string()
        };
        let words = refused(&(keys_of("member", &[1, 2, 3, 3, 9]) + &keys_of("client", &[9])));
        for part in ["node 4 has no key", "a key of node 9", "node 3 stands there twice"] {
            assert!(words.contains(part), "{words}");
        }
        let words = refused(&keys_of("member", &[1, 2, 3, 4]));
        assert!(words.contains("there are 0 clients"), "{words}");
        let words = refused("[[protocol.member]]\nid = 1\nkey = 'abc'\n");
        assert!(words.contains("64 hexadecimal digits"), "{words}");
    }
}

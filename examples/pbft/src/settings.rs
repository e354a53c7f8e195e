//! Settings of a cluster in its file, the table `[protocol]`: its keys, its clients, its bounds.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::NodeId;
use convoke::quorum::{Configuration, ConfigurationError};
use node_kit::cluster::{Cluster, LedgerForm, Node, Protocol};
use serde::{Deserialize, Serialize};

use crate::core::{Checker, ClientId, Group, Keys, NoMembers, Scope, Signer};
use crate::key_file::PublicKey;
use crate::node::Options;

/// Protection of words and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// Ed25519 under all of them.
    #[default]
    Signed,
    /// Nothing, to measure all else. Anybody can say anything in anybody's name.
    None,
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
}

/// The table `[protocol]`. All nodes and clients must have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Place of the records: `disk`, or `ram` for measurements. A replica whose records are gone
    /// must not come back under its name.
    pub ledger: LedgerForm,
    /// Protection: `signed`, or `none` for measurements.
    pub auth: Auth,
    /// A request that has waited for so long ends the view; it doubles with each view that fails.
    /// Default 2,000.
    pub timeout_ms: u64,
    /// Batches between two checkpoints, each of which is a copy of the state. Default 256.
    pub checkpoint_every: u64,
    /// Requests of one batch, at most. Default 256.
    pub batch_max: usize,
    /// Batches that are proposed and not executed yet, at most. Default 4: requests that come
    /// meanwhile are the next batch.
    pub in_flight: u64,
    /// Mebibytes of the ledger between two snapshots. Default 256.
    pub snapshot_mib: u64,
    /// Keys of the nodes.
    pub member: Vec<KeyOf>,
    /// Keys of the clients.
    pub client: Vec<KeyOf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ledger: LedgerForm::Disk,
            auth: Auth::Signed,
            timeout_ms: 2_000,
            checkpoint_every: 256,
            batch_max: 256,
            in_flight: 4,
            snapshot_mib: 256,
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
        if nodes.len() < 4 {
            found.push(format!(
                "{} replicas stand none that lies: it takes 4 for one, 7 for two",
                nodes.len()
            ));
        }
        let named: BTreeSet<u64> = self.member.iter().map(|of| of.id).collect();
        let wanted: BTreeSet<u64> = nodes.iter().map(|node| node.id.get()).collect();
        for id in wanted.difference(&named) {
            found.push(format!("node {id} has no key: add a table [[protocol.member]]"));
        }
        for id in named.difference(&wanted) {
            found.push(format!("there is a key of node {id}, and no such node"));
        }
        found.extend(twice("node", &self.member));
        found.extend(twice("client", &self.client));
        if self.client.is_empty() || self.client.len() > CLIENTS_MAX {
            found.push(format!(
                "{} clients have a key: from 1 to {CLIENTS_MAX}, each in a table \
                 [[protocol.client]]",
                self.client.len()
            ));
        }
        let least = [self.timeout_ms, self.checkpoint_every, self.in_flight, self.snapshot_mib];
        if least.contains(&0) || self.batch_max == 0 {
            found.push(
                "timeout_ms, checkpoint_every, batch_max, in_flight and snapshot_mib have to be 1 \
                 or more"
                    .to_owned(),
            );
        }
        found
    }
}

/// Names and keys that stand there twice. Whoever has a key speaks for all that have it.
fn twice<'a>(whose: &'a str, keys: &'a [KeyOf]) -> impl Iterator<Item = String> + 'a {
    keys.iter().enumerate().flat_map(move |(index, of)| {
        let before = &keys[..index];
        let is_named = before.iter().any(|other| other.id == of.id);
        let is_known = before.iter().any(|other| other.key == of.key);
        let named = is_named.then(|| format!("{whose} {} has two keys", of.id));
        let known = is_known.then(|| format!("{whose} {} has the key of another", of.id));
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
    Ok(Configuration::new(cluster.peers())?)
}

/// Everybody's keys.
///
/// # Errors
/// [`SettingsError::Group`].
pub fn keys(cluster: &Cluster<Settings>) -> Result<Keys, SettingsError> {
    let settings = cluster.protocol();
    let group = Group::new(cluster.nodes().iter().map(|node| node.id))?;
    let checker = |key: &PublicKey| match settings.auth {
        Auth::Signed => key.checker(),
        Auth::None => Checker::Unsigned,
    };
    let member = |of: &KeyOf| Some((NodeId::try_from(of.id).ok()?, checker(&of.key)));
    let client = |of: &KeyOf| (ClientId(of.id), checker(&of.key));
    let members = settings.member.iter().filter_map(member).collect();
    let clients = settings.client.iter().map(client).collect();
    Ok(Keys::new(Scope { cluster: cluster.id(), epoch: EPOCH }, group, members, clients))
}

/// The epoch of a configuration: there is one as long as members do not change.
const EPOCH: u64 = 1;

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
    let signer = own_signer(settings.auth, ("node", node.get()), &settings.member, signer)?;
    let mut options = Options::new(node, members(cluster)?, keys(cluster)?, signer);
    options.core.timeout = Duration::from_millis(settings.timeout_ms);
    options.core.checkpoint_every = settings.checkpoint_every;
    options.core.window = settings.checkpoint_every.saturating_mul(2);
    options.core.batch_max = settings.batch_max;
    options.core.in_flight = settings.in_flight;
    options.snapshot_bytes = settings.snapshot_mib << 20;
    Ok(options)
}

/// The key that somebody signs with, if it is the one that the file has.
///
/// # Errors
/// [`SettingsError::OtherKey`].
pub fn own_signer(
    auth: Auth,
    (whose, id): (&'static str, u64),
    keys: &[KeyOf],
    signer: Signer,
) -> Result<Signer, SettingsError> {
    if auth == Auth::None {
        return Ok(Signer::Unsigned);
    }
    let known = keys.iter().find(|of| of.id == id).map(|of| of.key.checker());
    match (known, signer.checker()) {
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
    fn keys_that_are_missing_or_too_many_are_told() {
        let refused = |settings: &str| {
            Cluster::<Settings>::parse(&text(settings)).map(drop).unwrap_err().to_string()
        };
        let words = refused(&(keys_of("member", &[1, 2, 3, 3, 9]) + &keys_of("client", &[9])));
        for part in ["node 4 has no key", "a key of node 9", "node 3 has two keys"] {
            assert!(words.contains(part), "{words}");
        }
        let words = refused(&keys_of("member", &[1, 2, 3, 4]));
        assert!(words.contains("0 clients have a key"), "{words}");
        let words = refused("[[protocol.member]]\nid = 1\nkey = 'abc'\n");
        assert!(words.contains("64 hexadecimal digits"), "{words}");
    }
}

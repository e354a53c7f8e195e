//! The tables of a cluster file as they are written.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use convoke::NodeId;
use convoke::transport::Address;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Node;

/// All of a file.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de> + Default, R: Deserialize<'de> + Default"))]
pub(super) struct Rows<P, R> {
    pub(super) cluster: Head,
    #[serde(rename = "node")]
    pub(super) nodes: Vec<Row<R>>,
    #[serde(default)]
    pub(super) protocol: P,
}

/// The table `[cluster]`.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) name: String,
}

/// A table `[[node]]`.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Default"))]
pub(super) struct Row<R> {
    id: Name,
    addresses: Vec<Text<Address>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listen: Option<Vec<Text<Address>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<Text<SocketAddr>>,
    // Behind the others: it may be a table.
    #[serde(default)]
    role: R,
}

impl<R> Row<R> {
    /// The node, its paths below this folder.
    pub(super) fn into_node(self, folder: &Path) -> Node<R> {
        let of = |texts: Vec<Text<Address>>| texts.into_iter().map(|text| text.0).collect();
        let addresses: Vec<Address> = of(self.addresses);
        let own = self.folder.unwrap_or_else(|| format!("node-{}", self.id.0.get()).into());
        Node {
            id: self.id.0,
            role: self.role,
            listen: self.listen.map_or_else(|| addresses.clone(), of),
            addresses,
            folder: folder.join(own),
            keys: self.keys.map(|keys| folder.join(keys)),
            operation: self.operation.map(|text| text.0),
        }
    }
}

impl<R: Clone> From<&Node<R>> for Row<R> {
    fn from(node: &Node<R>) -> Self {
        let texts = |addresses: &[Address]| addresses.iter().cloned().map(Text).collect();
        let listens_elsewhere = node.listen != node.addresses;
        Self {
            id: Name(node.id),
            addresses: texts(&node.addresses),
            listen: listens_elsewhere.then(|| texts(&node.listen)),
            folder: Some(node.folder.clone()),
            keys: node.keys.clone(),
            operation: node.operation.map(Text),
            role: node.role.clone(),
        }
    }
}

/// A node as a number.
struct Name(NodeId);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        NodeId::try_from(u64::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        self.0.get().serialize(into)
    }
}

/// A value as the text that it is parsed from.
struct Text<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
    }
}

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(&self.0)
    }
}

//! Nodes and clients of this machine, with keys that are made for them.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use convoke::Endpoint;
use node_kit::program::local::{Form, Local as Processes};
use pbft::client::{Client, Options};
use pbft::core::Signer;
use pbft::key_file::SecretKey;
use pbft::settings::{Auth, ClientRow, KeyOf, Settings};

use super::node::KEY_FILE;

/// A cluster on the loopback, and its clients.
pub(crate) struct Local {
    pub(crate) processes: Processes<Settings>,
    endpoint: Endpoint,
    signers: Vec<(u64, Option<Signer>)>,
}

impl Local {
    /// Makes all keys, and writes those of the nodes and the cluster file. No node runs yet.
    pub(crate) async fn new(folder: &Path, clients: u64, mut form: Form<Settings>) -> Result<Self> {
        let settings = &mut form.settings;
        for id in 1..=form.nodes as u64 {
            let key = SecretKey::generate()?;
            key.write(&folder.join(format!("node-{id}")).join(KEY_FILE))?;
            settings.member.push(KeyOf { id, key: key.public(), joins: false });
        }
        let mut signers = Vec::new();
        for id in 1..=clients {
            // All clients have one endpoint, whose certificate is of the node behind the replicas.
            let by_connection = settings.auth == Auth::Channel;
            let node = by_connection.then_some(form.nodes as u64 + 1);
            let key = (!by_connection).then(SecretKey::generate).transpose()?;
            let public = key.as_ref().map(SecretKey::public);
            settings.client.push(ClientRow { id, key: public, node });
            signers.push((id, key.map(|key| key.signer())));
        }
        let processes = Processes::new(folder, form).await?;
        let endpoint = processes.client()?.keep_connected().start().await?;
        Ok(Self { processes, endpoint, signers })
    }

    /// An endpoint that knows all nodes.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// All clients.
    pub(crate) fn clients(&self, options: &Options) -> Result<Vec<Client>> {
        let cluster = self.processes.cluster();
        let client = |signer: &(u64, Option<Signer>)| {
            super::client::connect(&self.endpoint, cluster, signer.clone(), options.clone())
        };
        self.signers.iter().map(client).collect()
    }

    /// Stops all in good order.
    pub(crate) async fn stop(self) -> Result<()> {
        self.endpoint.shutdown(Duration::from_secs(1)).await;
        self.processes.stop().await
    }
}

//! A client of replicas that say that a later epoch has begun, and do not show how.

use std::collections::BTreeMap;
use std::future::pending;

use convoke::sim::transport::SimNetwork;
use convoke::{Context, Finish, Status, Task};
use node_kit::simulation::in_virtual_time;

use super::*;
use crate::core::{Group, Scope};
use crate::proto::{Handovers, InspectRequest, Inspection, Pbft, PbftServer, Since, Words};

const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };

fn signer(number: u8) -> Signer {
    Signer::stand_in([number; 32])
}

/// The replica of this number.
struct Later(u8);

impl Pbft for Later {
    async fn execute(&self, asked: Asked, task: Task<Answer>) -> Result<Finish, Status> {
        let (Some(asked::Asked::Request(request)) | Some(asked::Asked::RequestToAll(request))) =
            asked.asked
        else {
            unreachable!("a client asks no such thing")
        };
        let Request { client, number, .. } =
            wire::decode::<SignedRequest>(request).expect("the client's").request;
        let reply = Reply { client, number, view: View(0), outcome: Outcome::Forgotten };
        let scope = Scope { epoch: 2, ..SCOPE };
        let signed = signer(self.0).sign_replies(scope, NodeId::new(self.0.into()), [reply]);
        let (task, finish) = task.defer();
        let _ = task.answer(&Answer { reply: wire::encode(&signed[0]) }); // it may have given up
        Ok(finish)
    }

    async fn hand_over(&self, _: Since, _: Context) -> Result<Handovers, Status> {
        pending().await
    }

    async fn tell(&self, _: Words, _: Context) -> Result<(), Status> {
        unreachable!("a client says no such thing")
    }

    async fn inspect(&self, _: InspectRequest, _: Context) -> Result<Inspection, Status> {
        unreachable!("a client asks no such thing")
    }
}

#[test]
fn who_shows_no_members_takes_of_the_deadline_of_a_request() {
    in_virtual_time(async {
        let network = SimNetwork::new(7);
        let builder = || Endpoint::builder().transport(network.transport());
        let address = |id: u8| format!("sim://node{id}");
        let mut replicas = Vec::new();
        for id in 1..=4 {
            let replica = builder().node(NodeId::new(id.into())).listen(address(id));
            replicas.push(replica.serve(PbftServer::new(Later(id))).start().await.unwrap());
        }
        let ids = || (1..=4).map(|id: u8| (NodeId::new(id.into()), id));
        let members = Configuration::new(ids().map(|(node, id)| (node, address(id)))).unwrap();
        let endpoint = builder().node(NodeId::new(9)).peers(&members).start().await.unwrap();
        let group = Group::new(ids().map(|(node, _)| node)).unwrap();
        let checkers = ids().map(|(node, id)| (node, signer(id).checker())).collect();
        let clients = BTreeMap::from([(ClientId(9), signer(9).checker())]);
        let keys = Arc::new(Keys::new(SCOPE, group, checkers, clients));
        let options = Options { deadline: Duration::from_secs(3), ..Options::default() };
        let name = (ClientId(9), signer(9));
        let mut client = Client::new(&endpoint, &members, keys, name, options);
        let begun = Instant::now();
        let put = client.put("k", "v").await;
        assert!(matches!(put, Err(ClientError::OutcomeUnknown(_))), "{put:?}");
        assert_eq!(begun.elapsed().as_secs(), 3);
        for one in replicas.into_iter().chain([endpoint]) {
            one.shutdown(Duration::ZERO).await;
        }
    });
}

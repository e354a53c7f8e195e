//! An operator: lets nodes join and leave while clients are at work.

use std::time::Duration;

use convoke::NodeId;
use convoke_sim::random::Random;
use node_kit::simulation::{Load, Over, World};
use tokio::time::sleep;

use super::Paxos;
use crate::client::Client;

/// The name of the operator as a client.
const OPERATOR: u64 = 950;

/// Lets the operator begin, with a pause between two changes of at most this.
pub(super) async fn begin(
    world: &World<Paxos>,
    load: &mut Load<Client>,
    seed: u64,
    pause: Duration,
) {
    let client = world.client(OPERATOR).await.anyway(seed.is_multiple_of(2));
    let nodes = world.hosts().len() as u64;
    let operator = Operator { client, random: Random::of(seed, OPERATOR), nodes };
    load.spawn(|over| operator.run(pause, over));
}

struct Operator {
    client: Client,
    random: Random,
    nodes: u64,
}

impl Operator {
    async fn run(mut self, pause: Duration, over: Over) -> Client {
        while !over.is_over() {
            sleep(self.random.up_to(pause)).await;
            let node = NodeId::new(self.random.within(1..self.nodes + 1));
            // An error is one of these times: what becomes of a change is seen in the end.
            let _ = match self.random.within(0..10) {
                0..5 => self.client.join(node, Vec::new(), false).await,
                5..6 => self.client.join(node, Vec::new(), true).await,
                _ => self.client.leave(node).await,
            };
        }
        self.client
    }
}

#[cfg(test)]
mod tests {
    use node_kit::simulation::in_virtual_time;

    use super::super::Plan;
    use super::*;
    use crate::client::{ClientError, Shape};

    /// Of three one is down. Without one of the others nothing could be chosen.
    #[test]
    fn a_change_to_members_of_whom_too_few_are_heard_is_refused() {
        in_virtual_time(async {
            let mut world = Paxos::world(7, Plan::calm(3, Shape::Gather), false);
            world.start_all().await.unwrap();
            let mut client = world.client(OPERATOR).await;
            client.put("k", "a").await.unwrap();
            world.kill(2);
            sleep(Duration::from_secs(3)).await; // another may have to come to lead
            let refused = client.leave(NodeId::new(1)).await;
            let Err(ClientError::Refused(words)) = &refused else { panic!("{refused:?}") };
            assert!(words.starts_with("not heard: n3.") && words.contains("--anyway"), "{words}");
            client.put("k", "b").await.unwrap();
            client.leave(NodeId::new(3)).await.unwrap();
            client.put("k", "c").await.unwrap();
        });
    }
}

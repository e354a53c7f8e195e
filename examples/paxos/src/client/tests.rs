//! A client of one node that takes its time.

use convoke::sim::transport::SimNetwork;
use convoke::{Context, Finish, Status, Task};
use node_kit::simulation::in_virtual_time;

use super::*;
use crate::proto::{Answer, Done, FetchRequest, FetchedPart, Paxos, PaxosServer, Poll, Question};

/// Takes two seconds for each request.
struct Slow;

impl Paxos for Slow {
    async fn execute(&self, request: Request, task: Task<Reply>) -> Result<Finish, Status> {
        let (task, finish) = task.defer();
        sleep(Duration::from_secs(2)).await;
        let result = match request.action {
            Some(request::Action::Write(Entry { what: Some(entry::What::Open(_)) })) => {
                reply::Result::Opened(SessionName::default())
            }
            _ => reply::Result::Done(Done {}),
        };
        let _ = task.answer(&Reply { result: Some(result), leader: 1 }); // it may have given up
        Ok(finish)
    }

    async fn ask(&self, _: Question, _: Task<Answer>) -> Result<Finish, Status> {
        unreachable!("a client asks no such thing")
    }

    async fn vote(&self, _: Poll, _: Task<Reply>) -> Result<Finish, Status> {
        unreachable!("a client asks no such thing")
    }

    async fn fetch(&self, _: FetchRequest, _: Context) -> Result<FetchedPart, Status> {
        unreachable!("a client asks no such thing")
    }

    async fn inspect(&self, _: InspectRequest, _: Context) -> Result<Inspection, Status> {
        unreachable!("a client asks no such thing")
    }
}

#[test]
fn a_session_that_is_opened_first_takes_of_the_deadline_of_a_write() {
    in_virtual_time(async {
        let (network, node) = (SimNetwork::new(7), NodeId::new(1));
        let builder = || Endpoint::builder().transport(network.transport());
        let slow = builder().node(node).listen("sim://slow").serve(PaxosServer::new(Slow));
        let slow = slow.start().await.unwrap();
        let members = Configuration::new([(node, "sim://slow")]).unwrap();
        let endpoint = builder().node(NodeId::new(9)).peers(&members).start().await.unwrap();
        let mut options = Options::new(0, 3);
        options.attempt = Duration::from_secs(3);
        options.deadline = Duration::from_secs(3);
        let mut client = Client::new(&endpoint, &members, options);
        let begun = Instant::now();
        let first = client.put("k", "v").await;
        assert!(matches!(first, Err(ClientError::OutcomeUnknown(_))), "{first:?}");
        assert_eq!(begun.elapsed().as_secs(), 3);
        assert_eq!(client.put("k", "v").await, Ok(()));
        endpoint.shutdown(Duration::ZERO).await;
        slow.shutdown(Duration::ZERO).await;
    });
}

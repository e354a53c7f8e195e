//! Code of a crate of users against the facade: types of its own in every place for one, and
//! futures that can be spawned.

#![cfg(all(feature = "tcp", feature = "quorum"))]

use std::future::IntoFuture;

use convoke::prost::bytes::{Buf, BufMut, BytesMut};
use convoke::quorum::{
    Configuration, ConfigurationError, Majority, Member, MemberSet, QuorumExt, QuorumFunction,
    QuorumSystem, Replies, ToMember, Unsuitable, Verdict,
};
use convoke::telemetry::{Timestamp, TraceEvent};
use convoke::transport::{Hello, Incarnation, Link, LinkNonce, TcpTransport, TcpTransportBuilder};
use convoke::{
    CallError, Context, DecodeError, Endpoint, Failure, Finish, IntoService, ItemsError,
    ItemsFailure, LimitsError, Method, MethodId, NodeId, NotANodeId, OpenError, Path, PathTooDeep,
    Payload, Service, StartError, Status, Task, TaskKey,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A message with a wire format of its own.
#[derive(Clone, Debug, PartialEq)]
struct Celsius(f32);

impl Payload for Celsius {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(1);
        out.put_f32(self.0);
    }

    fn decode(mut bytes: impl Buf) -> std::result::Result<Self, DecodeError> {
        let version = bytes.try_get_u8().map_err(DecodeError::new)?;
        if version != 1 {
            return Err(DecodeError::new(std::io::Error::other("another version")));
        }
        bytes.try_get_f32().map(Self).map_err(DecodeError::new)
    }
}

const READ: Method<(), Celsius> = Method::new("interface.Sensor/Read").read_only();
const WARMER: Method<Celsius, Celsius> = Method::new("interface.Sensor/Warmer");
const SPREAD: Method<(), Celsius> = Method::new("interface.Sensor/Spread");

/// A service with a state, served as it is.
struct Sensor {
    node: NodeId,
    others: Vec<NodeId>,
}

impl Sensor {
    async fn read(&self, (): (), _: Context) -> std::result::Result<Celsius, Status> {
        Ok(Celsius(20.0 + f32::from(u16::try_from(self.node.get()).unwrap_or_default())))
    }

    async fn warmer(&self, by: Celsius, context: Context) -> std::result::Result<Celsius, Status> {
        let now = context.call(READ, ()).to(self.node).await?;
        Ok(Celsius(now.0 + by.0))
    }

    async fn spread(&self, (): (), task: Task<Celsius>) -> std::result::Result<Finish, Status> {
        task.fan_out(self.others.iter().map(|other| (other, READ.request(())))).await
    }
}

impl IntoService for Sensor {
    fn into_service(self) -> Service {
        let service = Service::with(self).unary(READ, Self::read).unary(WARMER, Self::warmer);
        service.tree(SPREAD, Self::spread).into_service()
    }
}

/// The first member and one more.
#[derive(Debug)]
struct FirstAndAnother;

impl QuorumSystem for FirstAndAnother {
    fn check(&self, members: &[NodeId]) -> std::result::Result<(), Unsuitable> {
        Majority.check(members)
    }

    fn is_quorum(&self, _: &[NodeId], present: &MemberSet) -> bool {
        present.contains(0) && present.len() > 1
    }
}

/// The warmest of a majority.
struct Warmest;

impl QuorumFunction<Celsius> for Warmest {
    type Output = f32;

    fn system(&self) -> &dyn QuorumSystem {
        &Majority
    }

    fn decide(&mut self, replies: &mut Replies<Celsius>) -> Verdict<f32> {
        if !replies.reach(&Majority) {
            return Verdict::Continue;
        }
        Verdict::Done(replies.iter().map(|(_, reply)| reply.0).fold(f32::MIN, f32::max))
    }
}

/// A row of a cluster file.
struct Row {
    id: u64,
    address: String,
}

impl ToMember for &Row {
    fn to_member(self) -> std::result::Result<Member, ConfigurationError> {
        (self.id, &self.address).to_member()
    }
}

async fn cluster() -> Result<(Vec<Endpoint>, Configuration)> {
    let mut servers = Vec::new();
    for id in 1..=3 {
        let node = NodeId::new(id);
        let sensor = Sensor { node, others: vec![node; 2] };
        let builder = convoke::endpoint().node(node).listen("tcp://127.0.0.1:0").serve(sensor);
        servers.push(builder.start().await?);
    }
    let row = |server: &Endpoint| Row {
        id: server.node().get(),
        address: server.addresses()[0].to_string(),
    };
    let rows: Vec<Row> = servers.iter().map(row).collect();
    let members = Configuration::new(&rows)?;
    assert_eq!(members, Configuration::new(&servers)?);
    Ok((servers, members))
}

#[tokio::test]
async fn types_of_another_crate_take_every_place_and_all_futures_can_be_spawned() -> Result {
    let (_servers, members) = cluster().await?;
    let client = convoke::endpoint().peers(&members).keep_connected().start().await?;
    let one = members.members()[0];

    let call = client.call(READ, ()).to(one).into_future();
    assert_eq!(tokio::spawn(call).await??, Celsius(21.0));
    let call = client.call(WARMER, Celsius(0.5)).to(one).into_future();
    assert_eq!(tokio::spawn(call).await??, Celsius(21.5));
    let call = client.call(SPREAD, ()).to(one).open()?;
    let (replies, outcome) = tokio::spawn(call.collect()).await??;
    assert_eq!((replies.len(), outcome.is_complete()), (2, true));

    let ask = || client.call(READ, ()).to_all(&members);
    assert!(tokio::spawn(ask().quorum(Warmest).into_future()).await?? >= 22.0);
    let decided = tokio::spawn(ask().quorum(FirstAndAnother).detailed()).await??;
    assert!(decided.answered.contains(one.node()) && decided.value.len() >= 2);
    let each = members.each(&client, |member| Some(READ.request(())).filter(|_| member != one));
    let counted = each.quorum_by(|replies: &Replies<Celsius>| match replies.len() {
        2 => Verdict::Done(replies.iter().map(|(node, _)| node).collect::<Vec<_>>()),
        _ => Verdict::Continue,
    });
    assert!(!tokio::spawn(counted.into_future()).await??.contains(&one.node()));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_decoded_is_an_error_of_its_call() -> Result {
    let (_servers, members) = cluster().await?;
    let client = convoke::endpoint().peers(&members).start().await?;
    let text = Method::<(), String>::new(READ.name());
    let one = members.members()[0];
    let error = client.call(text, ()).to(one).await.expect_err("it is no text");
    assert!(matches!(error, CallError::Decode { .. }), "{error}");
    assert_eq!(client.call(READ, ()).to(one).await?, Celsius(21.0));
    Ok(())
}

/// Types that signatures and fields are made of have names here: users hand them on, and transports
/// of their own make them.
#[test]
fn what_signatures_name_can_be_named() {
    let _: fn(Failure) -> TaskKey = |failure| failure.task;
    let _: fn(&TraceEvent) -> Timestamp = |event| event.at;
    let _: fn(&Link) -> LinkNonce = |link| link.nonce;
    let _: fn(&Hello) -> Incarnation = |hello| hello.incarnation;
    let _: fn(&Method<(), Celsius>) -> MethodId = Method::id;
    let _: fn(&Path) -> std::result::Result<Path, PathTooDeep> = |path| path.child(0);
    let _: fn(u64) -> std::result::Result<NodeId, NotANodeId> = NodeId::try_from;
    let _: fn(OpenError) -> CallError = CallError::NotOpened;
    let _: fn(LimitsError) -> StartError = StartError::Limits;
    let _: fn(ItemsFailure) -> ItemsError = ItemsError::Failed;
    let _: fn() -> TcpTransportBuilder = TcpTransport::builder;
}

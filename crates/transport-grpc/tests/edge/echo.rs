//! The service that foreign clients call, on two nodes, and its descriptors.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_core::details::{BadRequest, FieldViolation};
use convoke_core::{Code, Context, Endpoint, Finish, Items, Method, Peer, Service, Status, Task};
use convoke_transport::id::NodeId;
use convoke_transport_grpc::{GrpcEdge, GrpcEdgeBuilder, GrpcTransport};
use tokio::sync::Notify;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Number {
    #[prost(uint32, tag = "1")]
    pub(crate) number: u32,
}

pub(crate) const SAY: Method<Text, Text> = Method::new("edge.test.Echo/Say").read_only();
const METADATA: Method<Text, Text> = Method::new("edge.test.Echo/Metadata");
const WAIT: Method<Text, Text> = Method::new("edge.test.Echo/Wait");
const WAITS: Method<Text, Text> = Method::new("edge.test.Echo/Waits");
const FAIL: Method<Number, Text> = Method::new("edge.test.Echo/Fail");
const COUNT: Method<Number, Text> = Method::new("edge.test.Echo/Count");
const HAND: Method<Text, Text> = Method::new("edge.test.Echo/Hand");
const TWICE: Method<Text, Text> = Method::new("edge.test.Echo/Twice");
const HALF: Method<Text, Text> = Method::new("edge.test.Echo/Half");
const MEASURE: Method<Text, Text> = Method::new("edge.test.Echo/Measure");
const NUMBERED: Method<Number, Text> = Method::new("edge.test.Echo/Numbered");
const GATHER: Method<Items<Text>, Text> = Method::new("edge.test.Echo/Gather");
const TALK: Method<Items<Text>, Text> = Method::new("edge.test.Echo/Talk");
const IGNORE: Method<Items<Text>, Text> = Method::new("edge.test.Echo/Ignore");
const SPREAD: Method<Text, Text> = Method::new("edge.test.Echo/Spread");

/// A node nobody can reach.
const NOWHERE: u64 = 666;

fn nowhere() -> NodeId {
    NodeId::new(NOWHERE)
}

/// Details of the failure of an empty text.
pub(crate) fn no_text() -> BadRequest {
    let field_violations =
        vec![FieldViolation { field: "text".into(), ..FieldViolation::default() }];
    BadRequest { field_violations }
}

/// Facts that the handlers tell the tests.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) waiting: Notify,
    pub(crate) cancelled: Notify,
    /// Tasks that wait until they are cancelled: how many have begun, and how many have ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// A `Gather` has taken its second text.
    pub(crate) gathering: Notify,
    /// Streams of which `Gather` has taken two texts.
    pub(crate) gathering_two: AtomicUsize,
    /// Streams that `Gather` has read to their end.
    pub(crate) gathered: AtomicUsize,
}

/// Two nodes that serve the same, connected through gRPC, and an edge of the first.
pub(crate) struct Stage {
    pub(crate) edge: GrpcEdge,
    pub(crate) near: Endpoint,
    pub(crate) far: Endpoint,
    pub(crate) told: Arc<Told>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|builder, _| builder.descriptor_set(descriptor_set())).await
    }

    /// With settings, which may depend on the far node.
    pub(crate) async fn with(
        change: impl FnOnce(GrpcEdgeBuilder, Peer) -> GrpcEdgeBuilder,
    ) -> Self {
        let told = Arc::new(Told::default());
        let far = node(Vec::new(), &told).await;
        let far_peer = Peer::from(far.node());
        let near = node(vec![far_peer, Peer::from(nowhere())], &told);
        let near = near.await;
        let address = far.addresses()[0].to_string();
        near.connect(&address).await.expect("the far node listens");
        let edge = change(GrpcEdge::builder(&near), far_peer).start("127.0.0.1:0").await;
        Self { edge: edge.expect("loopback can be bound"), near, far, told }
    }

    pub(crate) async fn stop(self) {
        self.edge.shutdown(Duration::from_secs(5)).await;
        self.near.shutdown(Duration::from_secs(5)).await;
        self.far.shutdown(Duration::from_secs(5)).await;
    }
}

async fn node(others: Vec<Peer>, told: &Arc<Told>) -> Endpoint {
    let builder = Endpoint::builder().transport(GrpcTransport::new()).listen("grpc://127.0.0.1:0");
    builder.serve(service(others, told)).metrics().start().await.expect("loopback can be bound")
}

fn service(others: Vec<Peer>, told: &Arc<Told>) -> Service {
    let [told, telling, asked, gathering, ignoring] = std::array::from_fn(|_| Arc::clone(told));
    let (next, nowhere) = (others.first().copied(), Peer::from(nowhere()));
    Service::new()
        .tree(HAND, move |text: Text, task: Task<Text>| async move {
            let next = next.ok_or_else(|| Status::new(Code::NotFound, "there is no next node"))?;
            Ok::<Finish, Status>(task.tail(next, SAY.request(text)).await?)
        })
        .tree(TWICE, move |text: Text, task: Task<Text>| {
            let told = Arc::clone(&telling);
            async move {
                let _guard = Told::cancelled_on_drop(&told);
                task.reply(&text)?;
                task.reply(&text)?;
                std::future::pending::<Result<Finish, Status>>().await
            }
        })
        .tree(HALF, move |text: Text, task: Task<Text>| async move {
            task.reply(&text)?;
            Ok::<Finish, Status>(task.tail(nowhere, SAY.request(text)).await?)
        })
        .unary(SAY, |text: Text, _: Context| async move {
            Ok::<_, Status>(Text { text: text.text.to_uppercase() })
        })
        .unary(METADATA, |_: Text, context: Context| async move {
            let pairs = context
                .metadata()
                .iter()
                .map(|(key, value)| format!("{key}={}\n", value.escape_ascii()));
            Ok::<_, Status>(Text { text: pairs.collect() })
        })
        .unary(WAIT, move |_: Text, _: Context| {
            let told = Arc::clone(&told);
            async move {
                let _guard = Told::cancelled_on_drop(&told);
                told.waiting.notify_one();
                std::future::pending::<Result<Text, Status>>().await
            }
        })
        .unary(WAITS, move |_: Text, context: Context| {
            let counts = [&asked.begun, &asked.ended].map(|count| count.load(Ordering::Relaxed));
            let left = context.remaining().as_millis();
            async move {
                Ok::<_, Status>(Text { text: format!("{} {} {left}", counts[0], counts[1]) })
            }
        })
        .unary(FAIL, |number: Number, _: Context| async move {
            let code = Code::from_number(number.number);
            let status = Status::new(code, "as you like — gern").with_details(&b"\x08\x05"[..]);
            Err::<Text, _>(status)
        })
        .tree(COUNT, |number: Number, task: Task<Text>| async move {
            for count in 1..=number.number {
                task.reply(&Text { text: count.to_string() })?;
            }
            Ok::<Finish, Status>(task.finish())
        })
        .unary(MEASURE, |text: Text, context: Context| async move {
            let length = text.text.len();
            context.reply_metadata("length", length.to_string())?;
            context.reply_metadata("raw-bin", [0, 255])?;
            context.reply_metadata("padded", " a b ")?;
            // None of these is for a service to say, or can be said.
            for key in ["grpc-status", "content-type", "Connection", "convoke-executed", "a key"] {
                context.reply_metadata(key, "0")?;
            }
            context.reply_metadata("ctl", "line\nline")?;
            context.reply_metadata("long", "x".repeat(9_000))?;
            match length {
                0 => Err(Status::new(Code::NotFound, "no text").with_detail(&no_text())),
                _ => Ok(Text { text: text.text.to_uppercase() }),
            }
        })
        .tree(NUMBERED, |number: Number, task: Task<Text>| async move {
            for count in 1..=number.number {
                task.context().reply_metadata("number", count.to_string())?;
                task.reply(&Text { text: count.to_string() })?;
            }
            if number.number < 100 {
                return Ok(task.finish());
            }
            task.context().reply_metadata("last", "word")?;
            Err(Status::new(Code::Aborted, "enough"))
        })
        .unary(GATHER, move |mut texts: Items<Text>, context: Context| {
            let told = Arc::clone(&gathering);
            async move {
                let mut all = String::new();
                let mut count = 0;
                while let Some(text) = texts.next().await {
                    let text = text?.text;
                    if text.is_empty() {
                        return Err(Status::new(Code::InvalidArgument, format!("after {all}")));
                    }
                    all += &text;
                    count += 1;
                    if count == 2 {
                        told.gathering_two.fetch_add(1, Ordering::Relaxed);
                        told.gathering.notify_one();
                    }
                }
                told.gathered.fetch_add(1, Ordering::Relaxed);
                context.reply_metadata("count", count.to_string())?;
                Ok(Text { text: all })
            }
        })
        .tree(TALK, |mut texts: Items<Text>, task: Task<Text>| async move {
            let mut answers = task.stream()?;
            while let Some(text) = texts.next().await {
                let text = text?.text;
                if text.is_empty() {
                    break;
                }
                answers.send(&Text { text: text.to_uppercase() }).await?;
            }
            drop(answers);
            Ok::<Finish, Status>(task.finish())
        })
        .unary(IGNORE, move |texts: Items<Text>, _: Context| {
            let told = Arc::clone(&ignoring);
            async move {
                let _guard = (Told::cancelled_on_drop(&told), texts);
                told.waiting.notify_one();
                std::future::pending::<Result<Text, Status>>().await
            }
        })
        .tree(SPREAD, move |text: Text, task: Task<Text>| {
            let others = others.clone();
            async move {
                task.reply(&Text { text: text.text.clone() })?;
                let others = others.into_iter();
                task.fan_out(others.map(|peer| (peer, SAY.request(text.clone())))).await
            }
        })
}

impl Told {
    fn cancelled_on_drop(told: &Arc<Self>) -> impl Drop + use<> {
        struct Guard(Arc<Told>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.ended.fetch_add(1, Ordering::Relaxed);
                self.0.cancelled.notify_one();
            }
        }
        told.begun.fetch_add(1, Ordering::Relaxed);
        Guard(Arc::clone(told))
    }
}

/// Descriptors that `convoke-build` writes of the service.
pub(crate) fn descriptor_set() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let set = folder.path().join("echo.bin");
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proto");
    convoke_build::configure()
        .out_dir(folder.path())
        .file_descriptor_set_path(&set)
        .emit_rerun_if_changed(false)
        .compile_protos(&[protos.join("echo.proto")], &[protos])
        .expect("the file compiles");
    std::fs::read(set).expect("it was written")
}

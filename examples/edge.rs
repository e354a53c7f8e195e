//! Any gRPC client calls a service, and a service calls any gRPC server.
//!
//! ```sh
//! cargo run --example edge --features grpc
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::grpc::{ForeignServer, GrpcEdge};
use convoke::transport::GrpcTransport;
use convoke::{Context, Finish, Method, Service, Status, Task};

const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello").read_only();
const LETTERS: Method<String, String> = Method::new("greeter.Greeter/Letters").read_only();
const WELCOME: Method<String, String> = Method::new("desk.Desk/Welcome");

async fn hello(name: String, _: Context) -> Result<String, Status> {
    Ok(format!("hello, {name}"))
}

async fn letters(name: String, task: Task<String>) -> Result<Finish, Status> {
    for letter in name.chars() {
        task.reply(&letter.to_string())?;
    }
    Ok(task.finish())
}

/// The way out: a gRPC server that is no node, within the deadline of this task.
async fn welcome(name: String, greeter: ForeignServer, task: Context) -> Result<String, Status> {
    let greeting = greeter.call(HELLO, &name).within(&task).await?;
    Ok(format!("{greeting}, welcome"))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let greeter = Service::new().unary(HELLO, hello).tree(LETTERS, letters);
    let server = convoke::endpoint()
        .transport(GrpcTransport::new())
        .listen("grpc://127.0.0.1:0")
        .serve(greeter)
        .start()
        .await?;

    // The way in: a port for gRPC clients. This node serves nothing itself, and passes the calls
    // on.
    let gateway = convoke::endpoint().transport(GrpcTransport::new()).start().await?;
    let peer = gateway.connect(server.addresses()).await?;
    let edge = GrpcEdge::builder(&gateway)
        .message_bytes_max(1 << 20)
        .route(move |_method| peer)
        .start("127.0.0.1:0")
        .await?;

    // Any client does: grpcurl, Python, tonic, or this.
    let greeter = ForeignServer::new(edge.local_addr());
    let answer = greeter.call(HELLO, &"Ada".into()).deadline(Duration::from_secs(2)).await?;
    println!("{answer}");
    assert_eq!(answer, "hello, Ada");

    // A call with many replies is a stream.
    let mut replies = greeter.call(LETTERS, &"Ada".into()).stream().await?;
    let mut letters = Vec::new();
    while let Some(letter) = replies.next().await? {
        letters.push(letter);
    }
    assert_eq!(letters, ["A", "d", "a"]);

    let desk = Service::new()
        .unary(WELCOME, move |name, task: Context| welcome(name, greeter.clone(), task));
    let desk = convoke::endpoint().serve(desk).start().await?;
    let call = desk.call(WELCOME, "Ada".into()).to(desk.me());
    assert_eq!(call.await?, "hello, Ada, welcome");

    edge.shutdown(Duration::from_secs(1)).await;
    for endpoint in [desk, gateway, server] {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}

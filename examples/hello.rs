//! The smallest program: a server, a client, and a call between them over TCP.
//!
//! ```sh
//! cargo run --example hello
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{Code, Context, Method, Service, Status};

/// The method, as both sides know it: a name, what it takes, what it answers. Messages are protobuf
/// messages; the plain types, such as `String`, are among them.
const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello").read_only();

async fn hello(name: String, context: Context) -> Result<String, Status> {
    if name.is_empty() {
        return Err(Status::new(Code::InvalidArgument, "a name is needed"));
    }
    let polite = context.metadata().text("tone") == Some("polite");
    Ok(if polite { format!("good day, {name}") } else { format!("hello, {name}") })
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // Port 0 is any free one. In earnest it would be tcp://0.0.0.0:7000.
    let greeter = Service::new().unary(HELLO, hello);
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(greeter).start().await?;

    // Who only calls needs no address of their own.
    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;

    // One branch, one reply. Nothing is sent until it is awaited.
    let answer = client.call(HELLO, "Ada".into()).to(peer).await?;
    println!("{answer}");
    assert_eq!(answer, "hello, Ada");

    // Metadata travels with the request, and so does what is left of the deadline.
    let call = client.call(HELLO, "Ada".into()).metadata("tone", "polite");
    let answer = call.deadline(Duration::from_secs(2)).to(peer).await?;
    println!("{answer}");
    assert_eq!(answer, "good day, Ada");

    // An error of the service comes back as such, with the branch and the node it comes from.
    let nobody = client.call(HELLO, String::new()).to(peer).await;
    let error = nobody.expect_err("the service refuses it");
    println!("{error}");
    let status = error.status().ok_or("it is the service's own error")?;
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "a name is needed"));

    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

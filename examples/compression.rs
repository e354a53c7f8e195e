//! Compression: large messages between endpoints that were both told to.
//!
//! ```sh
//! cargo run --example compression --features zstd
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{Compression, Context, Method, Service, Status};

const BOOK: Method<String, String> = Method::new("library.Library/Book").read_only();

async fn book(title: String, _: Context) -> Result<String, Status> {
    Ok(format!("{title}, and what is in it. ").repeat(10_000))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let library = Service::new().unary(BOOK, book);
    let how = Compression::zstd_from(16 << 10); // messages of at least 16 KiB
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(library).compression(how);
    let server = server.start().await?;

    // This one takes what is compressed; what it sends is small anyway.
    let reader = convoke::endpoint().compression(Compression::accept_only()).start().await?;
    // And this one was not told to: it is sent no compressed message.
    let plain = convoke::endpoint().start().await?;

    for (client, is_small) in [(reader, true), (plain, false)] {
        let peer = client.connect(server.addresses()).await?;
        let text = client.call(BOOK, "Ada's notes".into()).to(peer).await?;
        let received = client.counters().bytes_received;
        println!("{} bytes of text, {received} received", text.len());
        assert_eq!(received < 10_000, is_small);
        client.shutdown(Duration::from_secs(1)).await;
    }
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

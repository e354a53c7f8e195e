//! A request of many items, sent no faster than they are read, and a conversation in both
//! directions.
//!
//! ```sh
//! cargo run --example upload
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{
    Client, Code, Context, Finish, Items, Method, Peer, SendError, Service, Status, Task,
};

const STORE: Method<Items<Vec<u8>>, u64> = Method::new("files.Files/Store");
const CHAT: Method<Items<String>, String> = Method::new("files.Files/Chat");

/// The largest file that is stored.
const FILE_BYTES_MAX: u64 = 3_000_000;

/// Stores what comes, and says how many bytes that were.
async fn store(mut chunks: Items<Vec<u8>>, _: Context) -> Result<u64, Status> {
    let mut stored = 0;
    while let Some(chunk) = chunks.next().await {
        // A caller that goes away is an error here, not an end: no part is taken for the whole.
        stored += chunk?.len() as u64;
        if stored > FILE_BYTES_MAX {
            return Err(Status::new(Code::ResourceExhausted, "the file is too large"));
        }
    }
    Ok(stored)
}

/// Answers each line as it comes.
async fn chat(mut lines: Items<String>, task: Task<String>) -> Result<Finish, Status> {
    let mut answers = task.stream()?;
    while let Some(line) = lines.next().await {
        answers.send(&line?.to_uppercase()).await?;
    }
    drop(answers);
    Ok(task.finish())
}

async fn upload(client: &Client, store: Peer, file: &[u8]) -> Result<u64, Status> {
    let (mut chunks, call) = client.call_stream(STORE).to(store).open()?;
    for chunk in file.chunks(64 << 10) {
        // Waits here while the handler is behind.
        match chunks.send(&chunk.to_vec()).await {
            // It reads no more: the call says why.
            Err(SendError::Ended) => break,
            sent => sent?,
        }
    }
    chunks.finish();
    Ok(call.first().await?.into_inner())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let files = Service::new().unary(STORE, store).tree(CHAT, chat);
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(files).start().await?;
    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;

    let stored = upload(&client.client(), peer, &vec![7; 2_000_000]).await?;
    println!("{stored} bytes stored");
    assert_eq!(stored, 2_000_000);
    let refused = upload(&client.client(), peer, &vec![7; 9_000_000]).await;
    println!("then refused: {refused:?}");
    assert_eq!(refused.map_err(|status| status.code()), Err(Code::ResourceExhausted));

    // The call has the replies, and the stream takes the items: use both at once.
    let (mut lines, mut call) = client.call_stream(CHAT).to(peer).open()?;
    for line in ["hello", "goodbye"] {
        lines.send(&line.to_owned()).await?;
        let answer = call.next().await.ok_or("it answers each line")??;
        println!("{line}: {}", answer.message());
    }
    lines.finish();
    assert!(call.outcome().await.is_complete());
    for endpoint in [client, server] {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}

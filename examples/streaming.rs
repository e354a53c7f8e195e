//! A reply of many items: in order, without gaps, and no faster than they are read.
//!
//! ```sh
//! cargo run --example streaming
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke::{Finish, Method, Service, Status, Task};

const READINGS: Method<u64, Vec<u8>> = Method::new("sensor.Sensor/Readings").read_only();

/// Bytes of one item.
const ITEM_BYTES: usize = 1_000;

/// Sends as many items as were asked for, and counts those that were taken.
async fn readings(count: u64, task: Task<Vec<u8>>, sent: Arc<AtomicU64>) -> Result<Finish, Status> {
    let mut stream = task.stream()?;
    for _ in 0..count {
        // Waits here while the reader is behind.
        stream.send(&vec![7; ITEM_BYTES]).await?;
        sent.fetch_add(1, Ordering::Relaxed);
    }
    Ok(task.finish())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    let sensor =
        Service::new().tree(READINGS, move |count, task| readings(count, task, counter.clone()));
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(sensor).start().await?;
    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;

    // Items are replies that have a number.
    let mut call = client.call(READINGS, 2_000).to(peer).open()?;
    let mut items = 0;
    while let Some(item) = call.next().await {
        let item = item?;
        assert_eq!(item.item(), Some(items));
        items += 1;
    }
    println!("{items} items, in order");
    assert_eq!((items, sent.swap(0, Ordering::Relaxed)), (2_000, 2_000));

    // Whoever asks for a million and reads ten holds the sender back. Then they lose interest:
    // dropping the call cancels it, and the handler is stopped where it waits.
    let mut call = client.call(READINGS, 1_000_000).to(peer).open()?;
    for _ in 0..10 {
        call.next().await.ok_or("there are more")??;
    }
    drop(call);
    let stopped = server.shutdown(Duration::from_secs(5)).await;
    let sent = sent.load(Ordering::Relaxed);
    println!("10 items read, {sent} sent, then cancelled; handler stopped: {stopped}");
    // At most the window of 256 KiB, what was read, one item that fits it in part and one held
    // behind that.
    assert!(stopped && sent <= 12 + (256 << 10) / ITEM_BYTES as u64);
    client.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

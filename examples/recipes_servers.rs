//! Recipes for servers, one in each handler: load, time, work that blocks, work that must not be cut
//! in half, answers from elsewhere.
//!
//! ```sh
//! cargo run --example recipes_servers
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke::transport::MemTransport;
use convoke::{
    Code, Context, Deferred, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task,
};
use tokio::sync::{Mutex, Notify, Semaphore, mpsc};

const RENDER: Method<String, String> = Method::new("studio.Studio/Render");
const HASH: Method<String, u64> = Method::new("studio.Studio/Hash").read_only();
const PAY: Method<u64, u64> = Method::new("studio.Studio/Pay");
const GET: Method<String, String> = Method::new("studio.Studio/Get").read_only();
const APPEND: Method<String, u64> = Method::new("studio.Studio/Append");
const NEXT: Method<(), u64> = Method::new("studio.Studio/Next").ordered();
const ERASE: Method<String, ()> = Method::new("studio.Studio/Erase");
const SUMMARY: Method<String, String> = Method::new("studio.Studio/Summary").read_only();
const LINES: Method<u64, String> = Method::new("studio.Studio/Lines").read_only();
const LOAD: Method<String, String> = Method::new("studio.Store/Load").read_only();

const STORE: NodeId = NodeId::new(1);
const ADMIN: NodeId = NodeId::new(9);

/// Takes one transfer at a time.
#[derive(Default)]
struct Bank {
    begun: Notify,
    paid: Mutex<u64>,
}

impl Bank {
    async fn transfer(&self, cents: u64) -> u64 {
        self.begun.notify_waiters();
        let mut paid = self.paid.lock().await;
        *paid += cents;
        *paid
    }
}

struct Studio {
    room: Semaphore,
    bank: Arc<Bank>,
    /// Held by each transfer; nothing is sent.
    under_way: mpsc::Sender<()>,
    cache: BTreeMap<String, String>,
    queue: mpsc::UnboundedSender<(String, Deferred<u64>)>,
    numbers: AtomicU64,
}

impl Studio {
    /// Refuses what it has no room for, rather than let it wait.
    async fn render(&self, scene: String, _: Context) -> Result<String, Status> {
        let full = |_| Status::new(Code::ResourceExhausted, "all studios are taken");
        // Nothing was changed, so callers know that they may ask again, or elsewhere.
        let _room = self.room.try_acquire().map_err(|error| full(error).without_effect())?;
        Ok(format!("{scene}, rendered"))
    }

    /// Computes on a thread that may block.
    async fn hash(&self, text: String, _: Context) -> Result<u64, Status> {
        let sum =
            move || text.bytes().fold(0_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(byte));
        let done = tokio::task::spawn_blocking(sum).await;
        done.map_err(|error| Status::new(Code::Internal, error.to_string()))
    }

    /// Runs to its end, even if its caller gives up in the middle, or its node is shut down.
    async fn pay(&self, cents: u64, _: Context) -> Result<u64, Status> {
        let (bank, under_way) = (self.bank.clone(), self.under_way.clone());
        let transfer = tokio::spawn(async move {
            let _under_way = under_way;
            bank.transfer(cents).await
        });
        transfer.await.map_err(|error| Status::new(Code::Internal, error.to_string()))
    }

    /// Answers what it knows, and hands the rest to the store, which answers in its place.
    async fn get(&self, key: String, task: Task<String>) -> Result<Finish, Status> {
        match self.cache.get(&key) {
            Some(known) => task.answer(known),
            None => Ok(task.tail(STORE, LOAD.request(key)).await?),
        }
    }

    /// Returns at once. The task is answered by whoever takes it out of the queue.
    async fn append(&self, line: String, task: Task<u64>) -> Result<Finish, Status> {
        let (later, finish) = task.defer();
        if let Err(mpsc::error::SendError((_, later))) = self.queue.send((line, later)) {
            later.fail(Status::new(Code::Unavailable, "no writer").without_effect());
        }
        Ok(finish)
    }

    /// One at a time for each caller, in the order in which that caller asked.
    async fn next(&self, (): (), _: Context) -> Result<u64, Status> {
        let number = self.numbers.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.numbers.store(number + 1, Ordering::Relaxed);
        Ok(number)
    }

    /// Tells callers apart. Their names are proven where the transport has certificates.
    async fn erase(&self, _: String, context: Context) -> Result<(), Status> {
        let caller = context.caller();
        // A client of the administrator's edge has its node, and is not it.
        if caller.client().is_some() || caller.node() != ADMIN {
            return Err(Status::new(Code::PermissionDenied, "ask the administrator"));
        }
        Ok(())
    }

    /// Keeps some of its time, to say something in any case.
    async fn summary(&self, key: String, context: Context) -> Result<String, Status> {
        let for_store = context.remaining().saturating_sub(Duration::from_millis(500));
        let asked = context.call(LOAD, key).deadline(for_store).to(STORE).await;
        Ok(asked.unwrap_or_else(|missing| format!("in short: {missing}")))
    }

    /// Sends items no faster than they are read.
    async fn lines(&self, count: u64, task: Task<String>) -> Result<Finish, Status> {
        let mut stream = task.stream()?;
        for number in 0..count {
            stream.send(&format!("line {number}")).await?;
        }
        Ok(task.finish())
    }
}

/// Writes what is in the queue in rounds, and answers each line with its place.
async fn write(mut queue: mpsc::UnboundedReceiver<(String, Deferred<u64>)>) {
    let (mut file, mut round) = (Vec::new(), Vec::new());
    while queue.recv_many(&mut round, 64).await > 0 {
        for (line, later) in round.drain(..) {
            file.push(line);
            // An error says that who asked has given up. The line is written.
            let _ = later.answer(&(file.len() as u64));
        }
    }
}

async fn load(key: String, _: Context) -> Result<String, Status> {
    match key.as_str() {
        "never" => std::future::pending().await,
        _ => Ok(format!("{key}, from the store")),
    }
}

/// Several nodes in one program, without a socket.
async fn start(node: NodeId, name: &str, service: Service) -> Result<Endpoint, Box<dyn Error>> {
    let builder = Endpoint::builder().transport(MemTransport::new()).node(node);
    let builder = builder.peer(STORE, "mem://recipes-store").serve(service);
    Ok(builder.listen(format!("mem://recipes-{name}")).start().await?)
}

fn code<T>(result: Result<T, convoke::CallError>) -> Option<Code> {
    result.err()?.status().map(|status| status.code())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let store = start(STORE, "store", Service::new().unary(LOAD, load)).await?;
    let (queue, lines) = mpsc::unbounded_channel();
    let (under_way, mut transfers) = mpsc::channel(1);
    let bank = Arc::new(Bank::default());
    let service = Service::with(Studio {
        room: Semaphore::new(0),
        bank: bank.clone(),
        under_way,
        cache: BTreeMap::from([("wren".to_owned(), "a small bird".to_owned())]),
        queue,
        numbers: AtomicU64::new(0),
    })
    .unary(RENDER, Studio::render)
    .unary(HASH, Studio::hash)
    .unary(PAY, Studio::pay)
    .tree(GET, Studio::get)
    .tree(APPEND, Studio::append)
    .unary(NEXT, Studio::next)
    .unary(ERASE, Studio::erase)
    .unary(SUMMARY, Studio::summary)
    .tree(LINES, Studio::lines);
    let writer = tokio::spawn(write(lines));
    let studio =
        start(NodeId::new(2), "studio", convoke::IntoService::into_service(service)).await?;
    let client = Endpoint::builder().transport(MemTransport::new()).start().await?;
    let to: Peer = client.connect(studio.addresses()).await?;

    let refused = client.call(RENDER, "act one".into()).to(to).await.expect_err("no room");
    assert!(refused.is_safe_to_repeat(), "{refused}");
    assert_eq!(client.call(HASH, "ab".into()).to(to).await?, (97 << 5) ^ 98);
    assert_eq!(client.call(PAY, 100).to(to).await?, 100);
    for (key, expected) in [("wren", "a small bird"), ("heron", "heron, from the store")] {
        assert_eq!(client.call(GET, key.into()).to(to).await?, expected);
    }
    assert_eq!(client.call(APPEND, "first".into()).to(to).await?, 1);
    let turns = (0..10).map(|_| (to, NEXT.request(())));
    let (turns, _) = client.fan_out(turns).open()?.collect().await?;
    let mut turns: Vec<u64> = turns.into_iter().map(|turn| turn.into_inner()).collect();
    turns.sort_unstable();
    assert!(turns.into_iter().eq(0..10), "no number twice");
    let denied = client.call(ERASE, "wren".into()).to(to).await;
    assert_eq!(code(denied), Some(Code::PermissionDenied));
    let never = client.call(SUMMARY, "never".into()).deadline(Duration::from_secs(1)).to(to);
    println!("{}", never.await?);
    let (lines, end) = client.call(LINES, 500).to(to).open()?.collect().await?;
    assert!(lines.len() == 500 && end.is_complete(), "{end:?}");

    // Given up in the middle of a transfer, which ends all the same, later than its node.
    let (bank_is_busy, begun) = (bank.paid.lock().await, bank.begun.notified());
    let given_up = client.call(PAY, 700).to(to).open()?;
    begun.await;
    drop(given_up);
    for node in [client, studio, store] {
        node.shutdown(Duration::from_secs(1)).await;
    }
    drop(bank_is_busy);
    // Each transfer that is under way holds a sender.
    assert_eq!(transfers.recv().await, None);
    assert_eq!(*bank.paid.lock().await, 800);
    writer.await?;
    Ok(())
}

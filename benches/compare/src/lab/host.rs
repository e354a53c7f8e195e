//! The process itself, and what it serves.

use std::future::pending;
use std::io::{self, BufRead as _};
use std::sync::{Arc, OnceLock};
use std::thread;

use anyhow::{Context as _, Result};
use convoke::{Code, Context, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task};
use tokio::sync::mpsc;

use crate::control::say;
use crate::flavour::Flavour;

use super::Host;
use super::state::State;

/// Gives back what it is given.
pub(crate) const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Lab/Echo");
/// Never answers.
pub(crate) const NEVER: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Lab/Never");
/// Fails with `NotFound`.
pub(crate) const FAIL: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Lab/Fail");
/// Answers with a mebibyte.
const LARGE: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Lab/Large");
/// Answers with what a reply may have without being granted any.
const BULK: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Lab/Bulk");
/// Goes on to the next host; the last answers.
pub(crate) const HOPS: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Lab/Hops");

/// Size of the body of a small call.
pub(crate) const BODY_BYTES: usize = 100;

const LARGE_BYTES: usize = 1 << 20;
const BULK_BYTES: usize = 16_000;

type Next = Arc<OnceLock<Peer>>;

/// Serves until its input ends.
///
/// # Errors
/// When it cannot listen, or nobody reads what it says.
pub fn serve(host: &Host) -> Result<()> {
    Flavour::Ct.runtime()?.block_on(serve_on_runtime(host))
}

async fn serve_on_runtime(host: &Host) -> Result<()> {
    let next = Next::default();
    let node = NodeId::try_from(host.node).context("hosts are numbered from 1")?;
    let builder = host.room.endpoint().node(node).transport(host.room.transport()?);
    let builder = builder.listen(format!("tcp://{}", host.listen)).serve(service(&next));
    let endpoint = builder.start().await?;
    say(&format!("listening {}", endpoint.addresses()[0]))?;
    let (tell_next, mut told) = mpsc::unbounded_channel();
    let answering = endpoint.clone();
    // The thread says that the input has ended by letting go of its end.
    thread::spawn(move || answer(&answering, &tell_next));
    while let Some(address) = told.recv().await {
        let peer = endpoint.connect(&address).await?;
        next.set(peer).ok().context("it has a next one already")?;
        say("joined")?;
    }
    Ok(())
}

fn service(next: &Next) -> Service {
    let next = Arc::clone(next);
    Service::new()
        .unary(ECHO, |body: Vec<u8>, _: Context| async { Ok::<_, Status>(body) })
        .unary(NEVER, |_: Vec<u8>, _: Context| pending::<Result<Vec<u8>, Status>>())
        .unary(FAIL, |_: Vec<u8>, _: Context| async {
            Err::<Vec<u8>, _>(Status::new(Code::NotFound, "nothing here"))
        })
        .unary(LARGE, |_: Vec<u8>, _: Context| async { Ok::<_, Status>(vec![7; LARGE_BYTES]) })
        .unary(BULK, |_: Vec<u8>, _: Context| async { Ok::<_, Status>(vec![7; BULK_BYTES]) })
        .tree(HOPS, move |body, task| hop(Arc::clone(&next), body, task))
}

async fn hop(next: Next, body: Vec<u8>, task: Task<Vec<u8>>) -> Result<Finish, Status> {
    match next.get() {
        None => task.answer(&body),
        Some(next) => Ok(task.tail(next, HOPS.request(body)).await?),
    }
}

fn answer(endpoint: &Endpoint, next: &mpsc::UnboundedSender<String>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let is_answered = match line.split_once(' ') {
            None if line == "state" => {
                let state = serde_json::to_string(&State::of(endpoint));
                state.is_ok_and(|state| say(&format!("state {state}")).is_ok())
            }
            Some(("next", address)) => next.send(address.to_owned()).is_ok(),
            _ => false,
        };
        if !is_answered {
            return;
        }
    }
}

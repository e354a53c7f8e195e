//! The server of `compare scale`: echoes, keeps calls for ever, and says what it holds when it is asked.

use std::future::pending;
use std::io::{self, BufRead as _};
use std::thread;

use anyhow::Result;
use convoke::{Context, Endpoint, Method, Service, Status};
use tokio::sync::oneshot;

use crate::control::say;

use super::Part;
use super::state::State;

pub(super) const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Scale/Echo");
pub(super) const NEVER: Method<Vec<u8>, Vec<u8>> = Method::new("compare.Scale/Never");

/// What every call carries.
pub(super) const BODY_BYTES: usize = 100;

/// Serves until its input ends.
pub(super) async fn serve(part: &Part) -> Result<()> {
    let service = Service::new()
        .unary(ECHO, |body: Vec<u8>, _: Context| async { Ok::<_, Status>(body) })
        .unary(NEVER, |_: Vec<u8>, _: Context| pending::<Result<Vec<u8>, Status>>());
    let builder = part.endpoint().transport(part.transport()?).serve(service);
    let endpoint = builder.listen("tcp://127.0.0.1:0").start().await?;
    say(&format!("listening {}", endpoint.addresses()[0]))?;
    let (ended, wait) = oneshot::channel::<()>();
    thread::spawn(move || {
        answer(&endpoint);
        drop(ended);
    });
    // The thread says so by letting go of the other end.
    let _ = wait.await;
    Ok(())
}

fn answer(endpoint: &Endpoint) {
    for line in io::stdin().lock().lines() {
        let is_asked = line.is_ok_and(|line| line == "state");
        let state = serde_json::to_string(&State::of(endpoint));
        let Ok(state) = state else { return };
        if !is_asked || say(&format!("state {state}")).is_err() {
            return;
        }
    }
}

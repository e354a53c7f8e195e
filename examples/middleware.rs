//! Middleware: tower layers around a service and around calls.
//!
//! ```sh
//! cargo run --example middleware --features tower
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke::details::RetryInfo;
use convoke::middleware::{Handled, Incoming};
use convoke::{CallError, Code, Context, IntoService as _, Method, Request, Service, Status};
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

const WHO_AM_I: Method<(), String> = Method::new("desk.Desk/WhoAmI").read_only();

/// The user that the middleware finds out for the handlers.
struct User(String);

/// Lets those in who say who they are.
fn admit(request: Incoming) -> Result<Incoming, BoxError> {
    let user = request.context().metadata().text("user").map(str::to_owned);
    let user = user.ok_or_else(|| Status::new(Code::Unauthenticated, "who are you?"))?;
    request.context().insert(User(user));
    Ok(request)
}

#[derive(Default)]
struct Desk {
    is_open: AtomicBool,
}

impl Desk {
    /// Opens for whoever comes second.
    async fn who_am_i(&self, _: (), context: Context) -> Result<String, Status> {
        if !self.is_open.swap(true, Ordering::Relaxed) {
            let soon = RetryInfo::after(Duration::from_millis(20));
            let closed = Status::new(Code::Unavailable, "the desk opens soon").with_detail(&soon);
            return Err(closed.without_effect());
        }
        let user: Arc<User> =
            context.get().ok_or_else(|| Status::new(Code::Internal, "no user"))?;
        Ok(user.0.clone())
    }
}

/// Repeats what cannot have run and may end otherwise, a few times, with longer and longer pauses.
#[derive(Clone)]
struct Patience {
    tries: u32,
    pause: Duration,
}

impl Patience {
    /// Pause before the next try, if there is to be one.
    fn wait_after(&self, error: &CallError) -> Option<Duration> {
        // Failures of the runtime have codes, too: a node that cannot be reached is `Unavailable`.
        let status = Status::from(error.clone());
        let may_pass = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
        let asked = status.detail::<RetryInfo>().and_then(|later| later.delay());
        let wait = self.pause.max(asked.unwrap_or_default());
        (error.is_safe_to_repeat() && may_pass && wait <= Duration::from_secs(1)).then_some(wait)
    }
}

impl<Resp> Policy<Request<Resp>, Resp, CallError> for Patience {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Request<Resp>,
        result: &mut Result<Resp, CallError>,
    ) -> Option<Sleep> {
        let wait = self.wait_after(result.as_ref().err()?)?;
        self.tries = self.tries.checked_sub(1)?;
        self.pause *= 2;
        Some(sleep(wait))
    }

    fn clone_request(&mut self, request: &Request<Resp>) -> Option<Request<Resp>> {
        Some(request.clone())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The first layer is the first that a request meets. Its errors are the task's.
    let layers = ServiceBuilder::new()
        .map_err(|error: BoxError| match error.downcast::<Status>() {
            Ok(status) => *status,
            Err(error) => Status::new(Code::DeadlineExceeded, error.to_string()),
        })
        .concurrency_limit(64)
        .timeout(Duration::from_secs(2))
        .filter(admit)
        .map_response(|handled: Handled| {
            println!("answered with {} bytes", handled.payload().map_or(0, |bytes| bytes.len()));
            handled
        });
    let desk = Service::with(Desk::default()).unary(WHO_AM_I, Desk::who_am_i);
    let desk = desk.into_service().layer(layers);
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(desk).start().await?;

    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;

    // Calls to one peer, as a service with layers of its own.
    let patience = Patience { tries: 2, pause: Duration::from_millis(10) };
    let calls =
        ServiceBuilder::new().concurrency_limit(8).retry(patience).service(client.service(peer));
    let request = WHO_AM_I.request(()).metadata("user", b"Ada");
    let name = calls.clone().oneshot(request).await?;
    println!("you are {name}");
    assert_eq!(name, "Ada");

    // The middleware refused: the handler did not run, so that it is safe to repeat. It was not
    // repeated, for the answer would be the same.
    let refused = calls.oneshot(WHO_AM_I.request(())).await;
    let error = refused.expect_err("nobody says who asks");
    println!("{error}");
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Unauthenticated));
    assert!(error.is_safe_to_repeat());

    client.shutdown(Duration::from_secs(1)).await;
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

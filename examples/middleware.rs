//! Middleware: tower layers around a service and around calls.
//!
//! ```sh
//! cargo run --example middleware --features tower
//! ```

use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use convoke::middleware::{Handled, Incoming};
use convoke::{CallError, Code, Context, Method, Request, Service, Status};
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

async fn who_am_i(_: (), context: Context) -> Result<String, Status> {
    let user: Arc<User> = context.get().ok_or_else(|| Status::new(Code::Internal, "no user"))?;
    Ok(user.0.clone())
}

/// Repeats what cannot have run, twice at most.
#[derive(Clone)]
struct Patience(usize);

impl<Resp> Policy<Request<Resp>, Resp, CallError> for Patience {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Resp>,
        result: &mut Result<Resp, CallError>,
    ) -> Option<Ready<()>> {
        let is_safe = result.as_ref().is_err_and(CallError::is_safe_to_repeat);
        self.0 = self.0.checked_sub(1).filter(|_| is_safe)?;
        Some(ready(()))
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
    let desk = Service::new().unary(WHO_AM_I, who_am_i).layer(layers);
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(desk).start().await?;

    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;

    // Calls to one peer, as a service with layers of its own.
    let calls =
        ServiceBuilder::new().concurrency_limit(8).retry(Patience(2)).service(client.service(peer));
    let request = WHO_AM_I.request(()).metadata("user", b"Ada");
    let name = calls.clone().oneshot(request).await?;
    println!("you are {name}");
    assert_eq!(name, "Ada");

    // The middleware refused: the handler did not run, so that it is safe to repeat. It was, twice.
    let refused = calls.oneshot(WHO_AM_I.request(())).await;
    let error = refused.expect_err("nobody says who asks");
    println!("{error}");
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Unauthenticated));
    assert!(error.is_safe_to_repeat());

    client.shutdown(Duration::from_secs(1)).await;
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

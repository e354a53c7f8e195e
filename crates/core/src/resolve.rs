//! Addresses of nodes by their names, from the application: asked for where none is known or none
//! answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_proto::time::Timestamp;
use convoke_transport::parts::Mutex;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::transport::{Address, BoxFuture, DialError, ToAddresses};

/// An error of any kind, as an application has it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Finds the addresses of nodes by their names, such as in a registry; see
/// [`EndpointBuilder::resolver`](crate::EndpointBuilder::resolver).
///
/// It is asked when this node calls one of which it has no address, or when all that it has failed.
/// Nothing that others send makes it ask, and where only they say that a node is, that is dialled
/// after what the resolver finds. An answer holds for
/// [`backoff_min`](crate::Limits::backoff_min) and is asked for again only after the pause that
/// follows a failed dial. A resolver that fails, panics or takes longer than 5 s fails the dial
/// alone, as [`DialError::Unresolved`]. Of its answer the first 16 addresses are dialled. Each
/// hello says which node answers, and under TLS proves it: a wrong address is refused.
///
/// Every function of a `NodeId` that gives [addresses](ToAddresses) is one:
/// ```
/// use convoke_core::{Endpoint, NodeId};
///
/// let builder = Endpoint::builder().resolver(|node: NodeId| async move {
///     Ok::<_, std::io::Error>(format!("tcp://node-{}.cluster.internal:7000", node.get()))
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the addresses of nodes",
    label = "neither a `Resolve` nor a function of a `NodeId`",
    note = "a closure takes a `NodeId` and gives a future of `Result<addresses, error>`",
    note = "`|node: NodeId| async move {{ Ok::<_, std::io::Error>(\"tcp://host:7000\") }}`"
)]
pub trait Resolve: Send + Sync + 'static {
    /// The addresses at which a node can be dialled, the best first. Must not block.
    fn addresses(&self, node: NodeId) -> BoxFuture<Result<Vec<Address>, BoxError>>;
}

impl<F, Found, A, E> Resolve for F
where
    F: Fn(NodeId) -> Found + Send + Sync + 'static,
    Found: Future<Output = Result<A, E>> + Send + 'static,
    A: ToAddresses,
    E: Into<BoxError>,
{
    fn addresses(&self, node: NodeId) -> BoxFuture<Result<Vec<Address>, BoxError>> {
        let found = self(node);
        Box::pin(async move { Ok(found.await.map_err(Into::into)?.to_addresses()?) })
    }
}

/// Longest time for an answer: that of a DNS query that is repeated once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses taken of one answer, since each may cost the dial timeout.
const ADDRESSES_MAX: usize = 16;

type Answer = Result<Vec<Address>, DialError>;

/// A question that all share who have it meanwhile, and its answer with the time when it came.
type Asked = Arc<OnceCell<(Timestamp, Answer)>>;

/// The resolver of an endpoint, and what it has just answered.
pub(crate) struct Resolver {
    resolve: Arc<dyn Resolve>,
    asked: Mutex<BTreeMap<NodeId, Asked>>,
}

impl Resolver {
    pub(crate) fn new(resolve: impl Resolve) -> Self {
        Self { resolve: Arc::new(resolve), asked: Mutex::default() }
    }

    /// The addresses of a node, by an answer that is no older than `age_max`.
    pub(crate) async fn addresses(
        &self,
        node: NodeId,
        now: impl Fn() -> Timestamp,
        age_max: Duration,
    ) -> Answer {
        let answer = {
            let (mut asked, now) = (self.asked.lock(), now());
            asked.retain(|_, answer| match answer.get() {
                Some((at, _)) => now.since(*at) < age_max,
                None => Arc::strong_count(answer) > 1, // Somebody waits for it.
            });
            asked.entry(node).or_default().clone()
        };
        let ask = async || {
            let answer = self.ask(node).await;
            (now(), answer)
        };
        answer.get_or_init(ask).await.1.clone()
    }

    /// On a task of its own, so that a panic stays there.
    async fn ask(&self, node: NodeId) -> Answer {
        let resolve = self.resolve.clone();
        let mut asking = JoinSet::new();
        asking.spawn(async move {
            let answer = resolve.addresses(node).await;
            answer.map_err(|error| error.to_string())
        });
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asking.join_next()).await;
        let message = match answer {
            Ok(Some(Ok(Ok(addresses)))) if addresses.is_empty() => "it knows none".to_owned(),
            Ok(Some(Ok(Ok(mut addresses)))) => {
                addresses.truncate(ADDRESSES_MAX);
                return Ok(addresses);
            }
            Ok(Some(Ok(Err(text)))) => text,
            Ok(Some(Err(_)) | None) => "it panicked".to_owned(),
            Err(_) => format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        };
        Err(DialError::Unresolved { node, message })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{CallError, Cause, ConnectError, Endpoint, Executed, Method};

    const ASK: Method<String, String> = Method::new("test.Test/Ask");

    /// An error that cannot be told.
    #[derive(Debug)]
    struct Unspeakable;

    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("on purpose")
        }
    }

    impl std::error::Error for Unspeakable {}

    /// By the number of the node: what a resolver can do wrong.
    async fn wrong(node: NodeId) -> Result<&'static str, std::io::Error> {
        match node.get() {
            2 => Err(std::io::Error::other("no such host")),
            3 => panic!("on purpose"),
            4 => std::future::pending().await,
            5 => Ok("not an address"),
            8 => Err(std::io::Error::other(Unspeakable)),
            _ => Ok("none://of.a.transport.here"),
        }
    }

    /// Failure of a call to a node, and the time it took.
    async fn fail(endpoint: &Endpoint, node: u64) -> (String, Duration) {
        #[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
        let now = tokio::time::Instant::now;
        let begin = now();
        let call = endpoint.call(ASK, String::new()).to(NodeId::new(node)).await;
        let Err(CallError::Branch(failure)) = call else { panic!("nobody is there: {call:?}") };
        assert_eq!((failure.cause, failure.executed), (Cause::Unreachable, Executed::No));
        (failure.text, now() - begin)
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_goes_wrong_fails_the_calls_that_need_it_and_no_other() {
        let endpoint = Endpoint::builder().resolver(wrong).start().await.expect("nothing to bind");
        let expected = [
            (2, "no such host"),
            (3, "it panicked"),
            (5, "is not an address"),
            (6, "no transport"),
            (8, "it panicked"),
        ];
        for (node, why) in expected {
            let (text, took) = fail(&endpoint, node).await;
            assert!(text.contains(why) && took < Duration::from_millis(10), "{node}: {text}");
        }
        let hung = fail(&endpoint, 4);
        let other = fail(&endpoint, 7);
        let ((text, hung), (_, other)) = tokio::join!(hung, other);
        assert!(text.contains("no answer within 5 s"), "{text}");
        assert!(hung >= ANSWER_TIMEOUT && hung < ANSWER_TIMEOUT * 2, "{hung:?}");
        assert!(other < Duration::from_millis(10), "{other:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_asked_for_once_however_many_dial_it_and_again_after_a_pause() {
        let asked = Arc::<AtomicUsize>::default();
        let counting = {
            let asked = asked.clone();
            move |node| {
                asked.fetch_add(1, Ordering::Relaxed);
                wrong(node)
            }
        };
        let endpoint =
            Endpoint::builder().resolver(counting).start().await.expect("nothing to bind");
        let node = NodeId::new(2);
        let calls = || endpoint.call(ASK, String::new()).to(node);
        let warm_up = endpoint.warm_up(node);
        let (one, other, warm) = tokio::join!(calls(), calls(), warm_up);
        assert!(one.is_err() && other.is_err());
        let error = warm.expect_err("nobody knows it");
        assert!(matches!(error, ConnectError::Dial(DialError::Unresolved { .. })), "{error}");
        for _ in 0..10 {
            assert!(calls().await.is_err());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(calls().await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_resolver_is_asked_once_by_all_who_come_before_its_answer() {
        let asked = Arc::<AtomicUsize>::default();
        let slow = {
            let asked = asked.clone();
            move |node| {
                asked.fetch_add(1, Ordering::Relaxed);
                let answer = wrong(node);
                async move {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    answer.await
                }
            }
        };
        let endpoint = Endpoint::builder().resolver(slow).start().await.expect("nothing to bind");
        let node = NodeId::new(2);
        let _kept = endpoint.keep_connected(node);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (text, took) = fail(&endpoint, 2).await;
        assert!(text.contains("no such host") && took <= Duration::from_millis(101), "{took:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_taken_up_to_its_bound() {
        let many = |_| async { Ok::<_, std::io::Error>(vec!["none://here"; 1_000]) };
        let resolver = Resolver::new(many);
        let now = || Timestamp::ZERO;
        let found = resolver.addresses(NodeId::new(2), now, Duration::ZERO).await;
        assert_eq!(found.map(|found| found.len()), Ok(ADDRESSES_MAX));
        let none = Resolver::new(|_| async { Ok::<_, std::io::Error>([""; 0]) });
        let found = none.addresses(NodeId::new(2), now, Duration::ZERO).await;
        assert!(found.is_err_and(|error| error.to_string().contains("it knows none")));
    }
}

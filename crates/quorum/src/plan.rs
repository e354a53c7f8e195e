//! Requests that are sent later than the others: retries and hedges.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_core::seam::{EndpointSeam as _, Timer};
use convoke_core::{CallBuilder, Cause, Client, Code, Failure, Payload, Peer, Request};
use tokio::time::Instant;

/// Number of times that the request of a member is sent again, and the pause before; for
/// [`QuorumBuilder::retry`](crate::QuorumBuilder::retry).
///
/// Only of methods that are [idempotent](convoke_core::Method::idempotent), and only after failures
/// that may pass: the member was not reached, went down, was shutting down, or had no room
/// ([`Code::Unavailable`] of a service, too). The deadline is that of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    pause: Duration,
}

impl Retry {
    /// Up to this many times more, after 20 ms, 40 ms, 80 ms, ...
    pub const fn times(attempts: u32) -> Self {
        Self { attempts, pause: Duration::from_millis(20) }
    }

    /// After this pause, doubling; after 1 ms at least. Default 20 ms.
    #[must_use]
    pub const fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    fn pause_before(self, attempt: u32) -> Duration {
        self.pause.saturating_mul(2_u32.saturating_pow(attempt)).max(PAUSE_MIN)
    }
}

/// Number of members to ask first; see [`QuorumBuilder::hedge`](crate::QuorumBuilder::hedge).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hedge {
    pub(crate) first: usize,
    pub(crate) every: Duration,
}

/// Requests to be sent later.
pub(crate) struct Plan<Resp> {
    client: Client,
    deadline: Instant,
    requests: Vec<(Peer, Request<Resp>)>,
    retry: Option<Retry>,
    waiting: Vec<Waiting>,
    attempts: Vec<u32>,
    timer: Timer,
}

struct Waiting {
    at: Instant,
    branch: usize,
    /// Its failure, where it is to be asked again; else it was not asked yet.
    failure: Option<Failure>,
}

/// The next thing that a plan has to do.
pub(crate) enum Due<Resp> {
    /// A request, and its branch.
    Ask(usize, CallBuilder<Resp>),
    /// Nothing any more of a branch: the deadline has passed. Its failure, if it was asked.
    TooLate(usize, Option<Failure>),
}

impl Waiting {
    fn is_hedge(&self) -> bool {
        self.failure.is_none()
    }
}

impl<Resp: Payload> Plan<Resp> {
    /// The plan for a call, and what of the call is to be sent now.
    pub(crate) fn new(
        call: CallBuilder<Resp>,
        retry: Option<Retry>,
        hedge: Option<Hedge>,
    ) -> (CallBuilder<Resp>, Box<Self>) {
        let now = Instant::now();
        let client = call.client().clone();
        let budget = call.budget().min(FAR);
        let requests: Vec<(Peer, Request<Resp>)> =
            call.branches().map(|(peer, request)| (*peer, request.clone())).collect();
        let first = hedge.map_or(requests.len(), |hedge| hedge.first.max(1).min(requests.len()));
        let every = hedge.map_or(Duration::ZERO, |hedge| hedge.every);
        let deadline = now + budget;
        let later = (first..requests.len()).zip(1_u32..);
        let later = later.map(|(branch, turn)| {
            let at = now + every.saturating_mul(turn).min(budget);
            Waiting { at, branch, failure: None }
        });
        // Those whose turn is at the deadline are asked where others fail before.
        let waiting: Vec<Waiting> = later.collect();
        let plan = Self {
            timer: Timer::at(client.endpoint().runtime(), deadline),
            attempts: vec![0; requests.len()],
            client,
            deadline,
            requests,
            retry,
            waiting,
        };
        let now = plan.client.fan_out(plan.requests[..first].iter().cloned()).deadline(budget);
        (now, Box::new(plan))
    }

    /// The next member whose turn has not come need not wait for it.
    pub(crate) fn hasten(&mut self) {
        let now = Instant::now();
        let hedges =
            self.waiting.iter_mut().filter(|waiting| waiting.is_hedge() && waiting.at > now);
        if let Some(next) = hedges.min_by_key(|waiting| waiting.at) {
            next.at = now;
        }
    }

    /// As [`Self::hasten`], unless it is somebody's turn.
    pub(crate) fn hasten_if_none_is_due(&mut self) {
        let now = Instant::now();
        if !self.waiting.iter().any(|waiting| waiting.is_hedge() && waiting.at <= now) {
            self.hasten();
        }
    }

    /// Nobody is asked any more who was not asked yet.
    pub(crate) fn drop_hedges(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_hedge());
    }

    /// Gives the branches that were to be asked again, with the failure of each. None is asked any
    /// more.
    pub(crate) fn give_up(self) -> impl Iterator<Item = (usize, Failure)> {
        self.waiting.into_iter().filter_map(|waiting| Some((waiting.branch, waiting.failure?)))
    }

    /// Notes that a branch has failed. True when it is asked again, so that nobody need know yet.
    pub(crate) fn repeat(&mut self, branch: usize, failure: &Failure) -> bool {
        let (Some(retry), Some(attempt)) = (self.retry, self.attempts.get_mut(branch)) else {
            return false;
        };
        let at = Instant::now().checked_add(retry.pause_before(*attempt));
        let Some(at) = at.filter(|at| *at < self.deadline) else { return false };
        if *attempt >= retry.attempts || !may_pass(failure) {
            return false;
        }
        *attempt += 1;
        self.waiting.push(Waiting { at, branch, failure: Some(failure.clone()) });
        true
    }

    /// The next thing that is due; otherwise wakes when something is.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Option<Due<Resp>> {
        let (index, next) =
            self.waiting.iter().enumerate().min_by_key(|(_, waiting)| waiting.at)?;
        if next.at > Instant::now() {
            if self.timer.deadline() != next.at {
                self.timer.reset(next.at);
            }
            if Pin::new(&mut self.timer).poll(cx) == Poll::Pending {
                return None;
            }
        }
        let Waiting { branch, failure, .. } = self.waiting.swap_remove(index);
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Some(Due::TooLate(branch, failure));
        }
        let (peer, request) = self.requests.get(branch)?;
        let call = self.client.invoke(request.clone()).to(peer);
        Some(Due::Ask(branch, call.deadline(left)))
    }

    /// True when anything is still to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Without a pause a member that fails at once would be asked again and again in one poll, and
/// nothing else on its thread would have a turn.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Beyond any deadline that an endpoint grants, and within what a clock can add.
const FAR: Duration = Duration::from_secs(1 << 30);

/// True when the same request to the same member may go better after a while.
fn may_pass(failure: &Failure) -> bool {
    match failure.cause {
        Cause::NodeDown
        | Cause::Unreachable
        | Cause::Lost
        | Cause::ReplyLost
        | Cause::Overloaded
        | Cause::ShuttingDown => true,
        Cause::Application => Code::from_number(failure.code) == Code::Unavailable,
        _ => false,
    }
}

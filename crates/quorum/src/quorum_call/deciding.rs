//! A quorum call that is awaited for its decision.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use convoke_core::{NodeId, Payload};

use crate::error::MemberError;
use crate::replies::Replies;
use crate::roster::Roster;
use crate::{Configuration, QuorumError, QuorumFunction, Unsuitable, Verdict};

use super::builder::Needs;
use super::{News, QuorumBuilder, QuorumCall};

/// A quorum call and the rule that decides it: resolves to the answer, or to the reason why there
/// is none, as soon as either is certain. What was asked runs on after the decision, unless
/// [`QuorumBuilder::cancel_late`] has it cancelled: with any method that is not read-only the call
/// is refused then.
///
/// # Cancel safety
/// Dropped before it resolves, what still runs is cancelled.
#[must_use = "nothing is sent until it is awaited"]
pub struct Deciding<Resp, F> {
    state: State<Resp>,
    function: F,
}

#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for every call")]
enum State<Resp> {
    Ready(QuorumBuilder<Resp>),
    Open(QuorumCall<Resp>, Heard),
    /// The rule does not fit.
    Refused(Unsuitable),
    Over,
}

/// News of a call of which its rule has not been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It is to be asked of the call as it is.
    Something,
    Nothing,
}

/// A decision, and the members that had a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decided<T> {
    /// The answer.
    pub value: T,
    /// The members that had replied by then: to ask exactly these again.
    pub answered: Configuration,
    /// The members that had failed by then.
    pub failed: Vec<(NodeId, MemberError)>,
}

impl<Resp: Payload + 'static, F: QuorumFunction<Resp>> Deciding<Resp, F> {
    pub(super) fn new(builder: QuorumBuilder<Resp>, function: F) -> Self {
        Self { state: State::Ready(builder), function }
    }

    pub(super) fn of(mut call: QuorumCall<Resp>, function: F) -> Self {
        let state = match function.system().check(call.replies.members()) {
            Ok(()) => {
                call.replies.discount_taken();
                State::Open(call, Heard::Something)
            }
            Err(unsuitable) => State::Refused(unsuitable),
        };
        Self { state, function }
    }

    /// Resolves to the answer together with the members that had replied and those that had failed.
    ///
    /// # Errors
    /// [`QuorumError`], as awaited itself.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, what still runs is cancelled.
    pub async fn detailed(mut self) -> Result<Decided<F::Output>, QuorumError> {
        let value = poll_fn(|cx| self.poll_decision(cx)).await?;
        let State::Open(call, _) = &self.state else {
            unreachable!("it stays open until it is let run");
        };
        let answered = call.answered();
        let failed = call.replies.failed().map(|(node, error)| (node, error.clone())).collect();
        self.let_go(false);
        Ok(Decided { value, answered, failed })
    }

    /// Resolves to the answer, with the call still open, or to the reason why there is none.
    fn poll_decision(&mut self, cx: &mut Context<'_>) -> Poll<Result<F::Output, QuorumError>> {
        let is_new = self.open(cx.waker())?;
        let State::Open(call, heard) = &mut self.state else {
            panic!("polled after it was ready");
        };
        if is_new && !call.has_plan() {
            return Poll::Pending; // Its waker is kept.
        }
        let decided = ready!(poll_verdict(call, &mut self.function, heard, cx));
        if decided.is_err() {
            self.let_go(true);
        }
        Poll::Ready(decided)
    }

    fn let_go(&mut self, has_failed: bool) {
        match &mut self.state {
            // Where it lies.
            State::Open(call, _) if call.late.is_none() => {
                call.source.let_go(has_failed);
                self.state = State::Over;
            }
            state => {
                if let State::Open(call, _) = std::mem::replace(state, State::Over) {
                    call.let_go(has_failed);
                }
            }
        }
    }

    /// Opens the call, unless it is open. True when it was not.
    fn open(&mut self, waker: &Waker) -> Result<bool, QuorumError> {
        if matches!(self.state, State::Open(..)) {
            return Ok(false);
        }
        let function = &mut self.function;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(builder) => {
                let roster = builder.roster()?;
                function.system().check(roster.members())?;
                if !roster.skipped().is_empty() {
                    refuse_hopeless(&roster, function)?;
                }
                let fewest = function.system().fewest(roster.members().len());
                // Replies that do not count may make it impossible sooner.
                let hopeless = (roster.remaining() + 1).saturating_sub(fewest);
                let believes_relays = function.believes_relays();
                let needs = Needs { believes_relays, fewest: fewest.min(hopeless) };
                let call = builder.open_with(roster, needs, Some(waker))?;
                self.state = State::Open(call, Heard::Nothing);
                Ok(true)
            }
            State::Refused(unsuitable) => Err(unsuitable.into()),
            State::Open(..) | State::Over => Ok(false),
        }
    }
}

/// # Errors
/// [`QuorumError::Impossible`] when the members asked are too few, whatever they say. Nothing was
/// sent then.
fn refuse_hopeless<Resp, F: QuorumFunction<Resp>>(
    roster: &Roster,
    function: &mut F,
) -> Result<(), QuorumError> {
    let mut nothing = Replies::new(roster.clone());
    match function.decide(&mut nothing) {
        Verdict::Impossible => Err(QuorumError::Impossible(Box::new(nothing.shortfall()))),
        Verdict::Continue | Verdict::Preliminary(_) | Verdict::Done(_) => Ok(()),
    }
}

fn poll_verdict<Resp: Payload + 'static, F: QuorumFunction<Resp>>(
    call: &mut QuorumCall<Resp>,
    function: &mut F,
    heard: &mut Heard,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, QuorumError>> {
    loop {
        let mut is_over = false;
        if *heard == Heard::Nothing {
            match ready!(call.poll_news(cx)) {
                Some(News::Reply(heard, message)) => call.replies_mut().store(heard, message),
                Some(News::Lost(..) | News::Settled) => {}
                None => {
                    call.replies_mut().close();
                    is_over = true;
                }
            }
        }
        *heard = Heard::Nothing;
        match function.decide(call.replies_mut()) {
            Verdict::Done(value) => return Poll::Ready(Ok(value)),
            Verdict::Continue | Verdict::Preliminary(_) if !is_over => {}
            Verdict::Continue | Verdict::Preliminary(_) | Verdict::Impossible => {
                let why = function.why_impossible(call.replies_mut());
                return Poll::Ready(Err(call.error(cx).because(why)));
            }
        }
    }
}

impl<Resp: Payload + 'static, F: QuorumFunction<Resp>> Future for Deciding<Resp, F> {
    type Output = Result<F::Output, QuorumError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let deciding = self.get_mut();
        let value = ready!(deciding.poll_decision(cx))?;
        deciding.let_go(false);
        Poll::Ready(Ok(value))
    }
}

// Neither the call nor the function is pinned.
impl<Resp, F> Unpin for Deciding<Resp, F> {}

impl<Resp, F> fmt::Debug for Deciding<Resp, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Ready(builder) => f.debug_tuple("Deciding").field(builder).finish(),
            State::Open(call, _) => f.debug_tuple("Deciding").field(call).finish(),
            State::Refused(unsuitable) => f.debug_tuple("Deciding").field(unsuitable).finish(),
            State::Over => f.write_str("Deciding(over)"),
        }
    }
}

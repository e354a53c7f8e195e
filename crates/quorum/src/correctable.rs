//! An answer that gets better with every reply.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use convoke_core::Payload;
use tokio::sync::watch;

use crate::quorum_call::News;
use crate::{QuorumCall, QuorumError, Replies, Verdict};

/// An answer that gets better with every reply, and can be used before it is final.
///
/// Its *level* is the number of distinct members that have replied, however often: it never falls.
/// Cheap to clone. When the last clone is dropped before the answer is final, what still runs is
/// cancelled.
///
/// Source: Guerraoui, Pavlovic, Seredinschi, *Incremental Consistency Guarantees for Replicated
/// Objects*, OSDI 2016.
#[derive(Clone)]
pub struct Correctable<T> {
    state: watch::Receiver<State<T>>,
}

struct State<T> {
    level: usize,
    /// Copies of it are made, and it is dropped, without the channel's lock.
    value: Option<Arc<T>>,
    end: Option<End>,
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self { level: self.level, value: self.value.clone(), end: self.end.clone() }
    }
}

/// With a final answer, or without.
type End = Result<(), Arc<QuorumError>>;

impl<T: Clone + Send + Sync + 'static> Correctable<T> {
    /// Follows the call, or has ended with the reason why it was not opened.
    pub(crate) fn start<Resp, C>(call: Result<QuorumCall<Resp>, QuorumError>, decide: C) -> Self
    where
        Resp: Payload + 'static,
        C: FnMut(&Replies<Resp>) -> Verdict<T> + Send + 'static,
    {
        let (sender, state) = watch::channel(State { level: 0, value: None, end: None });
        match call {
            Ok(call) => drop(tokio::spawn(correct(call, decide, sender))),
            Err(error) => sender.send_modify(|state| state.end = Some(Err(Arc::new(error)))),
        }
        Self { state }
    }

    /// Number of distinct members that have replied.
    pub fn level(&self) -> usize {
        self.state.borrow().level
    }

    /// The best answer so far.
    pub fn latest(&self) -> Option<T> {
        let value = self.state.borrow().value.clone();
        value.map(Arc::unwrap_or_clone)
    }

    /// The answer once `level` members have replied, or the final one if that comes first. Any
    /// number may wait.
    ///
    /// # Errors
    /// [`QuorumError`] when the call ends below that level without a final answer.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn watch(&self, level: usize) -> Result<T, QuorumError> {
        let is_there = |state: &State<T>| state.level >= level && state.value.is_some();
        let state = self.wait(|state| state.end.is_some() || is_there(state)).await;
        match state.value {
            Some(value) if state.level >= level => Ok(Arc::unwrap_or_clone(value)),
            value => finished(value, state.end),
        }
    }

    /// The final answer.
    ///
    /// # Errors
    /// [`QuorumError`] when the call ends without one.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn done(&self) -> Result<T, QuorumError> {
        let state = self.wait(|state| state.end.is_some()).await;
        finished(state.value, state.end)
    }

    async fn wait(&self, is_enough: impl FnMut(&State<T>) -> bool) -> State<T> {
        let mut watched = self.state.clone();
        match watched.wait_for(is_enough).await {
            Ok(state) => state.clone(),
            // Its task is gone with its runtime: what there was is all there will be.
            Err(_) => self.state.borrow().clone(),
        }
    }
}

fn finished<T: Clone>(value: Option<Arc<T>>, end: Option<End>) -> Result<T, QuorumError> {
    match (end, value) {
        (Some(Ok(())), Some(value)) => Ok(Arc::unwrap_or_clone(value)),
        (Some(Err(error)), _) => Err((*error).clone()),
        (None, _) | (Some(Ok(())), None) => Err(QuorumError::Undecided),
    }
}

async fn correct<Resp, T, C>(
    mut call: QuorumCall<Resp>,
    mut decide: C,
    sender: watch::Sender<State<T>>,
) where
    Resp: Payload + 'static,
    C: FnMut(&Replies<Resp>) -> Verdict<T>,
{
    loop {
        let news = tokio::select! {
            biased;
            // Nobody wants to know any more: dropping the call cancels it.
            () = sender.closed() => return,
            news = poll_fn(|cx| call.poll_news(cx)) => news,
        };
        let is_over = news.is_none();
        match news {
            Some(News::Reply(heard, message)) => call.replies_mut().store(heard, message),
            Some(News::Lost(..) | News::Settled) => {}
            None => call.replies_mut().close(),
        }
        let replies = call.replies_mut();
        let (verdict, level) = (decide(replies), replies.len());
        let end = match &verdict {
            Verdict::Done(_) => Some(Ok(())),
            Verdict::Continue | Verdict::Preliminary(_) if !is_over => None,
            _ => Some(Err(Arc::new(poll_fn(|cx| Poll::Ready(call.error(cx))).await))),
        };
        let decided = end.as_ref().map(Result::is_ok);
        let mut _dropped_unlocked = None;
        sender.send_modify(|state| {
            state.level = level;
            if let Verdict::Preliminary(value) | Verdict::Done(value) = verdict {
                _dropped_unlocked = state.value.replace(Arc::new(value));
            }
            state.end = end;
        });
        match decided {
            Some(true) => return call.let_run(),
            Some(false) => return call.give_up(),
            None => {}
        }
    }
}

impl<T> fmt::Debug for Correctable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Correctable")
            .field("level", &state.level)
            .field("is_over", &state.end.is_some())
            .finish_non_exhaustive()
    }
}

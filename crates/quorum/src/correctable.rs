//! An answer that gets better with every reply.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use tokio::sync::watch;

use crate::quorum_call::News;
use crate::{QuorumCall, QuorumError, Replies};

/// What a rule makes of the replies so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction<T> {
    /// Nothing yet, or nothing new.
    Nothing,
    /// An answer that may be corrected.
    Preliminary(T),
    /// The answer.
    Final(T),
}

/// An answer that gets better with every reply, and can be used before it is final.
///
/// Its *level* is the number of distinct members that have replied, however often: it never falls. Cheap to
/// clone. When the last clone is dropped before the answer is final, what still runs is cancelled.
///
/// Source: Guerraoui, Pavlovic, Seredinschi, *Incremental Consistency Guarantees for Replicated Objects*,
/// OSDI 2016.
#[derive(Clone)]
pub struct Correctable<T> {
    state: watch::Receiver<State<T>>,
}

#[derive(Clone)]
struct State<T> {
    level: usize,
    value: Option<T>,
    end: Option<End>,
}

/// With a final answer, or without.
type End = Result<(), Arc<QuorumError>>;

impl<T: Clone + Send + Sync + 'static> Correctable<T> {
    pub(crate) fn start<Resp, F>(call: QuorumCall<Resp>, function: F) -> Self
    where
        Resp: prost::Message + Default + 'static,
        F: FnMut(&Replies<Resp>) -> Correction<T> + Send + 'static,
    {
        let (sender, state) = watch::channel(State { level: 0, value: None, end: None });
        tokio::spawn(correct(call, function, sender));
        Self { state }
    }

    /// How many distinct members have replied.
    pub fn level(&self) -> usize {
        self.state.borrow().level
    }

    /// The best answer so far.
    pub fn latest(&self) -> Option<T> {
        self.state.borrow().value.clone()
    }

    /// The answer once `level` members have replied, or the final one if that comes first. Any number may wait.
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
            Some(value) if state.level >= level => Ok(value),
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

fn finished<T>(value: Option<T>, end: Option<End>) -> Result<T, QuorumError> {
    match (end, value) {
        (Some(Ok(())), Some(value)) => Ok(value),
        (Some(Err(error)), _) => Err((*error).clone()),
        (None, _) | (Some(Ok(())), None) => Err(QuorumError::Impossible(Box::default())),
    }
}

async fn correct<Resp, T, F>(
    mut call: QuorumCall<Resp>,
    mut function: F,
    sender: watch::Sender<State<T>>,
) where
    Resp: prost::Message + Default,
    F: FnMut(&Replies<Resp>) -> Correction<T>,
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
            Some(News::Reply(index, message)) => call.replies_mut().store(index, message),
            Some(News::Lost(..)) => continue,
            None => call.replies_mut().close(),
        }
        let replies = call.replies_mut();
        let (correction, level) = (function(replies), replies.len());
        let is_final = matches!(correction, Correction::Final(_));
        let end = match (is_final, is_over) {
            (true, _) => Some(Ok(())),
            (false, true) => {
                Some(Err(Arc::new(poll_fn(|cx| std::task::Poll::Ready(call.error(cx))).await)))
            }
            (false, false) => None,
        };
        let is_done = end.is_some();
        sender.send_modify(|state| {
            state.level = level;
            if let Correction::Preliminary(value) | Correction::Final(value) = correction {
                state.value = Some(value);
            }
            state.end = end;
        });
        if is_done {
            return call.let_run();
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

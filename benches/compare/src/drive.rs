//! How clients are kept busy: callers that each wait for their answer, or one task that keeps a
//! number of requests on their way.

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::bench::{Bench, Form};
use crate::tally::Tally;

/// When to stop: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// After this time.
    pub time: Duration,
    /// After this many operations.
    pub operations: u64,
}

impl Quota {
    /// An equal part for each of `callers`, at least one operation.
    fn share(self, callers: usize) -> Self {
        Self { operations: self.operations.div_ceil(callers as u64), ..self }
    }
}

/// Work that a client does over and over.
#[derive(Clone, Debug)]
pub struct Work {
    /// The bench it is for.
    pub bench: Bench,
    /// The form, by who leads, where several servers are asked.
    pub form: Form,
    /// Sent along with each request.
    pub payload: Bytes,
    /// True for an operation that the server is to refuse as not found.
    pub is_refused: bool,
}

impl Work {
    /// Work that a bench asks for.
    pub fn new(bench: Bench, form: Form) -> Self {
        let payload = vec![7; bench.payload_bytes()].into();
        Self { bench, form, payload, is_refused: false }
    }
}

/// A client of which many callers share clones.
pub trait Client: Clone + Send + Sync + 'static {
    /// The clone for the caller of this number, where they are not all the same.
    fn of_caller(&self, _index: usize) -> Self {
        self.clone()
    }

    /// One operation, answered in full, or refused where it is to be.
    fn operate(&self, work: &Work) -> impl Future<Output = Result<()>> + Send;
}

/// A client that stays on its thread, with the callers that share its clones.
pub trait LocalClient: Clone + 'static {
    /// One operation, answered in full, or refused where it is to be.
    fn operate(&self, work: &Work) -> impl Future<Output = Result<()>>;
}

/// Takes the end of an operation that is to be refused: the refusal that was asked for succeeds,
/// and an answer fails, as any other error does.
///
/// # Errors
/// When it was not refused, or for another reason.
pub fn refused<T, E: fmt::Display>(
    result: Result<T, E>,
    is_not_found: impl FnOnce(&E) -> bool,
) -> Result<()> {
    match result {
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => bail!("another refusal: {error}"),
        Ok(_) => bail!("an answer instead of a refusal"),
    }
}

/// As many callers as the bench wants in flight, each with one operation at a time. Gives what each
/// of them counted: to add it up takes time, which is not the client's.
///
/// # Errors
/// When a caller panicked. Failed operations are counted.
pub async fn closed_loop(client: &impl Client, work: &Work, quota: Quota) -> Result<Vec<Tally>> {
    callers(work, quota, |index, quota| {
        let (client, work) = (client.of_caller(index), work.clone());
        tokio::spawn(async move {
            let mut turns = Turns::new(work, index, quota);
            while turns.is_on {
                let result = client.operate(turns.work()).await;
                turns.ended(result);
            }
            turns.tally
        })
    })
    .await
}

/// The same, all on this thread, within a [`tokio::task::LocalSet`].
///
/// # Errors
/// When a caller panicked. Failed operations are counted.
pub async fn closed_loop_local(
    client: &impl LocalClient,
    work: &Work,
    quota: Quota,
) -> Result<Vec<Tally>> {
    callers(work, quota, |index, quota| {
        let (client, work) = (client.clone(), work.clone());
        tokio::task::spawn_local(async move {
            let mut turns = Turns::new(work, index, quota);
            while turns.is_on {
                let result = client.operate(turns.work()).await;
                turns.ended(result);
            }
            turns.tally
        })
    })
    .await
}

/// Starts all callers, then waits for them.
async fn callers(
    work: &Work,
    quota: Quota,
    mut start: impl FnMut(usize, Quota) -> JoinHandle<Tally>,
) -> Result<Vec<Tally>> {
    let count = work.bench.in_flight();
    let quota = quota.share(count);
    let callers: Vec<_> = (0..count).map(|index| start(index, quota)).collect();
    let mut all = Vec::with_capacity(count);
    for caller in callers {
        all.push(caller.await.context("a caller panicked")?);
    }
    Ok(all)
}

/// The operations of one caller, one after another.
struct Turns {
    usual: Work,
    refused: Work,
    turn: usize,
    quota: Quota,
    begin: Instant,
    started: Instant,
    is_on: bool,
    tally: Tally,
}

impl Turns {
    /// Callers have their refusals at different turns, so that they do not come in bursts.
    fn new(usual: Work, index: usize, quota: Quota) -> Self {
        let refused = Work { is_refused: true, ..usual.clone() };
        let (begin, tally) = (Instant::now(), Tally::default());
        let (turn, started) = (index, begin);
        Self { usual, refused, turn, quota, begin, started, is_on: true, tally }
    }

    fn work(&self) -> &Work {
        if self.usual.bench.refuses(self.turn) { &self.refused } else { &self.usual }
    }

    /// Ends the operation of this turn; the next one starts at once.
    fn ended(&mut self, result: Result<()>) {
        let now = Instant::now();
        match result {
            Ok(()) => self.tally.succeeded(now - self.started),
            Err(error) => self.tally.failed(&error),
        }
        self.is_on =
            now - self.begin < self.quota.time && self.tally.ended_count() < self.quota.operations;
        self.started = now;
        self.turn += 1;
    }
}

/// One connection on which a single task has several numbered requests on their way.
pub trait Pipe: Send + 'static {
    /// Sends a request for each of these numbers, together if it can.
    fn send(&mut self, ids: &[u64]) -> impl Future<Output = Result<()>> + Send;

    /// Waits for answers, and appends their numbers.
    fn receive(&mut self, ids: &mut Vec<u64>) -> impl Future<Output = Result<()>> + Send;
}

/// Keeps `in_flight` requests on their way, and lets the last ones arrive at the end.
///
/// # Errors
/// When the pipe breaks, or answers what was not asked.
pub async fn windowed<P: Pipe>(mut pipe: P, in_flight: usize, quota: Quota) -> Result<(P, Tally)> {
    // On the runtime's own threads, as callers are.
    let task = tokio::spawn(async move {
        let tally = window(&mut pipe, in_flight, quota).await?;
        anyhow::Ok((pipe, tally))
    });
    task.await.context("a client panicked")?
}

async fn window(pipe: &mut impl Pipe, in_flight: usize, quota: Quota) -> Result<Tally> {
    let mut tally = Tally::default();
    let begin = Instant::now();
    // A number is free again when its answer came, so that it names the place of its start.
    let mut started = vec![Some(begin); in_flight];
    let mut ids: Vec<u64> = (0..in_flight as u64).collect();
    pipe.send(&ids).await?;
    let (mut outstanding, mut is_over) = (in_flight, false);
    while outstanding > 0 {
        ids.clear();
        pipe.receive(&mut ids).await?;
        let now = Instant::now();
        for id in &ids {
            let place = usize::try_from(*id).ok().and_then(|id| started.get_mut(id));
            let started = place.and_then(Option::take);
            tally.succeeded(now - started.context("an answer to nothing that was asked")?);
        }
        outstanding -= ids.len();
        is_over |= now - begin >= quota.time
            || tally.ended_count() + outstanding as u64 >= quota.operations;
        if !is_over {
            ids.iter()
                .filter_map(|id| usize::try_from(*id).ok())
                .for_each(|id| started[id] = Some(now));
            pipe.send(&ids).await?;
            outstanding += ids.len();
        }
    }
    ensure!(tally.ended_count() > 0, "nothing was answered");
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the newest request first, and says how many were on their way at most.
    #[derive(Default)]
    struct Stack {
        waiting: Vec<u64>,
        most: usize,
        forged: Option<u64>,
    }

    impl Pipe for Stack {
        async fn send(&mut self, ids: &[u64]) -> Result<()> {
            self.waiting.extend(ids);
            self.most = self.most.max(self.waiting.len());
            Ok(())
        }

        async fn receive(&mut self, ids: &mut Vec<u64>) -> Result<()> {
            ids.extend(self.forged.take().or_else(|| self.waiting.pop()));
            Ok(())
        }
    }

    const TWENTY: Quota = Quota { time: Duration::MAX, operations: 20 };

    #[tokio::test]
    async fn a_window_stays_full_and_ends_empty() {
        let (stack, tally) = windowed(Stack::default(), 8, TWENTY).await.unwrap();
        assert_eq!((stack.most, stack.waiting.len(), tally.succeeded_count()), (8, 0, 20));
    }

    #[tokio::test]
    async fn an_answer_that_nobody_asked_for_breaks_the_window() {
        for forged in [8, u64::MAX] {
            let stack = Stack { forged: Some(forged), ..Stack::default() };
            assert!(windowed(stack, 8, TWENTY).await.is_err());
        }
    }

    /// Fails what is to be refused, so that refusals can be counted.
    #[derive(Clone)]
    struct Refusing;

    impl Client for Refusing {
        async fn operate(&self, work: &Work) -> Result<()> {
            ensure!(!work.is_refused, "as asked");
            Ok(())
        }
    }

    #[tokio::test]
    async fn one_operation_of_a_hundred_is_refused_and_only_in_the_bench_of_errors() {
        // 64 callers with 100 operations each.
        let quota = Quota { time: Duration::MAX, operations: 6_400 };
        for (bench, failed) in [(Bench::UnaryErrors, 64), (Bench::UnaryThroughput, 0)] {
            let tally = closed_loop(&Refusing, &Work::new(bench, Form::Client), quota).await;
            let tally = Tally::sum(tally.unwrap());
            assert_eq!((tally.failed, tally.ended_count()), (failed, 6_400), "{bench}");
        }
    }

    #[test]
    fn a_refusal_succeeds_when_it_is_the_one_that_was_asked_for() {
        let is_not_found = |error: &&str| *error == "not found";
        assert!(refused(Err::<(), _>("not found"), is_not_found).is_ok());
        assert!(refused(Err::<(), _>("overloaded"), is_not_found).is_err());
        assert!(refused(Ok::<_, &str>(()), is_not_found).is_err());
    }

    #[derive(Clone)]
    struct Unlucky;

    impl Client for Unlucky {
        async fn operate(&self, _: &Work) -> Result<()> {
            anyhow::bail!("as always")
        }
    }

    #[tokio::test]
    async fn callers_share_the_quota_and_go_on_after_failures() {
        let work = Work::new(Bench::Quorum, Form::Client);
        let tally = Tally::sum(closed_loop(&Unlucky, &work, TWENTY).await.unwrap());
        assert_eq!((tally.failed, tally.succeeded_count()), (32, 0));
        assert_eq!(tally.complaint.as_deref(), Some("as always"));
    }
}

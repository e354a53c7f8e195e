//! Turns of an actor: the one task of a node that owns its protocol core and its ledger's answers.
//!
//! An actor does its work in turns. A turn takes all that has come by now, so that batches, writes
//! and syncs grow with the load; and everything that rests on the ledger waits for one sync.
//!
//! Words of other nodes and requests of clients come by two ways. Each turn takes some of both, and
//! the words first: however much clients ask for, no word waits for more than the turn under way.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::durable::{Durable, Position};
use crate::ledger::{Ledger, LedgerError};

/// Beginning of a turn.
#[derive(Debug)]
pub enum News<T> {
    /// The ledger has made so much durable.
    Durable(Durable),
    /// The time that the actor waited for has come.
    Due,
    /// These have come, at least one: words, and then requests, each in their order.
    Inputs(Vec<T>),
}

type Sync = Pin<Box<dyn Future<Output = Result<Durable, LedgerError>> + Send>>;

/// Inputs of an actor, and its wait for the ledger.
pub struct Turns<T> {
    words: mpsc::Receiver<T>,
    requests: mpsc::Receiver<T>,
    /// The wait under way, and when it began.
    sync: Option<(Instant, Sync)>,
}

impl<T> Turns<T> {
    /// Turns that take these words of other nodes, and these requests of clients.
    pub fn new(words: mpsc::Receiver<T>, requests: mpsc::Receiver<T>) -> Self {
        Self { words, requests, sync: None }
    }

    /// Waits from now on until the ledger has made durable all before a position. One wait at a
    /// time: while another is under way this does nothing, and the turn that it ends asks again.
    pub fn wait_durable(&mut self, ledger: &Ledger, position: Position) {
        if self.sync.is_none() {
            let ledger = ledger.clone();
            let sync = Box::pin(async move { ledger.durable(position).await });
            self.sync = Some((Instant::now(), sync));
        }
    }

    /// The beginning of the wait for the ledger that is under way. Waits are as short as two writes
    /// and syncs: in one that lasts, the disk hangs.
    pub fn waits_since(&self) -> Option<Instant> {
        self.sync.as_ref().map(|(begun, _)| *begun)
    }

    /// The beginning of the next turn, at this time at the latest. The ledger comes first, then the
    /// time, then inputs. `None` once there are no words any more and nobody can send one.
    ///
    /// # Errors
    /// The ledger has failed.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it has taken nothing.
    pub async fn next(&mut self, due: Instant) -> Result<Option<News<T>>, LedgerError> {
        let (mut words, mut requests) = (Vec::new(), Vec::new());
        tokio::select! {
            biased;
            durable = synced(&mut self.sync) => {
                self.sync = None;
                return durable.map(|durable| Some(News::Durable(durable)));
            }
            () = tokio::time::sleep_until(due) => return Ok(Some(News::Due)),
            count = self.words.recv_many(&mut words, WORDS_MAX) => if count == 0 {
                return Ok(None);
            },
            // Of those that nobody sends any more there may be none: words go on.
            Some(first) = self.requests.recv() => requests.push(first),
        }
        let next = || self.requests.try_recv().ok();
        requests.extend(std::iter::from_fn(next).take(REQUESTS_MAX - requests.len()));
        words.append(&mut requests);
        Ok(Some(News::Inputs(words)))
    }

    /// Takes no more inputs, and gives those requests that have come and are in no turn: none is
    /// lost in between. Whoever brings another finds it closed.
    pub async fn close(&mut self) -> Vec<T> {
        self.words.close();
        self.requests.close();
        let mut requests = Vec::new();
        while let Some(request) = self.requests.recv().await {
            requests.push(request);
        }
        requests
    }
}

impl<T> std::fmt::Debug for Turns<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { words, requests, sync } = self;
        let mut f = f.debug_struct("Turns");
        f.field("words", &words.len()).field("requests", &requests.len());
        f.field("waits_durable", &sync.is_some()).finish()
    }
}

/// Words of one turn, at most: timers and the ledger must not wait for long.
const WORDS_MAX: usize = 1_024;

/// Requests of one turn, at most.
const REQUESTS_MAX: usize = 1_024;

async fn synced(sync: &mut Option<(Instant, Sync)>) -> Result<Durable, LedgerError> {
    match sync {
        Some((_, sync)) => sync.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Words of a turn are those that have come, in order and at most so many, then so many
    /// requests; then the time.
    #[tokio::test(start_paused = true)]
    async fn a_turn_takes_what_has_come_words_before_requests() {
        let (send, received) = mpsc::channel(2_000);
        let (ask, asked) = mpsc::channel(4_000);
        let mut turns = Turns::new(received, asked);
        for request in 10_000..13_000 {
            ask.try_send(request).unwrap();
        }
        for word in 0..1_100 {
            send.try_send(word).unwrap();
        }
        let (mut words, mut requests) = (0..1_100, 10_000..13_000);
        for [of_words, of_requests] in [[WORDS_MAX, REQUESTS_MAX], [76, REQUESTS_MAX], [0, 952]] {
            let news = turns.next(Instant::now() + Duration::from_secs(1)).await.unwrap();
            let Some(News::Inputs(inputs)) = news else { panic!("{news:?}") };
            let expected = words.by_ref().take(of_words).chain(requests.by_ref().take(of_requests));
            assert!(inputs.into_iter().eq(expected));
        }
        let begun = Instant::now();
        let news = turns.next(begun + Duration::from_secs(1)).await.unwrap();
        assert!(matches!(news, Some(News::Due)), "{news:?}");
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        drop(ask);
        let news = turns.next(begun + Duration::from_secs(2)).await.unwrap();
        assert!(matches!(news, Some(News::Due)), "words may come yet: {news:?}");
        drop(send);
        assert!(turns.next(begun + Duration::from_secs(9)).await.unwrap().is_none());
    }

    /// More wait than a turn takes, and one has room for its input already.
    #[tokio::test]
    async fn requests_that_are_in_no_turn_are_given_at_the_end() {
        let (send, received) = mpsc::channel(1);
        let (ask, asked) = mpsc::channel(2_000);
        let mut turns = Turns::new(received, asked);
        for request in 0..1_500 {
            ask.try_send(request).unwrap();
        }
        let due = Instant::now() + Duration::from_secs(60);
        let news = turns.next(due).await.unwrap();
        let Some(News::Inputs(inputs)) = news else { panic!("{news:?}") };
        assert!(inputs.into_iter().eq(0..1_024));
        let room = ask.reserve().await.unwrap();
        let closing = async {
            tokio::task::yield_now().await;
            assert!(ask.try_send(9).is_err() && send.try_send(9).is_err(), "they are closed");
            room.send(1_500);
        };
        let (left, ()) = tokio::join!(turns.close(), closing);
        assert!(left.into_iter().eq(1_024..=1_500));
    }

    /// The ledger is heard before inputs that wait, once for each wait, and after it comes to be
    /// waited for again.
    #[tokio::test]
    async fn the_ledger_comes_first_and_once() {
        let (send, received) = mpsc::channel(2);
        let (_ask, asked) = mpsc::channel(1);
        let mut turns = Turns::new(received, asked);
        let due = Instant::now() + Duration::from_secs(60);
        let ledger = Ledger::in_memory();
        for record in ["first", "second"] {
            let position = ledger.append(record.into());
            turns.wait_durable(&ledger, position);
            let begun = turns.waits_since();
            turns.wait_durable(&ledger, Position::new(1_000)); // nothing: a wait is under way
            assert!(begun.is_some() && turns.waits_since() == begun);
            send.try_send(record).unwrap();
            let news = turns.next(due).await.unwrap();
            let Some(News::Durable(durable)) = news else { panic!("{news:?}") };
            assert_eq!((durable.up_to(), turns.waits_since()), (position, None));
            let news = turns.next(due).await.unwrap();
            let Some(News::Inputs(inputs)) = news else { panic!("{news:?}") };
            assert_eq!(inputs, [record]);
        }
    }
}

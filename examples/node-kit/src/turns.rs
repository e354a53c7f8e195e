//! Turns of an actor: the one task of a node that owns its protocol core and its ledger's answers.
//!
//! An actor does its work in turns. A turn takes all that has come by now, so that batches, writes
//! and syncs grow with the load; and everything that rests on the ledger waits for one sync.

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
    /// These have come, in this order: at least one.
    Inputs(Vec<T>),
}

type Sync = Pin<Box<dyn Future<Output = Result<Durable, LedgerError>> + Send>>;

/// Inputs of an actor, and its wait for the ledger.
pub struct Turns<T> {
    inputs: mpsc::Receiver<T>,
    /// The wait under way, and when it began.
    sync: Option<(Instant, Sync)>,
}

impl<T> Turns<T> {
    /// Turns that take these inputs.
    pub fn new(inputs: mpsc::Receiver<T>) -> Self {
        Self { inputs, sync: None }
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
    /// time, then inputs. `None` once there are no inputs any more and nobody can send one.
    ///
    /// # Errors
    /// The ledger has failed.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it has taken nothing.
    pub async fn next(&mut self, due: Instant) -> Result<Option<News<T>>, LedgerError> {
        let mut came = Vec::new();
        tokio::select! {
            biased;
            durable = synced(&mut self.sync) => {
                self.sync = None;
                durable.map(|durable| Some(News::Durable(durable)))
            }
            () = tokio::time::sleep_until(due) => Ok(Some(News::Due)),
            count = self.inputs.recv_many(&mut came, INPUTS_MAX) => {
                Ok((count > 0).then_some(News::Inputs(came)))
            }
        }
    }
}

impl<T> std::fmt::Debug for Turns<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { inputs, sync } = self;
        let mut f = f.debug_struct("Turns");
        f.field("waiting", &inputs.len()).field("waits_durable", &sync.is_some()).finish()
    }
}

/// Inputs of one turn, at most: timers and the ledger must not wait for long.
const INPUTS_MAX: usize = 1_024;

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

    /// Inputs of a turn are those that have come, in order and at most so many; then the time.
    #[tokio::test(start_paused = true)]
    async fn a_turn_takes_what_has_come() {
        let (send, received) = mpsc::channel(2_000);
        let mut turns = Turns::new(received);
        for input in 0..1_100 {
            send.try_send(input).unwrap();
        }
        let mut taken = Vec::new();
        for count in [INPUTS_MAX, 1_100 - INPUTS_MAX] {
            let news = turns.next(Instant::now() + Duration::from_secs(1)).await.unwrap();
            let Some(News::Inputs(inputs)) = news else { panic!("{news:?}") };
            assert_eq!(inputs.len(), count);
            taken.extend(inputs);
        }
        assert!(taken.into_iter().eq(0..1_100));
        let begun = Instant::now();
        let news = turns.next(begun + Duration::from_secs(1)).await.unwrap();
        assert!(matches!(news, Some(News::Due)), "{news:?}");
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        drop(send);
        assert!(turns.next(begun + Duration::from_secs(9)).await.unwrap().is_none());
    }

    /// The ledger is heard before inputs that wait, once for each wait, and after it comes to be
    /// waited for again.
    #[tokio::test]
    async fn the_ledger_comes_first_and_once() {
        let (send, received) = mpsc::channel(2);
        let mut turns = Turns::new(received);
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

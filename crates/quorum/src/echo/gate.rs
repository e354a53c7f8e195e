//! Gate before votes count: a verifier looks at them, several at once, off the task.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use convoke_core::{CastBody, NodeId};
use convoke_proto::mutant::{self, Mutant};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A vote, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedCast {
    /// View and sequence; of a call its initiator's life and its number there.
    pub tag: (u64, u64),
    /// Initiator of the call; of a tag there is none. Two nodes may say the same life, so a
    /// signature of a call's vote is over both.
    pub initiator: Option<NodeId>,
    /// The member that cast it, as its connection says.
    pub from: NodeId,
    /// The vote.
    pub body: CastBody,
}

/// Looks at votes before they count: at signatures, for example.
pub trait Verifier: Send + Sync + 'static {
    /// Judges a vote: a refused one is dropped, and counted by the cause. Its member may still send
    /// the true one.
    ///
    /// # Errors
    /// The cause, a constant of few.
    fn verify(&self, cast: &TaggedCast) -> Result<(), &'static str>;

    /// Judges several at once, in their order. Runs on a thread where it may block. Default: one
    /// after the other. When it panics, or gives too few or too many verdicts, the votes are judged
    /// one by one, and one at which that panics, too, is refused as `"panicked"`.
    fn verify_all(&self, casts: &[TaggedCast]) -> Vec<Result<(), &'static str>> {
        casts.iter().map(|cast| self.verify(cast)).collect()
    }
}

impl<F: Fn(&TaggedCast) -> Result<(), &'static str> + Send + Sync + 'static> Verifier for F {
    fn verify(&self, cast: &TaggedCast) -> Result<(), &'static str> {
        self(cast)
    }
}

/// Votes on their way through a verifier.
pub(super) struct Gate {
    verifier: Arc<dyn Verifier>,
    /// The runtime on whose threads it looks at them.
    runtime: Handle,
    running: Option<JoinHandle<Judged>>,
    good: VecDeque<TaggedCast>,
    refused: BTreeMap<&'static str, u64>,
}

type Judged = (Vec<TaggedCast>, Vec<Result<(), &'static str>>);

/// Votes that a verifier is given at once: enough for batches to be worth it, and few enough that
/// what has come since is looked at soon.
const BATCH: usize = 128;

impl Gate {
    pub(super) fn new(verifier: Arc<dyn Verifier>, runtime: &Handle) -> Self {
        let (runtime, good, refused) = (runtime.clone(), VecDeque::new(), BTreeMap::new());
        Self { verifier, runtime, running: None, good, refused }
    }

    /// Votes are looked at by this one from now on; those that one looks at already are not lost.
    pub(super) fn set_verifier(&mut self, verifier: Arc<dyn Verifier>) {
        self.verifier = verifier;
    }

    /// The next vote that counts, of those that `heard` gives. Pending, it is woken when more have
    /// been looked at; what else is heard is for `heard` to wake for.
    pub(super) fn poll_good(
        &mut self,
        cx: &mut Context<'_>,
        mut heard: impl FnMut(&mut Context<'_>) -> Option<TaggedCast>,
    ) -> Poll<TaggedCast> {
        loop {
            if let Some(good) = self.good.pop_front() {
                return Poll::Ready(good);
            }
            if let Some(running) = &mut self.running {
                let judged = ready!(Pin::new(running).poll(cx));
                self.running = None;
                // It fails with the runtime alone.
                self.sort(judged.unwrap_or_default());
                continue;
            }
            let batch: Vec<TaggedCast> = std::iter::from_fn(|| heard(cx)).take(BATCH).collect();
            if batch.is_empty() {
                return Poll::Pending;
            }
            let verifier = self.verifier.clone();
            self.running = Some(self.runtime.spawn_blocking(move || {
                let verdicts = judge(verifier.as_ref(), &batch);
                (batch, verdicts)
            }));
        }
    }

    fn sort(&mut self, (casts, verdicts): Judged) {
        for (cast, verdict) in casts.into_iter().zip(verdicts) {
            match verdict {
                Ok(()) => self.good.push_back(cast),
                Err(_) if mutant::is(Mutant::RefusedCounts) => self.good.push_back(cast),
                Err(cause) => *self.refused.entry(cause).or_default() += 1,
            }
        }
    }

    /// True while it looks at votes.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || !self.good.is_empty()
    }

    /// Numbers of votes that the verifier refused, by its causes.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.refused.iter().map(|(cause, count)| (*cause, *count))
    }
}

/// A verdict of each vote, whatever one of them makes the verifier do.
fn judge(verifier: &dyn Verifier, batch: &[TaggedCast]) -> Vec<Result<(), &'static str>> {
    let all = catch_unwind(AssertUnwindSafe(|| verifier.verify_all(batch)));
    if let Ok(verdicts) = all
        && verdicts.len() == batch.len()
    {
        return verdicts;
    }
    let one = |cast| catch_unwind(AssertUnwindSafe(|| verifier.verify(cast)));
    batch.iter().map(|cast| one(cast).unwrap_or(Err("panicked"))).collect()
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("refused", &self.refused).finish_non_exhaustive()
    }
}

//! Source of the news of a quorum call: one core call, and those that a plan adds to it later.

use std::task::{Context, Poll, Waker};

use convoke_core::id::TaskKey;
use convoke_core::proto::call::{End, root_path};
use convoke_core::seam::{CallBuilderSeam, CallSeam, Progress};
use convoke_core::{
    Call, CallBuilder, CallError, Cause, Executed, Failure, NodeId, Path, Payload, Reply, Way,
};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::plan::{Due, Plan};

/// Everything that a quorum call hears, in order of arrival. Dropped, it cancels what it has
/// opened.
pub(crate) struct Source<Resp> {
    rounds: SmallVec<[Round<Resp>; 1]>,
    plan: Option<Box<Plan<Resp>>>,
    manner: Manner,
    /// Its deadline, if a clock goes that far.
    ends_at: Option<Instant>,
    /// The deadline has passed before everybody was asked that the plan was to.
    has_run_out: bool,
    end: End,
}

/// Manner of all its core calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Requests that still run once the caller has decided are cancelled.
    pub(crate) cancels_late: bool,
    /// Words of a tree's nodes about those below them are not believed.
    pub(crate) ignores_hearsay: bool,
}

/// One core call.
struct Round<Resp> {
    call: Call<Resp>,
    opened_at: Instant,
    /// The first of its branches in the order in which the quorum call numbers them; the rest
    /// follow.
    first: usize,
    /// It asks one of several members. What it does not get is that one's doing.
    is_of_one: bool,
}

/// News of a quorum call.
#[derive(Debug)]
pub(crate) enum Event<Resp> {
    /// A reply.
    Reply {
        /// The root branch it belongs to.
        branch: usize,
        asked_at: Instant,
        reply: Reply<Resp>,
    },
    /// A reply that is invalid.
    Undecodable { branch: usize, path: Path, from: NodeId, way: Way, message: String },
    /// A branch failed; `is_root` when it is the root branch itself.
    Failed { branch: usize, is_root: bool, failure: Failure },
    /// A branch ended without a reply, or after what it has streamed; which node had it, if that
    /// is known.
    Silent { branch: usize, path: Path, node: Option<NodeId> },
    /// A request that was to be sent later could not be.
    NotSent { branch: usize, reason: String },
}

impl<Resp: Payload> Source<Resp> {
    /// Sends the requests, or those that the plan has not put off. With a waker and without a plan
    /// nothing is to be heard before that is woken.
    ///
    /// # Errors
    /// As [`CallBuilder::open`].
    pub(crate) fn open(
        call: CallBuilder<Resp>,
        plan: Option<Box<Plan<Resp>>>,
        manner: Manner,
        waker: Option<&Waker>,
    ) -> Result<Self, CallError> {
        let budget = call.budget();
        let is_of_one = plan.is_some() && call.branches().len() == 1;
        let round = Round::open(call, (0, is_of_one), manner, waker)?;
        let ends_at = round.opened_at.checked_add(budget);
        let rounds = SmallVec::from_buf([round]);
        Ok(Self { rounds, plan, manner, ends_at, has_run_out: false, end: End::Complete })
    }

    /// True when more may be asked later.
    pub(crate) fn has_plan(&self) -> bool {
        self.plan.is_some()
    }

    /// The next event; `None` when nothing can come any more.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event<Resp>>> {
        loop {
            if let Some(event) = self.poll_rounds(cx) {
                return Poll::Ready(Some(event));
            }
            // After the rounds, for their failures bring forward what waits.
            let Some(plan) = &mut self.plan else { break };
            if self.rounds.is_empty() {
                plan.hasten_if_none_is_due(); // Nobody who was asked has anything more to say.
            }
            match plan.poll_due(cx) {
                Some(Due::Ask(branch, call)) => {
                    match Round::open(call, (branch, true), self.manner, None) {
                        Ok(round) => self.rounds.push(round),
                        Err(error) => {
                            let reason = error.to_string();
                            return Poll::Ready(Some(Event::NotSent { branch, reason }));
                        }
                    }
                }
                Some(Due::TooLate(branch, failure)) => {
                    self.has_run_out = true;
                    if let Some(failure) = failure {
                        return Poll::Ready(Some(Event::Failed { branch, is_root: true, failure }));
                    }
                }
                None => break,
            }
        }
        let is_waiting = self.plan.as_ref().is_some_and(|plan| plan.is_waiting());
        match self.rounds.is_empty() && !is_waiting {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Option<Event<Resp>> {
        let mut index = 0;
        while let Some(round) = self.rounds.get_mut(index) {
            match round.call.poll_progress(cx) {
                Poll::Pending => index += 1,
                Poll::Ready(Some(progress)) => {
                    let event = round.event(progress);
                    if let Some(event) = event.and_then(|event| self.unless_repeated(event)) {
                        return Some(event);
                    }
                }
                Poll::Ready(None) => {
                    let round = self.rounds.remove(index);
                    match round.call.end() {
                        Some(End::Exhausted) if round.is_of_one => return Some(round.exhausted()),
                        Some(End::Exhausted) => self.end = End::Exhausted,
                        _ => {}
                    }
                }
            }
        }
        None
    }

    /// The event, unless the plan makes up for it.
    fn unless_repeated(&mut self, event: Event<Resp>) -> Option<Event<Resp>> {
        let Some(plan) = &mut self.plan else { return Some(event) };
        match event {
            Event::Failed { branch, is_root: true, failure } => {
                let is_repeated = plan.repeat(branch, &failure);
                (!is_repeated).then_some(Event::Failed { branch, is_root: true, failure })
            }
            event => Some(event),
        }
    }

    /// A member has failed, so that another is asked at once where some were put off.
    pub(crate) fn hasten(&mut self) {
        if let Some(plan) = &mut self.plan {
            plan.hasten();
        }
    }

    /// The call has failed, which its spans and the metrics say however those asked end: nobody is
    /// asked any more. Gives the failures for which some were to be asked again.
    pub(crate) fn note_failed(&mut self) -> impl Iterator<Item = Event<Resp>> + use<Resp> {
        self.rounds.iter_mut().for_each(|round| round.call.note_failed());
        let failures = self.plan.take().into_iter().flat_map(|plan| plan.give_up());
        failures.map(|(branch, failure)| Event::Failed { branch, is_root: true, failure })
    }

    /// The caller has decided, and reads on: what was not asked yet is not asked.
    pub(crate) fn drop_hedges(&mut self) {
        if let Some(plan) = &mut self.plan {
            plan.drop_hedges();
        }
    }

    /// Its end, where that is not for want of replies.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// True when somebody was not asked since its deadline had passed.
    pub(crate) fn has_run_out(&self) -> bool {
        self.has_run_out
    }

    /// True once its deadline has passed: branches may have earlier ones of their own.
    pub(crate) fn is_late(&self) -> bool {
        self.ends_at.is_some_and(|at| at <= Instant::now())
    }

    /// The caller has decided, or `has_failed`: what was asked runs on. What was not asked yet is
    /// not asked, as this is to be dropped.
    pub(crate) fn let_go(&mut self, has_failed: bool) {
        let cancels_late = self.manner.cancels_late;
        self.rounds.iter_mut().for_each(|round| round.call.let_go(cancels_late, has_failed));
    }
}

impl<Resp: Payload> Round<Resp> {
    fn open(
        mut call: CallBuilder<Resp>,
        (first, is_of_one): (usize, bool),
        Manner { ignores_hearsay, .. }: Manner,
        waker: Option<&Waker>,
    ) -> Result<Self, CallError> {
        let options = call.options_mut();
        (options.tells_silent, options.ignores_hearsay) = (true, ignores_hearsay);
        let call = call.open_apart(waker)?;
        Ok(Self { opened_at: call.opened_at(), call, first, is_of_one })
    }

    /// The failure of the only branch of a call that has outgrown a bound: such a call has no room
    /// for those of its branches.
    fn exhausted(&self) -> Event<Resp> {
        let task = TaskKey { path: root_path(0), hop: 0 };
        let failure = Failure::found(task, None, Cause::ResourceExhausted, Executed::Maybe);
        Event::Failed { branch: self.first, is_root: true, failure }
    }

    fn event(&self, progress: Progress<Resp>) -> Option<Event<Resp>> {
        Some(match progress {
            Progress::Reply(reply) => {
                let branch = self.branch(reply.path())?;
                Event::Reply { branch, asked_at: self.opened_at, reply }
            }
            Progress::Undecodable { path, from, way, message } => {
                Event::Undecodable { branch: self.branch(&path)?, path, from, way, message }
            }
            Progress::Failed(failure) => {
                let path = &failure.task.path;
                let (branch, is_root) = (self.branch(path)?, path.level_count() == 1);
                Event::Failed { branch, is_root, failure }
            }
            Progress::Silent { path, node } => {
                Event::Silent { branch: self.branch(&path)?, path, node }
            }
            _ => return None,
        })
    }

    fn branch(&self, path: &Path) -> Option<usize> {
        let index = path.root_index().or_else(|| path.indices().next())?;
        Some(self.first + index as usize)
    }
}

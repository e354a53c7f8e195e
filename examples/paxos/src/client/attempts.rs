//! Attempts of one request: what may be tried again, after what pause, and what the caller is told
//! in the end.

use std::time::Duration;

use convoke::{CallError, Code, Executed, Status};
use convoke_sim::random::Random;

use super::{ClientError, Options};
use crate::proto::{Refusal, reply};

/// Hints in a row that are followed at once: two nodes may each take the other for the leader.
const HINTS_MAX: u32 = 2;

/// Attempts of one request so far.
pub(super) struct Attempts {
    pause: Duration,
    pause_max: Duration,
    harmless: bool,
    pub(super) may_have_run: bool,
    hints: u32,
    last: String,
}

impl Attempts {
    pub(super) fn new(options: &Options, harmless: bool) -> Self {
        Self {
            pause: options.pause,
            pause_max: options.pause_max,
            harmless,
            may_have_run: false,
            hints: 0,
            last: String::new(),
        }
    }

    /// A result, unless it is a refusal that tells the caller something else.
    pub(super) fn judge(&self, result: reply::Result) -> Result<reply::Result, ClientError> {
        let reply::Result::Refused(refusal) = result else { return Ok(result) };
        match Refusal::try_from(refusal) {
            Ok(Refusal::Full) => Err(ClientError::Full),
            Ok(Refusal::Expired) if !self.may_have_run => Ok(result),
            Ok(Refusal::Overtaken) => Ok(result), // it may be asked again
            Ok(Refusal::Expired | Refusal::Forgotten) => {
                Err(ClientError::OutcomeUnknown("its session is over".to_owned()))
            }
            _ => Err(ClientError::Refused("it is no request that the store knows".to_owned())),
        }
    }

    /// Takes an attempt that failed.
    ///
    /// # Errors
    /// The failure, when no other attempt can do better.
    pub(super) fn failed(&mut self, error: &CallError) -> Result<(), ClientError> {
        let refusal = refusal(error);
        self.may_have_run |= !has_not_run(error);
        self.last = match &refusal {
            Some(status) => status.message().to_owned(),
            None => error.to_string(),
        };
        let is_final = refusal.is_some_and(|status| is_final(status.code()));
        if is_final || matches!(error, CallError::TooLarge { .. }) {
            return Err(self.end(ClientError::Refused));
        }
        Ok(())
    }

    /// True when a hint may be followed without a pause.
    pub(super) fn follow(&mut self) -> bool {
        self.hints += 1;
        self.hints <= HINTS_MAX
    }

    /// The next pause: from half to all of what is due, and then twice as long.
    pub(super) fn pause(&mut self, random: &mut Random) -> Duration {
        self.hints = 0;
        let due = self.pause;
        self.pause = (2 * due).min(self.pause_max);
        due / 2 + random.up_to(due / 2)
    }

    /// The end of a request for which there is no more time.
    pub(super) fn over(&self) -> ClientError {
        self.end(ClientError::Unavailable)
    }

    /// The last failure as the end of the request: that it has not run is said of one of which no
    /// attempt may have.
    fn end(&self, not_run: impl FnOnce(String) -> ClientError) -> ClientError {
        let text = self.last.clone();
        if self.may_have_run && !self.harmless {
            ClientError::OutcomeUnknown(text)
        } else {
            not_run(text)
        }
    }
}

/// The refusal of a node, which has run nothing: the service says so by its code. The call alone
/// cannot tell where a request was handed on, for it does not know beforehand who holds it then,
/// and believes nobody else that a task did not run. A failure of a task that has run is no
/// refusal, whatever its code: so a runtime without room for an answer speaks.
pub(super) fn refusal(error: &CallError) -> Option<Status> {
    if error.failure().is_some_and(|failure| failure.executed == Executed::Yes) {
        return None;
    }
    error.status().filter(|status| {
        let is_passing = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
        is_passing || is_final(status.code())
    })
}

/// True when nothing was done with a request. A node that hands one on does nothing else with it,
/// so a task that has not run behind it counts, too.
pub(super) fn has_not_run(error: &CallError) -> bool {
    let is_safe =
        error.failure().map_or_else(|| error.is_safe_to_repeat(), |f| f.is_safe_to_repeat());
    is_safe || refusal(error).is_some()
}

/// True for refusals that another attempt meets, too.
fn is_final(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use convoke::{Cause, Failure, Path, TaskKey};

    use super::*;

    fn attempts(harmless: bool) -> Attempts {
        Attempts::new(&Options::new(1, 1), harmless)
    }

    /// A failure with which a node has refused.
    fn refused(code: Code) -> CallError {
        CallError::Hook(Status::new(code, "no"))
    }

    /// A runtime without room for the answer of a task says so by the code of a service.
    #[test]
    fn a_failure_of_a_task_that_has_run_is_no_refusal() {
        let code = Code::ResourceExhausted as u32;
        for (executed, is_refusal) in
            [(Executed::No, true), (Executed::Maybe, true), (Executed::Yes, false)]
        {
            let task = TaskKey { path: Path::root(), hop: 0 };
            let mut failure = Failure::found(task, None, Cause::Application, executed);
            failure.code = code;
            let error = CallError::Branch(failure);
            assert_eq!(has_not_run(&error), is_refusal, "{executed:?}");
            let mut attempts = attempts(false);
            assert_eq!(attempts.failed(&error), Ok(()));
            assert_eq!(attempts.may_have_run, !is_refusal, "{executed:?}");
        }
    }

    #[test]
    fn a_refusal_says_nothing_of_an_attempt_before_it() {
        let refused = refused(Code::FailedPrecondition);
        let text = || "no".to_owned();
        let mut first = attempts(false);
        assert_eq!(first.failed(&refused), Err(ClientError::Refused(text())));
        let mut second = attempts(false);
        assert_eq!(second.failed(&CallError::NoReply), Ok(()));
        assert_eq!(second.failed(&refused), Err(ClientError::OutcomeUnknown(text())));
        let mut harmless = attempts(true);
        assert_eq!(harmless.failed(&CallError::NoReply), Ok(()));
        assert_eq!(harmless.failed(&refused), Err(ClientError::Refused(text())));
    }
}

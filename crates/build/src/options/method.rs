//! Options of a method, and which of them contradict each other.

use prost_reflect::{MethodDescriptor, Value};

use super::{ServiceOptions, ours, unknown};

/// Options of a method, those of its service included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MethodOptions {
    /// The handler holds a task.
    pub(crate) is_tree: bool,
    /// Handlers run one at a time for each peer.
    pub(crate) is_ordered: bool,
    /// It changes nothing.
    pub(crate) is_read_only: bool,
    /// Twice is the same as once.
    pub(crate) is_idempotent: bool,
    /// A configuration is asked.
    pub(crate) is_quorum: bool,
    /// Not its members are asked but one node, in whose tree they reply.
    pub(crate) is_led: bool,
    /// A configuration is told.
    pub(crate) is_multicast: bool,
    /// Number of echo phases that hold the reply back.
    pub(crate) echo_phases: u16,
}

/// Options as the file has them; `None` where it says nothing.
#[derive(Default)]
struct Written {
    tree: Option<bool>,
    ordered: Option<bool>,
    read_only: Option<bool>,
    idempotent: Option<bool>,
    quorum: Option<bool>,
    multicast: Option<bool>,
    echo_phases: Option<u32>,
}

/// More phases would each cost a delay and all members' messages, and help against nothing.
const ECHO_PHASES_MAX: u16 = 16;

/// # Errors
/// A text that says what is wrong and what to do.
pub(super) fn read(method: &MethodDescriptor, of: ServiceOptions) -> Result<MethodOptions, String> {
    let written = Written::read(method)?;
    let contradiction = (written.of_shape(method).or_else(|| written.of_promises(of)))
        .or_else(|| written.of_members(method))
        .or_else(|| written.of_echo(method));
    if let Some(contradiction) = contradiction {
        return Err(contradiction.to_owned());
    }
    let is_tree = written.tree == Some(true);
    let is_quorum = written.quorum == Some(true) || written.echo_phases.is_some();
    let is_read_only = written.read_only == Some(true);
    Ok(MethodOptions {
        is_tree: is_tree || method.is_server_streaming(),
        is_ordered: of.is_ordered || written.ordered == Some(true),
        is_read_only,
        is_idempotent: is_read_only || written.idempotent == Some(true),
        is_quorum,
        is_led: is_quorum && is_tree,
        is_multicast: written.multicast == Some(true),
        echo_phases: written.phases()?,
    })
}

impl MethodOptions {
    /// It has to do with configurations.
    pub(crate) fn has_members(&self) -> bool {
        self.is_quorum || self.is_multicast
    }
}

impl Written {
    fn read(method: &MethodDescriptor) -> Result<Self, String> {
        let mut written = Self::default();
        for (name, value) in ours(&method.options()) {
            match (name.as_str(), value) {
                ("convoke.tree", Value::Bool(value)) => written.tree = Some(value),
                ("convoke.ordered", Value::Bool(value)) => written.ordered = Some(value),
                ("convoke.read_only", Value::Bool(value)) => written.read_only = Some(value),
                ("convoke.idempotent", Value::Bool(value)) => written.idempotent = Some(value),
                ("convoke.quorum", Value::Bool(value)) => written.quorum = Some(value),
                ("convoke.multicast", Value::Bool(value)) => written.multicast = Some(value),
                ("convoke.echo_phases", Value::U32(value)) => written.echo_phases = Some(value),
                _ => return Err(unknown(&name)),
            }
        }
        Ok(written)
    }

    fn phases(&self) -> Result<u16, String> {
        let Some(written) = self.echo_phases else { return Ok(0) };
        let phases = u16::try_from(written).ok();
        phases.filter(|phases| (1..=ECHO_PHASES_MAX).contains(phases)).ok_or_else(|| {
            format!(
                "`echo_phases` is {written}, and must be from 1 to {ECHO_PHASES_MAX}; without the \
                 option the reply leaves at once"
            )
        })
    }

    fn of_shape(&self, method: &MethodDescriptor) -> Option<&'static str> {
        let has_members =
            self.quorum == Some(true) || self.multicast == Some(true) || self.echo_phases.is_some();
        if method.is_client_streaming() && has_members {
            Some(
                "a streamed request goes to one node, and `quorum`, `multicast` and `echo_phases` \
                 ask many: take one message, or remove the option",
            )
        } else if method.is_server_streaming() && self.tree == Some(false) {
            Some(
                "`returns (stream ..)` implies `tree`, which the option denies: remove one of them",
            )
        } else {
            None
        }
    }

    fn of_promises(&self, of: ServiceOptions) -> Option<&'static str> {
        if of.is_ordered && self.ordered == Some(false) {
            Some(
                "`ordered_service` orders all methods, and the option denies it: remove one of \
                 them",
            )
        } else if self.read_only == Some(true) && self.idempotent == Some(false) {
            Some("`read_only` implies `idempotent`, which the option denies: remove one of them")
        } else {
            None
        }
    }

    fn of_members(&self, method: &MethodDescriptor) -> Option<&'static str> {
        if self.multicast != Some(true) {
            return None;
        }
        if method.output().fields().len() > 0 {
            Some(
                "nobody reads what a `multicast` method answers, and its response has fields: \
                 answer with `google.protobuf.Empty`, or ask for a `quorum`",
            )
        } else if self.tree == Some(true) || method.is_server_streaming() {
            Some(
                "nobody waits for a `multicast` method, and a tree or stream is there to be waited \
                 for: remove one of them",
            )
        } else if self.quorum == Some(true) || self.echo_phases.is_some() {
            Some(
                "nobody waits for a `multicast` method, and `quorum` and `echo_phases` are about \
                 its replies: remove one of them",
            )
        } else {
            None
        }
    }

    fn of_echo(&self, method: &MethodDescriptor) -> Option<&'static str> {
        self.echo_phases?;
        if self.tree == Some(true) || method.is_server_streaming() {
            Some(
                "`echo_phases` hold back the one reply of each member, and a tree or stream has \
                 many: remove one of them, or run an `EchoRound` in the handler",
            )
        } else if self.quorum == Some(false) {
            Some("`echo_phases` implies `quorum`, which the option denies: remove one of them")
        } else if self.read_only == Some(true) || self.idempotent == Some(true) {
            Some(
                "members echo about one call, in which whoever is cancelled (`read_only`) or asked \
                 again by another call (`idempotent`) has no part: remove one of them",
            )
        } else {
            None
        }
    }
}

//! Members of a running service, which may change.

use std::sync::{Arc, PoisonError, RwLock};

use convoke_core::Endpoint;

use crate::Configuration;

use super::error::EchoError;
use super::plan::EchoPlan;

/// The members among which a service echoes, and that it can be told of others. Cheap to clone;
/// clones are the same.
///
/// ```
/// # use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
/// use convoke_quorum::{Configuration, echo::{EchoError, EchoExt, EchoMembers}};
///
/// const WRITE: Method<String, u64> = Method::new("storage.Storage/Write");
///
/// fn storage(members: &EchoMembers) -> Service {
///     Service::new().echo(WRITE, 2, members, |text: String, _: Context| async move {
///         Ok::<_, Status>(text.len() as u64)
///     })
/// }
///
/// /// Once the protocol that changes the members has decided.
/// fn go_on(
///     members: &EchoMembers,
///     endpoint: &Endpoint,
///     next: &Configuration,
/// ) -> Result<(), EchoError> {
///     members.change(endpoint, &next.with_epoch(members.current().epoch() + 1))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let replicas = Configuration::new([1, 2, 3].map(NodeId::new))?;
/// let members = EchoMembers::new(&replicas.with_epoch(1));
/// let server = Endpoint::builder().node(NodeId::new(1)).serve(storage(&members)).start().await?;
/// go_on(&members, &server, &replicas.without([NodeId::new(3)]))?;
/// assert_eq!((members.current().len(), server.epoch()), (2, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EchoMembers(Arc<RwLock<Configuration>>);

impl EchoMembers {
    /// These members, until they change: which they can if they have an epoch
    /// ([`Configuration::with_epoch`]).
    pub fn new(members: &Configuration) -> Self {
        Self(Arc::new(RwLock::new(members.clone())))
    }

    /// The members now.
    pub fn current(&self) -> Configuration {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes on with other members, of a later epoch. What is asked from now on echoes among them;
    /// rounds of the epoch before end at once as [`EchoError::StaleEpoch`], requests of it are
    /// refused as [`StaleEpoch`](convoke_core::Cause::StaleEpoch), and its votes are dropped and
    /// counted. Votes of the later epoch that came before are kept, and count; those of a node that
    /// becomes a member if this endpoint knew it by then, by its address or
    /// [`Endpoint::hear_casts_of`].
    ///
    /// Each member is told so by itself; one that is still in the epoch before learns of the later
    /// one by votes of it. That quorums of the two meet is for the protocol to see to that changes
    /// them.
    ///
    /// # Errors
    /// [`EchoError::StaleEpoch`] unless their epoch is later, [`EchoError::NoEpoch`] when the
    /// members until now have none, [`EchoError::NotMember`] when the endpoint is none of the next:
    /// such a node is to serve no more. Then nothing is changed.
    pub fn change(&self, endpoint: &Endpoint, members: &Configuration) -> Result<(), EchoError> {
        let node = endpoint.node();
        if !members.contains(node) {
            return Err(EchoError::NotMember { node });
        }
        EchoPlan::majority(members.len(), 1)?;
        {
            let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if current.epoch() == 0 {
                return Err(EchoError::NoEpoch);
            }
            if members.epoch() <= current.epoch() {
                let (epoch, later) = (members.epoch(), Vec::new());
                return Err(EchoError::StaleEpoch { epoch, later });
            }
            *current = members.clone();
        }
        endpoint.hear_casts_of(members.nodes());
        endpoint.set_epoch(members.epoch());
        Ok(())
    }
}

impl From<&Configuration> for EchoMembers {
    fn from(members: &Configuration) -> Self {
        Self::new(members)
    }
}

impl From<&Self> for EchoMembers {
    fn from(members: &Self) -> Self {
        members.clone()
    }
}

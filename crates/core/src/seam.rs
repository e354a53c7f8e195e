//! Parts of this crate, and methods of its types, for the crates that are built on it: quorum
//! calls, overlays, the gRPC edge. The methods are invisible where their trait is not imported, and
//! the facade does not have them.

pub use crate::client::{CallBuilderSeam, CallSeam, Progress};
pub use crate::driver::{SUBSCRIBER, dial_over};
pub use crate::endpoint::EndpointSeam;
pub use crate::method::RequestSeam;
#[cfg(feature = "metrics")]
pub use crate::telemetry::Rising;
pub use crate::timer::{Timer, in_time};
pub use convoke_transport::parts::Seldom;

//! Methods of this crate's types for the crates that are built on it: quorum calls, overlays, the
//! gRPC edge. They are invisible where their trait is not imported, and the facade does not have
//! them.

pub use crate::client::{CallBuilderSeam, CallSeam, Progress};
pub use crate::endpoint::EndpointSeam;
pub use crate::method::RequestSeam;
pub use convoke_transport::parts::Seldom;

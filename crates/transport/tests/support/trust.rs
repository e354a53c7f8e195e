//! Identities from certificates of tests, and dials that must fail for want of trust or of a hello.
#![allow(dead_code, reason = "every test uses its own part")]

use std::fmt::Debug;

use convoke_transport::DialError;
use convoke_transport::identity::Identity;

use crate::certificates::{Authority, Issued};

/// Identity with this certificate, which trusts those of `trusted`.
pub(crate) fn identity(issued: &Issued, trusted: &Authority) -> Identity {
    Identity::from_pem(&issued.certificate, &issued.key, trusted.pem()).expect("it can be loaded")
}

/// Identity of a node of this authority.
pub(crate) fn identity_of(authority: &Authority, node: u64) -> Identity {
    identity(&authority.issue([node]), authority)
}

/// Identity that proves every node of the conformance suite, so that both ends can have it.
pub(crate) fn identity_of_suite() -> Identity {
    let authority = Authority::new();
    identity(&authority.issue((1..=32).chain([1_000])), &authority)
}

/// Text of a dial that failed since one end does not trust the other.
pub(crate) fn untrusted(dialled: Result<impl Debug, DialError>) -> String {
    match dialled {
        Err(DialError::Untrusted { message, .. }) => message,
        other => panic!("expected no trust, not {other:?}"),
    }
}

/// Text of a dial that failed in its handshake.
pub(crate) fn handshake(dialled: Result<impl Debug, DialError>) -> String {
    match dialled {
        Err(DialError::Handshake { message, .. }) => message,
        other => panic!("expected no handshake, not {other:?}"),
    }
}

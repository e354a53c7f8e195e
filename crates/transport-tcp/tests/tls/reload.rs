//! New certificates while connections are open.

use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, DialError, Lane};

use crate::certificates::Authority;
use crate::node::{HONEST, VICTIM, Victim, dial};
use crate::trust::identity_of;

#[tokio::test]
async fn new_handshakes_use_the_new_certificates_and_open_connections_live_on() {
    let victim = Victim::new().await;
    let renewed = Authority::new();
    let issued = renewed.issue([VICTIM]);
    victim
        .identity
        .replace(&issued.certificate, &issued.key, renewed.pem())
        .expect("it is the same node");

    // Whoever trusts the new authority, and is trusted by it, gets in.
    let sink = Arc::new(Recorder::new(7));
    let connection = dial(identity_of(&renewed, 7), &victim.address(), &sink).await;
    let connection = connection.expect("both have certificates of the new authority");
    // Whoever has certificates of the old one does not: not even one that was connected before.
    let old = identity_of(&victim.authority, HONEST);
    let dialled = dial(old, &victim.address(), &Arc::new(Recorder::new(HONEST))).await;
    assert!(matches!(dialled, Err(DialError::Untrusted { .. })), "{dialled:?}");

    // What was open is open, in both directions.
    victim
        .to_victim
        .append_bytes(Lane::Data, &[], Bytes::from_static(b"as before"))
        .expect("it is open");
    victim.to_victim.flush();
    let nonce = victim.to_victim.link().nonce;
    assert_eq!(victim.sink.frames(nonce, 1).await[0].1.as_ref(), b"as before");
    let to_honest = victim.sink.opened(0).await;
    to_honest.append_bytes(Lane::Data, &[], Bytes::from_static(b"so here")).expect("it is open");
    to_honest.flush();
    assert_eq!(victim.honest.frames(nonce, 1).await[0].1.as_ref(), b"so here");
    for (sink, connection) in [(&sink, connection), (&victim.honest, victim.to_victim)] {
        connection.close(CloseReason::Local);
        sink.closed(connection.link().nonce).await;
        sink.check();
    }
    victim.sink.check();
}

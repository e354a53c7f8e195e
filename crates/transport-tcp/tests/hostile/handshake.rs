//! Before the hello: crowds, and answers that are none.

use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::{self, Deed, Recorder, SHORT, Setup};
use convoke_transport::{DialError, DialLimit, Transport};
use convoke_transport_tcp::TcpTransport;

use crate::deeds::OverSockets;
use crate::places::Kind;
use crate::raw::{RawListener, envelope, hasty};

over_every_socket! {
    a_crowd_in_its_handshake_leaves_room_later,
    dialling_something_else_says_what_was_wrong,
    dialling_silence_times_out,
}

async fn a_crowd_in_its_handshake_leaves_room_later(kind: Kind) {
    let place = kind.place();
    let builder = TcpTransport::builder().handshakes_max(6).handshake_timeout(SHORT);
    let setup = Setup {
        listening: Arc::new(builder.build().expect("the settings are legal")),
        dialling: Arc::new(TcpTransport::new()),
        listen: place.address.clone(),
    };
    let attacker = Arc::new(OverSockets);
    let refused =
        conformance::a_crowd_in_its_handshake_leaves_room_later(setup, attacker, Deed::Stalled)
            .await;
    let text = refused.to_string();
    assert!(text.contains("in their handshake: 3 of 6 are taken, 3 of them"), "{text}");
}

async fn dialling_something_else_says_what_was_wrong(kind: Kind) {
    let answers: [(Vec<u8>, &str); 4] = [
        (b"220 mail.example ESMTP\r\n".to_vec(), "does not speak convoke"),
        (envelope(9, 0, &[]), "version 9"),
        (envelope(9, 1, b"go\naway"), "it refused: go away"),
        (Vec::new(), "closed the connection before its hello"),
    ];
    for (answer, expected) in answers {
        let listener = RawListener::bind(kind).await;
        let address = listener.address.clone();
        let answering = tokio::spawn(async move {
            let mut raw = listener.accept().await;
            raw.envelope().await.expect("the dialler speaks first");
            raw.send(&answer).await;
        });
        let sink = Arc::new(Recorder::new(1));
        let dialled = TcpTransport::new().dial(&address, None, Arc::clone(&sink) as _).await;
        answering.await.expect("it answered");
        match dialled {
            Err(DialError::Handshake { message, .. }) => {
                assert!(message.contains(expected), "{message}");
            }
            other => panic!("expected a failed handshake, not {other:?}"),
        }
        assert_eq!(sink.opened_count(), 0);
    }
}

async fn dialling_silence_times_out(kind: Kind) {
    let listener = RawListener::bind(kind).await;
    let address = listener.address.clone();
    let transport = hasty().build().expect("the settings are legal");
    let dialled = transport.dial(&address, None, Arc::new(Recorder::new(1))).await;
    let error = dialled.expect_err("nothing was said");
    assert_eq!(error, DialLimit::Handshake(Duration::from_millis(100)).passed(&address));
    let expected = format!(
        "{address} took the connection, and said no hello within the \
                            handshake_timeout of 100ms: it hangs, or is another program"
    );
    assert_eq!(error.to_string(), expected);
}

//! Addresses that name no place for a socket.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use convoke_transport::conformance::{Recorder, Setup};
use convoke_transport::{DialError, Transport};
use convoke_transport_tcp::TcpTransport;

use crate::{address, at, files, is_refused, is_root};

/// Listening and dialling are refused with the same reason, and touch nothing.
async fn is_no_place(text: &str, expected: &str) {
    let address = address(text);
    is_refused(&address, expected).await;
    let dialled = TcpTransport::new().dial(&address, None, Arc::new(Recorder::new(1))).await;
    match dialled {
        Err(DialError::Unreachable { message, .. }) => {
            assert!(message.contains(expected), "{message}");
        }
        other => panic!("{address} cannot be dialled: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_no_absolute_path_is_refused() {
    for relative in ["unix://a.sock", "unix://./a.sock", "unix://localhost/run/a.sock"] {
        is_no_place(relative, "absolute").await;
    }
    is_no_place("unix:///run/convoke/", "slash").await;
    is_no_place("unix:///run/a\0b.sock", "NUL").await;
    is_no_place("unix://@a\0b", "NUL").await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_abstract_name_has_a_character() {
    is_no_place("unix://@", "at least one character").await;
}

#[cfg(not(target_os = "linux"))]
#[tokio::test]
async fn abstract_names_are_of_linux() {
    is_no_place("unix://@name", "only Linux").await;
}

#[tokio::test]
async fn what_is_too_long_for_the_system_is_refused_and_what_is_not_works() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let room = if cfg!(target_os = "linux") { 107 } else { 103 };
    let head = format!("{}/", folder.path().display());
    let longest = format!("unix://{head}{}", "x".repeat(room - head.len()));
    is_no_place(&format!("{longest}x"), &format!("{} bytes", room + 1)).await;
    is_no_place(&format!("unix:///{}", "x".repeat(200)), "201 bytes").await;
    let listener = crate::listen(&address(&longest)).await.expect("so much fits");
    assert_eq!(listener.local_address(), address(&longest));
    crate::dial(&address(&longest)).await.expect("it can be dialled there");
    #[cfg(target_os = "linux")]
    is_no_place(&format!("unix://@{}", "x".repeat(108)), "109 bytes").await;
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let missing = folder.path().join("missing");
    let expected = format!("the directory {} does not exist", missing.display());
    is_refused(&at(&missing.join("a.sock")), &expected).await;
    assert!(files(folder.path()).is_empty(), "and not made");
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_refused() {
    if is_root() {
        eprintln!("skipped: the kernel denies nothing to root");
        return;
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).expect("it is ours");
    is_refused(&at(&folder.path().join("a.sock")), "ermission denied").await;
}

/// Files and abstract names are a matter of this host, and those names even of this container.
#[tokio::test]
async fn no_peer_is_told_of_a_path_and_none_of_every_interface_is_told_to_one_of_this_host() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let advertised =
        ["unix:///run/a.sock", "unix://@a", "tcp://0.0.0.0:7000", "tcp://shop.example:7001"];
    let advertised = advertised.map(address).to_vec();
    let transport = Arc::new(TcpTransport::new());
    let expected = [
        ("tcp://127.0.0.1:0", vec!["tcp://127.0.0.1:7000", "tcp://shop.example:7001"]),
        (at(&folder.path().join("a.sock")).as_str(), vec!["tcp://shop.example:7001"]),
    ]
    .map(|(listen, expected)| (address(listen), expected));
    for (listen, expected) in expected {
        let (listening, dialling) = (Arc::clone(&transport) as _, Arc::clone(&transport) as _);
        let setup = Setup { listening, dialling, listen };
        let [a, b] = [1, 2].map(|node| Recorder::new(node).advertising(advertised.clone()));
        let pair = setup.connect_as(a, b).await;
        let expected: Vec<_> = expected.into_iter().map(address).collect();
        assert_eq!(pair.to_a.link().peer.advertised, expected);
        assert_eq!(pair.to_b.link().peer.advertised, expected);
        pair.finish().await;
    }
}

#[test]
fn a_plain_transport_has_both_schemes() {
    assert_eq!(TcpTransport::new().schemes(), ["tcp", "unix"]);
}

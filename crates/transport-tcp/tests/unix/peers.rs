//! Processes that connect, as the kernel names them.

use std::sync::Arc;

use convoke_transport::conformance::Setup;
use convoke_transport::{Credentials, PeerName, Remote};
use convoke_transport_tcp::TcpTransport;

use crate::at;

#[tokio::test]
async fn both_ends_know_the_user_and_neither_takes_it_for_a_proof_of_the_node() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let transport = Arc::new(TcpTransport::new());
    let (listening, dialling) = (Arc::clone(&transport) as _, transport as _);
    let listen = at(&folder.path().join("a.sock"));
    let pair = Setup { listening, dialling, listen }.connect().await;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for link in [pair.to_a.link(), pair.to_b.link()] {
        assert_eq!(link.scheme, "unix");
        assert_eq!(link.principal, None);
        let Some(Remote::Process(Credentials { uid: of, gid: group, pid })) = link.remote else {
            panic!("the kernel knows: {link:?}");
        };
        assert_eq!((of, group), (uid, gid));
        if cfg!(any(target_os = "linux", target_os = "macos")) {
            assert_eq!(pid, i32::try_from(std::process::id()).ok());
        }
        assert_eq!(link.peer_name(), PeerName::User(uid));
    }
    pair.finish().await;
}

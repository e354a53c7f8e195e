//! Files at and beside the path of a socket: none that is not a dead socket of this user is
//! removed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

use crate::{at, dial, files, is_refused, is_root, listen, place};

/// The file of a socket that nobody has any more.
fn make_stale(path: &Path) {
    drop(UnixListener::bind(path).expect("it binds"));
    assert!(path.exists(), "closing it leaves the file");
}

#[tokio::test]
async fn what_is_no_socket_stays() {
    let (folder, path) = place();
    fs::write(&path, "precious").expect("it can be written");
    is_refused(&at(&path), "no socket").await;
    assert_eq!(fs::read(&path).expect("it is there"), b"precious");

    // What is beside it is not even looked at.
    let beside = folder.path().join("a.sock.lock");
    fs::write(&beside, "precious").expect("it can be written");
    is_refused(&at(&path), "no socket").await;
    fs::remove_file(beside).expect("it is there");

    fs::remove_file(&path).expect("it is there");
    fs::create_dir(&path).expect("it can be made");
    is_refused(&at(&path), "no socket").await;

    // Not even a link to a socket that may be taken over: it is somebody's way there.
    fs::remove_dir(&path).expect("it is empty");
    let target = folder.path().join("target.sock");
    make_stale(&target);
    symlink(&target, &path).expect("it can be made");
    is_refused(&at(&path), "no socket").await;
    assert_eq!(files(folder.path()), ["a.sock", "target.sock"], "nothing is made, either");
}

#[tokio::test]
async fn a_socket_that_somebody_listens_at_stays() {
    let (folder, path) = place();
    // One that knows no lock.
    let other = UnixListener::bind(&path).expect("it binds");
    is_refused(&at(&path), "somebody listens there").await;
    other.set_nonblocking(true).expect("it is a socket");
    other.accept().expect("it was asked, and is reached still");
    drop(other);

    // One whose queue is full, since it hangs.
    fs::remove_file(&path).expect("it is there");
    let hung = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    let hung = hung.expect("there are sockets");
    hung.bind(&socket2::SockAddr::unix(&path).expect("it is short")).expect("it binds");
    hung.listen(0).expect("it is bound");
    let waiting = std::os::unix::net::UnixStream::connect(&path).expect("one fits");
    is_refused(&at(&path), "somebody listens there").await;
    drop((hung, waiting));

    // One for datagrams.
    fs::remove_file(&path).expect("it is there");
    let _datagrams = UnixDatagram::bind(&path).expect("it binds");
    is_refused(&at(&path), "somebody listens there").await;
    assert_eq!(files(folder.path()), ["a.sock"]);
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_taken_over() {
    let (folder, path) = place();
    make_stale(&path);
    assert!(dial(&at(&path)).await.is_err(), "nobody is there");
    let listener = listen(&at(&path)).await.expect("nobody is there");
    dial(&at(&path)).await.expect("somebody is, now");
    assert_eq!(files(folder.path()), ["a.sock", "a.sock.lock"]);
    drop(listener);
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn the_socket_of_another_user_stays_though_it_is_dead() {
    if !is_root() {
        eprintln!("skipped: only root can give a file to another user");
        return;
    }
    let (folder, path) = place();
    make_stale(&path);
    chown(&path, Some(65_534), None).expect("this is root");
    is_refused(&at(&path), "belongs to user 65534").await;
    assert_eq!(files(folder.path()), ["a.sock"]);

    // Beside its lock, which only that user may open.
    let lock = folder.path().join("a.sock.lock");
    fs::write(&lock, "").expect("it can be written");
    chown(&lock, Some(65_534), None).expect("this is root");
    is_refused(&at(&path), "the socket there belongs to user 65534").await;
    fs::remove_file(&path).expect("it is there");
    is_refused(&at(&path), "a.sock.lock belongs to user 65534").await;
    assert_eq!(files(folder.path()), ["a.sock.lock"]);
}

#[tokio::test]
async fn two_listeners_do_not_share_a_path_and_the_next_may_have_it() {
    let (folder, path) = place();
    let first = listen(&at(&path)).await.expect("nobody is there");
    is_refused(&at(&path), "in use").await;
    dial(&at(&path)).await.expect("the first is still there");
    first.close();
    assert!(files(folder.path()).is_empty(), "both files are gone once close returned");
    let second = listen(&at(&path)).await.expect("the first is closed");
    drop(first); // closed long ago: the files are the second's
    assert_eq!(files(folder.path()), ["a.sock", "a.sock.lock"]);
    dial(&at(&path)).await.expect("the second is there");
    second.close();
}

#[tokio::test]
async fn what_replaced_the_files_of_a_listener_stays() {
    let (folder, path) = place();
    let lock = folder.path().join("a.sock.lock");
    let listener = listen(&at(&path)).await.expect("nobody is there");
    for path in [&path, &lock] {
        fs::remove_file(path).expect("it is there");
    }
    let other = UnixListener::bind(&path).expect("the path is free");
    fs::write(&lock, "").expect("the path is free");
    drop(listener);
    assert_eq!(files(folder.path()), ["a.sock", "a.sock.lock"]);
    assert!(fs::symlink_metadata(&path).expect("it is there").file_type().is_socket());
    drop(other);
}

#[tokio::test]
async fn a_socket_whose_lock_was_swept_away_is_still_in_use() {
    let (folder, path) = place();
    let listener = listen(&at(&path)).await.expect("nobody is there");
    fs::remove_file(folder.path().join("a.sock.lock")).expect("it is there");
    is_refused(&at(&path), "somebody listens there").await;
    dial(&at(&path)).await.expect("the first is still there");
    drop(listener);
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn what_stands_in_place_of_a_lock_stays() {
    let (folder, path) = place();
    let lock = folder.path().join("a.sock.lock");
    fs::write(&lock, "precious").expect("it can be written");
    is_refused(&at(&path), "is not a lock of user").await;
    assert_eq!(fs::read(&lock).expect("it is there"), b"precious");

    fs::remove_file(&lock).expect("it is there");
    let elsewhere = folder.path().join("elsewhere");
    symlink(&elsewhere, &lock).expect("it can be made");
    is_refused(&at(&path), "a.sock.lock").await;
    assert!(!elsewhere.exists(), "no link is followed");

    fs::remove_file(&lock).expect("it is there");
    fs::create_dir(&lock).expect("it can be made");
    is_refused(&at(&path), "a.sock.lock").await;
    assert_eq!(files(folder.path()), ["a.sock.lock"]);
}

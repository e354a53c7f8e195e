//! Sockets within this host, the addresses `unix://`: a file by its absolute path, or on Linux an
//! abstract name after an `@`.
//!
//! The kernel says which user is at the other end. It knows no nodes, and there is no security to
//! put over such a socket: a peer is who it says it is, among the users that may connect.

mod file;
mod lock;

use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_transport::security::Security;
use convoke_transport::sockets::Accepts;
use convoke_transport::{Address, Credentials, DialError, DialLimit};
use socket2::{Domain, SockAddr, Type};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::fresh::Fresh;
use crate::handshake::HandshakeError;
use crate::socket::Socket;
use file::SocketFile;

/// The scheme of the addresses.
pub(crate) const SCHEME: &str = "unix";
/// First pause after which a dial tries again while the queue of a listener is full, for which the
/// kernel does not wait; it doubles up to the last.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Reason why nobody can listen at an address, or dial it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(
        "the path of a socket is absolute, as in unix:///run/a.sock: another process may run in \
         another directory"
    )]
    Relative,
    #[error("the path of a socket ends with the name of its file, not with a slash")]
    Directory,
    #[error("an abstract name has at least one character after the @")]
    NoName,
    #[error("only Linux has abstract names: give an absolute path")]
    NoAbstractNames,
    #[error("a NUL byte cannot be part of the address of a socket")]
    Nul,
    #[error("its {0} bytes are more than this system takes for a socket: choose a shorter one")]
    TooLong(usize),
    #[error("the directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error("what is there is no socket: remove it, or choose another path")]
    NoSocket,
    #[error("the socket there belongs to user {owner}, and this process runs as user {own}")]
    Foreign { owner: u32, own: u32 },
    #[error("{} is not a lock of user {own}: remove it, or choose another path", .path.display())]
    NoLock { path: PathBuf, own: u32 },
    #[error("{} belongs to user {owner}, and this process runs as user {own}", .path.display())]
    ForeignLock { path: PathBuf, owner: u32, own: u32 },
    #[error("it is in use: somebody listens there")]
    InUse,
    #[error("it is in use: another listener holds {}", .0.display())]
    Locked(PathBuf),
    #[error("{}: {error}", .path.display())]
    System { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Place of a socket, as the system takes it: a path, or a NUL and an abstract name.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    fn of(address: &Address) -> Result<Self, Unusable> {
        let text = address.rest();
        if text.contains('\0') {
            return Err(Unusable::Nul);
        }
        let place = match text.strip_prefix('@') {
            Some(_) if cfg!(not(any(target_os = "linux", target_os = "android"))) => {
                return Err(Unusable::NoAbstractNames);
            }
            Some("") => return Err(Unusable::NoName),
            Some(name) => Self(format!("\0{name}").into()),
            None if !text.starts_with('/') => return Err(Unusable::Relative),
            None if text.ends_with('/') => return Err(Unusable::Directory),
            None => Self(text.into()),
        };
        match SockAddr::unix(&place.0) {
            Ok(_) => Ok(place),
            Err(_) => Err(Unusable::TooLong(text.len())),
        }
    }

    /// The file; none for an abstract name.
    fn file(&self) -> Option<&Path> {
        self.0.is_absolute().then_some(&self.0)
    }
}

/// Connects to `address` within a time, waiting while the queue of the listener is full.
///
/// # Cancel safety
/// A future dropped before it is ready leaves no connection behind.
pub(crate) async fn connect(address: &Address, within: Duration) -> Result<UnixStream, DialError> {
    let unreachable =
        |message: String| DialError::Unreachable { address: address.clone(), message };
    let place = Place::of(address).map_err(|error| unreachable(error.to_string()))?;
    match timeout(within, connect_once_there_is_room(&place)).await {
        Ok(connected) => connected.map_err(|error| unreachable(error.to_string())),
        Err(_) => Err(DialLimit::Connect(within).passed(address)),
    }
}

async fn connect_once_there_is_room(place: &Place) -> io::Result<UnixStream> {
    let mut pause = RETRY_PAUSE;
    loop {
        match UnixStream::connect(&place.0).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(pause).await,
            connected => return connected,
        }
        pause = (2 * pause).min(RETRY_PAUSE_MAX);
    }
}

/// A socket that listens. Its file goes first, while the socket still answers whoever asks whether
/// it is stale.
#[derive(Debug)]
pub(crate) struct Listening {
    _file: Option<SocketFile>,
    listener: UnixListener,
}

/// Listens at `address`, and has the system queue so many connections.
pub(crate) fn listen(address: &Address, backlog: u16) -> Result<Listening, Unusable> {
    let place = Place::of(address)?;
    let socket = new_socket()?;
    let file = match place.file() {
        Some(path) => Some(SocketFile::bind(path, &socket)?),
        None => {
            bind(&socket, &place.0)?;
            None
        }
    };
    socket.listen(backlog.into())?;
    let listener = UnixListener::from_std(socket.into())?;
    Ok(Listening { _file: file, listener })
}

fn new_socket() -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn bind(socket: &socket2::Socket, place: &Path) -> Result<(), Unusable> {
    socket.bind(&SockAddr::unix(place)?).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Unusable::InUse,
        _ => Unusable::Io(error),
    })
}

/// The path with something after its last character.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

impl Accepts for Listening {
    type Stream = UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.listener.poll_accept(cx).map_ok(|(stream, _)| stream)
    }
}

impl Fresh for UnixStream {
    type Peer = Credentials;

    fn peer(&self) -> io::Result<Credentials> {
        let peer = self.peer_cred()?;
        Ok(Credentials { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    async fn dialled(self, _: &Security, _: &Address) -> Result<Socket, HandshakeError> {
        Ok(Socket::Unix(self))
    }

    async fn accepted(self, _: &Config) -> Result<Socket, HandshakeError> {
        Ok(Socket::Unix(self))
    }
}

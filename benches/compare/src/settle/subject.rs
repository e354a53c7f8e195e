//! The systems: a server process each, and a client.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::tarpc::context;
use ::tonic::Code as Status;
use ::tonic::transport::Channel;
use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use convoke::{Code, Endpoint, Peer};

use crate::flavour::Flavour;
use crate::lab::{BODY_BYTES, ECHO, FAIL, Host, NEVER, Remote, Room, resident_bytes_of};
use crate::processes::{Server, Setup};
use crate::proto::rival_client::RivalClient;
use crate::proto::{NEVER as NEVER_ANSWERED, NOT_FOUND, Payload};
use crate::system::System;
use crate::systems::tarpc::EchoClient;
use crate::systems::{tarpc, tonic};

use super::phase::Phase;

/// Longer than any phase, within what every system takes.
pub(super) const LONG: Duration = Duration::from_secs(580);

/// A system under measurement.
pub(super) trait Subject {
    type Client: Client;

    fn name(&self) -> &'static str;

    /// True when the system has all that the phase needs.
    fn can(&self, phase: Phase) -> bool;

    fn client(&self) -> Self::Client;

    /// Kills the server.
    fn kill(&mut self);

    /// Starts another where the last one listened.
    fn start_again(&mut self) -> Result<()>;

    /// The server, watched for what it holds.
    fn server(&mut self) -> &mut Option<Watched>;
}

/// A client of which callers share clones.
pub(super) trait Client: Clone + Send + Sync + 'static {
    fn echo(&self) -> impl Future<Output = Result<()>> + Send;

    /// A call that is to fail.
    fn not_found(&self) -> impl Future<Output = Result<()>> + Send;

    /// A call that is never answered, until it is dropped.
    fn never(&self) -> impl Future<Output = ()> + Send;

    /// Calls that are not settled here, where the system knows.
    fn unsettled(&self) -> Option<usize>;
}

/// A server process, and how to look at it.
#[derive(Debug)]
pub(super) enum Watched {
    Host(Remote),
    Other(Server),
}

/// Holdings of a server at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    pub(super) resident_bytes: Option<u64>,
    pub(super) remembered: Option<usize>,
}

impl Watched {
    fn address(&self) -> String {
        match self {
            Self::Host(host) => host.address().trim_start_matches("tcp://").to_owned(),
            Self::Other(server) => server.address().to_owned(),
        }
    }

    pub(super) fn holds(&mut self) -> Result<Holds> {
        match self {
            Self::Host(host) => {
                let state = host.state()?;
                let remembered = Some(state.held.remembered);
                Ok(Holds { resident_bytes: state.resident_bytes, remembered })
            }
            Self::Other(server) => {
                let resident_bytes = resident_bytes_of(&server.process().to_string());
                Ok(Holds { resident_bytes, remembered: None })
            }
        }
    }
}

/// Starts a server of a rival.
fn start_rival(program: &Path, system: System, listen: &str) -> Result<Watched> {
    let (program, flavour, delay) = (program.to_owned(), Flavour::Ct, Duration::ZERO);
    let setup = Setup { program, system, flavour, delay };
    Ok(Watched::Other(Server::spawn_at(&setup, None, listen)?))
}

/// Convoke over TCP, with its defaults.
pub(super) struct ConvokeSubject {
    program: PathBuf,
    host: Host,
    server: Option<Watched>,
    client: ConvokeClient,
}

impl ConvokeSubject {
    pub(super) async fn start(program: &Path) -> Result<Self> {
        let host = Host::new(1, Room::DEFAULT);
        let server = Watched::Host(Remote::start(program, &host)?);
        let endpoint = Room::DEFAULT.endpoint().transport(Room::DEFAULT.transport()?);
        let endpoint = endpoint.start().await?;
        let address = server.address();
        let peer = endpoint.connect(format!("tcp://{address}").as_str()).await?;
        let (program, host) = (program.to_owned(), host.at(&address));
        let client = ConvokeClient { endpoint, peer };
        Ok(Self { program, host, server: Some(server), client })
    }
}

impl Subject for ConvokeSubject {
    type Client = ConvokeClient;

    fn name(&self) -> &'static str {
        System::ConvokeTcp.name()
    }

    fn can(&self, _: Phase) -> bool {
        true
    }

    fn client(&self) -> ConvokeClient {
        self.client.clone()
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn start_again(&mut self) -> Result<()> {
        self.server = Some(Watched::Host(Remote::start(&self.program, &self.host)?));
        Ok(())
    }

    fn server(&mut self) -> &mut Option<Watched> {
        &mut self.server
    }
}

#[derive(Clone, Debug)]
pub(super) struct ConvokeClient {
    endpoint: Endpoint,
    peer: Peer,
}

impl Client for ConvokeClient {
    async fn echo(&self) -> Result<()> {
        let request = ECHO.request(vec![7; BODY_BYTES]);
        let reply = self.endpoint.invoke(request).to(self.peer).await?;
        expect_bytes(reply.len())
    }

    async fn not_found(&self) -> Result<()> {
        let request = FAIL.request(vec![7; BODY_BYTES]);
        let error = self.endpoint.invoke(request).to(self.peer).await.err();
        let error = error.context("it answers")?;
        ensure!(error.status().is_some_and(|status| status.code() == Code::NotFound), "{error}");
        Ok(())
    }

    async fn never(&self) {
        let request = NEVER.request(vec![7; BODY_BYTES]);
        let call = self.endpoint.invoke(request).deadline(LONG).to(self.peer);
        let _ = call.await; // It is dropped before, or its server is gone.
    }

    fn unsettled(&self) -> Option<usize> {
        let load = self.endpoint.load();
        Some(load.calls + load.unsettled)
    }
}

/// gRPC.
pub(super) struct TonicSubject {
    program: PathBuf,
    listen: String,
    server: Option<Watched>,
    client: RivalClient<Channel>,
}

impl TonicSubject {
    pub(super) async fn start(program: &Path) -> Result<Self> {
        let Watched::Other(mut server) = start_rival(program, System::Tonic, "127.0.0.1:0")? else {
            bail!("it is no host");
        };
        server.ask("peers", "joined")?;
        let client = tonic::connect(server.address()).await?;
        let (program, listen) = (program.to_owned(), server.address().to_owned());
        Ok(Self { program, listen, server: Some(Watched::Other(server)), client })
    }
}

impl Subject for TonicSubject {
    type Client = RivalClient<Channel>;

    fn name(&self) -> &'static str {
        System::Tonic.name()
    }

    fn can(&self, _: Phase) -> bool {
        true
    }

    fn client(&self) -> RivalClient<Channel> {
        self.client.clone()
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn start_again(&mut self) -> Result<()> {
        let mut server = start_rival(&self.program, System::Tonic, &self.listen)?;
        if let Watched::Other(server) = &mut server {
            server.ask("peers", "joined")?;
        }
        self.server = Some(server);
        Ok(())
    }

    fn server(&mut self) -> &mut Option<Watched> {
        &mut self.server
    }
}

impl Client for RivalClient<Channel> {
    async fn echo(&self) -> Result<()> {
        let reply = self.clone().unary(payload(0)).await?;
        expect_bytes(reply.get_ref().body.len())
    }

    async fn not_found(&self) -> Result<()> {
        let reply = self.clone().unary(payload(NOT_FOUND)).await;
        let status = reply.err().context("it answers")?;
        ensure!(status.code() == Status::NotFound, "{status}");
        Ok(())
    }

    async fn never(&self) {
        let _ = self.clone().unary(payload(NEVER_ANSWERED)).await;
    }

    fn unsettled(&self) -> Option<usize> {
        None
    }
}

fn payload(count: u32) -> Payload {
    Payload { body: vec![7; BODY_BYTES].into(), count, ..Payload::default() }
}

/// tarpc.
pub(super) struct TarpcSubject {
    server: Option<Watched>,
    client: EchoClient,
}

impl TarpcSubject {
    pub(super) async fn start(program: &Path) -> Result<Self> {
        let server = start_rival(program, System::Tarpc, "127.0.0.1:0")?;
        let client = tarpc::connect(&server.address()).await?;
        Ok(Self { server: Some(server), client })
    }
}

impl Subject for TarpcSubject {
    type Client = EchoClient;

    fn name(&self) -> &'static str {
        System::Tarpc.name()
    }

    /// Its client does not connect again.
    fn can(&self, phase: Phase) -> bool {
        phase != Phase::Restarted
    }

    fn client(&self) -> EchoClient {
        self.client.clone()
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn start_again(&mut self) -> Result<()> {
        bail!("the client of tarpc does not connect again")
    }

    fn server(&mut self) -> &mut Option<Watched> {
        &mut self.server
    }
}

impl Client for EchoClient {
    async fn echo(&self) -> Result<()> {
        let body = Bytes::from_static(&[7; BODY_BYTES]);
        let reply = EchoClient::echo(self, context::current(), body).await?;
        expect_bytes(reply.len())
    }

    async fn not_found(&self) -> Result<()> {
        let body = Bytes::from_static(&[7; BODY_BYTES]);
        let reply = EchoClient::not_found(self, context::current(), body).await?;
        ensure!(reply.is_err(), "it answers");
        Ok(())
    }

    async fn never(&self) {
        let mut context = context::current();
        context.deadline = Instant::now() + LONG;
        let _ = EchoClient::never(self, context, Bytes::new()).await;
    }

    fn unsettled(&self) -> Option<usize> {
        None
    }
}

fn expect_bytes(bytes: usize) -> Result<()> {
    ensure!(bytes == BODY_BYTES, "a reply of {bytes} bytes");
    Ok(())
}

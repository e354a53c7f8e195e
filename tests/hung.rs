//! A server process that hangs: it is stopped by a signal, while the system goes on to take
//! connections and bytes for it.

#![cfg(all(target_os = "linux", feature = "quorum", feature = "tcp"))]

#[expect(dead_code, reason = "what other tests need of it")]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use convoke::quorum::{Configuration, Majority, QuorumExt};
use convoke::transport::TcpTransport;
use convoke::{Call, Cause, Endpoint, EndpointBuilder, Executed, Limits, NodeId, Peer, PeerState};
use support::{Answer, Ask, ECHO, FAIL, HOPS, Stop, ask};
use tokio::time::timeout;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Set for the process that is to be the server.
const SERVES: &str = "CONVOKE_TEST_SERVES";
const ANY: &str = "tcp://127.0.0.1:0";
/// The node that hangs.
const HUNG: u64 = 7;
/// So many calls are in flight.
const CALLS: usize = 64;
/// Bounds what would wait for ever.
const LONG: Duration = Duration::from_secs(120);
/// No deadline passes here.
const HOUR: Duration = Duration::from_secs(3_600);
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The most that a connection keeps of what it could not send.
const BUFFER_BYTES: usize = 6 << 20;

/// An endpoint that soon notices who says nothing any more, and waits an hour for who does.
fn builder(node: u64) -> Result<EndpointBuilder> {
    let transport = TcpTransport::builder().keep_alive_interval(KEEP_ALIVE / 4);
    let transport = transport.keep_alive_timeout(KEEP_ALIVE).handshake_timeout(KEEP_ALIVE);
    let transport = transport.send_buffer_bytes_hard(BUFFER_BYTES).build()?;
    let mut limits = Limits::default();
    limits.keep_alive_timeout = KEEP_ALIVE;
    (limits.deadline_default, limits.deadline_max) = (HOUR, HOUR);
    let builder = Endpoint::builder().transport(transport).node(NodeId::new(node));
    Ok(builder.limits(limits))
}

/// The server's process; it ends with this.
struct Server {
    child: Child,
    at: Stop,
    _output: Option<BufReader<ChildStdout>>,
}

impl Server {
    fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "serves_in_a_process_of_its_own", "--nocapture"]);
        command.env(SERVES, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        let at = Stop { node: HUNG, address: String::new() };
        let mut server = Self { child, at, _output: output };
        let output = server._output.as_mut().expect("it is piped");
        for line in output.lines() {
            if let Some((_, address)) = line?.split_once("listens at ") {
                address.clone_into(&mut server.at.address);
                return Ok(server);
            }
        }
        Err("the server ended before it listened".into())
    }

    /// Stops it where it is. Returns when it does nothing any more.
    fn pause(&self) -> Result {
        self.signal("-STOP")?;
        let stat = format!("/proc/{}/stat", self.child.id());
        // The state follows the name, which is in parentheses.
        while !std::fs::read_to_string(&stat)?.contains(") T ") {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets it go on.
    fn resume(&self) -> Result {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("kill {signal}: {sent}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server, if this process is to be that; nothing in others.
#[tokio::test]
async fn serves_in_a_process_of_its_own() -> Result {
    if std::env::var_os(SERVES).is_none() {
        return Ok(());
    }
    let server = support::start(builder(HUNG)?.listen(ANY)).await;
    println!("listens at {}", server.addresses()[0]);
    // Until the parent is gone, however it ends.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// The call failed since its node says nothing, not for want of time. Whether it may have run.
async fn suspected(call: Call<Answer>) -> bool {
    let error = call.first().await.expect_err("it hangs");
    let failure = error.failure().expect("a branch failed").clone();
    let causes = [Cause::NodeDown, Cause::Unreachable, Cause::Orphaned, Cause::Overloaded];
    assert!(causes.contains(&failure.cause), "{failure}");
    failure.executed != Executed::No
}

#[tokio::test]
async fn who_calls_a_process_that_hangs_is_told_and_goes_on_with_it_later() -> Result {
    let server = Server::start()?;
    let client = support::start(builder(9)?).await;
    let one = support::start(builder(1)?.listen(ANY)).await;
    let two = support::start(builder(2)?.listen(ANY)).await;
    let hung = client.peer(NodeId::new(HUNG), server.at.address.as_str())?;
    let [first, second]: [Peer; 2] = [&one, &two].map(|other| support::peer(&client, other));
    for node in [hung, first, second] {
        client.warm_up(node).await?;
    }
    one.warm_up(one.peer(NodeId::new(HUNG), server.at.address.as_str())?).await?;
    let echo = |text: String| client.call(ECHO, ask(&text)).to(hung);

    let running = (0..CALLS).map(|_| client.call(FAIL, ask("never")).to(hung).open());
    let running = running.collect::<std::result::Result<Vec<_>, _>>()?;
    echo("behind them".into()).await?;
    server.pause()?;
    let unread = (0..CALLS).map(|number| echo(number.to_string()).open());
    let unread = unread.collect::<std::result::Result<Vec<_>, _>>()?;
    // In the middle of chains: straight, by a connection of another node, and by a dial of one.
    let chain =
        |route: Vec<Stop>, at| client.call(HOPS, Ask { route, ..ask("along") }).to(at).open();
    let last = support::stop(&two);
    let chains = [
        chain(vec![last.clone()], hung)?,
        chain(vec![server.at.clone(), last.clone()], first)?,
        chain(vec![server.at.clone(), support::stop(&one)], second)?,
    ];
    let members = Configuration::new([hung, first, second])?;
    let quorum = client.call(ECHO, ask("quorum")).to_all(&members).quorum(Majority);
    let quorum = timeout(LONG, quorum).await??;
    assert_eq!(quorum.iter().map(|(node, _)| node.get()).sum::<u64>(), 3, "by the two others");
    // More than the connection keeps: what finds no room is refused at once.
    let large = "a".repeat(256 << 10);
    let large = (0..4 * BUFFER_BYTES / large.len()).map(|_| echo(large.clone()).open());
    let large = large.collect::<std::result::Result<Vec<_>, _>>()?;
    let (mut kept, count) = (0, large.len());
    let all_told = async {
        for call in large {
            kept += usize::from(suspected(call).await);
        }
        for call in running {
            assert!(suspected(call).await, "it may have run");
        }
        for call in unread.into_iter().chain(chains) {
            suspected(call).await;
        }
    };
    timeout(LONG, all_told).await?;
    assert!(kept <= count / 2, "{kept} of {count} were kept");
    assert_eq!(client.load().calls, 0);

    server.resume()?;
    let mut state = client.watch_peer(hung);
    let _kept = client.keep_connected(hung);
    timeout(LONG, state.wait_for(|state| *state == PeerState::Connected)).await??;
    let calls = (0..CALLS).map(|number| echo(format!("again {number}")).open());
    let calls = calls.collect::<std::result::Result<Vec<_>, _>>()?;
    for (number, call) in calls.into_iter().enumerate() {
        let reply = timeout(LONG, call.first()).await??;
        assert_eq!(reply.message().text, format!("again {number}"), "no late reply");
    }
    let along = chain(vec![last], hung)?;
    assert_eq!(timeout(LONG, along.first()).await??.message().node, 2);
    Ok(())
}

//! Calls among endpoints over sockets of this host, also of processes that are killed.
#![cfg(all(unix, feature = "tcp"))]

#[allow(dead_code, reason = "every file of tests uses some of it")]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use convoke::transport::{Credentials, MemTransport};
use convoke::{
    Caller, Code, Context, Endpoint, EndpointBuilder, Limits, Method, NodeId, Peer, Service,
    Status, Way,
};
use support::{Ask, ECHO, HOPS, ask, peer, start, stop};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Tells the credentials of the caller, and whether its node is proven.
const WHO: Method<(), String> = Method::new("test.Unix/Who");
/// For users of this host alone.
const LOCAL: Method<(), ()> = Method::new("test.Unix/Local");

fn at(folder: &Path, name: &str) -> String {
    format!("unix://{}/{name}", folder.display())
}

/// A node with everything by default, at a path of its own.
fn node(folder: &Path, id: u64) -> EndpointBuilder {
    let builder = convoke::endpoint().node(NodeId::new(id));
    builder.listen(at(folder, &format!("{id}.sock")))
}

fn told(credentials: Option<Credentials>, is_authenticated: bool) -> String {
    format!("{credentials:?}, {is_authenticated}")
}

/// The user of this process, as the file system has it.
fn own_uid(folder: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(folder).expect("it is there").uid()
}

#[tokio::test]
async fn an_endpoint_listens_at_a_port_and_a_path_and_tells_its_callers_apart() -> Result {
    let folder = tempfile::tempdir()?;
    let uid = own_uid(folder.path());
    let of_user = move |caller: &Caller| caller.credentials().is_some_and(|user| user.uid == uid);
    let who = |(), context: Context| async move {
        let caller = context.caller();
        Ok::<_, Status>(told(caller.credentials(), caller.is_authenticated()))
    };
    let service =
        Service::new().unary(WHO, who).unary(LOCAL, |(), _: Context| async { Ok::<_, Status>(()) });
    let server = node(folder.path(), 1)
        .listen("tcp://127.0.0.1:0")
        .serve(service)
        .authorize(move |caller, method| method != LOCAL.name() || of_user(caller))
        .start()
        .await?;
    let [by_path, by_port] = server.addresses() else { panic!("it listens at two addresses") };

    let client = convoke::endpoint().start().await?;
    let server_here = client.connect(by_path).await?;
    let answer = client.call(WHO, ()).to(server_here).await?;
    let pid = i32::try_from(std::process::id()).ok();
    assert!(answer.contains(&format!("uid: {uid}")) && answer.ends_with("false"), "{answer}");
    if cfg!(target_os = "linux") {
        assert!(answer.contains(&format!("pid: {pid:?}")), "{answer}");
    }
    client.call(LOCAL, ()).to(server_here).await?;

    let remote = convoke::endpoint().start().await?;
    let server_there = remote.connect(by_port).await?;
    assert_eq!(remote.call(WHO, ()).to(server_there).await?, told(None, false));
    let denied = remote.call(LOCAL, ()).to(server_there).await.expect_err("nobody knows the user");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));
    Ok(())
}

#[tokio::test]
async fn a_node_is_not_told_where_another_listens_on_this_host_and_replies_all_the_same() -> Result
{
    let folder = tempfile::tempdir()?;
    let [one, two, initiator] = [1, 2, 9].map(|id| start(node(folder.path(), id)));
    let (one, two, initiator) = (one.await, two.await, initiator.await);
    let request = Ask { route: vec![stop(&two)], ..ask("far") };
    let first = peer(&initiator, &one);
    // The one node may know it; it does not pass it on.
    peer(&one, &initiator);
    for expected in [Way::Relayed, Way::Direct] {
        let call = initiator.call(HOPS, request.clone()).to(first).open()?;
        let (replies, _) = call.collect().await?;
        assert_eq!((replies[0].message().node, replies[0].way()), (2, expected));
        // Once the owner of the other says where, it knows.
        peer(&two, &initiator);
        two.connect(initiator.addresses()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_once_are_all_served() -> Result {
    // Fewer than the handshakes that one user may have at a time.
    const CLIENTS: usize = 100;
    let folder = tempfile::tempdir()?;
    let server = start(node(folder.path(), 1)).await;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let address = server.addresses().to_vec();
        clients.spawn(async move {
            let client = convoke::endpoint().start().await.expect("it only dials");
            let to = client.connect(address).await.expect("there is room");
            for turn in 0..10 {
                let text = format!("{number} {turn}");
                let answer = client.call(ECHO, ask(&text)).to(to).await.expect("it is answered");
                assert_eq!(answer.text, text);
            }
        });
    }
    assert_eq!(clients.join_all().await.len(), CLIENTS);
    Ok(())
}

#[tokio::test]
async fn an_endpoint_without_the_transport_says_what_to_add() -> Result {
    let without = || Endpoint::builder().transport(MemTransport::new());
    let listening = without().listen("unix:///run/a.sock").start().await;
    let text = listening.expect_err("it has no such transport").to_string();
    let add = "no transport for unix:///run/a.sock: add `.transport(TcpTransport::new())`";
    assert!(text.contains(add), "{text}");
    let dialling = without().start().await?.connect("unix:///run/a.sock").await;
    let text = dialling.expect_err("it has no such transport").to_string();
    assert!(text.contains(add), "{text}");
    Ok(())
}

/// Variable with the address at which a process of the tests listens.
const PLACE: &str = "CONVOKE_TEST_UNIX_ADDRESS";
const LISTENS: &str = "listens";

/// A server in a process of its own; killed when this is dropped.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn spawn(address: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let this = ["--exact", "serves_until_it_is_killed", "--nocapture"];
        command.args(this).env(PLACE, address).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("it is piped")?);
        Ok(Self { child, output })
    }

    /// Waits until it listens, or says why it does not.
    fn started(&mut self) -> Result<std::result::Result<(), String>> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.contains(LISTENS) {
                return Ok(Ok(()));
            }
            if let Some((_, reason)) = line.split_once("cannot listen") {
                return Ok(Err(reason.trim_end().to_owned()));
            }
            line.clear();
        }
        Err("it ended without a word".into())
    }

    /// As `kill -9` does.
    fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process of the tests below, which ends with its standard input at the latest. Without an
/// address there is nothing to do.
#[test]
fn serves_until_it_is_killed() -> Result {
    let Ok(address) = std::env::var(PLACE) else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let echo = |text: String, _: Context| async move { Ok::<_, Status>(text) };
        let service = Service::new().unary(SAY, echo);
        let node = convoke::endpoint().node(NodeId::new(1)).listen(address.as_str());
        match node.serve(service).start().await {
            Ok(endpoint) => {
                println!("\n{LISTENS}");
                let end = || std::io::stdin().read_to_end(&mut Vec::new());
                tokio::task::spawn_blocking(end).await??;
                endpoint.shutdown(Duration::from_secs(5)).await;
            }
            Err(error) => println!("\n{error}"),
        }
        Ok(())
    })
}

/// Gives back what it got.
const SAY: Method<String, String> = Method::new("test.Unix/Say");

/// Calls until the node is reached again.
async fn say(client: &Endpoint, to: Peer, text: &str) -> String {
    let answered = async {
        loop {
            match client.call(SAY, text.to_owned()).to(to).await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answered).await.expect("it is reached again")
}

#[tokio::test]
async fn a_server_that_was_killed_is_followed_by_one_at_the_same_path() -> Result {
    let folder = tempfile::tempdir()?;
    let (address, file) = (at(folder.path(), "a.sock"), folder.path().join("a.sock"));
    let mut limits = Limits::default();
    (limits.backoff_min, limits.backoff_max) = (Duration::from_millis(1), Duration::from_millis(4));
    let client = convoke::endpoint().limits(limits).start().await?;
    let to = client.peer(NodeId::new(1), address.as_str())?;

    let mut server = Process::spawn(&address)?;
    server.started()??;
    assert_eq!(say(&client, to, "first life").await, "first life");
    let refused = Process::spawn(&address)?.started()?.expect_err("the first one listens");
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(say(&client, to, "still the first").await, "still the first");

    for life in 2..5 {
        server.kill()?;
        assert!(file.exists(), "nobody was left to remove it");
        let failed = client.call(SAY, "nobody".into()).to(to).await;
        assert!(failed.is_err(), "{failed:?}");
        // Several come at once; one gets the path.
        let crowd: Vec<_> = (0..3).map(|_| Process::spawn(&address)).collect::<Result<_>>()?;
        let mut listening = Vec::new();
        for mut process in crowd {
            match process.started()? {
                Ok(()) => listening.push(process),
                Err(reason) => assert!(reason.contains("in use"), "{reason}"),
            }
        }
        assert_eq!(listening.len(), 1);
        server = listening.remove(0);
        let text = format!("life {life}");
        assert_eq!(say(&client, to, &text).await, text);
    }

    drop(server.child.stdin.take());
    assert!(server.child.wait()?.success(), "it ends in order");
    assert!(!file.exists() && std::fs::read_dir(folder.path())?.next().is_none());
    Ok(())
}

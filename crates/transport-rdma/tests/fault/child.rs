//! A peer that is a process of its own, so that it can be killed or stopped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child as Process, ChildStdout, Command, Stdio};
use std::str::FromStr;

use convoke_transport::Address;

use crate::node::{Node, anywhere};
use crate::tally::Habit;

/// The peer; killed when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    output: BufReader<ChildStdout>,
    pub(crate) address: Address,
}

/// Says to a process that it is the peer, and what it does with frames.
const VARIABLE: &str = "CONVOKE_TEST_PEER";
/// The case that is the peer in a process that finds the variable.
const CASE: &str = "child::a_peer_serves_until_its_input_ends";

impl Child {
    /// Starts a peer that sends frames back, or takes them.
    pub(crate) fn start(habit: Habit) -> Self {
        let program = std::env::current_exe().expect("this program knows its path");
        let mut process = Command::new(program)
            .args(["--exact", CASE, "--nocapture", "--test-threads", "1"])
            .env(VARIABLE, if habit == Habit::Echo { "echo" } else { "take" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let address = word_in(&mut output, "address ").expect("a peer says where it listens");
        Self { process, output, address }
    }

    /// Ends it as nothing else can.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it can be waited for");
    }

    /// Ends it gently; answers how many frames it got, all of them right.
    pub(crate) fn finish(mut self) -> u64 {
        drop(self.process.stdin.take());
        let count = word_in(&mut self.output, "received ").expect("a peer says what it got");
        assert!(self.process.wait().expect("it can be waited for").success());
        count
    }

    /// Stops it: it does nothing until it continues.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(status.expect("`kill` can be started").success());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fails when it is gone already, as it should be then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Value after this word in the output of a peer; the test harness may have begun the line.
fn word_in<T: FromStr>(output: &mut impl BufRead, word: &str) -> Option<T> {
    let mut lines = output.lines().map_while(Result::ok);
    lines.find_map(|line| line.split_once(word)?.1.parse().ok())
}

/// Serves one habit until whoever started it is gone.
async fn serve(habit: Habit) {
    let node = Node::new(2, habit);
    let listener = node.listen(&anywhere()).await;
    println!("address {}", listener.local_address());
    let end = || std::io::stdin().read_to_end(&mut Vec::new());
    let ended = tokio::task::spawn_blocking(end).await.expect("reading does not panic");
    ended.expect("the input can be read");
    println!("received {}", node.tally.total());
}

/// The peer itself, where the variable says so; elsewhere a test of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_serves_until_its_input_ends() {
    match std::env::var(VARIABLE).as_deref() {
        Ok("echo") => return serve(Habit::Echo).await,
        Ok(_) => return serve(Habit::Take).await,
        Err(_) => {}
    }
    let child = Child::start(Habit::Echo);
    let node = Node::new(1, Habit::Take);
    let mut line = node.dial(&child.address).await.expect("the peer listens");
    line.exchange(40).await;
    line.close().await;
    assert_eq!(child.finish(), 40);
}

use super::*;

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let error = Member::spawn(Command::new("no-such-program")).unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[tokio::test]
async fn a_process_that_says_nothing_is_an_error() {
    // Any program that ends without being asked for anything.
    let mut command = Command::new("cargo");
    command.arg("--explain-nothing").stderr(Stdio::null());
    let mut member = Member::spawn(command).unwrap();
    let error = member.line("an address").await.unwrap_err().to_string();
    assert!(error.starts_with("a process ended before it printed an address"), "{error}");
    member.stop().await.unwrap();
}

#[test]
fn ports_differ_and_nodes_can_listen_there_again_and_again() {
    let ports = Ports::reserve(20).unwrap();
    let mut sorted = ports.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 20);
    for _ in 0..3 {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, ports[7])).unwrap();
        drop(listener);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ports_are_given_to_nobody_else_while_they_are_kept() {
    let ports = Ports::reserve(200).unwrap();
    let others: Vec<_> =
        (0..400).map(|_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    for other in others {
        assert!(!ports.contains(&other.local_addr().unwrap().port()));
    }
}

#[cfg(unix)]
mod unix {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// Time that no start takes.
    const LONG: Duration = Duration::from_secs(60);

    /// A child that prints its number, and then what it is told until that ends.
    fn echo() -> Command {
        shell("echo $$; exec cat")
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// True when the system still has a process of this number that has not ended.
    fn runs(id: u32) -> bool {
        let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
        rustix::process::test_kill_process(id).is_ok()
    }

    #[tokio::test]
    async fn a_line_that_does_not_come_is_late() {
        let mut member = Member::spawn(shell("echo first; exec cat")).unwrap();
        assert_eq!(member.line_within("a line", LONG).await.unwrap(), "first");
        let moment = Duration::from_millis(1);
        let late = member.line_within("another", moment).await.unwrap_err();
        assert!(matches!(late, ProcessError::Late { within, .. } if within == moment), "{late}");
    }

    #[tokio::test]
    async fn a_group_is_told_what_its_members_printed() {
        let child = "echo at $$; while read line; do [ \"$line\" = '# end of cluster' ] && break; \
                     told=$told$line; done; echo ready; echo $told; cat";
        let (mut group, addresses) =
            Group::spawn([shell(child), shell(child)], LONG).await.unwrap();
        group.tell(&(addresses.join("\n") + "\n"), LONG).await.unwrap();
        let ids: Vec<u32> = group.members().iter().map(|member| member.id().unwrap()).collect();
        for member in group.members() {
            let expected = format!("at {}at {}", ids[0], ids[1]);
            assert_eq!(member.line("what it was told").await.unwrap(), expected);
        }
        group.stop().await.unwrap();
        assert!(ids.into_iter().all(|id| !runs(id)));
    }

    #[tokio::test]
    async fn a_group_whose_member_fails_leaves_nobody_behind() {
        let error = Group::spawn([echo(), shell("exit 3")], LONG).await.unwrap_err();
        let ended = matches!(error, ProcessError::Ended { status, .. } if status.code() == Some(3));
        assert!(ended);
    }

    /// The first waits for the second for ever, as one that is to connect to it.
    #[tokio::test]
    async fn a_member_that_ends_before_it_is_ready_ends_the_wait_for_all() {
        let waits = shell("exec cat >/dev/null");
        let error = Group::spawn([waits, shell("exit 3")], LONG).await.unwrap_err();
        assert!(error.to_string().contains("before it printed an address"), "{error}");
        for dies in ["echo at; read told; exit 3", "echo at; exit 3"] {
            let waits = shell("echo at; exec cat >/dev/null");
            let (mut group, _) = Group::spawn([waits, shell(dies)], LONG).await.unwrap();
            let error = group.tell("a cluster\n", LONG).await.unwrap_err();
            assert!(error.to_string().contains("before it printed ready"), "{error}");
            group.stop().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_member_that_is_never_ready_is_waited_for_no_longer_than_the_limit() {
        let limit = Duration::from_millis(10);
        let silent = || shell("exec cat >/dev/null");
        let error = Group::spawn([silent(), silent()], limit).await.unwrap_err();
        assert!(error.to_string().contains("has not printed an address within 10ms"), "{error}");
        let waits = shell("echo at; exec cat >/dev/null");
        let (mut group, _) = Group::spawn([waits], LONG).await.unwrap();
        let error = group.tell("a cluster\n", limit).await.unwrap_err();
        assert!(error.to_string().contains("has not printed ready within 10ms"), "{error}");
        group.stop().await.unwrap();
    }

    #[tokio::test]
    async fn one_that_was_killed_starts_again_as_another() {
        let mut member = Member::spawn(echo()).unwrap();
        let first = member.line("its number").await.unwrap();
        member.kill().await.unwrap();
        assert_eq!(member.ended().unwrap().unwrap().signal(), Some(9));
        assert!(matches!(member.pause(), Err(ProcessError::NotRunning)));
        member.kill().await.unwrap();
        member.restart().await.unwrap();
        assert_ne!(member.line("its number").await.unwrap(), first);
        member.restart().await.unwrap();
        member.line("its number").await.unwrap();
        member.stop().await.unwrap();
    }

    #[tokio::test]
    async fn one_that_is_paused_answers_once_it_goes_on() {
        let mut member = Member::spawn(echo()).unwrap();
        member.line("its number").await.unwrap();
        member.pause().unwrap();
        member.tell("").await.unwrap();
        member.resume().unwrap();
        assert_eq!(member.line("what it was told").await.unwrap(), END_OF_CLUSTER);
        // And one that is still paused can be killed.
        member.pause().unwrap();
        member.kill().await.unwrap();
    }

    #[tokio::test]
    async fn terminated_in_good_order_or_killed() {
        let polite = "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done";
        let mut member = Member::spawn(shell(polite)).unwrap();
        member.line("up").await.unwrap();
        assert_eq!(member.terminate(Duration::from_secs(60)).await.unwrap().code(), Some(7));
        let deaf = "trap '' TERM; echo up; while :; do sleep 0.01; done";
        let mut member = Member::spawn(shell(deaf)).unwrap();
        member.line("up").await.unwrap();
        let end = member.terminate(Duration::from_millis(10)).await.unwrap();
        assert_eq!(end.signal(), Some(9));
    }

    #[tokio::test]
    async fn dropping_kills_even_a_paused_one() {
        let mut member = Member::spawn(echo()).unwrap();
        member.line("its number").await.unwrap();
        member.pause().unwrap();
        let id = member.id().unwrap();
        drop(member);
        while runs(id) {
            tokio::task::yield_now().await;
            // Reaping is the runtime's, when any child changes.
            Member::spawn(shell("exit 0")).unwrap().wait().await.unwrap();
        }
    }
}

//! The program `echo-node` as processes: started by a cluster file, asked, loaded, killed, ended.

#![cfg(unix)]

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use console::assert_ends_quietly_unread;
use node_kit::cluster::{Cluster, NoProtocol, Node};
use node_kit::operation;
use node_kit::processes::{Member, Ports};
use tokio::process::Command;

type Tested = Result<(), Box<dyn Error>>;

struct World {
    folder: tempfile::TempDir,
    /// Ports of node 1: of the node, and of its operation.
    ports: Ports,
}

impl World {
    fn new() -> Result<Self, Box<dyn Error>> {
        let (folder, ports) = (tempfile::tempdir()?, Ports::reserve(4)?);
        let node = |id: u64, port: u16, operation: u16| -> Result<_, Box<dyn Error>> {
            let address = format!("tcp://127.0.0.1:{port}").parse()?;
            let node = Node::new(id.try_into()?, address, format!("node-{id}"));
            Ok(Node { operation: Some(([127, 0, 0, 1], operation).into()), ..node })
        };
        let nodes = vec![node(1, ports[0], ports[1])?, node(2, ports[2], ports[3])?];
        let cluster = Cluster::new(7, "test", nodes, NoProtocol {})?;
        fs::write(folder.path().join("cluster.toml"), cluster.to_text())?;
        Ok(Self { folder, ports })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("cluster.toml")
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_echo-node"));
        command.arg(what).arg(self.file());
        command
    }

    async fn node(&self, id: &str) -> Result<Member, Box<dyn Error>> {
        let mut command = self.command("node");
        command.arg(id);
        let mut node = Member::spawn(command)?;
        assert!(node.line("that it listens").await?.starts_with(&format!("node {id} listens")));
        Ok(node)
    }

    /// Status of what node 1 says of itself.
    async fn ask(&self, path: &str) -> Result<u16, Box<dyn Error>> {
        Ok(self.read(path).await?.0)
    }

    async fn read(&self, path: &str) -> Result<(u16, String), Box<dyn Error>> {
        Ok(operation::get(([127, 0, 0, 1], self.ports[1]).into(), path).await?)
    }
}

#[tokio::test]
async fn a_node_serves_is_killed_comes_back_and_ends_in_good_order() -> Tested {
    let world = World::new()?;
    let (mut first, mut second) = (world.node("1").await?, world.node("2").await?);
    assert_eq!(world.ask("/readyz").await?, 200);
    assert_eq!(world.ask("/traffic").await?, 200);
    assert_eq!(world.ask("/").await?, 404, "a page was not asked for");

    let loaded = world.command("load").arg("1").output().await?;
    let report: serde_json::Value = serde_json::from_slice(&loaded.stdout)?;
    assert!(report["completed"].as_u64() > Some(0), "{report}");
    assert_eq!((&report["failed"], &report["unknown"]), (&0.into(), &0.into()), "{report}");
    let (status, counted) = world.read("/metrics").await?;
    let of_echo = "convoke_tasks_started_total{node=\"n1\",method=\"node.Node/Echo\"} ";
    let tasks = counted.lines().find_map(|line| line.strip_prefix(of_echo)?.parse::<u64>().ok());
    assert!(status == 200 && tasks > Some(0), "{counted}");

    first.kill().await?;
    assert!(world.ask("/readyz").await.is_err());
    first.restart().await?;
    first.line("that it listens").await?;
    assert_eq!(world.ask("/readyz").await?, 200);
    for node in [&mut first, &mut second] {
        assert!(node.terminate(Duration::from_secs(60)).await?.success());
        assert_eq!(node.line("its end").await?, "SIGTERM: ended in good order");
    }
    Ok(())
}

#[tokio::test]
async fn a_file_is_checked_and_what_is_wrong_ends_the_program() -> Tested {
    let world = World::new()?;
    let checked = world.command("check-config").arg("2").output().await?;
    let said = String::from_utf8(checked.stdout)?;
    assert!(checked.status.success() && said.ends_with("node 2 needs no keys\n"), "{said}");
    let text = fs::read_to_string(world.file())?;
    for (wrong, expected) in [
        (text.replace("folder", "foldr"), "unknown key \"foldr\": did you mean \"folder\"?"),
        (text.replace("id = 2", "id = 1"), "have one id"),
    ] {
        fs::write(world.file(), wrong)?;
        for mut command in [world.command("check-config"), world.command("node")] {
            let refused = command.arg("1").output().await?;
            let said = String::from_utf8(refused.stderr)?;
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains("cluster.toml:") && said.contains(expected), "{said}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_page_that_is_asked_for_needs_an_address() -> Tested {
    let world = World::new()?;
    let text = fs::read_to_string(world.file())?;
    let without: Vec<_> = text.lines().filter(|line| !line.starts_with("operation")).collect();
    fs::write(world.file(), without.join("\n"))?;
    let refused = world.command("node").args(["1", "--page"]).output().await?;
    let said = String::from_utf8(refused.stderr)?;
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("give the node an `operation` in the cluster file"), "{said}");
    Ok(())
}

#[tokio::test]
async fn two_nodes_at_one_address_are_told_apart() -> Tested {
    let world = World::new()?;
    let first = world.node("1").await?;
    let second = world.command("node").arg("1").output().await?;
    let said = String::from_utf8(second.stderr)?;
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains(&world.ports[1].to_string()), "{said}");
    drop(first);
    Ok(())
}

#[test]
fn who_has_seen_enough_ends_it_quietly() -> Tested {
    let world = World::new()?;
    assert_ends_quietly_unread(world.command("check-config").as_std_mut());
    assert_ends_quietly_unread(world.command("node").arg("1").as_std_mut());
    Ok(())
}

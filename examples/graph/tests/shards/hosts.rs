//! Shards and a client by a cluster file, as on several hosts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use graph::forms::Form;
use graph::model::PersonId;
use graph::store::Sharding;

/// Two shards by `graph serve`; dropping them ends them.
struct Shards {
    config: PathBuf,
    shards: Vec<Child>,
}

impl Shards {
    /// With these options each.
    fn start(folder: &Path, options: [&[&str]; 2]) -> Self {
        let config = folder.join("cluster.toml");
        for _ in 0..5 {
            fs::write(&config, cluster()).expect("the folder is writable");
            let mut started = Self { config: config.clone(), shards: Vec::new() };
            let all = options.iter().enumerate();
            started.shards.extend(all.map_while(|(index, options)| shard(&config, index, options)));
            if started.shards.len() == 2 {
                return started;
            }
        }
        panic!("somebody takes the ports away every time");
    }

    fn query(&self, form: Form, query: &str, id: i64) -> Output {
        let (form, id) = (form.to_string(), id.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph"));
        command.arg("query").arg("--cluster").arg(&self.config).arg(query);
        command.args(["--id", &id, "--form", &form]).output().expect("it runs")
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for child in &mut self.shards {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Started, and listening; unless another program took its port meanwhile.
fn shard(config: &Path, index: usize, options: &[&str]) -> Option<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graph"));
    let command = command.arg("serve").arg("--cluster").arg(config).args(options);
    let command = command.args(["--shard", &index.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("it says where it listens");
    if line.is_empty() {
        child.wait().expect("it has ended");
        return None;
    }
    assert!(line.starts_with(&format!("shard {index} of 2 listens")), "{line:?}");
    Some(child)
}

/// Of ports that were free a moment ago.
fn cluster() -> String {
    let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("there is a free port"));
    let shard = |(id, listener): (u64, &TcpListener)| {
        let address = listener.local_addr().expect("it is bound");
        format!("[[node]]\nid = {id}\naddresses = [\"tcp://{address}\"]\n")
    };
    let shards: String = (1..).zip(&free).map(shard).collect();
    format!("[cluster]\nid = 7\nname = \"graph\"\n{shards}")
}

/// Persons whose city has another home than they, and so whose profile takes both shards.
fn spread() -> impl Iterator<Item = i64> {
    let sharding = Sharding::over(NonZeroUsize::new(2).expect("not zero"));
    let is_spread =
        move |id: &i64| sharding.of_person(PersonId(*id)) != sharding.of_city_of(PersonId(*id));
    (1..).filter(is_spread)
}

#[test]
fn shards_of_one_graph_answer_in_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = &["--persons", "60"][..];
    let shards = Shards::start(folder.path(), [options; 2]);
    for (form, id) in Form::ALL.into_iter().zip(spread()) {
        for query in ["IS1", "IS3"] {
            let output = shards.query(form, query, id);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && !said.contains("missing"), "{said}");
            assert!(said.lines().count() > 1, "{said}");
        }
    }
}

/// Rows of two graphs would be mixed, and those that one of them does not have be left out.
#[test]
fn shards_of_two_graphs_are_told_of_it() {
    for other in [["--persons", "60", "--seed", "2"], ["--persons", "30", "--seed", "1"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let shards = Shards::start(folder.path(), [&["--persons", "60"], &other]);
        // Above 30 as well: one shard has nothing of them.
        let ids = spread().take(3).chain(spread().skip_while(|id| *id <= 30).take(3));
        for (id, form) in ids.zip(Form::ALL.into_iter().cycle()) {
            for query in ["IS1", "IS3"] {
                let output = shards.query(form, query, id);
                let said = [output.stdout, output.stderr].concat();
                let said = String::from_utf8_lossy(&said);
                let case = format!("{query} of {id} as {form}, {other:?}: {said}");
                let is_told = said.contains("the same --data, or the same --persons and --seed");
                assert_ne!(is_told, output.status.success(), "{case}");
                // Of persons without friends at the other shard it is not asked.
                assert!(is_told || query == "IS3", "{case}");
            }
        }
    }
}

#[test]
fn a_client_of_another_cluster_is_refused_and_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut shards = Shards::start(folder.path(), [&["--persons", "30"]; 2]);
    let file = fs::read_to_string(&shards.config).expect("it is there");
    shards.config = folder.path().join("other.toml");
    fs::write(&shards.config, file.replace("id = 7", "id = 8")).expect("the folder is writable");
    for form in Form::ALL {
        let output = shards.query(form, "IS3", 7);
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!output.status.success(), "{form}: {said}");
        assert!(said.contains("is of cluster 7, and was asked as of cluster 8"), "{form}: {said}");
    }
}

/// As a supervisor ends it.
#[cfg(unix)]
#[test]
fn a_shard_ends_in_good_order_at_sigterm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut shards = Shards::start(folder.path(), [&["--persons", "30"]; 2]);
    let child = &mut shards.shards[0];
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(asked.expect("it runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

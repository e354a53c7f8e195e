//! The reference against the official graph and its answers by an independent engine.
//!
//! The data is not part of the repository. It is looked for in `data/ldbc-snb` of the folder named
//! by the variable `CONVOKE_SHARED`, else of a folder `shared` beside the workspace.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use graph::expected::{self, differences};
use graph::query::Query;
use graph::reference;
use graph::store::Graph;

fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = env::var_os("CONVOKE_SHARED").map_or_else(beside, PathBuf::from);
    let data = shared.join("data/ldbc-snb");
    data.join("expected.jsonl").is_file().then_some(data)
}

#[test]
fn all_official_answers_are_reproduced() {
    let Some(data) = data() else {
        eprintln!("skipped: no data/ldbc-snb in CONVOKE_SHARED or beside the workspace");
        return;
    };
    let graph = Graph::read(&data).expect("the official graph is sound");
    let answers = expected::read(&data.join("expected.jsonl")).expect("the answers are sound");
    let mut asked = BTreeMap::<Query, usize>::new();
    let mut wrong = Vec::new();
    for expected in &answers {
        *asked.entry(expected.query).or_default() += 1;
        wrong
            .extend(differences(expected, &reference::answer(&graph, expected.query, expected.id)));
    }
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(Query::ALL.iter().all(|query| asked.contains_key(query)), "{asked:?}");
    eprintln!("{} answers match: {asked:?}", answers.len());
}
